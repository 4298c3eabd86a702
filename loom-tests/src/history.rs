//! Linearizability of an end state: the known objects after everything was consumed must be those of some sequential
//! order of the calls, in which a call that returned before another one began stands before it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::check::AtomicU32;
use crate::world::{KEYS, World};

/// A call that changes what exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// An add or an update.
    Put(u32, u32),
    /// A delete.
    Delete(u32),
    /// A replace, by keys and versions.
    Replace(Vec<(u32, u32)>),
}

#[derive(Clone, Debug)]
struct Call {
    op: Op,
    begin: u32,
    end: u32,
}

type Known = BTreeMap<u32, u32>;

/// The calls of one execution.
///
/// The clock is the checker's, and orders: "returned before another one began" means that the second thread knows of
/// it. Without that edge there is no before. The list's lock is std's, which the checker does not see.
#[derive(Clone, Debug)]
pub struct History {
    initial: Known,
    clock: Arc<AtomicU32>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl History {
    /// Begins with what is known.
    pub fn new(world: &World) -> Self {
        History { initial: known(world), clock: Arc::new(AtomicU32::new(0)), calls: Arc::default() }
    }

    /// Makes a call and records it.
    pub fn run(&self, world: &World, op: Op) {
        let begin = self.clock.fetch_add(1, Ordering::AcqRel);
        match &op {
            Op::Put(key, version) => world.update(*key, *version),
            Op::Delete(key) => world.delete(*key),
            Op::Replace(list) => world.replace(list),
        }
        let end = self.clock.fetch_add(1, Ordering::AcqRel);
        self.calls.lock().unwrap().push(Call { op, begin, end });
    }

    /// Panics unless the known objects are those of a sequential order.
    pub fn assert_linearizable(&self, world: &World) {
        let mut calls = self.calls.lock().unwrap().clone();
        let result = known(world);
        if !search(&mut calls, self.initial.clone(), &result) {
            let calls = self.calls.lock().unwrap();
            panic!("not linearizable: {:?}, then {calls:?}, gave {result:?}", self.initial);
        }
    }
}

fn known(world: &World) -> Known {
    (0..KEYS).filter_map(|key| world.known(key).map(|version| (key, version))).collect()
}

/// Tries each call that may come first.
fn search(calls: &mut Vec<Call>, state: Known, result: &Known) -> bool {
    if calls.is_empty() {
        return state == *result;
    }
    (0..calls.len()).any(|i| {
        if calls.iter().any(|other| other.end < calls[i].begin) {
            return false;
        }
        let call = calls.remove(i);
        let mut next = state.clone();
        match &call.op {
            Op::Put(key, version) => drop(next.insert(*key, *version)),
            Op::Delete(key) => drop(next.remove(key)),
            Op::Replace(list) => next = list.iter().copied().collect(),
        }
        let found = search(calls, next, result);
        calls.insert(i, call);
        found
    })
}

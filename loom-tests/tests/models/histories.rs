//! Linearizability of single keys, pops included: the specification of the real-thread test
//! (`tests/linearizability.rs`), here on every interleaving of two small plans.

#[path = "../../../tests/linearizability/spec.rs"]
mod spec;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom_tests::*;
use spec::{Change, Record, Step, is_linearizable};

#[derive(Clone, Copy, PartialEq)]
enum Call {
    Update(u32, u32),
    Delete(u32),
    Pop,
    /// Of the claim this thread popped last, if it has one.
    Release,
    Requeue,
}
use Call::{Delete, Pop, Release, Requeue, Update};

/// Makes the calls of one thread, and records them with a clock that orders (see `History`).
fn make(w: &World, clock: &AtomicU32, calls: &[Call]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut held = Vec::new();
    let now = || u64::from(clock.fetch_add(1, Ordering::AcqRel));
    for call in calls {
        let begin = now();
        let steps = match *call {
            Update(key, version) => {
                w.update(key, version);
                vec![Step::Put(key, version)]
            }
            Delete(key) => {
                w.delete(key);
                vec![Step::Delete(key)]
            }
            Pop => match w.fifo.try_pop() {
                Err(_) => vec![Step::Ticket(None)],
                Ok(claim) => {
                    let change = |object: Option<&Arc<Obj>>| object.map_or(Change::Gone, |o| Change::Put(o.version));
                    let changes = claim.deltas().iter().map(|d| change(d.object().filter(|_| !d.is_deleted())));
                    let steps = vec![Step::Ticket(Some(*claim.key())), Step::Take(*claim.key(), changes.collect())];
                    held.push(claim);
                    steps
                }
            },
            Release | Requeue => match held.pop() {
                None => continue,
                Some(claim) => {
                    let key = *claim.key();
                    if *call == Release {
                        claim.done();
                        vec![Step::Release(key)]
                    } else {
                        claim.requeue();
                        vec![Step::Requeue(key)]
                    }
                }
            },
        };
        let end = now();
        let mut after = None;
        for step in steps {
            let this = records.len();
            records.push(Record { step, begin, end, after: after.replace(this) });
        }
    }
    for claim in held {
        let (key, begin) = (*claim.key(), now());
        claim.done();
        records.push(Record { step: Step::Release(key), begin, end: now(), after: None });
    }
    records
}

fn linearizable(name: &'static str, plan: &'static [&'static [Call]]) {
    check(name, move || {
        let w = World::new(Mode::Embedded);
        let clock = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = plan[1..]
            .iter()
            .map(|calls| {
                let clock = clock.clone();
                spawn(&w, move |w| make(w, &clock, calls))
            })
            .collect();
        let mut histories = vec![make(&w, &clock, plan[0])];
        histories.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        let mut history = Vec::new();
        for records in histories {
            let offset = history.len();
            history.extend(records.into_iter().map(|r| Record { after: r.after.map(|i| i + offset), ..r }));
        }
        assert!(is_linearizable(&history), "not linearizable: {history:#?}");
    });
}

/// **Push, pop and release of one key against another producer, and a key in the other shard.** Main updates key 1, pops,
/// releases and pops again; thread A updates keys 1 and 2. Every answer of a pop must fit one sequential order.
///
/// Bound 2: 280 executions.
#[test]
fn pops_are_linearizable() {
    linearizable(
        "pops_are_linearizable",
        &[&[Update(1, 1), Pop, Release, Pop, Release], &[Update(1, 2), Update(2, 3), Pop, Release]],
    );
}

/// **The same with a requeue and a delete.** Main updates, pops, requeues and pops; thread A updates and deletes key 1.
///
/// Bound 2: 331 executions.
#[test]
fn requeues_are_linearizable() {
    linearizable(
        "requeues_are_linearizable",
        &[&[Update(1, 1), Pop, Requeue, Pop, Release], &[Update(1, 2), Delete(1), Pop]],
    );
}

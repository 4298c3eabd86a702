//! One run: a fixed script of calls on a queue of panicking user types, a journal of what came of each, and the check.

#![allow(unreachable_pub, missing_debug_implementations)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use delta_fifo::{BoxError, Claim, Compression, Delta, DeltaFifo, DeltaType, KnownObjects, Limits, TryPushError};

use crate::inject::{Alarm, Key, Object, Plan, Site, under, visit};

/// The same calls in the same order in every run: no random hash.
type Hasher = BuildHasherDefault<DefaultHasher>;
pub type Fifo = DeltaFifo<Object, Key, Hasher>;

/// The keys of the script; more of them are added to make the table grow.
const KEYS: u32 = 12;
/// More than the script ever has pending, so that it never waits.
const LIMIT: usize = 200;

/// The queue of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub embedded: bool,
    pub functions: bool,
    pub limited: bool,
    pub two_lanes: bool,
    pub keep_latest: bool,
}

#[derive(Default)]
pub struct Store(Mutex<BTreeMap<u32, Arc<Object>>>);

impl Store {
    fn apply(&self, id: u32, delta: &Delta<Object, Key>) {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = match delta.object().filter(|_| !delta.is_deleted()) {
            Some(object) => objects.insert(id, object.clone()),
            None => objects.remove(&id),
        };
        // The old object may panic when it goes, and must not do so under the lock.
        drop(objects);
        drop(old);
    }

    pub fn get(&self, id: u32) -> Option<Arc<Object>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

struct View {
    store: Arc<Store>,
    plan: Arc<Plan>,
}

impl KnownObjects<Object, Key> for View {
    fn list_keys(&self) -> Vec<Key> {
        visit(Site::ListKeys);
        let ids: Vec<u32> = self.store.0.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        ids.into_iter().map(|id| Key::new(id, &self.plan)).collect()
    }

    fn get_by_key(&self, key: &Key) -> Result<Option<Arc<Object>>, BoxError> {
        visit(Site::GetByKey);
        Ok(self.store.get(key.id))
    }
}

pub fn build(setup: Setup, plan: &Arc<Plan>, store: &Arc<Store>) -> Fifo {
    let mut builder = DeltaFifo::<Object, Key>::builder_with_key_fn(|object: &Object| {
        visit(Site::KeyFn);
        Ok::<_, &str>(Key::new(object.id, object.plan()))
    })
    .emit_replaced(true)
    .shards(2)
    // Idle slots go at once, so the table shrinks too.
    .idle_keys(2);
    if setup.functions {
        builder = builder.transform(|object| {
            visit(Site::Transform);
            Ok::<_, &str>(object)
        });
        builder = builder.compression(Compression::Custom(Arc::new(|_, deltas| {
            visit(Site::Compress);
            deltas
        })));
    }
    if setup.keep_latest {
        builder = builder.compression(Compression::KeepLatest);
    }
    builder = match setup.embedded {
        true => builder.embedded_store(),
        false => builder.known_objects(View { store: store.clone(), plan: plan.clone() }),
    };
    if setup.limited {
        builder = builder.limits(Limits { keys: Some(LIMIT), deltas: Some(LIMIT) });
    }
    if setup.two_lanes {
        builder = builder.background_share(NonZeroU32::new(3).expect("3 is not 0"));
    }
    builder.hasher(Hasher::default()).build()
}

/// What was reported of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    /// Add, update, or in a list; the number of the object.
    Update(u32),
    Delete,
}

pub struct Run {
    setup: Setup,
    plan: Arc<Plan>,
    pub fifo: Fifo,
    store: Arc<Store>,
    next_number: Mutex<u32>,
    /// By key: what was reported, and whether the call returned.
    journal: Mutex<Vec<(u32, Reported, bool)>>,
    /// By key: what was processed.
    processed: Mutex<Vec<(u32, DeltaType, Option<u32>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub fn new(setup: Setup, plan: &Arc<Plan>) -> Run {
        let store = Arc::new(Store::default());
        Run {
            setup,
            plan: plan.clone(),
            fifo: build(setup, plan, &store),
            store,
            next_number: Mutex::new(0),
            journal: Mutex::new(Vec::new()),
            processed: Mutex::new(Vec::new()),
        }
    }

    // ----- the steps of a script: each may panic, and none takes the run with it -----

    fn object(&self, id: u32) -> Arc<Object> {
        let mut next = lock(&self.next_number);
        *next += 1;
        Arc::new(Object::new(id, *next, &self.plan))
    }

    pub fn report(&self, ids: &[u32], call: impl FnOnce(&Fifo, Vec<Arc<Object>>)) {
        let objects: Vec<_> = ids.iter().map(|id| self.object(*id)).collect();
        let numbers: Vec<_> = objects.iter().map(|object| (object.id, Reported::Update(object.number))).collect();
        let returned = under(&self.plan, || call(&self.fifo, objects)).is_some();
        lock(&self.journal).extend(numbers.into_iter().map(|(id, reported)| (id, reported, returned)));
    }

    pub fn update(&self, id: u32) {
        self.report(&[id], |fifo, mut objects| {
            let object = objects.pop().expect("there is one");
            fifo.update(object).expect("the key function does not fail");
        });
    }

    pub fn delete(&self, id: u32) {
        let object = self.object(id);
        let returned = under(&self.plan, || self.fifo.delete(object).expect("the key function does not fail"));
        lock(&self.journal).push((id, Reported::Delete, returned.is_some()));
    }

    fn tombstone(&self, id: u32) {
        let key = Key::new(id, &self.plan);
        let returned = under(&self.plan, || self.fifo.delete_final_state_unknown(key, None));
        lock(&self.journal).push((id, Reported::Delete, returned.is_some()));
    }

    pub fn replace(&self, ids: &[u32]) {
        self.report(ids, |fifo, objects| fifo.replace(objects).expect("the key function does not fail"));
        let returned = lock(&self.journal).last().is_none_or(|last| last.2);
        let gone = (0..KEYS).filter(|id| !ids.contains(id));
        lock(&self.journal).extend(gone.map(|id| (id, Reported::Delete, returned)));
    }

    pub fn resync(&self) {
        under(&self.plan, || self.fifo.resync().expect("the key function does not fail"));
    }

    /// Pops and handles one key; `with` runs while it is claimed. `false`: nothing is queued.
    pub fn pop(&self, with: impl FnOnce()) -> bool {
        under(&self.plan, || match self.fifo.try_pop() {
            Ok(claim) => {
                with();
                self.handle(claim);
                true
            }
            Err(_) => false,
        })
        .unwrap_or(true)
    }

    pub fn handle(&self, claim: Claim<'_, Object, Key, Hasher>) {
        let id = claim.key().id;
        visit(Site::Handler);
        for delta in claim.deltas() {
            self.store.apply(id, delta);
            visit(Site::Handler);
        }
        // All or nothing: what is written down was processed, and the release follows.
        let records = claim.deltas().iter().map(|delta| (id, delta.delta_type(), delta.object().map(|o| o.number)));
        lock(&self.processed).extend(records);
        claim.done();
    }

    fn requeue(&self) {
        under(&self.plan, || {
            if let Ok(claim) = self.fifo.try_pop() {
                claim.requeue();
            }
        });
    }

    /// A consumer waits; something comes; it is woken and takes it.
    fn wait_and_wake(&self, id: u32) {
        let mut popped = pin!(self.fifo.pop());
        let (_, waker) = Alarm::new();
        let first = under(&self.plan, || match popped.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(claim) => claim.into_iter().for_each(|claim| self.handle(claim)),
            Poll::Pending => {}
        });
        self.update(id);
        if first.is_none() {
            return;
        }
        under(&self.plan, || match popped.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(claim) => claim.into_iter().for_each(|claim| self.handle(claim)),
            // The update panicked before it came to the queue.
            Poll::Pending => {}
        });
    }

    /// Everything the queue can do, in about 60 calls.
    pub fn script(&self) {
        self.replace(&[0, 1, 2, 3]);
        self.pop(|| ());
        self.update(0);
        self.update(1);
        self.delete(2);
        self.update(2);
        self.pop(|| {
            // Its own key, or one that is queued: dirty, or joined.
            let key = Key::new(1, &self.plan);
            self.fifo.delete_final_state_unknown(key, None);
        });
        lock(&self.journal).push((1, Reported::Delete, false));
        self.requeue();
        while self.pop(|| ()) {}
        self.resync();
        self.update(3);
        self.requeue();
        while self.pop(|| ()) {}
        (4..KEYS).for_each(|id| self.update(id));
        self.replace(&[0, 4, 5]);
        self.tombstone(4);
        self.update(4);
        under(&self.plan, || {
            let batch = self.fifo.try_pop_batch(4).unwrap_or_default();
            batch.into_iter().for_each(|claim| self.handle(claim));
        });
        while self.pop(|| ()) {}
        self.wait_and_wake(6);
        while self.pop(|| ()) {}
        under(&self.plan, || {
            let _ = (self.fifo.list_keys(), self.fifo.known_keys());
            let key = Key::new(0, &self.plan);
            let _ = (self.fifo.get(&key), self.fifo.known_object(&key));
        });
        self.update(0);
        self.delete(0);
        self.resync();
        self.pop(|| ());
    }

    // ----- the check -----

    /// What is wrong after the faults, if anything. No fault fires any more.
    pub fn check(self) -> String {
        let mut wrong = String::new();
        let mut note = |text: String| writeln!(wrong, "{text}").expect("a string takes it");
        self.drain(&mut note);
        if !self.fifo.is_empty() || !self.fifo.list_keys().is_empty() {
            note(format!("drained, but {} are queued and {:?} pending", self.fifo.len(), self.fifo.list_keys()));
        }
        // No key is stuck: each takes one more update and gives exactly that back.
        for id in 0..KEYS {
            let probe = self.object(id);
            let number = probe.number;
            self.fifo.update(probe).expect("the key function does not fail");
            match self.fifo.try_pop() {
                Ok(claim) if claim.key().id == id && claim.deltas().len() == 1 => {
                    self.store.apply(id, &claim.deltas()[0]);
                    lock(&self.processed).push((id, DeltaType::Updated, Some(number)));
                    lock(&self.journal).push((id, Reported::Update(number), true));
                }
                other => note(format!("key {id} is stuck: {other:?}")),
            }
        }
        if !self.fifo.has_synced() {
            note("everything was processed, but the queue has not synced".to_owned());
        }
        if self.setup.limited {
            self.check_room(&mut note);
        }
        (0..KEYS).for_each(|id| self.check_key(id, &mut note));
        let plan = self.plan.clone();
        drop(self);
        if plan.live() != (0, 0) {
            note(format!("the queue is gone, but there are keys and objects left: {:?}", plan.live()));
        }
        wrong
    }

    fn drain(&self, note: &mut impl FnMut(String)) {
        for _ in 0..1_000 {
            match self.fifo.try_pop() {
                Ok(claim) => self.handle(claim),
                Err(_) => return,
            }
        }
        note("the queue never becomes empty".to_owned());
    }

    /// Nothing is pending, so everything fits, and no more.
    fn check_room(&self, note: &mut impl FnMut(String)) {
        for n in 0..LIMIT as u32 {
            if self.fifo.try_add(Object::new(1_000 + n, 0, &self.plan)).is_err() {
                return note(format!("nothing is pending, but there is room for {n} of {LIMIT} only"));
            }
        }
        if !matches!(self.fifo.try_add(Object::new(0, 0, &self.plan)), Err(TryPushError::Full(_))) {
            note("more fits than the limit says".to_owned());
        }
        while let Ok(claim) = self.fifo.try_pop() {
            claim.done();
        }
    }

    fn check_key(&self, id: u32, note: &mut impl FnMut(String)) {
        let journal: Vec<_> = lock(&self.journal).iter().filter(|r| r.0 == id).map(|r| (r.1, r.2)).collect();
        let processed: Vec<_> = lock(&self.processed).iter().filter(|r| r.0 == id).map(|r| (r.1, r.2)).collect();
        let mut context = |text: &str| note(format!("key {id}: {text}; reported {journal:?}, processed {processed:?}"));
        let is_update = |kind: DeltaType| kind != DeltaType::Deleted && kind != DeltaType::Sync;
        let updates: Vec<u32> = processed.iter().filter(|p| is_update(p.0)).filter_map(|p| p.1).collect();
        if !updates.is_sorted_by(|a, b| a < b) {
            context("out of order, or twice");
        }
        for window in updates.windows(2) {
            // A deletion that was reported between two updates, both of which returned, shows between them.
            let place = |n: u32| journal.iter().position(|r| r.0 == Reported::Update(n));
            let (Some(from), Some(to)) = (place(window[0]), place(window[1])) else { continue };
            let reported = journal[from..to].contains(&(Reported::Delete, true));
            let at = |n: u32| processed.iter().position(|p| is_update(p.0) && p.1 == Some(n)).expect("it is there");
            let shown = processed[at(window[0])..at(window[1])].iter().any(|p| p.0 == DeltaType::Deleted);
            if reported && !shown {
                context("a deletion was lost");
            }
        }
        for (reported, returned) in &journal {
            if let Reported::Update(number) = reported
                && *returned
                && !self.setup.keep_latest
                && !updates.contains(number)
            {
                context(&format!("update {number} was lost"));
            }
        }
        let last = processed.last().filter(|p| p.0 != DeltaType::Deleted).and_then(|p| p.1);
        let stored = match self.setup.embedded {
            true => self.fifo.known_object(&Key::new(id, &self.plan)),
            false => self.store.get(id),
        };
        if stored.as_ref().map(|object| object.number) != last {
            context(&format!("the store has {stored:?}"));
        }
    }
}

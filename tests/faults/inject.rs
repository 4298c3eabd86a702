//! User code that panics on demand: keys, objects, functions and wakers that report every call to a plan.

#![allow(unreachable_pub, missing_debug_implementations)]

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread;

/// A kind of call into user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    KeyFn,
    Transform,
    Compress,
    ListKeys,
    GetByKey,
    Handler,
    KeyClone,
    KeyDrop,
    KeyEq,
    KeyHash,
    ObjectDrop,
    Wake,
    WakerDrop,
}

/// Which calls panic, and what has happened.
pub struct Plan {
    sites: Vec<Site>,
    /// By number, counted over all sites of the plan.
    at: Vec<u64>,
    /// One call in so many, at random; 0: none.
    one_in: u32,
    calls: AtomicU64,
    fired: Mutex<Vec<Site>>,
    live_keys: AtomicI64,
    live_objects: AtomicI64,
}

impl Plan {
    pub fn new(sites: &[Site], at: &[u64], one_in: u32) -> Arc<Plan> {
        Arc::new(Plan {
            sites: sites.to_vec(),
            at: at.to_vec(),
            one_in,
            calls: AtomicU64::new(0),
            fired: Mutex::new(Vec::new()),
            live_keys: AtomicI64::new(0),
            live_objects: AtomicI64::new(0),
        })
    }

    /// The calls counted so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The keys and objects that have not been dropped.
    pub fn live(&self) -> (i64, i64) {
        (self.live_keys.load(Ordering::Relaxed), self.live_objects.load(Ordering::Relaxed))
    }

    /// Where it panicked.
    pub fn fired(&self) -> Vec<Site> {
        self.fired.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

thread_local!(static ACTIVE: RefCell<Option<Arc<Plan>>> = const { RefCell::new(None) });

/// Raised past the panic hook, so that thousands of them leave the output readable.
pub struct Injected;

/// Runs `work` under the plan; `None` if a panic of the plan came out of it.
pub fn under<R>(plan: &Arc<Plan>, work: impl FnOnce() -> R) -> Option<R> {
    ACTIVE.set(Some(plan.clone()));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    ACTIVE.set(None);
    match outcome {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Injected>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// User code is called here. A second panic during an unwind would abort, by the rules of the language.
pub fn visit(site: Site) {
    let Ok(Some(plan)) = ACTIVE.try_with(|active| active.borrow().clone()) else { return };
    if thread::panicking() || !plan.sites.contains(&site) {
        return;
    }
    let call = plan.calls.fetch_add(1, Ordering::Relaxed) + 1;
    if plan.at.contains(&call) || (plan.one_in != 0 && fastrand::u32(..plan.one_in) == 0) {
        plan.fired.lock().unwrap_or_else(PoisonError::into_inner).push(site);
        resume_unwind(Box::new(Injected));
    }
}

/// A key whose every trait is user code.
pub struct Key {
    pub id: u32,
    plan: Arc<Plan>,
}

impl Key {
    pub fn new(id: u32, plan: &Arc<Plan>) -> Key {
        plan.live_keys.fetch_add(1, Ordering::Relaxed);
        Key { id, plan: plan.clone() }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.id, self.number)
    }
}

impl Clone for Key {
    fn clone(&self) -> Key {
        visit(Site::KeyClone);
        Key::new(self.id, &self.plan)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.plan.live_keys.fetch_sub(1, Ordering::Relaxed);
        visit(Site::KeyDrop);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        visit(Site::KeyEq);
        self.id == other.id
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        visit(Site::KeyHash);
        self.id.hash(state);
    }
}

/// One state of a key; `number` is unique in a run.
pub struct Object {
    pub id: u32,
    pub number: u32,
    plan: Arc<Plan>,
}

impl Object {
    pub fn new(id: u32, number: u32, plan: &Arc<Plan>) -> Object {
        plan.live_objects.fetch_add(1, Ordering::Relaxed);
        Object { id, number, plan: plan.clone() }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.plan.live_objects.fetch_sub(1, Ordering::Relaxed);
        visit(Site::ObjectDrop);
    }
}

/// A waker that counts, and may panic.
#[derive(Default)]
pub struct Alarm {
    rung: AtomicU64,
}

impl Alarm {
    pub fn new() -> (Arc<Alarm>, Waker) {
        let alarm = Arc::new(Alarm::default());
        (alarm.clone(), Waker::from(alarm))
    }

    pub fn rung(&self) -> u64 {
        self.rung.load(Ordering::Relaxed)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        visit(Site::Wake);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        visit(Site::WakerDrop);
    }
}

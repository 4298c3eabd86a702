//! The obligations of the queue (docs/semantics.md, "What the queue promises"), each by a test that fails when it is
//! broken. Where an obligation is about a moment inside a call, the call's own user code is that moment: the known
//! objects of these tests run a hook, in the middle of a Replace or a Resync.

mod consumers;
mod during_replace;
mod existence;
mod limits;
mod ordering;
mod replace;
mod resync;
mod synced;
mod user_code;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use delta_fifo::{BoxError, Builder, Claim, Deleted, Delta, DeltaFifo, DeltaType, Deltas, KnownObjects};

/// An object: key and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Obj {
    pub(crate) key: u32,
    pub(crate) version: u32,
}

pub(crate) fn obj(key: u32, version: u32) -> Obj {
    Obj { key, version }
}

pub(crate) type Fifo = DeltaFifo<Obj, u32>;

pub(crate) fn builder() -> Builder<Obj, u32> {
    DeltaFifo::builder_with_key_fn(|o: &Obj| if o.key == u32::MAX { Err("no key") } else { Ok(o.key) })
}

pub(crate) fn list(objects: &[Obj]) -> Vec<Arc<Obj>> {
    objects.iter().copied().map(Arc::new).collect()
}

/// A delta as it is easiest to compare: type, version, and whether it is a tombstone.
pub(crate) fn short(deltas: &Deltas<Obj, u32>) -> Vec<(DeltaType, Option<u32>, bool)> {
    let tombstone = |d: &Delta<Obj, u32>| matches!(d, Delta::Deleted(Deleted::FinalStateUnknown(_)));
    deltas.iter().map(|d| (d.delta_type(), d.object().map(|o| o.version), tombstone(d))).collect()
}

/// Pops one key; its deltas, and the claim's release.
pub(crate) fn pop(fifo: &Fifo) -> (u32, Vec<(DeltaType, Option<u32>, bool)>) {
    let claim = fifo.try_pop().expect("something is queued");
    (*claim.key(), short(claim.deltas()))
}

/// What a consumer has applied, with a hook that runs inside the queue's calls.
#[derive(Default)]
pub(crate) struct Store {
    objects: Mutex<BTreeMap<u32, Arc<Obj>>>,
    on_list: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    on_get: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub(crate) fail_get: std::sync::atomic::AtomicBool,
}

impl Store {
    pub(crate) fn with(objects: &[Obj]) -> Arc<Store> {
        let store = Arc::new(Store::default());
        for o in objects {
            store.objects.lock().unwrap().insert(o.key, Arc::new(*o));
        }
        store
    }

    /// Runs `hook` in the next `list_keys`, after the keys were read.
    pub(crate) fn on_next_list(&self, hook: impl FnOnce() + Send + 'static) {
        *self.on_list.lock().unwrap() = Some(Box::new(hook));
    }

    /// Runs `hook` in the next `get_by_key`, after the object was read.
    pub(crate) fn on_next_get(&self, hook: impl FnOnce() + Send + 'static) {
        *self.on_get.lock().unwrap() = Some(Box::new(hook));
    }

    pub(crate) fn apply(&self, claim: &Claim<'_, Obj, u32>) {
        for delta in claim.deltas() {
            match delta {
                Delta::Deleted(_) => self.objects.lock().unwrap().remove(claim.key()),
                other => self.objects.lock().unwrap().insert(*claim.key(), other.object().unwrap().clone()),
            };
        }
    }

    pub(crate) fn version(&self, key: u32) -> Option<u32> {
        self.objects.lock().unwrap().get(&key).map(|o| o.version)
    }
}

impl KnownObjects<Obj, u32> for Store {
    fn list_keys(&self) -> Vec<u32> {
        let keys = self.objects.lock().unwrap().keys().copied().collect();
        let hook = self.on_list.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        keys
    }

    fn get_by_key(&self, key: &u32) -> Result<Option<Arc<Obj>>, BoxError> {
        if self.fail_get.load(std::sync::atomic::Ordering::Relaxed) {
            return Err("the store is away".into());
        }
        let object = self.objects.lock().unwrap().get(key).cloned();
        let hook = self.on_get.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(object)
    }
}

/// A queue over `store`, with Replaced deltas.
pub(crate) fn fifo_over(store: &Arc<Store>) -> Arc<Fifo> {
    Arc::new(builder().known_objects(store.clone()).emit_replaced(true).idle_keys(0).build())
}

/// Pops, applies and releases everything that is queued.
pub(crate) fn drain(fifo: &Fifo, store: &Store) {
    while let Ok(claim) = fifo.try_pop() {
        store.apply(&claim);
    }
}

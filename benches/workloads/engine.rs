//! The queues that race. Each takes the handler where it can: under its lock, or outside.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use delta_fifo::baseline::MutexFifo;
use delta_fifo::{BoxError, DefaultHashBuilder, DeltaFifo, Deltas, KnownObjects};

use super::object::Object;

/// A queue with a store of what was applied.
pub trait Engine: Send + Sync + 'static {
    const NAME: &'static str;

    /// For about so many keys.
    fn new(keys: usize) -> Self;
    fn add(&self, object: Arc<Object>);
    fn update(&self, object: Arc<Object>);
    /// Waits for a key, applies its deltas to the store and calls the handler with their number. `false`: the queue is
    /// closed and nothing is left.
    fn pop(&self, handler: impl FnMut(usize)) -> bool;
    fn replace(&self, list: Vec<Arc<Object>>);
    fn resync(&self);
    fn close(&self);
    fn is_empty(&self) -> bool;
    /// How many objects the store has.
    fn stored(&self) -> usize;
    fn knows(&self, key: &str) -> bool;

    /// Makes objects known, the way they become so: added, popped, applied.
    fn know(&self, objects: &[Arc<Object>]) {
        for object in objects {
            self.add(object.clone());
            self.pop(|_| {});
        }
    }
}

/// The engine with its own store: the release of a claim is the apply.
pub struct Embedded(DeltaFifo<Object>);

impl Engine for Embedded {
    const NAME: &'static str = "delta-fifo";

    fn new(keys: usize) -> Self {
        Embedded(DeltaFifo::builder().embedded_store().emit_replaced(true).expected_keys(keys).build())
    }
    fn add(&self, object: Arc<Object>) {
        self.0.add(object).expect("the key function cannot fail");
    }
    fn update(&self, object: Arc<Object>) {
        self.0.update(object).expect("the key function cannot fail");
    }
    fn pop(&self, mut handler: impl FnMut(usize)) -> bool {
        let Ok(claim) = self.0.pop_blocking() else { return false };
        handler(claim.deltas().len());
        true
    }
    fn replace(&self, list: Vec<Arc<Object>>) {
        self.0.replace(list).expect("the key function cannot fail");
    }
    fn resync(&self) {
        self.0.resync().expect("the key function cannot fail");
    }
    fn close(&self) {
        self.0.close();
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn stored(&self) -> usize {
        self.0.known_keys().len()
    }
    fn knows(&self, key: &str) -> bool {
        self.0.known_object(&key.into()).is_some()
    }
}

/// The store that the baseline and [`External`] apply to: a map behind a lock, locked once per claim.
#[derive(Default)]
struct Store(RwLock<HashMap<Arc<str>, Arc<Object>, DefaultHashBuilder>>);

impl Store {
    fn apply(&self, key: &Arc<str>, deltas: &Deltas<Object>) {
        let mut objects = self.0.write().expect("no handler panics");
        for delta in deltas {
            match delta.object() {
                Some(object) if !delta.is_deleted() => drop(objects.insert(key.clone(), object.clone())),
                _ => drop(objects.remove(key)),
            }
        }
    }

    fn len(&self) -> usize {
        self.0.read().expect("no handler panics").len()
    }

    fn knows(&self, key: &str) -> bool {
        self.0.read().expect("no handler panics").contains_key(key)
    }
}

impl KnownObjects<Object, Arc<str>> for Store {
    fn list_keys(&self) -> Vec<Arc<str>> {
        self.0.read().expect("no handler panics").keys().cloned().collect()
    }
    fn get_by_key(&self, key: &Arc<str>) -> Result<Option<Arc<Object>>, BoxError> {
        Ok(self.0.read().expect("no handler panics").get(key).cloned())
    }
}

/// The engine with the baseline's store.
pub struct External {
    queue: DeltaFifo<Object>,
    store: Arc<Store>,
}

impl Engine for External {
    const NAME: &'static str = "delta-fifo/external";

    fn new(keys: usize) -> Self {
        let store = Arc::new(Store::default());
        let queue = DeltaFifo::builder().known_objects(store.clone()).emit_replaced(true).expected_keys(keys).build();
        External { queue, store }
    }
    fn add(&self, object: Arc<Object>) {
        self.queue.add(object).expect("the key function cannot fail");
    }
    fn update(&self, object: Arc<Object>) {
        self.queue.update(object).expect("the key function cannot fail");
    }
    fn pop(&self, mut handler: impl FnMut(usize)) -> bool {
        let Ok(claim) = self.queue.pop_blocking() else { return false };
        self.store.apply(claim.key(), claim.deltas());
        handler(claim.deltas().len());
        true
    }
    fn replace(&self, list: Vec<Arc<Object>>) {
        self.queue.replace(list).expect("the key function cannot fail");
    }
    fn resync(&self) {
        self.queue.resync().expect("the key function cannot fail");
    }
    fn close(&self) {
        self.queue.close();
    }
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    fn stored(&self) -> usize {
        self.store.len()
    }
    fn knows(&self, key: &str) -> bool {
        self.store.knows(key)
    }
}

/// The baseline: the handler runs under the queue's lock (`HELD`, as in client-go's DeltaFIFO) or outside.
pub struct Mutex<const HELD: bool> {
    queue: MutexFifo<Object>,
    store: Arc<Store>,
}

pub type Held = Mutex<true>;
pub type Outside = Mutex<false>;

impl<const HELD: bool> Engine for Mutex<HELD> {
    const NAME: &'static str = if HELD { "mutex-held" } else { "mutex-outside" };

    fn new(_: usize) -> Self {
        let store = Arc::new(Store::default());
        let queue = MutexFifo::builder().known_objects(store.clone()).emit_replaced(true).build();
        Mutex { queue, store }
    }
    fn add(&self, object: Arc<Object>) {
        self.queue.add(object).expect("the key function cannot fail");
    }
    fn update(&self, object: Arc<Object>) {
        self.queue.update(object).expect("the key function cannot fail");
    }
    fn pop(&self, mut handler: impl FnMut(usize)) -> bool {
        if HELD {
            let process = |popped: &mut delta_fifo::baseline::Popped<_, _>| {
                self.store.apply(&popped.key, &popped.deltas);
                handler(popped.deltas.len());
            };
            return self.queue.pop_held(process).is_ok();
        }
        let Ok(claim) = self.queue.pop_blocking() else { return false };
        self.store.apply(claim.key(), claim.deltas());
        handler(claim.deltas().len());
        true
    }
    fn replace(&self, list: Vec<Arc<Object>>) {
        self.queue.replace(list).expect("the key function cannot fail");
    }
    fn resync(&self) {
        self.queue.resync().expect("the key function cannot fail");
    }
    fn close(&self) {
        self.queue.close();
    }
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    fn stored(&self) -> usize {
        self.store.len()
    }
    fn knows(&self, key: &str) -> bool {
        self.store.knows(key)
    }
}

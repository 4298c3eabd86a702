//! The queue of a model, its known objects, and a consumer that keeps them.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::check::{AtomicU32, thread};
use delta_fifo::{BoxError, Builder, Claim, Delta, DeltaFifo, KnownObjects};

/// An object: its key and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Obj {
    /// Even keys are in one shard of the stand-in table, odd keys in the other.
    pub key: u32,
    /// Grows with every change that a model makes.
    pub version: u32,
}

/// An object of a key.
pub fn obj(key: u32, version: u32) -> Arc<Obj> {
    Arc::new(Obj { key, version })
}

/// A key is its own hash, so that an execution can be replayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u32")
    }
    fn write_u32(&mut self, key: u32) {
        self.0 = key.into();
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The queue under test.
pub type Fifo = DeltaFifo<Obj, u32, BuildHasherDefault<Identity>>;
/// Its builder.
pub type FifoBuilder = Builder<Obj, u32, BuildHasherDefault<Identity>>;
/// A claim of it.
pub type FifoClaim<'q> = Claim<'q, Obj, u32, BuildHasherDefault<Identity>>;

/// Where a model's known objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nowhere.
    Nowhere,
    /// In the queue.
    Embedded,
    /// In a [`Store`].
    External,
}

/// Keys of a model are below this.
pub const KEYS: u32 = 4;

/// A user's store that orders nothing: one relaxed word per key (0: no object). What the queue promises about known
/// objects has to hold by the queue's own edges.
#[derive(Debug)]
pub struct Store {
    versions: [AtomicU32; KEYS as usize],
    /// The keys a model uses, so that a walk costs no more steps than needed.
    keys: Mutex<Vec<u32>>,
}

impl Default for Store {
    fn default() -> Self {
        Store { versions: std::array::from_fn(|_| AtomicU32::new(0)), keys: Mutex::default() }
    }
}

impl Store {
    fn get(&self, key: u32) -> Option<u32> {
        let version = self.versions[key as usize].load(Ordering::Relaxed);
        (version != 0).then_some(version)
    }

    fn set(&self, key: u32, version: Option<u32>) {
        let mut keys = self.keys.lock().unwrap();
        if !keys.contains(&key) {
            keys.push(key);
        }
        drop(keys);
        self.versions[key as usize].store(version.unwrap_or(0), Ordering::Relaxed);
    }
}

impl KnownObjects<Obj, u32> for Store {
    fn list_keys(&self) -> Vec<u32> {
        let mut keys = self.keys.lock().unwrap().clone();
        keys.sort_unstable();
        keys.retain(|&key| self.get(key).is_some());
        keys
    }

    fn get_by_key(&self, key: &u32) -> Result<Option<Arc<Obj>>, BoxError> {
        Ok(self.get(*key).map(|version| obj(*key, version)))
    }
}

/// A queue and its known objects.
#[derive(Debug)]
pub struct World {
    /// The queue. Shared, so that a claim can be sent to a thread.
    pub fifo: Arc<Fifo>,
    store: Option<Arc<Store>>,
    mode: Mode,
}

impl World {
    /// A queue whose idle keys keep no slot. Replace emits `Replaced`, so that a `Sync` is always a Resync's.
    pub fn new(mode: Mode) -> Arc<World> {
        World::with(mode, |builder| builder)
    }

    /// The same with further options.
    pub fn with(mode: Mode, options: impl FnOnce(FifoBuilder) -> FifoBuilder) -> Arc<World> {
        let builder = DeltaFifo::<Obj, u32>::builder_with_key_fn(|o: &Obj| Ok::<_, BoxError>(o.key))
            .hasher(BuildHasherDefault::<Identity>::default())
            .idle_keys(0)
            .emit_replaced(true);
        let mut store = None;
        let builder = match mode {
            Mode::Nowhere => builder,
            Mode::Embedded => builder.embedded_store(),
            Mode::External => builder.known_objects(store.insert(Arc::new(Store::default())).clone()),
        };
        Arc::new(World { fifo: Arc::new(options(builder).build()), store, mode })
    }

    /// The version of a key's known object.
    pub fn known(&self, key: u32) -> Option<u32> {
        match &self.store {
            Some(store) => store.get(key),
            None => self.fifo.known_object(&key).map(|object| object.version),
        }
    }

    /// Makes an object known before the model begins.
    pub fn seed(&self, key: u32, version: u32) {
        match &self.store {
            Some(store) => store.set(key, Some(version)),
            None => {
                self.add(key, version);
                self.fifo.try_pop().expect("just added").done();
            }
        }
    }

    /// Reports an added object.
    pub fn add(&self, key: u32, version: u32) {
        self.fifo.add(Obj { key, version }).expect("the key function does not fail");
    }

    /// Reports an updated object.
    pub fn update(&self, key: u32, version: u32) {
        self.fifo.update(Obj { key, version }).expect("the key function does not fail");
    }

    /// Reports a deletion.
    pub fn delete(&self, key: u32) {
        self.fifo.delete(Obj { key, version: 0 }).expect("the key function does not fail");
    }

    /// Replaces by a list of keys and versions.
    pub fn replace(&self, list: &[(u32, u32)]) {
        self.fifo.replace(list.iter().map(|&(k, v)| obj(k, v)).collect()).expect("the key function does not fail");
    }

    /// Resyncs.
    pub fn resync(&self) {
        self.fifo.resync().expect("the key function does not fail");
    }

    /// What a consumer has to do with a claim before its release. A Sync must carry exactly what is known (C-3).
    pub fn apply(&self, claim: &FifoClaim<'_>) {
        let key = *claim.key();
        let mut version = self.known(key);
        for delta in claim.deltas() {
            match delta {
                Delta::Deleted(_) => version = None,
                Delta::Sync(object) => {
                    assert_eq!(version, Some(object.version), "key {key}: a Sync goes back in time");
                }
                Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) => {
                    version = Some(object.version);
                }
            }
        }
        if let Some(store) = &self.store {
            store.set(key, version);
        }
    }

    /// A consumer that ends when the queue is closed and empty.
    pub fn consume(&self) {
        while let Ok(claim) = self.fifo.pop_blocking() {
            self.apply(&claim);
        }
    }

    /// Consumes what is queued now.
    pub fn consume_queued(&self) {
        while let Ok(claim) = self.fifo.try_pop() {
            self.apply(&claim);
        }
    }

    /// After everything was consumed: no ticket is left, and no slot but those of known objects.
    pub fn assert_clean(&self) {
        assert!(self.fifo.has_no_ticket(), "a ticket is left");
        let known = self.fifo.known_keys().len();
        assert!(self.mode == Mode::Embedded || known == 0, "I8: known objects in a slot");
        assert_eq!(self.fifo.slots_len(), known, "a slot is left");
    }
}

/// A thread of a model.
pub fn spawn<R: Send + 'static>(
    world: &Arc<World>,
    body: impl FnOnce(&World) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let world = world.clone();
    thread::spawn(move || body(&world))
}

/// The versions that a claim carries, deletions left out.
pub fn versions(claim: &FifoClaim<'_>) -> Vec<u32> {
    claim.deltas().iter().filter(|delta| !delta.is_deleted()).filter_map(|d| d.object().map(|o| o.version)).collect()
}

/// A list that the threads of a model write and the checker does not see: it orders nothing.
#[derive(Debug)]
pub struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Log(self.0.clone())
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Log(Arc::default())
    }
}

impl<T> Log<T> {
    /// Adds one.
    pub fn push(&self, value: T) {
        self.0.lock().unwrap().push(value);
    }

    /// Adds several.
    pub fn extend(&self, values: impl IntoIterator<Item = T>) {
        self.0.lock().unwrap().extend(values);
    }

    /// Takes all.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

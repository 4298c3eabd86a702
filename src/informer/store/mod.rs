//! The store: the latest state of every object, with indices, for readers that are never in the way.
//!
//! # How it works
//!
//! The store's content is an immutable *version*: a persistent map of the objects and one per index. A write makes the
//! next version, which shares everything but a path of nodes with the last one, and publishes it by swapping one
//! pointer. So
//!
//! - a reader loads the pointer and has a consistent whole for as long as it likes, objects and indices alike: it holds no
//!   lock, waits for nobody, and nobody waits for it ([`StoreReader::snapshot`]);
//! - several changes become visible at one instant, however many they are ([`Store::transaction`], [`Store::replace`]);
//! - a write costs O(log n), and the space of the version it replaces is freed when its last reader is gone.
//!
//! Writers exclude one another by a mutex that is held while the path is copied and no longer. Key and index functions
//! run before it is taken; if the set of indices changes meanwhile they run again. An error of theirs refuses the write
//! before anything has changed.
//!
//! What is not free: a snapshot that is kept keeps its objects alive, and a write copies a path of the tree. On the machine
//! of `docs/PERFORMANCE.md` it took 3.1 us in a store of a million objects and 0.9 us in one of ten thousand, 7 and 21 times
//! what a hash map behind a lock took (medians of three, one thread, random keys).

mod error;
mod indexers;
mod read;
mod state;

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::watch;

pub use error::{AddIndexersError, IndexError, StoreError, StoreStopped, UnknownIndex};
pub use indexers::Indexers;
pub(super) use read::Replay;
pub use read::{Snapshot, StoreChanges, StoreReader};
pub(super) use state::Before;
use state::{Computed, Garbage, Index, State};

use super::hand_over::{Content, Handlers, Writers, Writing};
use super::pipeline::Pipeline;
use super::{ResourceVersion, Versioned};
use crate::key::{BoxError, KeyError, KeyFn, Keyed};
use crate::known::KnownObjects;
use crate::queue::DefaultHashBuilder;

/// How many objects are indexed under one hold of the writers' lock when an index is added to a filled store.
const BACKFILL: usize = 64;

struct Shared<T, K> {
    state: Content<State<T, K>>,
    progress: watch::Sender<Progress>,
    hasher: DefaultHashBuilder,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    version: ResourceVersion,
    /// Counts published versions of the content.
    changes: u64,
    stopped: bool,
}

/// A change of a [transaction](Store::transaction).
///
/// ```
/// use delta_fifo::informer::{Change, Store};
///
/// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
/// store.transaction([Change::Put(1.into()), Change::Put(2.into()), Change::Delete(1)]).unwrap();
/// assert_eq!(store.list_keys(), [2]);
/// ```
pub enum Change<T, K = Arc<str>> {
    /// Adds the object, or replaces the one of the same key.
    Put(Arc<T>),
    /// Removes the object of this key, if there is one.
    Delete(K),
}

/// What a write found, and the handlers there were at its instant.
type Written<T, K> = (Vec<Before<T>>, Handlers<Pipeline<T, K>>);

/// One step of an informer's write: keys are known, and reading a key is a step too.
pub(super) enum Op<T, K> {
    Put(K, Arc<T>),
    Remove(K),
    /// Notes that Resync was delivered.
    Touch(K),
}

/// The store of an informer, or one of your own (client-go's `Store` and `Indexer`). The owner writes; anybody reads, here
/// or through a [`StoreReader`], which every read method below is borrowed from.
///
/// ```
/// use delta_fifo::informer::Store;
/// use std::sync::Arc;
///
/// #[derive(Debug, PartialEq)]
/// struct Pod { name: String, node: String }
///
/// let store = Store::<Pod, String>::with_key_fn(|pod: &Pod| Ok::<_, &str>(pod.name.clone()));
/// store.add_indexer("node", |pod: &Pod| Ok::<_, &str>(vec![pod.node.clone()])).unwrap();
///
/// store.add(Pod { name: "a".into(), node: "n1".into() }).unwrap();
/// store.add(Pod { name: "b".into(), node: "n1".into() }).unwrap();
/// let before = store.snapshot();
/// store.update(Pod { name: "b".into(), node: "n2".into() }).unwrap();
///
/// assert_eq!(store.by_index("node", "n1").unwrap().len(), 1);
/// assert_eq!(store.get(&"b".to_string()).unwrap().node, "n2");
/// assert_eq!(before.by_index("node", "n1").unwrap().len(), 2, "a snapshot does not move");
/// ```
pub struct Store<T, K = Arc<str>> {
    reader: StoreReader<T, K>,
    /// Writers exclude one another. With the handlers of the informer; not in `Shared`, so that a reader which outlives
    /// the informer keeps none of them.
    writers: Writers<Pipeline<T, K>>,
    key_fn: KeyFn<T, K>,
    version_fn: fn(&T) -> ResourceVersion,
}

impl<T, K: Hash + Eq + Clone> Store<T, K> {
    /// An empty store of objects that know their key and their version.
    ///
    /// ```
    /// use delta_fifo::{Keyed, informer::{Store, Versioned}};
    /// # struct Pod;
    /// # impl Versioned for Pod {}
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let store: Store<Pod, u32> = Store::new();
    /// store.add(Pod).unwrap();
    /// assert_eq!(store.len(), 1);
    /// ```
    pub fn new() -> Self
    where
        T: Keyed<K> + Versioned,
    {
        Store::with(KeyFn::Keyed(T::key), T::resource_version)
    }

    /// An empty store with a key function, which may fail, of objects without versions.
    ///
    /// ```
    /// use delta_fifo::informer::Store;
    /// let store = Store::<String, String>::with_key_fn(|s: &String| if s.is_empty() { Err("empty") } else { Ok(s.clone()) });
    /// assert!(store.add(String::new()).is_err());
    /// ```
    pub fn with_key_fn<E: Into<BoxError>>(key_fn: impl Fn(&T) -> Result<K, E> + Send + Sync + 'static) -> Self {
        let key_fn = KeyFn::Custom(Box::new(move |object: &T| key_fn(object).map_err(Into::into)));
        Store::with(key_fn, |_| ResourceVersion::UNSET)
    }

    fn with(key_fn: KeyFn<T, K>, version_fn: fn(&T) -> ResourceVersion) -> Self {
        let shared = Shared {
            state: Content::new(State::new()),
            progress: watch::Sender::new(Progress::default()),
            hasher: DefaultHashBuilder::default(),
        };
        Store { reader: StoreReader { shared: Arc::new(shared) }, writers: Writers::default(), key_fn, version_fn }
    }

    /// A reader of this store, which outlives it.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// let reader = store.reader();
    /// drop(store);
    /// assert!(reader.is_empty());
    /// ```
    pub fn reader(&self) -> StoreReader<T, K> {
        self.reader.clone()
    }

    /// Puts an object; the same as [`update`](Self::update).
    ///
    /// # Errors
    ///
    /// The key function or an index function failed; the store is as it was.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// assert!(store.contains_key(&7));
    /// ```
    pub fn add(&self, object: impl Into<Arc<T>>) -> Result<(), StoreError<T>> {
        self.transaction([Change::Put(object.into())])
    }

    /// Puts an object: adds it, or replaces the one of the same key. The store takes the object's version, if it has
    /// one, as its own.
    ///
    /// # Errors
    ///
    /// The key function or an index function failed; the store is as it was.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<(u32, char), u32>::with_key_fn(|n: &(u32, char)| Ok::<_, &str>(n.0));
    /// store.add((7, 'a')).unwrap();
    /// store.update((7, 'b')).unwrap();
    /// assert_eq!(store.get(&7).unwrap().1, 'b');
    /// ```
    pub fn update(&self, object: impl Into<Arc<T>>) -> Result<(), StoreError<T>> {
        self.transaction([Change::Put(object.into())])
    }

    /// Removes the object of the same key; one that is not there is no error. The store takes the version of the object
    /// that is passed: that of the deletion.
    ///
    /// # Errors
    ///
    /// The key function failed; the store is as it was.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// store.delete(7).unwrap();
    /// store.delete(7).unwrap();
    /// assert!(store.is_empty());
    /// ```
    pub fn delete(&self, object: impl Into<Arc<T>>) -> Result<(), StoreError<T>> {
        let object = object.into();
        let key = self.key_of(&object)?;
        self.write(vec![Op::Remove(key)], 0, (self.version_fn)(&object)).map_err(StoreError::Index)?;
        Ok(())
    }

    /// Makes several changes visible at one instant, in order. The store takes the version of the last object.
    ///
    /// client-go applies what it can and reports the rest; here a transaction is applied as a whole or not at all.
    ///
    /// # Errors
    ///
    /// The key function or an index function failed for one of them; nothing was changed.
    ///
    /// ```
    /// use delta_fifo::informer::{Change, Store};
    ///
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| if *n > 9 { Err("too large") } else { Ok(*n) });
    /// assert!(store.transaction([Change::Put(1.into()), Change::Put(10.into())]).is_err());
    /// assert!(store.is_empty());
    /// ```
    pub fn transaction(&self, changes: impl IntoIterator<Item = Change<T, K>>) -> Result<(), StoreError<T>> {
        let mut version = ResourceVersion::UNSET;
        let mut ops = Vec::new();
        for change in changes {
            match change {
                Change::Put(object) => {
                    version = (self.version_fn)(&object);
                    ops.push(Op::Put(self.key_of(&object)?, object));
                }
                Change::Delete(key) => {
                    version = ResourceVersion::UNSET;
                    ops.push(Op::Remove(key));
                }
            }
        }
        if !ops.is_empty() {
            self.write(ops, 0, version).map_err(StoreError::Index)?;
        }
        Ok(())
    }

    /// Makes the list the whole content, at one instant, with `version` as the store's version. If a key comes twice,
    /// the last one wins.
    ///
    /// The new content is built beside the old one, so writers are not held up; what they write meanwhile is replaced.
    ///
    /// # Errors
    ///
    /// The key function or an index function failed for one of the objects; nothing was changed.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(1).unwrap();
    /// store.replace([2.into(), 3.into()], 10).unwrap();
    /// assert!(!store.contains_key(&1));
    /// assert_eq!(store.resource_version(), 10.into());
    /// ```
    pub fn replace(
        &self,
        list: impl IntoIterator<Item = Arc<T>>,
        version: impl Into<ResourceVersion>,
    ) -> Result<(), StoreError<T>> {
        let version = version.into();
        let keyed = list.into_iter().map(|object| Ok((self.key_of(&object)?, object)));
        let keyed: Vec<_> = keyed.collect::<Result<_, StoreError<T>>>()?;
        loop {
            let base = self.shared().state.load_full();
            let mut next = State {
                objects: super::pmap::PMap::new(),
                indices: base.indices.iter().map(Index::emptied).collect(),
                generation: base.generation,
                version: version.clone(),
            };
            let mut garbage = Vec::new();
            for (key, object) in &keyed {
                let computed = base.compute(object).map_err(StoreError::Index)?;
                next.put(&self.shared().hasher, key.clone(), object.clone(), computed, 0, &mut garbage);
            }
            let mut writing = self.begin();
            if writing.base().generation == base.generation {
                let old = self.publish(&mut writing, next);
                drop(writing);
                drop(old);
                return Ok(());
            }
        }
    }

    /// Says that the store has everything up to `version`, without a change of its content. client-go calls this
    /// `Bookmark`.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.bookmark(7);
    /// assert_eq!(store.resource_version(), 7.into());
    /// ```
    pub fn bookmark(&self, version: impl Into<ResourceVersion>) {
        let version = version.into();
        let mut writing = self.begin();
        let next = State { version, ..State::clone(writing.base()) };
        let old = self.publish(&mut writing, next);
        drop(writing);
        drop(old);
    }

    /// Adds an index: `func` gives the values under which an object is found with
    /// [`by_index`](StoreReader::by_index). The store may be in use and filled.
    ///
    /// # Errors
    ///
    /// The name is taken, or the function failed for an object; there is no new index then.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// store.add_indexer("parity", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()])).unwrap();
    /// assert_eq!(store.index_keys("parity", "1").unwrap(), [7]);
    /// ```
    pub fn add_indexer<E: Into<BoxError>>(
        &self,
        name: impl Into<Arc<str>>,
        func: impl Fn(&T) -> Result<Vec<String>, E> + Send + Sync + 'static,
    ) -> Result<(), AddIndexersError> {
        self.add_indexers(Indexers::new().with(name, func))
    }

    /// Adds several indices, all or none. Readers see them all at one instant.
    ///
    /// Objects that are in the store are indexed while writers go on: from the start they keep the new indices too, so
    /// only what was there before is left to do.
    ///
    /// # Errors
    ///
    /// As for [`add_indexer`](Self::add_indexer).
    ///
    /// ```
    /// use delta_fifo::informer::{Indexers, Store};
    ///
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// let indexers = Indexers::new()
    ///     .with("parity", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()]))
    ///     .with("digits", |n: &u32| Ok::<_, &str>(n.to_string().chars().map(String::from).collect()));
    /// store.add_indexers(indexers).unwrap();
    /// store.add(12).unwrap();
    /// assert_eq!(store.index_keys("digits", "2").unwrap(), [12]);
    /// ```
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), AddIndexersError> {
        let ids: Vec<u64>;
        let base;
        {
            let mut writing = self.begin();
            let mut next = State::clone(writing.base());
            next.generation += 1;
            let first = next.generation << 32;
            for (name, func) in indexers.funcs {
                if next.indices.iter().any(|index| index.name == name) {
                    return Err(AddIndexersError::NameTaken(name));
                }
                next.indices.push(Index::new(first + next.indices.len() as u64, name, func));
            }
            ids = next.indices.iter().filter(|index| index.id >= first).map(|index| index.id).collect();
            drop(self.publish(&mut writing, next));
            base = writing.base().clone();
        }
        let mut outcome = self.backfill(&base, &ids);
        let mut writing = self.begin();
        let mut next = State::clone(writing.base());
        for index in next.indices.iter().filter(|index| ids.contains(&index.id)) {
            if let Some(source) = index.failed.get() {
                let source = source.to_string().into();
                outcome = Err(AddIndexersError::Index(IndexError { index: index.name.clone(), source }));
            }
        }
        next.generation += 1;
        match outcome {
            Ok(()) => next.indices.iter_mut().filter(|i| ids.contains(&i.id)).for_each(|index| index.ready = true),
            Err(_) => next.indices.retain(|index| !ids.contains(&index.id)),
        }
        drop(self.publish(&mut writing, next));
        outcome
    }

    fn backfill(&self, base: &Arc<State<T, K>>, ids: &[u64]) -> Result<(), AddIndexersError> {
        let added: Vec<_> = base.indices.iter().filter(|index| ids.contains(&index.id)).collect();
        let mut entries = base.objects.iter().peekable();
        while entries.peek().is_some() {
            let mut batch = Vec::with_capacity(BACKFILL);
            for entry in entries.by_ref().take(BACKFILL) {
                let mut computed = Computed::new();
                for index in &added {
                    computed.push((index.id, index.values_of(&entry.value.object).map_err(AddIndexersError::Index)?));
                }
                batch.push((entry, computed));
            }
            let mut garbage = Vec::new();
            let mut writing = self.begin();
            let mut next = State::clone(writing.base());
            for (entry, computed) in batch {
                next.backfill(&self.shared().hasher, entry, computed, &mut garbage);
            }
            let old = self.publish(&mut writing, next);
            drop(writing);
            drop((garbage, old));
        }
        Ok(())
    }

    fn key_of(&self, object: &Arc<T>) -> Result<K, StoreError<T>> {
        match self.key_fn.key_of(object) {
            Ok(key) => Ok(key),
            Err(source) => Err(StoreError::Key(KeyError { object: object.clone(), source })),
        }
    }

    fn shared(&self) -> &Shared<T, K> {
        &self.reader.shared
    }

    /// Makes `ops` visible at one instant. Returns what each op found, in order, and the handlers of that instant.
    ///
    /// `round` is the Resync round of this moment; `version` becomes the store's if it is set.
    pub(super) fn write(
        &self,
        ops: Vec<Op<T, K>>,
        round: u64,
        version: ResourceVersion,
    ) -> Result<Written<T, K>, IndexError> {
        let shared = self.shared();
        let mut state = shared.state.load_full();
        loop {
            let mut computed = Vec::with_capacity(ops.len());
            for op in &ops {
                computed.push(match op {
                    Op::Put(_, object) if !state.indices.is_empty() => state.compute(object)?,
                    _ => Computed::new(),
                });
            }
            let mut garbage = Garbage::new();
            let mut writing = self.begin();
            if writing.base().generation != state.generation {
                state = writing.base().clone();
                continue;
            }
            let mut next = State::clone(writing.base());
            if !version.is_unset() {
                next.version = version;
            }
            let mut before = Vec::with_capacity(ops.len());
            let mut changed = false;
            for (op, computed) in ops.into_iter().zip(computed) {
                before.push(match op {
                    Op::Touch(key) => next.touch(&shared.hasher, &key, round),
                    Op::Remove(key) => {
                        let found = next.remove(&shared.hasher, &key, round, &mut garbage);
                        changed |= found.object.is_some();
                        found
                    }
                    Op::Put(key, object) => {
                        changed = true;
                        next.put(&shared.hasher, key, object, computed, round, &mut garbage)
                    }
                });
            }
            let changed = changed || next.version != writing.base().version;
            let old = changed.then(|| self.publish(&mut writing, next));
            let handlers = writing.done();
            // Objects whose last owner was the store are dropped here: their Drop is user code.
            drop((garbage, old, state));
            return Ok((before, handlers));
        }
    }

    /// Adds a handler that is made from the content of that moment, and told of every write after it.
    pub(super) fn register(&self, make: impl FnOnce(Replay<T, K>) -> Pipeline<T, K>) -> Arc<Pipeline<T, K>> {
        self.writers.register(&self.shared().state, |state| make(Replay::new(state)))
    }

    /// Takes a handler out; `false` if it was out already.
    pub(super) fn unregister(&self, handler: &Arc<Pipeline<T, K>>) -> bool {
        self.writers.remove(handler)
    }

    /// The handlers there are now.
    pub(super) fn handlers(&self) -> Handlers<Pipeline<T, K>> {
        self.writers.handlers()
    }

    fn begin(&self) -> Writing<'_, State<T, K>, Pipeline<T, K>> {
        self.writers.begin(&self.shared().state)
    }

    /// Publishes a version. Returns the one before, to be dropped after the write.
    fn publish(&self, writing: &mut Writing<'_, State<T, K>, Pipeline<T, K>>, next: State<T, K>) -> Arc<State<T, K>> {
        let version = next.version.clone();
        let old = writing.publish(next);
        self.shared().progress.send_modify(|progress| {
            progress.version = version;
            progress.changes += 1;
        });
        old
    }

    /// Nobody will write any more: those who wait for a version are told.
    pub(super) fn stop(&self) {
        self.shared().progress.send_modify(|progress| progress.stopped = true);
    }
}

impl<T: Keyed<K> + Versioned, K: Hash + Eq + Clone> Default for Store<T, K> {
    fn default() -> Self {
        Store::new()
    }
}

impl<T, K> Deref for Store<T, K> {
    type Target = StoreReader<T, K>;

    fn deref(&self) -> &StoreReader<T, K> {
        &self.reader
    }
}

impl<T, K> fmt::Debug for Store<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reader.fmt_as("Store", f)
    }
}

impl<T, K> KnownObjects<T, K> for Store<T, K>
where
    T: Send + Sync,
    K: Hash + Eq + Clone + Send + Sync,
{
    fn list_keys(&self) -> Vec<K> {
        self.reader.list_keys()
    }

    fn get_by_key(&self, key: &K) -> Result<Option<Arc<T>>, BoxError> {
        Ok(self.reader.get(key))
    }
}

impl<T, K: fmt::Debug> fmt::Debug for Change<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Put(_) => f.write_str("Put(..)"),
            Change::Delete(key) => f.debug_tuple("Delete").field(key).finish(),
        }
    }
}

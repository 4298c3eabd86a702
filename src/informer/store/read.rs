//! The reading side: readers and snapshots.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::state::{Index, State, Stored};
use super::{Shared, StoreStopped, UnknownIndex};
use crate::informer::ResourceVersion;
use crate::informer::pmap::Cursor;
use crate::queue::DefaultHashBuilder;

/// Reads a [`Store`](crate::informer::Store); cheap to clone and to hand out.
///
/// ```
/// use delta_fifo::informer::{Store, StoreReader};
///
/// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
/// let reader: StoreReader<u32, u32> = store.reader();
/// store.add(7).unwrap();
/// assert_eq!(reader.get(&7).as_deref(), Some(&7));
/// ```
pub struct StoreReader<T, K = Arc<str>> {
    pub(super) shared: Arc<Shared<T, K>>,
}

/// The whole store at one instant: it does not change, and holding it disturbs nobody.
///
/// ```
/// use delta_fifo::informer::Store;
///
/// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
/// store.add(1).unwrap();
/// let snapshot = store.snapshot();
/// store.add(2).unwrap();
/// assert_eq!(snapshot.iter().map(|(_, n)| **n).collect::<Vec<_>>(), [1]);
/// ```
pub struct Snapshot<T, K = Arc<str>> {
    state: Arc<State<T, K>>,
    hasher: DefaultHashBuilder,
}

impl<T, K> StoreReader<T, K> {
    /// How many objects there are.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// assert_eq!(store.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.shared.state.load().objects.len()
    }

    /// Whether there is no object.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// assert!(Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n)).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.shared.state.load().objects.is_empty()
    }

    /// The whole store at this instant. Costs a reference count.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert_eq!(store.snapshot().len(), store.len());
    /// ```
    pub fn snapshot(&self) -> Snapshot<T, K> {
        Snapshot { state: self.shared.state.load_full(), hasher: self.shared.hasher.clone() }
    }

    /// The version up to which the store has everything; unset at first.
    ///
    /// In an informer this is exact however many workers it has: every change up to it has been applied.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.resource_version().is_unset());
    /// ```
    pub fn resource_version(&self) -> ResourceVersion {
        self.shared.state.load().version.clone()
    }

    /// Waits until the store has everything up to `version`: read your writes.
    ///
    /// Versions that do not [compare](ResourceVersion::compare) are waited for by equality.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// The informer stopped before.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// let reader = store.reader();
    /// let waiter = tokio::spawn(async move { reader.wait_for(10).await });
    /// store.replace([1.into()], 12).unwrap();
    /// waiter.await.unwrap().unwrap();
    /// # });
    /// ```
    pub async fn wait_for(&self, version: impl Into<ResourceVersion>) -> Result<(), StoreStopped> {
        let version = version.into();
        let mut progress = self.shared.progress.subscribe();
        // The sender lives in `shared`, so it is not gone while we wait.
        match progress.wait_for(|now| now.stopped || now.version.has_reached(&version)).await {
            Ok(now) if now.version.has_reached(&version) => Ok(()),
            Ok(now) => Err(StoreStopped { reached: now.version.clone() }),
            Err(_) => Err(StoreStopped { reached: self.resource_version() }),
        }
    }

    /// A subscription to changes of the store, whatever they are.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// let mut changes = store.subscribe();
    /// store.add(7).unwrap();
    /// changes.changed().await.unwrap();
    /// assert_eq!(store.len(), 1);
    /// # });
    /// ```
    pub fn subscribe(&self) -> StoreChanges {
        let mut progress = self.shared.progress.subscribe();
        let seen = progress.borrow_and_update().changes;
        StoreChanges { progress, seen }
    }

    pub(super) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.load();
        f.debug_struct(name).field("len", &state.objects.len()).field("resource_version", &state.version).finish()
    }
}

impl<T, K: Hash + Eq + Clone> StoreReader<T, K> {
    /// The object of a key.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.get(&7).is_none());
    /// ```
    pub fn get(&self, key: &K) -> Option<Arc<T>> {
        let state = self.shared.state.load();
        state.objects.get(self.shared.hasher.hash_one(key), key).map(|entry| entry.value.object.clone())
    }

    /// Whether there is an object of this key.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(!store.contains_key(&7));
    /// ```
    pub fn contains_key(&self, key: &K) -> bool {
        self.shared.state.load().objects.get(self.shared.hasher.hash_one(key), key).is_some()
    }

    /// All objects, as they are at one instant, in any order.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// assert_eq!(*store.list()[0], 7);
    /// ```
    pub fn list(&self) -> Vec<Arc<T>> {
        self.snapshot().iter().map(|(_, object)| object.clone()).collect()
    }

    /// All keys, as they are at one instant, in any order.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// assert_eq!(store.list_keys(), [7]);
    /// ```
    pub fn list_keys(&self) -> Vec<K> {
        self.snapshot().iter().map(|(key, _)| key.clone()).collect()
    }

    /// The objects that have `value` under the index `name`.
    ///
    /// # Errors
    ///
    /// There is no such index. A value that no object has is no error.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add_indexer("parity", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()])).unwrap();
    /// store.add(7).unwrap();
    /// assert_eq!(*store.by_index("parity", "1").unwrap()[0], 7);
    /// assert!(store.by_index("parity", "0").unwrap().is_empty());
    /// ```
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, UnknownIndex> {
        self.snapshot().by_index(name, value)
    }

    /// The keys that have `value` under the index `name`, sorted.
    ///
    /// # Errors
    ///
    /// There is no such index.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.index_keys("parity", "1").is_err());
    /// ```
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<K>, UnknownIndex>
    where
        K: Ord,
    {
        self.snapshot().index_keys(name, value)
    }

    /// The values that objects have under the index `name`, in any order.
    ///
    /// # Errors
    ///
    /// There is no such index.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add_indexer("parity", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()])).unwrap();
    /// store.add(7).unwrap();
    /// assert_eq!(&*store.index_values("parity").unwrap()[0], "1");
    /// ```
    pub fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, UnknownIndex> {
        self.snapshot().index_values(name)
    }

    /// The objects that share a value with `object` under the index `name`, each once (client-go's `Index`).
    ///
    /// # Errors
    ///
    /// There is no such index, or its function failed.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add_indexer("parity", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()])).unwrap();
    /// store.add(7).unwrap();
    /// assert_eq!(*store.index("parity", &9).unwrap()[0], 7);
    /// ```
    pub fn index(&self, name: &str, object: &T) -> Result<Vec<Arc<T>>, crate::key::BoxError> {
        self.snapshot().index(name, object)
    }
}

impl<T, K> Snapshot<T, K> {
    /// How many objects there are.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert_eq!(store.snapshot().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.state.objects.len()
    }

    /// Whether there is no object.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.snapshot().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.state.objects.is_empty()
    }

    /// The store's version at this instant.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.bookmark(7);
    /// assert_eq!(store.snapshot().resource_version(), &7.into());
    /// ```
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.state.version
    }

    /// All keys with their objects, in any order, the same each time.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// assert!(store.snapshot().iter().all(|(key, object)| *key == **object));
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<T>)> {
        self.state.objects.iter().map(|entry| (&entry.key, &entry.value.object))
    }

    fn find(&self, name: &str) -> Result<&Index<T, K>, UnknownIndex> {
        self.state.index(name).ok_or_else(|| UnknownIndex { name: name.to_owned() })
    }

    /// As [`StoreReader::index_values`].
    ///
    /// # Errors
    ///
    /// There is no such index.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.snapshot().index_values("parity").is_err());
    /// ```
    pub fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, UnknownIndex> {
        Ok(self.find(name)?.keys.iter().map(|entry| entry.key.clone()).collect())
    }
}

impl<T, K: Hash + Eq + Clone> Snapshot<T, K> {
    /// The object of a key.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// store.add(7).unwrap();
    /// assert_eq!(**store.snapshot().get(&7).unwrap(), 7);
    /// ```
    pub fn get(&self, key: &K) -> Option<&Arc<T>> {
        self.state.objects.get(self.hasher.hash_one(key), key).map(|entry| &entry.value.object)
    }

    /// As [`StoreReader::by_index`].
    ///
    /// # Errors
    ///
    /// There is no such index.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.snapshot().by_index("parity", "1").is_err());
    /// ```
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, UnknownIndex> {
        let keys = self.find(name)?.keys.get(self.hasher.hash_one(value), value);
        let keys = keys.into_iter().flat_map(|entry| entry.value.iter());
        Ok(keys.filter_map(|entry| self.get(&entry.key).cloned()).collect())
    }

    /// As [`StoreReader::index_keys`].
    ///
    /// # Errors
    ///
    /// There is no such index.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.snapshot().index_keys("parity", "1").is_err());
    /// ```
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<K>, UnknownIndex>
    where
        K: Ord,
    {
        let keys = self.find(name)?.keys.get(self.hasher.hash_one(value), value);
        let keys = keys.into_iter().flat_map(|entry| entry.value.iter());
        let mut keys: Vec<K> = keys.map(|entry| entry.key.clone()).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// As [`StoreReader::index`].
    ///
    /// # Errors
    ///
    /// There is no such index, or its function failed.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// assert!(store.snapshot().index("parity", &7).is_err());
    /// ```
    pub fn index(&self, name: &str, object: &T) -> Result<Vec<Arc<T>>, crate::key::BoxError> {
        let index = self.find(name)?;
        let mut seen = std::collections::HashSet::new();
        let mut objects = Vec::new();
        for value in index.values_of(object)? {
            let keys = index.keys.get(self.hasher.hash_one(&*value), &*value);
            for entry in keys.into_iter().flat_map(|entry| entry.value.iter()) {
                if seen.insert(&entry.key) {
                    objects.extend(self.get(&entry.key).cloned());
                }
            }
        }
        Ok(objects)
    }
}

/// Tells when a [`Store`](super::Store) changed; see [`StoreReader::subscribe`].
///
/// ```
/// # use delta_fifo::informer::Store;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
/// let mut changes = store.subscribe();
/// store.bookmark(9);
/// assert_eq!(changes.changed().await.unwrap(), 9.into());
/// # });
/// ```
#[derive(Debug)]
pub struct StoreChanges {
    progress: tokio::sync::watch::Receiver<super::Progress>,
    seen: u64,
}

impl StoreChanges {
    /// Waits until the store is newer than at the last call, or at the subscription. Returns its version. Several
    /// changes may be told as one.
    ///
    /// # Cancel safety
    ///
    /// No change is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// The informer stopped, or the store is gone.
    ///
    /// ```
    /// # use delta_fifo::informer::Store;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
    /// let mut changes = store.subscribe();
    /// drop(store);
    /// assert!(changes.changed().await.is_err());
    /// # });
    /// ```
    pub async fn changed(&mut self) -> Result<ResourceVersion, StoreStopped> {
        let seen = self.seen;
        let outcome = self.progress.wait_for(|now| now.stopped || now.changes != seen).await.map(|now| now.clone());
        match outcome {
            Ok(now) if now.changes != seen => {
                self.seen = now.changes;
                Ok(now.version)
            }
            _ => Err(StoreStopped { reached: self.progress.borrow().version.clone() }),
        }
    }
}

/// The objects of one version, for a handler that comes late: it walks them at its own pace.
pub(in crate::informer) struct Replay<T, K> {
    cursor: Cursor<K, Stored<T>>,
}

impl<T, K> Replay<T, K> {
    pub(super) fn new(state: &State<T, K>) -> Self {
        Replay { cursor: state.objects.clone().into_cursor() }
    }

    pub(in crate::informer) fn remaining(&self) -> usize {
        self.cursor.remaining()
    }
}

impl<T, K: Clone> Iterator for Replay<T, K> {
    type Item = (K, Arc<T>);

    fn next(&mut self) -> Option<(K, Arc<T>)> {
        self.cursor.next().map(|entry| (entry.key.clone(), entry.value.object.clone()))
    }
}

impl<T, K> Clone for StoreReader<T, K> {
    fn clone(&self) -> Self {
        StoreReader { shared: self.shared.clone() }
    }
}

impl<T, K> fmt::Debug for StoreReader<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as("StoreReader", f)
    }
}

impl<T, K> fmt::Debug for Snapshot<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Snapshot");
        debug.field("len", &self.len()).field("resource_version", &self.state.version).finish()
    }
}

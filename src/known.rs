//! Known objects: what the consumer has applied so far. In an informer this is the store.

use std::sync::Arc;

use crate::key::BoxError;

/// A read-only view of what the consumer has applied (client-go's `KnownObjects`).
///
/// [`Delete`](crate::DeltaFifo::delete) asks it whether an object that is not in the queue exists,
/// [`Replace`](crate::DeltaFifo::replace) looks in it for objects that are gone, and
/// [`Resync`](crate::DeltaFifo::resync) replays it.
///
/// # Contract
///
/// The consumer writes an object's state here while it holds the [`Claim`](crate::Claim) of its key, so that after
/// the release a reader finds it. Nobody else writes. Methods are called under no lock and no map guard of the queue,
/// so they may use the queue; a `replace` from inside `list_keys` would wait for itself.
///
/// ```
/// use delta_fifo::{BoxError, DeltaFifo, KnownObjects};
/// use std::{collections::BTreeMap, sync::{Arc, Mutex}};
///
/// #[derive(Default)]
/// struct Store(Mutex<BTreeMap<String, Arc<String>>>);
///
/// impl KnownObjects<String, String> for Store {
///     fn list_keys(&self) -> Vec<String> {
///         self.0.lock().unwrap().keys().cloned().collect()
///     }
///     fn get_by_key(&self, key: &String) -> Result<Option<Arc<String>>, BoxError> {
///         Ok(self.0.lock().unwrap().get(key).cloned())
///     }
/// }
///
/// let store = Arc::new(Store::default());
/// store.0.lock().unwrap().insert("a".into(), Arc::new("a".into()));
/// let fifo = DeltaFifo::<String, String>::builder_with_key_fn(|s: &String| Ok::<_, BoxError>(s.clone()))
///     .known_objects(store)
///     .build();
/// fifo.resync().unwrap();
/// assert_eq!(fifo.try_pop().unwrap().key(), "a");
/// ```
pub trait KnownObjects<T, K>: Send + Sync {
    /// The keys of all known objects. Their order is the order in which `resync` queues them and `replace` queues
    /// the deletions it finds.
    fn list_keys(&self) -> Vec<K>;

    /// The object of a key; `None` if there is none.
    ///
    /// # Errors
    ///
    /// An error counts as "may exist": a `delete` is queued (rule A6.4), `replace` makes a tombstone without an object
    /// (A7.3), `resync` skips the key (A8.3).
    fn get_by_key(&self, key: &K) -> Result<Option<Arc<T>>, BoxError>;
}

impl<T, K, X: KnownObjects<T, K> + ?Sized> KnownObjects<T, K> for Arc<X> {
    fn list_keys(&self) -> Vec<K> {
        (**self).list_keys()
    }

    fn get_by_key(&self, key: &K) -> Result<Option<Arc<T>>, BoxError> {
        (**self).get_by_key(key)
    }
}

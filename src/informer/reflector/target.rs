//! What a reflector writes to: a queue, or a store directly.

use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::informer::{ResourceVersion, Store};
use crate::key::BoxError;
use crate::queue::DeltaFifo;

/// Lists longer than this are handed over on a thread of their own, so that no worker of the runtime is held for long.
pub(in crate::informer) const INLINE: usize = 4096;

/// What a [`Reflector`](super::Reflector) keeps up to date (client-go's `ReflectorStore`): a
/// [`DeltaFifo`] behind an [`Arc`], or a [`Store`] behind one.
///
/// ```
/// use delta_fifo::informer::{ReflectorStore, Store};
/// use std::sync::Arc;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Arc::new(Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n)));
/// ReflectorStore::replace(&store, vec![1.into()], 10.into()).await.unwrap();
/// assert_eq!(store.resource_version(), 10.into());
/// # });
/// ```
pub trait ReflectorStore<T>: Send + Sync + 'static {
    /// The object is new.
    fn add(&self, object: Arc<T>) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The object changed.
    fn update(&self, object: Arc<T>) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The object is gone; this was its last state.
    fn delete(&self, object: Arc<T>) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The list is everything that exists at `version`.
    fn replace(&self, list: Vec<Arc<T>>, version: ResourceVersion)
    -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Everything that is known is to be looked at once more.
    fn resync(&self) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Everything up to `version` has been handed over: after each event, bookmark and list.
    fn reached(&self, version: &ResourceVersion) {
        let _ = version;
    }
}

/// Runs work that may take long where it holds nobody up. A panic of the user's code goes through.
pub(in crate::informer) async fn off_the_runtime<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down: this future is about to be dropped.
            Err(_) => std::future::pending().await,
        },
    }
}

impl<T, K, S> ReflectorStore<T> for Arc<DeltaFifo<T, K, S>>
where
    T: Send + Sync + 'static,
    K: Clone + Eq + Hash + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    async fn add(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(self.add_async(object).await?)
    }

    async fn update(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(self.update_async(object).await?)
    }

    async fn delete(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(self.delete_async(object).await?)
    }

    async fn replace(&self, list: Vec<Arc<T>>, _: ResourceVersion) -> Result<(), BoxError> {
        if list.len() <= INLINE {
            return Ok(self.replace_async(list).await?);
        }
        let queue = self.clone();
        Ok(off_the_runtime(move || DeltaFifo::replace(&queue, list)).await?)
    }

    async fn resync(&self) -> Result<(), BoxError> {
        let queue = self.clone();
        Ok(off_the_runtime(move || DeltaFifo::resync(&queue)).await?)
    }
}

impl<T, K> ReflectorStore<T> for Arc<Store<T, K>>
where
    T: Send + Sync + 'static,
    K: Clone + Eq + Hash + Send + Sync + 'static,
{
    async fn add(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(Store::add(self, object)?)
    }

    async fn update(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(Store::update(self, object)?)
    }

    async fn delete(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(Store::delete(self, object)?)
    }

    async fn replace(&self, list: Vec<Arc<T>>, version: ResourceVersion) -> Result<(), BoxError> {
        if list.len() <= INLINE {
            return Ok(Store::replace(self, list, version)?);
        }
        let store = self.clone();
        Ok(off_the_runtime(move || Store::replace(&store, list, version)).await?)
    }

    /// A store has nobody to show its objects to.
    async fn resync(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn reached(&self, version: &ResourceVersion) {
        self.bookmark(version.clone());
    }
}

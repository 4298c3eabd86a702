//! The reflector's target in an informer: the queue, and the note of how far it has been filled.

use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::informer::reflector::{INLINE, ReflectorStore, off_the_runtime};
use crate::informer::worker::Core;
use crate::informer::{ResourceVersion, Versioned};
use crate::key::BoxError;
use crate::queue::DeltaFifo;

pub(super) struct Feed<T, K>
where
    K: Hash + Eq + Clone,
{
    core: Arc<Core<T, K>>,
    /// Held while a list or a Resync is being queued, on whatever thread: a shutdown waits for it.
    busy: Arc<Mutex<()>>,
}

impl<T, K: Hash + Eq + Clone> Clone for Feed<T, K> {
    fn clone(&self) -> Self {
        Feed { core: self.core.clone(), busy: self.busy.clone() }
    }
}

impl<T, K: Hash + Eq + Clone> Feed<T, K> {
    pub(super) fn new(core: Arc<Core<T, K>>) -> Self {
        Feed { core, busy: Arc::default() }
    }

    /// Waits until nothing is being queued that was begun.
    pub(super) async fn idle(&self) -> OwnedMutexGuard<()> {
        self.busy.clone().lock_owned().await
    }
}

impl<T, K> ReflectorStore<T> for Feed<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    async fn add(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(self.core.queue.add_async(object).await?)
    }

    async fn update(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(self.core.queue.update_async(object).await?)
    }

    async fn delete(&self, object: Arc<T>) -> Result<(), BoxError> {
        Ok(self.core.queue.delete_async(object).await?)
    }

    async fn replace(&self, list: Vec<Arc<T>>, _: ResourceVersion) -> Result<(), BoxError> {
        let busy = self.idle().await;
        let failures = self.core.progress.barrier.list_begins();
        if list.len() <= INLINE {
            self.core.queue.replace_async(list).await?;
        } else {
            let queue = self.core.queue.clone();
            off_the_runtime(move || {
                let _busy = busy;
                DeltaFifo::replace(&queue, list)
            })
            .await?;
        }
        self.core.progress.barrier.list_queued(failures);
        Ok(())
    }

    async fn resync(&self) -> Result<(), BoxError> {
        let busy = self.idle().await;
        if self.core.store.len() <= INLINE {
            return Ok(DeltaFifo::resync(&self.core.queue)?);
        }
        let queue = self.core.queue.clone();
        let resynced = off_the_runtime(move || {
            let _busy = busy;
            DeltaFifo::resync(&queue)
        });
        Ok(resynced.await?)
    }

    fn reached(&self, version: &ResourceVersion) {
        self.core.progress.queued(version);
    }
}

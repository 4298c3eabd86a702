//! How far the store is: the version up to which *everything* has been applied.
//!
//! Several workers apply changes of different keys in any order, so the version of the change that was applied last says
//! nothing: an older one of another key may still wait. Who reads his own writes needs the low-water mark. The reflector
//! says up to which version everything is queued; a [`Barrier`] finds out when all that is applied.

use std::hash::Hash;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::barrier::Barrier;
use super::{ResourceVersion, Store};
use crate::queue::DeltaFifo;

/// A barrier walks the queue's table. It may take a fifth of a core, and no more.
const REST: u32 = 4;
const LONGEST_REST: Duration = Duration::from_millis(50);

pub(super) struct Progress<K> {
    pub(super) barrier: Barrier<K>,
    queued: watch::Sender<ResourceVersion>,
}

impl<K: Hash + Eq + Clone> Progress<K> {
    pub(super) fn new(workers: usize) -> Self {
        Progress { barrier: Barrier::new(workers), queued: watch::Sender::default() }
    }

    /// Everything up to `version` is in the queue.
    pub(super) fn queued(&self, version: &ResourceVersion) {
        self.queued.send_replace(version.clone());
    }

    /// Keeps the store's version at the low-water mark, for ever.
    pub(super) async fn run<T>(&self, queue: &DeltaFifo<T, K>, store: &Store<T, K>)
    where
        T: Send + Sync,
        K: Send + Sync,
    {
        let mut queued = self.queued.subscribe();
        let mut reached = ResourceVersion::UNSET;
        loop {
            let target = queued.borrow_and_update().clone();
            if target != reached {
                let started = Instant::now();
                // If not, a list is on its way, and says when it is queued.
                if self.barrier.is_reached(queue).await {
                    store.bookmark(target.clone());
                    reached = target;
                }
                tokio::time::sleep((started.elapsed() * REST).min(LONGEST_REST)).await;
            }
            if queued.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_holds_the_version_back_until_a_list() {
        let queue = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
        let progress = Progress::new(1);
        let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
        queue.add(1).unwrap();
        let (claim, bracket) = progress.barrier.claim(0, queue.pop()).await;
        progress.barrier.failed(&bracket);
        progress.barrier.close(bracket, [1].iter());
        drop(claim);
        progress.queued(&5.into());
        let second = Duration::from_secs(1);
        assert!(tokio::time::timeout(second, progress.run(&queue, &store)).await.is_err());
        assert!(store.resource_version().is_unset());
        let failures = progress.barrier.list_begins();
        progress.barrier.list_queued(failures);
        progress.queued(&6.into());
        assert!(tokio::time::timeout(second, progress.run(&queue, &store)).await.is_err());
        assert_eq!(store.resource_version(), 6.into());
    }
}

//! The handle of one handler.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::{NotSynced, Shared, wait_synced};
use crate::informer::pipeline::{HandlerStats, Pipeline};
use crate::informer::worker::Core;

/// A handler that was added to a [`SharedInformer`](super::SharedInformer): whether it has synced, what it has done, and
/// how to take it away. Dropping the handle does nothing.
///
/// ```
/// # use delta_fifo::{Keyed, informer::*};
/// # #[derive(Clone)] struct Pod;
/// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
/// # impl Versioned for Pod {}
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
/// # informer.start().unwrap();
/// let handle = informer.add_event_handler(Handler::from_fn(|_: &Event<Pod, u32>| Ok::<_, &str>(()))).unwrap();
/// handle.wait_synced().await.unwrap();
/// handle.remove_and_wait().await;
/// assert!(handle.is_removed());
/// # });
/// ```
pub struct HandlerHandle<T, K = Arc<str>>
where
    K: Hash + Eq + Clone,
{
    pub(super) core: Arc<Core<T, K>>,
    pub(super) shared: Arc<Shared>,
    pub(super) pipeline: Arc<Pipeline<T, K>>,
}

macro_rules! example {
    ($($line:literal)*) => {
        concat!(
            "```\n# use delta_fifo::{Keyed, informer::*};\n# #[derive(Clone)] struct Pod;\n",
            "# impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }\n# impl Versioned for Pod {}\n",
            "# tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {\n",
            "# let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();\n",
            "# informer.start().unwrap();\n",
            "# let handler = Handler::from_fn(|_: &Event<Pod, u32>| Ok::<_, &str>(()));\n",
            "let handle = informer.add_event_handler(handler).unwrap();\n",
            $($line, "\n",)*
            "# });\n```"
        )
    };
}

impl<T, K> HandlerHandle<T, K>
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// The name it was given.
    ///
    #[doc = example!("assert_eq!(handle.name(), \"handler\");")]
    pub fn name(&self) -> &str {
        &self.pipeline.name
    }

    /// Whether the informer has synced and the handler is done with all that was there in the beginning: each event
    /// of it was handled, or given up after its retries. Once true it stays true.
    ///
    #[doc = example!("let _ = handle.has_synced();")]
    pub fn has_synced(&self) -> bool {
        // In this order: when the informer has synced, all initial events are counted.
        self.core.queue.has_synced() && self.pipeline.has_settled_initial()
    }

    /// Waits for [`has_synced`](Self::has_synced).
    ///
    /// # Errors
    ///
    /// It will not come: the informer stopped, its source cannot be used, or the handler was removed.
    ///
    #[doc = example!("handle.wait_synced().await.unwrap();")]
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        tokio::select! {
            biased;
            synced = self.synced() => synced,
            () = self.pipeline.wait_ended() => if self.has_synced() { Ok(()) } else { Err(NotSynced::Stopped) },
        }
    }

    async fn synced(&self) -> Result<(), NotSynced> {
        wait_synced(&self.core, &self.shared).await?;
        if self.pipeline.wait_settled_initial().await { Ok(()) } else { Err(NotSynced::Stopped) }
    }

    /// What it has done so far.
    ///
    #[doc = example!("assert_eq!(handle.stats().failed, 0);")]
    pub fn stats(&self) -> HandlerStats {
        self.pipeline.stats()
    }

    /// Takes the handler away, at any time and from anywhere, also from within the handler. What waits for it is
    /// dropped; a call that runs goes on. A second call does nothing. Returns whether this one did.
    ///
    #[doc = example!("assert!(handle.remove());" "assert!(!handle.remove());")]
    pub fn remove(&self) -> bool {
        let removed = self.core.store.unregister(&self.pipeline);
        if removed {
            self.pipeline.stop(false);
            self.shared.schedule.notify_one();
        }
        removed
    }

    /// Takes the handler away and waits until its last call has returned. From within the handler itself it would wait
    /// for itself: use [`remove`](Self::remove) there.
    ///
    /// # Cancel safety
    ///
    /// The handler is taken away at the first poll; dropped later, only the wait ends.
    ///
    #[doc = example!("handle.remove_and_wait().await;")]
    pub async fn remove_and_wait(&self) {
        self.remove();
        self.pipeline.wait_ended().await;
    }

    /// Whether it was taken away, or the informer stopped.
    ///
    #[doc = example!("assert!(!handle.is_removed());")]
    pub fn is_removed(&self) -> bool {
        self.pipeline.is_stopped()
    }
}

impl<T, K: Hash + Eq + Clone> Clone for HandlerHandle<T, K> {
    fn clone(&self) -> Self {
        HandlerHandle { core: self.core.clone(), shared: self.shared.clone(), pipeline: self.pipeline.clone() }
    }
}

impl<T, K> fmt::Debug for HandlerHandle<T, K>
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerHandle")
            .field("name", &self.name())
            .field("removed", &self.is_removed())
            .field("stats", &self.stats())
            .finish()
    }
}

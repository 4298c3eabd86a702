//! One watch of the server: it reads the shared history at its own pace, so a slow one costs the server nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::time::Sleep;

use super::{Inner, Shared};
use crate::informer::{SourceError, WatchEvent};

/// The events of a watch on a [`MemoryServer`](super::MemoryServer).
///
/// ```
/// use delta_fifo::informer::{ListWatch, MemoryServer, WatchOptions};
/// # use delta_fifo::Keyed;
/// # #[derive(Clone)] struct Pod { version: u64 }
/// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
/// let watch = server.watch(WatchOptions::default()).await.unwrap();
/// assert_eq!(server.open_watches(), 1);
/// drop(watch);
/// assert_eq!(server.open_watches(), 0);
/// # });
/// ```
pub struct MemoryWatch<T, K> {
    shared: Arc<Shared<T, K>>,
    id: u64,
    /// The version of the last event that was taken from the history.
    position: u64,
    /// The event that is given again, or that is late.
    held: Option<WatchEvent<T>>,
    delay: Option<Pin<Box<Sleep>>>,
    timeout: Option<Pin<Box<Sleep>>>,
}

impl<T, K> MemoryWatch<T, K> {
    pub(super) fn new(shared: Arc<Shared<T, K>>, id: u64, position: u64, timeout: Option<Duration>) -> Self {
        let timeout = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
        MemoryWatch { shared, id, position, held: None, delay: None, timeout }
    }
}

enum Next<T> {
    Event(Result<WatchEvent<T>, SourceError>),
    Slow(WatchEvent<T>, Duration),
    End,
    Wait,
}

impl<T, K> Inner<T, K> {
    fn next(&mut self, id: u64, position: &mut u64, cx: &mut Context<'_>) -> Next<T> {
        let Some(watcher) = self.watchers.get_mut(&id) else { return Next::End };
        if watcher.closed {
            return Next::End;
        }
        if let Some(extra) = watcher.extra.pop_front() {
            return Next::Event(extra);
        }
        if *position < self.forgotten {
            return Next::Event(Err(SourceError::Expired));
        }
        // Versions of silent changes are not in the history, so the next event is searched by its version.
        let at = self.history.partition_point(|event| event.resource_version().as_u64() <= Some(*position));
        let Some(event) = self.history.get(at).cloned() else {
            watcher.waker = Some(cx.waker().clone());
            return Next::Wait;
        };
        if self.chance(self.faults.disconnect) {
            return Next::End;
        }
        *position = event.resource_version().as_u64().unwrap_or(*position);
        let slow = self.faults.slow;
        if self.chance(slow) { Next::Slow(event, self.faults.event_delay) } else { Next::Event(Ok(event)) }
    }
}

impl<T, K> Stream for MemoryWatch<T, K> {
    type Item = Result<WatchEvent<T>, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(timeout) = &mut this.timeout
            && timeout.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        if let Some(delay) = &mut this.delay {
            std::task::ready!(delay.as_mut().poll(cx));
            this.delay = None;
        }
        if let Some(event) = this.held.take() {
            return Poll::Ready(Some(Ok(event)));
        }
        let mut inner = this.shared.lock();
        match inner.next(this.id, &mut this.position, cx) {
            Next::End => Poll::Ready(None),
            Next::Wait => Poll::Pending,
            Next::Event(event) => {
                let duplicate = inner.faults.duplicate;
                if let Ok(event) = &event
                    && inner.chance(duplicate)
                {
                    this.held = Some(event.clone());
                }
                Poll::Ready(Some(event))
            }
            Next::Slow(event, time) => {
                drop(inner);
                let mut delay = Box::pin(tokio::time::sleep(time));
                this.held = Some(event);
                if delay.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(this.held.take().map(Ok));
                }
                this.delay = Some(delay);
                Poll::Pending
            }
        }
    }
}

impl<T, K> Drop for MemoryWatch<T, K> {
    fn drop(&mut self) {
        self.shared.lock().watchers.remove(&self.id);
    }
}

impl<T, K> fmt::Debug for MemoryWatch<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWatch").field("position", &self.position).finish_non_exhaustive()
    }
}

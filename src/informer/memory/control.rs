//! Making the server misbehave, and asking it what it saw.

use super::{Faults, Inner, MemoryServer, Request, Shared};
use crate::informer::{ResourceVersion, SourceError, WatchEvent};
use std::sync::{MutexGuard, PoisonError};

impl<T, K> MemoryServer<T, K> {
    /// The version of the last change.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// assert_eq!(server.version(), 0.into());
    /// ```
    pub fn version(&self) -> ResourceVersion {
        self.lock().version.into()
    }

    /// What goes wrong at random from now on, decided by a generator with this seed.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// use delta_fifo::informer::Faults;
    /// server.set_faults(Faults { duplicate: 0.1, ..Faults::default() }, 42);
    /// ```
    pub fn set_faults(&self, faults: Faults, seed: u64) {
        let mut inner = self.lock();
        inner.faults = faults;
        inner.rng = fastrand::Rng::with_seed(seed);
    }

    /// How many changes are remembered, 10,000 at first. A watch from before them is told `Expired`.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.set_history_window(100);
    /// ```
    pub fn set_history_window(&self, changes: usize) {
        let mut inner = self.lock();
        inner.window = changes;
        inner.forget_old();
    }

    /// Whether the server can begin a watch with the whole state; false at first.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.set_streams_initial_list(true);
    /// ```
    pub fn set_streams_initial_list(&self, streams: bool) {
        self.lock().streams_initial_list = streams;
    }

    /// Forgets all history: every watch from before now, and every list that is not finished, is told `Expired`.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.forget_history();
    /// ```
    pub fn forget_history(&self) {
        let mut inner = self.lock();
        inner.history.clear();
        inner.forgotten = inner.version;
        inner.pages.clear();
        inner.wake_all();
    }

    /// Closes all watches, as a restart of the server would.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.disconnect();
    /// ```
    pub fn disconnect(&self) {
        let mut inner = self.lock();
        inner.watchers.values_mut().for_each(|watcher| watcher.closed = true);
        inner.wake_all();
    }

    /// Gives all open watches this event, which may be anything, before what is due to them.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// use delta_fifo::informer::WatchEvent;
    /// server.inject(|| Ok(WatchEvent::Bookmark { resource_version: 7.into(), initial_events_end: false }));
    /// ```
    pub fn inject(&self, event: impl Fn() -> Result<WatchEvent<T>, SourceError>) {
        let mut inner = self.lock();
        inner.watchers.values_mut().for_each(|watcher| watcher.extra.push_back(event()));
        inner.wake_all();
    }

    /// Tells all open watches that everything up to the current version has been reported.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.bookmark();
    /// ```
    pub fn bookmark(&self) {
        let version = self.version();
        self.inject(|| Ok(WatchEvent::Bookmark { resource_version: version.clone(), initial_events_end: false }));
    }

    /// The next list fails with this; called again, the one after it.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// use delta_fifo::informer::SourceError;
    /// server.fail_next_list(SourceError::Expired);
    /// ```
    pub fn fail_next_list(&self, error: SourceError) {
        self.lock().failing_lists.push_back(error);
    }

    /// The next watch fails at its start with this; called again, the one after it.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// use delta_fifo::informer::SourceError;
    /// server.fail_next_watch(SourceError::Expired);
    /// ```
    pub fn fail_next_watch(&self, error: SourceError) {
        self.lock().failing_watches.push_back(error);
    }

    /// All requests so far, in order.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// assert!(server.requests().is_empty());
    /// ```
    pub fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    /// How many watches are open.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// assert_eq!(server.open_watches(), 0);
    /// ```
    pub fn open_watches(&self) -> usize {
        self.lock().watchers.values().filter(|watcher| !watcher.closed).count()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<T, K>> {
        self.shared.lock()
    }
}

impl<T, K> Shared<T, K> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<T, K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, K> Inner<T, K> {
    pub(super) fn record(&mut self, event: WatchEvent<T>) {
        self.history.push_back(event);
        self.forget_old();
        self.wake_all();
    }

    pub(super) fn forget_old(&mut self) {
        while self.history.len() > self.window {
            if let Some(event) = self.history.pop_front() {
                self.forgotten = event.resource_version().as_u64().unwrap_or(self.forgotten);
            }
        }
    }

    pub(super) fn wake_all(&mut self) {
        self.watchers.values_mut().filter_map(|watcher| watcher.waker.take()).for_each(std::task::Waker::wake);
    }

    pub(super) fn chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.rng.f64() < chance
    }
}

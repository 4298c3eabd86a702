//! The end of an informer: by a shutdown, by the drop of one that was half-way, or by the drop of the last clone.
//!
//! A graceful shutdown goes with the flow: the source, the list that is being queued, the workers, the handlers. An
//! immediate one goes the same way and waits for nobody's work; it does not queue up behind a graceful one, it hurries it.

use std::future::Future;
use std::hash::Hash;
use std::sync::{MutexGuard, PoisonError};

use tokio::sync;
use tokio::time::{Instant, timeout_at};

use super::{Life, Owner, Shutdown, ShutdownReport, Tasks};
use crate::informer::Versioned;
use crate::informer::guard::after;

impl<T, K> Owner<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    pub(super) fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn shutdown(&self, how: Shutdown) -> ShutdownReport {
        let core = &self.core;
        if how == Shutdown::Immediate {
            self.urgent.send_replace(true);
            // Stopped: no handler is added any more, and a graceful shutdown may be waiting for one of these.
            let stopped = matches!(*self.life(), Life::Stopped);
            if stopped {
                self.stop_handlers(true);
            }
        }
        let mut ending = Ending { tasks: self.ending.lock().await, owner: self };
        // From here on no handler is added, so what the store has is all of them.
        let life = std::mem::replace(&mut *self.life(), Life::Stopped);
        let until = match how {
            Shutdown::Graceful(time) => Some(after(Instant::now(), time)),
            Shutdown::Immediate => None,
        };
        if until.is_none() {
            self.stop_handlers(true);
        }
        if let Life::Running(tasks) = life {
            *ending.tasks = Some(tasks);
        }
        let Some(tasks) = &mut *ending.tasks else {
            self.end();
            return ShutdownReport::default();
        };

        tasks.reflector.shutdown().await;
        if let Some(until) = until {
            // A list that is being queued, before the close: a worker that finds a closed queue empty ends.
            self.in_time(until, self.feed.idle()).await;
        }
        // Lets a list in that waits for room, so that its thread ends.
        core.queue.close();
        drop(self.feed.idle().await);
        if let Some(until) = until {
            // Workers end when the queue is empty.
            self.in_time(until, async { while tasks.workers.join_next().await.is_some() {} }).await;
        }
        tasks.workers.shutdown().await;
        let keys_not_applied = core.queue.list_keys().len();

        if let Some(until) = until {
            core.store.handlers().iter().for_each(|handler| handler.drain());
            self.in_time(until, async { while tasks.runners.join_next().await.is_some() {} }).await;
        }
        let urgent = *self.urgent.borrow();
        self.stop_handlers(urgent);
        while tasks.runners.join_next().await.is_some() {}
        tasks.beside.shutdown().await;
        *ending.tasks = None;
        self.end();
        let events_dropped = core.store.handlers().iter().map(|handler| handler.stats().dropped).sum();
        ShutdownReport { keys_not_applied, events_dropped }
    }

    /// Waits until it is done, or it is time, or somebody is in a hurry.
    async fn in_time(&self, until: Instant, done: impl Future) {
        let mut urgent = self.urgent.subscribe();
        tokio::select! {
            biased;
            _ = timeout_at(until, done) => {}
            () = async { drop(urgent.wait_for(|urgent| *urgent).await) } => {}
        }
    }

    fn stop_handlers(&self, abort: bool) {
        self.core.store.handlers().iter().for_each(|handler| handler.stop(abort));
    }

    /// Nothing will come any more: everybody who waits is told.
    fn end(&self) {
        self.stop_handlers(false);
        self.core.queue.close();
        self.core.store.stop();
    }
}

/// The last clone is gone.
impl<T, K> Drop for Owner<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        let life = std::mem::replace(&mut *self.life(), Life::Stopped);
        self.stop_handlers(true);
        // Aborts the tasks.
        drop(life);
        self.end();
    }
}

/// A shutdown that is under way. Dropped before its end, it leaves the tasks to the next one, aborted.
struct Ending<'a, T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    tasks: sync::MutexGuard<'a, Option<Tasks>>,
    owner: &'a Owner<T, K>,
}

impl<T, K> Drop for Ending<'_, T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if let Some(tasks) = &mut *self.tasks {
            tasks.abort();
            self.owner.end();
        }
    }
}

impl Tasks {
    fn abort(&mut self) {
        for tasks in [&mut self.reflector, &mut self.workers, &mut self.beside, &mut self.runners] {
            tasks.abort_all();
        }
    }
}

//! How far the store is: the version up to which *everything* has been applied.
//!
//! Several workers apply changes of different keys in any order, so the version of the change that was applied last says
//! nothing: an older one of another key may still wait. Who reads his own writes needs the low-water mark. It is found
//! by a *barrier*, beside the workers and without a cost per event:
//!
//! 1. `target` is a version up to which the reflector has queued everything.
//! 2. The keys that have pending deltas are listed. A change up to `target` is now pending under one of them, or it is
//!    in a claim of a worker whose *bracket* is open, or it is applied.
//! 3. The brackets that are open are waited for.
//! 4. The pending keys are listed again. A key that is no longer pending was claimed since (2); one that is has to be
//!    claimed by a bracket that opens after (2), and each bracket says which keys it applied.
//! 5. When no key is left and the brackets that were open at (4) are closed, everything up to `target` is applied.
//!
//! A *bracket* is the time in which a worker may hold claims that it has not applied yet: it is open while the worker
//! polls the queue, because the claim is made in there, and from the claim to the store's write. If nothing is
//! pending and no bracket is open, at one instant, (1) is all there is to do.
//!
//! | field | worker | barrier |
//! |---|---|---|
//! | `turns[w]` | worker `w` adds one as it opens and as it closes | reads: odd is open |
//! | `stamp` | reads after opening | adds one after the list of (2) |
//! | `watching` | reads before closing | sets before it changes `stamp` |
//! | `log` | adds the keys it applied, if `watching` | reads and clears |
//!
//! All are `SeqCst`: each side writes its own and then reads the other's, and needs to be in one order with it. There is
//! one bracket per batch, so the cost does not matter.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{ResourceVersion, Store};
use crate::queue::{DefaultHashBuilder, DeltaFifo};

/// A barrier walks the queue's table. It may take a fifth of a core, and no more.
const REST: u32 = 4;
const LONGEST_REST: Duration = Duration::from_millis(50);

type Keys<K> = HashSet<K, DefaultHashBuilder>;

pub(super) struct Progress<K> {
    turns: Box<[AtomicU64]>,
    stamp: AtomicU64,
    watching: AtomicBool,
    log: Mutex<Log<K>>,
    /// A bracket closed while a barrier was under way.
    closed: Notify,
    queued: watch::Sender<ResourceVersion>,
    /// Changes that could not be applied. The store is behind until a list says again what they said.
    failures: AtomicU64,
    forgiven: AtomicU64,
}

struct Log<K> {
    /// Brackets with an older stamp do not count.
    since: u64,
    applied: Keys<K>,
    /// The keys the barrier waits for, once it knows them.
    left: Option<Keys<K>>,
}

/// An open bracket of a worker.
#[must_use = "a bracket that is not closed stops the store's version"]
pub(super) struct Bracket {
    worker: usize,
    stamp: u64,
}

impl<K: Hash + Eq + Clone> Progress<K> {
    pub(super) fn new(workers: usize) -> Self {
        Progress {
            turns: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            stamp: AtomicU64::new(0),
            watching: AtomicBool::new(false),
            log: Mutex::new(Log { since: 0, applied: Keys::default(), left: None }),
            closed: Notify::new(),
            queued: watch::Sender::default(),
            failures: AtomicU64::new(0),
            forgiven: AtomicU64::new(0),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log<K>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ----- workers -----

    /// Polls `pop` so that whatever it claims is claimed within a bracket.
    pub(super) async fn claim<R>(&self, worker: usize, pop: impl Future<Output = R>) -> (R, Bracket) {
        let mut pop = pin!(pop);
        poll_fn(|cx| {
            let bracket = self.open(worker);
            match catch_unwind(AssertUnwindSafe(|| pop.as_mut().poll(cx))) {
                Ok(Poll::Ready(result)) => Poll::Ready((result, bracket)),
                Ok(Poll::Pending) => {
                    self.close(bracket, std::iter::empty());
                    Poll::Pending
                }
                Err(panic) => {
                    // The user's compression: what was claimed is queued again.
                    self.close(bracket, std::iter::empty());
                    resume_unwind(panic)
                }
            }
        })
        .await
    }

    fn open(&self, worker: usize) -> Bracket {
        self.turns[worker].fetch_add(1, SeqCst);
        Bracket { worker, stamp: self.stamp.load(SeqCst) }
    }

    /// The store has what was claimed. The claims are not released yet.
    pub(super) fn close<'k>(&self, bracket: Bracket, keys: impl Iterator<Item = &'k K>)
    where
        K: 'k,
    {
        if self.watching.load(SeqCst) {
            let mut log = self.log();
            if bracket.stamp >= log.since {
                for key in keys {
                    match &mut log.left {
                        Some(left) => drop(left.remove(key)),
                        None => drop(log.applied.insert(key.clone())),
                    }
                }
            }
        }
        self.turns[bracket.worker].fetch_add(1, SeqCst);
        if self.watching.load(SeqCst) {
            self.closed.notify_waiters();
        }
    }

    /// A change could not be applied.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, SeqCst);
    }

    // ----- reflector -----

    /// A list begins to be handed over: what failed before does not matter any more when it is applied.
    pub(super) fn list_begins(&self) -> u64 {
        self.failures.load(SeqCst)
    }

    pub(super) fn list_queued(&self, failures: u64) {
        self.forgiven.store(failures, SeqCst);
    }

    /// Everything up to `version` is in the queue.
    pub(super) fn queued(&self, version: &ResourceVersion) {
        self.queued.send_replace(version.clone());
    }

    // ----- barrier -----

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
                self.barrier(queue).await;
                if self.failures.load(SeqCst) == self.forgiven.load(SeqCst) {
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

    async fn barrier<T>(&self, queue: &DeltaFifo<T, K>) {
        if self.is_idle(queue) {
            return;
        }
        self.watching.store(true, SeqCst);
        let unwatch = Unwatch(self);
        let pending = queue.list_keys();
        self.log().since = self.stamp.fetch_add(1, SeqCst) + 1;
        self.open_brackets_close().await;
        if !pending.is_empty() {
            let still: Keys<K> = queue.list_keys().into_iter().collect();
            {
                let mut log = self.log();
                let left = pending.into_iter().filter(|key| still.contains(key) && !log.applied.contains(key));
                let left = left.collect();
                log.left = Some(left);
            }
            self.open_brackets_close().await;
            self.until(|| self.log().left.as_ref().is_none_or(Keys::is_empty)).await;
        }
        drop(unwatch);
    }

    /// Whether, at one instant, nothing is pending and no bracket is open. Pending, not queued: a change may wait behind
    /// a claim that is applied, its bracket closed, and not released yet.
    fn is_idle<T>(&self, queue: &DeltaFifo<T, K>) -> bool {
        let turns = || self.turns.iter().map(|turn| turn.load(SeqCst));
        let before: Vec<_> = turns().collect();
        before.iter().all(|turn| turn % 2 == 0)
            && queue.is_empty()
            && queue.list_keys().is_empty()
            && turns().eq(before)
    }

    async fn open_brackets_close(&self) {
        let open: Vec<_> = self.turns.iter().map(|turn| turn.load(SeqCst)).collect();
        self.until(|| self.turns.iter().zip(&open).all(|(now, was)| was % 2 == 0 || now.load(SeqCst) != *was)).await;
    }

    /// Waits for something that only the closing of a bracket brings about.
    async fn until(&self, done: impl Fn() -> bool) {
        loop {
            let mut closed = pin!(self.closed.notified());
            closed.as_mut().enable();
            if done() {
                return;
            }
            closed.await;
        }
    }
}

/// Ends a barrier, also when it is dropped half-way.
struct Unwatch<'a, K: Hash + Eq + Clone>(&'a Progress<K>);

impl<K: Hash + Eq + Clone> Drop for Unwatch<'_, K> {
    fn drop(&mut self) {
        self.0.watching.store(false, SeqCst);
        let emptied = {
            let mut log = self.0.log();
            (std::mem::take(&mut log.applied), log.left.take())
        };
        drop(emptied);
    }
}

/// Opens and closes brackets in every order that matters; see `tests/informer` for the whole.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::Store;

    fn queue() -> DeltaFifo<u32, u32> {
        DeltaFifo::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build()
    }

    async fn poll_once(future: &mut (impl Future + Unpin)) -> bool {
        poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn waits_for_a_claim_that_was_made_before() {
        let (queue, progress) = (queue(), Progress::new(2));
        queue.add(1).unwrap();
        let (claim, bracket) = progress.claim(0, queue.pop()).await;
        let mut barrier = Box::pin(progress.barrier(&queue));
        assert!(!poll_once(&mut barrier).await);
        progress.close(bracket, [1].iter());
        assert!(poll_once(&mut barrier).await);
        drop(claim);
    }

    #[tokio::test]
    async fn waits_for_what_is_behind_a_claim_that_is_applied_and_not_released() {
        let (queue, progress) = (queue(), Progress::new(1));
        queue.add(1).unwrap();
        let (claim, bracket) = progress.claim(0, queue.pop()).await;
        queue.update(1).unwrap();
        progress.close(bracket, [1].iter());
        let mut barrier = Box::pin(progress.barrier(&queue));
        assert!(!poll_once(&mut barrier).await, "the update is not applied");
        drop(claim);
        let (claim, bracket) = progress.claim(0, queue.pop()).await;
        progress.close(bracket, [1].iter());
        assert!(poll_once(&mut barrier).await);
        drop(claim);
    }

    #[tokio::test]
    async fn waits_for_what_was_queued_behind_a_claim() {
        let (queue, progress) = (queue(), Progress::new(2));
        queue.add(1).unwrap();
        let (claim, bracket) = progress.claim(0, queue.pop()).await;
        queue.update(1).unwrap();
        let mut barrier = Box::pin(progress.barrier(&queue));
        assert!(!poll_once(&mut barrier).await);
        progress.close(bracket, [1].iter());
        assert!(!poll_once(&mut barrier).await, "the update is not applied");
        drop(claim);
        assert!(!poll_once(&mut barrier).await);
        let (claim, bracket) = progress.claim(1, queue.pop()).await;
        assert!(!poll_once(&mut barrier).await);
        progress.close(bracket, [1].iter());
        assert!(poll_once(&mut barrier).await);
        drop(claim);
    }

    #[tokio::test]
    async fn does_not_wait_for_what_came_later() {
        let (queue, progress) = (queue(), Progress::new(2));
        queue.add(1).unwrap();
        let mut barrier = Box::pin(progress.barrier(&queue));
        assert!(!poll_once(&mut barrier).await);
        queue.add(2).unwrap();
        let (claim, bracket) = progress.claim(0, queue.pop()).await;
        progress.close(bracket, [1].iter());
        // A hot key: pending again each time anybody looks.
        queue.update(1).unwrap();
        assert!(poll_once(&mut barrier).await);
        drop(claim);
    }

    #[tokio::test]
    async fn a_worker_that_sleeps_in_pop_is_not_waited_for() {
        let (queue, progress) = (queue(), Progress::new(1));
        let mut waiting = Box::pin(progress.claim(0, queue.pop()));
        assert!(!poll_once(&mut waiting).await);
        assert!(poll_once(&mut Box::pin(progress.barrier(&queue))).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_holds_the_version_back_until_a_list() {
        let (queue, progress) = (queue(), Progress::new(1));
        let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
        let mut run = Box::pin(progress.run(&queue, &store));
        progress.failed();
        progress.queued(&5.into());
        assert!(!poll_once(&mut run).await);
        assert!(store.resource_version().is_unset());
        let failures = progress.list_begins();
        progress.list_queued(failures);
        progress.queued(&6.into());
        assert!(tokio::time::timeout(Duration::from_secs(1), run).await.is_err());
        assert_eq!(store.resource_version(), 6.into());
    }
}

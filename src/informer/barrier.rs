//! The barrier: everything that was queued before it began has been applied when it ends. It runs beside the workers and
//! costs them nothing per event.
//!
//! 1. Everything up to the target is queued: the caller's promise.
//! 2. The keys that have pending deltas are listed. A change up to the target is now pending under one of them, or it is
//!    in a claim of a worker whose *bracket* is open, or it is applied.
//! 3. The brackets that are open are waited for.
//! 4. The pending keys are listed again. A key that is no longer pending was claimed since (2); one that is has to be
//!    claimed by a bracket that opens after (2), and each bracket says which keys it applied.
//! 5. When no key is left and the brackets that were open at (4) are closed, everything up to the target is applied.
//!
//! A *bracket* is the time in which a worker may hold claims that it has not applied yet: it is open while the worker
//! polls the queue, because the claim is made in there, and from the claim to the store's write. If nothing is
//! pending and no bracket is open, at one instant, (1) is all there is to do.
//!
//! Claims that are queued again within their bracket are in neither list, so a barrier that meets one begins anew.
//!
//! A change that cannot be applied is counted, and what a list says again makes up for those that were counted before the
//! list was made. Not for a barrier that began before the list was queued: it does not cover the list's keys.
//!
//! | field | worker | barrier |
//! |---|---|---|
//! | `turns[w]` | worker `w` adds one as it opens and as it closes (release) | reads (acquire): odd is open |
//! | `stamp` | reads after opening, and a fence | adds one after the list of (2), then a fence, then `turns` |
//! | `watching` | reads before closing | sets before it changes `stamp` |
//! | `log` | adds the keys it applied, if `watching` and its stamp is new | begins with an empty one at (2), and reads it |
//!
//! By the two fences either a worker has the new stamp, or the barrier sees its bracket. The claim and the lists are
//! ordered by the queue's shard guards. The models compile this file as it is.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::PoisonError;
use std::task::Poll;

use crate::queue::{DefaultHashBuilder, DeltaFifo};
use crate::seeded::{self, Bug};
use crate::sync::{AtomicBool, AtomicU64, Event, Mutex, MutexGuard, Ordering, asleep, fence};

type Keys<K> = HashSet<K, DefaultHashBuilder>;

/// The brackets of the workers, and the barrier that waits for them. One barrier at a time.
pub struct Barrier<K> {
    turns: Box<[AtomicU64]>,
    stamp: AtomicU64,
    watching: AtomicBool,
    log: Mutex<Log<K>>,
    /// A bracket closed.
    closed: Event,
    /// Changes that could not be applied. The store is behind until a list says again what they said.
    failures: AtomicU64,
    forgiven: AtomicU64,
    /// Brackets whose claims were queued again.
    given_back: AtomicU64,
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
pub struct Bracket {
    worker: usize,
    stamp: u64,
}

impl Bracket {
    /// For the seeded bug that closes too early.
    pub(super) fn again(&self) -> Bracket {
        Bracket { ..*self }
    }
}

impl<K: Hash + Eq + Clone> Barrier<K> {
    /// For so many workers.
    pub fn new(workers: usize) -> Self {
        Barrier {
            turns: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            stamp: AtomicU64::new(0),
            watching: AtomicBool::new(false),
            log: Mutex::new(Log { since: 0, applied: Keys::default(), left: None }),
            closed: Event::new(),
            failures: AtomicU64::new(0),
            forgiven: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log<K>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ----- workers -----

    /// Polls `pop` so that whatever it claims is claimed within a bracket.
    pub async fn claim<R>(&self, worker: usize, pop: impl Future<Output = R>) -> (R, Bracket) {
        let mut pop = pin!(pop);
        poll_fn(|cx| {
            if seeded::on(Bug::BracketOpensLate) {
                return pop.as_mut().poll(cx).map(|result| (result, self.open(worker)));
            }
            let bracket = self.open(worker);
            match catch_unwind(AssertUnwindSafe(|| pop.as_mut().poll(cx))) {
                Ok(Poll::Ready(result)) => Poll::Ready((result, bracket)),
                Ok(Poll::Pending) => {
                    self.close(bracket, std::iter::empty());
                    Poll::Pending
                }
                Err(panic) => {
                    // The user's compression: what was claimed is queued again.
                    self.give_back(bracket);
                    resume_unwind(panic)
                }
            }
        })
        .await
    }

    fn open(&self, worker: usize) -> Bracket {
        // Relaxed: by the fence, and for what is claimed by the shard guard of the claim.
        self.turns[worker].fetch_add(1, Ordering::Relaxed);
        self.fence();
        // Acquire: who has the new stamp sees `watching`.
        Bracket { worker, stamp: self.stamp.load(Ordering::Acquire) }
    }

    fn fence(&self) {
        if !seeded::on(Bug::BarrierNoFence) {
            fence(Ordering::SeqCst);
        }
    }

    /// The store has what was claimed. The claims are not released yet.
    pub fn close<'k>(&self, bracket: Bracket, keys: impl Iterator<Item = &'k K>)
    where
        K: 'k,
    {
        // Relaxed: see `open`. One that is out of date finds a log that its stamp is too old for, or that nobody reads.
        if self.watching.load(Ordering::Relaxed) && !seeded::on(Bug::BracketLogsNothing) {
            let mut log = self.log();
            if bracket.stamp >= log.since || seeded::on(Bug::BarrierIgnoresStamp) {
                for key in keys {
                    match &mut log.left {
                        Some(left) => drop(left.remove(key)),
                        None => drop(log.applied.insert(key.clone())),
                    }
                }
            }
        }
        // Release: a barrier that sees it closed sees what was applied and what failed.
        let order = if seeded::on(Bug::BracketClosesRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.turns[bracket.worker].fetch_add(1, order);
        if !seeded::on(Bug::BracketNoNotify) {
            self.closed.notify(usize::MAX);
        }
    }

    /// Closes a bracket whose claims are queued again. A barrier that waited for it has not seen them pending, so it
    /// begins anew.
    pub fn give_back(&self, bracket: Bracket) {
        if !seeded::on(Bug::GiveBackNotCounted) {
            // Release: a barrier that begins with this count finds what is queued again.
            self.given_back.fetch_add(1, Ordering::Release);
        }
        self.close(bracket, std::iter::empty());
    }

    /// A change of this bracket could not be applied.
    pub fn failed(&self, _: &Bracket) {
        if !seeded::on(Bug::FailureNotCounted) {
            // AcqRel: the list that is made because of it sees it. A barrier sees it by the close of the bracket.
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
    }

    // ----- reflector -----

    /// A list begins to be handed over: what failed before does not matter any more when it is applied.
    pub fn list_begins(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// It is in the queue.
    pub fn list_queued(&self, failures: u64) {
        // Release: a barrier that forgives finds the list in the queue.
        self.forgiven.store(failures, Ordering::Release);
    }

    // ----- barrier -----

    /// Waits until everything that was queued before has been taken care of. `true` if it is all applied; `false` if
    /// something failed, and the list that makes up for it is not in the queue, or was not at the beginning.
    ///
    /// Dropped half-way, the next one begins anew.
    pub async fn is_reached<T, S>(&self, queue: &DeltaFifo<T, K, S>) -> bool
    where
        S: BuildHasher + Clone,
    {
        let forgiven = self.forgiven.load(Ordering::Acquire);
        loop {
            let given_back = self.given_back.load(Ordering::Acquire);
            self.pass(queue).await;
            if self.given_back.load(Ordering::Relaxed) == given_back {
                break;
            }
        }
        let late = seeded::on(Bug::FailureForgivenLate).then(|| self.forgiven.load(Ordering::Acquire));
        self.failures.load(Ordering::Acquire) == late.unwrap_or(forgiven)
    }

    async fn pass<T, S>(&self, queue: &DeltaFifo<T, K, S>)
    where
        S: BuildHasher + Clone,
    {
        if self.is_idle(queue) {
            return;
        }
        self.watching.store(true, Ordering::Relaxed);
        let unwatch = Unwatch(self);
        let pending = queue.list_keys();
        let emptied = {
            let mut log = self.log();
            // Release: see `open`.
            log.since = self.stamp.fetch_add(1, Ordering::Release) + 1;
            // Brackets that closed since the barrier watches may have logged what they applied before the list.
            if seeded::on(Bug::BarrierKeepsOldLog) { Keys::default() } else { std::mem::take(&mut log.applied) }
        };
        drop(emptied);
        self.fence();
        if !seeded::on(Bug::BarrierSkipsFirstBrackets) {
            self.open_brackets_close().await;
        }
        if !pending.is_empty() && !seeded::on(Bug::BarrierIgnoresLeft) {
            let still: Keys<K> = match seeded::on(Bug::BarrierListsOnce) {
                false => queue.list_keys().into_iter().collect(),
                true => pending.iter().cloned().collect(),
            };
            {
                let mut log = self.log();
                let left = pending.into_iter().filter(|key| still.contains(key) && !log.applied.contains(key));
                let left = left.collect();
                log.left = Some(left);
            }
            if !seeded::on(Bug::BarrierSkipsSecondBrackets) {
                self.open_brackets_close().await;
            }
            self.until(|| self.log().left.as_ref().is_none_or(Keys::is_empty)).await;
        }
        drop(unwatch);
    }

    fn turns(&self) -> Vec<u64> {
        self.turns.iter().map(|turn| turn.load(Ordering::Acquire)).collect()
    }

    /// Whether, at one instant, nothing is pending and no bracket is open. Pending, not queued: a change may wait behind
    /// a claim that is applied, its bracket closed, and not released yet.
    fn is_idle<T, S>(&self, queue: &DeltaFifo<T, K, S>) -> bool
    where
        S: BuildHasher + Clone,
    {
        let before = self.turns();
        before.iter().all(|turn| turn % 2 == 0)
            && queue.is_empty()
            && (seeded::on(Bug::IdleByQueue) || queue.list_keys().is_empty())
            && (seeded::on(Bug::IdleNoSecondLook) || self.turns() == before)
    }

    async fn open_brackets_close(&self) {
        let open = self.turns();
        self.until(|| self.turns().iter().zip(&open).all(|(now, was)| was % 2 == 0 || now != was)).await;
    }

    /// Waits for something that only the closing of a bracket brings about.
    async fn until(&self, done: impl Fn() -> bool) {
        while !done() {
            let closed = self.closed.listen();
            if !seeded::on(Bug::BarrierNoRecheckAfterListen) && done() {
                return;
            }
            asleep(closed).await;
        }
    }
}

/// Ends a barrier, also when it is dropped half-way.
struct Unwatch<'a, K: Hash + Eq + Clone>(&'a Barrier<K>);

impl<K: Hash + Eq + Clone> Drop for Unwatch<'_, K> {
    fn drop(&mut self) {
        self.0.watching.store(false, Ordering::Relaxed);
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

    fn queue() -> DeltaFifo<u32, u32> {
        DeltaFifo::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build()
    }

    async fn poll_once(future: &mut (impl Future + Unpin)) -> bool {
        poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn waits_for_a_claim_that_was_made_before() {
        let (queue, barrier) = (queue(), Barrier::new(2));
        queue.add(1).unwrap();
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        let mut reached = Box::pin(barrier.is_reached(&queue));
        assert!(!poll_once(&mut reached).await);
        barrier.close(bracket, [1].iter());
        assert!(poll_once(&mut reached).await);
        drop(claim);
    }

    #[tokio::test]
    async fn waits_for_what_is_behind_a_claim_that_is_applied_and_not_released() {
        let (queue, barrier) = (queue(), Barrier::new(1));
        queue.add(1).unwrap();
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        queue.update(1).unwrap();
        barrier.close(bracket, [1].iter());
        let mut reached = Box::pin(barrier.is_reached(&queue));
        assert!(!poll_once(&mut reached).await, "the update is not applied");
        drop(claim);
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        barrier.close(bracket, [1].iter());
        assert!(poll_once(&mut reached).await);
        drop(claim);
    }

    #[tokio::test]
    async fn waits_for_what_was_queued_behind_a_claim() {
        let (queue, barrier) = (queue(), Barrier::new(2));
        queue.add(1).unwrap();
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        queue.update(1).unwrap();
        let mut reached = Box::pin(barrier.is_reached(&queue));
        assert!(!poll_once(&mut reached).await);
        barrier.close(bracket, [1].iter());
        assert!(!poll_once(&mut reached).await, "the update is not applied");
        drop(claim);
        assert!(!poll_once(&mut reached).await);
        let (claim, bracket) = barrier.claim(1, queue.pop()).await;
        assert!(!poll_once(&mut reached).await);
        barrier.close(bracket, [1].iter());
        assert!(poll_once(&mut reached).await);
        drop(claim);
    }

    #[tokio::test]
    async fn does_not_wait_for_what_came_later() {
        let (queue, barrier) = (queue(), Barrier::new(2));
        queue.add(1).unwrap();
        let mut reached = Box::pin(barrier.is_reached(&queue));
        assert!(!poll_once(&mut reached).await);
        queue.add(2).unwrap();
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        barrier.close(bracket, [1].iter());
        // A hot key: pending again each time anybody looks.
        queue.update(1).unwrap();
        assert!(poll_once(&mut reached).await);
        drop(claim);
    }

    #[tokio::test]
    async fn a_worker_that_sleeps_in_pop_is_not_waited_for() {
        let (queue, barrier) = (queue(), Barrier::new(1));
        let mut waiting = Box::pin(barrier.claim(0, queue.pop()));
        assert!(!poll_once(&mut waiting).await);
        assert!(poll_once(&mut Box::pin(barrier.is_reached(&queue))).await);
    }

    #[tokio::test]
    async fn waits_for_what_is_given_back() {
        let (queue, barrier) = (queue(), Barrier::new(1));
        queue.add(1).unwrap();
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        let mut reached = Box::pin(barrier.is_reached(&queue));
        assert!(!poll_once(&mut reached).await);
        claim.unwrap().requeue();
        barrier.give_back(bracket);
        assert!(!poll_once(&mut reached).await, "it is queued again, and not applied");
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        barrier.close(bracket, [1].iter());
        assert!(poll_once(&mut reached).await);
        drop(claim);
    }

    #[tokio::test]
    async fn a_list_that_comes_later_forgives_nothing() {
        let (queue, barrier) = (queue(), Barrier::new(2));
        queue.add(1).unwrap();
        queue.add(2).unwrap();
        let (claim, bracket) = barrier.claim(0, queue.pop()).await;
        let mut reached = Box::pin(barrier.is_reached(&queue));
        assert!(!poll_once(&mut reached).await);
        barrier.failed(&bracket);
        barrier.close(bracket, [1].iter());
        drop(claim);
        assert!(!poll_once(&mut reached).await, "2 is not applied");
        // A list makes up for the failure: it is queued, and not applied.
        let failures = barrier.list_begins();
        queue.update(1).unwrap();
        barrier.list_queued(failures);
        let (claim, bracket) = barrier.claim(1, queue.pop()).await;
        barrier.close(bracket, [2].iter());
        drop(claim);
        let answer = poll_fn(|cx| Poll::Ready(reached.as_mut().poll(cx))).await;
        assert_eq!(answer, Poll::Ready(false), "what the list says of 1 is not applied");
    }
}

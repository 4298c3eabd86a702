//! One handler's side of the informer: its buffer, the tasks that call it, its retries and whether it has synced.
//!
//! ```text
//! workers ──push──► buffer ──take──► runner 1..n ──► handler ─┬─ ok ─────────► settle
//!                     ▲ replay of the store, for a late one   ├─ error, panic ► again after a wait, same key blocked
//!                     └───────────────────────────────────────┴─ too often ───► dead-letter hook, settle
//! ```
//!
//! The lock is held for bookkeeping only: handlers, hooks and drops of objects run outside.

mod buffer;

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use self::buffer::{Buffer, Pushed, Queued};
use super::guard::{after, catch};
use super::hand_over::{Door, Inside};
use super::handler::{Buffering, HandlerOptions, Overflow};
use super::store::Replay;
use super::{DeadLetter, Event, Handler};

/// How far a handler is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    /// What waits is still delivered.
    Draining,
    /// What waits is dropped, what runs goes on.
    Stopped,
    /// And async handlers are dropped where they wait.
    Aborted,
}

/// What a handler has done so far.
///
/// ```
/// let stats = delta_fifo::informer::HandlerStats::default();
/// assert_eq!(stats.waiting, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerStats {
    /// Events that wait in the buffer now, those that wait for a retry and those of a replay included.
    pub waiting: usize,
    /// The most that have waited at any time.
    pub most_waiting: usize,
    /// Calls that run now.
    pub running: usize,
    /// Calls that succeeded.
    pub handled: u64,
    /// Calls that failed or panicked.
    pub failed: u64,
    /// Events that were given up.
    pub dead_letters: u64,
    /// Events that were merged with another one, or undid one that waited.
    pub merged: u64,
    /// Events that waited when the handler was removed or the informer stopped.
    pub dropped: u64,
}

pub(super) struct Pipeline<T, K> {
    pub(super) name: Arc<str>,
    /// Zero: no Resync.
    pub(super) resync_period: Duration,
    /// The last Resync round that is meant for this handler.
    pub(super) due_round: AtomicU64,
    handler: Handler<T, K>,
    options: HandlerOptions<T, K>,
    /// Shut when the handler is removed or the informer stops.
    inner: Door<Inner<T, K>>,
    phase: watch::Sender<Phase>,
    /// There may be something to take.
    ready: Notify,
    /// There may be room.
    room: Notify,
    /// Something was settled, or a runner ended.
    settled: Notify,
}

struct Inner<T, K> {
    buffer: Buffer<T, K>,
    /// Initial events that are not settled.
    initial: usize,
    runners: usize,
    stats: HandlerStats,
    next_resync: Option<Instant>,
}

impl<T, K> Pipeline<T, K>
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// A handler that is shown `replay` first.
    pub(super) fn new(
        handler: Handler<T, K>,
        options: HandlerOptions<T, K>,
        resync_period: Duration,
        replay: Replay<T, K>,
    ) -> Self {
        let replay = Some(replay).filter(|replay| replay.remaining() > 0);
        let inner = Inner {
            initial: replay.as_ref().map_or(0, Replay::remaining),
            buffer: Buffer::new(replay),
            runners: 0,
            stats: HandlerStats::default(),
            next_resync: None,
        };
        Pipeline {
            name: options.name.clone(),
            resync_period,
            due_round: AtomicU64::new(0),
            handler,
            options,
            inner: Door::new(inner),
            phase: watch::Sender::new(Phase::Running),
            ready: Notify::new(),
            room: Notify::new(),
            settled: Notify::new(),
        }
    }

    pub(super) fn concurrency(&self) -> usize {
        self.options.concurrency
    }

    fn lock(&self) -> Inside<'_, Inner<T, K>> {
        self.inner.lock()
    }

    // ----- the workers' side -----

    /// Puts an event into the buffer. Waits only if the handler was registered that way.
    pub(super) async fn push(&self, event: Event<T, K>, initial: bool) {
        let mut queued = Queued { event, initial: usize::from(initial) };
        loop {
            // Registered before the look at the buffer, so room that is made in between is not missed.
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            match self.try_push(queued) {
                Ok(()) => return,
                Err(back) => queued = back,
            }
            room.await;
        }
    }

    fn try_push(&self, queued: Queued<T, K>) -> Result<(), Queued<T, K>> {
        let mut garbage = Vec::new();
        let mut inner = match self.inner.enter() {
            Ok(inner) => inner,
            Err(mut inner) => {
                inner.stats.dropped += 1;
                return Ok(());
            }
        };
        let coalesce = match self.options.buffering {
            Buffering::Unbounded => false,
            Buffering::Coalescing => true,
            Buffering::Bounded { events, .. } if inner.buffer.waiting() < events.max(1) => false,
            Buffering::Bounded { overflow: Overflow::Wait, .. } => return Err(queued),
            Buffering::Bounded { overflow: Overflow::Coalesce, .. } => inner.buffer.has_waiting(&queued.event.key),
        };
        inner.initial += queued.initial;
        match inner.buffer.push(queued, coalesce, &mut garbage) {
            Pushed::Queued => {}
            Pushed::Merged => inner.stats.merged += 1,
            Pushed::Cancelled { initial } => {
                inner.stats.merged += 2;
                self.settle_initial(&mut inner, initial);
            }
        }
        inner.stats.most_waiting = inner.stats.most_waiting.max(inner.buffer.waiting());
        drop(inner);
        self.ready.notify_one();
        Ok(())
    }

    fn settle_initial(&self, inner: &mut Inner<T, K>, initial: usize) {
        inner.initial -= initial;
        if initial > 0 && inner.initial == 0 {
            self.settled.notify_waiters();
        }
    }

    // ----- the runners' side -----

    /// One of the tasks that call the handler. Ends when the handler is removed or the informer stops. Counted from
    /// here on, so that a task that is aborted before its first poll is counted out again.
    pub(super) fn run(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        self.lock().runners += 1;
        let ended = Ended(self);
        async move { ended.0.serve().await }
    }

    async fn serve(&self) {
        while let Some(queued) = self.next().await {
            let mut phase = self.phase.subscribe();
            let event = queued.event.clone();
            let in_hand = InHand { pipeline: self, queued: Some(queued) };
            // Lets go of the phase at once: the drop of the call may want to change it, if it is a shutdown.
            let aborted = async { drop(phase.wait_for(|phase| *phase == Phase::Aborted).await) };
            let outcome = tokio::select! {
                biased;
                outcome = self.handler.call(event) => Some(outcome),
                () = aborted => None,
            };
            match outcome {
                None => drop(in_hand),
                Some(Ok(())) => self.settle(in_hand.take(), |stats| stats.handled += 1),
                Some(Err(error)) => self.failed(in_hand.take(), error),
            }
            // A handler that never waits must not keep the thread for itself.
            consume_budget().await;
        }
    }

    async fn next(&self) -> Option<Queued<T, K>> {
        let mut phase = self.phase.subscribe();
        loop {
            let mut ready = std::pin::pin!(self.ready.notified());
            ready.as_mut().enable();
            let mut garbage = Vec::new();
            let retry_at = {
                let now_phase = *phase.borrow_and_update();
                let mut inner = self.lock();
                match inner.buffer.take(Instant::now(), self.coalesces(), &mut garbage) {
                    Ok(queued) => {
                        drop(inner);
                        self.room.notify_waiters();
                        return Some(queued);
                    }
                    Err(_) if now_phase >= Phase::Stopped => return None,
                    Err(None) if now_phase == Phase::Draining && inner.buffer.running() == 0 => {
                        // The others sleep; they have to look too.
                        self.ready.notify_waiters();
                        return None;
                    }
                    Err(retry_at) => retry_at,
                }
            };
            drop(garbage);
            tokio::select! {
                () = ready => {}
                _ = phase.changed() => {}
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {}
            }
        }
    }

    fn coalesces(&self) -> bool {
        self.options.buffering == Buffering::Coalescing
    }

    fn failed(&self, mut queued: Queued<T, K>, error: crate::key::BoxError) {
        let attempt = queued.event.attempt;
        if self.options.retry.retries.is_none_or(|retries| attempt <= retries) {
            let at = after(Instant::now(), self.options.retry.backoff.delay_after(attempt));
            let mut inner = self.lock();
            inner.stats.failed += 1;
            if *self.phase.borrow() < Phase::Stopped {
                queued.event.attempt += 1;
                inner.buffer.settle_for_retry(queued, at);
                drop(inner);
                // Another runner may sleep past the time of this retry.
                self.ready.notify_one();
                return;
            }
            drop(inner);
            return self.settle_as_dropped(queued);
        }
        if let Some(hook) = &self.options.dead_letter {
            // A hook that panics must not take the handler with it; there is nobody left to tell.
            let _ = catch(|| {
                hook(DeadLetter { event: queued.event.clone(), error });
                Ok(())
            });
        }
        self.settle(queued, |stats| {
            stats.failed += 1;
            stats.dead_letters += 1;
        });
    }

    fn settle_as_dropped(&self, queued: Queued<T, K>) {
        self.settle(queued, |stats| stats.dropped += 1);
    }

    fn settle(&self, queued: Queued<T, K>, count: impl FnOnce(&mut HandlerStats)) {
        let mut inner = self.lock();
        count(&mut inner.stats);
        inner.buffer.settle(&queued.event.key);
        self.settle_initial(&mut inner, queued.initial);
        drop(inner);
        // An event of the key may be free now, or the last call may have ended.
        self.ready.notify_one();
    }

    // ----- state -----

    pub(super) fn stats(&self) -> HandlerStats {
        let inner = self.lock();
        HandlerStats { waiting: inner.buffer.waiting(), running: inner.buffer.running(), ..inner.stats }
    }

    /// Whether all initial events that it was given are settled.
    pub(super) fn has_settled_initial(&self) -> bool {
        self.lock().initial == 0
    }

    /// Waits for [`has_settled_initial`](Self::has_settled_initial); `false` if the handler ended before.
    pub(super) async fn wait_settled_initial(&self) -> bool {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            {
                let inner = self.lock();
                if inner.initial == 0 || self.has_ended(&inner) {
                    return inner.initial == 0;
                }
            }
            settled.await;
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.phase.borrow() >= Phase::Stopped
    }

    /// What waits is still delivered, then the runners end.
    pub(super) fn drain(&self) {
        self.phase.send_if_modified(|phase| {
            let later = *phase < Phase::Draining;
            *phase = Phase::Draining.max(*phase);
            later
        });
    }

    /// What waits is dropped and counted; what runs goes on, unless it is to be aborted.
    pub(super) fn stop(&self, abort: bool) {
        let phase = if abort { Phase::Aborted } else { Phase::Stopped };
        let dropped = {
            let mut inner = self.inner.shut();
            self.phase.send_modify(|now| *now = phase.max(*now));
            let dropped = inner.buffer.drop_waiting();
            inner.stats.dropped += dropped.waiting() as u64;
            dropped
        };
        drop(dropped);
        self.room.notify_waiters();
        self.ready.notify_waiters();
        self.settled.notify_waiters();
    }

    /// Waits until no task of the handler is left.
    pub(super) async fn wait_ended(&self) {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.has_ended(&self.lock()) {
                return;
            }
            settled.await;
        }
    }

    /// No task calls the handler, and none will.
    fn has_ended(&self, inner: &Inner<T, K>) -> bool {
        inner.runners == 0 && self.is_stopped()
    }

    // ----- resync -----

    /// The first Resync is due one period from now.
    pub(super) fn start_resync(&self, now: Instant) {
        if !self.resync_period.is_zero() {
            self.lock().next_resync = Some(after(now, self.resync_period));
        }
    }

    pub(super) fn next_resync(&self) -> Option<Instant> {
        self.lock().next_resync
    }

    /// If a Resync is due now, notes that round `round` is for this handler.
    pub(super) fn take_due(&self, now: Instant, round: u64) -> bool {
        let mut inner = self.lock();
        let Some(due) = inner.next_resync.filter(|due| *due <= now) else { return false };
        // In step with the first one, unless a whole period was missed.
        let next = after(due, self.resync_period);
        inner.next_resync = Some(if next > now { next } else { after(now, self.resync_period) });
        // Release, with the acquire of `is_due`'s caller on the round itself: a worker that sees the round sees this.
        self.due_round.store(round, Ordering::Release);
        true
    }

    /// Whether a round after `seen`, up to `round`, was for this handler.
    pub(super) fn is_due(&self, seen: u64, round: u64) -> bool {
        let due = self.due_round.load(Ordering::Acquire);
        seen < due && due <= round
    }
}

/// Counts a runner out, also when its task is aborted.
struct Ended<T, K>(Arc<Pipeline<T, K>>)
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static;

impl<T, K> Drop for Ended<T, K>
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.0.lock().runners -= 1;
        self.0.settled.notify_waiters();
        self.0.room.notify_waiters();
    }
}

/// The event for which the handler is being called. It counts as dropped if the call does not end, also when its task
/// is aborted.
struct InHand<'a, T, K>
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    pipeline: &'a Pipeline<T, K>,
    queued: Option<Queued<T, K>>,
}

impl<T, K> InHand<'_, T, K>
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn take(mut self) -> Queued<T, K> {
        self.queued.take().expect("it is taken once")
    }
}

impl<T, K> Drop for InHand<'_, T, K>
where
    T: Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if let Some(queued) = self.queued.take() {
            self.pipeline.settle_as_dropped(queued);
        }
    }
}

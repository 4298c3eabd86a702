//! Sleeping and waking. Everybody who waits here registers, looks again, and only then sleeps (E1, E3).

use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

use super::DeltaFifo;
use crate::error::{PopTimeoutError, TryPopError};
use crate::seeded::{self, Bug};
use crate::sync::{Event, Listener, Ordering, SPINS, asleep, spin, wait_deadline};

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// One ticket, one more consumer awake.
    #[inline]
    pub(super) fn wake_consumer(&self) {
        if seeded::on(Bug::NotifyNotAdditional) {
            self.consumers.notify(1);
            return;
        }
        // Additional: a sleeper that was notified for an earlier ticket and has not woken up yet does not count for
        // this one.
        self.consumers.notify_additional(1);
    }

    /// Runs `attempt` until it yields something other than "empty"; sleeps between the attempts.
    pub(super) fn block_on_consumers<R>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> Result<R, TryPopError>,
    ) -> Result<R, PopTimeoutError> {
        let mut attempt = || match attempt() {
            Ok(value) => Some(Ok(value)),
            Err(TryPopError::Closed) => Some(Err(PopTimeoutError::Closed)),
            Err(TryPopError::Empty) => None,
        };
        loop {
            if let Some(result) = attempt() {
                return result;
            }
            // A ticket that comes within a microsecond costs no system call.
            for _ in 0..SPINS {
                spin();
                if !self.order.has_no_ticket()
                    && let Some(result) = attempt()
                {
                    return result;
                }
            }
            let listener = self.consumers.listen();
            if !seeded::on(Bug::PopNoRecheckAfterListen)
                && let Some(result) = attempt()
            {
                return result;
            }
            match deadline {
                None => listener.wait(),
                Some(deadline) => {
                    if !wait_deadline(listener, deadline) {
                        // The last look: a ticket may have come together with the end of the time.
                        return attempt().unwrap_or(Err(PopTimeoutError::Timeout));
                    }
                }
            }
        }
    }

    /// One round of waiting for room: tries again after it registered, and sleeps if that fails too.
    pub(super) fn wait_for_room<A, R>(&self, item: A, retry: impl FnOnce(A) -> Result<R, A>) -> Result<R, A> {
        let listener = self.room.event().listen();
        if seeded::on(Bug::RoomNoRecheckAfterListen) {
            listener.wait();
            return Err(item);
        }
        let result = retry(item);
        if result.is_err() {
            listener.wait();
        }
        result
    }

    // ----- sync -----

    /// Whether everything of the initial list has been processed (rule A10).
    ///
    /// True once every key that the first [`replace`](Self::replace) queued, deletions it found included, was claimed
    /// *and released*; or at once, if the first mutating call was an add, update or delete. (client-go's DeltaFIFO
    /// reports it before the last one is processed.) Once true it stays true. Who reads true sees everything that the
    /// initial claims' owners did before their releases.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.replace(vec![1.into()]).unwrap();
    /// let claim = fifo.try_pop().unwrap();
    /// assert!(!fifo.has_synced());
    /// drop(claim);
    /// assert!(fifo.has_synced());
    /// ```
    pub fn has_synced(&self) -> bool {
        self.synced.has_synced()
    }

    /// Waits until [`has_synced`](Self::has_synced). `false` if the queue was closed before.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, nothing is lost.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.replace(vec![]).unwrap();
    /// assert!(fifo.wait_synced().await);
    /// # });
    /// ```
    #[must_use = "false: the queue has not synced"]
    pub async fn wait_synced(&self) -> bool {
        loop {
            if let Some(synced) = self.synced_or_closed() {
                return synced;
            }
            let listener = self.synced.event().listen();
            if let Some(synced) = self.synced_or_closed() {
                return synced;
            }
            asleep(listener).await;
        }
    }

    /// [`wait_synced`](Self::wait_synced) that blocks the thread.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.close();
    /// assert!(!fifo.wait_synced_blocking(), "closed before it synced");
    /// ```
    #[must_use = "false: the queue has not synced"]
    pub fn wait_synced_blocking(&self) -> bool {
        block_until(self.synced.event(), None, || self.synced_or_closed()).unwrap_or(false)
    }

    /// [`wait_synced`](Self::wait_synced) that blocks the thread, but not longer than `timeout`.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # use std::time::Duration;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// assert!(!fifo.wait_synced_timeout(Duration::from_millis(1)));
    /// ```
    #[must_use = "false: the queue has not synced"]
    pub fn wait_synced_timeout(&self, timeout: Duration) -> bool {
        block_until(self.synced.event(), deadline(timeout), || self.synced_or_closed()).unwrap_or(false)
    }

    fn synced_or_closed(&self) -> Option<bool> {
        match (self.has_synced(), self.is_closed()) {
            (true, _) => Some(true),
            // The claim that completes the sync may have been released between the two reads.
            (false, true) => Some(self.has_synced()),
            (false, false) => None,
        }
    }

    // ----- close -----

    /// Closes the queue: consumers get what is queued and then [`Closed`](crate::Closed). Wakes everybody who waits.
    ///
    /// Producers are not refused: what they bring after the close is delivered too (rule A11.2), and limits no longer
    /// make them wait. Idempotent.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, TryPopError};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// fifo.close();
    /// assert!(fifo.try_pop().is_ok());
    /// assert_eq!(fifo.try_pop().unwrap_err(), TryPopError::Closed);
    /// ```
    pub fn close(&self) {
        if seeded::on(Bug::CloseNotifyFirst) {
            self.consumers.notify(usize::MAX);
            self.state.closed.store(true, Ordering::Release);
            return;
        }
        // E2 release: publishes what was pushed before, to the consumer that loads it and then looks once more.
        // Relaxed would let that look miss a ticket, and strand it.
        let order = if seeded::on(Bug::CloseRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.state.closed.store(true, order);
        if seeded::on(Bug::CloseNotifyOne) {
            self.consumers.notify_additional(1);
            return;
        }
        self.consumers.notify(usize::MAX);
        if !seeded::on(Bug::CloseNoRoomNotify) {
            self.room.event().notify(usize::MAX);
        }
        if !seeded::on(Bug::CloseNoSyncedNotify) {
            self.synced.event().notify(usize::MAX);
        }
    }

    /// Whether [`close`](Self::close) was called. There may still be something to deliver.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// assert!(!fifo.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        // E2 acquire: whoever reads true sees the tickets pushed before the close.
        let order = if seeded::on(Bug::CloseRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        self.state.closed.load(order)
    }

    /// Closes the queue and waits until nothing is queued and nothing is claimed.
    ///
    /// Somebody has to go on popping until it gets [`Closed`](crate::Closed) *after the last release*: an owner that
    /// releases its claims before it pops again does so by itself; a task that pops for others does not (see
    /// [`Claim::into_owned`](crate::Claim::into_owned)). A claim that is never released makes it wait for ever. Unlike client-go's work queue it does not return while keys are queued and none is being processed
    /// (rule W6). What is reported after the close is waited for if it is seen; who needs an exact end
    /// stops the producers first.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, the queue stays closed.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.close_and_drain().await;
    /// assert!(fifo.is_closed());
    /// # });
    /// ```
    pub async fn close_and_drain(&self) {
        self.close();
        let drain = Drain::start(self);
        loop {
            if drain.is_done() {
                return;
            }
            let listener = self.drained.listen();
            if drain.is_done() {
                return;
            }
            asleep(listener).await;
        }
    }

    /// [`close_and_drain`](Self::close_and_drain) that blocks the thread.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// std::thread::scope(|s| {
    ///     s.spawn(|| while fifo.pop_blocking().is_ok() {});
    ///     fifo.close_and_drain_blocking();
    ///     assert!(fifo.is_empty());
    /// });
    /// ```
    pub fn close_and_drain_blocking(&self) {
        self.close();
        let drain = Drain::start(self);
        block_until(&self.drained, None, || drain.is_done().then_some(()));
    }

    /// [`close_and_drain`](Self::close_and_drain) that blocks the thread, but not longer than `timeout`. `false` if
    /// something is still queued or claimed then; the queue is closed in any case.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # use std::time::Duration;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert!(!fifo.close_and_drain_timeout(Duration::from_millis(1)), "nobody consumes");
    /// ```
    #[must_use = "false: something is still queued or claimed"]
    pub fn close_and_drain_timeout(&self, timeout: Duration) -> bool {
        self.close();
        let drain = Drain::start(self);
        block_until(&self.drained, deadline(timeout), || drain.is_done().then_some(())).is_some()
    }
}

/// The end of a timeout; `None` for one beyond what the clock can say, which is no timeout.
pub(super) fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Runs `attempt` until it yields something or the time is over.
fn block_until<R>(event: &Event, deadline: Option<Instant>, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
    loop {
        if let Some(result) = attempt() {
            return Some(result);
        }
        let listener = event.listen();
        if !seeded::on(Bug::WaitNoRecheckAfterListen)
            && let Some(result) = attempt()
        {
            return Some(result);
        }
        match deadline {
            None => listener.wait(),
            Some(deadline) => {
                if !wait_deadline(listener, deadline) {
                    return attempt();
                }
            }
        }
    }
}

/// A drain that waits: while it lives, releases that leave a key idle tell it.
struct Drain<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    queue: &'q DeltaFifo<T, K, S>,
}

impl<'q, T, K, S> Drain<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn start(queue: &'q DeltaFifo<T, K, S>) -> Self {
        if !seeded::on(Bug::DrainSetsNoFlag) {
            // E6, Relaxed: the walk below visits every slot under its guard, after this.
            queue.state.draining.fetch_add(1, Ordering::Relaxed);
        }
        // A release that takes its guard after this walk sees the flag and tells us. One that took it before has left
        // its key idle, and `is_done` sees that. Without the walk `is_done` could see a ticket, visit no guard, and
        // sleep, while the release of that ticket's claim still reads the old flag.
        if !seeded::on(Bug::DrainStartsWithoutWalk) {
            let _ = queue.slots.scan(|_, _| {});
        }
        Drain { queue }
    }

    /// Whether no key is queued or claimed. The scan decides; the order queue is asked first because that is cheap.
    fn is_done(&self) -> bool {
        if !self.queue.order.has_no_ticket() {
            return false;
        }
        if seeded::on(Bug::DrainIgnoresClaims) {
            return true;
        }
        let mut busy = false;
        let _ = self.queue.slots.scan(|_, slot| busy |= slot.is_busy());
        !busy
    }
}

impl<T, K, S> Drop for Drain<'_, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn drop(&mut self) {
        if !seeded::on(Bug::DrainSetsNoFlag) {
            // Relaxed: at worst a release notifies an event that nobody listens to.
            self.queue.state.draining.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

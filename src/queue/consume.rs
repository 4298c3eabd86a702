//! The consumer side: pop a ticket, claim its key. Sleeping is in `wait.rs`.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::claim::Claim;
use super::order::Ticket;
use super::slot::Taken;
use super::wait::deadline;
use super::{DefaultHashBuilder, DeltaFifo};
use crate::error::{Closed, PopTimeoutError, TryPopError};
use crate::seeded::{self, Bug};
use crate::sync::{Asleep, asleep, assert_no_guard};

/// Why a ticket yielded no claim.
enum Passed {
    /// It was dead.
    Dead,
    /// The user's compression left nothing to process.
    Nothing,
}

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// Takes the oldest ticket and claims its key, if one is queued.
    ///
    /// Two steps, each one atomic: the ticket decides which key; then the claim takes all deltas the key has at that
    /// moment. Between the two a producer may add one, so across keys the order is that of the tickets, not that of
    /// single deltas.
    ///
    /// Inlined, with what is rare out of the way, so that the claim is made where the caller wants it: to copy one
    /// costs as much as a look into the table.
    #[inline(always)]
    fn take(&self) -> Option<Claim<'_, T, K, S>> {
        let mut ticket = self.order.pop()?;
        let Some(taken) = self.take_deltas(&mut ticket) else {
            // Before the next claim is made: should the drop of this key panic, that claim would be lost.
            drop(ticket);
            return self.take_next(Passed::Dead);
        };
        let claim = Claim::new(self, ticket.key, ticket.hint, taken.deltas, taken.initial);
        if !self.room.is_unlimited() || self.options.custom.is_some() {
            return match self.complete(claim) {
                Some(claim) => Some(claim),
                None => self.take_next(Passed::Nothing),
            };
        }
        Some(claim)
    }

    /// [`take`](Self::take) after a ticket that yielded no claim.
    #[cold]
    #[inline(never)]
    fn take_next(&self, mut passed: Passed) -> Option<Claim<'_, T, K, S>> {
        loop {
            let mut ticket = match passed {
                Passed::Dead => self.order.pop_again()?,
                Passed::Nothing => self.order.pop()?,
            };
            let Some(taken) = self.take_deltas(&mut ticket) else {
                passed = Passed::Dead;
                continue;
            };
            let claim = Claim::new(self, ticket.key, ticket.hint, taken.deltas, taken.initial);
            if let Some(claim) = self.complete(claim) {
                return Some(claim);
            }
            passed = Passed::Nothing;
        }
    }

    /// Claims the key of a ticket; `None` if the ticket is dead.
    #[inline(always)]
    fn take_deltas(&self, ticket: &mut Ticket<K>) -> Option<Taken<T, K>> {
        let stale = seeded::on(Bug::ClaimInTwoSteps).then(|| {
            let mut shard = self.slots.lock(ticket.hint.hash());
            shard.find(ticket.hint.hash(), &ticket.key).and_then(|row| shard.get_mut(row).pending().cloned())
        });
        let mut shard = self.slots.lock(ticket.hint.hash());
        let row = shard.recall(ticket.hint, &ticket.key);
        let taken = row.and_then(|row| {
            ticket.hint = shard.hint(ticket.hint.hash(), row);
            shard.get_mut(row).transition_to_claimed(ticket.number)
        });
        let Some(mut taken) = taken else {
            drop(shard);
            self.bury();
            return None;
        };
        if !self.room.is_unlimited() {
            self.room.give_back(true, taken.deltas.len());
        }
        drop(shard);
        if let Some(Some(stale)) = stale {
            taken.deltas = stale;
        }
        if taken.initial && seeded::on(Bug::SyncedAtClaim) {
            self.synced.count_off();
        }
        taken.initial |= !self.synced.is_populated();
        Some(taken)
    }

    /// What a claim needs in a queue with limits or with the user's own compression; `None` if nothing is left to
    /// process. The claim exists before any user code runs, so that a panic puts the deltas back.
    #[inline(never)]
    fn complete<'q>(&'q self, mut claim: Claim<'q, T, K, S>) -> Option<Claim<'q, T, K, S>> {
        if !self.room.is_unlimited() {
            self.room.notify();
        }
        if let Some(compress) = &self.options.custom {
            assert_no_guard();
            // The function gets a copy: if it panics, the claim still has the deltas.
            let deltas = compress(claim.key(), claim.deltas.clone());
            if deltas.is_empty() {
                claim.done();
                return None;
            }
            claim.deltas = deltas;
        }
        Some(claim)
    }

    /// A ticket was popped that is dead.
    #[cold]
    fn bury(&self) {
        self.order.count_buried();
        // A drain that saw this ticket waits, and perhaps nothing else is left that would wake it.
        if !seeded::on(Bug::BuryNoNotify) {
            self.drained.notify(usize::MAX);
        }
    }

    /// Claims the oldest queued key, if there is one.
    ///
    /// Linearization point: see [`pop`](Self::pop).
    ///
    /// # Errors
    ///
    /// Nothing is queued, or nothing is queued and the queue is closed.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, TryPopError};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// assert_eq!(fifo.try_pop().unwrap_err(), TryPopError::Empty);
    /// fifo.add(1).unwrap();
    /// assert_eq!(*fifo.try_pop().unwrap().key(), 1);
    /// ```
    #[inline]
    pub fn try_pop(&self) -> Result<Claim<'_, T, K, S>, TryPopError> {
        match self.take() {
            Some(claim) => Ok(claim),
            None => self.take_if_closed(),
        }
    }

    /// The second half of a pop that found nothing.
    #[inline(never)]
    fn take_if_closed(&self) -> Result<Claim<'_, T, K, S>, TryPopError> {
        if !self.is_closed() {
            return Err(TryPopError::Empty);
        }
        if seeded::on(Bug::PopClosedNoRecheck) {
            return Err(TryPopError::Closed);
        }
        // E2: `closed` was read before this look, so what was pushed before the close is found by it.
        self.take().ok_or(TryPopError::Closed)
    }

    /// Claims the oldest queued key; waits until there is one.
    ///
    /// Linearization point: two, in this order. The claim of the oldest ticket, then the taking of all deltas the key
    /// has at that moment. Another producer may add one between the two.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, nothing is lost: a wake-up that it had received goes to another consumer.
    ///
    /// # Errors
    ///
    /// The queue is closed and nothing is queued. A key that is claimed by another consumer and dirty at that moment
    /// is queued by that consumer's release and found by its next pop.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert_eq!(*fifo.pop().await.unwrap().key(), 1);
    /// # });
    /// ```
    pub async fn pop(&self) -> Result<Claim<'_, T, K, S>, Closed> {
        loop {
            match self.try_pop() {
                Ok(claim) => return Ok(claim),
                Err(TryPopError::Closed) => return Err(Closed(())),
                Err(TryPopError::Empty) => {}
            }
            let listener = self.consumers.listen();
            if !seeded::on(Bug::PopNoRecheckAfterListen) {
                match self.try_pop() {
                    Ok(claim) => return Ok(claim),
                    Err(TryPopError::Closed) => return Err(Closed(())),
                    Err(TryPopError::Empty) => {}
                }
            }
            asleep(listener).await;
        }
    }

    /// [`pop`](Self::pop) that blocks the thread.
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// std::thread::scope(|s| {
    ///     let consumer = s.spawn(|| *fifo.pop_blocking().unwrap().key());
    ///     fifo.add(1).unwrap();
    ///     assert_eq!(consumer.join().unwrap(), 1);
    /// });
    /// ```
    pub fn pop_blocking(&self) -> Result<Claim<'_, T, K, S>, Closed> {
        // The usual case here, where the claim is made in place; what waits is out of the way.
        match self.take() {
            Some(claim) => Ok(claim),
            None => self.pop_sleeping(),
        }
    }

    #[cold]
    #[inline(never)]
    fn pop_sleeping(&self) -> Result<Claim<'_, T, K, S>, Closed> {
        match self.block_on_consumers(None, || self.try_pop()) {
            Ok(claim) => Ok(claim),
            Err(_) => Err(Closed(())),
        }
    }

    /// [`pop`](Self::pop) that blocks the thread, but not longer than `timeout`. A zero timeout looks once.
    ///
    /// # Errors
    ///
    /// Nothing was queued within the time, or nothing is queued and the queue is closed.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, PopTimeoutError};
    /// # use std::time::Duration;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// assert_eq!(fifo.pop_timeout(Duration::from_millis(1)).unwrap_err(), PopTimeoutError::Timeout);
    /// ```
    pub fn pop_timeout(&self, timeout: Duration) -> Result<Claim<'_, T, K, S>, PopTimeoutError> {
        self.block_on_consumers(deadline(timeout), || self.try_pop())
    }

    /// Claims up to `max` keys, oldest first, without waiting. Each claim is released by itself.
    ///
    /// # Errors
    ///
    /// As [`try_pop`](Self::try_pop), where there is not even one.
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// fifo.add(2).unwrap();
    /// assert_eq!(fifo.try_pop_batch(10).unwrap().len(), 2);
    /// ```
    pub fn try_pop_batch(&self, max: usize) -> Result<Vec<Claim<'_, T, K, S>>, TryPopError> {
        assert!(max > 0, "a batch of at most 0 keys was asked for; ask for at least one");
        let first = self.try_pop()?;
        Ok(self.fill_batch(first, max))
    }

    fn fill_batch<'q>(&'q self, first: Claim<'q, T, K, S>, max: usize) -> Vec<Claim<'q, T, K, S>> {
        let mut batch = Vec::with_capacity(max.min(self.order.len() + 1));
        batch.push(first);
        while batch.len() < max
            && let Some(claim) = self.take()
        {
            batch.push(claim);
        }
        batch
    }

    /// Waits until a key is queued, then claims up to `max` keys. Cancel safe like [`pop`](Self::pop).
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert_eq!(fifo.pop_batch(10).await.unwrap().len(), 1);
    /// # });
    /// ```
    pub async fn pop_batch(&self, max: usize) -> Result<Vec<Claim<'_, T, K, S>>, Closed> {
        assert!(max > 0, "a batch of at most 0 keys was asked for; ask for at least one");
        let first = self.pop().await?;
        Ok(self.fill_batch(first, max))
    }

    /// [`pop_batch`](Self::pop_batch) that blocks the thread.
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert_eq!(fifo.pop_batch_blocking(10).unwrap().len(), 1);
    /// ```
    pub fn pop_batch_blocking(&self, max: usize) -> Result<Vec<Claim<'_, T, K, S>>, Closed> {
        assert!(max > 0, "a batch of at most 0 keys was asked for; ask for at least one");
        let first = self.pop_blocking()?;
        Ok(self.fill_batch(first, max))
    }

    /// [`pop_batch`](Self::pop_batch) that blocks the thread, but not longer than `timeout`.
    ///
    /// # Errors
    ///
    /// As [`pop_timeout`](Self::pop_timeout).
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # use std::time::Duration;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// assert!(fifo.pop_batch_timeout(10, Duration::ZERO).is_err());
    /// ```
    pub fn pop_batch_timeout(&self, max: usize, timeout: Duration) -> Result<Vec<Claim<'_, T, K, S>>, PopTimeoutError> {
        assert!(max > 0, "a batch of at most 0 keys was asked for; ask for at least one");
        let first = self.pop_timeout(timeout)?;
        Ok(self.fill_batch(first, max))
    }

    /// The claims as a stream that ends when the queue is closed and nothing is queued.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// use futures_lite::StreamExt;
    ///
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// fifo.close();
    /// let keys: Vec<u32> = fifo.claims().map(|claim| *claim.key()).collect().await;
    /// assert_eq!(keys, [1]);
    /// # });
    /// ```
    pub fn claims(&self) -> Claims<'_, T, K, S> {
        Claims { queue: self, listener: None }
    }
}

/// The stream of a queue's claims, from [`DeltaFifo::claims`]. Dropped while it waits, it passes a wake-up on.
///
/// ```
/// # use delta_fifo::DeltaFifo;
/// # use futures_lite::StreamExt;
/// # futures_lite::future::block_on(async {
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
/// fifo.close();
/// assert!(fifo.claims().next().await.is_none());
/// # });
/// ```
#[must_use = "a stream does nothing until it is polled"]
pub struct Claims<'q, T, K = Arc<str>, S = DefaultHashBuilder>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    queue: &'q DeltaFifo<T, K, S>,
    listener: Option<Asleep>,
}

impl<'q, T, K, S> futures_core::Stream for Claims<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    type Item = Claim<'q, T, K, S>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Claim<'q, T, K, S>>> {
        loop {
            match self.queue.try_pop() {
                Ok(claim) => {
                    self.listener = None;
                    return Poll::Ready(Some(claim));
                }
                Err(TryPopError::Closed) => return Poll::Ready(None),
                Err(TryPopError::Empty) => {}
            }
            match &mut self.listener {
                // Registered, looked again, and only now asleep (E1).
                Some(listener) => match Pin::new(listener).poll(cx) {
                    Poll::Ready(()) => self.listener = None,
                    Poll::Pending => return Poll::Pending,
                },
                None => self.listener = Some(asleep(self.queue.consumers.listen())),
            }
        }
    }
}

impl<T, K, S> fmt::Debug for Claims<'_, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").field("queue", &self.queue.name()).finish_non_exhaustive()
    }
}

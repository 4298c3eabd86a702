//! The consumers' side: the pops.

use std::hash::{BuildHasher, Hash};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::{Closed, PopTimeoutError, TryPopError};
use crate::queue::Processed;

use super::{Claim, Locked, MutexFifo, Popped, Wait};

/// `None`: nothing was queued in time.
type Taken<T, K> = Option<Result<Popped<T, K>, Closed>>;

impl<T, K: Clone + Eq + Hash, S: BuildHasher + Clone> MutexFifo<T, K, S> {
    /// Waits for a key and processes it under the queue's mutex, as client-go's `Pop` does. `process` must not call
    /// the queue. If it panics the deltas count as processed (A9.5).
    ///
    /// # Errors
    ///
    /// The queue is closed and nothing is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.pop_held(|popped| popped.key), Ok(7));
    /// ```
    pub fn pop_held<R>(&self, process: impl FnOnce(&mut Popped<T, K>) -> R) -> Result<R, Closed> {
        let (mut inner, popped) = self.take_within(Wait::Forever);
        let mut popped = popped.expect("it waits for ever")?;
        let result = panic::catch_unwind(AssertUnwindSafe(|| process(&mut popped)));
        self.step(&mut inner, |state| state.release(&self.options, &popped.key, popped.counted));
        drop(inner);
        Ok(result.unwrap_or_else(|panic| panic::resume_unwind(panic)))
    }

    /// Waits for a key and claims it; the handler then runs outside the mutex.
    ///
    /// # Errors
    ///
    /// The queue is closed and nothing is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.pop_blocking().unwrap().key(), &7);
    /// ```
    pub fn pop_blocking(&self) -> Result<Claim<'_, T, K, S>, Closed> {
        let popped = self.take_within(Wait::Forever).1.expect("it waits for ever")?;
        Ok(Claim::new(self, popped))
    }

    /// [`pop_blocking`](Self::pop_blocking) for no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// Nothing was queued within the time, or the queue is closed and nothing is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// # use std::time::Duration;
    /// assert!(fifo.pop_timeout(Duration::from_millis(1)).is_err());
    /// ```
    pub fn pop_timeout(&self, timeout: Duration) -> Result<Claim<'_, T, K, S>, PopTimeoutError> {
        match self.take_within(Wait::for_at_most(timeout)).1 {
            Some(Ok(popped)) => Ok(Claim::new(self, popped)),
            Some(Err(_)) => Err(PopTimeoutError::Closed),
            None => Err(PopTimeoutError::Timeout),
        }
    }

    /// Claims a key if one is queued.
    ///
    /// # Errors
    ///
    /// Nothing is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().key(), &7);
    /// ```
    pub fn try_pop(&self) -> Result<Claim<'_, T, K, S>, TryPopError> {
        match self.take_within(Wait::No).1 {
            Some(Ok(popped)) => Ok(Claim::new(self, popped)),
            Some(Err(_)) => Err(TryPopError::Closed),
            None => Err(TryPopError::Empty),
        }
    }

    /// Claims this key, if it is queued, wherever it stands. For tests that compare with a queue whose order of some
    /// keys is not fixed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(1).unwrap();
    /// fifo.add(2).unwrap();
    /// assert!(fifo.try_pop_key(&2).is_some());
    /// assert!(fifo.try_pop_key(&3).is_none());
    /// ```
    pub fn try_pop_key(&self, key: &K) -> Option<Claim<'_, T, K, S>> {
        let popped = self.step(&mut self.lock(), |state| state.take_key(&self.options, key));
        popped.map(|popped| Claim::new(self, popped))
    }

    /// Waits for a key and claims up to `max` of the queued ones.
    ///
    /// # Errors
    ///
    /// The queue is closed and nothing is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.replace(vec![1.into(), 2.into(), 3.into()]).unwrap();
    /// assert_eq!(fifo.pop_batch_blocking(2).unwrap().len(), 2);
    /// ```
    pub fn pop_batch_blocking(&self, max: usize) -> Result<Vec<Claim<'_, T, K, S>>, Closed> {
        assert_ne!(max, 0, "a batch has at least one key");
        let (inner, first) = self.take_within(Wait::Forever);
        let first = first.expect("it waits for ever")?;
        Ok(self.batch(inner, first, max))
    }

    /// [`pop_batch_blocking`](Self::pop_batch_blocking) for no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// Nothing was queued within the time, or the queue is closed and nothing is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// # use std::time::Duration;
    /// assert!(fifo.pop_batch_timeout(2, Duration::from_millis(1)).is_err());
    /// ```
    pub fn pop_batch_timeout(&self, max: usize, timeout: Duration) -> Result<Vec<Claim<'_, T, K, S>>, PopTimeoutError> {
        assert_ne!(max, 0, "a batch has at least one key");
        match self.take_within(Wait::for_at_most(timeout)) {
            (inner, Some(Ok(first))) => Ok(self.batch(inner, first, max)),
            (_, Some(Err(_))) => Err(PopTimeoutError::Closed),
            (_, None) => Err(PopTimeoutError::Timeout),
        }
    }

    /// Claims up to `max` of the queued keys.
    ///
    /// # Errors
    ///
    /// Nothing is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.replace(vec![1.into(), 2.into(), 3.into()]).unwrap();
    /// assert_eq!(fifo.try_pop_batch(5).unwrap().len(), 3);
    /// ```
    pub fn try_pop_batch(&self, max: usize) -> Result<Vec<Claim<'_, T, K, S>>, TryPopError> {
        assert_ne!(max, 0, "a batch has at least one key");
        let (inner, first) = self.take_within(Wait::No);
        match first {
            Some(Ok(first)) => Ok(self.batch(inner, first, max)),
            Some(Err(_)) => Err(TryPopError::Closed),
            None => Err(TryPopError::Empty),
        }
    }

    /// Runs `workers` threads that claim and process keys until the queue is closed and drained. A handler that panics
    /// gets its key again.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// fifo.close();
    /// assert_eq!(fifo.process(2, |claim| assert_eq!(claim.key(), &7)).claims, 1);
    /// ```
    pub fn process(&self, workers: usize, handler: impl Fn(&mut Claim<'_, T, K, S>) + Sync) -> Processed
    where
        T: Send + Sync,
        K: Send + Sync,
        S: Send + Sync,
    {
        assert_ne!(workers, 0, "without a worker nothing would be processed");
        let (claims, panics) = (AtomicU64::new(0), AtomicU64::new(0));
        let work = || {
            while let Ok(claim) = self.pop_blocking() {
                claims.fetch_add(1, Ordering::Relaxed);
                // The claim moves in, so that it is the unwind that drops it.
                if panic::catch_unwind(AssertUnwindSafe(|| {
                    let mut claim = claim;
                    handler(&mut claim)
                }))
                .is_err()
                {
                    panics.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
        Processed { claims: claims.into_inner(), panics: panics.into_inner() }
    }

    fn batch<'a>(&'a self, mut inner: Locked<'a, T, K, S>, first: Popped<T, K>, max: usize) -> Vec<Claim<'a, T, K, S>> {
        let mut claims = vec![Claim::new(self, first)];
        while claims.len() < max {
            let Some(popped) = self.step(&mut inner, |state| state.take(&self.options)) else { break };
            claims.push(Claim::new(self, popped));
        }
        claims
    }

    /// A9.1
    fn take_within(&self, wait: Wait) -> (Locked<'_, T, K, S>, Taken<T, K>) {
        self.wait_until(self.lock(), wait, |inner| {
            let popped = self.step(inner, |state| state.take(&self.options));
            popped.map(Ok).or_else(|| inner.state.closed.then_some(Err(Closed(()))))
        })
    }
}

//! The worker loop for those who want threads and a closure, and nothing else.

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Claim, DeltaFifo};

/// What a [`DeltaFifo::process`] did.
///
/// ```
/// # use delta_fifo::DeltaFifo;
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
/// fifo.add(1).unwrap();
/// fifo.close();
/// let processed = fifo.process(1, |_| {});
/// assert_eq!((processed.claims, processed.panics), (1, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processed {
    /// How often the handler was called, retries included.
    pub claims: u64,
    /// How many of these calls, or of a custom compression, panicked. Their deltas were requeued.
    pub panics: u64,
}

impl<T, K, S> DeltaFifo<T, K, S>
where
    T: Send + Sync,
    K: Clone + Eq + Hash + Send + Sync,
    S: BuildHasher + Clone + Send + Sync,
{
    /// Runs `handler` on `workers` threads until the queue is closed and nothing is queued.
    ///
    /// Each key is handled by one worker at a time. The claim is released when the handler returns. If it panics, the
    /// panic is contained (the panic hook still reports it), the claim is requeued and the worker goes on with other
    /// keys; the same for a custom compression. A handler that always panics for a key is therefore called for ever. One that wants to give up looks at
    /// its own count and returns.
    ///
    /// # Blocking
    ///
    /// Blocks the calling thread until the workers have ended.
    ///
    /// # Panics
    ///
    /// If `workers` is 0.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// for n in 1..=10 {
    ///     fifo.add(n).unwrap();
    /// }
    /// fifo.close();
    /// let sum = AtomicU32::new(0);
    /// fifo.process(2, |claim| {
    ///     sum.fetch_add(*claim.key(), Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 55);
    /// ```
    pub fn process<F>(&self, workers: usize, handler: F) -> Processed
    where
        F: Fn(&mut Claim<'_, T, K, S>) + Sync,
    {
        assert!(workers > 0, "process needs at least one worker");
        // Relaxed: counters, read after the threads were joined.
        let (claims, panics) = (AtomicU64::new(0), AtomicU64::new(0));
        let handler = &handler;
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    // The user's code is the handler, and in the pop a custom compression. The unwind drops the claim
                    // in here, and that requeues it.
                    let one = || match self.pop_blocking() {
                        Ok(mut claim) => {
                            claims.fetch_add(1, Ordering::Relaxed);
                            handler(&mut claim);
                            true
                        }
                        Err(_) => false,
                    };
                    loop {
                        match catch_unwind(AssertUnwindSafe(one)) {
                            Ok(true) => {}
                            Ok(false) => break,
                            Err(_) => {
                                panics.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        Processed { claims: claims.into_inner(), panics: panics.into_inner() }
    }
}

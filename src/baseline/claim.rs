//! What a pop hands out, and the guard around it.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::thread;

use crate::delta::Deltas;

use super::MutexFifo;

/// A key and all the deltas it had, as a pop takes them out.
///
/// ```
/// use delta_fifo::baseline::MutexFifo;
///
/// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
/// fifo.add(7).unwrap();
/// fifo.pop_held(|popped| assert_eq!((popped.key, popped.deltas.len()), (7, 1))).unwrap();
/// ```
pub struct Popped<T, K> {
    /// The key.
    pub key: K,
    /// Its deltas, oldest first.
    pub deltas: Deltas<T, K>,
    /// It is part of the first Replace, or was popped before any producer had called (A9.2).
    pub is_initial: bool,
    /// It is one of the keys that `has_synced` waits for.
    pub(super) counted: bool,
}

/// Exclusive hold of one key. Dropping it means that the deltas are processed; dropped by a panic, it requeues them.
///
/// ```
/// use delta_fifo::baseline::MutexFifo;
///
/// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
/// fifo.add(7).unwrap();
/// let claim = fifo.try_pop().unwrap();
/// fifo.update(7).unwrap();
/// assert!(fifo.try_pop().is_err(), "the key is claimed");
/// claim.done();
/// assert_eq!(fifo.try_pop().unwrap().key(), &7);
/// ```
#[must_use = "a claim that is dropped counts as processed"]
pub struct Claim<'q, T, K: Clone + Eq + Hash, S: BuildHasher + Clone> {
    fifo: &'q MutexFifo<T, K, S>,
    popped: Popped<T, K>,
    requeue: bool,
    /// Made in a destructor that runs because of a panic; that panic is not the handler's.
    made_while_panicking: bool,
}

impl<'q, T, K: Clone + Eq + Hash, S: BuildHasher + Clone> Claim<'q, T, K, S> {
    pub(super) fn new(fifo: &'q MutexFifo<T, K, S>, popped: Popped<T, K>) -> Self {
        Claim { fifo, popped, requeue: false, made_while_panicking: thread::panicking() }
    }

    /// The claimed key.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().key(), &7);
    /// ```
    pub fn key(&self) -> &K {
        &self.popped.key
    }

    /// The deltas, oldest first; empty after [`take_deltas`](Self::take_deltas).
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().deltas().len(), 1);
    /// ```
    pub fn deltas(&self) -> &Deltas<T, K> {
        &self.popped.deltas
    }

    /// Takes the deltas out. They can no longer be requeued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// let mut claim = fifo.try_pop().unwrap();
    /// assert_eq!(claim.take_deltas().len(), 1);
    /// assert!(claim.deltas().is_empty());
    /// ```
    pub fn take_deltas(&mut self) -> Deltas<T, K> {
        mem::take(&mut self.popped.deltas)
    }

    /// Whether the claim carries a delta of the first Replace, or was made before any producer had called.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.replace(vec![7.into()]).unwrap();
    /// assert!(fifo.try_pop().unwrap().is_initial());
    /// ```
    pub fn is_initial(&self) -> bool {
        self.popped.is_initial
    }

    /// Puts the deltas back in front of the newer ones of the key, and the key at the tail.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// fifo.try_pop().unwrap().requeue();
    /// assert_eq!(fifo.len(), 1);
    /// ```
    pub fn requeue(mut self) {
        self.requeue = true;
    }

    /// Releases the claim, as dropping it does.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// fifo.try_pop().unwrap().done();
    /// assert!(fifo.is_empty());
    /// ```
    pub fn done(self) {}

    /// Whether a drop of this claim puts the deltas back.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// fifo.try_pop().unwrap().requeue_on_drop(true);
    /// assert_eq!(fifo.len(), 1);
    /// ```
    pub fn requeue_on_drop(&mut self, requeue: bool) {
        self.requeue = requeue;
    }
}

impl<T, K: Clone + Eq + Hash, S: BuildHasher + Clone> Drop for Claim<'_, T, K, S> {
    fn drop(&mut self) {
        if self.requeue || (thread::panicking() && !self.made_while_panicking) {
            self.fifo.requeue(&self.popped.key, mem::take(&mut self.popped.deltas), self.popped.counted);
        } else {
            self.fifo.release(&self.popped.key, self.popped.counted);
        }
    }
}

impl<T: fmt::Debug, K: fmt::Debug> fmt::Debug for Popped<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Popped")
            .field("key", &self.key)
            .field("deltas", &self.deltas)
            .field("is_initial", &self.is_initial)
            .finish_non_exhaustive()
    }
}

impl<T: fmt::Debug, K: Clone + Eq + Hash + fmt::Debug, S: BuildHasher + Clone> fmt::Debug for Claim<'_, T, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.popped).finish()
    }
}

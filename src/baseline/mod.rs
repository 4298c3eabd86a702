//! client-go's DeltaFIFO as it is: one mutex, a map, a deque of keys, a condition variable.
//!
//! ```text
//!             ┌───────────────── one mutex ─────────────────┐
//!  add ──────►│ items: key -> deltas      queue: key key key│──────► pop: the oldest key with all its deltas
//!  replace ──►│ append to the key's       a key stands here │        pop_held: the same, and the handler runs
//!  resync ───►│ deltas, compress          once              │        inside the mutex, as in client-go
//!             └─────────────────────────────────────────────┘
//! ```
//!
//! It is written to be obviously right, not to be fast, and it has two uses: the tests compare
//! [`DeltaFifo`](crate::DeltaFifo) with it, operation by operation, and the benchmarks race against it. `state.rs` is
//! the algorithm and knows no thread; this file adds the mutex and the waiting, `produce.rs` and `consume.rs` the
//! calls, `claim.rs` the guard of a claimed key, `builder.rs` the options.
//!
//! Everything runs under the mutex, users' functions too, so those must not call the queue.
//!
//! # Where it leaves client-go
//!
//! It follows `DeltaFifo`, not client-go, in these points:
//!
//! - A [`replace`](MutexFifo::replace) is refused as a whole if one object has no key or the transformer fails.
//! - It has synced when the last key of the first Replace is *processed*, not when it is popped.
//! - A claimed key counts as existing, or as gone if its claim deletes it.
//! - [`requeue`](Claim::requeue) puts deltas back in front of the key's newer ones, and the key at the tail.
//! - A custom compression function runs when the key is claimed, on all its deltas.
//! - [`embedded_store`](Builder::embedded_store): the queue itself remembers the object that each key was released
//!   with.
//! - After a close, limits no longer hold a producer up.
//!
//! There are no async forms here, and no background lane.

mod builder;
mod claim;
mod consume;
mod produce;
mod state;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::delta::Deltas;
use crate::key::{BoxError, KeyFn, Keyed};
use crate::queue::{DefaultHashBuilder, Limits};

pub use builder::Builder;
pub use claim::{Claim, Popped};
use state::{Options, State};

/// The queue of the tests and the benchmarks. See the [module](self) for what it is.
///
/// ```
/// use delta_fifo::{Delta, baseline::MutexFifo};
///
/// let fifo: MutexFifo<(u32, &str), u32> =
///     MutexFifo::builder_with_key_fn(|o: &(u32, &str)| Ok::<_, String>(o.0)).build();
/// fifo.add((1, "new")).unwrap();
/// fifo.update((1, "newer")).unwrap();
/// let claim = fifo.try_pop().unwrap();
/// assert_eq!(claim.key(), &1);
/// assert_eq!(claim.deltas().newest(), Some(&Delta::Updated((1, "newer").into())));
/// ```
pub struct MutexFifo<T, K: Clone + Eq + Hash = Arc<str>, S: BuildHasher + Clone = DefaultHashBuilder> {
    options: Options<T, K>,
    state: Mutex<Inner<T, K, S>>,
    /// Everybody who waits, waits here, as in client-go.
    changed: Condvar,
}

struct Inner<T, K, S> {
    state: State<T, K, S>,
    /// How many threads wait for `changed`: std's condition variable makes a system call even for nobody.
    waiting: usize,
}

/// How long a call may wait.
#[derive(Clone, Copy)]
enum Wait {
    No,
    Until(Instant),
    Forever,
}

impl Wait {
    fn for_at_most(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Wait::Forever, Wait::Until)
    }
}

type Locked<'a, T, K, S> = MutexGuard<'a, Inner<T, K, S>>;

impl<T, K: Clone + Eq + Hash> MutexFifo<T, K> {
    /// A queue of objects that know their key.
    ///
    /// ```
    /// use delta_fifo::{Keyed, baseline::MutexFifo};
    ///
    /// struct Order(u64);
    ///
    /// impl Keyed<u64> for Order {
    ///     fn key(&self) -> u64 {
    ///         self.0
    ///     }
    /// }
    ///
    /// let fifo = MutexFifo::<Order, u64>::builder().build();
    /// fifo.add(Order(7)).unwrap();
    /// assert_eq!(fifo.list_keys(), [7]);
    /// ```
    pub fn builder() -> Builder<T, K>
    where
        T: Keyed<K>,
    {
        Builder::new(KeyFn::Keyed(T::key))
    }

    /// A queue whose keys come from a function that may fail.
    ///
    /// ```
    /// # use delta_fifo::baseline::MutexFifo;
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| n.checked_sub(1).ok_or("zero")).build();
    /// assert_eq!(*fifo.add(0).unwrap_err().into_object(), 0);
    /// ```
    pub fn builder_with_key_fn<E: Into<BoxError>>(
        key: impl Fn(&T) -> Result<K, E> + Send + Sync + 'static,
    ) -> Builder<T, K> {
        Builder::new(KeyFn::Custom(Box::new(move |object| key(object).map_err(Into::into))))
    }
}

/// The mutex and the waiting.
impl<T, K: Clone + Eq + Hash, S: BuildHasher + Clone> MutexFifo<T, K, S> {
    fn new(options: Options<T, K>, hasher: S) -> Self {
        let inner = Inner { state: State::new(hasher), waiting: 0 };
        MutexFifo { options, state: Mutex::new(inner), changed: Condvar::new() }
    }

    /// A user's function that panicked under the mutex has left the state whole, so a poisoned mutex is as good.
    fn lock(&self) -> Locked<'_, T, K, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` has an answer; `None` if there is none in time.
    fn wait_until<'a, R>(
        &'a self,
        mut inner: Locked<'a, T, K, S>,
        wait: Wait,
        mut ready: impl FnMut(&mut Inner<T, K, S>) -> Option<R>,
    ) -> (Locked<'a, T, K, S>, Option<R>) {
        loop {
            if let Some(answer) = ready(&mut inner) {
                return (inner, Some(answer));
            }
            let left = match wait {
                Wait::Forever => Duration::MAX,
                Wait::Until(deadline) => deadline.saturating_duration_since(Instant::now()),
                Wait::No => Duration::ZERO,
            };
            if left.is_zero() {
                return (inner, None);
            }
            inner.waiting += 1;
            inner = match wait {
                Wait::Forever => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                _ => self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            inner.waiting -= 1;
        }
    }

    /// Everybody, on every append, as client-go does.
    fn wake(&self, inner: &Inner<T, K, S>) {
        if inner.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// One step of the algorithm that is no append: it wakes only if it brought what somebody may wait for.
    fn step<R>(&self, inner: &mut Inner<T, K, S>, change: impl FnOnce(&mut State<T, K, S>) -> R) -> R {
        let before = inner.state.signals();
        let result = change(&mut inner.state);
        if inner.state.signals() != before || self.options.limits != Limits::default() {
            self.wake(inner);
        }
        result
    }

    fn release(&self, key: &K, counted: bool) {
        self.step(&mut self.lock(), |state| state.release(&self.options, key, counted));
    }

    fn requeue(&self, key: &K, deltas: Deltas<T, K>, counted: bool) {
        self.step(&mut self.lock(), |state| state.requeue(&self.options, key, deltas, counted));
    }
}

/// State.
impl<T, K: Clone + Eq + Hash, S: BuildHasher + Clone> MutexFifo<T, K, S> {
    /// Whether the first Replace is processed, or there is none because another call came first (A10.3).
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.replace(vec![7.into()]).unwrap();
    /// let claim = fifo.try_pop().unwrap();
    /// assert!(!fifo.has_synced());
    /// claim.done();
    /// assert!(fifo.has_synced());
    /// ```
    pub fn has_synced(&self) -> bool {
        self.lock().state.synced
    }

    /// Waits until [`has_synced`](Self::has_synced), or until the queue is closed; whether it has synced.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.replace(vec![]).unwrap();
    /// assert!(fifo.wait_synced_blocking());
    /// ```
    pub fn wait_synced_blocking(&self) -> bool {
        self.wait_synced(Wait::Forever)
    }

    /// [`wait_synced_blocking`](Self::wait_synced_blocking) for no longer than `timeout`.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// # use std::time::Duration;
    /// assert!(!fifo.wait_synced_timeout(Duration::from_millis(1)));
    /// ```
    pub fn wait_synced_timeout(&self, timeout: Duration) -> bool {
        self.wait_synced(Wait::for_at_most(timeout))
    }

    fn wait_synced(&self, wait: Wait) -> bool {
        let over = |inner: &mut Inner<T, K, S>| (inner.state.synced || inner.state.closed).then_some(());
        self.wait_until(self.lock(), wait, over).0.state.synced
    }

    /// Ends the waiting of all consumers once nothing is queued. Producers are still accepted (A11.2).
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.close();
    /// assert!(fifo.pop_blocking().is_err());
    /// ```
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.state.closed = true;
        self.wake(&inner);
    }

    /// Whether [`close`](Self::close) was called.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// assert!(!fifo.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.lock().state.closed
    }

    /// Closes, and waits until nothing is queued and nothing is claimed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.close_and_drain_blocking();
    /// ```
    pub fn close_and_drain_blocking(&self) {
        self.close_and_drain(Wait::Forever);
    }

    /// [`close_and_drain_blocking`](Self::close_and_drain_blocking) for no longer than `timeout`; whether all is done.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// # use std::time::Duration;
    /// fifo.add(7).unwrap();
    /// assert!(!fifo.close_and_drain_timeout(Duration::from_millis(1)));
    /// ```
    pub fn close_and_drain_timeout(&self, timeout: Duration) -> bool {
        self.close_and_drain(Wait::for_at_most(timeout))
    }

    fn close_and_drain(&self, wait: Wait) -> bool {
        self.close();
        self.wait_until(self.lock(), wait, |inner| inner.state.is_drained().then_some(())).1.is_some()
    }

    /// The number of queued keys.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// assert_eq!(fifo.len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.lock().state.queue().len()
    }

    /// Whether no key is queued.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// assert!(fifo.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys with pending deltas: the queued ones in their order, then the claimed ones that have become dirty.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(2).unwrap();
    /// fifo.add(1).unwrap();
    /// assert_eq!(fifo.list_keys(), [2, 1]);
    /// ```
    pub fn list_keys(&self) -> Vec<K> {
        self.lock().state.pending_keys()
    }

    /// A copy of the pending deltas of a key; what a claim has taken is not among them.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.get(&7).unwrap().len(), 1);
    /// ```
    pub fn get(&self, key: &K) -> Option<Deltas<T, K>> {
        self.lock().state.pending(key).cloned()
    }

    /// Embedded store: the object the key was released with last.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// assert!(fifo.known_object(&7).is_none());
    /// ```
    pub fn known_object(&self, key: &K) -> Option<Arc<T>> {
        self.lock().state.released().get(key).cloned()
    }

    /// Embedded store: the keys of its objects, in any order.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// assert!(fifo.known_keys().is_empty());
    /// ```
    pub fn known_keys(&self) -> Vec<K> {
        self.lock().state.released().keys().cloned().collect()
    }

    /// The queue's name.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// assert_eq!(fifo.name(), "DeltaFIFO");
    /// ```
    pub fn name(&self) -> &str {
        &self.options.name
    }
}

impl<T, K: Clone + Eq + Hash, S: BuildHasher + Clone> fmt::Debug for MutexFifo<T, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexFifo").field("name", &self.options.name).field("len", &self.len()).finish_non_exhaustive()
    }
}

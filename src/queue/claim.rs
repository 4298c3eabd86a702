//! The claim: the guard that a consumer holds while it processes a key. Its end is the release, the only place where
//! a key goes from claimed to idle or back into the queue.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::order::Ticket;
use super::slot::{Garbage, Release, Requeue};
use super::{DefaultHashBuilder, DeltaFifo};
use crate::delta::Deltas;
use crate::seeded::{self, Bug};
use crate::sync::{Hint, Ordering, assert_no_guard};

/// Vectors with more room than this are not kept for reuse: one burst must not hold memory for ever.
const MAX_BUFFER: usize = 64;

/// Exclusive hold of one key and of the deltas it had when it was popped.
///
/// While it lives, no other consumer gets this key; deltas that arrive meanwhile come with the next claim. Dropping it
/// releases the key: its deltas count as processed. Dropped by a panic, or handed back by [`requeue`](Self::requeue),
/// its deltas return in front of the key's newer ones and the key goes to the tail of the queue. A handler that
/// panics therefore costs a retry and never an event.
///
/// A claim may be sent to another thread. For one that outlives the borrow of the queue see
/// [`into_owned`](Self::into_owned).
///
/// ```
/// # use delta_fifo::DeltaFifo;
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
/// fifo.add(1).unwrap();
/// let claim = fifo.try_pop().unwrap();
/// fifo.update(1).unwrap();
/// assert!(fifo.try_pop().is_err(), "the key is claimed");
/// drop(claim);
/// assert!(fifo.try_pop().is_ok());
/// ```
#[must_use = "dropping a claim counts its deltas as processed"]
pub struct Claim<'q, T, K = Arc<str>, S = DefaultHashBuilder>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    queue: Owner<'q, T, K, S>,
    /// There until the release.
    key: Option<K>,
    hint: Hint,
    pub(super) deltas: Deltas<T, K>,
    initial: bool,
    requeue_on_drop: bool,
    /// The claim was made while the thread unwound already: then an unwind says nothing about its handler.
    made_while_panicking: bool,
}

enum Owner<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    Borrowed(&'q DeltaFifo<T, K, S>),
    Shared(Arc<DeltaFifo<T, K, S>>),
}

impl<T, K, S> Owner<'_, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn get(&self) -> &DeltaFifo<T, K, S> {
        match self {
            Owner::Borrowed(queue) => queue,
            Owner::Shared(queue) => queue,
        }
    }
}

impl<'q, T, K, S> Claim<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    #[inline]
    pub(super) fn new(queue: &'q DeltaFifo<T, K, S>, key: K, hint: Hint, deltas: Deltas<T, K>, initial: bool) -> Self {
        Claim {
            queue: Owner::Borrowed(queue),
            key: Some(key),
            hint,
            deltas,
            initial,
            requeue_on_drop: false,
            made_while_panicking: std::thread::panicking(),
        }
    }

    /// The claimed key.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert_eq!(*fifo.try_pop().unwrap().key(), 1);
    /// ```
    pub fn key(&self) -> &K {
        self.key.as_ref().expect("a claim has its key until it is released")
    }

    /// What happened to the object since it was last claimed, oldest first. Never empty, unless
    /// [taken](Self::take_deltas).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// for delta in fifo.try_pop().unwrap().deltas() {
    ///     println!("{delta:?}");
    /// }
    /// ```
    pub fn deltas(&self) -> &Deltas<T, K> {
        &self.deltas
    }

    /// Takes the deltas out. They are the caller's from then on: a panic or a requeue no longer puts them back.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// let mut claim = fifo.try_pop().unwrap();
    /// let deltas = claim.take_deltas();
    /// assert_eq!(deltas.len(), 1);
    /// assert!(claim.deltas().is_empty());
    /// ```
    #[must_use = "the deltas are the caller's now; dropped, they are lost"]
    pub fn take_deltas(&mut self) -> Deltas<T, K> {
        std::mem::take(&mut self.deltas)
    }

    /// Whether the claim belongs to the initial list: it carries a delta of the first
    /// [`replace`](DeltaFifo::replace), or the queue was not populated yet when it was claimed (rule A9.2).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.replace(vec![1.into()]).unwrap();
    /// fifo.add(2).unwrap();
    /// assert!(fifo.try_pop().unwrap().is_initial());
    /// assert!(!fifo.try_pop().unwrap().is_initial());
    /// ```
    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// Releases the key: its deltas are processed. The same as a drop, said aloud.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// fifo.try_pop().unwrap().done();
    /// assert!(fifo.is_empty());
    /// ```
    pub fn done(mut self) {
        self.requeue_on_drop = false;
    }

    /// Hands the deltas back: they return in front of the key's newer ones, and the key goes to the tail of the queue.
    /// Nothing is lost and nothing of the key is overtaken. How often and how soon to try again is the caller's policy.
    ///
    /// If the deltas were [taken](Self::take_deltas), there is nothing to put back, and the key is released.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Delta};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(n / 10)).build();
    /// fifo.add(11).unwrap();
    /// let claim = fifo.try_pop().unwrap();
    /// fifo.update(12).unwrap();
    /// claim.requeue();
    /// let claim = fifo.try_pop().unwrap();
    /// assert_eq!(claim.deltas().as_slice(), [Delta::Added(11.into()), Delta::Updated(12.into())]);
    /// ```
    pub fn requeue(mut self) {
        self.requeue_on_drop = true;
    }

    /// What a drop does: `true` requeues, `false` (the default) releases. For a handler whose future may be dropped
    /// half-way: set it first, and call [`done`](Self::done) at the end.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// let mut claim = fifo.try_pop().unwrap();
    /// claim.requeue_on_drop(true);
    /// drop(claim); // the future was cancelled
    /// assert_eq!(fifo.len(), 1);
    /// ```
    pub fn requeue_on_drop(&mut self, requeue: bool) {
        self.requeue_on_drop = requeue;
    }

    /// A claim that keeps its queue alive, for a task that outlives this borrow.
    ///
    /// **At shutdown:** a key that became dirty while it was claimed is queued by its release. Where claims are released
    /// by other tasks than the one that pops, that one may have got [`Closed`](crate::Closed) by then. So await
    /// the tasks, and then pop until [`Closed`](crate::Closed) once more.
    ///
    /// # Panics
    ///
    /// If `queue` is not the queue the claim was popped from. The claim is requeued then.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # use std::sync::Arc;
    /// let fifo = Arc::new(DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build());
    /// fifo.add(1).unwrap();
    /// let claim = fifo.try_pop().unwrap().into_owned(&fifo);
    /// std::thread::spawn(move || claim.done()).join().unwrap();
    /// ```
    pub fn into_owned(mut self, queue: &Arc<DeltaFifo<T, K, S>>) -> Claim<'static, T, K, S> {
        assert!(
            std::ptr::eq(self.queue.get(), Arc::as_ptr(queue)),
            "into_owned needs the queue that the claim was popped from"
        );
        Claim {
            queue: Owner::Shared(queue.clone()),
            key: self.key.take(),
            hint: self.hint,
            deltas: std::mem::take(&mut self.deltas),
            initial: self.initial,
            requeue_on_drop: self.requeue_on_drop,
            made_while_panicking: self.made_while_panicking,
        }
    }
}

impl<T, K, S> Drop for Claim<'_, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    #[inline]
    fn drop(&mut self) {
        // None: the claim was turned into an owned one.
        let Some(key) = self.key.take() else { return };
        let queue = self.queue.get();
        let deltas = std::mem::take(&mut self.deltas);
        let unwinding = !self.made_while_panicking && std::thread::panicking();
        if self.requeue_on_drop || unwinding {
            queue.requeue(key, self.hint, deltas);
            return;
        }
        queue.release(key, self.hint);
        if let Some(buffer) = deltas.recycle().filter(|buffer| buffer.capacity() <= MAX_BUFFER) {
            drop(queue.buffers.put(buffer));
        }
    }
}

/// Key, types of the deltas, and the flag: `T` need not be `Debug`.
impl<T, K, S> fmt::Debug for Claim<'_, T, K, S>
where
    K: Clone + Eq + Hash + fmt::Debug,
    S: BuildHasher + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.deltas.iter().map(|delta| delta.delta_type()).collect();
        f.debug_struct("Claim")
            .field("key", &self.key)
            .field("deltas", &types)
            .field("is_initial", &self.initial)
            .finish_non_exhaustive()
    }
}

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// The end of a claim whose deltas were processed.
    #[inline]
    fn release(&self, key: K, hint: Hint) {
        if seeded::on(Bug::ReleaseInTwoSteps) {
            let hash = hint.hash();
            let mut shard = self.slots.lock(hash);
            let clean = shard.find(hash, &key).is_some_and(|row| shard.get_mut(row).pending().is_none());
            drop(shard);
            if clean {
                let mut shard = self.slots.lock(hash);
                let removed = shard.find(hash, &key).map(|row| shard.remove(hash, row));
                drop((shard, removed));
                return;
            }
        }
        let mut garbage = Garbage::new();
        let hash = hint.hash();
        let mut shard = self.slots.lock(hash);
        let retention = self.retention();
        let row = shard.recall(hint, &key).expect("I2: a claimed key has a slot");
        let (verdict, initial) = shard.get_mut(row).transition_to_released(retention, &mut garbage);
        // E6, Relaxed: a drain sets its flag before it walks over this slot under its guard. If the walk came first,
        // this read sees the flag; if it comes later, it sees what this release leaves.
        let draining = verdict != Release::Requeue && self.state.draining.load(Ordering::Relaxed) > 0;
        let mut removed = None;
        let mut unneeded = None;
        match verdict {
            Release::Requeue if seeded::on(Bug::ReleaseNoRequeue) => {}
            // Whether this push comes before or after the guard is all one: the call that queues the key has not
            // returned yet.
            Release::Requeue => self.order.push(Ticket { key, hint: shard.hint(hash, row), number: 0 }),
            Release::Remove => {
                removed = Some(shard.remove(hash, row));
                unneeded = Some(key);
            }
            Release::Keep => unneeded = Some(key),
        }
        drop(shard);
        assert_no_guard();
        if initial && !seeded::on(Bug::SyncedAtClaim) {
            self.synced.count_off();
        }
        if verdict == Release::Requeue && !seeded::on(Bug::ReleaseNoNotify) && !seeded::on(Bug::ReleaseNoRequeue) {
            self.wake_consumer();
        }
        if draining && !seeded::on(Bug::DrainNoNotify) {
            self.drained.notify(usize::MAX);
        }
        drop((removed, unneeded, garbage));
    }

    /// The end of a claim whose deltas were not processed.
    fn requeue(&self, key: K, hint: Hint, deltas: Deltas<T, K>) {
        let mut garbage = Garbage::new();
        let mut shard = self.slots.lock(hint.hash());
        let row = shard.recall(hint, &key).expect("I2: a claimed key has a slot");
        let hint = shard.hint(hint.hash(), row);
        let slot = shard.get_mut(row);
        let before = slot.pending().map_or(0, |pending| pending.len());
        let merged = match slot.transition_to_requeued(deltas, self.options.rule, &mut garbage) {
            Requeue::PushTicket { merged_initial } => merged_initial,
            Requeue::Nothing => {
                drop(shard);
                drop(garbage);
                return self.release(key, hint);
            }
        };
        let after = slot.pending().map_or(0, |pending| pending.len());
        self.room.force(before == 0, after.saturating_sub(before));
        let freed = before.saturating_sub(after);
        self.room.give_back(false, freed);
        self.order.push(Ticket { key, hint, number: 0 });
        drop(shard);
        if freed > 0 {
            self.room.notify();
        }
        if (merged && !seeded::on(Bug::SyncedMergedTwice))
            || (seeded::on(Bug::SyncedRequeueCounts) && !self.has_synced())
        {
            self.synced.count_off();
        }
        if !seeded::on(Bug::RequeueNoNotify) {
            self.wake_consumer();
        }
        drop(garbage);
    }
}

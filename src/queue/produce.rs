//! The producer side: add, update, delete, tombstones; non-blocking, blocking and async.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::DeltaFifo;
use super::order::Ticket;
use super::slot::{Append, AppendMode, Garbage, Slot};
use crate::delta::{Deleted, DeletedFinalStateUnknown, Delta};
use crate::error::{PushError, TombstoneFullError, TransformError, TryPushError};
use crate::index::KeyHash;
use crate::key::KeyError;
use crate::seeded::{self, Bug};
use crate::sync::{Hint, Shard, asleep, assert_no_guard};

/// What a producer reports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Update,
    Delete,
}

/// Who appends, and under which conditions.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A producer's call: stamped, and refused where a limit is reached.
    Producer,
    /// Replace or Resync: not stamped, not refused, in the background lane if there is one.
    Feed {
        /// Part of the first Replace.
        initial: bool,
    },
}

/// What remains to be done after the guard.
#[must_use]
pub(super) struct Appended<T, K> {
    garbage: Garbage<T, K>,
    wake: bool,
    /// How many deltas the append made fewer: room for producers that wait.
    freed: usize,
    /// A ticket that a seeded bug has not pushed yet.
    late_ticket: Option<Ticket<K>>,
    /// The key, where it was not needed: its drop is the user's code too.
    unneeded_key: Option<K>,
}

/// A delta with its key.
type Keyed<T, K> = (K, Delta<T, K>);

/// A delta that found no room, with its key.
pub(super) type Refused<T, K> = Keyed<T, K>;

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// Reports a new object: queues an [`Added`](Delta::Added) delta.
    ///
    /// The type is literal; nothing is looked up. Idle key: it is queued at the tail. Queued: it keeps its place.
    /// Claimed: it is queued again when its claim is released. Works after [`close`](Self::close) too (rule A11.2).
    /// Marks the queue as populated, even if it fails (rule A5.1).
    ///
    /// Linearization point: the append under the key's shard guard.
    ///
    /// # Blocking
    ///
    /// Without limits it never waits for a consumer. With limits it waits for room; a consumer that calls it can
    /// then wait for itself.
    ///
    /// # Errors
    ///
    /// The key function or the transformer failed. Nothing was queued, the object comes back.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Delta};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().deltas().as_slice(), [Delta::Added(7.into())]);
    /// ```
    pub fn add(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.push_blocking(Verb::Add, object.into())
    }

    /// Reports a changed object: queues an [`Updated`](Delta::Updated) delta. Else like [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Delta};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.update(7).unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().deltas().as_slice(), [Delta::Updated(7.into())]);
    /// ```
    pub fn update(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.push_blocking(Verb::Update, object.into())
    }

    /// Reports a deleted object, with its last state: queues a [`Deleted`](Delta::Deleted) delta.
    ///
    /// Ignored where nothing exists under its key: not queued, not claimed (or claimed with a deletion as the newest
    /// delta), not known (rule A6). A known object that cannot be looked up counts as existing.
    ///
    /// Linearization point: the append; for a delete that is ignored the look at the key's slot.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); a key error leaves the queue unpopulated (rule A6.1).
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Delta, Deleted};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.delete(7).unwrap(); // nothing to delete
    /// assert!(fifo.is_empty());
    /// fifo.add(7).unwrap();
    /// fifo.delete(7).unwrap();
    /// let claim = fifo.try_pop().unwrap();
    /// assert_eq!(claim.deltas().newest(), Some(&Delta::Deleted(Deleted::Observed(7.into()))));
    /// ```
    pub fn delete(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.push_blocking(Verb::Delete, object.into())
    }

    /// Reports that the object of a key is gone though nobody saw it go: queues a tombstone. Ignored like
    /// [`delete`](Self::delete) where nothing exists. The object is the last state that is known, if any; it is not
    /// transformed (rule A6.7).
    ///
    /// # Blocking
    ///
    /// As [`add`](Self::add).
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Delta};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(7).unwrap();
    /// fifo.delete_final_state_unknown(7, None);
    /// assert!(fifo.try_pop().unwrap().deltas().newest().unwrap().is_deleted());
    /// ```
    pub fn delete_final_state_unknown(&self, key: K, object: Option<Arc<T>>) {
        self.populate();
        let delta = tombstone(key.clone(), object);
        self.insist(key, delta, |key, delta| self.delete_delta(key, delta));
    }

    /// [`delete_final_state_unknown`](Self::delete_final_state_unknown) without waiting.
    ///
    /// # Errors
    ///
    /// A limit is reached: key and object come back.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Limits};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
    ///     .limits(Limits { keys: None, deltas: Some(1) })
    ///     .build();
    /// fifo.add(7).unwrap();
    /// assert!(fifo.try_delete_final_state_unknown(7, None).is_err());
    /// ```
    pub fn try_delete_final_state_unknown(
        &self,
        key: K,
        object: Option<Arc<T>>,
    ) -> Result<(), TombstoneFullError<T, K>> {
        self.populate();
        let delta = tombstone(key.clone(), object);
        self.delete_delta(key, delta).map_err(|(key, delta)| {
            let tombstone = DeletedFinalStateUnknown { key, object: delta.object().cloned() };
            TombstoneFullError { tombstone }
        })
    }

    /// [`delete_final_state_unknown`](Self::delete_final_state_unknown), waiting for room without blocking a thread.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, nothing is queued.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(7).unwrap();
    /// fifo.delete_final_state_unknown_async(7, None).await;
    /// # });
    /// ```
    pub async fn delete_final_state_unknown_async(&self, key: K, object: Option<Arc<T>>) {
        self.populate();
        let delta = tombstone(key.clone(), object);
        self.insist_async(key, delta, |key, delta| self.delete_delta(key, delta)).await;
    }

    /// [`add`](Self::add) without waiting.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), and [`TryPushError::Full`] where a limit is reached.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.try_add(7).unwrap();
    /// ```
    pub fn try_add(&self, object: impl Into<Arc<T>>) -> Result<(), TryPushError<T>> {
        self.try_push(Verb::Add, object.into())
    }

    /// [`update`](Self::update) without waiting.
    ///
    /// # Errors
    ///
    /// As [`try_add`](Self::try_add).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.try_update(7).unwrap();
    /// ```
    pub fn try_update(&self, object: impl Into<Arc<T>>) -> Result<(), TryPushError<T>> {
        self.try_push(Verb::Update, object.into())
    }

    /// [`delete`](Self::delete) without waiting.
    ///
    /// # Errors
    ///
    /// As [`try_add`](Self::try_add).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.try_delete(7).unwrap();
    /// ```
    pub fn try_delete(&self, object: impl Into<Arc<T>>) -> Result<(), TryPushError<T>> {
        self.try_push(Verb::Delete, object.into())
    }

    /// [`add`](Self::add), waiting for room without blocking a thread.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, the object is not queued; another waiting producer gets the room.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add_async(7).await.unwrap();
    /// # });
    /// ```
    pub async fn add_async(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.push_async(Verb::Add, object.into()).await
    }

    /// [`update`](Self::update), waiting for room without blocking a thread. Cancel safe like
    /// [`add_async`](Self::add_async).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.update_async(7).await.unwrap();
    /// # });
    /// ```
    pub async fn update_async(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.push_async(Verb::Update, object.into()).await
    }

    /// [`delete`](Self::delete), waiting for room without blocking a thread. Cancel safe like
    /// [`add_async`](Self::add_async).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.delete_async(7).await.unwrap();
    /// # });
    /// ```
    pub async fn delete_async(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.push_async(Verb::Delete, object.into()).await
    }

    // ----- how a call goes -----

    #[inline]
    fn push_blocking(&self, verb: Verb, object: Arc<T>) -> Result<(), PushError<T>> {
        let (key, delta) = match self.prepare(verb, object)? {
            Some(prepared) => prepared,
            None => return Ok(()),
        };
        self.insist(key, delta, |key, delta| self.push_delta(verb, key, delta));
        Ok(())
    }

    fn try_push(&self, verb: Verb, object: Arc<T>) -> Result<(), TryPushError<T>> {
        // Where the object changes on its way in, the one that comes back is the one that was passed in.
        let original = self.options.transform.as_ref().map(|_| object.clone());
        let Some((key, delta)) = self.prepare(verb, object)? else { return Ok(()) };
        self.push_delta(verb, key, delta).map_err(|(_, delta)| {
            let queued = delta.object().cloned();
            TryPushError::Full(original.or(queued).expect("a producer's delta has an object"))
        })
    }

    async fn push_async(&self, verb: Verb, object: Arc<T>) -> Result<(), PushError<T>> {
        let Some((key, delta)) = self.prepare(verb, object)? else { return Ok(()) };
        self.insist_async(key, delta, |key, delta| self.push_delta(verb, key, delta)).await;
        Ok(())
    }

    /// Pushes, again and again, until there is room.
    #[inline]
    fn insist(&self, key: K, delta: Delta<T, K>, push: impl Fn(K, Delta<T, K>) -> Result<(), Refused<T, K>>) {
        let mut refused = push(key, delta);
        while let Err(again) = refused {
            refused = self.wait_for_room(again, |(key, delta)| push(key, delta));
        }
    }

    /// [`insist`](Self::insist) without blocking a thread.
    async fn insist_async(
        &self,
        key: K,
        delta: Delta<T, K>,
        push: impl Fn(K, Delta<T, K>) -> Result<(), Refused<T, K>>,
    ) {
        let mut refused = push(key, delta);
        while let Err((key, delta)) = refused {
            let listener = self.room.event().listen();
            refused = push(key, delta);
            if refused.is_err() {
                asleep(listener).await;
            }
        }
    }

    /// Key and delta of a call; `None` for a delete that need not be transformed because it finds nothing.
    #[inline]
    fn prepare(&self, verb: Verb, object: Arc<T>) -> Result<Option<Keyed<T, K>>, PushError<T>> {
        if verb != Verb::Delete {
            self.populate();
        }
        let key = match self.options.key_fn.key_of(&object) {
            Ok(key) => key,
            Err(source) => return Err(PushError::Key(KeyError { object, source })),
        };
        if verb == Verb::Delete {
            self.populate();
            if self.options.transform.is_some() && !self.may_exist(&key) {
                return Ok(None);
            }
        }
        let object = self.transform(object).map_err(PushError::Transform)?;
        let delta = match verb {
            Verb::Add => Delta::Added(object),
            Verb::Update => Delta::Updated(object),
            Verb::Delete => Delta::Deleted(Deleted::Observed(object)),
        };
        Ok(Some((key, delta)))
    }

    #[inline]
    pub(super) fn transform(&self, object: Arc<T>) -> Result<Arc<T>, TransformError<T>> {
        match &self.options.transform {
            None => Ok(object),
            Some(transform) => {
                assert_no_guard();
                transform(object.clone()).map_err(|source| TransformError { object, source })
            }
        }
    }

    /// The first mutating call populates the queue; one that is not a Replace also completes the initial batch.
    #[inline]
    fn populate(&self) {
        if self.synced.populate() {
            self.synced.release_guard();
        }
    }

    #[inline]
    fn push_delta(&self, verb: Verb, key: K, delta: Delta<T, K>) -> Result<(), Refused<T, K>> {
        match verb {
            Verb::Add | Verb::Update => self.append(key, delta),
            Verb::Delete => self.delete_delta(key, delta),
        }
    }

    #[inline]
    fn append(&self, key: K, delta: Delta<T, K>) -> Result<(), Refused<T, K>> {
        let hash = self.slots.hash(&key);
        if seeded::on(Bug::TicketBeforeSlot) {
            self.order.push(Ticket { key: key.clone(), hint: Hint::none(hash), number: 0 });
        }
        let mut shard = self.slots.lock(hash);
        if seeded::on(Bug::AppendCheckThenAct) && shard.find(hash, &key).is_none() {
            drop(shard);
            shard = self.slots.lock(hash);
            let _ = shard.find(hash, &key).map(|row| shard.remove(hash, row));
        }
        let appended = self.append_under(&mut shard, hash, key, delta, Source::Producer);
        drop(shard);
        self.finish(appended?);
        Ok(())
    }

    /// The way into a slot by its key, which may be new.
    #[inline(always)]
    pub(super) fn append_under(
        &self,
        shard: &mut Shard<'_, K, Slot<T, K>>,
        hash: KeyHash,
        key: K,
        delta: Delta<T, K>,
        source: Source,
    ) -> Result<Appended<T, K>, Refused<T, K>> {
        if let Some(row) = shard.find(hash, &key) {
            let hint = shard.hint(hash, row);
            return self.append_at(shard, hint, key, delta, source);
        }
        if !self.admit(&Slot::new(), &delta, source) {
            return Err((key, delta));
        }
        let taken = self.room.give_back_on_unwind();
        // The clone comes before any change: it may panic.
        let row = shard.insert(hash, key.clone(), Slot::new());
        std::mem::forget(taken);
        let hint = shard.hint(hash, row);
        Ok(self.append_to(shard.get_mut(row), hint, key, delta, source))
    }

    /// The way into the slot of a row.
    #[inline(always)]
    pub(super) fn append_at(
        &self,
        shard: &mut Shard<'_, K, Slot<T, K>>,
        at: Hint,
        key: K,
        delta: Delta<T, K>,
        source: Source,
    ) -> Result<Appended<T, K>, Refused<T, K>> {
        let slot = shard.get_mut(at.row());
        if !self.admit(slot, &delta, source) {
            return Err((key, delta));
        }
        Ok(self.append_to(slot, at, key, delta, source))
    }

    /// Takes room for a delta, if there is any. After close, nobody waits and nothing is refused.
    #[inline]
    fn admit(&self, slot: &Slot<T, K>, delta: &Delta<T, K>, source: Source) -> bool {
        if self.room.is_unlimited() {
            return true;
        }
        let (new_key, new_delta) = slot.growth(self.options.rule, delta);
        if matches!(source, Source::Producer) && !self.is_closed() {
            return self.room.take(new_key, new_delta);
        }
        self.room.force(new_key, usize::from(new_delta));
        true
    }

    /// Appends, and pushes the ticket while the guard is held.
    #[inline(always)]
    fn append_to(&self, slot: &mut Slot<T, K>, at: Hint, key: K, delta: Delta<T, K>, source: Source) -> Appended<T, K> {
        let (stamp, number, promote) = match source {
            Source::Producer => (self.epoch(), 0, self.order.promotes()),
            Source::Feed { .. } => (0, self.order.background_number(), false),
        };
        let mode = AppendMode { rule: self.options.rule, stamp, number, promote };
        let mut garbage = Garbage::new();
        let buffer = || self.buffers.take().unwrap_or_else(|| Vec::with_capacity(4));
        let (was_busy, before) = (slot.is_busy(), self.pending_of(slot));
        let duty = slot.transition_to_queued(delta, mode, &mut garbage, buffer);
        // A deletion may swallow older deltas (Compression::KeepLatest).
        let freed = before.saturating_sub(self.pending_of(slot));
        self.room.give_back(false, freed);
        if let Source::Feed { initial: true } = source
            && !(was_busy && seeded::on(Bug::SyncedTagLost))
        {
            self.tag_initial(slot);
        }
        self.obey(duty, key, at, number, garbage, freed)
    }

    /// How many deltas are pending, as far as the limits have to know.
    #[inline]
    fn pending_of(&self, slot: &Slot<T, K>) -> usize {
        if self.room.is_unlimited() { 0 } else { slot.pending().map_or(0, |pending| pending.len()) }
    }

    /// Counts a key of the first Replace, under its guard and before its ticket is out.
    pub(super) fn tag_initial(&self, slot: &mut Slot<T, K>) {
        if slot.tag_initial() && !seeded::on(Bug::SyncedCountLate) {
            self.synced.count();
        }
    }

    #[inline]
    fn obey(
        &self,
        duty: Append,
        key: K,
        at: Hint,
        number: u64,
        garbage: Garbage<T, K>,
        freed: usize,
    ) -> Appended<T, K> {
        let number = match duty {
            Append::PushTicket => number,
            Append::Promote => {
                self.order.count_dead();
                0
            }
            Append::AlreadyQueued | Append::OwnerWillRequeue => {
                return Appended { garbage, wake: false, freed, late_ticket: None, unneeded_key: Some(key) };
            }
        };
        if seeded::on(Bug::NotifyBeforeTicket) {
            self.wake_consumer();
        }
        let ticket = Ticket { key, hint: at, number };
        let late_ticket = if seeded::on(Bug::TicketOutsideGuard) || seeded::on(Bug::TicketBeforeSlot) {
            seeded::on(Bug::TicketOutsideGuard).then_some(ticket)
        } else {
            self.order.push(ticket);
            None
        };
        let wake = !seeded::on(Bug::AppendNoNotify) && !seeded::on(Bug::NotifyBeforeTicket);
        Appended { garbage, wake, freed, late_ticket, unneeded_key: None }
    }

    /// After the guard: wakes, and drops what fell out.
    #[inline]
    pub(super) fn finish(&self, appended: Appended<T, K>) {
        assert_no_guard();
        if let Some(ticket) = appended.late_ticket {
            self.order.push(ticket);
        }
        if appended.wake {
            self.wake_consumer();
        }
        if appended.freed > 0 {
            self.room.notify();
        }
        drop((appended.garbage, appended.unneeded_key));
    }
}

/// Appends of several keys under one guard, which are finished after it; also if a key's code panics in between.
pub(super) struct Batch<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    queue: &'q DeltaFifo<T, K, S>,
    appended: Vec<Appended<T, K>>,
}

impl<'q, T, K, S> Batch<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    pub(super) fn new(queue: &'q DeltaFifo<T, K, S>) -> Self {
        Batch { queue, appended: Vec::new() }
    }

    pub(super) fn extend(&mut self, appended: Result<Appended<T, K>, Refused<T, K>>) {
        self.appended.extend(appended.ok());
    }

    /// The guard is gone: wakes consumers and drops what fell out.
    pub(super) fn finish(&mut self) {
        while let Some(appended) = self.appended.pop() {
            self.queue.finish(appended);
        }
    }
}

impl<T, K, S> Drop for Batch<'_, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn drop(&mut self) {
        self.finish();
    }
}

pub(super) fn tombstone<T, K>(key: K, object: Option<Arc<T>>) -> Delta<T, K> {
    Delta::Deleted(Deleted::FinalStateUnknown(Arc::new(DeletedFinalStateUnknown { key, object })))
}

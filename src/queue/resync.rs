//! Resync: every idle known object is queued once more, so that a handler that failed gets another chance.
//!
//! A Sync must never carry a state older than one the consumer has been given (obligation C-3), though the object is
//! read from the user's store under no guard. So Resync first *reserves* the idle key, then reads the object, then
//! commits. While it holds the reservation nobody can claim the key, so the object cannot change; a producer that
//! comes meanwhile takes the key over, and the Resync finds its reservation gone and gives up on the key, as if it had
//! come after the producer. Numbers tell the reservations of concurrent Resyncs apart.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::produce::Source;
use super::slot::Slot;
use super::{DeltaFifo, Known};
use crate::delta::Delta;
use crate::key::KeyError;
use crate::known::KnownObjects;
use crate::seeded::{self, Bug};
use crate::sync::{Ordering, assert_no_guard};

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// Queues a [`Sync`](Delta::Sync) delta for every known object whose key is neither queued nor claimed (rule A8).
    ///
    /// In the order of [`list_keys`](crate::KnownObjects::list_keys); with an embedded store in any order. An object
    /// that is gone or cannot be looked up is skipped. Objects are not transformed. Without known objects it does
    /// nothing. It is not subject to the limits: it queues what is in memory anyway.
    ///
    /// Linearization point: per key, the moment it is reserved. A Sync never carries a state older than an update
    /// that was accepted before it was queued. Producers and consumers go on while it runs.
    ///
    /// # Errors
    ///
    /// The key function refused a known object. The Syncs before it stay queued (rule A8.4).
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Delta};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).embedded_store().build();
    /// fifo.add(1).unwrap();
    /// fifo.resync().unwrap(); // 1 is queued, not known
    /// drop(fifo.try_pop().unwrap());
    /// fifo.resync().unwrap();
    /// fifo.resync().unwrap(); // 1 is queued already
    /// assert_eq!(fifo.try_pop().unwrap().deltas().as_slice(), [Delta::Sync(1.into())]);
    /// ```
    pub fn resync(&self) -> Result<(), KeyError<T>> {
        match &self.options.known {
            Known::Nowhere => Ok(()),
            Known::Embedded => {
                self.resync_embedded();
                Ok(())
            }
            Known::External(known) => self.resync_external(&**known),
        }
    }

    /// The object is in the slot: one look under the guard decides.
    fn resync_embedded(&self) {
        let mut idle = Vec::new();
        self.slots.scan(|key, slot| {
            // A key that is busy now gets no Sync, so there is no need to copy it and look again.
            if slot.known().is_some() && (!slot.is_busy() || seeded::on(Bug::ResyncIgnoresBusy)) {
                idle.push(key.clone());
            }
        });
        for key in idle {
            let hash = self.slots.hash(&key);
            let mut shard = self.slots.lock(hash);
            let object = shard
                .get_mut(&key)
                .filter(|slot| !slot.is_busy() || seeded::on(Bug::ResyncIgnoresBusy))
                .and_then(|slot| slot.known().cloned());
            let Some(object) = object else {
                drop(shard);
                continue;
            };
            let appended =
                self.append_under(&mut shard, hash, key, Delta::Sync(object), Source::Feed { initial: false });
            drop(shard);
            if let Ok(appended) = appended {
                self.finish(appended);
            }
        }
    }

    fn resync_external(&self, known: &dyn KnownObjects<T, K>) -> Result<(), KeyError<T>> {
        // Relaxed: only uniqueness counts.
        let number = self.resyncs.fetch_add(1, Ordering::Relaxed);
        let number = if seeded::on(Bug::ResyncNumbersAlike) { 1 } else { number };
        assert_no_guard();
        for listed in known.list_keys() {
            let read_first = seeded::on(Bug::ResyncReadsFirst).then(|| known.get_by_key(&listed));
            let reservation = Reservation::new(self, listed.clone(), number);
            assert_no_guard();
            // A lookup that fails, or finds nothing, skips the key (rule A8.3).
            let Ok(Some(object)) = read_first.unwrap_or_else(|| known.get_by_key(&listed)) else { continue };
            // The object's own key decides (rule A8.4), also where the key is busy and gets no Sync.
            let key = match self.options.key_fn.key_of(&object) {
                Ok(key) => key,
                Err(source) => return Err(KeyError { object, source }),
            };
            if key == listed {
                reservation.commit(object);
            } else {
                drop(reservation);
                Reservation::new(self, key, number).commit(object);
            }
        }
        Ok(())
    }
}

/// An idle key held by a Resync (or not, if it was busy). Dropped without a commit it lets go, also on unwind.
struct Reservation<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    queue: &'q DeltaFifo<T, K, S>,
    key: Option<K>,
    hash: u64,
    number: u64,
}

impl<'q, T, K, S> Reservation<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn new(queue: &'q DeltaFifo<T, K, S>, key: K, number: u64) -> Self {
        let hash = queue.slots.hash(&key);
        let mut shard = queue.slots.lock(hash);
        let reserved = match shard.get_mut(&key) {
            Some(slot) => slot.transition_to_resyncing(number),
            None => shard.insert(key.clone(), Slot::new()).transition_to_resyncing(number),
        };
        drop(shard);
        let reserved = reserved || seeded::on(Bug::ResyncIgnoresBusy);
        Reservation { queue, key: reserved.then_some(key), hash, number }
    }

    /// Queues the Sync, if no producer has taken the key over.
    fn commit(mut self, object: Arc<T>) {
        let Some(key) = self.key.take() else { return };
        let queue = self.queue;
        let mut shard = queue.slots.lock(self.hash);
        let held = shard.get_mut(&key).is_some_and(|slot| slot.is_resyncing(self.number));
        if !held && !seeded::on(Bug::ResyncCommitsOverridden) && !seeded::on(Bug::ResyncIgnoresBusy) {
            drop(shard);
            return;
        }
        let source = Source::Feed { initial: false };
        let appended = queue.append_under(&mut shard, self.hash, key, Delta::Sync(object), source);
        drop(shard);
        if let Ok(appended) = appended {
            queue.finish(appended);
        }
    }
}

impl<T, K, S> Drop for Reservation<'_, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        if seeded::on(Bug::ResyncKeepsReservation) {
            return;
        }
        let mut shard = self.queue.slots.lock(self.hash);
        let removed = self.queue.let_go(&mut shard, &key, self.number);
        drop(shard);
        drop(removed);
    }
}

//! Resync: every idle known object is queued once more, so that a handler that failed gets another chance.
//!
//! A Sync must never carry a state older than one the consumer has been given (obligation C-3), though the object is
//! read from the user's store under no guard. So Resync first *reserves* the idle key, then reads the object, then
//! commits. While it holds the reservation nobody can claim the key, so the object cannot change; a producer that
//! comes meanwhile takes the key over, and the Resync finds its reservation gone and gives up on the key, as if it had
//! come after the producer. Numbers tell the reservations of concurrent Resyncs apart.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::produce::{Batch, Source};
use super::reservation::Reservation;
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

    /// Known objects are in the slots, so each is read and queued under one guard.
    fn resync_embedded(&self) {
        let mut batch = Batch::new(self);
        // A walk that comes to a key twice finds it busy, or processed meanwhile: as a second Resync would.
        let _ = self.slots.scan_shards(|mut shard, part| {
            let number = part.shard();
            for row in part {
                let Some((key, slot)) = shard.entry(row) else { continue };
                let Some(object) = slot.known() else { continue };
                if slot.is_busy() && !seeded::on(Bug::ResyncIgnoresBusy) {
                    continue;
                }
                let hash = self.slots.hash(key);
                if !self.slots.belongs(hash, number) {
                    continue;
                }
                let (key, delta) = (key.clone(), Delta::Sync(object.clone()));
                let hint = shard.hint(hash, row);
                // Never refused: a Resync is fed.
                batch.extend(self.append_at(&mut shard, hint, key, delta, Source::Feed { initial: false }));
            }
            drop(shard);
            batch.finish();
        });
    }

    fn resync_external(&self, known: &dyn KnownObjects<T, K>) -> Result<(), KeyError<T>> {
        // Relaxed: only uniqueness counts.
        let number = self.resyncs.fetch_add(1, Ordering::Relaxed);
        let number = if seeded::on(Bug::ResyncNumbersAlike) { 1 } else { number };
        assert_no_guard();
        for listed in known.list_keys() {
            let read_first = seeded::on(Bug::ResyncReadsFirst).then(|| known.get_by_key(&listed));
            let reservation = self.reserve(listed.clone(), number);
            assert_no_guard();
            // A lookup that fails, or finds nothing, skips the key (rule A8.3).
            let Ok(Some(object)) = read_first.unwrap_or_else(|| known.get_by_key(&listed)) else { continue };
            // The object's own key decides (rule A8.4), also where the key is busy and gets no Sync.
            let key = match self.options.key_fn.key_of(&object) {
                Ok(key) => key,
                Err(source) => return Err(KeyError { object, source }),
            };
            if key == listed {
                self.commit(reservation, object);
            } else {
                drop(reservation);
                self.commit(self.reserve(key, number), object);
            }
        }
        Ok(())
    }
    /// Holds the key, unless it is busy.
    fn reserve(&self, key: K, number: u64) -> Reservation<'_, T, K, S, K> {
        let hash = self.slots.hash(&key);
        let mut shard = self.slots.lock(hash);
        let row = self.row_of(&mut shard, hash, &key);
        let reserved = shard.get_mut(row).transition_to_resyncing(number);
        drop(shard);
        let reserved = reserved || seeded::on(Bug::ResyncIgnoresBusy);
        Reservation::new(self, reserved.then_some(key), hash, number)
    }

    /// Queues the Sync, if no producer has taken the key over.
    fn commit(&self, reservation: Reservation<'_, T, K, S, K>, object: Arc<T>) {
        let (hash, number) = (reservation.hash, reservation.number);
        let Some(key) = reservation.take() else { return };
        let mut shard = self.slots.lock(hash);
        let held = self.is_held(&mut shard, hash, &key, number);
        if !held && !seeded::on(Bug::ResyncCommitsOverridden) && !seeded::on(Bug::ResyncIgnoresBusy) {
            drop(shard);
            return;
        }
        let appended = self.append_under(&mut shard, hash, key, Delta::Sync(object), Source::Feed { initial: false });
        drop(shard);
        if let Ok(appended) = appended {
            self.finish(appended);
        }
    }
}

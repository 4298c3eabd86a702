//! Delete: does the object exist? The slot is asked first, then known objects, because a key moves
//! slot → known → no slot (C-2).
//!
//! Where the slot says nothing and known objects are the user's, the answer is read under no guard. So the delete
//! *reserves* the idle key first, as a Resync does: while it holds the reservation nobody can claim the key, so its
//! known object stays what it is; whoever appends meanwhile takes the key over, and the delete looks again. It is
//! decided under one guard, and only then, if it found nothing, does it leave its stamp for a running Replace (I6).
//! A stamp left earlier would outlive a delete that is refused after all (no room, the transformer), and hide the
//! list's version of the key.

use std::hash::{BuildHasher, Hash};

use super::produce::{Refused, Source};
use super::reservation::Reservation;
use super::slot::{Existence, Slot};
use super::{DeltaFifo, Known};
use crate::delta::Delta;
use crate::index::KeyHash;
use crate::known::KnownObjects;
use crate::seeded::{self, Bug};
use crate::sync::{Ordering, Shard, assert_no_guard};

/// The guard under which a delete found its object, and the number of its reservation, if it needed one.
struct Found<'q, T, K> {
    shard: Shard<'q, K, Slot<T, K>>,
    reserved: Option<u64>,
}

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// Appends if the object exists; else leaves the stamp.
    pub(super) fn delete_delta(&self, key: K, delta: Delta<T, K>) -> Result<(), Refused<T, K>> {
        let hash = self.slots.hash(&key);
        let Some(Found { mut shard, reserved }) = self.find_for_delete(hash, &key) else { return Ok(()) };
        match self.append_under(&mut shard, hash, key, delta, Source::Producer) {
            Ok(appended) => {
                drop(shard);
                self.finish(appended);
                Ok(())
            }
            Err((key, delta)) => {
                let removed = reserved.and_then(|number| self.let_go(&mut shard, hash, &key, number));
                drop(shard);
                drop(removed);
                Err((key, delta))
            }
        }
    }

    /// Whether a delete would be queued. Asked before the transformer runs; a `false` is final, the delete has
    /// happened.
    pub(super) fn may_exist(&self, key: &K) -> bool {
        let hash = self.slots.hash(key);
        let Some(Found { mut shard, reserved }) = self.find_for_delete(hash, key) else { return false };
        let removed = reserved.and_then(|number| self.let_go(&mut shard, hash, key, number));
        drop(shard);
        drop(removed);
        true
    }

    /// Locks the shard of an object that exists. `None`: it does not, and that is decided and stamped.
    fn find_for_delete<'q>(&'q self, hash: KeyHash, key: &K) -> Option<Found<'q, T, K>> {
        let known_first = match &self.options.known {
            Known::External(known) if seeded::on(Bug::DeleteKnownFirst) => Some(is_known(&**known, key)),
            _ => None,
        };
        loop {
            let mut shard = self.slots.lock(hash);
            match shard.find(hash, key).map_or(Existence::Unknown, |row| shard.get_mut(row).existence()) {
                Existence::Live(_) | Existence::Gone { pending: true } => {
                    return Some(Found { shard, reserved: None });
                }
                Existence::Gone { pending: false } => {
                    self.leave_stamp(&mut shard, hash, key);
                    return None;
                }
                Existence::Unknown => {}
            }
            let Known::External(known) = &self.options.known else {
                self.leave_stamp(&mut shard, hash, key);
                return None;
            };
            if seeded::on(Bug::DeleteStampsEarly) {
                self.leave_stamp(&mut shard, hash, key);
            }
            // Relaxed: only uniqueness counts.
            let number = self.resyncs.fetch_add(1, Ordering::Relaxed);
            let row = self.row_of(&mut shard, hash, key);
            let number = shard.get_mut(row).reserve(number);
            drop(shard);
            // No guard is held here: known objects are the user's code.
            let reservation = Reservation::new(self, Some(key), hash, number);
            let known = known_first.unwrap_or_else(|| is_known(&**known, key));
            let _ = reservation.take();
            let mut shard = self.slots.lock(hash);
            let held = self.is_held(&mut shard, hash, key, number);
            if !held && !seeded::on(Bug::DeleteTrustsLookup) {
                drop(shard);
                continue;
            }
            if known {
                return Some(Found { shard, reserved: Some(number) });
            }
            self.leave_stamp(&mut shard, hash, key);
            let removed = self.let_go(&mut shard, hash, key, number);
            drop(shard);
            drop(removed);
            return None;
        }
    }

    /// A delete that found nothing took effect: a Replace that is running must not bring the key back (I6).
    fn leave_stamp(&self, shard: &mut Shard<'_, K, Slot<T, K>>, hash: KeyHash, key: &K) {
        let epoch = self.epoch();
        if epoch.is_multiple_of(2) || seeded::on(Bug::DeleteNoStamp) {
            return;
        }
        let row = self.row_of(shard, hash, key);
        shard.get_mut(row).stamp(epoch);
    }
}

/// A lookup that fails counts as "may exist" (rule A6.4).
fn is_known<T, K>(known: &dyn KnownObjects<T, K>, key: &K) -> bool {
    assert_no_guard();
    !matches!(known.get_by_key(key), Ok(None))
}

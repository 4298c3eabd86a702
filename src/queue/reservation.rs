//! An idle key that is held while the user's store is asked about it: by a Resync, or by a delete. Nobody can claim it
//! meanwhile, so its known object stays what it is; a producer that comes takes it over, which its holder finds out.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::DeltaFifo;
use super::slot::Slot;
use crate::index::KeyHash;
use crate::seeded::{self, Bug};
use crate::sync::Shard;

/// Dropped before it was [taken](Self::take) it lets go of the key, also on unwind.
pub(super) struct Reservation<'q, T, K, S, B>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
    B: Borrow<K>,
{
    queue: &'q DeltaFifo<T, K, S>,
    /// `None`: the key was busy, or has been taken.
    key: Option<B>,
    pub(super) hash: KeyHash,
    pub(super) number: u64,
}

impl<'q, T, K, S, B> Reservation<'q, T, K, S, B>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
    B: Borrow<K>,
{
    /// Holds what has been reserved, if there is a key, under this number.
    pub(super) fn new(queue: &'q DeltaFifo<T, K, S>, key: Option<B>, hash: KeyHash, number: u64) -> Self {
        Reservation { queue, key, hash, number }
    }

    /// The key, for whoever decides its fate now.
    pub(super) fn take(mut self) -> Option<B> {
        self.key.take()
    }
}

impl<T, K, S, B> Drop for Reservation<'_, T, K, S, B>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
    B: Borrow<K>,
{
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        if seeded::on(Bug::ResyncKeepsReservation) {
            return;
        }
        let mut shard = self.queue.slots.lock(self.hash);
        let removed = self.queue.let_go(&mut shard, self.hash, key.borrow(), self.number);
        drop(shard);
        drop((removed, key));
    }
}

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// Whether the reservation `number` still holds the key.
    pub(super) fn is_held(&self, shard: &mut Shard<'_, K, Slot<T, K>>, hash: KeyHash, key: &K, number: u64) -> bool {
        shard.find(hash, key).is_some_and(|row| shard.get_mut(row).is_resyncing(number))
    }

    /// Gives a reservation up, if it is still held. What it returns is to be dropped after the guard.
    pub(super) fn let_go(
        &self,
        shard: &mut Shard<'_, K, Slot<T, K>>,
        hash: KeyHash,
        key: &K,
        number: u64,
    ) -> Option<(K, Slot<T, K>)> {
        self.remove_if(shard, hash, key, |slot, retention| slot.transition_from_resyncing(number, retention))
    }
}

//! Replace: the list is what exists now. One instant, no stop; the rules are in the header of `queue/mod.rs`.
//!
//! ```text
//!  keys, transformer   wait for room   epoch odd   find what is missing   append list   append tombstones   epoch even, sweep
//!  ── may refuse ───────────────────►  ▲ instant   ── user's store only ─► ── nothing of the user's runs ──►
//! ```
//!
//! Everything that can fail comes before the first append, so a Replace happens as a whole or not at all. (The keys' own
//! `Clone`, `Eq` and `Hash` run later too; they must not panic.)
//!
//! What is missing in the list is found in one of two ways. With an embedded store all that exists is in the slots, and
//! stays there when it has been processed: the list is appended first, which marks its rows, and one walk appends a
//! tombstone wherever there is no mark. Else slots are scanned, and then the user's store, if there is one, with an index of the
//! list beside them, before anything is appended: the store is user code, and a key that is processed leaves its slot.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::produce::{Appended, Batch, Source, tombstone};
use super::slot::{Existence, Slot};
use super::{DeltaFifo, Known, keep_first_of_each};
use crate::delta::Delta;
use crate::error::{PushError, ReplaceError, TryReplaceError};
use crate::index::{Index, KeyHash};
use crate::key::KeyError;
use crate::known::KnownObjects;
use crate::seeded::{self, Bug};
use crate::sync::{MutexGuard, Ordering, Visits, asleep, assert_no_guard};

/// A list whose keys are known and whose objects are transformed.
struct Prepared<T, K> {
    keys: Vec<K>,
    hashes: Vec<KeyHash>,
    objects: Vec<Arc<T>>,
}

/// A key that is not in the list.
struct Missing<T, K> {
    key: K,
    hash: KeyHash,
    /// The newest state at the scan, for the tombstone, should the slot say nothing any more.
    object: Option<Arc<T>>,
    /// Its newest delta is a deletion already; it only has to be counted.
    deleted: bool,
}

/// Finds the keys of a list by their hashes. Of equal keys the first one counts: a million entries of one key would lie
/// in each other's way.
fn index_of<'a, K: Eq + 'a>(hashes: &[KeyHash], key: impl Fn(u32) -> &'a K) -> Index {
    let mut index = Index::with_capacity(hashes.len());
    for (number, &hash) in (0..).zip(hashes) {
        if index.find(hash, |other| key(other) == key(number)).is_none() {
            index.insert(hash, number);
        }
    }
    index
}

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    /// The list is everything that exists: queues a [`Replaced`](Delta::Replaced) (or [`Sync`](Delta::Sync)) delta for
    /// each object of it, and a tombstone for each key that is queued, claimed or known, and not in it (rule A7).
    ///
    /// Keys of the list come in list order, then deletions of known keys in the order of
    /// [`list_keys`](crate::KnownObjects::list_keys); keys that are queued already keep their place. An empty list is
    /// legal: everything is gone. Objects that appear twice in the list give two deltas of one key. A tombstone carries the newest
    /// object that the queue has seen.
    ///
    /// The first mutating call, if it is a replace, is the initial one: [`has_synced`](Self::has_synced) turns true
    /// when all its keys have been processed.
    ///
    /// Linearization point: one instant within the call. What a producer reports after it wins over the list, for its
    /// own key and consistently across keys. Producers and consumers go on while it runs; replaces run one at a time.
    /// Its deltas become visible one key after another.
    ///
    /// # Blocking
    ///
    /// Waits for another replace that is running. With limits it waits until anything fits, and then goes in as a whole.
    ///
    /// # Errors
    ///
    /// The key function or the transformer refused an object. Nothing was queued, the list comes back. (client-go
    /// keeps the objects before it; this is a deliberate difference.)
    ///
    /// # Panics
    ///
    /// If a user's function panics, the panic goes through. Up to the known objects nothing was queued then.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, DeltaType};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// fifo.replace(vec![2.into()]).unwrap();
    /// let claim = fifo.try_pop().unwrap();
    /// assert_eq!((*claim.key(), claim.deltas().newest().unwrap().delta_type()), (1, DeltaType::Deleted));
    /// assert_eq!(*fifo.try_pop().unwrap().key(), 2);
    /// ```
    pub fn replace(&self, list: Vec<Arc<T>>) -> Result<(), ReplaceError<T>> {
        let prepared = self.prepare_list(list)?;
        while !self.may_go_in() {
            let _ = self.wait_for_room((), |()| if self.may_go_in() { Ok(()) } else { Err(()) });
        }
        self.replace_now(prepared);
        Ok(())
    }

    /// [`replace`](Self::replace) that does not wait for room (it does wait for another replace that is running).
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace), and [`TryReplaceError::Full`] where a limit is reached.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.try_replace(vec![2.into()]).unwrap();
    /// ```
    pub fn try_replace(&self, list: Vec<Arc<T>>) -> Result<(), TryReplaceError<T>> {
        if !self.may_go_in() {
            return Err(TryReplaceError::Full(list));
        }
        self.replace_now(self.prepare_list(list).map_err(TryReplaceError::Refused)?);
        Ok(())
    }

    /// [`replace`](Self::replace), waiting for room without blocking a thread. The replace itself runs in one poll.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, nothing was queued.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # futures_lite::future::block_on(async {
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.replace_async(vec![2.into()]).await.unwrap();
    /// # });
    /// ```
    pub async fn replace_async(&self, list: Vec<Arc<T>>) -> Result<(), ReplaceError<T>> {
        let prepared = self.prepare_list(list)?;
        while !self.may_go_in() {
            let listener = self.room.event().listen();
            if !self.may_go_in() {
                asleep(listener).await;
            }
        }
        self.replace_now(prepared);
        Ok(())
    }

    fn may_go_in(&self) -> bool {
        self.room.has_room() || self.is_closed()
    }

    /// Runs the user's functions over the list. Nothing is changed yet.
    fn prepare_list(&self, list: Vec<Arc<T>>) -> Result<Prepared<T, K>, ReplaceError<T>> {
        let mut keys = Vec::with_capacity(list.len());
        for (index, object) in list.iter().enumerate() {
            match self.options.key_fn.key_of(object) {
                Ok(key) => keys.push(key),
                Err(source) => {
                    let cause = PushError::Key(KeyError { object: object.clone(), source });
                    return Err(ReplaceError { list, index, cause });
                }
            }
        }
        let objects = match &self.options.transform {
            None => list,
            Some(_) => {
                let mut objects = Vec::with_capacity(list.len());
                for (index, object) in list.iter().enumerate() {
                    match self.transform(object.clone()) {
                        Ok(object) => objects.push(object),
                        Err(error) => return Err(ReplaceError { list, index, cause: PushError::Transform(error) }),
                    }
                }
                objects
            }
        };
        let hashes = keys.iter().map(|key| self.slots.hash(key)).collect();
        Ok(Prepared { keys, hashes, objects })
    }

    fn replace_now(&self, prepared: Prepared<T, K>) {
        let mut run = Run::start(self);
        let missing = match &self.options.known {
            // Everything of the user's runs before the first append.
            Known::External(known) => Some(self.find_missing(&prepared, Some(&**known), run.epoch)),
            // A key that is processed while the list goes in is known nowhere then, so it is looked for before.
            Known::Nowhere => Some(self.find_missing(&prepared, None, run.epoch)),
            Known::Embedded => None,
        };
        // From here on no user code runs but the keys' own Clone, Eq and Hash.
        run.first = self.synced.populate();
        if run.first && seeded::on(Bug::SyncedGuardEarly) {
            self.synced.release_guard();
        }
        let Prepared { keys, hashes, objects } = prepared;
        for ((key, hash), object) in keys.into_iter().zip(hashes).zip(objects) {
            let delta = if self.options.emit_replaced { Delta::Replaced(object) } else { Delta::Sync(object) };
            self.feed_listed(key, hash, delta, &run);
        }
        match missing {
            Some(missing) => missing.into_iter().for_each(|missing| self.feed_missing(missing, &run)),
            None if seeded::on(Bug::ReplaceOnlyKnown) => {}
            None => self.feed_unlisted(&run),
        }
        run.complete = true;
    }

    /// Appends a delta of the list, unless a producer was there after the instant.
    fn feed_listed(&self, key: K, hash: KeyHash, delta: Delta<T, K>, run: &Run<'_, T, K, S>) {
        let mut shard = self.slots.lock(hash);
        let row = self.row_of(&mut shard, hash, &key);
        let hint = shard.hint(hash, row);
        let appended = match self.is_newer(shard.get_mut(row), run) {
            true => {
                self.tag_rest(shard.get_mut(row), run);
                None
            }
            false => self.append_at(&mut shard, hint, key, delta, run.source()).ok(),
        };
        if self.is_embedded() {
            shard.mark(row, run.epoch);
        }
        drop(shard);
        self.finish_fed(appended, run);
    }

    /// Appends the tombstone of a key that was missing when it was looked at.
    fn feed_missing(&self, missing: Missing<T, K>, run: &Run<'_, T, K, S>) {
        let Missing { key, hash, object, deleted } = missing;
        let owned = key.clone();
        let mut shard = self.slots.lock(hash);
        let slot = shard.find(hash, &key).map(|row| shard.get_mut(row));
        let delta = match slot.as_ref().map_or(Existence::Unknown, |slot| slot.existence()) {
            _ if slot.as_ref().is_some_and(|slot| self.is_newer(slot, run)) => None,
            Existence::Live(newest) => Some(tombstone(owned, newest)),
            Existence::Gone { .. } => None,
            Existence::Unknown if deleted => None,
            Existence::Unknown => Some(tombstone(owned, object)),
        };
        let appended = match (delta, slot) {
            (Some(delta), _) => self.append_under(&mut shard, hash, key, delta, run.source()).ok(),
            (None, Some(slot)) => {
                self.tag_rest(slot, run);
                None
            }
            (None, None) => None,
        };
        drop(shard);
        self.finish_fed(appended, run);
    }

    /// Appends a tombstone to every key that exists and was not listed, each under the guard that it is looked at.
    fn feed_unlisted(&self, run: &Run<'_, T, K, S>) {
        let mut batch = Batch::new(self);
        // Out here, so that it is not dropped under a guard should the next copy panic.
        let mut owned = None;
        // A walk that comes to a key twice finds its tombstone, or nothing.
        let _ = self.slots.scan_shards(|mut shard, part| {
            let (number, is_last) = (part.shard(), part.is_last());
            for row in part {
                let Some((key, slot)) = shard.entry(row).filter(|_| !shard.is_marked(row, run.epoch)) else { continue };
                let skips_claimed = seeded::on(Bug::ReplaceSkipsClaimed) && slot.is_claimed();
                if self.is_newer(slot, run) || skips_claimed {
                    continue;
                }
                match slot.existence() {
                    Existence::Live(newest) => {
                        let hash = self.slots.hash(key);
                        if !self.slots.belongs(hash, number) {
                            continue;
                        }
                        let ticket = owned.insert(key.clone()).clone();
                        let delta = tombstone(owned.take().expect("it was put there"), newest);
                        let at = shard.hint(hash, row);
                        batch.extend(self.append_at(&mut shard, at, ticket, delta, run.source()));
                    }
                    Existence::Gone { .. } => self.tag_rest(shard.get_mut(row), run),
                    Existence::Unknown => {}
                }
            }
            if is_last && !seeded::on(Bug::ReplaceKeepsMarks) {
                shard.clear_marks();
            }
            drop(shard);
            batch.finish();
        });
    }

    /// Whether a producer was at this key after the instant, so that what it said stands.
    fn is_newer(&self, slot: &Slot<T, K>, run: &Run<'_, T, K, S>) -> bool {
        slot.is_stamped_since(run.epoch) && !seeded::on(Bug::ReplaceIgnoresStamp)
    }

    /// What is still to be processed of this key belongs to the initial batch all the same.
    fn tag_rest(&self, slot: &mut Slot<T, K>, run: &Run<'_, T, K, S>) {
        if run.first {
            self.tag_initial(slot);
        }
    }

    fn finish_fed(&self, appended: Option<Appended<T, K>>, run: &Run<'_, T, K, S>) {
        let Some(appended) = appended else { return };
        self.finish(appended);
        if run.first && seeded::on(Bug::SyncedCountLate) {
            self.synced.count();
        }
    }

    /// The keys that exist and are not in the list: slots first, then known objects.
    fn find_missing(
        &self,
        prepared: &Prepared<T, K>,
        known: Option<&dyn KnownObjects<T, K>>,
        epoch: u64,
    ) -> Vec<Missing<T, K>> {
        let listed = index_of(&prepared.hashes, |i| &prepared.keys[i as usize]);
        let listed = |hash: KeyHash, key: &K| listed.find(hash, |i| prepared.keys[i as usize] == *key).is_some();
        let mut missing = Vec::new();
        if seeded::on(Bug::ReplaceKnownFirst) {
            self.scan_known(known, &mut missing, listed);
            self.scan_slots(&mut missing, listed, epoch);
            return missing;
        }
        if !seeded::on(Bug::ReplaceOnlyKnown) {
            self.scan_slots(&mut missing, listed, epoch);
        }
        if !seeded::on(Bug::ReplaceOnlySlots) {
            self.scan_known(known, &mut missing, listed);
        }
        missing
    }

    fn scan_slots(&self, missing: &mut Vec<Missing<T, K>>, listed: impl Fn(KeyHash, &K) -> bool, epoch: u64) {
        let visits = self.slots.scan(|key, slot| {
            if slot.is_stamped_since(epoch) || (seeded::on(Bug::ReplaceSkipsClaimed) && slot.is_claimed()) {
                return;
            }
            let (object, deleted) = match slot.existence() {
                Existence::Live(object) => (object, false),
                Existence::Gone { .. } => (None, true),
                Existence::Unknown => return,
            };
            let hash = self.slots.hash(key);
            if !listed(hash, key) {
                missing.push(Missing { key: key.clone(), hash, object, deleted });
            }
        });
        if visits == Visits::Repeated && !seeded::on(Bug::ReplaceKeepsDoubles) {
            // Each visit by itself is right, so the first one stays.
            keep_first_of_each(missing, |missing| &missing.key);
        }
    }

    fn scan_known(
        &self,
        known: Option<&dyn KnownObjects<T, K>>,
        missing: &mut Vec<Missing<T, K>>,
        listed: impl Fn(KeyHash, &K) -> bool,
    ) {
        let Some(known) = known else { return };
        assert_no_guard();
        let hashes: Vec<_> = missing.iter().map(|missing| missing.hash).collect();
        let in_slots = index_of(&hashes, |i| &missing[i as usize].key);
        for key in known.list_keys() {
            let hash = self.slots.hash(&key);
            if listed(hash, &key) || in_slots.find(hash, |i| missing[i as usize].key == key).is_some() {
                continue;
            }
            // An object that cannot be had makes a tombstone without one (rule A7.3).
            let object = known.get_by_key(&key).unwrap_or(None);
            missing.push(Missing { key, hash, object, deleted: false });
        }
    }

    /// Removes the slots that were kept for their stamps. The epoch is even again, so a release that comes later keeps
    /// none.
    fn sweep(&self) {
        if seeded::on(Bug::ReplaceKeepsSlots) {
            return;
        }
        for key in self.keys_of(Slot::is_left_over) {
            let hash = self.slots.hash(&key);
            let mut shard = self.slots.lock(hash);
            let removed = self.remove_if(&mut shard, hash, &key, |slot, retention| slot.retire(retention, true));
            drop(shard);
            drop(removed);
        }
    }
}

/// A running Replace. Its drop ends it, also on unwind.
struct Run<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    queue: &'q DeltaFifo<T, K, S>,
    epoch: u64,
    first: bool,
    complete: bool,
    _one_at_a_time: Option<MutexGuard<'q, ()>>,
}

impl<'q, T, K, S> Run<'q, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn start(queue: &'q DeltaFifo<T, K, S>) -> Self {
        // A Replace that panicked left nothing half-done behind the lock, so poison says nothing.
        let lock = || queue.replacing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let one_at_a_time = (!seeded::on(Bug::ReplaceUnlocked)).then(lock);
        // The instant. E5, Relaxed: producers read the epoch under slot guards, and the scan or walk that follows visits
        // every one of them.
        let epoch = queue.state.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        Run { queue, epoch, first: false, complete: false, _one_at_a_time: one_at_a_time }
    }

    /// What a Replace appends is never refused.
    fn source(&self) -> Source {
        Source::Feed { initial: self.first }
    }
}

impl<T, K, S> Drop for Run<'_, T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn drop(&mut self) {
        if seeded::on(Bug::ReplaceSweepsEarly) {
            self.queue.sweep();
            self.queue.state.epoch.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // E5, Relaxed: the sweep visits every slot under its guard, after this.
        self.queue.state.epoch.fetch_add(1, Ordering::Relaxed);
        match (self.first, self.complete) {
            (true, true) if !seeded::on(Bug::SyncedGuardEarly) => self.queue.synced.release_guard(),
            (true, false) => self.queue.synced.unpopulate(),
            _ => {}
        }
        // Last, because a key's Hash or Drop may panic in it.
        self.queue.sweep();
    }
}

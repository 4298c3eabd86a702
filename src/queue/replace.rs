//! Replace: the list is what exists now. One instant, no stop; the rules are in the header of `queue/mod.rs`.
//!
//! ```text
//!  keys, transformer   wait for room   epoch odd   scan slots   scan known   append list   append tombstones   epoch even, sweep
//!  ── may refuse ───────────────────►  ▲ instant   ── user code, may panic ─► ── nothing of the user's runs ──►
//! ```
//!
//! Everything that can fail comes before the first append, so a Replace happens as a whole or not at all.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::raw::RawTable;

use super::produce::{Source, tombstone};
use super::slot::{Existence, Release};
use super::{DeltaFifo, Known};
use crate::delta::Delta;
use crate::error::{PushError, ReplaceError, TryReplaceError};
use crate::key::KeyError;
use crate::seeded::{self, Bug};
use crate::sync::{MutexGuard, Ordering, asleep, assert_no_guard};

/// A list whose keys are known and whose objects are transformed.
struct Prepared<T, K> {
    keys: Vec<K>,
    hashes: Vec<u64>,
    objects: Vec<Arc<T>>,
}

/// A key that is not in the list.
struct Missing<T, K> {
    key: K,
    hash: u64,
    /// The newest state at the scan, for the tombstone, should the slot say nothing any more.
    object: Option<Arc<T>>,
    /// Its newest delta is a deletion already; it only has to be counted.
    deleted: bool,
}

/// Finds a key of a slice by its hash, without a copy of the keys.
struct Index(RawTable<usize>);

impl Index {
    fn new<'a, K: Eq + 'a>(len: usize, hashes: &[u64], key: impl Fn(usize) -> &'a K) -> Self {
        let mut table = RawTable::with_capacity(len);
        for (i, &hash) in hashes.iter().enumerate() {
            if table.get(hash, |&j| key(j) == key(i)).is_none() {
                table.insert(hash, i, |&j| hashes[j]);
            }
        }
        Index(table)
    }

    fn contains(&self, hash: u64, is: impl Fn(usize) -> bool) -> bool {
        self.0.get(hash, |&i| is(i)).is_some()
    }
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
        let missing = self.find_missing(&prepared, run.epoch);
        // From here on no user code runs but the keys' own Clone and Eq.
        run.first = self.synced.populate();
        if run.first && seeded::on(Bug::SyncedGuardEarly) {
            self.synced.release_guard();
        }
        let Prepared { keys, hashes, objects } = prepared;
        for ((key, hash), object) in keys.into_iter().zip(hashes).zip(objects) {
            let delta = if self.options.emit_replaced { Delta::Replaced(object) } else { Delta::Sync(object) };
            self.feed(key, hash, run.epoch, run.first, |_| Some(delta));
        }
        for Missing { key, hash, object, deleted } in missing {
            let owned = key.clone();
            self.feed(key, hash, run.epoch, run.first, |existence| match existence {
                Existence::Live(newest) => Some(tombstone(owned, newest)),
                Existence::Gone { .. } => None,
                Existence::Unknown if deleted => None,
                Existence::Unknown => Some(tombstone(owned, object)),
            });
        }
        run.complete = true;
    }

    /// Appends what `delta` makes of the key's state, unless a producer was there after the instant.
    fn feed(
        &self,
        key: K,
        hash: u64,
        epoch: u64,
        first: bool,
        delta: impl FnOnce(Existence<T>) -> Option<Delta<T, K>>,
    ) {
        let mut shard = self.slots.lock(hash);
        let slot = shard.get_mut(&key);
        let newer = slot.as_ref().is_some_and(|slot| slot.is_stamped_since(epoch));
        let existence = slot.map_or(Existence::Unknown, |slot| slot.existence());
        let delta = if newer && !seeded::on(Bug::ReplaceIgnoresStamp) { None } else { delta(existence) };
        match delta {
            Some(delta) => {
                let source = Source::Feed { initial: first };
                let Ok(appended) = self.append_under(&mut shard, hash, key, delta, source) else {
                    unreachable!("a feed is never refused")
                };
                drop(shard);
                self.finish(appended);
                if first && seeded::on(Bug::SyncedCountLate) {
                    self.synced.count();
                }
            }
            None => {
                // What is still to be processed of this key belongs to the initial batch all the same.
                if first && let Some(slot) = shard.get_mut(&key) {
                    self.tag_initial(slot);
                }
                drop(shard);
            }
        }
    }

    /// The keys that exist and are not in the list: slots first, then known objects.
    fn find_missing(&self, prepared: &Prepared<T, K>, epoch: u64) -> Vec<Missing<T, K>> {
        let listed = Index::new(prepared.keys.len(), &prepared.hashes, |i| &prepared.keys[i]);
        let listed = |hash: u64, key: &K| listed.contains(hash, |i| prepared.keys[i] == *key);
        let mut missing = Vec::new();
        if seeded::on(Bug::ReplaceKnownFirst) {
            self.scan_known(&mut missing, listed);
            self.scan_slots(&mut missing, listed, epoch);
            return missing;
        }
        if !seeded::on(Bug::ReplaceOnlyKnown) {
            self.scan_slots(&mut missing, listed, epoch);
        }
        if !seeded::on(Bug::ReplaceOnlySlots) {
            self.scan_known(&mut missing, listed);
        }
        missing
    }

    fn scan_slots(&self, missing: &mut Vec<Missing<T, K>>, listed: impl Fn(u64, &K) -> bool, epoch: u64) {
        self.slots.scan(|key, slot| {
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
    }

    fn scan_known(&self, missing: &mut Vec<Missing<T, K>>, listed: impl Fn(u64, &K) -> bool) {
        let Known::External(known) = &self.options.known else { return };
        assert_no_guard();
        let hashes: Vec<u64> = missing.iter().map(|m| m.hash).collect();
        let in_slots = missing.len();
        let found = Index::new(in_slots, &hashes, |i| &missing[i].key);
        for key in known.list_keys() {
            let hash = self.slots.hash(&key);
            if listed(hash, &key) || found.contains(hash, |i| missing[i].key == key) {
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
        let mut kept = Vec::new();
        self.slots.scan(|key, slot| {
            if slot.is_left_over() {
                kept.push(key.clone());
            }
        });
        for key in kept {
            let mut shard = self.slots.lock(self.slots.hash(&key));
            let retention = self.retention();
            let verdict = shard.get_mut(&key).map(|slot| slot.retire(retention, true));
            let removed = if verdict == Some(Release::Remove) { shard.remove(&key) } else { None };
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
        // The instant. E5, Relaxed: producers read the epoch under slot guards, and the scan that follows visits every
        // one of them.
        let epoch = queue.state.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        Run { queue, epoch, first: false, complete: false, _one_at_a_time: one_at_a_time }
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
        self.queue.sweep();
        match (self.first, self.complete) {
            (true, true) if !seeded::on(Bug::SyncedGuardEarly) => self.queue.synced.release_guard(),
            (true, false) => self.queue.synced.unpopulate(),
            _ => {}
        }
    }
}

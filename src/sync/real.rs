//! The real parts.

use std::hash::{BuildHasher, Hash};

use dashmap::{DashMap, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;

pub(crate) use super::event::{Asleep, Event, EventListener, Listener, asleep};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Counts the guards that this thread holds, so that a debug build can prove that user code runs under none.
#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;

    thread_local!(static HELD: Cell<u32> = const { Cell::new(0) });

    #[derive(Debug)]
    pub(super) struct Held;

    impl Held {
        pub(super) fn new() -> Held {
            HELD.with(|held| {
                assert_eq!(held.get(), 0, "a map guard is taken while another one is held");
                held.set(1);
            });
            Held
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|held| held.set(0));
        }
    }

    pub(crate) fn assert_no_guard() {
        assert_eq!(HELD.with(Cell::get), 0, "user code would run under a map guard");
    }
}

#[cfg(not(debug_assertions))]
mod held {
    pub(super) struct Held;

    impl Held {
        #[inline(always)]
        pub(super) fn new() -> Held {
            Held
        }
    }

    #[inline(always)]
    pub(crate) fn assert_no_guard() {}
}

pub(crate) use held::assert_no_guard;

/// A sharded map whose keys are hashed once, by the caller, and looked up without being cloned.
pub(crate) struct Table<K, V, S> {
    map: DashMap<K, V, S>,
}

impl<K: Eq + Hash, V, S: BuildHasher + Clone> Table<K, V, S> {
    pub(crate) fn new(shards: usize, hasher: S) -> Self {
        Table { map: DashMap::with_hasher_and_shard_amount(hasher, shards) }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &K) -> u64 {
        self.map.hasher().hash_one(key)
    }

    /// Locks the shard of a hash. The guard must live for O(1) work only, with no user code (but the key's `Eq`, and
    /// `Hash` when the shard grows).
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> Shard<'_, K, V, S> {
        let held = held::Held::new();
        let shard = &self.map.shards()[self.map.determine_shard(hash as usize)];
        Shard { guard: shard.write(), hash, hasher: self.map.hasher(), _held: held }
    }

    /// Visits every entry, one shard read-locked at a time: no snapshot, but an entry that is there all the time is
    /// never missed.
    pub(crate) fn scan(&self, mut visit: impl FnMut(&K, &V)) {
        let _held = held::Held::new();
        for entry in self.map.iter() {
            visit(entry.key(), entry.value());
        }
    }
}

/// One locked shard, and the hash it was locked for.
pub(crate) struct Shard<'a, K, V, S> {
    guard: RwLockWriteGuard<'a, RawTable<(K, SharedValue<V>)>>,
    hash: u64,
    hasher: &'a S,
    _held: held::Held,
}

impl<K: Eq + Hash, V, S: BuildHasher> Shard<'_, K, V, S> {
    #[inline]
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.guard.get_mut(self.hash, |(k, _)| k == key).map(|(_, value)| value.get_mut())
    }

    /// Adds an entry whose key is not in the map.
    pub(crate) fn insert(&mut self, key: K, value: V) -> &mut V {
        let hasher = self.hasher;
        let entry =
            self.guard.insert_entry(self.hash, (key, SharedValue::new(value)), |(k, _): &(K, _)| hasher.hash_one(k));
        entry.1.get_mut()
    }

    /// Removes an entry; key and value are the caller's to drop, after the guard. A shard that has become nearly
    /// empty gives its memory back.
    pub(crate) fn remove(&mut self, key: &K) -> Option<(K, V)> {
        let (key, value) = self.guard.remove_entry(self.hash, |(k, _)| k == key)?;
        let (len, capacity) = (self.guard.len(), self.guard.capacity());
        if capacity > 64 && len < capacity / 8 {
            let hasher = self.hasher;
            self.guard.shrink_to(len * 2, |(k, _): &(K, _)| hasher.hash_one(k));
        }
        Some((key, value.into_inner()))
    }
}

/// An unbounded FIFO.
pub(crate) struct Queue<T>(crossbeam_queue::SegQueue<T>);

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue(crossbeam_queue::SegQueue::new())
    }

    #[inline]
    pub(crate) fn push(&self, value: T) {
        self.0.push(value);
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A bounded stock of things that are expensive to make again.
pub(crate) struct Pool<T>(crossbeam_queue::ArrayQueue<T>);

impl<T> Pool<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Pool(crossbeam_queue::ArrayQueue::new(capacity))
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        self.0.pop()
    }

    /// Gives `value` back where the stock is full.
    #[inline]
    pub(crate) fn put(&self, value: T) -> Option<T> {
        self.0.push(value).err()
    }
}

/// How often a consumer looks again before it sleeps.
pub(crate) const SPINS: u32 = 64;

/// A short pause between two looks.
#[inline]
pub(crate) fn spin() {
    for _ in 0..4 {
        std::hint::spin_loop();
    }
}

/// Waits until notified (`true`) or until the time is over.
pub(crate) fn wait_deadline(listener: EventListener, deadline: std::time::Instant) -> bool {
    event_listener::Listener::wait_deadline(listener.listener, deadline).is_some()
}

//! Stand-ins for the table, the order queue and the buffer pool, made of the checker's primitives.
//!
//! They are as weak as the real parts or weaker, where that can be had:
//!
//! - the table has two shards and no hasher of its own, so that a replayed execution takes the same way, and a model
//!   with two keys crosses the border between shards. A shard is a mutex; the real one is a reader-writer lock, but
//!   readers do nothing else under it. A walk locks one shard at a time: no snapshot.
//! - the queue made of a mutex synchronises more than `SegQueue` (a `pop` that finds nothing orders nothing there), so
//!   there is a weak form (`DELTA_FIFO_QUEUE=weak` in the environment), and a real one (`--cfg real_queue`: concurrent-queue, the same family
//!   of algorithms, with a loom mode of its own).
//! - the pool is always empty: a stock of buffers only adds edges that nothing relies on.

use std::hash::{BuildHasher, Hash};
use std::ops::Deref;

use crate::index::KeyHash;

#[cfg(not(all(loom, real_queue)))]
use super::prim::Ordering;
use super::prim::{Mutex, MutexGuard};
pub(crate) use super::rows::{Hint, Row, Visits};
use super::rows::{Keeping, Part, Rows, walk};

/// Threads are coroutines of one system thread in a model, so a count per thread says nothing here.
pub(crate) fn assert_no_guard() {}

const SHARDS: usize = 2;

/// Rows move at every removal, so that a model comes to see it.
const KEEPING: Keeping = Keeping { room: 0, compacts: |_, _| true };

pub(crate) struct Table<K, V, S> {
    shards: [Mutex<Rows<K, V>>; SHARDS],
    hasher: S,
}

impl<K: Eq + Hash, V, S: BuildHasher + Clone> Table<K, V, S> {
    pub(crate) fn new(_segments: usize, _keys: usize, hasher: S) -> Self {
        Table { shards: std::array::from_fn(|_| Mutex::new(Rows::new(KEEPING))), hasher }
    }

    pub(crate) fn hash(&self, key: &K) -> KeyHash {
        KeyHash::of(&self.hasher, key)
    }

    pub(crate) fn lock(&self, hash: KeyHash) -> Shard<'_, K, V> {
        Shard { rows: self.shards[hash.low_bit()].lock().unwrap() }
    }

    pub(crate) fn belongs(&self, hash: KeyHash, shard: usize) -> bool {
        hash.low_bit() == shard
    }

    pub(crate) fn scan(&self, mut visit: impl FnMut(&K, &V)) -> Visits {
        self.scan_shards(|shard, part| {
            part.filter_map(|row| shard.entry(row)).for_each(|(key, value)| visit(key, value))
        })
    }

    pub(crate) fn scan_shards(&self, visit: impl FnMut(Shard<'_, K, V>, Part)) -> Visits {
        walk(self.shards.iter().map(|shard| || Shard { rows: shard.lock().unwrap() }), 1, visit)
    }
}

pub(crate) struct Shard<'a, K, V> {
    rows: MutexGuard<'a, Rows<K, V>>,
}

impl<K, V> Deref for Shard<'_, K, V> {
    type Target = Rows<K, V>;

    fn deref(&self) -> &Rows<K, V> {
        &self.rows
    }
}

impl<K: Eq, V> Shard<'_, K, V> {
    pub(crate) fn find(&self, _hash: KeyHash, key: &K) -> Option<Row> {
        self.rows.find(key)
    }

    pub(crate) fn recall(&self, hint: Hint, key: &K) -> Option<Row> {
        if self.rows.holds(hint, key) { Some(hint.row()) } else { self.find(hint.hash(), key) }
    }

    pub(crate) fn get_mut(&mut self, row: Row) -> &mut V {
        self.rows.value_mut(row)
    }

    pub(crate) fn mark(&mut self, row: Row, whom: u64) {
        self.rows.mark(row, whom);
    }

    pub(crate) fn clear_marks(&mut self) {
        self.rows.clear_marks();
    }

    pub(crate) fn insert(&mut self, hash: KeyHash, key: K, value: V) -> Row {
        assert!(self.find(hash, &key).is_none(), "a key is inserted twice");
        self.rows.push(key, value)
    }

    pub(crate) fn remove(&mut self, _hash: KeyHash, row: Row) -> (K, V) {
        let removed = self.rows.remove(row);
        let _ = self.rows.compact();
        removed
    }
}

#[cfg(all(loom, real_queue))]
pub(crate) struct Queue<T>(concurrent_queue::ConcurrentQueue<T>);

#[cfg(all(loom, real_queue))]
impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue(concurrent_queue::ConcurrentQueue::unbounded())
    }

    pub(crate) fn push(&self, value: T) {
        assert!(self.0.push(value).is_ok());
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop().ok()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(not(all(loom, real_queue)))]
pub(crate) struct Queue<T> {
    list: Mutex<std::collections::VecDeque<T>>,
    /// The weak form decides by this whether it is empty, without the lock: an empty answer then orders nothing.
    len: Option<super::prim::AtomicUsize>,
}

#[cfg(not(all(loom, real_queue)))]
impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self::with(std::env::var("DELTA_FIFO_QUEUE").is_ok_and(|queue| queue == "weak"))
    }

    pub(crate) fn with(weak: bool) -> Self {
        Queue {
            list: Mutex::new(std::collections::VecDeque::new()),
            len: weak.then(|| super::prim::AtomicUsize::new(0)),
        }
    }

    /// The answer of the weak form's counter; the strong one has none.
    fn looks_empty(&self) -> bool {
        self.len.as_ref().is_some_and(|len| len.load(Ordering::Relaxed) == 0)
    }

    pub(crate) fn push(&self, value: T) {
        self.list.lock().unwrap().push_back(value);
        if let Some(len) = &self.len {
            len.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        if self.looks_empty() {
            return None;
        }
        let value = self.list.lock().unwrap().pop_front();
        if let (Some(len), true) = (&self.len, value.is_some()) {
            len.fetch_sub(1, Ordering::Relaxed);
        }
        value
    }

    pub(crate) fn len(&self) -> usize {
        self.list.lock().unwrap().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.looks_empty() || self.list.lock().unwrap().is_empty()
    }
}

pub(crate) struct Pool<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Pool<T> {
    pub(crate) fn new(_capacity: usize) -> Self {
        Pool(std::marker::PhantomData)
    }

    pub(crate) fn take(&self) -> Option<T> {
        None
    }

    pub(crate) fn put(&self, value: T) -> Option<T> {
        Some(value)
    }
}

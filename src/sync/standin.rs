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

#[cfg(not(all(loom, real_queue)))]
use super::prim::Ordering;
use super::prim::{Mutex, MutexGuard};

/// Threads are coroutines of one system thread in a model, so a count per thread says nothing here.
pub(crate) fn assert_no_guard() {}

const SHARDS: usize = 2;

pub(crate) struct Table<K, V, S> {
    shards: [Mutex<Vec<(K, V)>>; SHARDS],
    hasher: S,
}

impl<K: Eq + Hash, V, S: BuildHasher + Clone> Table<K, V, S> {
    pub(crate) fn new(_shards: usize, hasher: S) -> Self {
        Table { shards: std::array::from_fn(|_| Mutex::new(Vec::new())), hasher }
    }

    pub(crate) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn lock(&self, hash: u64) -> Shard<'_, K, V, S> {
        let guard = self.shards[hash as usize % SHARDS].lock().unwrap();
        Shard { guard, marker: std::marker::PhantomData }
    }

    pub(crate) fn scan(&self, mut visit: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            for (key, value) in shard.lock().unwrap().iter() {
                visit(key, value);
            }
        }
    }
}

pub(crate) struct Shard<'a, K, V, S> {
    guard: MutexGuard<'a, Vec<(K, V)>>,
    marker: std::marker::PhantomData<fn() -> S>,
}

impl<K: Eq + Hash, V, S: BuildHasher> Shard<'_, K, V, S> {
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.guard.iter_mut().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> &mut V {
        assert!(!self.guard.iter().any(|(k, _)| *k == key), "a key is inserted twice");
        self.guard.push((key, value));
        &mut self.guard.last_mut().unwrap().1
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<(K, V)> {
        let at = self.guard.iter().position(|(k, _)| k == key)?;
        Some(self.guard.remove(at))
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

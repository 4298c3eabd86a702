//! The real parts.

use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::fence;
use std::task::{Context, Poll, Wake, Waker};

use crossbeam_utils::CachePadded;
use dashmap::{DashMap, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;

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

/// event-listener's event, with a count of those who listen: its own `notify` takes a lock each time, and a lock that
/// every producer takes for every ticket would be the global one that this queue does without.
///
/// The count goes up before the listener registers, and a listener looks again after that, so with a fence on both
/// sides either the listener's look finds what `notify` is about, or `notify` finds the listener counted (E1, E3 in
/// `queue/mod.rs`). One that is counted and not registered yet is missed by a `notify`, which then was in the list's
/// lock before it: its look comes after what was published before. A count that is too high costs a lock.
pub(crate) struct Event {
    event: event_listener::Event,
    listening: Arc<CachePadded<AtomicUsize>>,
}

impl Event {
    pub(crate) fn new() -> Self {
        Event { event: event_listener::Event::new(), listening: Arc::default() }
    }

    #[inline]
    fn somebody_listens(&self) -> bool {
        // Orders what the caller published before the look. Its counterpart is in `listen` of event-listener.
        fence(Ordering::SeqCst);
        // Relaxed: by the fences, see above.
        self.listening.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(crate) fn notify(&self, n: usize) {
        if self.somebody_listens() {
            self.event.notify(n);
        }
    }

    #[inline]
    pub(crate) fn notify_additional(&self, n: usize) {
        if self.somebody_listens() {
            self.event.notify_additional(n);
        }
    }

    pub(crate) fn listen(&self) -> EventListener {
        let counted = Counted::new(&self.listening);
        // Registers, and ends with the fence.
        EventListener { listener: self.event.listen(), _counted: counted }
    }
}

/// One who listens.
struct Counted(Arc<CachePadded<AtomicUsize>>);

impl Counted {
    fn new(listening: &Arc<CachePadded<AtomicUsize>>) -> Self {
        // Relaxed: by the fence in `listen`, see `Event`.
        listening.fetch_add(1, Ordering::Relaxed);
        Counted(listening.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed: the one who counts off does not wait any more.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct EventListener {
    // In this order: a listener that drops passes its notification on to one who is still counted.
    listener: event_listener::EventListener,
    _counted: Counted,
}

/// A wait that blocks the thread. A trait, as in event-listener and in the stand-in.
pub(crate) trait Listener {
    fn wait(self);
}

impl Listener for EventListener {
    fn wait(self) {
        event_listener::Listener::wait(self.listener);
    }
}

/// Waits until notified (`true`) or until the time is over.
pub(crate) fn wait_deadline(listener: EventListener, deadline: std::time::Instant) -> bool {
    event_listener::Listener::wait_deadline(listener.listener, deadline).is_some()
}

/// Waits until notified, as a future.
pub(crate) fn asleep(listener: EventListener) -> Asleep {
    Asleep { listener, waker: None }
}

/// A listener whose waker cannot panic.
///
/// event-listener calls wakers under its lock, in the middle of its own counting: a panic there would leave the event
/// wrong for ever, and nobody would be woken any more. So it is given a waker that contains the panic of the user's.
pub(crate) struct Asleep {
    listener: EventListener,
    /// The waker of the last poll, and the one made of it.
    waker: Option<(Waker, Waker)>,
}

impl Future for Asleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let waker = match &mut this.waker {
            Some((given, contained)) if given.will_wake(cx.waker()) => contained,
            other => {
                let contained = Waker::from(Arc::new(Contained(cx.waker().clone())));
                &mut other.insert((cx.waker().clone(), contained)).1
            }
        };
        Pin::new(&mut this.listener.listener).poll(&mut Context::from_waker(waker))
    }
}

struct Contained(Waker);

impl Wake for Contained {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The panic hook has reported it; the task that is not woken is the one whose waker is broken.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.wake_by_ref()));
    }
}

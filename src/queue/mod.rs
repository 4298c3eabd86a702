//! The queue. Data flow, by file:
//!
//! ```text
//!  produce.rs ─┐                                               ┌─ consume.rs: pop a ticket, claim its key
//!  replace.rs ─┼─► slot.rs: the key's state ──► order.rs: ─────┤
//!  resync.rs  ─┘   and pending deltas,          one ticket     └─ claim.rs: the guard a consumer holds;
//!                  in the sharded table         per queued key    its release goes back to slot.rs
//!
//!  synced.rs  has the first list been processed?      limit.rs    room, and who waits for it
//!  builder.rs options                                 reserve.rs  which idle keys keep working memory
//!  delete.rs  exists it? asks slot and store          reservation.rs  an idle key that is held meanwhile
//!  wait.rs    sleeping and waking: consumers, waiters for sync, drain and room
//! ```
//!
//! # Rules
//!
//! - Every change of a key happens under the write guard of its shard, in a transition of `slot.rs`. No thread holds
//!   two guards, and no user code but the key's own `Eq`, `Hash` and `Clone` runs under one; a debug build asserts
//!   both. Objects that fall out are dropped after the guard.
//! - **The ticket enters the order queue while the guard is held.** Pushed after it, a second producer could join the
//!   slot and return before the ticket is there: its own `try_pop` would find nothing, and a `close` right after would
//!   strand its delta.
//! - Consumers register, read `closed`, look again, and only then sleep (E1, E2). One ticket wakes one more sleeper.
//!
//! # Edges
//!
//! What synchronises with what, beside the shard guards. E4 is in `synced.rs`.
//!
//! | edge | before | after | carries | model |
//! |---|---|---|---|---|
//! | E1 | push a ticket, fence, look for sleepers | register, fence, look for a ticket | no wake-up is lost | `wake_*` |
//! | E2 | [`DeltaFifo::close`] stores `closed` (release) | a consumer loads it (acquire), then looks for tickets | what was pushed before the close | `close_*` |
//! | E3 | take deltas, fence, look for producers | register, fence, ask for room | no wake-up is lost | `room_*` |
//! | E5 | Replace bumps the epoch, then visits a slot under its guard | a producer under that guard, later, reads the epoch | the stamp says "after" | `replace_*` |
//! | E6 | a drain sets its flag, then walks every slot under its guard | a release under that guard, later, reads the flag | the drain is woken | `drain_*` |
//!
//! The fences of E1 and E3 are in `sync/event.rs`, one in `notify` and one in `listen`.
//!
//! # Replace
//!
//! A Replace takes effect at the instant it makes the epoch odd (E5). Producers stamp what they append with the epoch
//! they read under the guard; Replace leaves a key alone that carries a stamp at or past its own. A stamped slot
//! outlives its claim while the Replace runs (I6 in `slot.rs`), because a key that was added after the instant,
//! popped, applied and released must not be tombstoned by the scan of known objects; a delete that found nothing
//! leaves its stamp too. Slots are scanned before known objects, because a key moves slot → known → no slot. (Where known
//! objects are in the slots there is nothing else to scan; see `replace.rs`.)
//! The end makes the epoch even and sweeps the slots that were kept: a release that still read the odd epoch
//! did so under the guard, before the sweep came to that slot.

mod builder;
mod claim;
mod consume;
mod delete;
mod limit;
mod order;
mod process;
mod produce;
mod replace;
mod reservation;
mod reserve;
mod resync;
mod slot;
mod synced;
mod wait;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::compress::{AppendRule, CompressFn};
use crate::delta::{Delta, Deltas};
use crate::index::KeyHash;
use crate::key::{BoxError, KeyFn};
use crate::known::KnownObjects;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Event, Mutex, Ordering, Pool, Row, Shard, Table, Visits};

pub use builder::Builder;
pub use claim::Claim;
pub use consume::Claims;
pub use limit::Limits;
pub use process::Processed;

use limit::Room;
use order::Order;
use reserve::Reserve;
use slot::{Release, Retention, Slot};
use synced::Synced;

/// The hasher of a queue that is given no other: seeded, so that keys cannot be made to collide from outside.
pub type DefaultHashBuilder = foldhash::quality::RandomState;

/// A queue of deltas per key: client-go's `DeltaFIFO` without its one lock.
///
/// Producers report what happened to objects. Consumers take a key with everything that happened to it since it was
/// last taken, one consumer per key at a time. Share it by `Arc`.
///
/// `T` is the object, held by `Arc`; `K` its key; `S` the hasher.
///
/// ```
/// use delta_fifo::{Delta, DeltaFifo};
///
/// // Objects are (name, version); the key is the name.
/// let fifo = DeltaFifo::<(&str, u32), String>::builder_with_key_fn(|o: &(&str, u32)| Ok::<_, &str>(o.0.to_owned())).build();
///
/// fifo.add(("a", 1)).unwrap();
/// fifo.add(("b", 1)).unwrap();
/// fifo.update(("a", 2)).unwrap();
///
/// let claim = fifo.pop_blocking().unwrap();
/// assert_eq!(claim.key(), "a");
/// assert_eq!(claim.deltas().as_slice(), [Delta::Added(("a", 1).into()), Delta::Updated(("a", 2).into())]);
/// drop(claim); // processed: another consumer may now have "a"
/// assert_eq!(fifo.len(), 1);
/// ```
pub struct DeltaFifo<T, K = Arc<str>, S = DefaultHashBuilder>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    slots: Table<K, Slot<T, K>, S>,
    order: Order<K>,
    /// Consumers that sleep.
    consumers: CachePadded<Event>,
    /// Read by every call, written rarely: on one line, away from what is written often.
    state: CachePadded<State>,
    synced: Synced,
    room: Room,
    reserve: Reserve,
    /// Vectors of keys with several deltas, for the next key that needs one.
    buffers: Pool<Vec<Delta<T, K>>>,
    /// Held by a Replace: they run one at a time.
    replacing: Mutex<()>,
    /// Numbers for the reservations of Resyncs and deletes.
    resyncs: AtomicU64,
    /// Drains that wait for the last claim.
    drained: Event,
    options: Options<T, K>,
}

struct State {
    closed: AtomicBool,
    /// Odd while a Replace runs.
    epoch: AtomicU64,
    /// How many drains wait.
    draining: AtomicUsize,
}

struct Options<T, K> {
    name: Cow<'static, str>,
    key_fn: KeyFn<T, K>,
    known: Known<T, K>,
    emit_replaced: bool,
    transform: Option<Transform<T>>,
    rule: AppendRule,
    custom: Option<CompressFn<T, K>>,
}

type Transform<T> = Box<dyn Fn(Arc<T>) -> Result<Arc<T>, BoxError> + Send + Sync>;

/// Where known objects are.
enum Known<T, K> {
    /// Nowhere: a delete of a key that is not in the queue is ignored, Resync does nothing.
    Nowhere,
    /// In the slots: what was released last.
    Embedded,
    /// In the user's store.
    External(Box<dyn KnownObjects<T, K>>),
}

impl<T, K, S> DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn is_embedded(&self) -> bool {
        matches!(self.options.known, Known::Embedded)
    }

    /// The epoch, read under a slot's guard.
    #[inline]
    fn epoch(&self) -> u64 {
        // E5, Relaxed: whoever holds a guard after a Replace visited the slot has the bump by that guard; whoever
        // holds it before may read either value, and both are right, because its call overlaps the instant.
        self.state.epoch.load(Ordering::Relaxed)
    }

    #[inline]
    fn retention(&self) -> Retention<'_> {
        Retention { embedded: self.is_embedded(), epoch: self.epoch(), reserve: &self.reserve }
    }

    /// The number of queued keys. Claimed keys do not count.
    ///
    /// Exact while no other call runs; else a value of the recent past.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert_eq!(fifo.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no key is queued. See [`len`](Self::len).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// assert!(fifo.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys that have pending deltas: queued ones, and claimed ones that have become dirty. In any order.
    ///
    /// Walks the table shard by shard: no snapshot, but a key that is pending all the time is never missed.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert_eq!(fifo.list_keys(), [1]);
    /// ```
    pub fn list_keys(&self) -> Vec<K> {
        self.keys_of(|slot| slot.pending().is_some())
    }

    /// A copy of the pending deltas of a key; `None` if there are none. What a claim has taken is not among them.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// fifo.add(1).unwrap();
    /// assert_eq!(fifo.get(&1).unwrap().len(), 1);
    /// assert!(fifo.get(&2).is_none());
    /// ```
    pub fn get(&self, key: &K) -> Option<Deltas<T, K>> {
        let hash = self.slots.hash(key);
        let mut shard = self.slots.lock(hash);
        shard.find(hash, key).and_then(|row| shard.get_mut(row).pending().cloned())
    }

    /// The object that was processed last for this key, in a queue with an [embedded store](Builder::embedded_store);
    /// else, or if it was deleted or never processed, `None`.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).embedded_store().build();
    /// fifo.add(1).unwrap();
    /// assert!(fifo.known_object(&1).is_none());
    /// drop(fifo.try_pop().unwrap());
    /// assert_eq!(fifo.known_object(&1).as_deref(), Some(&1));
    /// ```
    pub fn known_object(&self, key: &K) -> Option<Arc<T>> {
        let hash = self.slots.hash(key);
        let mut shard = self.slots.lock(hash);
        shard.find(hash, key).and_then(|row| shard.get_mut(row).known().cloned())
    }

    /// The keys of all objects in the [embedded store](Builder::embedded_store), in any order; empty in a queue
    /// without one. No snapshot, like [`list_keys`](Self::list_keys).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).embedded_store().build();
    /// fifo.add(1).unwrap();
    /// drop(fifo.try_pop().unwrap());
    /// assert_eq!(fifo.known_keys(), [1]);
    /// ```
    pub fn known_keys(&self) -> Vec<K> {
        self.keys_of(|slot| slot.known().is_some())
    }

    /// The keys whose slots a walk picks, each once.
    fn keys_of(&self, pick: impl Fn(&Slot<T, K>) -> bool) -> Vec<K> {
        let mut keys = Vec::new();
        let visits = self.slots.scan(|key, slot| {
            if pick(slot) {
                keys.push(key.clone());
            }
        });
        if visits == Visits::Repeated {
            keep_first_of_each(&mut keys, |key| key);
        }
        keys
    }

    /// The row of a key; a new, idle one if it has none. Its slot is the caller's to fill.
    fn row_of(&self, shard: &mut Shard<'_, K, Slot<T, K>>, hash: KeyHash, key: &K) -> Row {
        shard.find(hash, key).unwrap_or_else(|| shard.insert(hash, key.clone(), Slot::new()))
    }

    /// Removes the slot of a key, if there is one and its transition says so. What it returns is to be dropped after the
    /// guard.
    fn remove_if(
        &self,
        shard: &mut Shard<'_, K, Slot<T, K>>,
        hash: KeyHash,
        key: &K,
        transition: impl FnOnce(&mut Slot<T, K>, Retention<'_>) -> Release,
    ) -> Option<(K, Slot<T, K>)> {
        let row = shard.find(hash, key)?;
        let verdict = transition(shard.get_mut(row), self.retention());
        (verdict == Release::Remove).then(|| shard.remove(hash, row))
    }

    /// The queue's name, for logs and metrics.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).name("pods").build();
    /// assert_eq!(fifo.name(), "pods");
    /// ```
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// How many slots the table holds: every pending, claimed, known or reserved key. For the models.
    #[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
    pub fn slots_len(&self) -> usize {
        let mut n = 0;
        let _ = self.slots.scan(|_, _| n += 1);
        n
    }

    /// How many tickets there are, live or dead. For the models.
    #[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
    pub fn has_no_ticket(&self) -> bool {
        self.order.has_no_ticket()
    }
}

/// Of the items of one key leaves the first.
fn keep_first_of_each<I, K: Clone + Eq + Hash>(items: &mut Vec<I>, key: impl Fn(&I) -> &K) {
    let mut seen = HashSet::with_capacity(items.len());
    items.retain(|item| seen.insert(key(item).clone()));
}

// A panic in user code leaves the queue as its documentation says, whatever its parts say of themselves.
impl<T, K, S> UnwindSafe for DeltaFifo<T, K, S>
where
    T: RefUnwindSafe,
    K: Clone + Eq + Hash + RefUnwindSafe,
    S: BuildHasher + Clone,
{
}

impl<T, K, S> RefUnwindSafe for DeltaFifo<T, K, S>
where
    T: RefUnwindSafe,
    K: Clone + Eq + Hash + RefUnwindSafe,
    S: BuildHasher + Clone,
{
}

impl<T, K, S> fmt::Debug for DeltaFifo<T, K, S>
where
    K: Clone + Eq + Hash,
    S: BuildHasher + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifo")
            .field("name", &self.options.name)
            .field("len", &self.len())
            .field("has_synced", &self.has_synced())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

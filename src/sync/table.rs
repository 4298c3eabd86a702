//! The table: keys hashed once, by the caller, and looked up without being cloned.
//!
//! ```text
//!  key ──hash──► segment ─┬─ index: hash ──► row       (only who comes with nothing but a key needs it)
//!                         └─ rows:  row ──► (key, value)
//! ```
//!
//! A segment is a value of a sharded `DashMap`, which has a shard for each of them, so its lock is the segment's. The
//! entries of a segment lie side by side, in the order in which they came, and its index has eight bytes for each. So an
//! idle key costs little, a pop and a release find their entry without a look into the index, and a walk runs through
//! memory from end to end and need not hold a lock for more than a few entries.
//!
//! In a map of keys itself (DashMap's, hashbrown's below it) entries have no place that could be noted, so all three
//! calls of an event look their key up, and a walk holds a shard from its first entry to the last.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;

use dashmap::{DashMap, RawRwLock, RwLockWriteGuard, SharedValue};
use lock_api::MappedRwLockWriteGuard;

use super::real::Held;
use super::rows::{Hint, Keeping, Part, Row, Rows, Visits, walk};
use crate::index::{Index, KeyHash};

/// How many entries a walk visits under one guard.
const STRIDE: usize = 32;

/// How many entries the first one of a segment makes room for, at most.
const MOST_ROOM: usize = 2048;

/// A sharded map of entries that have a place besides their key.
pub(crate) struct Table<K, V, S> {
    /// In each shard the segment of that number, and nothing else.
    segments: DashMap<u32, Segment<K, V>, BuildHasherDefault<Zero>>,
    /// There are two to the power of this many.
    bits: u32,
    hasher: S,
}

struct Segment<K, V> {
    rows: Rows<K, V>,
    index: Index,
}

/// The hash of all segments: each is alone in its shard, and the shard is chosen by number.
#[derive(Clone, Default)]
struct Zero;

impl Hasher for Zero {
    fn write(&mut self, _: &[u8]) {}

    fn finish(&self) -> u64 {
        0
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Table<K, V, S> {
    /// `segments` is a power of two, at least two; `keys` is how many the whole table makes room for as they come.
    pub(crate) fn new(segments: usize, keys: usize, hasher: S) -> Self {
        let map = DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), segments);
        // A sixteenth more than an even share, because no share is even; but a wrong guess must not cost much.
        let share = keys.div_ceil(segments).min(MOST_ROOM);
        let keeping = Keeping { room: share + share / 16, compacts: |rows, left| rows > 64 && left < rows / 8 };
        for (number, shard) in (0..).zip(map.shards()) {
            let segment = Segment { rows: Rows::new(keeping), index: Index::new() };
            shard.write().insert(0, (number, SharedValue::new(segment)), |_| 0);
        }
        Table { segments: map, bits: segments.trailing_zeros(), hasher }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &K) -> KeyHash {
        KeyHash::of(&self.hasher, key)
    }

    /// Locks the segment of a hash. The guard must live for O(1) work only, with no user code but the key's `Eq`
    /// and `Clone`.
    #[inline]
    pub(crate) fn lock(&self, hash: KeyHash) -> Shard<'_, K, V> {
        self.lock_at(hash.high(self.bits) as usize)
    }

    #[inline]
    fn lock_at(&self, number: usize) -> Shard<'_, K, V> {
        let held = Held::new();
        let segment = RwLockWriteGuard::map(self.segments.shards()[number].write(), |shard| {
            shard.get_mut(0, |_| true).expect(HAS_SEGMENT).1.get_mut()
        });
        Shard { segment, _held: held }
    }

    /// Whether a key with this hash belongs where the walk has met it. If not, its `Hash` is inconsistent, and it cannot
    /// be found; it must not be taken for a key of another segment.
    pub(crate) fn belongs(&self, hash: KeyHash, shard: usize) -> bool {
        hash.high(self.bits) as usize == shard
    }

    /// Visits every entry, a few under one guard at a time; see [`walk`].
    pub(crate) fn scan(&self, mut visit: impl FnMut(&K, &V)) -> Visits {
        self.scan_shards(|shard, part| {
            part.filter_map(|row| shard.entry(row)).for_each(|(key, value)| visit(key, value))
        })
    }

    /// The same with the guard, which the visitor drops before it runs user code.
    pub(crate) fn scan_shards(&self, visit: impl FnMut(Shard<'_, K, V>, Part)) -> Visits {
        walk((0..1 << self.bits).map(|number| move || self.lock_at(number)), STRIDE, visit)
    }
}

/// One locked segment. The hashes that are passed in are those of its keys.
pub(crate) struct Shard<'a, K, V> {
    segment: MappedRwLockWriteGuard<'a, RawRwLock, Segment<K, V>>,
    _held: Held,
}

const HAS_SEGMENT: &str = "every shard has its segment from the beginning";

impl<K, V> Deref for Shard<'_, K, V> {
    type Target = Rows<K, V>;

    #[inline]
    fn deref(&self) -> &Rows<K, V> {
        &self.segment.rows
    }
}

impl<K: Eq, V> Shard<'_, K, V> {
    /// The row of a key.
    #[inline]
    pub(crate) fn find(&self, hash: KeyHash, key: &K) -> Option<Row> {
        let Segment { rows, index } = &*self.segment;
        index.find(hash, |row| rows.holds_key(Row(row), key)).map(Row)
    }

    /// The row of a key, which was once where the hint says.
    #[inline]
    pub(crate) fn recall(&self, hint: Hint, key: &K) -> Option<Row> {
        if self.holds(hint, key) { Some(hint.row()) } else { self.find(hint.hash(), key) }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, row: Row) -> &mut V {
        self.segment.rows.value_mut(row)
    }

    #[inline]
    pub(crate) fn mark(&mut self, row: Row, whom: u64) {
        self.segment.rows.mark(row, whom);
    }

    pub(crate) fn clear_marks(&mut self) {
        self.segment.rows.clear_marks();
    }

    /// Adds an entry whose key is not in the map.
    pub(crate) fn insert(&mut self, hash: KeyHash, key: K, value: V) -> Row {
        let Segment { rows, index } = &mut *self.segment;
        let row = rows.push(key, value);
        index.insert(hash, row.0);
        row
    }

    /// Removes an entry; key and value are the caller's to drop, after the guard. A segment that has become nearly empty
    /// gives its memory back.
    pub(crate) fn remove(&mut self, hash: KeyHash, row: Row) -> (K, V) {
        let Segment { rows, index } = &mut *self.segment;
        index.remove(hash, row.0);
        let removed = rows.remove(row);
        if let Some(now) = rows.compact() {
            index.renumber(|row| now[row as usize]);
        }
        removed
    }
}

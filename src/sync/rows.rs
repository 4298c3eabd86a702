//! The rows of a shard, and the walk over all shards. The same file in every build.
//!
//! A shard keeps its entries side by side in a vector, so an entry has a *row*: a number that finds it without its key
//! being hashed and looked up. A row that was noted under an earlier guard is a *hint*: whoever comes back with one
//! finds out whether the row is still the key's, and looks the key up if it is not.
//!
//! A removal leaves a gap, which the next new entry fills. Where most rows are gaps, the rest is moved together, and the
//! memory given back. Rows only move towards the front, and keep their order: so a walk that goes towards the front
//! misses none, and need not hold a shard for longer than a few rows at a time.

use std::ops::{Deref, Range};

use crate::index::{KeyHash, size_above};
use crate::seeded::{self, Bug};

/// A row of a locked shard, for as long as the guard it was found under lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row(pub(super) u32);

/// Where a key was when its ticket was pushed or its claim made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint {
    hash: KeyHash,
    row: Row,
    /// The removals of the shard at that time. As long as there has been none since, the row is the key's.
    removals: u32,
}

impl Hint {
    #[inline]
    pub(crate) fn hash(self) -> KeyHash {
        self.hash
    }

    /// For the guard under which the hint was made.
    #[inline]
    pub(crate) fn row(self) -> Row {
        self.row
    }

    /// A hint that is as good as none.
    pub(crate) fn none(hash: KeyHash) -> Self {
        Hint { hash, row: Row(u32::MAX), removals: u32::MAX }
    }
}

/// How a shard's memory is kept.
#[derive(Clone, Copy)]
pub(super) struct Keeping {
    /// How many entries the first one makes room for.
    pub(super) room: usize,
    /// Whether so many rows, of which so many are no gaps, are to be moved together.
    pub(super) compacts: fn(rows: usize, left: usize) -> bool,
}

/// The entries of a shard.
pub(crate) struct Rows<K, V> {
    entries: Vec<Option<(K, V)>>,
    gaps: Vec<u32>,
    /// A bit per row, or nothing where none is marked.
    marks: Vec<u64>,
    /// Whose marks they are. What a Replace that panicked has left behind is nobody's.
    marked_by: u64,
    keeping: Keeping,
    /// How often a row has been removed. Stays at its maximum, so that no two states look alike.
    removals: u32,
}

impl<K, V> Rows<K, V> {
    pub(super) const fn new(keeping: Keeping) -> Self {
        Rows { entries: Vec::new(), gaps: Vec::new(), marks: Vec::new(), marked_by: 0, keeping, removals: 0 }
    }

    /// The entry of a row; a gap has none.
    #[inline]
    pub(crate) fn entry(&self, row: Row) -> Option<(&K, &V)> {
        self.entries.get(row.0 as usize)?.as_ref().map(|(key, value)| (key, value))
    }

    #[inline]
    pub(super) fn holds_key(&self, row: Row, key: &K) -> bool
    where
        K: Eq,
    {
        self.entry(row).is_some_and(|(there, _)| there == key)
    }

    /// Whether this is still the row of `key`.
    #[inline]
    pub(super) fn holds(&self, hint: Hint, key: &K) -> bool
    where
        K: Eq,
    {
        let unchanged = hint.removals == self.removals && self.removals != u32::MAX;
        unchanged || seeded::on(Bug::HintIsTrusted) || self.holds_key(hint.row, key)
    }

    /// The way back to this row under a later guard.
    #[inline]
    pub(crate) fn hint(&self, hash: KeyHash, row: Row) -> Hint {
        Hint { hash, row, removals: self.removals }
    }

    #[inline]
    pub(super) fn value_mut(&mut self, row: Row) -> &mut V {
        &mut self.entries[row.0 as usize].as_mut().expect("a row that was found has an entry").1
    }

    /// Looks at every row; for stand-ins, which have no index.
    #[cfg(any(test, all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
    pub(super) fn find(&self, key: &K) -> Option<Row>
    where
        K: Eq,
    {
        (0..self.entries.len() as u32).map(Row).find(|&row| self.holds_key(row, key))
    }

    pub(super) fn push(&mut self, key: K, value: V) -> Row {
        if let Some(gap) = self.gaps.pop() {
            self.entries[gap as usize] = Some((key, value));
            return Row(gap);
        }
        let len = self.entries.len();
        let row = u32::try_from(len).ok().filter(|&row| row != u32::MAX).expect("a shard holds fewer than 2^32 keys");
        if len == self.entries.capacity() {
            let size = if len < self.keeping.room { self.keeping.room } else { size_above(len) };
            self.entries.reserve_exact(size - len);
        }
        self.entries.push(Some((key, value)));
        Row(row)
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, row: Row) -> (K, V) {
        let removed = self.entries[row.0 as usize].take().expect("a row that was found has an entry");
        self.removals = self.removals.saturating_add(1);
        self.gaps.push(row.0);
        if let Some(word) = self.marks.get_mut(row.0 as usize / 64) {
            *word &= !(1 << (row.0 % 64));
        }
        removed
    }

    /// Moves the entries together if most rows are gaps. Says, for each row of before, which it is now.
    pub(super) fn compact(&mut self) -> Option<Vec<u32>> {
        let (rows, left) = (self.entries.len(), self.entries.len() - self.gaps.len());
        if !(self.keeping.compacts)(rows, left) {
            return None;
        }
        let mut now = vec![u32::MAX; rows];
        let mut marks = vec![0; if self.marks.is_empty() { 0 } else { left.div_ceil(64) }];
        let mut next = 0;
        for (row, now) in now.iter_mut().enumerate() {
            if self.entries[row].is_some() {
                if self.has_mark(Row(row as u32)) && !seeded::on(Bug::MarkStaysBehind) {
                    marks[next / 64] |= 1 << (next % 64);
                }
                *now = next as u32;
                next += 1;
            }
        }
        self.entries.retain(Option::is_some);
        self.entries.shrink_to(size_above(left * 2));
        (self.gaps, self.marks) = (Vec::new(), marks);
        Some(now)
    }

    /// Marks a row for `whom`: a Replace notes so which keys are in its list.
    #[inline]
    pub(super) fn mark(&mut self, row: Row, whom: u64) {
        if self.marked_by != whom && !seeded::on(Bug::ReplaceKeepsMarks) {
            self.marks.clear();
        }
        self.marked_by = whom;
        let word = row.0 as usize / 64;
        if word >= self.marks.len() {
            self.marks.resize(self.entries.len().div_ceil(64), 0);
        }
        self.marks[word] |= 1 << (row.0 % 64);
    }

    #[inline]
    pub(crate) fn is_marked(&self, row: Row, whom: u64) -> bool {
        (self.marked_by == whom || seeded::on(Bug::ReplaceKeepsMarks)) && self.has_mark(row)
    }

    #[inline]
    fn has_mark(&self, row: Row) -> bool {
        self.marks.get(row.0 as usize / 64).is_some_and(|word| word >> (row.0 % 64) & 1 != 0)
    }

    pub(super) fn clear_marks(&mut self) {
        self.marks = Vec::new();
    }
}

/// Whether a walk may have visited a key more than once.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Visits {
    Once,
    /// Rows were removed meanwhile: others moved to where the walk had not been yet, or a key came back there.
    Repeated,
}

/// Some rows of a locked shard, gaps among them.
pub(crate) struct Part {
    rows: Range<usize>,
    shard: usize,
    is_last: bool,
}

impl Part {
    /// The number of the shard.
    pub(crate) fn shard(&self) -> usize {
        self.shard
    }

    /// Whether the walk is done with this shard then.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }
}

impl Iterator for Part {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        // Backwards: the visitor may remove the row it has, and rows may move then.
        self.rows.next_back().map(|row| Row(row as u32))
    }
}

/// Visits the rows of all shards, at most `stride` under one guard, which the visitor is given to drop. No snapshot: a
/// row that is there all the time is visited, one that comes or goes meanwhile may be.
pub(super) fn walk<G, K, V>(
    shards: impl Iterator<Item = impl Fn() -> G>,
    stride: usize,
    mut visit: impl FnMut(G, Part),
) -> Visits
where
    G: Deref<Target = Rows<K, V>>,
{
    let upwards = seeded::on(Bug::WalkTowardsTheEnd);
    let mut visits = Visits::Once;
    for (shard, lock) in shards.enumerate() {
        let (mut done, mut rest) = (0, usize::MAX);
        let mut removals = None;
        // An empty shard is locked as well: callers rely on every guard having been taken once.
        loop {
            let guard = lock();
            let len = guard.entries.len();
            if *removals.get_or_insert(guard.removals) != guard.removals || guard.removals == u32::MAX {
                visits = Visits::Repeated;
            }
            let rows = match upwards {
                false => rest.min(len).saturating_sub(stride)..rest.min(len),
                true => done.min(len)..(done + stride).min(len),
            };
            (done, rest) = (rows.end, rows.start);
            let is_last = if upwards { done == len } else { rest == 0 };
            visit(guard, Part { rows, shard, is_last });
            if is_last {
                break;
            }
        }
    }
    visits
}

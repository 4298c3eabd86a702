//! What a consumer is handed: the changes of one key, oldest first.
//!
//! ```text
//! Deltas = [ Added(v1), Updated(v2), Deleted(Observed(v2)), Added(v3) ]
//!            oldest                                         newest
//! ```
//!
//! Types and meaning are those of client-go (`docs/semantics.md`, rules A.13 and E11), except that a deletion
//! says in its type whether it was seen or inferred.

use std::fmt;
use std::sync::Arc;

/// One change of one object.
///
/// In every variant but [`Deleted`](Delta::Deleted) the object is the state *after* the change.
///
/// ```
/// use delta_fifo::{Delta, DeltaType};
/// use std::sync::Arc;
///
/// let delta: Delta<&str> = Delta::Updated(Arc::new("new state"));
/// assert_eq!(delta.delta_type(), DeltaType::Updated);
/// assert_eq!(delta.object().map(|o| **o), Some("new state"));
/// ```
pub enum Delta<T, K = Arc<str>> {
    /// The producer reported a new object.
    Added(Arc<T>),
    /// The producer reported a changed object.
    Updated(Arc<T>),
    /// The object is gone.
    Deleted(Deleted<T, K>),
    /// The object was part of a [`replace`](crate::DeltaFifo::replace) list, in a queue built with
    /// [`emit_replaced`](crate::Builder::emit_replaced).
    Replaced(Arc<T>),
    /// The object was replayed by [`resync`](crate::DeltaFifo::resync), or was part of a
    /// [`replace`](crate::DeltaFifo::replace) list in a queue built without `emit_replaced`.
    Sync(Arc<T>),
}

/// How a deletion became known. A consumer that matches on it cannot forget the second case.
///
/// ```
/// use delta_fifo::{Deleted, DeletedFinalStateUnknown};
/// use std::sync::Arc;
///
/// let seen: Deleted<u32> = Deleted::Observed(Arc::new(7));
/// let inferred: Deleted<u32> = Deleted::FinalStateUnknown(Arc::new(DeletedFinalStateUnknown {
///     key: "ns/pod".into(),
///     object: None,
/// }));
/// assert_eq!(seen.object().map(|o| **o), Some(7));
/// assert!(inferred.object().is_none());
/// ```
pub enum Deleted<T, K = Arc<str>> {
    /// The deletion was reported, with the object's last state.
    Observed(Arc<T>),
    /// The object was found missing: it is gone, but nobody saw it go (client-go's tombstone).
    FinalStateUnknown(Arc<DeletedFinalStateUnknown<T, K>>),
}

/// The tombstone of an object whose deletion nobody saw.
///
/// ```
/// use delta_fifo::DeletedFinalStateUnknown;
///
/// let tombstone: DeletedFinalStateUnknown<u32> = DeletedFinalStateUnknown { key: "ns/pod".into(), object: None };
/// assert_eq!(&*tombstone.key, "ns/pod");
/// ```
pub struct DeletedFinalStateUnknown<T, K = Arc<str>> {
    /// The key of the object that is gone.
    pub key: K,
    /// The newest state that anybody saw, which may be stale; `None` if no state is known.
    pub object: Option<Arc<T>>,
}

/// The kind of a [`Delta`], without its object.
///
/// ```
/// use delta_fifo::DeltaType;
///
/// assert_eq!(DeltaType::Sync.as_str(), "Sync");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeltaType {
    /// [`Delta::Added`]
    Added,
    /// [`Delta::Updated`]
    Updated,
    /// [`Delta::Deleted`]
    Deleted,
    /// [`Delta::Replaced`]
    Replaced,
    /// [`Delta::Sync`]
    Sync,
}

impl DeltaType {
    /// client-go's name of the type.
    ///
    /// ```
    /// assert_eq!(delta_fifo::DeltaType::Added.as_str(), "Added");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            DeltaType::Added => "Added",
            DeltaType::Updated => "Updated",
            DeltaType::Deleted => "Deleted",
            DeltaType::Replaced => "Replaced",
            DeltaType::Sync => "Sync",
        }
    }
}

impl fmt::Display for DeltaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T, K> Delta<T, K> {
    /// The kind of change.
    ///
    /// ```
    /// use delta_fifo::{Delta, DeltaType};
    ///
    /// let delta: Delta<u32> = Delta::Added(1.into());
    /// assert_eq!(delta.delta_type(), DeltaType::Added);
    /// ```
    pub fn delta_type(&self) -> DeltaType {
        match self {
            Delta::Added(_) => DeltaType::Added,
            Delta::Updated(_) => DeltaType::Updated,
            Delta::Deleted(_) => DeltaType::Deleted,
            Delta::Replaced(_) => DeltaType::Replaced,
            Delta::Sync(_) => DeltaType::Sync,
        }
    }

    /// The object of the change: its new state, or for a deletion the last state that is known. `None` only for a
    /// tombstone that carries no object.
    ///
    /// ```
    /// use delta_fifo::Delta;
    ///
    /// let delta: Delta<u32> = Delta::Sync(1.into());
    /// assert_eq!(delta.object().map(|o| **o), Some(1));
    /// ```
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Delta::Added(o) | Delta::Updated(o) | Delta::Replaced(o) | Delta::Sync(o) => Some(o),
            Delta::Deleted(deleted) => deleted.object(),
        }
    }

    /// Whether the object is gone after this change.
    ///
    /// ```
    /// use delta_fifo::{Delta, Deleted};
    ///
    /// let delta: Delta<u32> = Delta::Deleted(Deleted::Observed(1.into()));
    /// assert!(delta.is_deleted());
    /// ```
    pub fn is_deleted(&self) -> bool {
        matches!(self, Delta::Deleted(_))
    }
}

impl<T, K> Deleted<T, K> {
    /// The last state that is known.
    ///
    /// ```
    /// let deleted: delta_fifo::Deleted<u32> = delta_fifo::Deleted::Observed(1.into());
    /// assert!(deleted.object().is_some());
    /// ```
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Deleted::Observed(object) => Some(object),
            Deleted::FinalStateUnknown(tombstone) => tombstone.object.as_ref(),
        }
    }

    /// Whether the deletion was inferred, not seen.
    ///
    /// ```
    /// let deleted: delta_fifo::Deleted<u32> = delta_fifo::Deleted::Observed(1.into());
    /// assert!(!deleted.is_final_state_unknown());
    /// ```
    pub fn is_final_state_unknown(&self) -> bool {
        matches!(self, Deleted::FinalStateUnknown(_))
    }
}

// Clone, Debug and PartialEq by hand: `derive` would ask `T: Clone`, and an `Arc` needs no such thing.
impl<T, K> Clone for Delta<T, K> {
    fn clone(&self) -> Self {
        match self {
            Delta::Added(o) => Delta::Added(o.clone()),
            Delta::Updated(o) => Delta::Updated(o.clone()),
            Delta::Deleted(d) => Delta::Deleted(d.clone()),
            Delta::Replaced(o) => Delta::Replaced(o.clone()),
            Delta::Sync(o) => Delta::Sync(o.clone()),
        }
    }
}

impl<T, K> Clone for Deleted<T, K> {
    fn clone(&self) -> Self {
        match self {
            Deleted::Observed(o) => Deleted::Observed(o.clone()),
            Deleted::FinalStateUnknown(t) => Deleted::FinalStateUnknown(t.clone()),
        }
    }
}

impl<T: fmt::Debug, K: fmt::Debug> fmt::Debug for Delta<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delta::Added(o) => f.debug_tuple("Added").field(o).finish(),
            Delta::Updated(o) => f.debug_tuple("Updated").field(o).finish(),
            Delta::Deleted(d) => f.debug_tuple("Deleted").field(d).finish(),
            Delta::Replaced(o) => f.debug_tuple("Replaced").field(o).finish(),
            Delta::Sync(o) => f.debug_tuple("Sync").field(o).finish(),
        }
    }
}

impl<T: fmt::Debug, K: fmt::Debug> fmt::Debug for Deleted<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deleted::Observed(o) => f.debug_tuple("Observed").field(o).finish(),
            Deleted::FinalStateUnknown(t) => f.debug_tuple("FinalStateUnknown").field(t).finish(),
        }
    }
}

impl<T: fmt::Debug, K: fmt::Debug> fmt::Debug for DeletedFinalStateUnknown<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeletedFinalStateUnknown").field("key", &self.key).field("object", &self.object).finish()
    }
}

impl<T: PartialEq, K: PartialEq> PartialEq for Delta<T, K> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Delta::Added(a), Delta::Added(b))
            | (Delta::Updated(a), Delta::Updated(b))
            | (Delta::Replaced(a), Delta::Replaced(b))
            | (Delta::Sync(a), Delta::Sync(b)) => a == b,
            (Delta::Deleted(a), Delta::Deleted(b)) => a == b,
            _ => false,
        }
    }
}

impl<T: PartialEq, K: PartialEq> PartialEq for Deleted<T, K> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Deleted::Observed(a), Deleted::Observed(b)) => a == b,
            (Deleted::FinalStateUnknown(a), Deleted::FinalStateUnknown(b)) => a == b,
            _ => false,
        }
    }
}

impl<T: PartialEq, K: PartialEq> PartialEq for DeletedFinalStateUnknown<T, K> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.object == other.object
    }
}

impl<T: Eq, K: Eq> Eq for Delta<T, K> {}
impl<T: Eq, K: Eq> Eq for Deleted<T, K> {}
impl<T: Eq, K: Eq> Eq for DeletedFinalStateUnknown<T, K> {}

/// The changes of one key, oldest first. Dereferences to a slice.
///
/// A single delta is held without an allocation.
///
/// ```
/// use delta_fifo::{Delta, Deltas};
///
/// let deltas: Deltas<u32> = [Delta::Added(1.into()), Delta::Updated(2.into())].into_iter().collect();
/// assert_eq!(deltas.oldest(), Some(&Delta::Added(1.into())));
/// assert_eq!(deltas.newest(), Some(&Delta::Updated(2.into())));
/// assert_eq!(deltas.len(), 2);
/// ```
pub struct Deltas<T, K = Arc<str>>(Repr<T, K>);

enum Repr<T, K> {
    Empty,
    One(Delta<T, K>),
    Many(Vec<Delta<T, K>>),
}

impl<T, K> Deltas<T, K> {
    /// No deltas.
    ///
    /// ```
    /// assert!(delta_fifo::Deltas::<u32>::new().is_empty());
    /// ```
    pub const fn new() -> Self {
        Deltas(Repr::Empty)
    }

    /// The first of the changes; `None` if there is none (a [`Claim`](crate::Claim) always has one).
    ///
    /// ```
    /// assert!(delta_fifo::Deltas::<u32>::new().oldest().is_none());
    /// ```
    pub fn oldest(&self) -> Option<&Delta<T, K>> {
        self.first()
    }

    /// The last of the changes; `None` if there is none (a [`Claim`](crate::Claim) always has one).
    ///
    /// ```
    /// assert!(delta_fifo::Deltas::<u32>::new().newest().is_none());
    /// ```
    pub fn newest(&self) -> Option<&Delta<T, K>> {
        self.last()
    }

    /// The deltas as a slice, oldest first.
    ///
    /// ```
    /// assert_eq!(delta_fifo::Deltas::<u32>::new().as_slice().len(), 0);
    /// ```
    pub fn as_slice(&self) -> &[Delta<T, K>] {
        match &self.0 {
            Repr::Empty => &[],
            Repr::One(delta) => std::slice::from_ref(delta),
            Repr::Many(deltas) => deltas,
        }
    }

    /// Appends without any compression. `buffer` is asked for a vector when one delta becomes two.
    pub(crate) fn push_with(&mut self, delta: Delta<T, K>, buffer: impl FnOnce() -> Vec<Delta<T, K>>) {
        match &mut self.0 {
            Repr::Empty => self.0 = Repr::One(delta),
            Repr::Many(deltas) => deltas.push(delta),
            Repr::One(_) => {
                let Repr::One(first) = std::mem::replace(&mut self.0, Repr::Many(buffer())) else { unreachable!() };
                let Repr::Many(deltas) = &mut self.0 else { unreachable!() };
                deltas.push(first);
                deltas.push(delta);
            }
        }
    }

    /// Appends one delta, without any compression.
    ///
    /// ```
    /// use delta_fifo::{Delta, Deltas};
    ///
    /// let mut deltas: Deltas<u32> = Deltas::new();
    /// deltas.push(Delta::Added(1.into()));
    /// assert_eq!(deltas.len(), 1);
    /// ```
    pub fn push(&mut self, delta: Delta<T, K>) {
        self.push_with(delta, || Vec::with_capacity(4));
    }

    pub(crate) fn newest_mut(&mut self) -> Option<&mut Delta<T, K>> {
        match &mut self.0 {
            Repr::Empty => None,
            Repr::One(delta) => Some(delta),
            Repr::Many(deltas) => deltas.last_mut(),
        }
    }

    /// Removes and returns the newest delta.
    pub(crate) fn pop_newest(&mut self) -> Option<Delta<T, K>> {
        match &mut self.0 {
            Repr::Many(deltas) => deltas.pop(),
            _ => match std::mem::replace(&mut self.0, Repr::Empty) {
                Repr::One(delta) => Some(delta),
                _ => None,
            },
        }
    }

    /// Drops the deltas; gives back the vector they were in, if there was one, for the next key that needs it.
    pub(crate) fn recycle(self) -> Option<Vec<Delta<T, K>>> {
        match self.0 {
            Repr::Many(mut deltas) => {
                deltas.clear();
                Some(deltas)
            }
            _ => None,
        }
    }
}

impl<T, K> std::ops::Deref for Deltas<T, K> {
    type Target = [Delta<T, K>];

    fn deref(&self) -> &[Delta<T, K>] {
        self.as_slice()
    }
}

impl<T, K> Default for Deltas<T, K> {
    fn default() -> Self {
        Deltas::new()
    }
}

impl<T, K> Clone for Deltas<T, K> {
    fn clone(&self) -> Self {
        self.iter().cloned().collect()
    }
}

impl<T: fmt::Debug, K: fmt::Debug> fmt::Debug for Deltas<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: PartialEq, K: PartialEq> PartialEq for Deltas<T, K> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq, K: Eq> Eq for Deltas<T, K> {}

impl<T, K> FromIterator<Delta<T, K>> for Deltas<T, K> {
    fn from_iter<I: IntoIterator<Item = Delta<T, K>>>(iter: I) -> Self {
        let mut deltas = Deltas::new();
        deltas.extend(iter);
        deltas
    }
}

impl<T, K> Extend<Delta<T, K>> for Deltas<T, K> {
    fn extend<I: IntoIterator<Item = Delta<T, K>>>(&mut self, iter: I) {
        for delta in iter {
            self.push(delta);
        }
    }
}

impl<T, K, const N: usize> From<[Delta<T, K>; N]> for Deltas<T, K> {
    fn from(deltas: [Delta<T, K>; N]) -> Self {
        deltas.into_iter().collect()
    }
}

impl<T, K> From<Vec<Delta<T, K>>> for Deltas<T, K> {
    fn from(deltas: Vec<Delta<T, K>>) -> Self {
        Deltas(if deltas.is_empty() { Repr::Empty } else { Repr::Many(deltas) })
    }
}

impl<T, K> IntoIterator for Deltas<T, K> {
    type Item = Delta<T, K>;
    type IntoIter = DeltasIntoIter<T, K>;

    fn into_iter(self) -> DeltasIntoIter<T, K> {
        DeltasIntoIter(match self.0 {
            Repr::Empty => IntoIterRepr::One(None),
            Repr::One(delta) => IntoIterRepr::One(Some(delta)),
            Repr::Many(deltas) => IntoIterRepr::Many(deltas.into_iter()),
        })
    }
}

impl<'a, T, K> IntoIterator for &'a Deltas<T, K> {
    type Item = &'a Delta<T, K>;
    type IntoIter = std::slice::Iter<'a, Delta<T, K>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Owning iterator over [`Deltas`], oldest first.
///
/// ```
/// use delta_fifo::{Delta, Deltas};
///
/// let deltas: Deltas<u32> = [Delta::Added(1.into())].into_iter().collect();
/// assert_eq!(deltas.into_iter().next(), Some(Delta::Added(1.into())));
/// ```
pub struct DeltasIntoIter<T, K = Arc<str>>(IntoIterRepr<T, K>);

enum IntoIterRepr<T, K> {
    One(Option<Delta<T, K>>),
    Many(std::vec::IntoIter<Delta<T, K>>),
}

impl<T, K> fmt::Debug for DeltasIntoIter<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltasIntoIter").field("remaining", &self.size_hint().0).finish()
    }
}

impl<T, K> Iterator for DeltasIntoIter<T, K> {
    type Item = Delta<T, K>;

    fn next(&mut self) -> Option<Delta<T, K>> {
        match &mut self.0 {
            IntoIterRepr::One(delta) => delta.take(),
            IntoIterRepr::Many(deltas) => deltas.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = match &self.0 {
            IntoIterRepr::One(delta) => usize::from(delta.is_some()),
            IntoIterRepr::Many(deltas) => deltas.len(),
        };
        (n, Some(n))
    }
}

impl<T, K> DoubleEndedIterator for DeltasIntoIter<T, K> {
    fn next_back(&mut self) -> Option<Delta<T, K>> {
        match &mut self.0 {
            IntoIterRepr::One(delta) => delta.take(),
            IntoIterRepr::Many(deltas) => deltas.next_back(),
        }
    }
}

impl<T, K> ExactSizeIterator for DeltasIntoIter<T, K> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_the_memory_budget_counts_on() {
        assert_eq!(size_of::<Delta<u64>>(), 16);
        assert_eq!(size_of::<Option<Delta<u64>>>(), 16);
        assert_eq!(size_of::<Deltas<u64>>(), 24);
    }

    #[test]
    fn one_becomes_two_in_order() {
        let mut deltas: Deltas<u32> = Deltas::new();
        deltas.push(Delta::Added(1.into()));
        deltas.push(Delta::Updated(2.into()));
        assert_eq!(deltas.pop_newest(), Some(Delta::Updated(2.into())));
        assert_eq!(deltas.pop_newest(), Some(Delta::Added(1.into())));
        assert_eq!(deltas.pop_newest(), None);
    }

    #[test]
    fn deltas_can_be_read_from_both_ends() {
        let deltas: Deltas<u32> = [Delta::Added(1.into()), Delta::Updated(2.into())].into();
        let reversed: Vec<_> = deltas.into_iter().rev().collect();
        assert_eq!(reversed, [Delta::Updated(2.into()), Delta::Added(1.into())]);
    }
}

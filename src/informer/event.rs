//! What a handler is told.

use std::fmt;
use std::sync::Arc;

use crate::delta::Deleted;

/// One change, for one handler.
///
/// ```
/// use delta_fifo::informer::{Event, EventKind, Reason};
///
/// let event: Event<u32, u32> = Event {
///     key: 7,
///     kind: EventKind::Added { object: 7.into(), initial: true },
///     reason: Reason::Relist,
///     attempt: 1,
/// };
/// assert_eq!(event.object().map(|object| **object), Some(7));
/// ```
pub struct Event<T, K = Arc<str>> {
    /// The key of the object.
    pub key: K,
    /// What happened.
    pub kind: EventKind<T, K>,
    /// Why the handler hears of it.
    pub reason: Reason,
    /// 1, or more if the handler failed before.
    pub attempt: u32,
}

/// What happened to an object. Whether an object is new is decided by what the store had, not by what the source said.
///
/// ```
/// use delta_fifo::informer::EventKind;
///
/// fn name(kind: &EventKind<u32, u32>) -> &'static str {
///     match kind {
///         EventKind::Added { initial: true, .. } => "was there",
///         EventKind::Added { .. } => "added",
///         EventKind::Updated { .. } => "updated",
///         EventKind::Deleted(deleted) if deleted.is_final_state_unknown() => "gone, nobody saw it go",
///         EventKind::Deleted(_) => "deleted",
///     }
/// }
/// assert_eq!(name(&EventKind::Updated { old: 1.into(), new: 2.into() }), "updated");
/// ```
pub enum EventKind<T, K = Arc<str>> {
    /// The object was not there before.
    Added {
        /// Its state.
        object: Arc<T>,
        /// Part of the initial list, or of the content of the store when the handler was added.
        initial: bool,
    },
    /// The object was there. Old and new are the same object if this is a Resync.
    Updated {
        /// What it was.
        old: Arc<T>,
        /// What it is.
        new: Arc<T>,
    },
    /// The object is gone: seen to be deleted, with its final state, or found missing, with the last state known.
    Deleted(Deleted<T, K>),
}

/// Why a handler hears of an object.
///
/// ```
/// use delta_fifo::informer::Reason;
/// assert_ne!(Reason::Relist, Reason::Resync);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The source reported a change.
    Watch,
    /// A list was made, the first one or after a break: the change may be older, and may stand for several.
    Relist,
    /// Nothing changed; the handler asked to see everything from time to time.
    Resync,
    /// The handler came late, and this is what is there.
    Replay,
}

impl<T, K> Event<T, K> {
    /// The object's state after the change, or the last one known if it is gone.
    ///
    /// ```
    /// use delta_fifo::informer::{Event, EventKind, Reason};
    /// let kind = EventKind::Updated { old: 1.into(), new: 2.into() };
    /// let event: Event<u32, u32> = Event { key: 7, kind, reason: Reason::Watch, attempt: 1 };
    /// assert_eq!(event.object().map(|object| **object), Some(2));
    /// ```
    pub fn object(&self) -> Option<&Arc<T>> {
        match &self.kind {
            EventKind::Added { object, .. } => Some(object),
            EventKind::Updated { new, .. } => Some(new),
            EventKind::Deleted(deleted) => deleted.object(),
        }
    }

    /// Whether the object is gone.
    ///
    /// ```
    /// use delta_fifo::informer::{Event, EventKind, Reason};
    /// let kind = EventKind::Updated { old: 1.into(), new: 2.into() };
    /// let event: Event<u32, u32> = Event { key: 7, kind, reason: Reason::Watch, attempt: 1 };
    /// assert!(!event.is_deleted());
    /// ```
    pub fn is_deleted(&self) -> bool {
        matches!(self.kind, EventKind::Deleted(_))
    }
}

// By hand: `derive` would ask `T: Clone` and `T: Debug`, and an `Arc` needs no such thing.
impl<T, K: Clone> Clone for Event<T, K> {
    fn clone(&self) -> Self {
        Event { key: self.key.clone(), kind: self.kind.clone(), reason: self.reason, attempt: self.attempt }
    }
}

impl<T, K> Clone for EventKind<T, K> {
    fn clone(&self) -> Self {
        match self {
            EventKind::Added { object, initial } => EventKind::Added { object: object.clone(), initial: *initial },
            EventKind::Updated { old, new } => EventKind::Updated { old: old.clone(), new: new.clone() },
            EventKind::Deleted(deleted) => EventKind::Deleted(deleted.clone()),
        }
    }
}

impl<T, K: fmt::Debug> fmt::Debug for Event<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("key", &self.key)
            .field("kind", &self.kind)
            .field("reason", &self.reason)
            .field("attempt", &self.attempt)
            .finish()
    }
}

impl<T, K> fmt::Debug for EventKind<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EventKind::Added { initial: true, .. } => "Added(initial)",
            EventKind::Added { .. } => "Added",
            EventKind::Updated { .. } => "Updated",
            EventKind::Deleted(deleted) if deleted.is_final_state_unknown() => "Deleted(final state unknown)",
            EventKind::Deleted(_) => "Deleted",
        })
    }
}

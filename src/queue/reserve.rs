//! The reserve: how many idle keys may keep their working memory, so that a key that comes back costs no allocation.

use crate::sync::{AtomicUsize, Ordering};

/// A budget. It is a matter of memory only; nothing of the protocol depends on it.
#[derive(Debug)]
pub(super) struct Reserve {
    limit: usize,
    taken: AtomicUsize,
}

impl Reserve {
    pub(super) fn new(limit: usize) -> Self {
        Reserve { limit, taken: AtomicUsize::new(0) }
    }

    /// Takes one, if one is left.
    pub(super) fn take(&self) -> bool {
        // Relaxed: a count that guards no data. Two keys that take the last one at the same time go one over.
        if self.taken.load(Ordering::Relaxed) >= self.limit {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn give_back(&self) {
        // Relaxed: as above. The slot's guard orders the give-back of a key after its take.
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

//! The published pointer: arc-swap's.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

/// A value that is looked at.
pub(crate) type Loaded<T> = Guard<Arc<T>>;

/// A pointer to a value that does not change. It is loaded without a lock; a swap releases, a load acquires.
pub(crate) struct Published<T>(ArcSwap<T>);

impl<T> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Published(ArcSwap::new(value))
    }

    /// To look at for a moment: costs no reference count.
    #[inline]
    pub(crate) fn load(&self) -> Loaded<T> {
        self.0.load()
    }

    /// To keep.
    #[inline]
    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// Publishes a value and returns the one before.
    pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
        self.0.swap(value)
    }
}

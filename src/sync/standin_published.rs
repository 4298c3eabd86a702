//! A stand-in for the published pointer, as weak as arc-swap's promise: an index that is swapped with AcqRel and loaded
//! with Acquire, so a load may find an old value where nothing orders it. The values are in a list whose lock is std's:
//! the checker does not see it, so it orders nothing.

use std::sync::Arc;

use super::prim::{AtomicUsize, Ordering};

#[cfg_attr(not(feature = "informer"), allow(dead_code))]
pub(crate) type Loaded<T> = Box<Arc<T>>;

pub(crate) struct Published<T> {
    current: AtomicUsize,
    values: std::sync::Mutex<Vec<Arc<T>>>,
}

impl<T> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Published { current: AtomicUsize::new(0), values: std::sync::Mutex::new(vec![value]) }
    }

    #[cfg_attr(not(feature = "informer"), allow(dead_code))]
    pub(crate) fn load(&self) -> Loaded<T> {
        Box::new(self.load_full())
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        let current = self.current.load(Ordering::Acquire);
        self.values.lock().unwrap()[current].clone()
    }

    pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
        let next = {
            let mut values = self.values.lock().unwrap();
            values.push(value);
            values.len() - 1
        };
        let before = self.current.swap(next, Ordering::AcqRel);
        self.values.lock().unwrap()[before].clone()
    }
}

//! What travels through the queue: one object of one event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use delta_fifo::Keyed;

use crate::stream::{Change, Object};

/// An object as one event left it.
pub struct Item {
    pub object: Object,
    /// Number of the event in the input. Grows within each key; the store checks that it arrives so.
    pub sequence: u64,
    /// When it was handed to the queue, in nanoseconds since the start of the run.
    queued: AtomicU64,
}

impl Item {
    pub fn new(object: Object, sequence: u64) -> Self {
        Item { object, sequence, queued: AtomicU64::new(0) }
    }

    /// Notes the moment before the item is queued. A replay from memory queues the same item in each round.
    pub fn stamp(&self, since_start: Duration) {
        // Relaxed: the queue's own hand-over orders this before the consumer's read.
        self.queued.store(since_start.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How long ago it was queued.
    pub fn waited(&self, since_start: Duration) -> Duration {
        since_start.saturating_sub(Duration::from_nanos(self.queued.load(Ordering::Relaxed)))
    }
}

impl Keyed for Item {
    fn key(&self) -> Arc<str> {
        self.object.key.clone()
    }
}

/// One call of the queue's producer side.
#[derive(Clone)]
pub struct Op {
    pub change: Change,
    pub item: Arc<Item>,
    /// Not before this moment of the run.
    pub due: Duration,
}

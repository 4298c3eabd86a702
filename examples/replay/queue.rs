//! The queues that can be replayed through, behind the trait of `run.rs`.

use std::sync::Arc;

use delta_fifo::{Compression, DeltaFifo, Limits};

use crate::object::Item;
use crate::run::{Handle, Queue};
use crate::store::Store;

/// How the queues are built.
#[derive(Clone, Copy)]
pub struct Options {
    /// Keep only the newest of several updates.
    pub keep_latest: bool,
    /// Most deltas that may be pending; a producer waits for room.
    pub max_pending: Option<usize>,
}

impl Options {
    fn compression(self) -> Compression<Item, Arc<str>> {
        if self.keep_latest { Compression::KeepLatest } else { Compression::ClientGo }
    }

    fn limits(self) -> Limits {
        Limits { keys: None, deltas: self.max_pending }
    }

    /// This crate's queue.
    pub fn engine(self, store: &Arc<Store>) -> DeltaFifo<Item> {
        DeltaFifo::builder()
            .known_objects(store.clone())
            .compression(self.compression())
            .limits(self.limits())
            .name("replay")
            .build()
    }
}

/// The objects know their key and nothing transforms them, so no call can be refused.
const ACCEPTED: &str = "no key function and no transformer that could fail";

impl Queue for DeltaFifo<Item> {
    fn name(&self) -> &'static str {
        "delta-fifo"
    }

    fn add(&self, item: Arc<Item>) {
        DeltaFifo::add(self, item).expect(ACCEPTED);
    }

    fn update(&self, item: Arc<Item>) {
        DeltaFifo::update(self, item).expect(ACCEPTED);
    }

    fn delete(&self, item: Arc<Item>) {
        DeltaFifo::delete(self, item).expect(ACCEPTED);
    }

    fn close(&self) {
        DeltaFifo::close(self);
    }

    fn pop(&self, handle: &mut Handle<'_>) -> bool {
        // The claim is released at the end of the block: the store was written by then.
        self.pop_blocking().map(|claim| handle(claim.key(), claim.deltas())).is_ok()
    }
}

/// client-go's algorithm, for `--compare`.
#[cfg(feature = "baseline")]
mod baseline {
    use super::*;
    use delta_fifo::baseline::MutexFifo;

    /// The baseline as client-go is: the handler runs inside the mutex.
    pub struct HeldMutex(MutexFifo<Item>);

    /// The baseline with the handler outside of the mutex, which client-go has not.
    pub struct ClaimedMutex(MutexFifo<Item>);

    impl Options {
        fn baseline(self, store: &Arc<Store>) -> MutexFifo<Item> {
            MutexFifo::builder()
                .known_objects(store.clone())
                .compression(self.compression())
                .limits(self.limits())
                .name("baseline")
                .build()
        }

        pub fn held_mutex(self, store: &Arc<Store>) -> HeldMutex {
            HeldMutex(self.baseline(store))
        }

        pub fn claimed_mutex(self, store: &Arc<Store>) -> ClaimedMutex {
            ClaimedMutex(self.baseline(store))
        }
    }

    macro_rules! producer_side {
        () => {
            fn add(&self, item: Arc<Item>) {
                self.0.add(item).expect(ACCEPTED);
            }

            fn update(&self, item: Arc<Item>) {
                self.0.update(item).expect(ACCEPTED);
            }

            fn delete(&self, item: Arc<Item>) {
                self.0.delete(item).expect(ACCEPTED);
            }

            fn close(&self) {
                self.0.close();
            }
        };
    }

    impl Queue for HeldMutex {
        producer_side!();

        fn name(&self) -> &'static str {
            "mutex, held"
        }

        fn pop(&self, handle: &mut Handle<'_>) -> bool {
            self.0.pop_held(|popped| handle(&popped.key, &popped.deltas)).is_ok()
        }
    }

    impl Queue for ClaimedMutex {
        producer_side!();

        fn name(&self) -> &'static str {
            "mutex, free"
        }

        fn pop(&self, handle: &mut Handle<'_>) -> bool {
            self.0.pop_blocking().map(|claim| handle(claim.key(), claim.deltas())).is_ok()
        }
    }
}

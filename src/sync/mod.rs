//! The facade: the only place that names a concurrency primitive.
//!
//! In a normal build it is DashMap, SegQueue, ArrayQueue, event-listener and std. Under `--cfg loom` with the feature
//! `loom` (or `shuttle` likewise) the same names are stand-ins made of the checker's primitives, so that the models
//! run the queue's own code. A feature alone or a `--cfg` alone changes nothing.
//!
//! | name | normal build | models |
//! |---|---|---|
//! | [`Table`], [`Shard`] | a `DashMap` of segments, one shard's write guard | two shards, each a mutex |
//! | rows and the walk over them | `rows.rs` | the same file; rows move at every removal |
//! | [`Queue`] | `SegQueue` | a mutex and a list, or the weak form, or concurrent-queue |
//! | [`Pool`] | `ArrayQueue` | always empty |
//! | [`Event`], [`EventListener`] | event-listener, with a count in front | the same in event-listener's loom mode, or a stand-in |
//! | [`Published`] | `ArcSwap` | an index into a list: acquire, release and no more |
//! | atomics, [`Mutex`] | std | the checker's |

mod rows;

// The normal build has it, and the models that run on event-listener's loom mode.
#[cfg(any(
    all(loom, feature = "loom", real_event),
    not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))
))]
mod event;
#[cfg(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))))]
mod real;
#[cfg(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))))]
mod table;
#[cfg(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))))]
pub(crate) use real::*;

// Only the informer publishes.
#[cfg(all(feature = "informer", not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))))]
mod published;
#[cfg(all(feature = "informer", not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))))]
pub(crate) use {
    published::{Loaded, Published},
    std::sync::atomic::fence,
};

#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
mod prim;
#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
mod standin;
#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
mod standin_event;
#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
mod standin_published;
#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
pub(crate) use {prim::*, standin::*, standin_event::*, standin_published::*};

#[cfg(all(test, not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))))]
mod conformance;

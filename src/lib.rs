//! A per-key delta queue with the contract of Kubernetes' `DeltaFIFO`, without its one global lock, and the informer
//! machinery around it.
//!
//! For programs that follow a changing set of keyed objects: controllers, followers of etcd or of a change data
//! capture stream, market data conflation, file watchers. Many producers report what happened; many consumers take a
//! key with everything that happened to it, one consumer per key at a time, in order, with nothing lost.
//!
//! ```text
//!  producers                                                              consumers
//!  add update delete ─┐   ┌──────────────────────────┐                 ┌─► Claim ─► handler
//!  replace            ├──►│ a slot per key: state,   │──► tickets ─────┼─► Claim ─► handler
//!  resync            ─┘   │ pending deltas (sharded) │    (lock-free   └─► Claim ─► handler
//!                         └──────────────────────────┘     FIFO)             │
//!                                       ▲                                    │ release; requeue
//!                                       └────────────────────────────────────┘
//! ```
//!
//! # Quick start
//!
//! ```
//! use delta_fifo::{Delta, DeltaFifo};
//!
//! // Objects are (name, version); the name is the key.
//! let fifo = DeltaFifo::<(&str, u32), String>::builder_with_key_fn(|o: &(&str, u32)| Ok::<_, &str>(o.0.to_owned()))
//!     .embedded_store() // remembers what was processed: finds deletions, and can resync
//!     .emit_replaced(true)
//!     .build();
//!
//! fifo.replace(vec![("a", 1).into(), ("b", 1).into()]).unwrap(); // the initial list
//! fifo.update(("a", 2)).unwrap();
//!
//! while let Ok(claim) = fifo.try_pop() {
//!     for delta in claim.deltas() {
//!         match delta {
//!             Delta::Added(o) | Delta::Updated(o) | Delta::Replaced(o) | Delta::Sync(o) => println!("{} is {}", o.0, o.1),
//!             Delta::Deleted(deleted) => println!("{} is gone, seen: {}", claim.key(), !deleted.is_final_state_unknown()),
//!         }
//!     }
//! } // dropping the claim: processed
//! assert!(fifo.has_synced());
//! assert_eq!(fifo.known_object(&"a".to_owned()).unwrap().1, 2);
//! ```
//!
//! # Guarantees
//!
//! The whole contract, rule by rule, is in [`docs::semantics`]. In short:
//!
//! - Per key: in order, exactly once, one consumer at a time. A handler that panics, or hands its claim back, costs a
//!   retry and never an event.
//! - What is being processed counts as existing, so a delete, a replace or a resync that comes meanwhile is right.
//! - [`replace`](DeltaFifo::replace) takes effect at one instant and stops nobody. What is reported after that instant
//!   wins over the list.
//! - [`resync`](DeltaFifo::resync) never goes back in time.
//! - [`has_synced`](DeltaFifo::has_synced) means processed, not handed out.
//! - No wake-up is lost; a consumer that is cancelled passes its wake-up on; after [`close`](DeltaFifo::close) what is
//!   queued is still delivered.
//!
//! # What is lock-free and what is not
//!
//! There is no global lock. Keys live in a sharded `DashMap`, whose shards are reader-writer locks held for O(1) work;
//! two calls wait for each other only if their keys share a shard at that moment. The order of keys is a lock-free
//! `SegQueue`. Walks over all keys (replace, resync, `list_keys`) lock one shard at a time, for 32 keys at a time. Replaces
//! wait for each other.
//! Sleeping consumers wait on an event whose list has a short lock of its own. No user code runs under any of these,
//! but the key's own `Eq`, `Hash` and `Clone`.
//!
//! # When not to use it
//!
//! - You need the order of events *across* keys: use a channel. Here a late event of an early key overtakes.
//! - You need each single event, not each key's state: the default compression keeps them all, but a key that nobody
//!   pops grows. Set [`Limits`], or [`Compression::KeepLatest`].
//! - One producer, one consumer, few keys: a mutex and a map is less code.
//! - Work that survives a crash: nothing here is on disk.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | (none) | the queue; no async runtime: blocking, timed, polling and `async` waits from one primitive |
//! | `informer` | store with indices, reflector, informer, shared informer (tokio) |
//! | `baseline` | client-go's algorithm under one mutex, as oracle and rival |
//! | `loom`, `shuttle` | model checking only; each does nothing without the `--cfg` of its name |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "baseline")]
#[cfg_attr(docsrs, doc(cfg(feature = "baseline")))]
pub mod baseline;
mod compress;
mod delta;
pub mod docs;
mod error;
mod index;
#[cfg(feature = "informer")]
#[cfg_attr(docsrs, doc(cfg(feature = "informer")))]
pub mod informer;
/// Of the informer only what the models check; the rest needs tokio.
#[cfg(all(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")), not(feature = "informer")))]
#[doc(hidden)]
#[path = "informer/protocols.rs"]
pub mod informer;
mod key;
mod known;
mod queue;
#[cfg(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))))]
mod seeded;
#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
#[doc(hidden)]
pub mod seeded;
mod sync;

pub use compress::{CompressFn, Compression};
pub use delta::{Deleted, DeletedFinalStateUnknown, Delta, DeltaType, Deltas, DeltasIntoIter};
pub use error::{
    Closed, PopTimeoutError, PushError, ReplaceError, TombstoneFullError, TransformError, TryPopError, TryPushError,
    TryReplaceError,
};
pub use key::{BoxError, KeyError, Keyed};
pub use known::KnownObjects;
pub use queue::{Builder, Claim, Claims, DefaultHashBuilder, DeltaFifo, Limits, Processed};

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

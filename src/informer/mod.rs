//! Everything around the queue that makes an informer: a source is listed and watched, the queue orders what comes, a
//! store keeps the latest state with indices, and handlers are told what changed. Needs the feature `informer` (tokio).
//!
//! ```text
//! list + watch ─► Reflector ─► DeltaFifo ─► workers ─► Store ─────► StoreReader, Snapshot
//!   ListWatch       back-off,    one claim     │         indices       never wait, never in the way
//!                   relists      per key       ▼
//!                                          one buffer per handler ─► Handler: retries, back-off, dead letters
//! ```
//!
//! | you want | take |
//! |---|---|
//! | one handler for one kind of object | [`Informer`] |
//! | several handlers that come and go | [`SharedInformer`] |
//! | a mirror of the source and no handlers | [`Reflector`] into a [`Store`] |
//! | your own consumers | [`Reflector`] into a [`DeltaFifo`](crate::DeltaFifo) |
//! | something to try all this with | [`MemoryServer`] |
//!
//! Nothing here knows Kubernetes: a source is whatever implements [`ListWatch`], an object whatever is
//! [`Keyed`](crate::Keyed) and [`Versioned`].
//!
//! # What holds
//!
//! - Changes of a key are applied and delivered in order, and none is lost: a handler that fails or panics is called
//!   again ([`RetryPolicy`]), a change that cannot be applied causes a new list.
//! - When a handler hears of a change, the store has it, or something newer.
//! - Readers of the store wait for nobody and hold nobody up; a [`Snapshot`] is consistent, indices included.
//! - [`StoreReader::wait_for`] a version, and everything up to it has been applied.
//! - No user code runs under a lock. A slow handler fills its own buffer and nothing else, unless it asks for more.
//! - Each event says why it comes: [`Reason`].
//!
//! # What differs from client-go
//!
//! - Each handler is resynced by its own clock, at any period; an informer that was built without a period can
//!   still have handlers with one. Whom a Resync is for is settled when it is queued, and relists do not put it off.
//! - A relist that brings an object unchanged is reported to handlers that have a resync period, and to no others.
//! - The store's version is a low-water mark, not the version of the last write.
//! - Transactions of the store are all or nothing. Index functions return errors; nothing panics.
//! - Failed handlers are retried; a panic does not end the process. A panic of any other function of the user's, or of the
//!   source, is reported as an error and retried like one.

mod backoff;
// The models reach these two from outside.
#[allow(unreachable_pub)]
mod barrier;
mod event;
mod guard;
#[allow(unreachable_pub)]
mod hand_over;
mod handler;
mod list_watch;
mod memory;
mod pipeline;
mod pmap;
mod progress;
mod reflector;
mod shared;
mod single;
mod store;
mod version;
mod worker;

pub use backoff::BackoffPolicy;
pub use event::{Event, EventKind, Reason};
pub use handler::{
    Buffering, DeadLetter, Handler, HandlerOptions, HandlerPanic, Overflow, ResourceEventHandler, RetryPolicy,
};
pub use list_watch::{ListOptions, ListPage, ListWatch, SourceError, WatchEvent, WatchOptions};
pub use memory::{Faults, MemoryServer, MemoryWatch, Request};
pub use pipeline::HandlerStats;
pub use reflector::{Reflector, ReflectorError, ReflectorOptions, ReflectorStore};
pub use shared::{
    AlreadyStarted, HandlerHandle, InformerBuilder, InformerStopped, NotSynced, SharedInformer, Shutdown,
    ShutdownReport,
};
pub use single::Informer;
pub use store::{
    AddIndexersError, Change, IndexError, Indexers, Snapshot, Store, StoreChanges, StoreError, StoreReader,
    StoreStopped, UnknownIndex,
};
pub use version::{ResourceVersion, Versioned};

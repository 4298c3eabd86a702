//! A per-key delta queue with the contract of Kubernetes' `DeltaFIFO`, without its one global lock.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "baseline")]
#[cfg_attr(docsrs, doc(cfg(feature = "baseline")))]
pub mod baseline;
mod compress;
mod delta;
mod error;
#[cfg(feature = "informer")]
#[cfg_attr(docsrs, doc(cfg(feature = "informer")))]
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
    Closed, PopTimeoutError, PushError, ReplaceError, TransformError, TryPopError, TryPushError, TryReplaceError,
};
pub use key::{BoxError, KeyError, Keyed};
pub use known::KnownObjects;
pub use queue::{Builder, Claim, Claims, DefaultHashBuilder, DeltaFifo, Limits, Processed};

//! How calls of an informer end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The informer was started before, or is stopped: it is not started again.
///
/// ```
/// use delta_fifo::informer::AlreadyStarted;
/// assert!(AlreadyStarted(()).to_string().contains("build another"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyStarted(#[doc(hidden)] pub ());

/// The informer is stopped.
///
/// ```
/// use delta_fifo::informer::InformerStopped;
/// assert!(InformerStopped(()).to_string().contains("stopped"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InformerStopped(#[doc(hidden)] pub ());

/// What was waited for will not come.
///
/// ```
/// use delta_fifo::informer::NotSynced;
/// assert!(NotSynced::Stopped.to_string().contains("stopped"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotSynced {
    /// The informer stopped, or the handler was removed, before it had synced.
    Stopped,
    /// The source cannot be used; this is what it said.
    Source(Arc<str>),
}

/// How an informer stops.
///
/// ```
/// use delta_fifo::informer::Shutdown;
/// use std::time::Duration;
/// assert_ne!(Shutdown::Graceful(Duration::from_secs(30)), Shutdown::Immediate);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Stops the source, then applies and delivers what has come, for at most this long; what is left then is dropped
    /// and counted. Handlers that run are waited for, however long.
    Graceful(Duration),
    /// Drops what waits, and async handlers where they wait. A handler that does not wait is waited for.
    Immediate,
}

/// What a shutdown dropped.
///
/// ```
/// let report = delta_fifo::informer::ShutdownReport::default();
/// assert!(report.is_clean());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Keys with changes that were not applied to the store.
    pub keys_not_applied: usize,
    /// Events that were not delivered, of all handlers together.
    pub events_dropped: u64,
}

impl ShutdownReport {
    /// Whether nothing was dropped.
    ///
    /// ```
    /// assert!(delta_fifo::informer::ShutdownReport::default().is_clean());
    /// ```
    pub fn is_clean(&self) -> bool {
        *self == ShutdownReport::default()
    }
}

impl fmt::Display for AlreadyStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the informer was started before; to begin again, build another one")
    }
}

impl std::error::Error for AlreadyStarted {}

impl fmt::Display for InformerStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the informer is stopped; to begin again, build another one")
    }
}

impl std::error::Error for InformerStopped {}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSynced::Stopped => f.write_str("stopped or removed before it had synced"),
            NotSynced::Source(error) => write!(f, "it will not sync: {error}"),
        }
    }
}

impl std::error::Error for NotSynced {}

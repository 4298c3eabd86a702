//! How a reflector works, and what can go wrong.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::informer::{BackoffPolicy, SourceError};
use crate::key::BoxError;

/// The shortest timeout of a watch: below it, servers would be asked too often.
pub(super) const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How a [`Reflector`](crate::informer::Reflector) works.
///
/// ```
/// use delta_fifo::informer::ReflectorOptions;
/// use std::time::Duration;
///
/// let options = ReflectorOptions { resync_period: Duration::from_secs(600), ..ReflectorOptions::default() };
/// assert!(options.page_size.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    /// The size of a page. `None`: 500 where the source can page at all, no pages for a list from a known version,
    /// which sources answer from their cache. Zero is taken for `None`: pages without objects never end.
    pub page_size: Option<usize>,
    /// A watch is asked to end after this time, up to twice as long by chance, so that watches spread over the servers.
    /// At least five minutes.
    pub watch_timeout: Duration,
    /// Waits between cycles and between attempts to watch.
    pub backoff: BackoffPolicy,
    /// How often everything known is queued once more; zero: never. An informer has its handlers' periods instead.
    pub resync_period: Duration,
    /// For how long a watch is tried again at once when the source has internal errors. Zero: not at all.
    pub max_internal_error_retry: Duration,
    /// The most objects that a list in pages may have: one that goes on is refused, so that a source that never ends its
    /// list does not fill the memory. Ten million. A thousand empty pages in a row are refused whatever this is.
    pub max_objects: usize,
    /// Begin with a watch that streams the whole state, if the source can. Falls back to a list.
    pub watch_list: bool,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        ReflectorOptions {
            page_size: None,
            watch_timeout: MIN_WATCH_TIMEOUT,
            backoff: BackoffPolicy::default(),
            resync_period: Duration::ZERO,
            max_internal_error_retry: Duration::ZERO,
            max_objects: 10_000_000,
            watch_list: true,
        }
    }
}

/// What a reflector or an informer tells its error hook. All of it is being retried, unless it is [fatal](Self::is_fatal).
///
/// ```
/// use delta_fifo::informer::{ReflectorError, SourceError};
/// let error = ReflectorError::List(SourceError::Expired);
/// assert!(!error.is_fatal());
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ReflectorError {
    /// The list failed. It is made again after a wait.
    List(SourceError),
    /// The list was refused, as a whole: an object of it has no key, or the key function or the transformer failed or
    /// panicked. It is made again.
    Replace(BoxError),
    /// A watch failed, at its start or later.
    Watch(SourceError),
    /// A watch ended at once and without an event. A new list is made after a wait.
    VeryShortWatch,
    /// An event could not be queued, or could not be applied to the store. A new list will set it right.
    Apply(BoxError),
    /// The custom compression panicked. The key stays queued, behind the others, and is tried again after a short wait.
    Compression(BoxError),
    /// A Resync stopped half-way. A new list is made.
    Resync(BoxError),
}

impl ReflectorError {
    /// Whether the reflector ends with this.
    ///
    /// ```
    /// use delta_fifo::informer::{ReflectorError, SourceError};
    /// assert!(ReflectorError::Watch(SourceError::Fatal("forbidden".into())).is_fatal());
    /// ```
    pub fn is_fatal(&self) -> bool {
        matches!(self, ReflectorError::List(SourceError::Fatal(_)) | ReflectorError::Watch(SourceError::Fatal(_)))
    }
}

impl fmt::Display for ReflectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReflectorError::List(error) => write!(f, "list failed: {error}"),
            ReflectorError::Replace(error) => write!(f, "the list was refused: {error}"),
            ReflectorError::Watch(error) => write!(f, "watch failed: {error}"),
            ReflectorError::VeryShortWatch => f.write_str("the watch ended at once, without an event; a list follows"),
            ReflectorError::Apply(error) => write!(f, "a change was not applied; a list follows: {error}"),
            ReflectorError::Compression(error) => {
                write!(f, "the custom compression failed; the key stays queued and is tried again: {error}")
            }
            ReflectorError::Resync(error) => write!(f, "resync stopped half-way; a list follows: {error}"),
        }
    }
}

impl Error for ReflectorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ReflectorError::List(error) | ReflectorError::Watch(error) => Some(error),
            ReflectorError::Replace(error)
            | ReflectorError::Apply(error)
            | ReflectorError::Compression(error)
            | ReflectorError::Resync(error) => Some(&**error),
            ReflectorError::VeryShortWatch => None,
        }
    }
}

//! Where objects come from: a source that can be listed and watched.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;

use super::ResourceVersion;
use crate::key::BoxError;

/// A source of objects that can be listed, and watched from the version of the list (client-go's `ListerWatcher`).
///
/// The contract that a [`Reflector`](super::Reflector) relies on:
///
/// - a list is the state at its version, and a watch from that version reports every change after it, in order;
/// - a version that the source no longer remembers is answered with [`SourceError::Expired`], at the start of a watch or
///   in the middle of it; never by leaving events out;
/// - futures and streams may be dropped at any time.
///
/// [`MemoryServer`](super::MemoryServer) is an implementation to try things with.
///
/// ```
/// use delta_fifo::informer::{ListOptions, ListPage, ListWatch, SourceError, WatchEvent, WatchOptions};
/// use std::{pin::Pin, sync::Arc, task::{Context, Poll}};
///
/// /// Three numbers that never change.
/// struct Three;
/// struct Quiet;
///
/// impl futures_core::Stream for Quiet {
///     type Item = Result<WatchEvent<u32>, SourceError>;
///     fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
///         Poll::Pending
///     }
/// }
///
/// impl ListWatch<u32> for Three {
///     type Watch = Quiet;
///     async fn list(&self, _: ListOptions) -> Result<ListPage<u32>, SourceError> {
///         Ok(ListPage::new((1..=3).map(Arc::new).collect(), 1))
///     }
///     async fn watch(&self, _: WatchOptions) -> Result<Quiet, SourceError> {
///         Ok(Quiet)
///     }
/// }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// assert_eq!(Three.list(ListOptions::default()).await.unwrap().items.len(), 3);
/// # });
/// ```
pub trait ListWatch<T>: Send + Sync + 'static {
    /// The events of one watch. The end of the stream is a normal end: the watch is started again from the last version.
    type Watch: Stream<Item = Result<WatchEvent<T>, SourceError>> + Send + 'static;

    /// One page of the list.
    fn list(&self, options: ListOptions) -> impl Future<Output = Result<ListPage<T>, SourceError>> + Send;

    /// Starts a watch.
    fn watch(&self, options: WatchOptions) -> impl Future<Output = Result<Self::Watch, SourceError>> + Send;

    /// Whether a watch can begin with the whole state ([`WatchOptions::initial_events`]), which saves the list.
    fn streams_initial_list(&self) -> bool {
        false
    }
}

impl<T, L: ListWatch<T>> ListWatch<T> for Arc<L> {
    type Watch = L::Watch;

    fn list(&self, options: ListOptions) -> impl Future<Output = Result<ListPage<T>, SourceError>> + Send {
        (**self).list(options)
    }

    fn watch(&self, options: WatchOptions) -> impl Future<Output = Result<Self::Watch, SourceError>> + Send {
        (**self).watch(options)
    }

    fn streams_initial_list(&self) -> bool {
        (**self).streams_initial_list()
    }
}

/// What to list.
///
/// ```
/// let options = delta_fifo::informer::ListOptions { limit: Some(500), ..Default::default() };
/// assert!(options.resource_version.is_unset(), "unset asks for the newest state");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Not older than this version; unset: the newest; [`ResourceVersion::ANY`]: whatever is at hand.
    pub resource_version: ResourceVersion,
    /// At most so many objects in one page; `None`: all of them.
    pub limit: Option<usize>,
    /// Goes on after the page that gave this token. The version is then that of the first page.
    pub continue_token: Option<String>,
}

/// One page of a list.
///
/// ```
/// use delta_fifo::informer::ListPage;
/// let page = ListPage::new(vec![1.into(), 2.into()], 10);
/// assert!(page.continue_token.is_none());
/// ```
pub struct ListPage<T> {
    /// The objects.
    pub items: Vec<Arc<T>>,
    /// The version of the list: a watch goes on from here.
    pub resource_version: ResourceVersion,
    /// Asks for the next page; `None` if this is the last one.
    pub continue_token: Option<String>,
}

impl<T> ListPage<T> {
    /// The only page of a list.
    ///
    /// ```
    /// let page = delta_fifo::informer::ListPage::<u32>::new(vec![], 10);
    /// assert_eq!(page.resource_version, 10.into());
    /// ```
    pub fn new(items: Vec<Arc<T>>, resource_version: impl Into<ResourceVersion>) -> Self {
        ListPage { items, resource_version: resource_version.into(), continue_token: None }
    }
}

impl<T> fmt::Debug for ListPage<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListPage")
            .field("items", &self.items.len())
            .field("resource_version", &self.resource_version)
            .field("continue_token", &self.continue_token)
            .finish()
    }
}

/// What to watch.
///
/// ```
/// use delta_fifo::informer::WatchOptions;
/// let options = WatchOptions { resource_version: 10.into(), ..Default::default() };
/// assert!(!options.initial_events);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Report what comes after this version. Unset or [`ResourceVersion::ANY`]: the current objects first, as additions
    /// in any order.
    pub resource_version: ResourceVersion,
    /// End the stream after this time, if set; so that watches spread over a source's servers again.
    pub timeout: Option<Duration>,
    /// Send bookmarks from time to time.
    pub bookmarks: bool,
    /// Begin with the whole state, not older than the version, and a bookmark that says it is complete.
    pub initial_events: bool,
}

/// A change that a watch reports.
///
/// ```
/// use delta_fifo::informer::WatchEvent;
/// let event = WatchEvent::Added { object: 7.into(), resource_version: 10.into() };
/// assert_eq!(event.resource_version(), &10.into());
/// ```
pub enum WatchEvent<T> {
    /// The object is new.
    Added {
        /// Its state.
        object: Arc<T>,
        /// The version of the change.
        resource_version: ResourceVersion,
    },
    /// The object changed.
    Modified {
        /// Its new state.
        object: Arc<T>,
        /// The version of the change.
        resource_version: ResourceVersion,
    },
    /// The object is gone.
    Deleted {
        /// Its last state.
        object: Arc<T>,
        /// The version of the deletion.
        resource_version: ResourceVersion,
    },
    /// Everything up to this version has been reported.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// The initial events that were asked for end here.
        initial_events_end: bool,
    },
}

impl<T> WatchEvent<T> {
    /// The version the event stands for.
    ///
    /// ```
    /// use delta_fifo::informer::WatchEvent;
    /// let event: WatchEvent<u32> = WatchEvent::Bookmark { resource_version: 9.into(), initial_events_end: false };
    /// assert_eq!(event.resource_version().as_u64(), Some(9));
    /// ```
    pub fn resource_version(&self) -> &ResourceVersion {
        match self {
            WatchEvent::Added { resource_version, .. }
            | WatchEvent::Modified { resource_version, .. }
            | WatchEvent::Deleted { resource_version, .. }
            | WatchEvent::Bookmark { resource_version, .. } => resource_version,
        }
    }
}

// By hand: `derive` would ask `T: Clone`, and an `Arc` needs no such thing.
impl<T> Clone for WatchEvent<T> {
    fn clone(&self) -> Self {
        match self.clone_parts() {
            (Some(object), resource_version) => match self {
                WatchEvent::Added { .. } => WatchEvent::Added { object, resource_version },
                WatchEvent::Modified { .. } => WatchEvent::Modified { object, resource_version },
                _ => WatchEvent::Deleted { object, resource_version },
            },
            (None, resource_version) => {
                let initial_events_end = matches!(self, WatchEvent::Bookmark { initial_events_end: true, .. });
                WatchEvent::Bookmark { resource_version, initial_events_end }
            }
        }
    }
}

impl<T> WatchEvent<T> {
    fn clone_parts(&self) -> (Option<Arc<T>>, ResourceVersion) {
        let object = match self {
            WatchEvent::Added { object, .. }
            | WatchEvent::Modified { object, .. }
            | WatchEvent::Deleted { object, .. } => Some(object.clone()),
            WatchEvent::Bookmark { .. } => None,
        };
        (object, self.resource_version().clone())
    }
}

impl<T> fmt::Debug for WatchEvent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            WatchEvent::Added { .. } => "Added",
            WatchEvent::Modified { .. } => "Modified",
            WatchEvent::Deleted { .. } => "Deleted",
            WatchEvent::Bookmark { initial_events_end: false, .. } => "Bookmark",
            WatchEvent::Bookmark { .. } => "BookmarkAtEndOfInitialEvents",
        };
        write!(f, "{name}@{}", self.resource_version())
    }
}

/// What went wrong at the source. The variant decides what the reflector does next.
///
/// ```
/// use delta_fifo::informer::SourceError;
/// let error = SourceError::TooManyRequests { retry_after: None };
/// assert!(error.to_string().contains("too many requests"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceError {
    /// The version, or the page of a list, is older than the source remembers. Answered by a new list.
    Expired,
    /// The version is newer than the source has, so far. Answered by a list of whatever is newest.
    VersionTooLarge,
    /// The source wants to be left alone for a while. A watch is tried again later, without a new list.
    TooManyRequests {
        /// For how long, if it says so.
        retry_after: Option<Duration>,
    },
    /// Nobody answers: connection refused. A watch is tried again later, without a new list.
    Refused(BoxError),
    /// The connection broke, or the answer could not be read. Answered by back-off and a new list.
    Transport(BoxError),
    /// The source had an error of its own. For a while a watch goes on where it was; then a new list.
    Internal(BoxError),
    /// The source cannot do what was asked, such as streaming the initial list. Done another way.
    Unsupported,
    /// One event could not be understood, for instance an object of another kind. Skipped, and the next list sets right
    /// what it meant: the reflector makes one soon.
    BadEvent(BoxError),
    /// The list does not end, or is longer than [`max_objects`](super::ReflectorOptions::max_objects). Answered by
    /// back-off and a new list.
    Endless(BoxError),
    /// Trying again will not help. The reflector ends.
    Fatal(BoxError),
}

impl SourceError {
    /// A broken connection.
    ///
    /// ```
    /// let error = delta_fifo::informer::SourceError::transport("connection reset");
    /// assert!(error.to_string().contains("reset"));
    /// ```
    pub fn transport(error: impl Into<BoxError>) -> Self {
        SourceError::Transport(error.into())
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Expired => f.write_str("the version is older than the source remembers; a new list is needed"),
            SourceError::VersionTooLarge => f.write_str("the source has not come to this version yet"),
            SourceError::TooManyRequests { retry_after: None } => f.write_str("the source has too many requests"),
            SourceError::TooManyRequests { retry_after: Some(time) } => {
                write!(f, "the source has too many requests; it asks to wait for {time:?}")
            }
            SourceError::Refused(error) => write!(f, "the source does not answer: {error}"),
            SourceError::Transport(error) => write!(f, "the connection to the source broke: {error}"),
            SourceError::Internal(error) => write!(f, "the source failed: {error}"),
            SourceError::Unsupported => f.write_str("the source cannot do this"),
            SourceError::BadEvent(error) => write!(f, "an event could not be understood: {error}"),
            SourceError::Endless(error) => write!(f, "the list was given up: {error}"),
            SourceError::Fatal(error) => write!(f, "the source cannot be used: {error}"),
        }
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SourceError::Refused(error)
            | SourceError::Transport(error)
            | SourceError::Internal(error)
            | SourceError::BadEvent(error)
            | SourceError::Endless(error)
            | SourceError::Fatal(error) => Some(&**error),
            _ => None,
        }
    }
}

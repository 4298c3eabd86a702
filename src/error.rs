//! Errors. Whatever was passed in comes back, so nothing is lost.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::delta::DeletedFinalStateUnknown;
use crate::key::{BoxError, KeyError};

/// The transformer refused an object, which was not queued. The object comes back as it was before.
///
/// ```
/// use delta_fifo::{DeltaFifo, PushError};
///
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
///     .transform(|_| Err("not today"))
///     .build();
/// let Err(PushError::Transform(error)) = fifo.add(7) else { panic!() };
/// assert_eq!(*error.object, 7);
/// ```
pub struct TransformError<T> {
    /// The object as it was passed in.
    pub object: Arc<T>,
    /// What the transformer said.
    pub source: BoxError,
}

/// Why a producer's call was refused. Nothing was queued.
///
/// ```
/// use delta_fifo::DeltaFifo;
///
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|_: &u32| Err("no key")).build();
/// assert_eq!(*fifo.update(7).unwrap_err().into_object(), 7);
/// ```
#[non_exhaustive]
pub enum PushError<T> {
    /// The key function failed.
    Key(KeyError<T>),
    /// The transformer failed.
    Transform(TransformError<T>),
}

/// Why a `try_*` call of a producer was refused. Nothing was queued.
///
/// ```
/// use delta_fifo::{DeltaFifo, Limits, TryPushError};
///
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
///     .limits(Limits { keys: Some(1), deltas: None })
///     .build();
/// fifo.try_add(1).unwrap();
/// assert!(matches!(fifo.try_add(2), Err(TryPushError::Full(object)) if *object == 2));
/// ```
#[non_exhaustive]
pub enum TryPushError<T> {
    /// A limit is reached. Try again after a pop, or use the blocking or async form.
    Full(Arc<T>),
    /// The key function failed.
    Key(KeyError<T>),
    /// The transformer failed.
    Transform(TransformError<T>),
}

/// A tombstone found no room: a limit is reached. It comes back; try again after a pop, or use the blocking or async form.
///
/// ```
/// use delta_fifo::{DeltaFifo, Limits};
///
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
///     .limits(Limits { keys: None, deltas: Some(1) })
///     .build();
/// fifo.add(7).unwrap();
/// let error = fifo.try_delete_final_state_unknown(7, None).unwrap_err();
/// assert_eq!(error.tombstone.key, 7);
/// ```
pub struct TombstoneFullError<T, K> {
    /// The tombstone as it was passed in.
    pub tombstone: DeletedFinalStateUnknown<T, K>,
}

/// A [`replace`](crate::DeltaFifo::replace) was refused as a whole: nothing was queued, the list comes back.
///
/// ```
/// use delta_fifo::DeltaFifo;
///
/// let fifo = DeltaFifo::<i32, i32>::builder_with_key_fn(|n: &i32| if *n < 0 { Err("negative") } else { Ok(*n) }).build();
/// let error = fifo.replace(vec![1.into(), (-1).into()]).unwrap_err();
/// assert_eq!(error.index, 1);
/// assert_eq!(error.list.len(), 2);
/// assert!(fifo.is_empty());
/// ```
pub struct ReplaceError<T> {
    /// The whole list, as it was passed in.
    pub list: Vec<Arc<T>>,
    /// The place of the object that was refused.
    pub index: usize,
    /// Why.
    pub cause: PushError<T>,
}

/// Why a [`try_replace`](crate::DeltaFifo::try_replace) was refused. Nothing was queued.
///
/// ```
/// use delta_fifo::{DeltaFifo, Limits, TryReplaceError};
///
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
///     .limits(Limits { keys: Some(1), deltas: None })
///     .build();
/// fifo.add(1).unwrap();
/// assert!(matches!(fifo.try_replace(vec![2.into()]), Err(TryReplaceError::Full(list)) if list.len() == 1));
/// ```
#[non_exhaustive]
pub enum TryReplaceError<T> {
    /// A limit is reached. The list comes back.
    Full(Vec<Arc<T>>),
    /// An object was refused.
    Refused(ReplaceError<T>),
}

/// The queue is closed and nothing is queued: this consumer is done.
///
/// ```
/// let fifo = delta_fifo::DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
/// fifo.close();
/// assert!(fifo.pop_blocking().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed(pub(crate) ());

/// Why [`try_pop`](crate::DeltaFifo::try_pop) returned no claim.
///
/// ```
/// use delta_fifo::{DeltaFifo, TryPopError};
///
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
/// assert_eq!(fifo.try_pop().unwrap_err(), TryPopError::Empty);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryPopError {
    /// Nothing is queued now.
    Empty,
    /// Nothing is queued and the queue is closed.
    Closed,
}

/// Why [`pop_timeout`](crate::DeltaFifo::pop_timeout) returned no claim.
///
/// ```
/// use delta_fifo::{DeltaFifo, PopTimeoutError};
/// use std::time::Duration;
///
/// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
/// assert_eq!(fifo.pop_timeout(Duration::from_millis(1)).unwrap_err(), PopTimeoutError::Timeout);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopTimeoutError {
    /// Nothing was queued within the time.
    Timeout,
    /// Nothing is queued and the queue is closed.
    Closed,
}

impl<T> PushError<T> {
    /// The object that was refused.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|_: &u32| Err("no key")).build();
    /// assert_eq!(*fifo.add(7).unwrap_err().into_object(), 7);
    /// ```
    pub fn into_object(self) -> Arc<T> {
        match self {
            PushError::Key(error) => error.object,
            PushError::Transform(error) => error.object,
        }
    }

    fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        match self {
            PushError::Key(error) => &*error.source,
            PushError::Transform(error) => &*error.source,
        }
    }
}

impl<T> TryPushError<T> {
    /// The object that was refused.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|_: &u32| Err("no key")).build();
    /// assert_eq!(*fifo.try_add(7).unwrap_err().into_object(), 7);
    /// ```
    pub fn into_object(self) -> Arc<T> {
        match self {
            TryPushError::Full(object) => object,
            TryPushError::Key(error) => error.object,
            TryPushError::Transform(error) => error.object,
        }
    }
}

impl<T> From<PushError<T>> for TryPushError<T> {
    fn from(error: PushError<T>) -> Self {
        match error {
            PushError::Key(error) => TryPushError::Key(error),
            PushError::Transform(error) => TryPushError::Transform(error),
        }
    }
}

impl<T> fmt::Display for TransformError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the transformer refused the object, which was not queued: {}", self.source)
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Key(error) => error.fmt(f),
            PushError::Transform(error) => error.fmt(f),
        }
    }
}

impl<T> fmt::Display for TryPushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryPushError::Full(_) => f.write_str("the queue is full; pop first, or use the blocking or async form"),
            TryPushError::Key(error) => error.fmt(f),
            TryPushError::Transform(error) => error.fmt(f),
        }
    }
}

impl<T> fmt::Display for ReplaceError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "object {} of {} was refused, so nothing of the list was queued: {}",
            self.index,
            self.list.len(),
            self.cause.cause()
        )
    }
}

impl<T> fmt::Display for TryReplaceError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryReplaceError::Full(_) => f.write_str("the queue is full; pop first, or use the blocking or async form"),
            TryReplaceError::Refused(error) => error.fmt(f),
        }
    }
}

impl<T, K> fmt::Display for TombstoneFullError<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full; pop first, or use the blocking or async form")
    }
}

impl<T, K> fmt::Debug for TombstoneFullError<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TombstoneFullError({self})")
    }
}

impl<T, K> Error for TombstoneFullError<T, K> {}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is closed and nothing is queued")
    }
}

impl fmt::Display for TryPopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryPopError::Empty => f.write_str("nothing is queued"),
            TryPopError::Closed => Closed(()).fmt(f),
        }
    }
}

impl fmt::Display for PopTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PopTimeoutError::Timeout => f.write_str("nothing was queued within the time"),
            PopTimeoutError::Closed => Closed(()).fmt(f),
        }
    }
}

/// `Debug` by `Display`: `T` need not be `Debug`.
macro_rules! debug_as_display {
    ($($error:ident),*) => {$(
        impl<T> fmt::Debug for $error<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($error), "({})"), self)
            }
        }
    )*};
}
debug_as_display!(TransformError, PushError, TryPushError, ReplaceError, TryReplaceError);

impl<T> Error for TransformError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

impl<T> Error for PushError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause())
    }
}

impl<T> Error for TryPushError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TryPushError::Full(_) => None,
            TryPushError::Key(error) => Some(&*error.source),
            TryPushError::Transform(error) => Some(&*error.source),
        }
    }
}

impl<T> Error for ReplaceError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.cause())
    }
}

impl<T> Error for TryReplaceError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TryReplaceError::Full(_) => None,
            TryReplaceError::Refused(error) => error.source(),
        }
    }
}

impl Error for Closed {}
impl Error for TryPopError {}
impl Error for PopTimeoutError {}

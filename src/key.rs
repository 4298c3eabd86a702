//! The key of an object: by a trait on the object, or by a fallible function given to the builder.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The error of a user's function.
///
/// ```
/// let error: delta_fifo::BoxError = "the object has no name".into();
/// assert_eq!(error.to_string(), "the object has no name");
/// ```
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An object that knows its key. Objects whose key can be missing are given to
/// [`DeltaFifo::builder_with_key_fn`](crate::DeltaFifo::builder_with_key_fn) instead.
///
/// The key must not change during the life of the object. It is asked for once per call, so a key that is costly to
/// make is best kept in the object, behind an `Arc`.
///
/// ```
/// use delta_fifo::Keyed;
/// use std::sync::Arc;
///
/// struct Pod { key: Arc<str> }
///
/// impl Keyed for Pod {
///     fn key(&self) -> Arc<str> {
///         self.key.clone()
///     }
/// }
///
/// struct Order { id: u64 }
///
/// impl Keyed<u64> for Order {
///     fn key(&self) -> u64 {
///         self.id
///     }
/// }
/// # assert_eq!(Order { id: 7 }.key(), 7);
/// # assert_eq!(&*Pod { key: "a/b".into() }.key(), "a/b");
/// ```
pub trait Keyed<K = Arc<str>> {
    /// The key under which changes of this object are gathered.
    fn key(&self) -> K;
}

/// How a queue finds the key of an object.
pub(crate) enum KeyFn<T, K> {
    /// By [`Keyed`].
    Keyed(fn(&T) -> K),
    /// By the user's function.
    Custom(CustomKeyFn<T, K>),
}

type CustomKeyFn<T, K> = Box<dyn Fn(&T) -> Result<K, BoxError> + Send + Sync>;

impl<T, K> KeyFn<T, K> {
    /// Runs the user's code: never under a guard.
    #[inline]
    pub(crate) fn key_of(&self, object: &T) -> Result<K, BoxError> {
        crate::sync::assert_no_guard();
        match self {
            KeyFn::Keyed(key) => Ok(key(object)),
            KeyFn::Custom(key) => key(object),
        }
    }
}

/// No key could be computed for an object (client-go's `KeyError`, rule A2.5). The object comes back.
///
/// ```
/// use delta_fifo::DeltaFifo;
///
/// let fifo: DeltaFifo<String, String> =
///     DeltaFifo::builder_with_key_fn(|s: &String| if s.is_empty() { Err("empty") } else { Ok(s.clone()) }).build();
/// let error = fifo.add(String::new()).unwrap_err();
/// assert!(error.to_string().contains("empty"));
/// ```
pub struct KeyError<T> {
    /// The object as it was passed in.
    pub object: Arc<T>,
    /// What the key function said.
    pub source: BoxError,
}

impl<T> fmt::Debug for KeyError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyError").field("source", &self.source).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for KeyError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key function refused the object, which was not queued: {}", self.source)
    }
}

impl<T> Error for KeyError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

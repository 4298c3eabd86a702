//! Errors of the store. Whatever a call could not do, it did not begin.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::key::{BoxError, KeyError};

/// An index function failed for an object, or for one that is in the store already.
///
/// ```
/// use delta_fifo::informer::{Store, StoreError};
///
/// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
/// store.add_indexer("odd", |n: &u32| if *n == 7 { Err("not seven") } else { Ok(vec![(n % 2).to_string()]) }).unwrap();
/// let Err(StoreError::Index(error)) = store.add(7) else { panic!() };
/// assert_eq!(&*error.index, "odd");
/// assert!(store.is_empty());
/// ```
#[derive(Debug)]
pub struct IndexError {
    /// The name of the index.
    pub index: Arc<str>,
    /// What the index function said.
    pub source: BoxError,
}

/// Why a write was refused. The store is as it was.
///
/// ```
/// use delta_fifo::informer::{Store, StoreError};
///
/// let store = Store::<u32, u32>::with_key_fn(|_: &u32| Err("no key"));
/// assert!(matches!(store.add(7), Err(StoreError::Key(error)) if *error.object == 7));
/// ```
#[non_exhaustive]
pub enum StoreError<T> {
    /// The key function failed; the object comes back.
    Key(KeyError<T>),
    /// An index function failed.
    Index(IndexError),
}

/// Why an index was not added. None was: all those of one call are added, or none.
///
/// ```
/// use delta_fifo::informer::{AddIndexersError, Store};
///
/// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
/// store.add_indexer("odd", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()])).unwrap();
/// let again = store.add_indexer("odd", |_: &u32| Ok::<_, &str>(vec![]));
/// assert!(matches!(again, Err(AddIndexersError::NameTaken(name)) if &*name == "odd"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum AddIndexersError {
    /// An index of this name exists already, or was given twice.
    NameTaken(Arc<str>),
    /// The function failed for an object that is in the store.
    Index(IndexError),
}

/// There is no index of this name.
///
/// ```
/// use delta_fifo::informer::Store;
///
/// let store = Store::<u32, u32>::with_key_fn(|n: &u32| Ok::<_, &str>(*n));
/// let error = store.by_index("odd", "1").unwrap_err();
/// assert!(error.to_string().contains("add_indexer"));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownIndex {
    /// The name that was asked for.
    pub name: String,
}

/// The informer that fed the store has stopped, so the version that was waited for will not come.
///
/// ```
/// let error = delta_fifo::informer::StoreStopped { reached: 7.into() };
/// assert!(error.to_string().contains('7'));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct StoreStopped {
    /// The last version the store reached.
    pub reached: super::ResourceVersion,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index `{}` refused an object, so nothing was written: {}", self.index, self.source)
    }
}

impl Error for IndexError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

impl<T> fmt::Display for StoreError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Key(error) => {
                write!(f, "the key function refused an object, so nothing was written: {}", error.source)
            }
            StoreError::Index(error) => error.fmt(f),
        }
    }
}

impl<T> fmt::Debug for StoreError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({self})")
    }
}

impl<T> Error for StoreError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StoreError::Key(error) => Some(&*error.source),
            StoreError::Index(error) => Some(&*error.source),
        }
    }
}

impl fmt::Display for AddIndexersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddIndexersError::NameTaken(name) => {
                write!(f, "there is an index `{name}` already; no index was added, choose another name")
            }
            AddIndexersError::Index(error) => {
                write!(f, "index `{}` refused a stored object, so no index was added: {}", error.index, error.source)
            }
        }
    }
}

impl Error for AddIndexersError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AddIndexersError::NameTaken(_) => None,
            AddIndexersError::Index(error) => Some(&*error.source),
        }
    }
}

impl fmt::Display for UnknownIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no index `{}`; add it with `add_indexer` first", self.name)
    }
}

impl Error for UnknownIndex {}

impl fmt::Display for StoreStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the informer has stopped; its store reached version {:?} and goes no further", self.reached)
    }
}

impl Error for StoreStopped {}

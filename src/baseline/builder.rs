//! The options of the baseline. They are those of `DeltaFifo` that mean something for one mutex.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::compress::Compression;
use crate::key::{BoxError, KeyFn};
use crate::known::KnownObjects;
use crate::queue::{DefaultHashBuilder, Limits};

use super::MutexFifo;
use super::state::{Known, Options};

/// Builds a [`MutexFifo`]; the methods are those of [`crate::Builder`].
///
/// ```
/// use delta_fifo::{Compression, Limits, baseline::MutexFifo};
///
/// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n))
///     .embedded_store()
///     .emit_replaced(true)
///     .transform(|object| Ok::<_, String>(object))
///     .compression(Compression::KeepLatest)
///     .limits(Limits { keys: Some(1), deltas: None })
///     .name("pods")
///     .build();
/// assert_eq!(fifo.name(), "pods");
/// ```
#[must_use = "nothing is built before `build`"]
pub struct Builder<T, K = Arc<str>, S = DefaultHashBuilder> {
    options: Options<T, K>,
    hasher: S,
}

impl<T, K> Builder<T, K> {
    pub(super) fn new(key_fn: KeyFn<T, K>) -> Self {
        Builder {
            options: Options {
                key_fn,
                known: Known::Nothing,
                emit_replaced: false,
                transform: None,
                compression: Compression::ClientGo,
                limits: Limits::default(),
                name: Cow::Borrowed("DeltaFIFO"),
            },
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T, K, S> Builder<T, K, S> {
    /// The consumer's store. It is read under the queue's mutex.
    ///
    /// ```
    /// use delta_fifo::{BoxError, KnownObjects, baseline::MutexFifo};
    /// use std::sync::Arc;
    ///
    /// struct Empty;
    ///
    /// impl KnownObjects<u32, u32> for Empty {
    ///     fn list_keys(&self) -> Vec<u32> {
    ///         Vec::new()
    ///     }
    ///     fn get_by_key(&self, _: &u32) -> Result<Option<Arc<u32>>, BoxError> {
    ///         Ok(None)
    ///     }
    /// }
    ///
    /// let fifo = MutexFifo::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).known_objects(Empty).build();
    /// fifo.delete(1).unwrap();
    /// assert!(fifo.is_empty());
    /// ```
    pub fn known_objects(mut self, known: impl KnownObjects<T, K> + 'static) -> Self {
        self.options.known = Known::Store(Box::new(known));
        self
    }

    /// The queue itself remembers the object that each key was released with, and uses that as known objects.
    ///
    /// ```
    /// # use delta_fifo::baseline::MutexFifo;
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).embedded_store().build();
    /// fifo.add(7).unwrap();
    /// fifo.try_pop().unwrap().done();
    /// assert_eq!(fifo.known_keys(), [7]);
    /// ```
    pub fn embedded_store(mut self) -> Self {
        self.options.known = Known::Embedded;
        self
    }

    /// Whether `replace` makes `Replaced` deltas; else it makes `Sync` ones, as in client-go by default.
    ///
    /// ```
    /// # use delta_fifo::baseline::MutexFifo;
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).emit_replaced(true).build();
    /// fifo.replace(vec![7.into()]).unwrap();
    /// assert_eq!(fifo.get(&7).unwrap()[0].delta_type().as_str(), "Replaced");
    /// ```
    pub fn emit_replaced(mut self, emit: bool) -> Self {
        self.options.emit_replaced = emit;
        self
    }

    /// A function over every object that comes in, but not over tombstones and the objects of a Resync (A3.2).
    ///
    /// ```
    /// # use delta_fifo::baseline::MutexFifo;
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n))
    ///     .transform(|n| Ok::<_, String>((*n + 1).into()))
    ///     .build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.get(&7).unwrap()[0].object().map(|n| **n), Some(8));
    /// ```
    pub fn transform<E: Into<BoxError>>(
        mut self,
        transform: impl Fn(Arc<T>) -> Result<Arc<T>, E> + Send + Sync + 'static,
    ) -> Self {
        self.options.transform = Some(Box::new(move |object| transform(object).map_err(Into::into)));
        self
    }

    /// What happens to several deltas of one key.
    ///
    /// ```
    /// # use delta_fifo::{Compression, baseline::MutexFifo};
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n))
    ///     .compression(Compression::KeepLatest)
    ///     .build();
    /// fifo.update(7).unwrap();
    /// fifo.update(7).unwrap();
    /// assert_eq!(fifo.get(&7).unwrap().len(), 1);
    /// ```
    pub fn compression(mut self, compression: Compression<T, K>) -> Self {
        self.options.compression = compression;
        self
    }

    /// How much may be pending before producers have to wait.
    ///
    /// ```
    /// # use delta_fifo::{Limits, baseline::MutexFifo};
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n))
    ///     .limits(Limits { keys: Some(1), deltas: None })
    ///     .build();
    /// fifo.try_add(1).unwrap();
    /// fifo.try_add(2).unwrap_err();
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// The queue's name; `DeltaFIFO` if none is given.
    ///
    /// ```
    /// # use delta_fifo::baseline::MutexFifo;
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).name("pods").build();
    /// assert_eq!(fifo.name(), "pods");
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.options.name = name.into();
        self
    }

    /// The hash function of the maps.
    ///
    /// ```
    /// # use delta_fifo::baseline::MutexFifo;
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n))
    ///     .hasher(std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default())
    ///     .build();
    /// # assert!(fifo.is_empty());
    /// ```
    pub fn hasher<S2>(self, hasher: S2) -> Builder<T, K, S2> {
        Builder { options: self.options, hasher }
    }

    /// Builds the queue.
    ///
    /// ```
    /// # use delta_fifo::baseline::MutexFifo;
    /// let fifo = MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// assert!(fifo.is_empty());
    /// ```
    pub fn build(self) -> MutexFifo<T, K, S>
    where
        K: Clone + Eq + Hash,
        S: BuildHasher + Clone,
    {
        MutexFifo::new(self.options, self.hasher)
    }
}

impl<T, K, S> fmt::Debug for Builder<T, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.options.name).finish_non_exhaustive()
    }
}

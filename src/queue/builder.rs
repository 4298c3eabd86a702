//! Options of a queue. All have defaults, and building cannot fail.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::limit::{Limits, Room};
use super::order::Order;
use super::reserve::Reserve;
use super::synced::Synced;
use super::{DefaultHashBuilder, DeltaFifo, Known, Options, State, Transform};
use crate::compress::Compression;
use crate::key::{BoxError, KeyFn, Keyed};
use crate::known::KnownObjects;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Event, Mutex, Pool, Table};

/// Shards of a queue that was told nothing about its size.
const DEFAULT_SHARDS: usize = 64;
/// Keys per shard that [`Builder::expected_keys`] aims at: a growth of one shard then holds its lock for some tens of
/// microseconds.
const KEYS_PER_SHARD: usize = 1024;
const MAX_SHARDS: usize = 8192;
/// Idle keys that may keep their working memory (64 bytes each).
const DEFAULT_RESERVE: usize = 16 * 1024;
/// Vectors for keys with several deltas that are kept for reuse.
const BUFFERS: usize = 256;

/// Builds a [`DeltaFifo`]. From [`DeltaFifo::builder`] or [`DeltaFifo::builder_with_key_fn`].
///
/// ```
/// use delta_fifo::{Compression, DeltaFifo};
///
/// let fifo = DeltaFifo::<(u64, &str), u64>::builder_with_key_fn(|o: &(u64, &str)| Ok::<_, &str>(o.0))
///     .embedded_store()
///     .emit_replaced(true)
///     .compression(Compression::KeepLatest)
///     .name("orders")
///     .build();
/// # assert!(fifo.is_empty());
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<T, K = Arc<str>, S = DefaultHashBuilder> {
    name: Cow<'static, str>,
    key_fn: KeyFn<T, K>,
    known: Known<T, K>,
    emit_replaced: bool,
    transform: Option<Transform<T>>,
    compression: Compression<T, K>,
    limits: Limits,
    hasher: S,
    shards: usize,
    expected_keys: usize,
    reserve: usize,
    background_share: Option<NonZeroU32>,
    marker: PhantomData<fn() -> T>,
}

impl<T, K, S> std::fmt::Debug for Builder<T, K, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("emit_replaced", &self.emit_replaced)
            .field("compression", &self.compression)
            .field("limits", &self.limits)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

impl<T, K> DeltaFifo<T, K>
where
    K: Clone + Eq + Hash,
{
    /// Builds a queue for objects that know their key.
    ///
    /// ```
    /// use delta_fifo::{DeltaFifo, Keyed};
    /// use std::sync::Arc;
    ///
    /// struct Pod { key: Arc<str> }
    /// impl Keyed for Pod {
    ///     fn key(&self) -> Arc<str> {
    ///         self.key.clone()
    ///     }
    /// }
    ///
    /// let fifo: DeltaFifo<Pod> = DeltaFifo::builder().build();
    /// fifo.add(Pod { key: "ns/a".into() }).unwrap();
    /// ```
    pub fn builder() -> Builder<T, K>
    where
        T: Keyed<K>,
    {
        Builder::with_key(KeyFn::Keyed(T::key))
    }

    /// Builds a queue with a key function that may fail.
    ///
    /// The function must give the same key for the same object every time. It is called once per call of a producer
    /// (and once per object of a list), under no lock.
    ///
    /// ```
    /// use delta_fifo::DeltaFifo;
    ///
    /// let fifo = DeltaFifo::<String, String>::builder_with_key_fn(|s: &String| match s.split_once('=') {
    ///     Some((key, _)) => Ok(key.to_owned()),
    ///     None => Err("expected key=value"),
    /// })
    /// .build();
    /// assert!(fifo.add("a=1".to_owned()).is_ok());
    /// assert!(fifo.add("a".to_owned()).is_err());
    /// ```
    pub fn builder_with_key_fn<F, E>(key_fn: F) -> Builder<T, K>
    where
        F: Fn(&T) -> Result<K, E> + Send + Sync + 'static,
        E: Into<BoxError>,
    {
        Builder::with_key(KeyFn::Custom(Box::new(move |object| key_fn(object).map_err(Into::into))))
    }
}

impl<T, K> Builder<T, K> {
    fn with_key(key_fn: KeyFn<T, K>) -> Self {
        Builder {
            name: Cow::Borrowed("DeltaFIFO"),
            key_fn,
            known: Known::Nowhere,
            emit_replaced: false,
            transform: None,
            compression: Compression::ClientGo,
            limits: Limits::default(),
            hasher: DefaultHashBuilder::default(),
            shards: DEFAULT_SHARDS,
            expected_keys: 0,
            reserve: DEFAULT_RESERVE,
            background_share: None,
            marker: PhantomData,
        }
    }
}

impl<T, K, S> Builder<T, K, S> {
    /// Known objects are in the user's store. The consumer writes it while it holds a claim.
    ///
    /// Without known objects a delete of a key that is neither queued nor claimed is ignored, `replace` finds deletions
    /// among queued and claimed keys only, and `resync` does nothing (rule A1.2).
    ///
    /// See [`KnownObjects`] for an example.
    pub fn known_objects(mut self, known: impl KnownObjects<T, K> + 'static) -> Self {
        self.known = Known::External(Box::new(known));
        self
    }

    /// Known objects are what was processed last: when a claim is released, the newest object it carried is
    /// remembered with its key, or forgotten if it was deleted.
    ///
    /// The fastest form: one lookup serves queue and store. Read it by [`DeltaFifo::known_object`] and
    /// [`DeltaFifo::known_keys`]. A known key costs its entry in the table: key, pointer, and 16 bytes.
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, Delta};
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).embedded_store().build();
    /// fifo.add(1).unwrap();
    /// drop(fifo.try_pop().unwrap());
    /// fifo.resync().unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().deltas().as_slice(), [Delta::Sync(1.into())]);
    /// ```
    pub fn embedded_store(mut self) -> Self {
        self.known = Known::Embedded;
        self
    }

    /// Whether `replace` emits [`Replaced`](crate::Delta::Replaced) instead of [`Sync`](crate::Delta::Sync), so that a
    /// consumer can tell a relist from a resync. Default: `false`, as in client-go (rule A1.3).
    ///
    /// ```
    /// # use delta_fifo::{DeltaFifo, DeltaType};
    /// let fifo =
    ///     DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).emit_replaced(true).build();
    /// fifo.replace(vec![1.into()]).unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().deltas()[0].delta_type(), DeltaType::Replaced);
    /// ```
    pub fn emit_replaced(mut self, emit: bool) -> Self {
        self.emit_replaced = emit;
        self
    }

    /// Changes each object on its way in, for example to drop what nobody reads.
    ///
    /// It is called once per object that an add, update, delete or replace brings, after its key was taken; not for
    /// tombstones and not by resync (rule A3.2). It runs under no lock. An error refuses the call.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// # use std::sync::Arc;
    /// let fifo = DeltaFifo::<(u32, String), u32>::builder_with_key_fn(|o: &(u32, String)| Ok::<_, &str>(o.0))
    ///     .transform(|o| Ok::<_, &str>(Arc::new((o.0, String::new()))))
    ///     .build();
    /// fifo.add((1, "large and unused".to_owned())).unwrap();
    /// assert_eq!(fifo.try_pop().unwrap().deltas()[0].object().unwrap().1, "");
    /// ```
    pub fn transform<F, E>(mut self, transform: F) -> Self
    where
        F: Fn(Arc<T>) -> Result<Arc<T>, E> + Send + Sync + 'static,
        E: Into<BoxError>,
    {
        self.transform = Some(Box::new(move |object| transform(object).map_err(Into::into)));
        self
    }

    /// What happens to several deltas of one key. Default: [`Compression::ClientGo`].
    ///
    /// See [`Compression`] for an example.
    pub fn compression(mut self, compression: Compression<T, K>) -> Self {
        self.compression = compression;
        self
    }

    /// How much may be pending. Default: no limit, as in client-go.
    ///
    /// See [`TryPushError`](crate::TryPushError) for an example.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The queue's name. Default: `DeltaFIFO`, as in client-go.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).name("pods").build();
    /// assert_eq!(fifo.name(), "pods");
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The hasher of keys. The default is seeded. One that is not lets whoever chooses the keys make them collide,
    /// which makes every operation of those keys slow (not wrong).
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    ///
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
    ///     .hasher(BuildHasherDefault::<DefaultHasher>::default())
    ///     .build();
    /// # assert!(fifo.is_empty());
    /// ```
    pub fn hasher<S2>(self, hasher: S2) -> Builder<T, K, S2> {
        Builder {
            name: self.name,
            key_fn: self.key_fn,
            known: self.known,
            emit_replaced: self.emit_replaced,
            transform: self.transform,
            compression: self.compression,
            limits: self.limits,
            hasher,
            shards: self.shards,
            expected_keys: self.expected_keys,
            reserve: self.reserve,
            background_share: self.background_share,
            marker: PhantomData,
        }
    }

    /// How many keys (known and pending) to prepare for: chooses the number of shards so that growth of one does not
    /// hold its lock for long, and how much room a shard makes when its first key comes. 1,024 keys per shard, between
    /// 64 and 8,192 shards; a wrong guess costs memory for at most 2,048 keys in a shard.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
    ///     .expected_keys(1_000_000)
    ///     .build();
    /// # assert!(fifo.is_empty());
    /// ```
    pub fn expected_keys(mut self, keys: usize) -> Self {
        self.expected_keys = keys;
        self.shards((keys / KEYS_PER_SHARD).clamp(DEFAULT_SHARDS, MAX_SHARDS))
    }

    /// The number of shards of the table, rounded up to a power of two, between 2 and 65,536. Default: 64. A shard takes
    /// about 800 bytes.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).shards(4).build();
    /// # assert!(fifo.is_empty());
    /// ```
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards.clamp(2, 1 << 16).next_power_of_two();
        self
    }

    /// How many idle keys may keep their working memory (64 bytes each), so that their next change costs no
    /// allocation. Default: 16,384.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).idle_keys(0).build();
    /// # assert!(fifo.is_empty());
    /// ```
    pub fn idle_keys(mut self, keys: usize) -> Self {
        self.reserve = keys;
        self
    }

    /// Keys that a replace or a resync queues wait in a second lane: one pop of `share` serves it first, the others
    /// only when nothing else is queued. Fresh events then do not wait behind a million replayed keys, and the
    /// replayed keys do not starve. A fresh event for a key that waits there moves it to the front.
    ///
    /// Default: one lane, client-go's order.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// use std::num::NonZeroU32;
    ///
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
    ///     .background_share(NonZeroU32::new(4).unwrap())
    ///     .build();
    /// fifo.replace((0..100).map(Into::into).collect()).unwrap();
    /// fifo.update(1_000).unwrap();
    /// drop(fifo.try_pop().unwrap()); // one of four is from the background
    /// assert_eq!(*fifo.try_pop().unwrap().key(), 1_000);
    /// ```
    pub fn background_share(mut self, share: NonZeroU32) -> Self {
        self.background_share = Some(share);
        self
    }

    /// Makes the queue.
    ///
    /// ```
    /// # use delta_fifo::DeltaFifo;
    /// let fifo = DeltaFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).build();
    /// assert!(!fifo.has_synced());
    /// ```
    pub fn build(self) -> DeltaFifo<T, K, S>
    where
        K: Clone + Eq + Hash,
        S: BuildHasher + Clone,
    {
        let rule = self.compression.append_rule();
        let custom = match self.compression {
            Compression::Custom(f) => Some(f),
            Compression::ClientGo | Compression::KeepLatest => None,
        };
        DeltaFifo {
            slots: Table::new(self.shards, self.expected_keys, self.hasher),
            order: Order::new(self.background_share),
            consumers: CachePadded::new(Event::new()),
            state: CachePadded::new(State {
                closed: AtomicBool::new(false),
                epoch: AtomicU64::new(0),
                draining: AtomicUsize::new(0),
            }),
            synced: Synced::new(),
            room: Room::new(self.limits),
            reserve: Reserve::new(self.reserve),
            buffers: Pool::new(BUFFERS),
            replacing: Mutex::new(()),
            resyncs: AtomicU64::new(1),
            drained: Event::new(),
            options: Options {
                name: self.name,
                key_fn: self.key_fn,
                known: self.known,
                emit_replaced: self.emit_replaced,
                transform: self.transform,
                rule,
                custom,
            },
        }
    }
}

//! How an informer is put together.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::feed::Feed;
use super::{SharedInformer, Source};
use crate::compress::Compression;
use crate::informer::progress::Progress;
use crate::informer::reflector::{Control, ErrorHook};
use crate::informer::worker::{Core, SameObject};
use crate::informer::{
    AddIndexersError, Indexers, ListWatch, Reflector, ReflectorError, ReflectorOptions, Store, Versioned,
};
use crate::key::{BoxError, Keyed};
use crate::queue::{Builder, DeltaFifo, Limits};

/// Builds a [`SharedInformer`], or an [`Informer`](crate::informer::Informer).
///
/// ```
/// use delta_fifo::{Keyed, informer::{MemoryServer, SharedInformer, Versioned}};
/// use std::time::Duration;
/// # #[derive(Clone)] struct Pod { version: u64 }
/// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
/// # impl Versioned for Pod {}
/// # let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
/// let informer = SharedInformer::builder(server)
///     .resync_period(Duration::from_secs(600))
///     .workers(2)
///     .on_error(|error| eprintln!("{error}"))
///     .build()
///     .unwrap();
/// assert!(!informer.has_synced());
/// ```
pub struct InformerBuilder<T, K = Arc<str>>
where
    K: Hash + Eq + Clone,
{
    queue: Builder<T, K>,
    store: Store<T, K>,
    source: SourceFn<T, K>,
    reflector: ReflectorOptions,
    resync_period: Duration,
    workers: usize,
    indexers: Indexers<T>,
    on_error: ErrorHook,
    same_object: Option<SameObject<T>>,
}

/// Makes the reflector's future when the informer starts; hides the type of the source.
type SourceFn<T, K> = Box<dyn FnOnce(Feed<T, K>, ReflectorOptions, Arc<Control>) -> Source + Send>;

macro_rules! example {
    ($call:literal) => {
        concat!(
            "```\n# use delta_fifo::{Keyed, Limits, Compression, informer::*};\n",
            "# use std::{num::NonZeroU32, time::Duration};\n",
            "# #[derive(Clone)] struct Pod { uid: u64 }\n",
            "# impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }\n",
            "# impl Versioned for Pod {}\n",
            "# let server = MemoryServer::<Pod, u32>::new(|_, _| ());\n",
            "let informer = SharedInformer::builder(server)",
            $call,
            ".build().unwrap();\n# let _ = informer;\n```"
        )
    };
}

impl<T, K> InformerBuilder<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    pub(super) fn new<L: ListWatch<T>>(source: L) -> Self
    where
        T: Keyed<K>,
    {
        InformerBuilder::with(source, DeltaFifo::builder(), Store::new())
    }

    pub(super) fn with_key_fn<L, E>(source: L, key_fn: impl Fn(&T) -> Result<K, E> + Send + Sync + 'static) -> Self
    where
        L: ListWatch<T>,
        E: Into<BoxError>,
    {
        let key_fn = Arc::new(move |object: &T| key_fn(object).map_err(Into::into));
        let for_store = key_fn.clone();
        InformerBuilder::with(
            source,
            DeltaFifo::builder_with_key_fn(move |object: &T| -> Result<K, BoxError> { key_fn(object) }),
            Store::with_key_fn(move |object: &T| -> Result<K, BoxError> { for_store(object) }),
        )
    }

    fn with<L: ListWatch<T>>(source: L, queue: Builder<T, K>, store: Store<T, K>) -> Self {
        InformerBuilder {
            queue,
            store,
            source: Box::new(move |feed, options, control| {
                let reflector = Reflector::new(source, feed).options(options).control(control);
                Box::pin(async move { reflector.run().await })
            }),
            reflector: ReflectorOptions::default(),
            resync_period: Duration::ZERO,
            workers: 1,
            indexers: Indexers::new(),
            on_error: Arc::new(|_| ()),
            same_object: None,
        }
    }

    /// How often handlers see everything again that ask for nothing else. Zero, the default: never.
    ///
    #[doc = example!(".resync_period(Duration::from_secs(600))")]
    #[must_use]
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = period;
        self
    }

    /// How many tasks write to the store, 1 by default. More help where index functions are slow; handlers have tasks
    /// of their own.
    ///
    /// # Panics
    ///
    /// If it is 0.
    ///
    #[doc = example!(".workers(2)")]
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        assert_ne!(workers, 0, "without a worker nothing would be applied");
        self.workers = workers;
        self
    }

    /// Indices of the store. More can be added later.
    ///
    #[doc = example!(".indexers(Indexers::new().with(\"uid\", |p: &Pod| Ok::<_, &str>(vec![p.uid.to_string()])))")]
    #[must_use]
    pub fn indexers(mut self, indexers: Indexers<T>) -> Self {
        self.indexers = indexers;
        self
    }

    /// Changes objects before they are queued, once each, for instance to drop what nobody reads.
    ///
    #[doc = example!(".transform(|pod| Ok::<_, &str>(pod))")]
    #[must_use]
    pub fn transform<E: Into<BoxError>>(
        mut self,
        transform: impl Fn(Arc<T>) -> Result<Arc<T>, E> + Send + Sync + 'static,
    ) -> Self {
        self.queue = self.queue.transform(transform);
        self
    }

    /// What the queue does with several changes of a key that no worker has come to.
    ///
    #[doc = example!(".compression(Compression::KeepLatest)")]
    #[must_use]
    pub fn compression(mut self, compression: Compression<T, K>) -> Self {
        self.queue = self.queue.compression(compression);
        self
    }

    /// Limits of the queue: at a limit the reflector waits, and the source's stream with it.
    ///
    #[doc = example!(".limits(Limits { keys: Some(10_000), deltas: None })")]
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.queue = self.queue.limits(limits);
        self
    }

    /// Lists and Resyncs give way to fresh events: at most one key of `share` is theirs while such wait.
    ///
    #[doc = example!(".background_share(NonZeroU32::new(8).unwrap())")]
    #[must_use]
    pub fn background_share(mut self, share: NonZeroU32) -> Self {
        self.queue = self.queue.background_share(share);
        self
    }

    /// How the reflector works: pages, back-off, streaming lists. Its `resync_period` is ignored: handlers have theirs.
    ///
    #[doc = example!(".reflector(ReflectorOptions { page_size: Some(100), ..Default::default() })")]
    #[must_use]
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.reflector = ReflectorOptions { resync_period: Duration::ZERO, ..options };
        self
    }

    /// Is told what fails on the way from the source to the store. It should be quick. If it panics, that is ignored.
    ///
    #[doc = example!(".on_error(|error| eprintln!(\"{error}\"))")]
    #[must_use]
    pub fn on_error(mut self, hook: impl Fn(&ReflectorError) + Send + Sync + 'static) -> Self {
        self.on_error = Arc::new(hook);
        self
    }

    /// Tells whether two states of a key are of the same object. If not, handlers hear of a deletion and an addition,
    /// not of an update: an object that was deleted and made again while nobody watched is another one.
    ///
    #[doc = example!(".same_object(|old, new| old.uid == new.uid)")]
    #[must_use]
    pub fn same_object(mut self, same: impl Fn(&T, &T) -> bool + Send + Sync + 'static) -> Self {
        self.same_object = Some(Box::new(same));
        self
    }

    /// Puts the informer together. It does nothing until it is [started](SharedInformer::start).
    ///
    /// # Errors
    ///
    /// Two indices have the same name.
    ///
    #[doc = example!("")]
    pub fn build(self) -> Result<SharedInformer<T, K>, AddIndexersError> {
        self.store.add_indexers(self.indexers)?;
        let store = Arc::new(self.store);
        let queue = self.queue.known_objects(store.clone()).emit_replaced(true).build();
        let control = Arc::new(Control::new(self.on_error));
        let core = Arc::new(Core {
            queue: Arc::new(queue),
            store,
            round: AtomicU64::new(0),
            progress: Progress::new(self.workers),
            control: control.clone(),
            same_object: self.same_object,
        });
        let feed = Feed::new(core.clone());
        let (source, options) = (self.source, self.reflector);
        let for_source = feed.clone();
        let start = Box::new(move || source(for_source, options, control));
        Ok(SharedInformer::new(core, feed, start, self.workers, self.resync_period))
    }
}

impl<T, K: Hash + Eq + Clone> fmt::Debug for InformerBuilder<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder")
            .field("workers", &self.workers)
            .field("resync_period", &self.resync_period)
            .finish_non_exhaustive()
    }
}

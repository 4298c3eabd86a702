//! The shared informer: one reflector, queue and store, and any number of handlers.
//!
//! ```text
//! source ─► reflector ─► queue ─► worker 1..n ─► store ─► readers
//!                          ▲          │
//!               resync ────┘          ├─► buffer ─► runner ─► handler
//!                                     └─► buffer ─► runner ─► handler
//! ```
//!
//! Each box is a task. See `hand_over` for how a late handler misses nothing and gets nothing twice.

mod builder;
mod feed;
mod handle;
mod outcome;
mod shutdown;

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

pub use builder::InformerBuilder;
pub use handle::HandlerHandle;
pub use outcome::{AlreadyStarted, InformerStopped, NotSynced, Shutdown, ShutdownReport};

use self::feed::Feed;
use super::guard::contain;
use super::pipeline::Pipeline;
use super::reflector::ReflectorStore;
use super::worker::Core;
use super::{
    AddIndexersError, Handler, HandlerOptions, Indexers, ListWatch, ReflectorError, ResourceVersion, SourceError,
    StoreReader, Versioned,
};
use crate::key::{BoxError, Keyed};

/// The reflector, running.
type Source = Pin<Box<dyn Future<Output = Result<(), SourceError>> + Send>>;
type StartSource = Box<dyn FnOnce() -> Source + Send>;

/// One source, one store, many handlers (client-go's `SharedIndexInformer`). Clones are the same informer.
///
/// When the last clone is dropped without a [`shutdown`](Self::shutdown), its tasks are aborted, and who waits for its
/// store or its handlers is told.
///
/// ```
/// use delta_fifo::{Keyed, informer::{Event, Handler, MemoryServer, SharedInformer, Shutdown, Versioned}};
///
/// #[derive(Clone)]
/// struct Pod { name: String, version: u64 }
///
/// impl Keyed<String> for Pod {
///     fn key(&self) -> String { self.name.clone() }
/// }
/// impl Versioned for Pod {
///     fn resource_version(&self) -> delta_fifo::informer::ResourceVersion { self.version.into() }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let server = MemoryServer::new(|pod: &mut Pod, version| pod.version = version);
/// server.put(Pod { name: "a".into(), version: 0 });
///
/// let informer = SharedInformer::builder(server.clone()).build().unwrap();
/// let handler = informer
///     .add_event_handler(Handler::from_fn(|event: &Event<Pod, String>| {
///         println!("{event:?}");
///         Ok::<_, std::io::Error>(())
///     }))
///     .unwrap();
/// informer.start().unwrap();
/// handler.wait_synced().await.unwrap();
/// assert_eq!(informer.store().len(), 1);
///
/// // Read your writes.
/// let version = server.put(Pod { name: "b".into(), version: 0 });
/// informer.store().wait_for(version).await.unwrap();
/// assert_eq!(informer.store().len(), 2);
/// informer.shutdown(Shutdown::Immediate).await;
/// # });
/// ```
pub struct SharedInformer<T, K = Arc<str>>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    owner: Arc<Owner<T, K>>,
}

/// Keeps the tasks; they keep `core`, and not the other way round.
struct Owner<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    core: Arc<Core<T, K>>,
    feed: Feed<T, K>,
    shared: Arc<Shared>,
    workers: usize,
    resync_period: Duration,
    life: Mutex<Life>,
    /// The tasks that a shutdown has not ended yet. Shutdowns run one at a time.
    ending: tokio::sync::Mutex<Option<Tasks>>,
    /// An immediate shutdown was called for: a graceful one that runs waits for nothing more.
    urgent: watch::Sender<bool>,
}

/// What handles and tasks need beside `core`.
struct Shared {
    /// Handlers or their due times have changed.
    schedule: Notify,
    /// Why the source cannot be used any more.
    fatal: watch::Sender<Option<Arc<str>>>,
}

enum Life {
    New(StartSource),
    Running(Tasks),
    Stopped,
}

struct Tasks {
    runtime: runtime::Handle,
    reflector: JoinSet<()>,
    workers: JoinSet<()>,
    /// Resync and progress.
    beside: JoinSet<()>,
    runners: JoinSet<()>,
}

impl<T, K> SharedInformer<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// A builder for objects that know their key.
    ///
    /// See [`InformerBuilder`] for an example.
    pub fn builder<L: ListWatch<T>>(source: L) -> InformerBuilder<T, K>
    where
        T: Keyed<K>,
    {
        InformerBuilder::new(source)
    }

    /// A builder with a key function, which may fail. A list with an object that has no key is refused and made again.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod { name: String }
    /// # impl Keyed<String> for Pod { fn key(&self) -> String { self.name.clone() } }
    /// # impl Versioned for Pod {}
    /// # let server = MemoryServer::<Pod, String>::new(|_, _| ());
    /// let informer = SharedInformer::builder_with_key_fn(server, |pod: &Pod| {
    ///     if pod.name.is_empty() { Err("no name") } else { Ok(pod.name.clone()) }
    /// });
    /// # let _ = informer;
    /// ```
    pub fn builder_with_key_fn<L, E>(
        source: L,
        key_fn: impl Fn(&T) -> Result<K, E> + Send + Sync + 'static,
    ) -> InformerBuilder<T, K>
    where
        L: ListWatch<T>,
        E: Into<BoxError>,
    {
        InformerBuilder::with_key_fn(source, key_fn)
    }

    fn new(
        core: Arc<Core<T, K>>,
        feed: Feed<T, K>,
        start: StartSource,
        workers: usize,
        resync_period: Duration,
    ) -> Self {
        let shared = Shared { schedule: Notify::new(), fatal: watch::Sender::new(None) };
        let owner = Owner {
            core,
            feed,
            shared: Arc::new(shared),
            workers,
            resync_period,
            life: Mutex::new(Life::New(start)),
            ending: tokio::sync::Mutex::new(None),
            urgent: watch::Sender::new(false),
        };
        SharedInformer { owner: Arc::new(owner) }
    }

    fn core(&self) -> &Arc<Core<T, K>> {
        &self.owner.core
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.owner.life()
    }

    /// Starts the tasks on the current runtime.
    ///
    /// # Errors
    ///
    /// It was started before; a stopped informer is not started again.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one without time: build it with `enable_time` or `enable_all`. Nothing is started then.
    ///
    /// See the [type](Self) for an example.
    pub fn start(&self) -> Result<(), AlreadyStarted> {
        let runtime = runtime::Handle::current();
        // Panics without a timer here and now, and not later in a task where nobody sees it.
        drop(sleep(Duration::ZERO));
        let mut life = self.life();
        let start = match std::mem::replace(&mut *life, Life::Stopped) {
            Life::New(start) => start,
            other => {
                *life = other;
                return Err(AlreadyStarted(()));
            }
        };
        let (core, shared) = (self.core(), &self.owner.shared);
        let mut tasks = Tasks {
            runtime: runtime.clone(),
            reflector: JoinSet::new(),
            workers: JoinSet::new(),
            beside: JoinSet::new(),
            runners: JoinSet::new(),
        };
        for worker in 0..self.owner.workers {
            let core = core.clone();
            tasks.workers.spawn_on(async move { core.work(worker).await }, &runtime);
        }
        let now = Instant::now();
        for handler in core.store.handlers().iter() {
            handler.start_resync(now);
            tasks.spawn_runners(handler);
        }
        let progress = core.clone();
        tasks.beside.spawn_on(async move { progress.progress.run(&progress.queue, &progress.store).await }, &runtime);
        tasks.beside.spawn_on(resyncs(core.clone(), self.owner.feed.clone(), shared.clone()), &runtime);
        let source = start();
        let fatal = shared.clone();
        tasks.reflector.spawn_on(
            async move {
                if let Err(error) = source.await {
                    fatal.fatal.send_replace(Some(error.to_string().into()));
                }
            },
            &runtime,
        );
        *life = Life::Running(tasks);
        Ok(())
    }

    /// Adds a handler with the default options: see [`add_event_handler_with`](Self::add_event_handler_with).
    ///
    /// # Errors
    ///
    /// The informer is stopped.
    ///
    /// See the [type](Self) for an example.
    pub fn add_event_handler(&self, handler: Handler<T, K>) -> Result<HandlerHandle<T, K>, InformerStopped> {
        self.add_event_handler_with(handler, HandlerOptions::new())
    }

    /// Adds a handler, at any time, also from within one. It is first shown what is in the store, as additions with
    /// `initial` set, and then what changes: nothing is left out and nothing comes twice. It holds nobody up.
    ///
    /// # Errors
    ///
    /// The informer is stopped.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
    /// let handle = informer
    ///     .add_event_handler_with(
    ///         Handler::from_fn(|_: &Event<Pod, u32>| Ok::<_, &str>(())),
    ///         HandlerOptions::new().name("audit").buffering(Buffering::Coalescing),
    ///     )
    ///     .unwrap();
    /// assert_eq!(handle.name(), "audit");
    /// ```
    pub fn add_event_handler_with(
        &self,
        handler: Handler<T, K>,
        options: HandlerOptions<T, K>,
    ) -> Result<HandlerHandle<T, K>, InformerStopped> {
        let mut life = self.life();
        if matches!(*life, Life::Stopped) {
            return Err(InformerStopped(()));
        }
        let (core, shared) = (self.core(), &self.owner.shared);
        let period = options.resync_period.unwrap_or(self.owner.resync_period);
        let pipeline = core.store.register(|replay| Pipeline::new(handler, options, period, replay));
        if let Life::Running(tasks) = &mut *life {
            pipeline.start_resync(Instant::now());
            tasks.spawn_runners(&pipeline);
            shared.schedule.notify_one();
        }
        drop(life);
        Ok(HandlerHandle { core: core.clone(), shared: shared.clone(), pipeline })
    }

    /// Adds indices to the store, at any time; see [`Store::add_indexers`](super::Store::add_indexers).
    ///
    /// # Errors
    ///
    /// A name is taken, or a function failed for an object of the store.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod { node: String }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
    /// informer.add_indexers(Indexers::new().with("node", |pod: &Pod| Ok::<_, &str>(vec![pod.node.clone()]))).unwrap();
    /// assert!(informer.store().by_index("node", "n1").unwrap().is_empty());
    /// ```
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), AddIndexersError> {
        self.core().store.add_indexers(indexers)
    }

    /// The store, to read.
    ///
    /// See the [type](Self) for an example.
    pub fn store(&self) -> StoreReader<T, K> {
        self.core().store.reader()
    }

    /// Whether the first list has been applied to the store. Once true it stays true.
    ///
    /// Handlers may still have it in their buffers; each has a [`has_synced`](HandlerHandle::has_synced) of its own.
    ///
    /// See [`InformerBuilder`] for an example.
    pub fn has_synced(&self) -> bool {
        self.core().queue.has_synced()
    }

    /// Waits until the first list has been applied to the store.
    ///
    /// # Errors
    ///
    /// It will not be: the informer stopped before, or its source cannot be used.
    ///
    /// See [`HandlerHandle::wait_synced`] for an example.
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        wait_synced(self.core(), &self.owner.shared).await
    }

    /// The version of the last list or event that the reflector put into the queue. What has been applied is the
    /// store's [`resource_version`](StoreReader::resource_version).
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
    /// assert!(informer.last_sync_resource_version().is_unset());
    /// ```
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        self.core().control.last_version()
    }

    /// Keys with changes that no worker has come to.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
    /// assert_eq!(informer.queued_keys(), 0);
    /// ```
    pub fn queued_keys(&self) -> usize {
        self.core().queue.len()
    }

    /// Ends the watch, so that a new list is made after a wait.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
    /// informer.relist();
    /// ```
    pub fn relist(&self) {
        self.core().control.relist();
    }

    /// Whether [`shutdown`](Self::shutdown) was called.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
    /// assert!(!informer.is_stopped());
    /// ```
    pub fn is_stopped(&self) -> bool {
        matches!(*self.life(), Life::Stopped)
    }

    /// Stops the informer and waits until no task of it is left. The store stays readable. An immediate shutdown also
    /// ends a graceful one that runs; otherwise a second one waits for the first.
    ///
    /// A handler must not wait for it, because it waits for the handler: let a task of its own call it. An async
    /// handler that does wait is dropped by an immediate shutdown; one that blocks its thread cannot be helped.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, the informer's tasks are aborted where they wait. Another shutdown waits for their end.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # use std::time::Duration;
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let informer = SharedInformer::builder(MemoryServer::<Pod, u32>::new(|_, _| ())).build().unwrap();
    /// informer.start().unwrap();
    /// let report = informer.shutdown(Shutdown::Graceful(Duration::from_secs(30))).await;
    /// assert!(report.is_clean());
    /// # });
    /// ```
    pub async fn shutdown(&self, how: Shutdown) -> ShutdownReport {
        self.owner.shutdown(how).await
    }
}

impl Tasks {
    fn spawn_runners<T, K>(&mut self, pipeline: &Arc<Pipeline<T, K>>)
    where
        T: Send + Sync + 'static,
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        // Those of handlers that were removed.
        while self.runners.try_join_next().is_some() {}
        for _ in 0..pipeline.concurrency() {
            self.runners.spawn_on(pipeline.clone().run(), &self.runtime);
        }
    }
}

async fn wait_synced<T, K>(core: &Core<T, K>, shared: &Shared) -> Result<(), NotSynced>
where
    K: Hash + Eq + Clone,
{
    let mut fatal = shared.fatal.subscribe();
    tokio::select! {
        biased;
        synced = core.queue.wait_synced() => if synced { Ok(()) } else { Err(NotSynced::Stopped) },
        Ok(fatal) = fatal.wait_for(Option::is_some) => {
            Err(fatal.clone().map_or(NotSynced::Stopped, NotSynced::Source))
        }
    }
}

/// Queues everything again whenever a handler's period is over.
///
/// A round has a number. The handlers that are due note it, then it becomes the current round, then the keys are
/// queued. A worker that takes a key delivers it to the handlers whose round is newer than the key's note; see `Core`.
async fn resyncs<T, K>(core: Arc<Core<T, K>>, feed: Feed<T, K>, shared: Arc<Shared>)
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    loop {
        let next = core.store.handlers().iter().filter_map(|handler| handler.next_resync()).min();
        tokio::select! {
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            () = shared.schedule.notified() => continue,
        }
        let now = Instant::now();
        let round = core.round.load(Ordering::Relaxed) + 1;
        let handlers = core.store.handlers();
        let due = handlers.iter().filter(|handler| handler.take_due(now, round)).count();
        if due == 0 {
            continue;
        }
        // Release: a worker that reads this round sees who is in it.
        core.round.store(round, Ordering::Release);
        if let Err(error) = contain(feed.resync()).await.unwrap_or_else(Err) {
            core.control.report(&ReflectorError::Resync(error));
            core.control.relist();
        }
    }
}

impl<T, K> Clone for SharedInformer<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn clone(&self) -> Self {
        SharedInformer { owner: self.owner.clone() }
    }
}

impl<T, K> fmt::Debug for SharedInformer<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("store", &self.core().store)
            .field("handlers", &self.core().store.handlers().len())
            .field("queued_keys", &self.queued_keys())
            .finish_non_exhaustive()
    }
}

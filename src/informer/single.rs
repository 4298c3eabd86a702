//! The informer with one handler.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::{
    AddIndexersError, AlreadyStarted, Buffering, Handler, HandlerHandle, HandlerOptions, InformerBuilder, NotSynced,
    SharedInformer, Shutdown, ShutdownReport, StoreReader, Versioned,
};

/// One source, one store, one handler (client-go's `NewInformer`): what a program needs that follows one kind of object.
///
/// The handler is called for several keys at a time if asked to, and for each key in order. Its buffer
/// [coalesces](Buffering::Coalescing) unless the options say otherwise, so a slow handler costs no memory.
///
/// ```
/// use delta_fifo::{Keyed, informer::{Event, Handler, HandlerOptions, Informer, MemoryServer, SharedInformer, Shutdown, Versioned}};
/// # #[derive(Clone)] struct Pod { version: u64 }
/// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
/// # impl Versioned for Pod {}
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
/// let handler = Handler::from_async_fn(|event: Event<Pod, u32>| async move {
///     println!("{event:?}");
///     Ok::<_, std::io::Error>(())
/// });
/// let informer = Informer::new(SharedInformer::builder(server), handler, Informer::options().concurrency(8)).unwrap();
/// informer.start().unwrap();
/// informer.wait_synced().await.unwrap();
/// informer.shutdown(Shutdown::Immediate).await;
/// # });
/// ```
pub struct Informer<T, K = Arc<str>>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    shared: SharedInformer<T, K>,
    handler: HandlerHandle<T, K>,
}

impl<T, K> Informer<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// The options to begin with: a coalescing buffer, the rest as in [`HandlerOptions::new`].
    ///
    /// See the [type](Self) for an example.
    pub fn options() -> HandlerOptions<T, K> {
        HandlerOptions::new().buffering(Buffering::Coalescing)
    }

    /// Puts an informer together.
    ///
    /// # Errors
    ///
    /// Two indices have the same name.
    ///
    /// See the [type](Self) for an example.
    pub fn new(
        builder: InformerBuilder<T, K>,
        handler: Handler<T, K>,
        options: HandlerOptions<T, K>,
    ) -> Result<Self, AddIndexersError> {
        let shared = builder.build()?;
        let handler = shared.add_event_handler_with(handler, options);
        Ok(Informer { handler: handler.expect("a new informer is not stopped"), shared })
    }

    /// Starts it; see [`SharedInformer::start`].
    ///
    /// # Errors
    ///
    /// It was started before.
    ///
    /// See the [type](Self) for an example.
    pub fn start(&self) -> Result<(), AlreadyStarted> {
        self.shared.start()
    }

    /// Waits until the first list is in the store and the handler is done with it.
    ///
    /// # Errors
    ///
    /// It will not be: the informer stopped before, or its source cannot be used.
    ///
    /// See the [type](Self) for an example.
    pub async fn wait_synced(&self) -> Result<(), NotSynced> {
        self.handler.wait_synced().await
    }

    /// The store, to read.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let handler = Handler::from_fn(|_: &Event<Pod, u32>| Ok::<_, &str>(()));
    /// let informer = Informer::new(SharedInformer::builder(server), handler, Informer::options()).unwrap();
    /// assert!(informer.store().is_empty());
    /// ```
    pub fn store(&self) -> StoreReader<T, K> {
        self.shared.store()
    }

    /// The handler, for its statistics.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let handler = Handler::from_fn(|_: &Event<Pod, u32>| Ok::<_, &str>(()));
    /// let informer = Informer::new(SharedInformer::builder(server), handler, Informer::options()).unwrap();
    /// assert_eq!(informer.handler().stats().waiting, 0);
    /// ```
    pub fn handler(&self) -> &HandlerHandle<T, K> {
        &self.handler
    }

    /// The informer underneath, which takes more handlers.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # impl Versioned for Pod {}
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let handler = Handler::from_fn(|_: &Event<Pod, u32>| Ok::<_, &str>(()));
    /// let informer = Informer::new(SharedInformer::builder(server), handler, Informer::options()).unwrap();
    /// informer.shared().relist();
    /// ```
    pub fn shared(&self) -> &SharedInformer<T, K> {
        &self.shared
    }

    /// Stops it; see [`SharedInformer::shutdown`].
    ///
    /// See the [type](Self) for an example.
    pub async fn shutdown(&self, how: Shutdown) -> ShutdownReport {
        self.shared.shutdown(how).await
    }
}

impl<T, K> fmt::Debug for Informer<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("shared", &self.shared).field("handler", &self.handler).finish()
    }
}

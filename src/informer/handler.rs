//! Handlers: what is called with events, and how.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{catch, contain};
use super::{BackoffPolicy, Event, EventKind};
use crate::delta::Deleted;
use crate::key::BoxError;

type BoxFuture = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// client-go's three callbacks. Each is optional.
///
/// They run on a task of the runtime, so they must not block it for long; see [`Handler::blocking_fn`] for those that do.
///
/// ```
/// use delta_fifo::{BoxError, informer::{Handler, ResourceEventHandler}};
/// use std::sync::Arc;
///
/// struct Print;
///
/// impl ResourceEventHandler<u32, u32> for Print {
///     fn on_add(&self, object: &Arc<u32>, is_in_initial_list: bool) -> Result<(), BoxError> {
///         println!("{object}, {is_in_initial_list}");
///         Ok(())
///     }
/// }
/// let handler = Handler::new(Print);
/// # let _ = handler;
/// ```
pub trait ResourceEventHandler<T, K = Arc<str>>: Send + Sync + 'static {
    /// The object was not there before.
    ///
    /// # Errors
    ///
    /// An error, or a panic, is retried; see [`RetryPolicy`].
    fn on_add(&self, object: &Arc<T>, is_in_initial_list: bool) -> Result<(), BoxError> {
        let _ = (object, is_in_initial_list);
        Ok(())
    }

    /// The object changed, or is shown again by a Resync.
    ///
    /// # Errors
    ///
    /// As [`on_add`](Self::on_add).
    fn on_update(&self, old: &Arc<T>, new: &Arc<T>) -> Result<(), BoxError> {
        let _ = (old, new);
        Ok(())
    }

    /// The object is gone.
    ///
    /// # Errors
    ///
    /// As [`on_add`](Self::on_add).
    fn on_delete(&self, deleted: &Deleted<T, K>) -> Result<(), BoxError> {
        let _ = deleted;
        Ok(())
    }
}

type HandleFn<T, K> = dyn Fn(&Event<T, K>) -> Result<(), BoxError> + Send + Sync;

enum Call<T, K> {
    Sync(Box<HandleFn<T, K>>),
    Blocking(Arc<HandleFn<T, K>>),
    Async(Box<dyn Fn(Event<T, K>) -> BoxFuture + Send + Sync>),
}

type Filter<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

/// A handler of events, made from a function, an async function or a [`ResourceEventHandler`].
///
/// It is called under no lock, and its events wait in a buffer of its own: it holds up neither producers nor other
/// handlers. Calls for one key follow one another.
///
/// ```
/// use delta_fifo::informer::{Event, Handler};
///
/// let counted = Handler::from_fn(|event: &Event<u32, u32>| {
///     println!("{event:?}");
///     Ok::<_, std::io::Error>(())
/// });
/// let asynchronous = Handler::from_async_fn(|event: Event<u32, u32>| async move {
///     tokio::time::sleep(std::time::Duration::from_millis(event.key.into())).await;
///     Ok::<_, std::io::Error>(())
/// });
/// # let _ = (counted, asynchronous);
/// ```
pub struct Handler<T, K = Arc<str>> {
    call: Call<T, K>,
    filter: Option<Filter<T>>,
}

impl<T: Send + Sync + 'static, K: Send + Sync + 'static> Handler<T, K> {
    /// From client-go's three callbacks.
    ///
    /// See [`ResourceEventHandler`] for an example.
    pub fn new(handler: impl ResourceEventHandler<T, K>) -> Self {
        Handler::from_fn(move |event: &Event<T, K>| match &event.kind {
            EventKind::Added { object, initial } => handler.on_add(object, *initial),
            EventKind::Updated { old, new } => handler.on_update(old, new),
            EventKind::Deleted(deleted) => handler.on_delete(deleted),
        })
    }

    /// From a function. It runs on a task of the runtime, so it must not block it for long.
    ///
    /// See the [type](Self) for an example.
    pub fn from_fn<E: Into<BoxError>>(handle: impl Fn(&Event<T, K>) -> Result<(), E> + Send + Sync + 'static) -> Self {
        Handler::with(Call::Sync(Box::new(move |event| handle(event).map_err(Into::into))))
    }

    /// From a function that blocks: it runs on a thread for such work.
    ///
    /// ```
    /// use delta_fifo::informer::{Event, Handler};
    /// let handler = Handler::blocking_fn(|event: &Event<u32, u32>| std::fs::write("/dev/null", event.key.to_string()));
    /// # let _ = handler;
    /// ```
    pub fn blocking_fn<E: Into<BoxError>>(
        handle: impl Fn(&Event<T, K>) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Handler::with(Call::Blocking(Arc::new(move |event| handle(event).map_err(Into::into))))
    }

    /// From an async function. On an immediate shutdown its future is dropped where it waits.
    ///
    /// See the [type](Self) for an example.
    pub fn from_async_fn<F, E>(handle: impl Fn(Event<T, K>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Handler::with(Call::Async(Box::new(move |event| {
            let future = handle(event);
            Box::pin(async move { future.await.map_err(Into::into) })
        })))
    }

    fn with(call: Call<T, K>) -> Self {
        Handler { call, filter: None }
    }

    /// Shows the handler only objects that `filter` accepts. An object that changes so that it is accepted no longer
    /// is deleted for the handler; one that is accepted from now on is added.
    ///
    /// A tombstone that carries no object is passed on: nobody can say whether it was accepted.
    ///
    /// ```
    /// use delta_fifo::informer::{Event, Handler};
    /// let even = Handler::from_fn(|_: &Event<u32, u32>| Ok::<_, &str>(())).filter(|n| n % 2 == 0);
    /// # let _ = even;
    /// ```
    #[must_use]
    pub fn filter(mut self, filter: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        let before = self.filter.take();
        self.filter = Some(match before {
            None => Box::new(filter),
            Some(before) => Box::new(move |object| before(object) && filter(object)),
        });
        self
    }

    /// What is left of an event after the filter. User code: under no lock.
    fn filtered(&self, mut event: Event<T, K>) -> Option<Event<T, K>> {
        let Some(filter) = &self.filter else { return Some(event) };
        event.kind = match event.kind {
            EventKind::Added { object, initial } => filter(&object).then_some(EventKind::Added { object, initial })?,
            EventKind::Deleted(deleted) => {
                deleted.object().is_none_or(|object| filter(object)).then_some(EventKind::Deleted(deleted))?
            }
            EventKind::Updated { old, new } => match (filter(&old), filter(&new)) {
                (true, true) => EventKind::Updated { old, new },
                (false, true) => EventKind::Added { object: new, initial: false },
                (true, false) => EventKind::Deleted(Deleted::Observed(old)),
                (false, false) => return None,
            },
        };
        Some(event)
    }

    /// Calls the handler. A panic, of the handler or of its filter, is an error like any other.
    pub(super) async fn call(&self, event: Event<T, K>) -> Result<(), BoxError> {
        let Some(event) = catch(|| Ok(self.filtered(event)))? else { return Ok(()) };
        match &self.call {
            Call::Sync(handle) => catch(|| handle(&event)),
            Call::Blocking(handle) => {
                let handle = handle.clone();
                match tokio::task::spawn_blocking(move || handle(&event)).await {
                    Ok(result) => result,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => Err(HandlerPanic::new(&*panic).into()),
                        Err(error) => Err(error.into()),
                    },
                }
            }
            Call::Async(handle) => {
                let future = catch(|| Ok(handle(event)))?;
                contain(future).await?
            }
        }
    }
}

impl<T, K> fmt::Debug for Handler<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.call {
            Call::Sync(_) => "Handler::Sync",
            Call::Blocking(_) => "Handler::Blocking",
            Call::Async(_) => "Handler::Async",
        })
    }
}

/// The error that stands for a panic of a handler, or of another function of the user's.
///
/// ```
/// use delta_fifo::informer::HandlerPanic;
/// let error = HandlerPanic { message: "index out of bounds".into() };
/// assert!(error.to_string().contains("out of bounds"));
/// ```
#[derive(Debug)]
pub struct HandlerPanic {
    /// What the panic said, if it said it with a string.
    pub message: String,
}

impl HandlerPanic {
    pub(super) fn new(panic: &(dyn Any + Send)) -> Self {
        let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        HandlerPanic { message: message.unwrap_or_else(|| "a value that is no string".to_owned()) }
    }
}

impl fmt::Display for HandlerPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.message)
    }
}

impl std::error::Error for HandlerPanic {}

/// What happens when a handler fails or panics: it is called again for this event after a wait, and meanwhile for other
/// keys; later events of the same key wait behind. When the retries are used up the event goes to the dead-letter hook.
///
/// ```
/// use delta_fifo::informer::RetryPolicy;
/// assert_eq!(RetryPolicy::default().retries, Some(10));
/// assert_eq!(RetryPolicy::never().retries, Some(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// How many times an event is tried again; `None`: until it succeeds.
    pub retries: Option<u32>,
    /// The waits.
    pub backoff: BackoffPolicy,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let backoff = BackoffPolicy { min: Duration::from_millis(100), ..BackoffPolicy::default() };
        RetryPolicy { retries: Some(10), backoff }
    }
}

impl RetryPolicy {
    /// Each event is tried once. A Resync is then what gives a failed one another chance.
    ///
    /// ```
    /// # use delta_fifo::informer::RetryPolicy;
    /// assert_eq!(RetryPolicy::never().retries, Some(0));
    /// ```
    pub fn never() -> Self {
        RetryPolicy { retries: Some(0), ..RetryPolicy::default() }
    }
}

/// Where the events of a handler wait.
///
/// ```
/// use delta_fifo::informer::{Buffering, Overflow};
/// let bounded = Buffering::Bounded { events: 1000, overflow: Overflow::Coalesce };
/// assert_ne!(bounded, Buffering::Unbounded);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffering {
    /// All of them, however many: client-go's way. A handler that cannot keep up takes memory without limit.
    #[default]
    Unbounded,
    /// At most so many, and then the policy decides.
    Bounded {
        /// The limit.
        events: usize,
        /// What happens at the limit.
        overflow: Overflow,
    },
    /// At most two per key, however slow the handler: what happens to a key while it waits becomes one event from what
    /// the handler saw last to what is there now. A deletion and a re-creation stay two.
    Coalescing,
}

/// What a full buffer does.
///
/// ```
/// use delta_fifo::informer::Overflow;
/// assert_ne!(Overflow::Wait, Overflow::Coalesce);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The informer's workers wait. Producers do not: the queue takes what comes. But the store and the other handlers
    /// are held up, so choose it if this handler is the reason for the informer.
    Wait,
    /// From the limit on, events of a key that has some waiting are merged into them, as if coalescing. The buffer may
    /// grow past the limit by one event per key.
    Coalesce,
}

/// An event that was given up; see [`HandlerOptions::on_dead_letter`].
///
/// ```
/// use delta_fifo::informer::{DeadLetter, HandlerOptions};
/// let options = HandlerOptions::<u32, u32>::new().on_dead_letter(|letter: DeadLetter<u32, u32>| {
///     eprintln!("{:?} given up after {} attempts: {}", letter.event.key, letter.event.attempt, letter.error);
/// });
/// # let _ = options;
/// ```
pub struct DeadLetter<T, K = Arc<str>> {
    /// The event; `attempt` says how often it was tried.
    pub event: Event<T, K>,
    /// What the handler said last.
    pub error: BoxError,
}

// By hand: `derive` would ask `T: Debug`.
impl<T, K: fmt::Debug> fmt::Debug for DeadLetter<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter").field("event", &self.event).field("error", &self.error).finish()
    }
}

type DeadLetterHook<T, K> = Arc<dyn Fn(DeadLetter<T, K>) + Send + Sync>;

/// How a handler is served.
///
/// ```
/// use delta_fifo::informer::{Buffering, HandlerOptions};
/// use std::time::Duration;
///
/// let options = HandlerOptions::<u32, u32>::new()
///     .name("audit")
///     .resync_period(Duration::from_secs(600))
///     .buffering(Buffering::Coalescing);
/// # let _ = options;
/// ```
pub struct HandlerOptions<T, K = Arc<str>> {
    pub(super) name: Arc<str>,
    pub(super) resync_period: Option<Duration>,
    pub(super) buffering: Buffering,
    pub(super) concurrency: usize,
    pub(super) retry: RetryPolicy,
    pub(super) dead_letter: Option<DeadLetterHook<T, K>>,
}

macro_rules! example {
    ($call:literal) => {
        concat!(
            "```\n# use delta_fifo::informer::*;\n# use std::time::Duration;\n",
            "let options = HandlerOptions::<u32, u32>::new()",
            $call,
            ";\n# let _ = options;\n```"
        )
    };
}

impl<T, K> HandlerOptions<T, K> {
    /// The defaults: the informer's resync period, an unbounded buffer, one call at a time, ten retries.
    ///
    #[doc = example!("")]
    pub fn new() -> Self {
        HandlerOptions {
            name: "handler".into(),
            resync_period: None,
            buffering: Buffering::default(),
            concurrency: 1,
            retry: RetryPolicy::default(),
            dead_letter: None,
        }
    }

    /// A name, for [`HandlerHandle::name`](super::HandlerHandle::name).
    ///
    #[doc = example!(".name(\"audit\")")]
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How often the handler sees everything again, whatever the informer's period is. Zero: never.
    ///
    #[doc = example!(".resync_period(Duration::from_secs(600))")]
    #[must_use]
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }

    /// Where events wait.
    ///
    #[doc = example!(".buffering(Buffering::Coalescing)")]
    #[must_use]
    pub fn buffering(mut self, buffering: Buffering) -> Self {
        self.buffering = buffering;
        self
    }

    /// How many calls may run at a time, always of different keys. With 1, the default, events come in the order in
    /// which they were applied, unless one is retried.
    ///
    /// # Panics
    ///
    /// If it is 0.
    ///
    #[doc = example!(".concurrency(8)")]
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        assert_ne!(calls, 0, "a handler that may not be called would keep its events for ever");
        self.concurrency = calls;
        self
    }

    /// What happens when the handler fails.
    ///
    #[doc = example!(".retry(RetryPolicy::never())")]
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Is given each event whose retries are used up.
    ///
    #[doc = example!(".on_dead_letter(|letter| eprintln!(\"{letter:?}\"))")]
    #[must_use]
    pub fn on_dead_letter(mut self, hook: impl Fn(DeadLetter<T, K>) + Send + Sync + 'static) -> Self {
        self.dead_letter = Some(Arc::new(hook));
        self
    }
}

impl<T, K> Default for HandlerOptions<T, K> {
    fn default() -> Self {
        HandlerOptions::new()
    }
}

impl<T, K> fmt::Debug for HandlerOptions<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerOptions")
            .field("name", &self.name)
            .field("resync_period", &self.resync_period)
            .field("buffering", &self.buffering)
            .field("concurrency", &self.concurrency)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

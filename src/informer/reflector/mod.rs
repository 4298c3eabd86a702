//! The reflector: keeps a queue, or a store, as the source is.
//!
//! ```text
//!   ┌──────────────────────────────── back-off ───────────────────────────────┐
//!   ▼                                                                         │
//! list, page by page ──► replace ──► watch from the list's version ──► event ─┤ the watch cannot go on,
//!   ▲ or a watch that begins             ▲                               │    │ an event could not be applied,
//!   │ with the whole state               └── normal end, too many ───────┘    │ or somebody asked for a relist
//!   └── newest instead, once, if the version is expired or too large          ▼
//! ```
//!
//! One turn of the big loop is a *cycle*. What ends a watch decides what comes next:
//!
//! | the watch | next |
//! |---|---|
//! | ends after an event, or after a second | a new watch from the last version, at once |
//! | ends within a second and without an event | back-off, list |
//! | is told that the version expired | back-off, list; of the newest state if the last list gave the same version |
//! | is told that there are too many requests, or is refused at its start | back-off (at least what the source asks for), watch |
//! | is told of an internal error | watch, for as long as [`ReflectorOptions::max_internal_error_retry`]; then back-off, list |
//! | fails in another way | back-off, list |
//!
//! The version moves on only after an event was handed over. An event that is refused, by the key function or the
//! transformer, ends the cycle: the next list says what it said, so nothing is skipped silently. A panic, of theirs or of
//! the source, is an error like any other.
//!
//! Resync has a timer of its own. It runs beside the cycles and no relist resets it.
//!
//! Everything is one future. Dropped at any await, the watch is closed and nothing is left behind.

mod options;
mod target;
mod watch_list;

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{Notify, watch};
use tokio::task::{consume_budget, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

pub use options::{ReflectorError, ReflectorOptions};
pub use target::ReflectorStore;
pub(super) use target::{INLINE, off_the_runtime};

use super::backoff::Backoff;
use super::guard::{after, capped, catch, contain};
use super::{ListOptions, ListPage, ListWatch, ResourceVersion, SourceError, WatchEvent, WatchOptions};
use crate::key::BoxError;

/// How many objects a page has if nothing else is said.
const PAGE: usize = 500;
/// So many empty pages in a row, each with a token for one more, are not the way to the end of a list.
const EMPTY_PAGES: usize = 1000;
/// A watch that ends sooner, without an event, did not work.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Internal errors further apart than this are separate incidents.
const INTERNAL_ERROR_QUIET: Duration = Duration::from_secs(60);

pub(super) type ErrorHook = Arc<dyn Fn(&ReflectorError) + Send + Sync>;

/// Asks a running reflector for things, from anywhere.
pub(super) struct Control {
    relist: Notify,
    version: watch::Sender<ResourceVersion>,
    on_error: ErrorHook,
}

impl Control {
    pub(super) fn new(on_error: ErrorHook) -> Self {
        Control { relist: Notify::new(), version: watch::Sender::default(), on_error }
    }

    /// Ends the watch: a list is made after a wait.
    pub(super) fn relist(&self) {
        self.relist.notify_one();
    }

    pub(super) fn last_version(&self) -> ResourceVersion {
        self.version.borrow().clone()
    }

    pub(super) fn report(&self, error: &ReflectorError) {
        // A hook that panics must not take a task with it; there is nobody left to tell.
        let _ = catch(|| {
            (self.on_error)(error);
            Ok(())
        });
    }
}

/// Keeps `target` as the source is: list, watch, and again.
///
/// ```
/// use delta_fifo::{Keyed, informer::{MemoryServer, Reflector, Store, Versioned}};
/// use std::sync::Arc;
///
/// #[derive(Clone)]
/// struct Pod { name: String, version: u64 }
/// # impl Keyed<String> for Pod { fn key(&self) -> String { self.name.clone() } }
/// # impl Versioned for Pod {}
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let server = MemoryServer::new(|pod: &mut Pod, version| pod.version = version);
/// server.put(Pod { name: "a".into(), version: 0 });
///
/// let store = Arc::new(Store::<Pod, String>::new());
/// let reflector = Reflector::new(server.clone(), store.clone());
/// let running = tokio::spawn(async move { reflector.run().await });
///
/// store.wait_for(1).await.unwrap();
/// let version = server.put(Pod { name: "b".into(), version: 0 });
/// store.wait_for(version).await.unwrap();
/// assert_eq!(store.len(), 2);
/// running.abort();
/// # });
/// ```
pub struct Reflector<T, L, R> {
    source: L,
    target: R,
    options: ReflectorOptions,
    control: Arc<Control>,
    should_resync: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    objects: PhantomData<fn(T)>,
}

/// Why a cycle ended.
enum End {
    /// Nothing to report, or reported already.
    Quiet,
    Failed(ReflectorError),
}

impl From<ReflectorError> for End {
    fn from(error: ReflectorError) -> Self {
        End::Failed(error)
    }
}

/// What one run remembers from cycle to cycle.
struct Run {
    backoff: Backoff,
    last: ResourceVersion,
    /// The last version is of no use: ask for the newest state.
    unavailable: bool,
    /// A list of "whatever is at hand" came in pages, so the source pages always.
    paged: bool,
    /// The version that was told to be expired last.
    expired: ResourceVersion,
    /// The incident of internal errors: when it began, and its last error.
    internal: Option<(Instant, Instant)>,
}

type Watching<L, T> = Pin<Box<<L as ListWatch<T>>::Watch>>;

impl<T, L, R> Reflector<T, L, R>
where
    T: Send + Sync + 'static,
    L: ListWatch<T>,
    R: ReflectorStore<T>,
{
    /// A reflector with the default options. It does nothing until it is [run](Self::run).
    ///
    /// ```no_run
    /// # use delta_fifo::{Keyed, informer::{MemoryServer, Reflector, Store}};
    /// # use std::sync::Arc;
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let store = Arc::new(Store::<Pod, u32>::with_key_fn(|_: &Pod| Ok::<_, &str>(1)));
    /// let reflector = Reflector::new(server, store);
    /// ```
    pub fn new(source: L, target: R) -> Self {
        Reflector {
            source,
            target,
            options: ReflectorOptions::default(),
            control: Arc::new(Control::new(Arc::new(|_| ()))),
            should_resync: None,
            objects: PhantomData,
        }
    }

    /// Other options.
    ///
    /// ```no_run
    /// # use delta_fifo::{Keyed, informer::*};
    /// # use std::sync::Arc;
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let store = Arc::new(Store::<Pod, u32>::with_key_fn(|_: &Pod| Ok::<_, &str>(1)));
    /// let reflector =
    ///     Reflector::new(server, store).options(ReflectorOptions { watch_list: false, ..Default::default() });
    /// ```
    #[must_use]
    pub fn options(mut self, options: ReflectorOptions) -> Self {
        self.options = options;
        self
    }

    /// Is told of every error, before the wait it causes. It should be quick: the next attempt waits for it. If it
    /// panics, that is ignored.
    ///
    /// ```no_run
    /// # use delta_fifo::{Keyed, informer::*};
    /// # use std::sync::Arc;
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let store = Arc::new(Store::<Pod, u32>::with_key_fn(|_: &Pod| Ok::<_, &str>(1)));
    /// let reflector = Reflector::new(server, store).on_error(|error| eprintln!("{error}"));
    /// ```
    #[must_use]
    pub fn on_error(mut self, hook: impl Fn(&ReflectorError) + Send + Sync + 'static) -> Self {
        self.control = Arc::new(Control::new(Arc::new(hook)));
        self
    }

    /// Is asked before each Resync.
    ///
    /// ```no_run
    /// # use delta_fifo::{Keyed, informer::*};
    /// # use std::sync::Arc;
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let store = Arc::new(Store::<Pod, u32>::with_key_fn(|_: &Pod| Ok::<_, &str>(1)));
    /// let reflector = Reflector::new(server, store).should_resync(|| true);
    /// ```
    #[must_use]
    pub fn should_resync(mut self, should: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.should_resync = Some(Box::new(should));
        self
    }

    pub(super) fn control(mut self, control: Arc<Control>) -> Self {
        self.control = control;
        self
    }

    /// The version of the last list or event that was handed over. It says nothing about what a consumer has applied:
    /// for that, [`StoreReader::wait_for`](super::StoreReader::wait_for).
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::*};
    /// # use std::sync::Arc;
    /// # #[derive(Clone)] struct Pod;
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// # let server = MemoryServer::<Pod, u32>::new(|_, _| ());
    /// # let store = Arc::new(Store::<Pod, u32>::with_key_fn(|_: &Pod| Ok::<_, &str>(1)));
    /// assert!(Reflector::new(server, store).last_sync_resource_version().is_unset());
    /// ```
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        self.control.last_version()
    }

    /// Lists and watches until the future is dropped, or until the source says that it is of no use.
    ///
    /// # Cancel safety
    ///
    /// To stop it, drop it: at any await. A list that is being handed over on another thread is then finished there.
    ///
    /// # Errors
    ///
    /// The source answered with [`SourceError::Fatal`]. Everything else is retried.
    ///
    /// See the [type](Reflector) for an example.
    pub async fn run(&self) -> Result<(), SourceError> {
        tokio::select! {
            end = self.cycles() => end,
            () = self.resyncs() => Ok(()),
        }
    }

    async fn cycles(&self) -> Result<(), SourceError> {
        let mut run = Run {
            backoff: Backoff::new(self.options.backoff),
            last: ResourceVersion::UNSET,
            unavailable: false,
            paged: false,
            expired: ResourceVersion::UNSET,
            internal: None,
        };
        loop {
            match self.cycle(&mut run).await {
                End::Quiet => {}
                End::Failed(error) => {
                    self.control.report(&error);
                    if let ReflectorError::List(error @ SourceError::Fatal(_))
                    | ReflectorError::Watch(error @ SourceError::Fatal(_)) = error
                    {
                        return Err(error);
                    }
                }
            }
            sleep(run.backoff.next()).await;
        }
    }

    async fn resyncs(&self) {
        let period = capped(self.options.resync_period);
        if period.is_zero() {
            return std::future::pending().await;
        }
        let mut timer = interval_at(after(Instant::now(), period), period);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            timer.tick().await;
            let resynced = match catch(|| Ok(self.should_resync.as_ref().is_none_or(|should| should()))) {
                Ok(true) => contain(self.target.resync()).await.unwrap_or_else(Err),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            if let Err(error) = resynced {
                self.control.report(&ReflectorError::Resync(error));
                self.control.relist();
            }
        }
    }

    async fn cycle(&self, run: &mut Run) -> End {
        let first = match self.watch_list(run).await {
            Some(Ok(stream)) => Some(stream),
            Some(Err(end)) => return end,
            None => match self.list(run).await {
                Ok(()) => None,
                Err(end) => return end,
            },
        };
        match self.watch(run, first).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    // ----- list -----

    fn list_version(&self, run: &Run) -> ResourceVersion {
        if run.unavailable {
            ResourceVersion::UNSET
        } else if run.last.is_unset() {
            ResourceVersion::ANY
        } else {
            run.last.clone()
        }
    }

    async fn list(&self, run: &mut Run) -> Result<(), End> {
        let version = self.list_version(run);
        let result = match self.list_all(run, version).await {
            Err(SourceError::Expired | SourceError::VersionTooLarge) => {
                // Once more, at once, for whatever is newest.
                run.unavailable = true;
                self.list_all(run, ResourceVersion::UNSET).await
            }
            result => result,
        };
        let (items, version) = result.map_err(ReflectorError::List)?;
        run.unavailable = false;
        contain(self.target.replace(items, version.clone()))
            .await
            .unwrap_or_else(Err)
            .map_err(ReflectorError::Replace)?;
        self.reach(run, version);
        Ok(())
    }

    async fn page(&self, options: ListOptions) -> Result<ListPage<T>, SourceError> {
        contain(self.source.list(options)).await.unwrap_or_else(|panic| Err(SourceError::Internal(panic)))
    }

    /// All pages of a list at `version`.
    async fn list_all(
        &self,
        run: &mut Run,
        version: ResourceVersion,
    ) -> Result<(Vec<Arc<T>>, ResourceVersion), SourceError> {
        let from_cache = !version.is_unset() && version != ResourceVersion::ANY;
        let limit = match self.options.page_size.filter(|size| *size > 0) {
            Some(size) => Some(size),
            None if run.paged || !from_cache => Some(PAGE),
            // A page limit would send the list past the source's cache.
            None => None,
        };
        let options = ListOptions { resource_version: version.clone(), limit, continue_token: None };
        let mut page = self.page(options).await?;
        run.paged |= version == ResourceVersion::ANY && page.continue_token.is_some();
        let mut items = std::mem::take(&mut page.items);
        let mut empty = 0;
        while let Some(token) = page.continue_token.take() {
            // A source that always has the next page at hand must not keep the thread for itself, nor keep a shutdown off.
            yield_now().await;
            let options =
                ListOptions { resource_version: ResourceVersion::UNSET, limit, continue_token: Some(token.clone()) };
            match self.page(options).await {
                Ok(next) => {
                    if next.continue_token.as_ref() == Some(&token) {
                        return Err(SourceError::Endless("the source gives the same page again and again".into()));
                    }
                    empty = if next.items.is_empty() { empty + 1 } else { 0 };
                    items.extend(next.items);
                    page.continue_token = next.continue_token;
                }
                Err(SourceError::Expired) => {
                    // The rest of the pages is gone: all of it in one, then.
                    let options = ListOptions { resource_version: version, limit: None, continue_token: None };
                    let all = self.page(options).await?;
                    return Ok((all.items, all.resource_version));
                }
                Err(error) => return Err(error),
            }
            if empty >= EMPTY_PAGES {
                return Err(SourceError::Endless(format!("the source gave {EMPTY_PAGES} empty pages in a row").into()));
            }
            if items.len() > self.options.max_objects {
                let error = format!(
                    "it has more than {} objects; if that is right, raise ReflectorOptions::max_objects",
                    self.options.max_objects
                );
                return Err(SourceError::Endless(error.into()));
            }
        }
        Ok((items, page.resource_version))
    }

    // ----- watch -----

    fn watch_options(&self, version: ResourceVersion) -> WatchOptions {
        let timeout = capped(self.options.watch_timeout).max(options::MIN_WATCH_TIMEOUT);
        WatchOptions {
            resource_version: version,
            timeout: Some(timeout.mul_f64(1.0 + fastrand::f64())),
            bookmarks: true,
            initial_events: false,
        }
    }

    /// Watches again and again; each `Err` is the end of the cycle.
    async fn watch(&self, run: &mut Run, mut first: Option<Watching<L, T>>) -> Result<std::convert::Infallible, End> {
        loop {
            // A source whose watches all end at once must not keep the thread for itself.
            consume_budget().await;
            let started = Instant::now();
            // A watch from nowhere begins with the current objects, in any order: their versions mean nothing.
            let mut unordered = first.is_none() && (run.last.is_unset() || run.last == ResourceVersion::ANY);
            let mut stream = match first.take() {
                Some(stream) => stream,
                None => match self.open(self.watch_options(run.last.clone())).await {
                    Ok(stream) => stream,
                    Err(error @ (SourceError::Refused(_) | SourceError::TooManyRequests { .. })) => {
                        self.wait_after(run, error).await;
                        continue;
                    }
                    Err(error) => {
                        self.note_expired(run, &error);
                        return Err(ReflectorError::Watch(error).into());
                    }
                },
            };
            let mut events = 0u64;
            loop {
                let event = tokio::select! {
                    biased;
                    () = self.control.relist.notified() => return Err(End::Quiet),
                    event = next(&mut stream) => event,
                };
                match event {
                    None if events == 0 && started.elapsed() < SHORT_WATCH => {
                        return Err(ReflectorError::VeryShortWatch.into());
                    }
                    None => break,
                    Some(Ok(event)) => {
                        events += 1;
                        unordered &= matches!(event, WatchEvent::Added { .. });
                        let version = event.resource_version().clone();
                        self.hand_over(event).await.map_err(ReflectorError::Apply)?;
                        if !unordered {
                            self.reach(run, version);
                        }
                        // A source that always has the next event at hand must not keep the thread for itself.
                        consume_budget().await;
                    }
                    Some(Err(error)) => {
                        self.after_watch_error(run, error).await?;
                        break;
                    }
                }
            }
        }
    }

    /// `Ok`: a new watch goes on from the last version.
    async fn after_watch_error(&self, run: &mut Run, error: SourceError) -> Result<(), End> {
        match error {
            SourceError::Expired => {
                self.note_expired(run, &error);
                Err(End::Quiet)
            }
            SourceError::TooManyRequests { .. } => {
                self.wait_after(run, error).await;
                Ok(())
            }
            SourceError::Internal(_) if !self.options.max_internal_error_retry.is_zero() => {
                let now = Instant::now();
                let began = match run.internal {
                    Some((began, last)) if now - last <= INTERNAL_ERROR_QUIET => began,
                    _ => now,
                };
                run.internal = Some((began, now));
                if now - began <= self.options.max_internal_error_retry {
                    self.control.report(&ReflectorError::Watch(error));
                    return Ok(());
                }
                Err(ReflectorError::Watch(error).into())
            }
            error => Err(ReflectorError::Watch(error).into()),
        }
    }

    /// A version that is expired again, though a list was made in between, comes from that list and would come from the
    /// next one too: ask for the newest state then, or list and watch would go round for ever.
    fn note_expired(&self, run: &mut Run, error: &SourceError) {
        if matches!(error, SourceError::Expired) {
            run.unavailable |= run.last == run.expired;
            run.expired = run.last.clone();
        }
    }

    async fn wait_after(&self, run: &mut Run, error: SourceError) {
        let mut wait = run.backoff.next();
        if let SourceError::TooManyRequests { retry_after: Some(time) } = error {
            wait = wait.max(time);
        }
        self.control.report(&ReflectorError::Watch(error));
        sleep(wait).await;
    }

    async fn open(&self, options: WatchOptions) -> Result<Watching<L, T>, SourceError> {
        contain(self.source.watch(options))
            .await
            .unwrap_or_else(|panic| Err(SourceError::Internal(panic)))
            .map(Box::pin)
    }

    async fn hand_over(&self, event: WatchEvent<T>) -> Result<(), BoxError> {
        contain(self.hand_over_unguarded(event)).await.unwrap_or_else(Err)
    }

    async fn hand_over_unguarded(&self, event: WatchEvent<T>) -> Result<(), BoxError> {
        match event {
            WatchEvent::Added { object, .. } => self.target.add(object).await,
            WatchEvent::Modified { object, .. } => self.target.update(object).await,
            WatchEvent::Deleted { object, .. } => self.target.delete(object).await,
            WatchEvent::Bookmark { .. } => Ok(()),
        }
    }

    fn reach(&self, run: &mut Run, version: ResourceVersion) {
        self.target.reached(&version);
        self.control.version.send_replace(version.clone());
        run.last = version;
    }
}

/// What a watch brings next. A stream that panicked is dropped by the caller, as one that failed.
async fn next<T>(
    stream: &mut Pin<Box<impl Stream<Item = Result<WatchEvent<T>, SourceError>>>>,
) -> Option<Result<WatchEvent<T>, SourceError>> {
    let event = contain(poll_fn(|cx| stream.as_mut().poll_next(cx))).await;
    event.unwrap_or_else(|panic| Some(Err(SourceError::Internal(panic))))
}

impl<T, L, R> fmt::Debug for Reflector<T, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").field("last", &self.control.last_version()).finish_non_exhaustive()
    }
}

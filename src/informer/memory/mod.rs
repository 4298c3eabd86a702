//! A small versioned object server in memory: a source to try informers with, in tests and examples.
//!
//! It behaves as a Kubernetes API server or etcd does: every change gets the next version; a list is the state at its
//! version; a watch from a version replays what came after and then follows; only a window of history is kept, and a
//! watch from before it is told `Expired`. And it can be made to behave badly: see [`Faults`], the `fail_*` methods,
//! [`disconnect`](MemoryServer::disconnect) and [`forget_history`](MemoryServer::forget_history).

mod control;
mod watch;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

pub use watch::MemoryWatch;

use super::{ListOptions, ListPage, ListWatch, ResourceVersion, SourceError, WatchEvent, WatchOptions};
use crate::key::Keyed;

/// How the server misbehaves at random. Chances are between 0 and 1; all are 0 by default.
///
/// ```
/// use delta_fifo::informer::Faults;
/// let faults = Faults { disconnect: 0.01, ..Faults::default() };
/// assert_eq!(faults.duplicate, 0.0);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The chance that a watch is closed instead of giving its next event.
    pub disconnect: f64,
    /// The chance that an event is given twice.
    pub duplicate: f64,
    /// The chance that a watch is told `Expired` at its start.
    pub expire: f64,
    /// The chance that a list or a watch is refused.
    pub refuse: f64,
    /// The chance that an event waits for `event_delay`.
    pub slow: f64,
    /// How long a slow event waits.
    pub event_delay: Duration,
    /// How long each list takes.
    pub list_delay: Duration,
}

/// A request that the server has seen.
///
/// ```
/// use delta_fifo::informer::{ListOptions, Request};
/// let request = Request::List(ListOptions::default());
/// assert_ne!(request, Request::Watch(Default::default()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A page of a list.
    List(ListOptions),
    /// A watch.
    Watch(WatchOptions),
}

/// A versioned object server in memory. Cheap to clone: all clones are one server.
///
/// It needs to write a version into an object, which is what the function given to [`new`](Self::new) does.
///
/// ```
/// use delta_fifo::{Keyed, informer::{ListOptions, ListWatch, MemoryServer}};
///
/// #[derive(Clone)]
/// struct Pod { name: String, version: u64 }
/// # impl Keyed<String> for Pod { fn key(&self) -> String { self.name.clone() } }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let server = MemoryServer::new(|pod: &mut Pod, version| pod.version = version);
/// server.put(Pod { name: "a".into(), version: 0 });
/// let page = server.list(ListOptions::default()).await.unwrap();
/// assert_eq!(page.items[0].version, 1);
/// assert_eq!(page.resource_version, 1.into());
/// # });
/// ```
pub struct MemoryServer<T, K = Arc<str>> {
    shared: Arc<Shared<T, K>>,
}

struct Shared<T, K> {
    inner: Mutex<Inner<T, K>>,
    set_version: fn(&mut T, u64),
}

struct Inner<T, K> {
    version: u64,
    objects: BTreeMap<K, Arc<T>>,
    /// The changes after `forgotten`, oldest first.
    history: VecDeque<WatchEvent<T>>,
    /// The newest version whose change is not in `history`.
    forgotten: u64,
    window: usize,
    watchers: HashMap<u64, Watcher<T>>,
    /// What is left of lists that were asked for page by page.
    pages: HashMap<String, Rest<T>>,
    next_id: u64,
    faults: Faults,
    rng: fastrand::Rng,
    failing_lists: VecDeque<SourceError>,
    failing_watches: VecDeque<SourceError>,
    streams_initial_list: bool,
    requests: Vec<Request>,
}

struct Rest<T> {
    items: VecDeque<Arc<T>>,
    version: u64,
}

struct Watcher<T> {
    /// Given before anything of the history.
    extra: VecDeque<Result<WatchEvent<T>, SourceError>>,
    closed: bool,
    waker: Option<Waker>,
}

impl<T, K> MemoryServer<T, K>
where
    T: Keyed<K> + Clone,
    K: Ord + Clone,
{
    /// An empty server at version 0. `set_version` writes the version of a change into the object.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// assert_eq!(server.version(), 0.into());
    /// ```
    pub fn new(set_version: fn(&mut T, u64)) -> Self {
        let inner = Inner {
            version: 0,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            forgotten: 0,
            window: 10_000,
            watchers: HashMap::new(),
            pages: HashMap::new(),
            next_id: 0,
            faults: Faults::default(),
            rng: fastrand::Rng::with_seed(0),
            failing_lists: VecDeque::new(),
            failing_watches: VecDeque::new(),
            streams_initial_list: false,
            requests: Vec::new(),
        };
        MemoryServer { shared: Arc::new(Shared { inner: Mutex::new(inner), set_version }) }
    }

    /// Adds an object or changes the one of the same key. Returns the version of the change.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// assert_eq!(server.put(Pod { version: 0 }), 1.into());
    /// ```
    pub fn put(&self, object: T) -> ResourceVersion {
        self.change(object, true)
    }

    /// As [`put`](Self::put), but no watch hears of it: only a list shows it.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.put_silently(Pod { version: 0 });
    /// assert!(server.get(&1).is_some());
    /// ```
    pub fn put_silently(&self, object: T) -> ResourceVersion {
        self.change(object, false)
    }

    fn change(&self, mut object: T, seen: bool) -> ResourceVersion {
        let key = object.key();
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        (self.shared.set_version)(&mut object, version);
        let object = Arc::new(object);
        let old = inner.objects.insert(key, object.clone());
        let resource_version = ResourceVersion::from(version);
        if seen {
            inner.record(match old {
                None => WatchEvent::Added { object, resource_version },
                Some(_) => WatchEvent::Modified { object, resource_version },
            });
        }
        version.into()
    }

    /// Deletes an object. Returns the version of the deletion; `None` if there is no such object.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.put(Pod { version: 0 });
    /// assert_eq!(server.delete(&1), Some(2.into()));
    /// assert_eq!(server.delete(&1), None);
    /// ```
    pub fn delete(&self, key: &K) -> Option<ResourceVersion> {
        self.remove(key, true)
    }

    /// As [`delete`](Self::delete), but no watch hears of it: only a list shows it.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.put(Pod { version: 0 });
    /// server.delete_silently(&1);
    /// assert!(server.get(&1).is_none());
    /// ```
    pub fn delete_silently(&self, key: &K) -> Option<ResourceVersion> {
        self.remove(key, false)
    }

    fn remove(&self, key: &K, seen: bool) -> Option<ResourceVersion> {
        let mut inner = self.lock();
        let last = inner.objects.remove(key)?;
        inner.version += 1;
        let version = inner.version;
        let mut object = T::clone(&last);
        (self.shared.set_version)(&mut object, version);
        if seen {
            inner.record(WatchEvent::Deleted { object: Arc::new(object), resource_version: version.into() });
        }
        Some(version.into())
    }

    /// The object of a key.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// assert!(server.get(&1).is_none());
    /// ```
    pub fn get(&self, key: &K) -> Option<Arc<T>> {
        self.lock().objects.get(key).cloned()
    }

    /// All objects with their keys, in the order of the keys.
    ///
    /// ```
    /// # use delta_fifo::{Keyed, informer::MemoryServer};
    /// # #[derive(Clone)] struct Pod { version: u64 }
    /// # impl Keyed<u32> for Pod { fn key(&self) -> u32 { 1 } }
    /// let server = MemoryServer::<Pod, u32>::new(|pod, version| pod.version = version);
    /// server.put(Pod { version: 0 });
    /// assert_eq!(server.objects()[0].0, 1);
    /// ```
    pub fn objects(&self) -> Vec<(K, Arc<T>)> {
        self.lock().objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect()
    }
}

impl<T, K> ListWatch<T> for MemoryServer<T, K>
where
    T: Clone + Send + Sync + 'static,
    K: Ord + Clone + Send + Sync + 'static,
{
    type Watch = MemoryWatch<T, K>;

    async fn list(&self, options: ListOptions) -> Result<ListPage<T>, SourceError> {
        let delay = {
            let mut inner = self.lock();
            inner.requests.push(Request::List(options.clone()));
            inner.faults.list_delay
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut inner = self.lock();
        if let Some(error) = inner.failing_lists.pop_front() {
            return Err(error);
        }
        let refuse = inner.faults.refuse;
        if inner.chance(refuse) {
            return Err(SourceError::Refused("connection refused".into()));
        }
        inner.page(options)
    }

    async fn watch(&self, options: WatchOptions) -> Result<MemoryWatch<T, K>, SourceError> {
        let mut inner = self.lock();
        inner.requests.push(Request::Watch(options.clone()));
        if let Some(error) = inner.failing_watches.pop_front() {
            return Err(error);
        }
        let Faults { refuse, expire, .. } = inner.faults;
        if inner.chance(refuse) {
            return Err(SourceError::Refused("connection refused".into()));
        }
        if inner.chance(expire) {
            return Err(SourceError::Expired);
        }
        let (position, extra) = inner.start_watch(&options)?;
        let id = inner.next_id;
        inner.next_id += 1;
        inner.watchers.insert(id, Watcher { extra, closed: false, waker: None });
        drop(inner);
        Ok(MemoryWatch::new(self.shared.clone(), id, position, options.timeout))
    }

    fn streams_initial_list(&self) -> bool {
        self.lock().streams_initial_list
    }
}

impl<T, K: Ord> Inner<T, K> {
    /// Whether there was or is such a version; unset and "any" are fine.
    fn check_version(&self, version: &ResourceVersion) -> Result<u64, SourceError> {
        match version.as_u64() {
            Some(version) if version > self.version => Err(SourceError::VersionTooLarge),
            Some(version) => Ok(version),
            None if version.is_unset() => Ok(0),
            None => Err(SourceError::Transport(format!("version {version:?} is not one of this server").into())),
        }
    }

    fn page(&mut self, options: ListOptions) -> Result<ListPage<T>, SourceError> {
        let mut rest = match &options.continue_token {
            Some(token) => self.pages.remove(token).ok_or(SourceError::Expired)?,
            None => {
                // A version 0 would mean "any", so nobody is told it.
                self.version = self.version.max(1);
                self.check_version(&options.resource_version)?;
                Rest { items: self.objects.values().cloned().collect(), version: self.version }
            }
        };
        // At least one: pages without objects would never end.
        let limit = options.limit.unwrap_or(usize::MAX).max(1).min(rest.items.len());
        let items = rest.items.drain(..limit).collect();
        let mut page = ListPage::new(items, rest.version);
        if !rest.items.is_empty() {
            let token = format!("page-{}", self.next_id);
            self.next_id += 1;
            self.pages.insert(token.clone(), rest);
            page.continue_token = Some(token);
        }
        Ok(page)
    }

    /// Where a watch begins in the history, and what it is given first.
    #[allow(clippy::type_complexity)]
    fn start_watch(
        &self,
        options: &WatchOptions,
    ) -> Result<(u64, VecDeque<Result<WatchEvent<T>, SourceError>>), SourceError> {
        let version = self.check_version(&options.resource_version)?;
        if options.initial_events && !self.streams_initial_list {
            return Err(SourceError::Unsupported);
        }
        if !options.initial_events && version > 0 {
            return if version < self.forgotten { Err(SourceError::Expired) } else { Ok((version, VecDeque::new())) };
        }
        let mut first: VecDeque<_> = self
            .objects
            .values()
            .map(|object| {
                // The version of the object is not known to the server; that of the list is good for all of them.
                Ok(WatchEvent::Added { object: object.clone(), resource_version: self.version.into() })
            })
            .collect();
        if options.initial_events {
            first.push_back(Ok(WatchEvent::Bookmark {
                resource_version: self.version.into(),
                initial_events_end: true,
            }));
        }
        Ok((self.version, first))
    }
}

impl<T, K> Clone for MemoryServer<T, K> {
    fn clone(&self) -> Self {
        MemoryServer { shared: self.shared.clone() }
    }
}

impl<T, K> fmt::Debug for MemoryServer<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("MemoryServer").field("version", &inner.version).field("objects", &inner.objects.len()).finish()
    }
}

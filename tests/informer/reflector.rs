//! Behaviour section D: list, watch and again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::informer::{
    BackoffPolicy, ListOptions, ListWatch, Reflector, ReflectorError, ReflectorOptions, ReflectorStore,
    ResourceVersion, SourceError, Store, WatchEvent,
};
use delta_fifo::{BoxError, DeltaFifo};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{Obj, Server, lists, obj, requests, server, server_with, settle};

struct Running {
    store: Arc<Store<Obj>>,
    errors: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<Result<(), SourceError>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn run_with(server: &Server, options: ReflectorOptions) -> Running {
    let store = Arc::new(Store::new());
    let errors = Arc::new(Mutex::new(Vec::new()));
    let hook = errors.clone();
    let reflector = Reflector::new(server.clone(), store.clone())
        .options(options)
        .on_error(move |error: &ReflectorError| hook.lock().unwrap().push(error.to_string()));
    Running { store, errors, task: tokio::spawn(async move { reflector.run().await }) }
}

fn run(server: &Server) -> Running {
    run_with(server, ReflectorOptions::default())
}

#[tokio::test(start_paused = true)]
async fn mirrors_the_source() {
    let server = server_with(&["a", "b"]);
    let running = run(&server);
    running.store.wait_for(2).await.unwrap();
    server.delete(&"a".into());
    server.put(obj("b", 7));
    let last = server.put(obj("c", 1));
    running.store.wait_for(last).await.unwrap();
    let mut keys = running.store.list_keys();
    keys.sort();
    assert_eq!(keys, ["b".into(), "c".into()]);
    assert_eq!(running.store.get(&"b".into()).unwrap().value, 7);
    assert_eq!(requests(&server), ["0", "w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reflector_leaves_no_watch() {
    let server = server_with(&["a"]);
    let running = run(&server);
    running.store.wait_for(1).await.unwrap();
    settle().await;
    assert_eq!(server.open_watches(), 1);
    running.task.abort();
    settle().await;
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_normally_goes_on_without_a_list() {
    let server = server_with(&["a"]);
    let running = run(&server);
    sleep(Duration::from_secs(2)).await;
    let before = Instant::now();
    server.disconnect();
    let version = server.put(obj("b", 1));
    running.store.wait_for(version).await.unwrap();
    assert!(before.elapsed() < Duration::from_millis(100), "at once");
    assert_eq!(requests(&server), ["0", "w1", "w1"]);
}

#[tokio::test(start_paused = true)]
async fn a_very_short_watch_leads_to_a_list_after_a_wait() {
    let server = server_with(&["a"]);
    let running = run(&server);
    settle().await;
    let before = Instant::now();
    server.disconnect();
    settle().await;
    assert_eq!(requests(&server).len(), 2);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(requests(&server), ["0", "w1", "1", "w1"]);
    assert!(running.errors.lock().unwrap()[0].contains("ended at once"));
    assert!(before.elapsed() >= Duration::from_millis(800));
}

#[tokio::test(start_paused = true)]
async fn a_relist_asks_for_the_last_version() {
    let server = server_with(&["a", "b"]);
    let running = run(&server);
    settle().await;
    server.put(obj("c", 1));
    settle().await;
    server.put_silently(obj("d", 1));
    server.forget_history();
    running.store.wait_for(4).await.unwrap();
    assert_eq!(lists(&server), ["0", "3"]);
    assert_eq!(running.store.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_expired_list_is_made_again_at_once_for_the_newest_state() {
    let server = server_with(&["a"]);
    let running = run(&server);
    settle().await;
    server.put(obj("a", 2));
    settle().await;
    server.fail_next_list(SourceError::Expired);
    server.put_silently(obj("b", 2));
    server.forget_history();
    running.store.wait_for(3).await.unwrap();
    assert_eq!(lists(&server), ["0", "2", ""]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_leads_to_one_full_list() {
    let server = server_with(&["a", "b", "c"]);
    let options = ReflectorOptions { page_size: Some(2), ..Default::default() };
    let running = run_with(&server, options);
    running.store.wait_for(3).await.unwrap();
    assert_eq!(lists(&server), ["0", ""], "two pages");
    settle().await;
    server.put(obj("d", 1));
    settle().await;
    server.put_silently(obj("e", 2));
    server.forget_history();
    // The first page is good, the second one expires while it is asked for.
    let unpaged = server.clone();
    let expiring = Expiring(server.clone());
    let store = Arc::new(Store::<Obj>::new());
    let reflector =
        Reflector::new(expiring, store.clone()).options(ReflectorOptions { page_size: Some(2), ..Default::default() });
    let task = tokio::spawn(async move { reflector.run().await });
    store.wait_for(5).await.unwrap();
    task.abort();
    assert_eq!(store.len(), 5);
    let tail = lists(&unpaged);
    assert_eq!(&tail[tail.len() - 3..], ["0", "", "0"]);
}

/// A server that forgets the pages it has handed out tokens for.
struct Expiring(Server);

impl delta_fifo::informer::ListWatch<Obj> for Expiring {
    type Watch = delta_fifo::informer::MemoryWatch<Obj, Arc<str>>;

    async fn list(
        &self,
        options: delta_fifo::informer::ListOptions,
    ) -> Result<delta_fifo::informer::ListPage<Obj>, SourceError> {
        if options.continue_token.is_some() {
            self.0.forget_history();
        }
        self.0.list(options).await
    }

    async fn watch(&self, options: delta_fifo::informer::WatchOptions) -> Result<Self::Watch, SourceError> {
        self.0.watch(options).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_large_is_asked_for_once() {
    let server = server_with(&["a"]);
    let running = run(&server);
    for (round, version) in [(1u64, 2u64), (2, 3)] {
        settle().await;
        server.fail_next_list(SourceError::VersionTooLarge);
        server.put_silently(obj("a", round));
        server.forget_history();
        running.store.wait_for(version).await.unwrap();
    }
    assert_eq!(lists(&server), ["0", "1", "", "2", ""]);
}

#[tokio::test(start_paused = true)]
async fn pages_are_asked_for_where_sources_can_page() {
    let server = server();
    for i in 0..1200 {
        server.put(obj(&format!("k{i}"), i));
    }
    let running = run(&server);
    running.store.wait_for(1200).await.unwrap();
    assert_eq!(running.store.len(), 1200);
    let limits = |server: &Server| -> Vec<_> {
        let lists = server.requests().into_iter().filter_map(|request| match request {
            delta_fifo::informer::Request::List(options) => Some(options.limit),
            delta_fifo::informer::Request::Watch(_) => None,
        });
        lists.collect()
    };
    assert_eq!(limits(&server), [Some(500); 3]);
    settle().await;
    server.put_silently(obj("x", 1));
    server.forget_history();
    running.store.wait_for(1201).await.unwrap();
    assert_eq!(limits(&server), [Some(500); 6], "it pages, so pages from then on");
}

#[tokio::test(start_paused = true)]
async fn a_small_list_from_a_known_version_is_not_paged() {
    let server = server_with(&["a"]);
    let running = run(&server);
    running.store.wait_for(1).await.unwrap();
    settle().await;
    server.put_silently(obj("b", 1));
    server.put(obj("b", 2));
    settle().await;
    server.put_silently(obj("c", 1));
    server.forget_history();
    sleep(Duration::from_secs(60)).await;
    let last = server.requests().into_iter().rev().find_map(|request| match request {
        delta_fifo::informer::Request::List(options) => Some(options),
        delta_fifo::informer::Request::Watch(_) => None,
    });
    assert_eq!(last.unwrap().limit, None);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_is_no_reason_for_a_list() {
    let server = server_with(&["a"]);
    for _ in 0..3 {
        server.fail_next_watch(SourceError::TooManyRequests { retry_after: None });
    }
    let running = run(&server);
    sleep(Duration::from_secs(60)).await;
    server.inject(|| Err(SourceError::TooManyRequests { retry_after: None }));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(requests(&server), ["0", "w1", "w1", "w1", "w1", "w1"], "one list, five watches");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_kept_to() {
    let server = server_with(&["a"]);
    server.fail_next_watch(SourceError::TooManyRequests { retry_after: Some(Duration::from_secs(100)) });
    let running = run(&server);
    sleep(Duration::from_secs(99)).await;
    assert_eq!(requests(&server).len(), 2);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(requests(&server).len(), 3);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_tried_again_with_growing_waits() {
    let server = server_with(&["a"]);
    for _ in 0..6 {
        server.fail_next_watch(SourceError::Refused("connection refused".into()));
    }
    let running = run(&server);
    let mut at = Vec::new();
    let began = Instant::now();
    while at.len() < 7 {
        let seen = requests(&server).len();
        while requests(&server).len() == seen {
            sleep(Duration::from_millis(10)).await;
        }
        at.push(began.elapsed());
    }
    assert_eq!(lists(&server), ["0"]);
    for (i, range) in [(0.8, 1.7), (1.6, 3.3), (3.2, 6.5), (6.4, 12.9), (12.8, 25.7), (25.6, 51.3)].iter().enumerate() {
        let wait = (at[i + 1] - at[i]).as_secs_f64();
        assert!((range.0..range.1).contains(&wait), "wait {i} was {wait}");
    }
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn another_error_at_the_start_of_a_watch_leads_to_a_list() {
    let server = server_with(&["a"]);
    server.fail_next_watch(SourceError::transport("reset"));
    let running = run(&server);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(requests(&server), ["0", "w1", "1", "w1"]);
    assert!(running.errors.lock().unwrap()[0].contains("reset"));
}

#[tokio::test(start_paused = true)]
async fn internal_errors_are_retried_at_once_for_as_long_as_allowed() {
    for (allowed, spacing, relists) in [(0, 1, true), (30, 1, false), (30, 31, true), (30, 70, false)] {
        let server = server_with(&["a"]);
        let options =
            ReflectorOptions { max_internal_error_retry: Duration::from_secs(allowed), ..ReflectorOptions::default() };
        let running = run_with(&server, options);
        settle().await;
        for _ in 0..2 {
            server.inject(|| Err(SourceError::Internal("etcd".into())));
            sleep(Duration::from_secs(spacing)).await;
        }
        sleep(Duration::from_secs(3)).await;
        assert_eq!(lists(&server).len() > 1, relists, "allowed {allowed} s, errors {spacing} s apart");
        drop(running);
    }
}

#[tokio::test(start_paused = true)]
async fn list_failures_are_reported_and_retried() {
    let server = server_with(&["a"]);
    server.fail_next_list(SourceError::transport("no route"));
    server.fail_next_list(SourceError::transport("no route"));
    let running = run(&server);
    running.store.wait_for(1).await.unwrap();
    assert_eq!(running.errors.lock().unwrap().len(), 2);
    assert_eq!(requests(&server)[..3], ["0", "0", "0"]);
}

#[tokio::test(start_paused = true)]
async fn a_fatal_error_ends_it() {
    let server = server_with(&["a"]);
    server.fail_next_list(SourceError::Fatal("forbidden".into()));
    let mut running = run(&server);
    let end = (&mut running.task).await.unwrap();
    assert!(matches!(end, Err(SourceError::Fatal(error)) if error.to_string() == "forbidden"));
}

#[tokio::test(start_paused = true)]
async fn the_version_follows_events_and_bookmarks() {
    let server = server_with(&["a"]);
    let running = run(&server);
    let mut seen = Vec::new();
    let mut changes = running.store.subscribe();
    settle().await;
    server.put(obj("a", 2));
    settle().await;
    seen.push(changes.changed().await.unwrap());
    server.inject(|| Ok(WatchEvent::Bookmark { resource_version: 30.into(), initial_events_end: false }));
    settle().await;
    seen.push(changes.changed().await.unwrap());
    assert_eq!(seen, [2.into(), 30.into()]);
    sleep(Duration::from_secs(2)).await;
    server.fail_next_watch(SourceError::TooManyRequests { retry_after: None });
    server.disconnect();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(requests(&server)[2..], ["w30", "w30"]);
}

/// Counts what it is given, and fails where it is told to.
#[derive(Default)]
struct Picky {
    refuse: Mutex<Option<u64>>,
    applied: Mutex<Vec<u64>>,
    resyncs: AtomicUsize,
    failing_resync: Option<usize>,
    reached: Mutex<Vec<ResourceVersion>>,
}

struct Target(Arc<Picky>);

impl ReflectorStore<Obj> for Target {
    async fn add(&self, object: Arc<Obj>) -> Result<(), BoxError> {
        self.update(object).await
    }

    async fn update(&self, object: Arc<Obj>) -> Result<(), BoxError> {
        if self.0.refuse.lock().unwrap().take_if(|value| *value == object.value).is_some() {
            return Err("refused".into());
        }
        self.0.applied.lock().unwrap().push(object.value);
        Ok(())
    }

    async fn delete(&self, _: Arc<Obj>) -> Result<(), BoxError> {
        Ok(())
    }

    async fn replace(&self, list: Vec<Arc<Obj>>, _: ResourceVersion) -> Result<(), BoxError> {
        self.0.applied.lock().unwrap().extend(list.iter().map(|object| object.value));
        Ok(())
    }

    async fn resync(&self) -> Result<(), BoxError> {
        let nth = self.0.resyncs.fetch_add(1, Ordering::Relaxed) + 1;
        if self.0.failing_resync == Some(nth) { Err("resync".into()) } else { Ok(()) }
    }

    fn reached(&self, version: &ResourceVersion) {
        self.0.reached.lock().unwrap().push(version.clone());
    }
}

fn run_picky(server: &Server, picky: Picky, resync: u64) -> (Arc<Picky>, JoinHandle<Result<(), SourceError>>) {
    let picky = Arc::new(picky);
    let second = Duration::from_secs(1);
    let backoff = BackoffPolicy { min: second, max: second, jitter: false, ..BackoffPolicy::default() };
    let options = ReflectorOptions { resync_period: Duration::from_secs(resync), backoff, ..Default::default() };
    let reflector = Reflector::new(server.clone(), Target(picky.clone())).options(options);
    (picky, tokio::spawn(async move { reflector.run().await }))
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_refused_does_not_move_the_version_and_leads_to_a_list() {
    let server = server_with(&["a"]);
    let (picky, task) = run_picky(&server, Picky { refuse: Mutex::new(Some(7)), ..Picky::default() }, 0);
    settle().await;
    server.put(obj("b", 7));
    settle().await;
    assert_eq!(picky.reached.lock().unwrap().last(), Some(&1.into()));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(requests(&server), ["0", "w1", "1", "w2"]);
    assert_eq!(*picky.applied.lock().unwrap(), [0, 0, 7]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn relists_do_not_put_the_resync_off() {
    let server = server_with(&["a"]);
    let (picky, task) = run_picky(&server, Picky::default(), 10);
    for _ in 0..21 {
        sleep(Duration::from_secs(5)).await;
        server.put(obj("a", 1));
        settle().await;
        server.put_silently(obj("a", 2));
        server.forget_history();
    }
    assert_eq!(picky.resyncs.load(Ordering::Relaxed), 10);
    assert!(lists(&server).len() > 10);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_resync_that_fails_ends_the_cycle() {
    let server = server_with(&["a"]);
    let (picky, task) = run_picky(&server, Picky { failing_resync: Some(2), ..Picky::default() }, 10);
    sleep(Duration::from_secs(19)).await;
    assert_eq!(lists(&server).len(), 1);
    sleep(Duration::from_secs(4)).await;
    assert_eq!((picky.resyncs.load(Ordering::Relaxed), lists(&server).len()), (2, 2));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn should_resync_is_asked_each_time() {
    let server = server_with(&["a"]);
    let picky = Arc::new(Picky::default());
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let options = ReflectorOptions { resync_period: Duration::from_secs(10), ..Default::default() };
    let reflector = Reflector::new(server.clone(), Target(picky.clone()))
        .options(options)
        .should_resync(move || counter.fetch_add(1, Ordering::Relaxed) % 2 == 1);
    let task = tokio::spawn(async move { reflector.run().await });
    sleep(Duration::from_secs(45)).await;
    assert_eq!((asked.load(Ordering::Relaxed), picky.resyncs.load(Ordering::Relaxed)), (4, 2));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn feeds_a_queue_for_consumers_of_your_own() {
    let server = server_with(&["a", "b"]);
    let queue = Arc::new(DeltaFifo::<Obj>::builder().embedded_store().emit_replaced(true).build());
    let reflector = Reflector::new(server.clone(), queue.clone());
    let task = tokio::spawn(async move { reflector.run().await });
    for expected in ["a", "b"] {
        let claim = queue.pop().await.unwrap();
        assert_eq!(&**claim.key(), expected);
        assert!(claim.is_initial());
    }
    assert!(queue.has_synced());
    server.delete(&"a".into());
    assert!(queue.pop().await.unwrap().deltas().newest().unwrap().is_deleted());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_page_size_of_zero_is_the_default() {
    let server = server_with(&["a", "b"]);
    let running = run_with(&server, ReflectorOptions { page_size: Some(0), ..ReflectorOptions::default() });
    tokio::time::timeout(Duration::from_secs(60), running.store.wait_for(2)).await.expect("the list ends").unwrap();
    assert_eq!(lists(&server), ["0"], "all in one page");
}

#[tokio::test(start_paused = true)]
async fn the_memory_servers_pages_have_at_least_one_object() {
    let server = server_with(&["a", "b"]);
    let options = ListOptions { limit: Some(0), ..ListOptions::default() };
    let page = server.list(options).await.unwrap();
    assert_eq!((page.items.len(), page.continue_token.is_some()), (1, true));
}

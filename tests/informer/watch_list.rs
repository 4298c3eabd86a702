//! D10: the initial list as a stream.

use std::sync::Arc;
use std::time::Duration;

use delta_fifo::informer::{Reflector, Request, SourceError, Store, WatchEvent};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{Obj, Server, lists, obj, requests, server_with, settle};

fn run(server: &Server) -> (Arc<Store<Obj>>, JoinHandle<Result<(), SourceError>>) {
    let store = Arc::new(Store::new());
    let reflector = Reflector::new(server.clone(), store.clone());
    (store, tokio::spawn(async move { reflector.run().await }))
}

fn streaming(keys: &[&str]) -> Server {
    let server = server_with(keys);
    server.set_streams_initial_list(true);
    server
}

#[tokio::test(start_paused = true)]
async fn no_list_is_made_and_the_stream_goes_on_as_the_watch() {
    let server = streaming(&["a", "b"]);
    let (store, task) = run(&server);
    store.wait_for(2).await.unwrap();
    let version = server.put(obj("c", 1));
    store.wait_for(version).await.unwrap();
    assert_eq!(store.len(), 3);
    assert_eq!(requests(&server), ["w"], "one watch, from nowhere");
    assert!(matches!(&server.requests()[0], Request::Watch(options) if options.initial_events && options.bookmarks));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn nothing_reaches_the_store_before_the_end_is_known() {
    let server = streaming(&["a"]);
    let hanging = Hanging(server.clone());
    let store = Arc::new(Store::<Obj>::new());
    let reflector = Reflector::new(hanging, store.clone());
    let task = tokio::spawn(async move { reflector.run().await });
    settle().await;
    assert_eq!((server.open_watches(), store.len()), (1, 0));
    server.inject(|| Ok(WatchEvent::Modified { object: Arc::new(obj("a", 9)), resource_version: 2.into() }));
    server.inject(|| Ok(WatchEvent::Bookmark { resource_version: 3.into(), initial_events_end: false }));
    settle().await;
    assert_eq!(store.len(), 0);
    server.inject(|| Ok(WatchEvent::Bookmark { resource_version: 4.into(), initial_events_end: true }));
    store.wait_for(4).await.unwrap();
    assert_eq!(store.get(&"a".into()).unwrap().value, 9);
    task.abort();
}

/// Starts the stream without the initial events, so that the test can give them.
struct Hanging(Server);

impl delta_fifo::informer::ListWatch<Obj> for Hanging {
    type Watch = delta_fifo::informer::MemoryWatch<Obj, Arc<str>>;

    async fn list(
        &self,
        options: delta_fifo::informer::ListOptions,
    ) -> Result<delta_fifo::informer::ListPage<Obj>, SourceError> {
        self.0.list(options).await
    }

    async fn watch(&self, options: delta_fifo::informer::WatchOptions) -> Result<Self::Watch, SourceError> {
        let from_now =
            delta_fifo::informer::WatchOptions { initial_events: false, resource_version: self.0.version(), ..options };
        self.0.watch(from_now).await
    }

    fn streams_initial_list(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_is_listed() {
    let server = streaming(&["a"]);
    server.fail_next_watch(SourceError::Unsupported);
    let (store, task) = run(&server);
    store.wait_for(1).await.unwrap();
    settle().await;
    assert_eq!(requests(&server), ["w", "0", "w1"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn another_error_falls_back_to_a_list_in_this_cycle() {
    let server = streaming(&["a"]);
    server.fail_next_watch(SourceError::transport("reset"));
    let (store, task) = run(&server);
    let began = Instant::now();
    store.wait_for(1).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(100));
    assert_eq!(lists(&server), ["0"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn refused_and_too_many_wait_and_begin_again() {
    let server = streaming(&["a"]);
    server.fail_next_watch(SourceError::Refused("refused".into()));
    server.fail_next_watch(SourceError::TooManyRequests { retry_after: None });
    let (store, task) = run(&server);
    let began = Instant::now();
    store.wait_for(1).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(2400), "two waits");
    assert_eq!(requests(&server), ["w", "w", "w"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_expired_stream_begins_again_with_the_newest_state() {
    let server = streaming(&["a"]);
    let (store, task) = run(&server);
    store.wait_for(1).await.unwrap();
    server.put(obj("a", 2));
    store.wait_for(2).await.unwrap();
    // The cycle ends; the next one asks for its last version, which is expired.
    server.fail_next_watch(SourceError::Expired);
    server.inject(|| Err(SourceError::Expired));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(requests(&server), ["w", "w2", "w"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_early_begins_again_and_what_it_brought_is_forgotten() {
    let server = streaming(&["a"]);
    let store = Arc::new(Store::<Obj>::new());
    let reflector = Reflector::new(Hanging(server.clone()), store.clone());
    let task = tokio::spawn(async move { reflector.run().await });
    settle().await;
    server.inject(|| Ok(WatchEvent::Added { object: Arc::new(obj("stale", 9)), resource_version: 2.into() }));
    settle().await;
    server.disconnect();
    settle().await;
    assert_eq!(server.requests().len(), 2, "at once");
    server.inject(|| Ok(WatchEvent::Bookmark { resource_version: 4.into(), initial_events_end: true }));
    store.wait_for(4).await.unwrap();
    assert!(store.is_empty());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn streams_that_end_at_once_do_not_make_a_tight_loop() {
    let server = streaming(&["a"]);
    let reflector = Reflector::new(Hanging(server.clone()), Arc::new(Store::<Obj>::new()));
    let task = tokio::spawn(async move { reflector.run().await });
    for _ in 0..100 {
        settle().await;
        server.disconnect();
    }
    assert!(server.requests().len() <= 2, "{:?}", server.requests().len());
    task.abort();
}

//! Nothing is left behind: neither tasks, nor watches, nor events that nobody counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use delta_fifo::BoxError;
use delta_fifo::informer::{
    BackoffPolicy, Event, Handler, HandlerOptions, NotSynced, RetryPolicy, SharedInformer, Shutdown, StoreStopped,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Obj, Recorder, View, obj, server, server_with, settle, started};

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn slow(each: Duration, counter: &Arc<AtomicUsize>) -> Handler<Obj> {
    let counter = counter.clone();
    Handler::from_async_fn(move |_: Event<Obj>| {
        let counter = counter.clone();
        async move {
            sleep(each).await;
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BoxError>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn no_task_and_no_watch_is_left() {
    for how in [Shutdown::Immediate, Shutdown::Graceful(Duration::from_secs(5))] {
        let before = tasks();
        let server = server_with(&["a", "b"]);
        let informer = SharedInformer::builder(server.clone()).workers(3).build().unwrap();
        let handled = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let options = HandlerOptions::new().concurrency(4).resync_period(Duration::from_secs(1));
            informer.add_event_handler_with(slow(Duration::from_millis(100), &handled), options).unwrap();
        }
        informer.start().unwrap();
        sleep(Duration::from_millis(2500)).await;
        assert!(tasks() > before && server.open_watches() == 1);
        informer.shutdown(how).await;
        assert_eq!((tasks(), server.open_watches()), (before, 0), "{how:?}");
        assert!(informer.is_stopped());
        assert_eq!(informer.store().len(), 2, "the store stays readable");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_informer_leaves_no_task_either() {
    let before = tasks();
    let server = server_with(&["a"]);
    let informer = started(&server);
    let handle = informer.add_event_handler(Recorder::new().handler()).unwrap();
    handle.wait_synced().await.unwrap();
    drop(informer);
    settle().await;
    assert_eq!((tasks(), server.open_watches()), (before, 0));
    drop(handle);
}

#[tokio::test(start_paused = true)]
async fn graceful_delivers_everything_in_time() {
    let server = server();
    let informer = started(&server);
    let handled = Arc::new(AtomicUsize::new(0));
    informer.add_event_handler(slow(Duration::from_millis(10), &handled)).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..100 {
        server.put(obj(&format!("k{i}"), i));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    let report = informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(handled.load(Ordering::Relaxed), 100);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_at_the_deadline_is_dropped_and_counted_and_what_runs_is_awaited() {
    let server = server();
    let informer = started(&server);
    let handled = Arc::new(AtomicUsize::new(0));
    informer.add_event_handler(slow(Duration::from_millis(1000), &handled)).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..10 {
        server.put(obj(&format!("k{i}"), i));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    let began = Instant::now();
    let report = informer.shutdown(Shutdown::Graceful(Duration::from_millis(2500))).await;
    assert_eq!((handled.load(Ordering::Relaxed), report.events_dropped), (3, 7));
    assert_eq!(began.elapsed().as_millis() / 100, 30, "the third call was awaited");
}

#[tokio::test(start_paused = true)]
async fn immediate_drops_handlers_where_they_wait() {
    let server = server();
    let informer = started(&server);
    let handled = Arc::new(AtomicUsize::new(0));
    informer.add_event_handler(slow(Duration::from_secs(1000), &handled)).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..10 {
        server.put(obj(&format!("k{i}"), i));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    settle().await;
    let began = Instant::now();
    let report = informer.shutdown(Shutdown::Immediate).await;
    assert_eq!((handled.load(Ordering::Relaxed), report.events_dropped), (0, 10));
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn events_that_wait_for_a_retry_are_waited_for_until_the_deadline() {
    let server = server_with(&["a"]);
    for (wait, dropped) in [(1, 0), (100, 1)] {
        let informer = started(&server);
        let backoff = BackoffPolicy { min: Duration::from_secs(wait), jitter: false, ..BackoffPolicy::default() };
        let backoff = BackoffPolicy { max: Duration::from_secs(wait), ..backoff };
        let options = HandlerOptions::new().retry(RetryPolicy { retries: None, backoff });
        let handler = Handler::from_fn(|event: &Event<Obj>| if event.attempt == 1 { Err("once") } else { Ok(()) });
        let handle = informer.add_event_handler_with(handler, options).unwrap();
        informer.wait_synced().await.unwrap();
        settle().await;
        assert_eq!(handle.stats().failed, 1);
        let report = informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
        assert_eq!(report.events_dropped, dropped);
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_told() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    informer.wait_synced().await.unwrap();
    settle().await;
    let store = informer.store();
    let waiting = tokio::spawn(async move { store.wait_for(1000).await });
    settle().await;
    informer.shutdown(Shutdown::Immediate).await;
    assert_eq!(waiting.await.unwrap(), Err(StoreStopped { reached: 1.into() }));
}

#[tokio::test(start_paused = true)]
async fn two_shutdowns_at_once_and_one_later() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    informer.wait_synced().await.unwrap();
    let how = Shutdown::Graceful(Duration::from_secs(1));
    let (a, b) = tokio::join!(informer.shutdown(how), informer.shutdown(Shutdown::Immediate));
    assert!(a.is_clean() && b.is_clean());
    assert!(informer.shutdown(how).await.is_clean());
}

/// A list of many objects is handed over on another thread; a shutdown in the middle of it waits for that thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_list_that_is_being_queued_is_no_thread_left() {
    let server = server();
    for i in 0..20_000 {
        server.put(obj(&format!("k{i}"), i));
    }
    let informer = started(&server);
    let view = Arc::new(View::default());
    informer.add_event_handler(view.handler()).unwrap();
    while informer.queued_keys() == 0 && !informer.has_synced() {
        tokio::task::yield_now().await;
    }
    let report = informer.shutdown(Shutdown::Graceful(Duration::from_secs(60))).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(informer.store().len(), 20_000, "it was queued as a whole, so it is applied as a whole");
    view.assert_is(&server.objects());
}

const LONG: Duration = Duration::from_secs(600);

/// As after a shutdown: nobody waits for what will not come.
#[tokio::test(start_paused = true)]
async fn a_dropped_informer_tells_those_who_wait() {
    let server = server_with(&["a", "b"]);
    let informer = started(&server);
    let never = Handler::from_async_fn(|_: Event<Obj>| std::future::pending::<Result<(), BoxError>>());
    let handle = informer.add_event_handler(never).unwrap();
    informer.store().wait_for(2).await.unwrap();
    settle().await;
    assert_eq!(handle.stats().running, 1);
    let (store, synced) = (informer.store(), handle.clone());
    let mut changes = store.subscribe();
    let waiting = tokio::spawn(async move { store.wait_for(1000).await });
    let changed = tokio::spawn(async move { while changes.changed().await.is_ok() {} });
    let synced = tokio::spawn(async move { synced.wait_synced().await });
    settle().await;
    drop(informer);
    let stopped = Err(StoreStopped { reached: 2.into() });
    assert_eq!(timeout(LONG, waiting).await.expect("wait_for ends").unwrap(), stopped);
    timeout(LONG, changed).await.expect("changed ends").unwrap();
    assert_eq!(timeout(LONG, synced).await.expect("wait_synced ends").unwrap(), Err(NotSynced::Stopped));
    assert!(handle.is_removed());
    let stats = handle.stats();
    assert_eq!((stats.running, stats.waiting, stats.dropped), (0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_is_dropped_before_its_start_tells_those_who_wait() {
    let informer = SharedInformer::builder(server()).build().unwrap();
    let handle = informer.add_event_handler(Recorder::new().handler()).unwrap();
    let store = informer.store();
    drop(informer);
    assert_eq!(timeout(LONG, handle.wait_synced()).await.expect("wait_synced ends"), Err(NotSynced::Stopped));
    assert!(timeout(LONG, store.wait_for(1)).await.expect("wait_for ends").is_err());
    assert!(handle.is_removed());
}

#[tokio::test(start_paused = true)]
async fn an_immediate_shutdown_ends_a_graceful_one() {
    let server = server_with(&["a", "b", "c"]);
    let informer = started(&server);
    let before = Instant::now();
    let handled = Arc::new(AtomicUsize::new(0));
    informer.add_event_handler(slow(Duration::from_secs(3600), &handled)).unwrap();
    informer.wait_synced().await.unwrap();
    let graceful = informer.clone();
    let graceful = tokio::spawn(async move { graceful.shutdown(Shutdown::Graceful(Duration::MAX)).await });
    sleep(Duration::from_secs(1)).await;
    assert!(!graceful.is_finished());
    informer.shutdown(Shutdown::Immediate).await;
    let report = graceful.await.unwrap();
    assert_eq!((report.events_dropped, before.elapsed().as_secs()), (3, 1));
}

/// A handler that shuts its own informer down.
fn suicidal(how: Shutdown, informer: &Arc<OnceLock<SharedInformer<Obj>>>) -> Handler<Obj> {
    let informer = informer.clone();
    Handler::from_async_fn(move |_: Event<Obj>| {
        let informer = informer.clone();
        async move {
            informer.get().unwrap().shutdown(how).await;
            Ok::<_, BoxError>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_waits_for_its_own_end_is_ended_from_outside() {
    let before = tasks();
    let server = server_with(&["a", "b"]);
    let informer = SharedInformer::builder(server.clone()).build().unwrap();
    let own = Arc::new(OnceLock::from(informer.clone()));
    let how = Shutdown::Graceful(Duration::from_secs(1));
    let handle = informer.add_event_handler(suicidal(how, &own)).unwrap();
    informer.start().unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(handle.stats().running, 1, "it waits for itself, as documented");
    timeout(LONG, informer.shutdown(Shutdown::Immediate)).await.expect("somebody else can end it");
    assert_eq!((tasks(), server.open_watches(), handle.stats().running), (before, 0, 0));
    assert!(informer.store().wait_for(1000).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_immediate_shutdown_from_within_a_handler_stops_all_the_same() {
    let before = tasks();
    let server = server_with(&["a", "b"]);
    let informer = SharedInformer::builder(server.clone()).build().unwrap();
    let own = Arc::new(OnceLock::from(informer.clone()));
    let handle = informer.add_event_handler(suicidal(Shutdown::Immediate, &own)).unwrap();
    informer.start().unwrap();
    assert!(timeout(LONG, informer.store().wait_for(1000)).await.expect("it stops").is_err());
    sleep(Duration::from_secs(1)).await;
    assert!(informer.is_stopped() && handle.is_removed());
    assert_eq!((tasks(), server.open_watches()), (before, 0));
    timeout(LONG, informer.shutdown(Shutdown::Graceful(LONG))).await.expect("a later one has nothing to wait for");
}

//! F2 to F4: each handler is resynced by its own clock, and whom a Resync is for is settled when it is queued.

use std::sync::Arc;
use std::time::Duration;

use delta_fifo::BoxError;
use delta_fifo::informer::{Event, Handler, HandlerOptions, ReflectorOptions, SharedInformer};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::support::{Obj, Recorder, obj, server_with, settle, started};

fn every(seconds: f64) -> HandlerOptions<Obj> {
    HandlerOptions::new().resync_period(Duration::from_secs_f64(seconds))
}

fn seconds(since: Instant, recorder: &Recorder) -> Vec<f64> {
    recorder.times().iter().map(|time| ((*time - since).as_secs_f64() * 100.0).round() / 100.0).collect()
}

#[tokio::test(start_paused = true)]
async fn three_periods_are_kept_exactly() {
    let server = server_with(&["a"]);
    let informer = SharedInformer::builder(server).build().unwrap();
    let recorders = [Recorder::new(), Recorder::new(), Recorder::new()];
    for (recorder, period) in recorders.iter().zip([0.0, 2.0, 3.0]) {
        informer.add_event_handler_with(recorder.handler(), every(period)).unwrap();
    }
    let began = Instant::now();
    informer.start().unwrap();
    sleep(Duration::from_millis(9500)).await;
    assert_eq!(seconds(began, &recorders[0]), [0.0]);
    assert_eq!(seconds(began, &recorders[1]), [0.0, 2.0, 4.0, 6.0, 8.0]);
    assert_eq!(seconds(began, &recorders[2]), [0.0, 3.0, 6.0, 9.0]);
    assert!(recorders[1].take()[1..].iter().all(|event| event == "update a=0->0 (resync)"));
}

#[tokio::test(start_paused = true)]
async fn the_informers_period_is_the_default_and_each_keeps_its_own() {
    let server = server_with(&["a"]);
    let informer = SharedInformer::builder(server).resync_period(Duration::from_secs(12 * 3600)).build().unwrap();
    let recorders = [Recorder::new(), Recorder::new(), Recorder::new(), Recorder::new(), Recorder::new()];
    informer.add_event_handler(recorders[0].handler()).unwrap();
    for (recorder, period) in recorders[1..].iter().zip([0.0, 60.0, 55.0, 5.0]) {
        informer.add_event_handler_with(recorder.handler(), every(period)).unwrap();
    }
    informer.start().unwrap();
    sleep(Duration::from_secs(601)).await;
    let resyncs: Vec<_> = recorders.iter().map(|recorder| recorder.len() - 1).collect();
    assert_eq!(resyncs, [0, 0, 10, 10, 120]);
    sleep(Duration::from_secs(12 * 3600)).await;
    assert_eq!(recorders[0].len() - 1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_comes_late_counts_from_its_coming() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    sleep(Duration::from_millis(1500)).await;
    let recorder = Recorder::new();
    let began = Instant::now();
    informer.add_event_handler_with(recorder.handler(), every(2.0)).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(seconds(began, &recorder), [0.0, 2.0, 4.0]);
}

/// A handler that is held up while two rounds pass still gets its Resync: a later round takes nothing back.
#[tokio::test(start_paused = true)]
async fn a_backlog_loses_no_resync() {
    let server = server_with(&["a", "b"]);
    // The worker is held up by a buffer that is full, so Syncs wait in the queue while rounds go by.
    let informer = SharedInformer::builder(server.clone()).build().unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let blocking = Handler::from_async_fn({
        let gate = gate.clone();
        move |_: Event<Obj>| {
            let gate = gate.clone();
            async move {
                gate.acquire().await?.forget();
                Ok::<_, BoxError>(())
            }
        }
    });
    let buffering =
        delta_fifo::informer::Buffering::Bounded { events: 1, overflow: delta_fifo::informer::Overflow::Wait };
    informer.add_event_handler_with(blocking, HandlerOptions::new().buffering(buffering)).unwrap();
    let (two, three) = (Recorder::new(), Recorder::new());
    informer.add_event_handler_with(two.handler(), every(2.0)).unwrap();
    informer.add_event_handler_with(three.handler(), every(3.0)).unwrap();
    informer.start().unwrap();
    gate.add_permits(2);
    settle().await;
    two.take();
    three.take();
    // Fill the blocked buffer: one event is handled, one waits, the worker holds the third.
    for value in 0..3 {
        server.put(obj("a", 10 + value));
        settle().await;
    }
    sleep(Duration::from_millis(3500)).await;
    assert!(!two.take().iter().chain(&three.take()).any(|event| event.contains("resync")), "the worker is held up");
    gate.add_permits(1000);
    sleep(Duration::from_millis(100)).await;
    // Both rounds, of 2 s and of 3 s, found `b` idle or queued for a Sync already.
    let synced = |recorder: &Recorder| recorder.take().iter().filter(|event| event.contains("b=1->1 (resync)")).count();
    assert_eq!((synced(&two), synced(&three)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_relist_echo_goes_to_handlers_that_resync_and_no_others() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let (plain, resyncing) = (Recorder::new(), Recorder::new());
    informer.add_event_handler(plain.handler()).unwrap();
    informer.add_event_handler_with(resyncing.handler(), every(1000.0)).unwrap().wait_synced().await.unwrap();
    settle().await;
    plain.take();
    resyncing.take();
    informer.relist();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(plain.take(), Vec::<String>::new());
    assert_eq!(resyncing.take(), ["update a=0->0 (relist)"]);
}

#[tokio::test(start_paused = true)]
async fn objects_without_a_version_are_news_each_time() {
    let server = delta_fifo::informer::MemoryServer::<Obj>::new(|_, _| ());
    server.put(obj("a", 1));
    let informer = started(&server);
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap().wait_synced().await.unwrap();
    recorder.take();
    informer.relist();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(recorder.take(), ["update a=1->1 (relist)"]);
}

/// The reflector of an informer has no timer of its own.
#[tokio::test(start_paused = true)]
async fn the_reflectors_period_is_ignored() {
    let server = server_with(&["a"]);
    let options = ReflectorOptions { resync_period: Duration::from_secs(1), ..ReflectorOptions::default() };
    let informer = SharedInformer::builder(server).reflector(options).build().unwrap();
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap();
    informer.start().unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(recorder.len(), 1);
}

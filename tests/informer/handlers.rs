//! Failing, slow and panicking handlers, their buffers and what is counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::BoxError;
use delta_fifo::informer::{
    BackoffPolicy, Buffering, DeadLetter, Event, Handler, HandlerOptions, HandlerPanic, Informer, Overflow,
    RetryPolicy, SharedInformer, Shutdown,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::support::{Obj, Recorder, View, obj, server, server_with, settle, started, text};

/// Fails for `key` as often as `times`; writes down everything.
fn failing(recorder: &Arc<Recorder>, key: &'static str, times: usize, panics: bool) -> Handler<Obj> {
    let (recorder, left) = (recorder.clone(), AtomicUsize::new(times));
    Handler::from_fn(move |event: &Event<Obj>| {
        recorder.record(event);
        let fails = &*event.key == key
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        assert!(!(fails && panics), "the handler panics");
        if fails { Err("not now") } else { Ok(()) }
    })
}

fn steady(retries: Option<u32>) -> RetryPolicy {
    let second = Duration::from_secs(1);
    let backoff = BackoffPolicy { min: second, max: second, jitter: false, ..BackoffPolicy::default() };
    RetryPolicy { retries, backoff }
}

#[tokio::test(start_paused = true)]
async fn a_failed_event_is_tried_again_and_other_keys_go_on() {
    for panics in [false, true] {
        let server = server_with(&["a"]);
        let informer = started(&server);
        let recorder = Recorder::new();
        let options = HandlerOptions::new().retry(steady(None));
        let handle = informer.add_event_handler_with(failing(&recorder, "a", 2, panics), options).unwrap();
        let began = Instant::now();
        recorder.wait_len(1).await;
        server.put(obj("a", 1));
        server.put(obj("b", 2));
        recorder.wait_len(2).await;
        assert!(began.elapsed() < Duration::from_millis(100), "b does not wait for a");
        assert!(!handle.has_synced(), "a is not done");
        recorder.wait_len(5).await;
        let add = "add a=0 initial (relist)";
        assert_eq!(recorder.take(), [add, "add b=2 (watch)", add, add, "update a=0->1 (watch)"]);
        assert_eq!(began.elapsed().as_secs(), 2);
        settle().await;
        assert!(handle.has_synced());
        let stats = handle.stats();
        assert_eq!((stats.failed, stats.handled, stats.dead_letters), (2, 3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn retries_used_up_end_at_the_dead_letter_hook_and_the_next_event_is_tried() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    let letters = Arc::new(Mutex::new(Vec::new()));
    let hook = letters.clone();
    let options = HandlerOptions::new().retry(steady(Some(2))).on_dead_letter(move |letter: DeadLetter<Obj>| {
        assert!(letter.error.downcast_ref::<HandlerPanic>().unwrap().message.contains("panics"));
        hook.lock().unwrap().push((text(&letter.event), letter.event.attempt));
        panic!("a hook that panics harms nobody");
    });
    let handle = informer.add_event_handler_with(failing(&recorder, "a", 3, true), options).unwrap();
    handle.wait_synced().await.unwrap();
    assert_eq!(*letters.lock().unwrap(), [("add a=0 initial (relist)".to_owned(), 3)]);
    server.put(obj("a", 1));
    recorder.wait_len(4).await;
    settle().await;
    assert_eq!(handle.stats().dead_letters, 1);
    assert_eq!(handle.stats().handled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_resync_gives_a_failed_event_another_chance() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    let options = HandlerOptions::new().retry(RetryPolicy::never()).resync_period(Duration::from_secs(60));
    let handle = informer.add_event_handler_with(failing(&recorder, "a", 1, false), options).unwrap();
    sleep(Duration::from_secs(61)).await;
    assert_eq!(recorder.take(), ["add a=0 initial (relist)", "update a=0->0 (resync)"]);
    assert_eq!((handle.stats().dead_letters, handle.stats().handled), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn async_and_blocking_handlers_are_retried_too() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let calls = Arc::new(AtomicUsize::new(0));
    let (for_async, for_blocking) = (calls.clone(), calls.clone());
    let asynchronous = Handler::from_async_fn(move |event: Event<Obj>| {
        let calls = for_async.clone();
        async move {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            assert!(event.attempt > 1, "the first attempt panics after an await");
            Ok::<_, BoxError>(())
        }
    });
    let blocking = Handler::blocking_fn(move |event: &Event<Obj>| {
        for_blocking.fetch_add(1, Ordering::Relaxed);
        assert!(event.attempt > 1, "the first attempt panics");
        Ok::<_, BoxError>(())
    });
    for handler in [asynchronous, blocking] {
        let handle = informer.add_event_handler(handler).unwrap();
        handle.wait_synced().await.unwrap();
        assert_eq!((handle.stats().failed, handle.stats().handled), (1, 1));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

/// A handler that waits for a permit before each event, and builds a view.
fn gated(view: &Arc<View>, gate: &Arc<Semaphore>) -> Handler<Obj> {
    let (view, gate) = (view.clone(), gate.clone());
    Handler::from_async_fn(move |event: Event<Obj>| {
        let (view, gate) = (view.clone(), gate.clone());
        async move {
            gate.acquire().await?.forget();
            view.apply(&event);
            Ok::<_, BoxError>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_holds_up_neither_the_store_nor_the_others() {
    let server = server();
    let informer = started(&server);
    let (view, gate) = (Arc::new(View::default()), Arc::new(Semaphore::new(0)));
    let slow = informer.add_event_handler(gated(&view, &gate)).unwrap();
    let quick = Arc::new(View::default());
    informer.add_event_handler(quick.handler()).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..1000u64 {
        server.put(obj(&format!("k{}", i % 10), i));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    settle().await;
    quick.assert_is(&server.objects());
    assert_eq!(slow.stats().waiting + slow.stats().running, 1000);
    gate.add_permits(1000);
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
    view.assert_is(&server.objects());
    assert!(view.errors().is_empty() && quick.errors().is_empty());
}

#[tokio::test(start_paused = true)]
async fn coalescing_bounds_memory_by_the_keys_and_loses_nothing() {
    let server = server();
    let informer = started(&server);
    let (view, gate) = (Arc::new(View::default()), Arc::new(Semaphore::new(0)));
    let options = HandlerOptions::new().buffering(Buffering::Coalescing);
    let handle = informer.add_event_handler_with(gated(&view, &gate), options).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..20_000u64 {
        let key = format!("k{}", i % 10);
        if i % 7 == 0 {
            drop(server.delete(&key.as_str().into()))
        } else {
            drop(server.put(obj(&key, i)))
        }
        if i % 1000 == 0 {
            settle().await;
            gate.add_permits(3);
        }
    }
    informer.store().wait_for(server.version()).await.unwrap();
    let stats = handle.stats();
    assert!(stats.most_waiting <= 20, "{stats:?}");
    assert!(stats.merged > 10_000, "{stats:?}");
    gate.add_permits(1000);
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
    view.assert_is(&server.objects());
    assert_eq!(view.errors(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_makes_the_workers_wait_and_not_the_reflector() {
    let server = server();
    let informer = started(&server);
    let (view, gate) = (Arc::new(View::default()), Arc::new(Semaphore::new(0)));
    let buffering = Buffering::Bounded { events: 5, overflow: Overflow::Wait };
    let options = HandlerOptions::new().buffering(buffering);
    let handle = informer.add_event_handler_with(gated(&view, &gate), options).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..500u64 {
        server.put(obj(&format!("k{i}"), i));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(handle.stats().waiting, 5);
    assert_eq!(informer.last_sync_resource_version(), server.version(), "the reflector went on");
    gate.add_permits(1000);
    informer.store().wait_for(server.version()).await.unwrap();
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
    assert_eq!(handle.stats().most_waiting, 5);
    view.assert_is(&server.objects());
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_can_coalesce_instead() {
    let server = server();
    let informer = started(&server);
    let (view, gate) = (Arc::new(View::default()), Arc::new(Semaphore::new(0)));
    let buffering = Buffering::Bounded { events: 5, overflow: Overflow::Coalesce };
    let options = HandlerOptions::new().buffering(buffering);
    let handle = informer.add_event_handler_with(gated(&view, &gate), options).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..500u64 {
        server.put(obj(&format!("k{}", i % 3), i));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    assert!(handle.stats().most_waiting <= 5 + 3);
    gate.add_permits(1000);
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
    view.assert_is(&server.objects());
    assert!(view.errors().is_empty());
}

#[tokio::test(start_paused = true)]
async fn several_calls_at_a_time_never_of_one_key() {
    let server = server();
    let running = Arc::new(Mutex::new(Vec::<Arc<str>>::new()));
    let most = Arc::new(AtomicUsize::new(0));
    let handler = Handler::from_async_fn({
        let (running, most) = (running.clone(), most.clone());
        move |event: Event<Obj>| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                {
                    let mut running = running.lock().unwrap();
                    assert!(!running.contains(&event.key), "two calls of {}", event.key);
                    running.push(event.key.clone());
                    most.fetch_max(running.len(), Ordering::Relaxed);
                }
                sleep(Duration::from_millis(10)).await;
                running.lock().unwrap().retain(|key| *key != event.key);
                Ok::<_, BoxError>(())
            }
        }
    });
    let builder = SharedInformer::builder(server.clone());
    let options = HandlerOptions::new().concurrency(8);
    let informer = Informer::new(builder, handler, options).unwrap();
    informer.start().unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..400u64 {
        server.put(obj(&format!("k{}", i % 20), i));
    }
    let began = Instant::now();
    informer.store().wait_for(server.version()).await.unwrap();
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(60))).await;
    assert_eq!(most.load(Ordering::Relaxed), 8);
    assert_eq!((informer.handler().stats().handled, informer.handler().stats().failed), (400, 0));
    assert!(began.elapsed() < Duration::from_millis(1000), "eight at a time: {:?}", began.elapsed());
}

//! Behaviour sections E and F: what handlers are told, when they come and go, and when they have synced.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::informer::{
    Event, Handler, HandlerOptions, Indexers, InformerStopped, NotSynced, ResourceEventHandler, SharedInformer,
    Shutdown, SourceError,
};
use delta_fifo::{BoxError, Deleted};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::support::{Obj, Recorder, obj, server, server_with, settle, started};

#[tokio::test(start_paused = true)]
async fn events_say_what_happened_and_why() {
    let server = server_with(&["a", "b"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    let handle = informer.add_event_handler(recorder.handler()).unwrap();
    handle.wait_synced().await.unwrap();
    assert_eq!(recorder.take_sorted(), ["add a=0 initial (relist)", "add b=1 initial (relist)"]);
    server.put(obj("a", 5));
    server.put(obj("c", 6));
    server.delete(&"b".into());
    recorder.wait_len(3).await;
    assert_eq!(recorder.take(), ["update a=0->5 (watch)", "add c=6 (watch)", "delete b=1 (watch)"]);
}

#[tokio::test(start_paused = true)]
async fn a_relist_tells_what_was_missed() {
    let server = server_with(&["same", "changed", "gone"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap().wait_synced().await.unwrap();
    recorder.take();
    server.put_silently(obj("changed", 7));
    server.put_silently(obj("new", 8));
    server.delete_silently(&"gone".into());
    server.forget_history();
    recorder.wait_len(3).await;
    settle().await;
    assert_eq!(recorder.take_sorted(), ["add new=8 (relist)", "gone gone=2 (relist)", "update changed=1->7 (relist)"]);
}

#[tokio::test(start_paused = true)]
async fn added_or_updated_is_decided_by_the_store() {
    let server = server();
    let informer = started(&server);
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap().wait_synced().await.unwrap();
    let object = |value| Arc::new(Obj { version: value, ..obj("a", value) });
    let event = |kind: &'static str, value| {
        server.inject(move || {
            let (object, resource_version) = (object(value), value.into());
            use delta_fifo::informer::WatchEvent::*;
            Ok(if kind == "added" { Added { object, resource_version } } else { Modified { object, resource_version } })
        });
    };
    event("modified", 1);
    event("added", 2);
    recorder.wait_len(2).await;
    assert_eq!(recorder.take(), ["add a=1 (watch)", "update a=1->2 (watch)"]);
}

#[tokio::test(start_paused = true)]
async fn the_store_has_a_change_when_the_handler_hears_of_it() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let store = informer.store();
    let checked = Arc::new(AtomicUsize::new(0));
    let counter = checked.clone();
    let handler = Handler::from_fn(move |event: &Event<Obj>| {
        let stored = store.get(&event.key).map_or(0, |object| object.version);
        let told = event.object().map_or(0, |object| object.version);
        // A deletion may be followed by a newer addition in the store.
        assert!(event.is_deleted() || stored >= told, "told {told}, the store has {stored}");
        counter.fetch_add(1, Ordering::Relaxed);
        Ok::<_, BoxError>(())
    });
    let handle = informer.add_event_handler(handler).unwrap();
    handle.wait_synced().await.unwrap();
    for value in 0..500 {
        server.put(obj(["a", "b", "c"][value as usize % 3], value));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
    assert_eq!((checked.load(Ordering::Relaxed), handle.stats().failed), (501, 0));
}

#[tokio::test(start_paused = true)]
async fn indices_before_and_after_the_start() {
    let index = |name: &'static str| Indexers::new().with(name, |o: &Obj| Ok::<_, BoxError>(vec![o.value.to_string()]));
    let server = server_with(&["a", "b"]);
    let informer = SharedInformer::builder(server).indexers(index("early")).build().unwrap();
    informer.start().unwrap();
    informer.wait_synced().await.unwrap();
    informer.add_indexers(index("late")).unwrap();
    for name in ["early", "late"] {
        assert_eq!(informer.store().index_keys(name, "1").unwrap(), ["b".into()]);
    }
    assert!(informer.add_indexers(index("late")).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_sees_what_is_there_first() {
    let server = server_with(&["a", "b", "c"]);
    let informer = started(&server);
    informer.wait_synced().await.unwrap();
    let recorder = Recorder::new();
    let handle = informer.add_event_handler(recorder.handler()).unwrap();
    assert!(!handle.has_synced(), "it has three to go");
    server.put(obj("a", 9));
    handle.wait_synced().await.unwrap();
    recorder.wait_len(4).await;
    let mut events = recorder.take();
    assert_eq!(events.pop().unwrap(), "update a=0->9 (watch)");
    events.sort();
    assert_eq!(events, ["add a=0 initial (replay)", "add b=1 initial (replay)", "add c=2 initial (replay)"]);
}

/// Late handlers while several workers apply changes on several threads: each view is built without a gap and without a
/// duplicate, or the handler complains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_handlers_have_no_gap_and_no_duplicate() {
    let server = server();
    server.set_history_window(1_000_000);
    let informer = SharedInformer::builder(server.clone()).workers(3).build().unwrap();
    informer.start().unwrap();
    let writing = Arc::new(AtomicBool::new(true));
    let writer = tokio::task::spawn_blocking({
        let (server, writing) = (server.clone(), writing.clone());
        move || {
            let mut i = 0u64;
            while writing.load(Ordering::Relaxed) {
                i += 1;
                let key = format!("k{}", fastrand::u64(..200));
                if fastrand::u8(..4) == 0 {
                    server.delete(&key.as_str().into());
                } else {
                    server.put(obj(&key, i));
                }
                if i.is_multiple_of(50) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    });
    let mut views = Vec::new();
    for _ in 0..30 {
        let view = Arc::new(crate::support::View::default());
        let options = HandlerOptions::new().retry(delta_fifo::informer::RetryPolicy::never());
        views.push((informer.add_event_handler_with(view.handler(), options).unwrap(), view));
        sleep(Duration::from_millis(10)).await;
    }
    writing.store(false, Ordering::Relaxed);
    writer.await.unwrap();
    informer.store().wait_for(server.version()).await.unwrap();
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(60))).await;
    for (handle, view) in views {
        assert_eq!(view.errors(), Vec::<String>::new());
        assert_eq!(handle.stats().failed, 0);
        view.assert_is(&server.objects());
    }
}

#[tokio::test(start_paused = true)]
async fn synced_means_delivered_and_returned() {
    let server = server_with(&["a", "b"]);
    let informer = SharedInformer::builder(server).build().unwrap();
    let gate = Arc::new(Notify::new());
    let waiting = gate.clone();
    let slow = Handler::from_async_fn(move |_: Event<Obj>| {
        let gate = waiting.clone();
        async move {
            gate.notified().await;
            Ok::<_, BoxError>(())
        }
    });
    let handle = informer.add_event_handler(slow).unwrap();
    assert!(!handle.has_synced() && !informer.has_synced(), "nothing has started");
    informer.start().unwrap();
    informer.wait_synced().await.unwrap();
    for _ in 0..2 {
        sleep(Duration::from_secs(5)).await;
        assert!(!handle.has_synced());
        gate.notify_one();
    }
    handle.wait_synced().await.unwrap();
    assert!(handle.has_synced());
}

#[tokio::test(start_paused = true)]
async fn synced_stays_true_and_never_comes_if_stopped_before() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    informer.wait_synced().await.unwrap();
    informer.shutdown(Shutdown::Immediate).await;
    assert!(informer.has_synced());

    let informer = SharedInformer::<Obj>::builder(server).build().unwrap();
    let recorder = Recorder::new();
    let handle = informer.add_event_handler(recorder.handler()).unwrap();
    informer.shutdown(Shutdown::Immediate).await;
    assert_eq!(informer.wait_synced().await, Err(NotSynced::Stopped));
    assert!(!handle.has_synced());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_used_ends_the_wait() {
    let server = server_with(&["a"]);
    server.fail_next_list(SourceError::Fatal("forbidden".into()));
    let informer = started(&server);
    let recorder = Recorder::new();
    let handle = informer.add_event_handler(recorder.handler()).unwrap();
    let Err(NotSynced::Source(why)) = informer.wait_synced().await else { panic!("it synced") };
    assert!(why.contains("forbidden"));
    assert!(matches!(handle.wait_synced().await, Err(NotSynced::Source(_))));
    assert!(informer.shutdown(Shutdown::Graceful(Duration::from_secs(1))).await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn started_once_and_never_again() {
    let informer = started(&server());
    assert!(informer.start().unwrap_err().to_string().contains("build another"));
    informer.shutdown(Shutdown::Immediate).await;
    assert!(informer.start().is_err());
    assert_eq!(informer.add_event_handler(Recorder::new().handler()).unwrap_err(), InformerStopped(()));
}

#[tokio::test(start_paused = true)]
async fn the_same_handler_can_be_added_twice_and_removed_once() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    let first = informer.add_event_handler(recorder.handler()).unwrap();
    let second = informer.add_event_handler(recorder.handler()).unwrap();
    second.wait_synced().await.unwrap();
    recorder.wait_len(2).await;
    recorder.take();
    assert!(first.remove());
    assert!(!first.remove(), "a second removal does nothing");
    server.put(obj("a", 7));
    recorder.wait_len(1).await;
    settle().await;
    assert_eq!(recorder.take(), ["update a=0->7 (watch)"]);
    assert!(first.is_removed() && !second.is_removed());
}

#[tokio::test(start_paused = true)]
async fn removal_before_the_start_and_after_the_stop() {
    let server = server_with(&["a"]);
    let informer = SharedInformer::builder(server).build().unwrap();
    let recorder = Recorder::new();
    let early = informer.add_event_handler(recorder.handler()).unwrap();
    let late = informer.add_event_handler(recorder.handler()).unwrap();
    assert!(early.remove());
    informer.start().unwrap();
    late.wait_synced().await.unwrap();
    assert_eq!(recorder.take(), ["add a=0 initial (relist)"]);
    informer.shutdown(Shutdown::Immediate).await;
    assert!(late.remove());
    late.remove_and_wait().await;
}

#[tokio::test(start_paused = true)]
async fn removal_drops_what_waits_and_waits_for_what_runs() {
    let server = server_with(&["a", "b", "c"]);
    let informer = started(&server);
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let calls = Arc::new(AtomicUsize::new(0));
    let handler = Handler::from_async_fn({
        let (entered, gate, calls) = (entered.clone(), gate.clone(), calls.clone());
        move |_: Event<Obj>| {
            let (entered, gate, calls) = (entered.clone(), gate.clone(), calls.clone());
            async move {
                entered.notify_one();
                gate.notified().await;
                calls.fetch_add(1, Ordering::Relaxed);
                Ok::<_, BoxError>(())
            }
        }
    });
    let handle = informer.add_event_handler(handler).unwrap();
    entered.notified().await;
    informer.store().wait_for(3).await.unwrap();
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.remove_and_wait().await }
    });
    settle().await;
    assert!(!waiting.is_finished(), "a call runs");
    gate.notify_one();
    waiting.await.unwrap();
    assert_eq!((calls.load(Ordering::Relaxed), handle.stats().dropped), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn handlers_may_add_and_remove_handlers() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    let own = Arc::new(Mutex::new(None::<delta_fifo::informer::HandlerHandle<Obj>>));
    let handler = Handler::from_fn({
        let (informer, recorder, own) = (informer.clone(), recorder.clone(), own.clone());
        move |_: &Event<Obj>| {
            informer.add_event_handler(recorder.handler()).map_err(|error| error.to_string())?;
            if let Some(own) = own.lock().unwrap().take() {
                own.remove();
            }
            Ok::<_, BoxError>(())
        }
    });
    let handle = {
        let mut own = own.lock().unwrap();
        let handle = informer.add_event_handler(handler).unwrap();
        *own = Some(handle.clone());
        handle
    };
    recorder.wait_len(1).await;
    handle.remove_and_wait().await;
    server.put(obj("a", 2));
    recorder.wait_len(2).await;
    settle().await;
    assert_eq!(recorder.take(), ["add a=0 initial (replay)", "update a=0->2 (watch)"]);
}

/// client-go's three callbacks and its filtering handler (E10).
#[tokio::test(start_paused = true)]
async fn a_filter_turns_updates_into_additions_and_deletions() {
    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);
    struct Callbacks(Arc<Log>);
    impl ResourceEventHandler<Obj> for Callbacks {
        fn on_add(&self, object: &Arc<Obj>, initial: bool) -> Result<(), BoxError> {
            self.0.0.lock().unwrap().push(format!("add {} {initial}", object.value));
            Ok(())
        }
        fn on_update(&self, old: &Arc<Obj>, new: &Arc<Obj>) -> Result<(), BoxError> {
            self.0.0.lock().unwrap().push(format!("update {} {}", old.value, new.value));
            Ok(())
        }
        fn on_delete(&self, deleted: &Deleted<Obj, Arc<str>>) -> Result<(), BoxError> {
            self.0.0.lock().unwrap().push(format!("delete {}", deleted.object().unwrap().value));
            Ok(())
        }
    }
    let server = server();
    server.put(obj("a", 2));
    let informer = started(&server);
    let log = Arc::new(Log::default());
    let handler = Handler::new(Callbacks(log.clone())).filter(|object: &Obj| object.value.is_multiple_of(2));
    let handle = informer.add_event_handler(handler).unwrap();
    handle.wait_synced().await.unwrap();
    for value in [4, 5, 7, 8] {
        server.put(obj("a", value));
    }
    server.delete(&"a".into());
    informer.store().wait_for(server.version()).await.unwrap();
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(1))).await;
    assert_eq!(*log.0.lock().unwrap(), ["add 2 true", "update 2 4", "delete 4", "add 8 false", "delete 8"]);
}

#[tokio::test(start_paused = true)]
async fn a_transformer_changes_store_and_events_alike_and_is_not_called_for_a_resync() {
    let server = server_with(&["a"]);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let informer = SharedInformer::builder(server.clone())
        .transform(move |object: Arc<Obj>| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BoxError>(Arc::new(Obj { value: object.value + 100, ..Obj::clone(&object) }))
        })
        .build()
        .unwrap();
    let recorder = Recorder::new();
    let options = HandlerOptions::new().resync_period(Duration::from_secs(1));
    let handle = informer.add_event_handler_with(recorder.handler(), options).unwrap();
    informer.start().unwrap();
    handle.wait_synced().await.unwrap();
    server.put(obj("a", 1));
    sleep(Duration::from_millis(3500)).await;
    assert_eq!(informer.store().get(&"a".into()).unwrap().value, 101);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let resync = "update a=101->101 (resync)";
    assert_eq!(recorder.take(), ["add a=100 initial (relist)", "update a=100->101 (watch)", resync, resync, resync]);
}

/// client-go's abuse test: handlers come and go while objects change, then everything stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_come_and_go_while_objects_change() {
    let server = server();
    server.set_history_window(1_000_000);
    let informer = SharedInformer::builder(server.clone()).workers(2).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let informer = informer.clone();
        tasks.spawn(async move {
            for round in 0..5 {
                let Ok(handle) = informer.add_event_handler(Recorder::new().handler()) else { return };
                tokio::task::yield_now().await;
                match round % 3 {
                    0 => drop(handle.remove()),
                    1 => handle.remove_and_wait().await,
                    _ => drop(handle.has_synced()),
                }
            }
        });
    }
    informer.start().unwrap();
    for i in 0..10_000u64 {
        server.put(obj(&format!("k{}", i % 100), i));
        if i % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    tokio::time::timeout(Duration::from_secs(60), async { while tasks.join_next().await.is_some() {} }).await.unwrap();
    informer.store().wait_for(server.version()).await.unwrap();
    let stopped = informer.shutdown(Shutdown::Graceful(Duration::from_secs(60)));
    assert_eq!(tokio::time::timeout(Duration::from_secs(90), stopped).await.unwrap().keys_not_applied, 0);
}

#[test]
fn a_runtime_without_time_is_refused_before_anything_starts() {
    let informer = SharedInformer::builder(server_with(&["a"])).build().unwrap();
    let without = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let start = || without.block_on(async { informer.start() });
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(start)).unwrap_err();
    let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
    assert!(text.as_ref().is_some_and(|text: &String| text.contains("enable_time")), "{text:?}");
    assert!(!informer.is_stopped());
    // Nothing is lost: on another runtime it works.
    let with = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    with.block_on(async {
        informer.start().unwrap();
        informer.wait_synced().await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_handle_shows_its_name_and_what_it_did() {
    let informer = started(&server_with(&["a"]));
    let options = HandlerOptions::new().name("audit");
    let handle = informer.add_event_handler_with(Recorder::new().handler(), options).unwrap();
    handle.wait_synced().await.unwrap();
    let text = format!("{handle:?}");
    assert!(text.starts_with("HandlerHandle { name: \"audit\", removed: false, stats: HandlerStats {"), "{text}");
    assert!(text.contains("handled: 1"), "{text}");
    assert!(!text.contains("RwLock") && !text.contains("Pipeline"), "{text}");
}

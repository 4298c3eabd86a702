//! Bugs that client-go has had, or has, in this layer; by the number they have in our list of them. Each name says what
//! must hold. Those of the queue itself are in `tests/bugs.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::informer::{
    Buffering, Event, Handler, HandlerOptions, Indexers, ListOptions, ListPage, ListWatch, MemoryWatch, ReflectorError,
    RetryPolicy, SharedInformer, Shutdown, SourceError, Store, StoreError, WatchEvent, WatchOptions,
};
use delta_fifo::{BoxError, Deleted};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::support::{
    Obj, Recorder, Server, View, labelled, lists, obj, requests, server, server_with, settle, started,
};

/// An object is added and deleted before anybody could pop it, the deletion unseen: it must not stay for ever.
#[tokio::test(start_paused = true)]
async fn h1_created_and_deleted_while_nobody_watched_does_not_stay() {
    let server = server();
    let informer = started(&server);
    let view = Arc::new(View::default());
    // The only worker is held up, so what comes stays queued.
    let gate = Arc::new(Semaphore::new(0));
    let options = HandlerOptions::new()
        .buffering(Buffering::Bounded { events: 1, overflow: delta_fifo::informer::Overflow::Wait });
    informer.add_event_handler_with(waiting_for(&gate), options).unwrap();
    informer.add_event_handler(view.handler()).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..3 {
        server.put(obj("filler", i));
        settle().await;
    }
    server.put(obj("x", 1));
    settle().await;
    server.delete_silently(&"x".into());
    server.forget_history();
    sleep(Duration::from_secs(3)).await;
    gate.add_permits(1000);
    informer.store().wait_for(server.version()).await.unwrap();
    settle().await;
    assert_eq!(informer.store().list_keys(), ["filler".into()]);
    view.assert_is(&server.objects());
}

fn waiting_for(gate: &Arc<Semaphore>) -> Handler<Obj> {
    let gate = gate.clone();
    Handler::from_async_fn(move |_: Event<Obj>| {
        let gate = gate.clone();
        async move {
            gate.acquire().await?.forget();
            Ok::<_, BoxError>(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn h2_a_re_created_object_is_announced() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap().wait_synced().await.unwrap();
    recorder.take();
    server.delete(&"a".into());
    settle().await;
    server.put_silently(obj("a", 5));
    server.forget_history();
    recorder.wait_len(2).await;
    assert_eq!(recorder.take(), ["delete a=0 (watch)", "add a=5 (relist)"]);
}

#[tokio::test(start_paused = true)]
async fn h3_a_change_found_by_a_relist_reaches_all_and_an_echo_only_those_that_resync() {
    let server = server_with(&["changed", "same"]);
    let informer = started(&server);
    let (plain, resyncing) = (Recorder::new(), Recorder::new());
    informer.add_event_handler(plain.handler()).unwrap();
    let options = HandlerOptions::new().resync_period(Duration::from_secs(10_000));
    informer.add_event_handler_with(resyncing.handler(), options).unwrap().wait_synced().await.unwrap();
    settle().await;
    plain.take();
    resyncing.take();
    server.put_silently(obj("changed", 7));
    server.forget_history();
    sleep(Duration::from_secs(5)).await;
    let change = "update changed=0->7 (relist)";
    assert_eq!(plain.take(), [change]);
    assert_eq!(resyncing.take_sorted(), [change, "update same=1->1 (relist)"]);
}

/// A key that a worker holds counts as existing: its deletion is not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h4_a_deletion_during_the_initial_load_is_not_lost() {
    for _ in 0..20 {
        let server = server();
        for i in 0..200 {
            server.put(obj(&format!("k{i}"), i));
        }
        let informer = SharedInformer::builder(server.clone()).workers(2).build().unwrap();
        informer.start().unwrap();
        for i in 0..200 {
            server.delete(&format!("k{i}").as_str().into());
            if i % 20 == 0 {
                tokio::task::yield_now().await;
            }
        }
        informer.store().wait_for(server.version()).await.unwrap();
        assert_eq!(informer.store().len(), 0);
        informer.shutdown(Shutdown::Immediate).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h6_h7_a_resync_never_goes_back_in_time() {
    let server = server_with(&["a", "b", "c"]);
    let informer = SharedInformer::builder(server.clone()).workers(2).build().unwrap();
    let newest = Arc::new(Mutex::new(std::collections::HashMap::<Arc<str>, u64>::new()));
    let back = Arc::new(AtomicUsize::new(0));
    let handler = Handler::from_fn({
        let (newest, back) = (newest.clone(), back.clone());
        move |event: &Event<Obj>| {
            let version = event.object().map_or(0, |object| object.version);
            let before = newest.lock().unwrap().insert(event.key.clone(), version);
            back.fetch_add(usize::from(before > Some(version)), Ordering::Relaxed);
            Ok::<_, BoxError>(())
        }
    });
    let options = HandlerOptions::new().resync_period(Duration::from_millis(1));
    informer.add_event_handler_with(handler, options).unwrap();
    informer.start().unwrap();
    for i in 0..5000u64 {
        server.put(obj(["a", "b", "c"][i as usize % 3], i));
        if i % 20 == 0 {
            sleep(Duration::from_micros(200)).await;
        }
    }
    informer.store().wait_for(server.version()).await.unwrap();
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;
    assert_eq!(back.load(Ordering::Relaxed), 0);
}

/// A handler that never returns holds up neither the reflector nor the store.
#[tokio::test(start_paused = true)]
async fn h9_producers_do_not_wait_for_handlers() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    informer.add_event_handler(waiting_for(&Arc::new(Semaphore::new(0)))).unwrap();
    let began = Instant::now();
    for i in 0..1000 {
        server.put(obj("a", i));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(100));
}

/// A reader that is in the middle of a walk, for ever, and a writer that is not held up by it.
#[test]
fn h10_readers_do_not_starve_the_writer() {
    let store = Store::<Obj>::new();
    for i in 0..1000 {
        store.add(obj(&format!("k{i}"), i)).unwrap();
    }
    let snapshot = store.snapshot();
    let mut walk = snapshot.iter();
    walk.next().unwrap();
    for i in 0..1000 {
        store.update(obj(&format!("k{i}"), i + 5)).unwrap();
    }
    assert_eq!(store.get(&"k7".into()).unwrap().value, 12);
    assert_eq!(walk.count(), 999);
    assert_eq!(snapshot.get(&"k7".into()).unwrap().value, 7);
}

#[tokio::test(start_paused = true)]
async fn h11_a_transformer_sees_each_object_once_and_no_tombstone() {
    let server = server_with(&["a", "b"]);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let informer = SharedInformer::builder(server.clone())
        .transform(move |object: Arc<Obj>| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BoxError>(object)
        })
        .build()
        .unwrap();
    let options = HandlerOptions::new().resync_period(Duration::from_millis(5));
    informer.add_event_handler_with(Recorder::new().handler(), options).unwrap();
    informer.start().unwrap();
    informer.wait_synced().await.unwrap();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    server.delete_silently(&"b".into());
    server.forget_history();
    informer.store().wait_for(server.version()).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3, "`a` came with the new list, the tombstone is not transformed");
}

#[test]
fn h12_an_index_keeps_no_empty_values() {
    let store = Store::<Obj>::new();
    store.add_indexer("label", |object: &Obj| Ok::<_, BoxError>(object.labels.clone())).unwrap();
    for i in 0..100 {
        store.add(labelled("a", &[&format!("v{i}")])).unwrap();
        assert_eq!(store.index_values("label").unwrap().len(), 1);
    }
    store.delete(obj("a", 0)).unwrap();
    assert!(store.index_values("label").unwrap().is_empty());
}

/// The number of values changes both ways, values move between objects, and none is lost or left.
#[test]
fn h13_an_index_of_several_values_is_exact() {
    let store = Store::<Obj>::new();
    store.add_indexer("label", |object: &Obj| Ok::<_, BoxError>(object.labels.clone())).unwrap();
    let steps: [(&str, &[&str]); 9] = [
        ("a", &["x"]),
        ("a", &["x", "y"]),
        ("b", &["y", "z"]),
        ("a", &["y"]),
        ("a", &["z", "x"]),
        ("b", &[]),
        ("b", &["x"]),
        ("a", &["x", "y", "z"]),
        ("a", &["y", "y"]),
    ];
    let mut truth = std::collections::BTreeMap::new();
    for (key, labels) in steps {
        store.update(labelled(key, labels)).unwrap();
        truth.insert(key, labels);
        for label in ["x", "y", "z"] {
            let found: Vec<_> = store.index_keys("label", label).unwrap().iter().map(ToString::to_string).collect();
            let expected: Vec<_> =
                truth.iter().filter(|(_, labels)| labels.contains(&label)).map(|(key, _)| (*key).to_owned()).collect();
            assert_eq!(found, expected, "{label} after {key} = {labels:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h14_a_handler_that_panics_on_the_initial_list_still_syncs() {
    let server = server_with(&["a", "b", "c"]);
    let informer = started(&server);
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = attempts.clone();
    let always = Handler::from_fn(move |_: &Event<Obj>| -> Result<(), BoxError> {
        counter.fetch_add(1, Ordering::Relaxed);
        panic!("always")
    });
    let handle = informer.add_event_handler(always).unwrap();
    tokio::time::timeout(Duration::from_secs(3600), handle.wait_synced()).await.unwrap().unwrap();
    assert_eq!((attempts.load(Ordering::Relaxed), handle.stats().dead_letters), (33, 3), "ten retries each");
}

#[tokio::test(start_paused = true)]
async fn h15_synced_handlers_have_seen_everything_that_was_there() {
    let server = server_with(&["a", "b", "c"]);
    let informer = started(&server);
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let slow = Handler::from_async_fn(move |event: Event<Obj>| {
        let counter = counter.clone();
        async move {
            sleep(Duration::from_secs(10)).await;
            counter.fetch_add(
                usize::from(matches!(event.kind, delta_fifo::informer::EventKind::Added { initial: true, .. })),
                Ordering::Relaxed,
            );
            Ok::<_, BoxError>(())
        }
    });
    let handle = informer.add_event_handler(slow).unwrap();
    informer.wait_synced().await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 0, "the informer has synced, the handler has not");
    handle.wait_synced().await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 3);
}

/// A source that lists a key twice.
struct Twice(Server);

impl ListWatch<Obj> for Twice {
    type Watch = MemoryWatch<Obj, Arc<str>>;

    async fn list(&self, options: ListOptions) -> Result<ListPage<Obj>, SourceError> {
        let mut page = self.0.list(options).await?;
        page.items.extend(page.items.clone());
        Ok(page)
    }

    async fn watch(&self, options: WatchOptions) -> Result<Self::Watch, SourceError> {
        self.0.watch(options).await
    }
}

#[tokio::test(start_paused = true)]
async fn h16_a_key_that_is_listed_twice_does_not_keep_it_from_syncing() {
    let informer = SharedInformer::builder(Twice(server_with(&["a", "b"]))).build().unwrap();
    informer.start().unwrap();
    tokio::time::timeout(Duration::from_secs(10), informer.wait_synced()).await.unwrap().unwrap();
    assert_eq!(informer.store().len(), 2);
}

/// Handlers registered, started, removed and stopped at the same time, over and over, on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_no_deadlock_between_register_start_and_stop() {
    for round in 0..50 {
        let informer = SharedInformer::builder(server_with(&["a", "b"])).build().unwrap();
        let register = tokio::spawn({
            let informer = informer.clone();
            async move {
                for _ in 0..5 {
                    let Ok(handle) = informer.add_event_handler(Recorder::new().handler()) else { return };
                    tokio::task::yield_now().await;
                    handle.remove_and_wait_if_started(round % 2 == 0).await;
                }
            }
        });
        let start = tokio::spawn({
            let informer = informer.clone();
            async move { informer.start() }
        });
        let stop = tokio::spawn({
            let informer = informer.clone();
            async move {
                tokio::task::yield_now().await;
                informer.shutdown(Shutdown::Immediate).await
            }
        });
        let all = async { tokio::join!(register, start, stop) };
        let (a, b, c) = tokio::time::timeout(Duration::from_secs(30), all).await.expect("a deadlock");
        a.unwrap();
        let _started_or_stopped_before = b.unwrap();
        c.unwrap();
        informer.shutdown(Shutdown::Immediate).await;
    }
}

trait Remove {
    async fn remove_and_wait_if_started(&self, wait: bool);
}

impl Remove for delta_fifo::informer::HandlerHandle<Obj> {
    async fn remove_and_wait_if_started(&self, wait: bool) {
        if wait {
            self.remove_and_wait().await;
        } else {
            self.remove();
        }
    }
}

/// Handlers of different periods that come at odd times: each gets its first Resync one period after it came.
#[tokio::test(start_paused = true)]
async fn h19_the_first_resync_is_not_skipped() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let mut handlers = Vec::new();
    for (delay, period) in [(300, 5000), (700, 3000), (1100, 7000), (10, 1000)] {
        sleep(Duration::from_millis(delay)).await;
        let (recorder, period) = (Recorder::new(), Duration::from_millis(period));
        let options = HandlerOptions::new().resync_period(period);
        handlers.push((Instant::now(), period, recorder.clone()));
        informer.add_event_handler_with(recorder.handler(), options).unwrap();
    }
    sleep(Duration::from_secs(10)).await;
    for (came, period, recorder) in handlers {
        let first = recorder.times()[1] - came;
        assert!(first >= period && first < period + Duration::from_millis(10), "{period:?}: {first:?}");
    }
}

/// An informer built without a period, and no handler at first.
#[tokio::test(start_paused = true)]
async fn h20_a_period_that_is_asked_for_is_kept() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    sleep(Duration::from_secs(100)).await;
    let recorder = Recorder::new();
    let options = HandlerOptions::new().resync_period(Duration::from_millis(500));
    informer.add_event_handler_with(recorder.handler(), options).unwrap();
    sleep(Duration::from_millis(1600)).await;
    assert_eq!(recorder.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn h21_an_event_says_why_it_comes() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    let options = HandlerOptions::new().resync_period(Duration::from_secs(30));
    informer.add_event_handler_with(recorder.handler(), options).unwrap();
    sleep(Duration::from_secs(10)).await;
    server.put(obj("a", 1));
    sleep(Duration::from_secs(1)).await;
    informer.relist();
    sleep(Duration::from_secs(20)).await;
    let expected =
        ["add a=0 initial (relist)", "update a=0->1 (watch)", "update a=1->1 (relist)", "update a=1->1 (resync)"];
    assert_eq!(recorder.take(), expected);
}

/// The list gives a version whose watch is expired, again and again.
struct Behind(Server);

impl ListWatch<Obj> for Behind {
    type Watch = MemoryWatch<Obj, Arc<str>>;

    async fn list(&self, options: ListOptions) -> Result<ListPage<Obj>, SourceError> {
        let newest = options.resource_version.is_unset();
        let page = self.0.list(options).await?;
        Ok(if newest { page } else { ListPage::new(page.items, 1) })
    }

    async fn watch(&self, options: WatchOptions) -> Result<Self::Watch, SourceError> {
        self.0.watch(options).await
    }
}

#[tokio::test(start_paused = true)]
async fn h22_a_list_that_is_always_behind_does_not_go_round_for_ever() {
    let server = server_with(&["a", "b", "c"]);
    server.forget_history();
    let informer = SharedInformer::builder(Behind(server.clone())).build().unwrap();
    informer.start().unwrap();
    informer.store().wait_for(3).await.unwrap();
    let seen = lists(&server);
    assert_eq!(seen.last().map(String::as_str), Some(""), "the newest state was asked for: {seen:?}");
    assert!(seen.len() <= 3, "{seen:?}");
    let version = server.put(obj("d", 1));
    informer.store().wait_for(version).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn h22_a_list_that_is_slower_than_the_window_gives_way_to_the_newest_state() {
    let server = server_with(&["a"]);
    server.set_history_window(2);
    server.set_faults(delta_fifo::informer::Faults { list_delay: Duration::from_secs(5), ..Default::default() }, 1);
    let writer = tokio::spawn({
        let server = server.clone();
        async move {
            for i in 0..20 {
                sleep(Duration::from_secs(1)).await;
                server.put(obj("a", i));
            }
        }
    });
    let informer = started(&server);
    writer.await.unwrap();
    informer.store().wait_for(server.version()).await.unwrap();
    assert_eq!(informer.store().get(&"a".into()).unwrap().value, 19);
}

#[tokio::test(start_paused = true)]
async fn h22_versions_of_unordered_first_events_are_not_used() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    informer.wait_synced().await.unwrap();
    settle().await;
    // A version that is too large, from a bookmark of another server, is asked for once and then let go.
    server.inject(|| Ok(WatchEvent::Bookmark { resource_version: 1000.into(), initial_events_end: false }));
    settle().await;
    server.inject(|| Err(SourceError::Expired));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lists(&server), ["0", "1000", ""]);
    assert_eq!(requests(&server).last().map(String::as_str), Some("w1"));
}

/// An index function refuses an object for a while: the store is behind, everybody is told, a list sets it right.
#[tokio::test(start_paused = true)]
async fn h23_failed_apply_forces_a_relist() {
    let server = server_with(&["a", "b"]);
    let refusing = Arc::new(AtomicUsize::new(2));
    let counter = refusing.clone();
    let indexers = Indexers::new().with("touchy", move |object: &Obj| {
        let refused = object.value == 7
            && counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if refused { Err("not this one") } else { Ok(vec![]) }
    });
    let errors = Arc::new(Mutex::new(Vec::new()));
    let hook = errors.clone();
    let informer = SharedInformer::builder(server.clone())
        .indexers(indexers)
        .on_error(move |error: &ReflectorError| hook.lock().unwrap().push(error.to_string()))
        .build()
        .unwrap();
    informer.start().unwrap();
    informer.store().wait_for(2).await.unwrap();
    let refused = server.put(obj("a", 7));
    let fine = server.put(obj("b", 8));
    settle().await;
    assert_eq!(informer.store().get(&"b".into()).unwrap().value, 8, "other keys go on");
    assert_eq!(informer.store().get(&"a".into()).unwrap().value, 0);
    assert!(!informer.store().resource_version().has_reached(&refused), "the store does not claim to have it");
    informer.store().wait_for(fine).await.unwrap();
    assert_eq!(informer.store().get(&"a".into()).unwrap().value, 7);
    assert!(lists(&server).len() >= 2);
    assert!(errors.lock().unwrap()[0].contains("not this one"));
}

/// The same for an object that the queue does not take.
#[tokio::test(start_paused = true)]
async fn h23_an_object_without_a_key_forces_a_relist() {
    let server = server_with(&["a"]);
    let refusing = Arc::new(AtomicUsize::new(1));
    let counter = refusing.clone();
    let informer = SharedInformer::builder_with_key_fn(server.clone(), move |object: &Obj| {
        let refused = object.value == 7
            && counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if refused { Err("no key") } else { Ok(object.key.clone()) }
    });
    let informer = informer.build().unwrap();
    informer.start().unwrap();
    informer.wait_synced().await.unwrap();
    let version = server.put(obj("b", 7));
    informer.store().wait_for(version).await.unwrap();
    assert_eq!(informer.store().len(), 2);
    assert_eq!(lists(&server), ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn h24_a_buffer_can_be_bounded_and_its_fill_is_shown() {
    let server = server();
    let informer = started(&server);
    let gate = Arc::new(Semaphore::new(0));
    let options = HandlerOptions::new().buffering(Buffering::Coalescing);
    let bounded = informer.add_event_handler_with(waiting_for(&gate), options).unwrap();
    let unbounded = informer.add_event_handler(waiting_for(&gate)).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..1000u64 {
        server.put(obj(&format!("k{}", i % 5), i));
    }
    informer.store().wait_for(server.version()).await.unwrap();
    settle().await;
    assert!(bounded.stats().waiting <= 10 && bounded.stats().most_waiting <= 10);
    assert_eq!(unbounded.stats().waiting, 999);
}

/// Of a list of a thousand one object survives; the others are freed.
#[tokio::test(start_paused = true)]
async fn h25_a_surviving_object_does_not_keep_its_list_alive() {
    let server = server();
    for i in 0..1000 {
        server.put(obj(&format!("k{i}"), i));
    }
    let informer = started(&server);
    let view = Arc::new(View::default());
    informer.add_event_handler(view.handler()).unwrap().wait_synced().await.unwrap();
    let freed: Vec<_> = server.objects().iter().skip(1).map(|(_, object)| Arc::downgrade(object)).collect();
    for (key, _) in server.objects().iter().skip(1) {
        server.delete(key);
    }
    informer.store().wait_for(server.version()).await.unwrap();
    settle().await;
    server.forget_history();
    assert_eq!(informer.store().len(), 1);
    assert_eq!(freed.iter().filter(|object| object.strong_count() > 0).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn h26_another_object_of_the_same_name_is_a_deletion_and_an_addition() {
    let server = server_with(&["a"]);
    let informer =
        SharedInformer::builder(server.clone()).same_object(|old: &Obj, new: &Obj| old.uid == new.uid).build().unwrap();
    let recorder = Recorder::new();
    let handle = informer.add_event_handler(recorder.handler()).unwrap();
    informer.start().unwrap();
    handle.wait_synced().await.unwrap();
    recorder.take();
    server.delete_silently(&"a".into());
    server.put_silently(Obj { uid: 2, ..obj("a", 5) });
    server.forget_history();
    recorder.wait_len(2).await;
    assert_eq!(recorder.take(), ["gone a=0 (relist)", "add a=5 (relist)"]);
}

#[tokio::test(start_paused = true)]
async fn h28_a_removed_handler_leaves_no_task() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let informer = started(&server_with(&["a"]));
    informer.wait_synced().await.unwrap();
    settle().await;
    let before = tasks();
    for _ in 0..100 {
        let options = HandlerOptions::new().concurrency(3);
        let handle = informer.add_event_handler_with(Recorder::new().handler(), options).unwrap();
        handle.wait_synced().await.unwrap();
        handle.remove_and_wait().await;
    }
    settle().await;
    assert_eq!(tasks(), before);
}

/// A deletion is a type of its own, and a tombstone that knows no object is completed from the store.
#[tokio::test(start_paused = true)]
async fn h31_a_tombstone_cannot_be_taken_for_an_object() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let handler = Handler::from_fn(move |event: &Event<Obj>| {
        if let delta_fifo::informer::EventKind::Deleted(deleted) = &event.kind {
            let tombstone = matches!(deleted, Deleted::FinalStateUnknown(_));
            log.lock().unwrap().push((tombstone, deleted.object().map(|object| object.value)));
        }
        Ok::<_, BoxError>(())
    });
    informer.add_event_handler(handler).unwrap().wait_synced().await.unwrap();
    server.delete_silently(&"a".into());
    server.forget_history();
    informer.store().wait_for(server.version()).await.unwrap();
    settle().await;
    assert_eq!(*seen.lock().unwrap(), [(true, Some(0))]);
}

/// The reflector has queued a version that the store has not got: only the store's own version is a sync signal.
#[tokio::test(start_paused = true)]
async fn h32_the_stores_version_is_what_has_been_applied() {
    let server = server();
    let informer = started(&server);
    let gate = Arc::new(Semaphore::new(0));
    let options = HandlerOptions::new()
        .buffering(Buffering::Bounded { events: 1, overflow: delta_fifo::informer::Overflow::Wait });
    informer.add_event_handler_with(waiting_for(&gate), options).unwrap();
    informer.wait_synced().await.unwrap();
    for i in 0..4 {
        server.put(obj(&format!("k{i}"), i));
        settle().await;
    }
    assert_eq!(informer.last_sync_resource_version(), server.version());
    assert!(!informer.store().resource_version().has_reached(&server.version()));
    assert!(informer.store().len() < 4);
    gate.add_permits(10);
    informer.store().wait_for(server.version()).await.unwrap();
    assert_eq!(informer.store().len(), 4);
}

#[test]
fn h33_an_index_error_is_returned_and_the_index_stays_right() {
    let store = Store::<Obj>::new();
    let touchy = |object: &Obj| if object.value == 7 { Err("seven") } else { Ok(object.labels.clone()) };
    store.add_indexer("label", touchy).unwrap();
    store.add(labelled("a", &["x"])).unwrap();
    let refused = store.update(Obj { value: 7, ..labelled("a", &["y"]) });
    assert!(matches!(refused, Err(StoreError::Index(error)) if error.source.to_string() == "seven"));
    assert_eq!(store.index_keys("label", "x").unwrap(), ["a".into()]);
    assert_eq!(store.get(&"a".into()).unwrap().value, 0);
}

#[tokio::test(start_paused = true)]
async fn h34_a_handler_may_run_for_many_keys_at_a_time() {
    let server = server();
    for i in 0..100 {
        server.put(obj(&format!("k{i}"), i));
    }
    let informer = started(&server);
    let slow = Handler::from_async_fn(|_: Event<Obj>| async {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, BoxError>(())
    });
    let options = HandlerOptions::new().concurrency(50).retry(RetryPolicy::never());
    let began = Instant::now();
    informer.add_event_handler_with(slow, options).unwrap().wait_synced().await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
}

//! Everything goes wrong at once, and in the end everybody agrees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use delta_fifo::BoxError;
use delta_fifo::informer::{
    BackoffPolicy, Buffering, Event, Faults, Handler, HandlerOptions, ReflectorOptions, RetryPolicy, SharedInformer,
    Shutdown,
};

use crate::support::{Obj, Server, View, obj, server};

fn quick() -> BackoffPolicy {
    let (min, max) = (Duration::from_millis(2), Duration::from_millis(20));
    BackoffPolicy { min, max, ..BackoffPolicy::default() }
}

/// Changes objects, and now and then breaks all watches, forgets the history or changes something silently.
fn write_for(server: &Server, keys: u64, time: Duration, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let began = Instant::now();
    let mut value = 0;
    while began.elapsed() < time {
        for _ in 0..200 {
            value += 1;
            let key = format!("k{}", rng.u64(..keys));
            match rng.u32(..1000) {
                0..250 => drop(server.delete(&key.as_str().into())),
                250..253 => drop(server.delete_silently(&key.as_str().into())),
                253..256 => drop(server.put_silently(obj(&key, value))),
                _ => drop(server.put(obj(&key, value))),
            }
        }
        match rng.u32(..100) {
            0..2 => server.disconnect(),
            2..3 => server.forget_history(),
            3..6 => server.bookmark(),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

async fn run(keys: u64, time: Duration) {
    let server = server();
    for i in 0..keys {
        server.put(obj(&format!("k{i}"), i));
    }
    server.set_faults(
        Faults {
            disconnect: 0.0005,
            duplicate: 0.01,
            expire: 0.05,
            refuse: 0.05,
            slow: 0.001,
            event_delay: Duration::from_millis(2),
            list_delay: Duration::from_millis(5),
        },
        7,
    );
    let informer = SharedInformer::builder(server.clone())
        .workers(2)
        .reflector(ReflectorOptions { backoff: quick(), ..ReflectorOptions::default() })
        .build()
        .unwrap();

    let views: Vec<Arc<View>> = (0..4).map(|_| Arc::default()).collect();
    let forever = RetryPolicy { retries: None, backoff: quick() };
    let options = || HandlerOptions::new().retry(forever);
    let calm = Arc::new(AtomicBool::new(false));
    // One that is plain, one that panics at random, one that is slow and coalesces, one async with many calls at a time.
    let plain = informer.add_event_handler_with(views[0].handler(), options()).unwrap();
    let panicking = Handler::from_fn({
        let (view, panics, calm) = (views[1].clone(), AtomicU64::new(0), calm.clone());
        move |event: &Event<Obj>| {
            let nth = panics.fetch_add(1, Ordering::Relaxed);
            if nth % 97 == 0 && !calm.load(Ordering::Relaxed) {
                std::panic::resume_unwind(Box::new("at random"));
            }
            view.apply(event);
            Ok::<_, BoxError>(())
        }
    });
    let resyncing = options().resync_period(Duration::from_millis(700));
    let panicking = informer.add_event_handler_with(panicking, resyncing).unwrap();
    let slow = Handler::from_async_fn({
        let (view, calm) = (views[2].clone(), calm.clone());
        move |event: Event<Obj>| {
            let (view, calm) = (view.clone(), calm.clone());
            async move {
                if !calm.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                view.apply(&event);
                Ok::<_, BoxError>(())
            }
        }
    });
    let slow = informer.add_event_handler_with(slow, options().buffering(Buffering::Coalescing)).unwrap();
    let many = Handler::from_async_fn({
        let view = views[3].clone();
        move |event: Event<Obj>| {
            let view = view.clone();
            async move {
                tokio::task::yield_now().await;
                view.apply(&event);
                Ok::<_, BoxError>(())
            }
        }
    });
    let many = informer.add_event_handler_with(many, options().concurrency(4)).unwrap();
    informer.start().unwrap();

    let writer = tokio::task::spawn_blocking({
        let server = server.clone();
        move || write_for(&server, keys, time, 11)
    });
    writer.await.unwrap();

    // Peace: whatever was changed silently is found by a list.
    server.set_faults(Faults::default(), 0);
    let last = server.put(obj("last", 1));
    server.forget_history();
    informer.relist();
    informer.store().wait_for(last).await.unwrap();
    calm.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(120);
    let handles = [&plain, &panicking, &slow, &many];
    while informer.queued_keys() > 0 || handles.iter().any(|h| h.stats().waiting + h.stats().running > 0) {
        assert!(Instant::now() < deadline, "not settled: {:?}", handles.map(|handle| handle.stats()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let report = informer.shutdown(Shutdown::Graceful(Duration::from_secs(60))).await;
    assert!(report.is_clean(), "{report:?}");

    let truth = server.objects();
    let store = View::default();
    for (key, object) in informer.store().snapshot().iter() {
        store.apply(&Event {
            key: key.clone(),
            kind: delta_fifo::informer::EventKind::Added { object: object.clone(), initial: false },
            reason: delta_fifo::informer::Reason::Replay,
            attempt: 1,
        });
    }
    store.assert_is(&truth);
    for (view, handle) in views.iter().zip(handles) {
        // Each event fitted what came before it: in order, none missed, none twice, no deletion lost.
        assert_eq!(view.errors(), Vec::<String>::new());
        view.assert_is(&truth);
        assert!(handle.stats().handled > 0);
    }
    assert!(panicking.stats().failed > 0, "it did panic");
    let bound = 2 * (keys as usize + 1) + 1;
    assert!(slow.stats().most_waiting <= bound, "{:?}", slow.stats());
    let lists = crate::support::lists(&server).len();
    println!("{lists} lists, {} watches", server.requests().len() - lists);
    for handle in handles {
        println!("{:?}", handle.stats());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_agrees_in_the_end() {
    run(2_000, Duration::from_secs(3)).await;
}

/// The long form: `cargo test --release --features informer --test informer -- --ignored --nocapture chaos`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than a minute"]
async fn everybody_agrees_in_the_end_long() {
    run(20_000, Duration::from_secs(60)).await;
}

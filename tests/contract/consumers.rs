//! Waiting, waking, closing, batches, claims (obligations 6 and C-1).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use delta_fifo::DeltaType::{Added, Updated};
use delta_fifo::{Claim, Claims, DeltaFifo, PopTimeoutError, TryPopError};
use futures_lite::{FutureExt, StreamExt, future};

use crate::{Fifo, builder, obj, pop, short};

#[test]
fn public_types_may_be_shared_and_sent() {
    fn shared<X: Send + Sync>() {}
    fn sent<X: Send>() {}
    shared::<DeltaFifo<u32>>();
    shared::<Claim<'static, u32>>();
    sent::<Claims<'static, u32>>();
    fn survives_panics<X: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    survives_panics::<DeltaFifo<u32>>();
    survives_panics::<Claim<'static, u32>>();
}

#[test]
fn a_claimed_key_is_given_to_nobody_else_and_comes_back_with_what_arrived() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.update(obj(1, 2)).unwrap();
    fifo.update(obj(1, 3)).unwrap();
    assert_eq!(fifo.try_pop().unwrap_err(), TryPopError::Empty);
    assert_eq!(fifo.len(), 0, "a claimed key is not queued");
    assert_eq!(fifo.list_keys(), [1], "but it has pending deltas");
    drop(claim);
    assert_eq!(pop(&fifo), (1, vec![(Updated, Some(2), false), (Updated, Some(3), false)]));
}

#[test]
fn every_form_of_pop_wakes() {
    fn woken(form: impl FnOnce(&Fifo) -> u32 + Send + 'static) {
        let fifo = Arc::new(builder().build());
        let consumer = std::thread::spawn({
            let fifo = fifo.clone();
            move || form(&fifo)
        });
        std::thread::sleep(Duration::from_millis(5)); // asleep, or not: both must work
        fifo.add(obj(7, 1)).unwrap();
        assert_eq!(consumer.join().unwrap(), 7);
    }
    woken(|fifo| *fifo.pop_blocking().unwrap().key());
    woken(|fifo| *fifo.pop_timeout(Duration::from_secs(60)).unwrap().key());
    woken(|fifo| *future::block_on(fifo.pop()).unwrap().key());
    woken(|fifo| *fifo.pop_batch_blocking(3).unwrap()[0].key());
    woken(|fifo| *fifo.pop_batch_timeout(3, Duration::from_secs(60)).unwrap()[0].key());
    woken(|fifo| *future::block_on(fifo.pop_batch(3)).unwrap()[0].key());
    woken(|fifo| *future::block_on(fifo.claims().next()).unwrap().key());
}

#[test]
fn a_release_of_a_dirty_key_wakes_a_sleeper() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    std::thread::scope(|s| {
        let other = s.spawn(|| pop_version(&fifo));
        fifo.update(obj(1, 2)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(claim);
        assert_eq!(other.join().unwrap(), 2);
    });
}

fn pop_version(fifo: &Fifo) -> u32 {
    fifo.pop_blocking().unwrap().deltas().newest().unwrap().object().unwrap().version
}

#[test]
fn a_timeout_is_kept() {
    let fifo = builder().build();
    let start = Instant::now();
    assert_eq!(fifo.pop_timeout(Duration::from_millis(20)).unwrap_err(), PopTimeoutError::Timeout);
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(fifo.pop_timeout(Duration::ZERO).unwrap_err(), PopTimeoutError::Timeout);
    fifo.add(obj(1, 1)).unwrap();
    assert!(fifo.pop_timeout(Duration::ZERO).is_ok(), "what is there is given at once");
    fifo.close();
    assert_eq!(fifo.pop_timeout(Duration::MAX).unwrap_err(), PopTimeoutError::Closed, "beyond the clock: no timeout");
}

#[test]
fn a_dropped_pop_passes_its_wake_up_on() {
    let fifo = Arc::new(builder().build());
    for _ in 0..200 {
        let mut cancelled = Box::pin(fifo.pop());
        let waker = std::task::Waker::noop();
        let mut cx = std::task::Context::from_waker(waker);
        assert!(cancelled.poll(&mut cx).is_pending());
        let other = std::thread::spawn({
            let fifo = fifo.clone();
            move || pop_version(&fifo)
        });
        while !fifo.is_empty() {}
        fifo.add(obj(1, 1)).unwrap(); // notifies the first listener, which is the cancelled one (or the other consumer)
        drop(cancelled);
        assert_eq!(other.join().unwrap(), 1);
    }
}

#[test]
fn close_wakes_all_and_delivers_what_is_queued() {
    let fifo = builder().build();
    std::thread::scope(|s| {
        let sleepers: Vec<_> = (0..8)
            .map(|i| {
                let fifo = &fifo;
                s.spawn(move || match i % 3 {
                    0 => fifo.pop_blocking().is_err(),
                    1 => fifo.pop_timeout(Duration::from_secs(60)).unwrap_err() == PopTimeoutError::Closed,
                    _ => future::block_on(fifo.claims().next()).is_none(),
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(5));
        fifo.close();
        assert!(sleepers.into_iter().all(|s| s.join().unwrap()));
    });
    fifo.add(obj(1, 1)).unwrap(); // rule A11.2
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(1), false)]));
    assert_eq!(fifo.try_pop().unwrap_err(), TryPopError::Closed);
    assert!(fifo.pop_blocking().is_err());
}

#[test]
fn a_key_dirty_at_the_close_is_found_by_its_owner() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.update(obj(1, 2)).unwrap();
    fifo.close();
    assert_eq!(fifo.try_pop().unwrap_err(), TryPopError::Closed);
    drop(claim);
    assert_eq!(pop(&fifo), (1, vec![(Updated, Some(2), false)]));
}

#[test]
fn a_drain_waits_for_queued_and_claimed_keys() {
    let fifo = builder().build();
    assert!(fifo.close_and_drain_timeout(Duration::ZERO), "nothing to wait for");
    fifo.add(obj(1, 1)).unwrap();
    fifo.add(obj(2, 1)).unwrap();
    // Rule W6: keys are queued and none is being processed. client-go's work queue returns here.
    assert!(!fifo.close_and_drain_timeout(Duration::from_millis(5)));
    let first = fifo.try_pop().unwrap();
    let second = fifo.try_pop().unwrap();
    assert!(!fifo.close_and_drain_timeout(Duration::from_millis(5)), "claimed keys count");
    fifo.update(obj(1, 2)).unwrap();
    drop(second);
    std::thread::scope(|s| {
        let blocking = s.spawn(|| fifo.close_and_drain_blocking());
        let future = s.spawn(|| future::block_on(fifo.close_and_drain()));
        drop(first); // dirty: queued again
        assert!(!blocking.is_finished());
        drop(fifo.try_pop().unwrap());
        blocking.join().unwrap();
        future.join().unwrap();
    });
}

#[test]
fn a_requeue_puts_deltas_in_front_and_the_key_at_the_tail() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    fifo.add(obj(2, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.update(obj(1, 2)).unwrap();
    claim.requeue();
    assert_eq!(pop(&fifo).0, 2);
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(1), false), (Updated, Some(2), false)]));
}

#[test]
fn a_panicking_handler_costs_a_retry_and_no_event() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    fifo.update(obj(1, 2)).unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _claim = fifo.try_pop().unwrap();
        panic!("handler");
    }));
    assert!(outcome.is_err());
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(1), false), (Updated, Some(2), false)]));
}

#[test]
fn a_claim_made_and_dropped_during_an_unwind_is_released() {
    struct PopsOnDrop<'a>(&'a Fifo);
    impl Drop for PopsOnDrop<'_> {
        fn drop(&mut self) {
            drop(self.0.try_pop().unwrap());
        }
    }
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _pops = PopsOnDrop(&fifo);
        panic!("elsewhere");
    }));
    assert!(outcome.is_err());
    assert!(fifo.is_empty());
}

#[test]
fn taken_deltas_are_the_callers() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let mut claim = fifo.try_pop().unwrap();
    let deltas = claim.take_deltas();
    fifo.update(obj(1, 2)).unwrap();
    claim.requeue();
    assert_eq!(short(&deltas), [(Added, Some(1), false)]);
    assert_eq!(pop(&fifo), (1, vec![(Updated, Some(2), false)]));
}

#[test]
fn a_future_that_is_dropped_half_way_requeues_if_told() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let handler = async {
        let mut claim = fifo.pop().await.unwrap();
        claim.requeue_on_drop(true);
        future::pending::<()>().await;
        claim.done();
    };
    future::block_on(future::or(handler, async {
        future::yield_now().await;
    }));
    assert_eq!(fifo.len(), 1);
    let mut claim = fifo.try_pop().unwrap();
    claim.requeue_on_drop(true);
    claim.done();
    assert!(fifo.is_empty());
}

#[test]
fn an_owned_claim_outlives_the_borrow() {
    let fifo = Arc::new(builder().build());
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap().into_owned(&fifo);
    fifo.update(obj(1, 2)).unwrap();
    std::thread::spawn(move || claim.requeue()).join().unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(1), false), (Updated, Some(2), false)]));
}

#[test]
fn into_owned_of_another_queue_panics_and_loses_nothing() {
    let fifo = Arc::new(builder().build());
    let other = Arc::new(builder().build());
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(claim.into_owned(&other))));
    assert!(outcome.is_err());
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(1), false)]));
}

#[test]
fn a_batch_holds_distinct_keys_in_order() {
    let fifo = builder().build();
    for key in 0..10 {
        fifo.add(obj(key, 1)).unwrap();
        fifo.update(obj(key, 2)).unwrap();
    }
    let batch = fifo.try_pop_batch(4).unwrap();
    assert_eq!(batch.iter().map(|c| *c.key()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    drop(batch);
    assert_eq!(fifo.try_pop_batch(usize::MAX).unwrap().len(), 6);
    assert_eq!(fifo.try_pop_batch(1).unwrap_err(), TryPopError::Empty);
}

#[test]
fn process_runs_until_closed_and_drained() {
    let fifo = builder().build();
    let seen = AtomicUsize::new(0);
    std::thread::scope(|s| {
        let workers = s.spawn(|| {
            fifo.process(3, |claim| {
                let first = seen.fetch_add(claim.deltas().len(), Ordering::Relaxed) == 0;
                assert!(!first, "the first call fails, and its deltas come again");
            })
        });
        for key in 0..100 {
            fifo.add(obj(key, 1)).unwrap();
        }
        fifo.close_and_drain_blocking();
        let processed = workers.join().unwrap();
        assert_eq!((processed.claims, processed.panics), (101, 1));
    });
    assert_eq!(seen.into_inner(), 101);
}

#[test]
fn different_keys_are_processed_side_by_side() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    fifo.add(obj(2, 1)).unwrap();
    fifo.close();
    let (to_two, from_one) = mpsc::sync_channel(0);
    let (to_one, from_two) = mpsc::sync_channel(0);
    let (from_one, from_two) = (std::sync::Mutex::new(from_one), std::sync::Mutex::new(from_two));
    fifo.process(2, |claim| {
        // Each handler needs the other one to be running.
        if *claim.key() == 1 {
            to_two.send(()).unwrap();
            from_two.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        } else {
            from_one.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
            to_one.send(()).unwrap();
        }
    });
}

#[test]
fn producers_do_not_wait_for_a_slow_handler() {
    // Bug H-9: the handler ran under the queue's lock.
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap(); // a handler that never ends
    for version in 2..1_000 {
        fifo.update(obj(1, version)).unwrap();
        fifo.update(obj(2, version)).unwrap();
    }
    fifo.replace(vec![]).unwrap();
    fifo.resync().unwrap();
    assert!(fifo.has_synced());
    drop(claim);
}

#[test]
fn process_survives_a_compression_that_panics() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let compress = move |key: &u32, deltas: delta_fifo::Deltas<crate::Obj, u32>| {
        // Key 3 fails more often than there are workers.
        assert!(*key != 3 || counted.fetch_add(1, Ordering::Relaxed) >= 5, "compression");
        deltas
    };
    let fifo = builder().compression(delta_fifo::Compression::Custom(Arc::new(compress))).build();
    for key in 0..10 {
        fifo.add(obj(key, 1)).unwrap();
    }
    fifo.close();
    let processed = fifo.process(2, |_| {});
    assert_eq!((processed.claims, processed.panics), (10, 5));
}

#[test]
fn a_claim_says_what_it_is_without_its_objects() {
    struct Opaque;
    let fifo = DeltaFifo::<Opaque, u32>::builder_with_key_fn(|_: &Opaque| Ok::<_, &str>(7)).build();
    fifo.add(Opaque).unwrap();
    let text = format!("{:?}", fifo.try_pop().unwrap());
    assert!(text.contains("key: Some(7)") && text.contains("Added"), "{text}");
}

//! Futures that are dropped at their await point, before and after they were woken, and wakers that panic.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use delta_fifo::{Closed, DeltaFifo, Limits};
use futures_lite::{Stream, StreamExt, future};

use crate::inject::{Alarm, Plan, Site, under};

type Fifo = DeltaFifo<u32, u32>;
type Boxed<'a, R> = Pin<Box<dyn Future<Output = R> + 'a>>;

fn fifo() -> Fifo {
    Fifo::builder_with_key_fn(|n: &u32| Ok::<_, &str>(n % 100)).embedded_store().build()
}

/// One key is pending and none other fits.
fn full() -> Fifo {
    let limits = Limits { keys: Some(1), deltas: Some(1) };
    let fifo = Fifo::builder_with_key_fn(|n: &u32| Ok::<_, &str>(n % 100)).limits(limits).build();
    fifo.add(1).unwrap();
    fifo
}

fn poll<R>(future: &mut Boxed<'_, R>, waker: &Waker) -> Poll<R> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// Every form of waiting for a key; each yields the key.
fn pops(fifo: &Fifo) -> Vec<(&'static str, Boxed<'_, Result<u32, Closed>>)> {
    vec![
        ("pop", Box::pin(async { fifo.pop().await.map(|claim| *claim.key()) })),
        ("pop_batch", Box::pin(async { fifo.pop_batch(1).await.map(|batch| *batch[0].key()) })),
        ("claims", Box::pin(async { Ok(*fifo.claims().next().await.expect("the queue is open").key()) })),
    ]
}

/// Every form of waiting for room.
fn pushes(fifo: &Fifo) -> Vec<(&'static str, Boxed<'_, ()>)> {
    vec![
        ("add_async", Box::pin(async { fifo.add_async(2).await.unwrap() })),
        ("update_async", Box::pin(async { fifo.update_async(2).await.unwrap() })),
        ("delete_async", Box::pin(async { fifo.delete_async(1).await.unwrap() })),
        ("delete_final_state_unknown_async", Box::pin(fifo.delete_final_state_unknown_async(1, None))),
        ("replace_async", Box::pin(async { fifo.replace_async(vec![2.into()]).await.unwrap() })),
    ]
}

#[test]
fn a_dropped_pop_takes_nothing_with_it() {
    for form in 0..3 {
        let fifo = fifo();
        let (name, mut future) = pops(&fifo).swap_remove(form);
        assert!(poll(&mut future, &Alarm::new().1).is_pending(), "{name}");
        drop(future);
        fifo.add(7).unwrap();
        assert_eq!(*fifo.try_pop().unwrap().key(), 7, "{name}");
    }
}

#[test]
fn a_pop_that_is_dropped_after_its_wake_up_wakes_the_next() {
    for form in 0..3 {
        let fifo = fifo();
        let (name, mut first) = pops(&fifo).swap_remove(form);
        let ((first_alarm, first_waker), (second_alarm, second_waker)) = (Alarm::new(), Alarm::new());
        let mut second: Boxed<'_, _> = Box::pin(fifo.pop());
        assert!(poll(&mut first, &first_waker).is_pending());
        assert!(second.as_mut().poll(&mut Context::from_waker(&second_waker)).is_pending());
        fifo.add(7).unwrap();
        assert_eq!((first_alarm.rung(), second_alarm.rung()), (1, 0), "{name}");
        drop(first);
        assert_eq!(second_alarm.rung(), 1, "{name}");
        assert!(second.as_mut().poll(&mut Context::from_waker(&second_waker)).is_ready(), "{name}");
    }
}

#[test]
fn a_dropped_push_queues_nothing() {
    for form in 0..5 {
        let fifo = full();
        let (name, mut future) = pushes(&fifo).swap_remove(form);
        assert!(poll(&mut future, &Alarm::new().1).is_pending(), "{name}");
        drop(future);
        assert_eq!(fifo.try_pop().unwrap().deltas().len(), 1, "{name}");
        assert!(fifo.try_pop().is_err(), "{name}");
    }
}

#[test]
fn a_push_that_is_dropped_after_its_wake_up_leaves_the_room_to_the_next() {
    for form in 0..5 {
        let fifo = full();
        let (name, mut first) = pushes(&fifo).swap_remove(form);
        let (alarm, waker) = Alarm::new();
        let mut second: Boxed<'_, _> = Box::pin(fifo.add_async(3));
        assert!(poll(&mut first, &Alarm::new().1).is_pending());
        assert!(poll(&mut second, &waker).is_pending());
        fifo.try_pop().unwrap().done();
        drop(first);
        assert_ne!(alarm.rung(), 0, "{name}");
        assert!(poll(&mut second, &waker).is_ready(), "{name}");
    }
}

/// A producer that was woken and finds that it needs no room must not keep the wake-up from one that does.
#[test]
fn a_push_that_needs_no_room_after_all_leaves_it_to_the_next() {
    let fifo = full();
    let mut delete: Boxed<'_, _> = Box::pin(fifo.delete_async(1));
    let (alarm, waker) = Alarm::new();
    let mut add: Boxed<'_, _> = Box::pin(fifo.add_async(2));
    assert!(poll(&mut delete, &Alarm::new().1).is_pending());
    assert!(poll(&mut add, &waker).is_pending());
    fifo.try_pop().unwrap().done();
    assert!(poll(&mut delete, &Alarm::new().1).is_ready(), "there is nothing to delete any more");
    assert_ne!(alarm.rung(), 0, "there is room, and nobody else who would ever wake this one");
    assert!(poll(&mut add, &waker).is_ready());
}

#[test]
fn a_dropped_wait_for_the_sync_can_be_taken_up_again() {
    let fifo = fifo();
    fifo.replace(vec![1.into()]).unwrap();
    let claim = fifo.try_pop().unwrap();
    let (alarm, waker) = Alarm::new();
    let mut dropped: Boxed<'_, _> = Box::pin(fifo.wait_synced());
    assert!(poll(&mut dropped, &waker).is_pending());
    drop(dropped);
    let mut synced: Boxed<'_, _> = Box::pin(fifo.wait_synced());
    assert!(poll(&mut synced, &waker).is_pending());
    claim.done();
    assert_eq!(alarm.rung(), 1);
    assert_eq!(poll(&mut synced, &waker), Poll::Ready(true));
}

#[test]
fn a_dropped_drain_leaves_the_queue_closed_and_can_be_taken_up_again() {
    let fifo = fifo();
    fifo.add(1).unwrap();
    let claim = fifo.try_pop().unwrap();
    let (alarm, waker) = Alarm::new();
    drop(fifo.close_and_drain());
    assert!(!fifo.is_closed(), "a future that is never polled does nothing");
    let mut dropped: Boxed<'_, _> = Box::pin(fifo.close_and_drain());
    assert!(poll(&mut dropped, &waker).is_pending());
    drop(dropped);
    assert!(fifo.is_closed());
    let mut drained: Boxed<'_, _> = Box::pin(fifo.close_and_drain());
    assert!(poll(&mut drained, &waker).is_pending());
    claim.done();
    assert_eq!(alarm.rung(), 1);
    assert!(poll(&mut drained, &waker).is_ready());
}

#[test]
fn a_consumer_that_is_dropped_again_and_again_costs_others_nothing() {
    let fifo = Arc::new(fifo());
    let consumer = {
        let fifo = fifo.clone();
        thread::spawn(move || {
            let mut processed = 0;
            while let Ok(claim) = fifo.pop_blocking() {
                claim.done();
                processed += 1;
            }
            processed
        })
    };
    let restless = {
        let fifo = fifo.clone();
        thread::spawn(move || {
            let mut processed = 0;
            // Until `Closed`, not until the close: its own release may queue a key again when the other has gone.
            loop {
                match future::block_on(future::poll_once(fifo.pop())) {
                    Some(Ok(claim)) => {
                        claim.done();
                        processed += 1;
                    }
                    Some(Err(_)) => break,
                    None => {}
                }
            }
            processed
        })
    };
    for n in 0..20_000 {
        fifo.add(n).unwrap();
    }
    // A lost wake-up would leave the last keys queued with a consumer asleep.
    assert!(fifo.close_and_drain_timeout(Duration::from_secs(30)));
    assert!(consumer.join().unwrap() + restless.join().unwrap() > 0);
}

/// The panic of a waker comes out of the call that woke it, and costs nobody else a wake-up.
#[test]
fn a_waker_that_panics_costs_its_own_wake_up_only() {
    let fifo = fifo();
    let plan = Plan::new(&[Site::Wake], &[1], 0);
    let ((_, bad), (alarm, waker)) = (Alarm::new(), Alarm::new());
    let mut first: Boxed<'_, _> = Box::pin(fifo.pop());
    let mut second: Boxed<'_, _> = Box::pin(fifo.pop());
    assert!(first.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    under(&plan, || fifo.add(1).unwrap());
    assert_eq!(plan.fired(), [Site::Wake]);
    drop(first);
    fifo.add(2).unwrap();
    assert_ne!(alarm.rung(), 0, "the second consumer sleeps, and two keys are queued");
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    // And the queue still wakes consumers that come now.
    drop(second);
    while fifo.try_pop().is_ok() {}
    let mut third: Boxed<'_, _> = Box::pin(fifo.pop());
    let (alarm, waker) = Alarm::new();
    assert!(third.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    fifo.add(3).unwrap();
    assert_eq!(alarm.rung(), 1);
}

#[test]
fn a_stream_of_claims_can_be_dropped_while_it_waits() {
    let fifo = fifo();
    let mut claims = Box::pin(fifo.claims());
    let (alarm, waker) = Alarm::new();
    assert!(claims.as_mut().poll_next(&mut Context::from_waker(&waker)).is_pending());
    fifo.add(1).unwrap();
    assert_eq!(alarm.rung(), 1);
    drop(claims);
    assert!(fifo.try_pop().is_ok());
}

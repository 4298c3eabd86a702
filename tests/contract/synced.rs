//! Synced means processed (obligation 5).

use std::sync::Arc;
use std::time::Duration;

use crate::{Store, builder, fifo_over, list, obj, pop};

#[test]
fn the_truth_table() {
    // Rule A10.3.
    let fifo = builder().build();
    assert!(!fifo.has_synced());
    fifo.add(obj(1, 1)).unwrap();
    assert!(fifo.has_synced());

    let fifo = builder().build();
    fifo.replace(vec![]).unwrap();
    assert!(fifo.has_synced());

    let fifo = builder().build();
    fifo.replace(list(&[obj(1, 1), obj(2, 1)])).unwrap();
    assert!(!fifo.has_synced());
    pop(&fifo);
    assert!(!fifo.has_synced());
    pop(&fifo);
    assert!(fifo.has_synced());

    let fifo = builder().build();
    fifo.replace(list(&[obj(1, 1), obj(1, 2)])).unwrap();
    pop(&fifo);
    assert!(fifo.has_synced());
}

#[test]
fn not_before_the_last_claim_is_released() {
    let fifo = builder().build();
    fifo.replace(list(&[obj(1, 1), obj(2, 1)])).unwrap();
    let first = fifo.try_pop().unwrap();
    let second = fifo.try_pop().unwrap();
    drop(second);
    assert!(!fifo.has_synced(), "the order of releases does not matter");
    drop(first);
    assert!(fifo.has_synced());
}

#[test]
fn a_requeued_initial_key_is_not_processed() {
    let fifo = builder().build();
    fifo.replace(list(&[obj(1, 1)])).unwrap();
    fifo.try_pop().unwrap().requeue();
    assert!(!fifo.has_synced());
    let claim = fifo.try_pop().unwrap();
    assert!(claim.is_initial());
    fifo.update(obj(1, 2)).unwrap();
    claim.requeue();
    assert!(!fifo.has_synced());
    pop(&fifo);
    assert!(fifo.has_synced());
}

#[test]
fn a_later_replace_changes_nothing() {
    let fifo = builder().build();
    fifo.replace(list(&[obj(1, 1)])).unwrap();
    pop(&fifo);
    fifo.replace(list(&[obj(1, 2), obj(2, 2)])).unwrap();
    assert!(fifo.has_synced());
    assert!(!fifo.try_pop().unwrap().is_initial());
}

#[test]
fn tombstones_found_by_the_first_replace_count() {
    let store = Store::with(&[obj(1, 1), obj(2, 1), obj(3, 1)]);
    let fifo = fifo_over(&store);
    fifo.replace(list(&[obj(1, 2)])).unwrap();
    for _ in 0..3 {
        assert!(!fifo.has_synced());
        assert!(fifo.try_pop().unwrap().is_initial());
    }
    assert!(fifo.has_synced());
}

#[test]
fn a_key_claimed_before_the_first_replace_counts_when_the_list_has_it() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    fifo.resync().unwrap(); // queued without populating
    let claim = fifo.try_pop().unwrap();
    fifo.replace(list(&[obj(1, 2)])).unwrap();
    drop(claim);
    assert!(!fifo.has_synced(), "the claim of before the Replace must not be counted for it");
    pop(&fifo);
    assert!(fifo.has_synced());
}

#[test]
fn failed_calls_populate_as_in_client_go() {
    // Rules A5.1 and A6.1.
    let fifo = builder().build();
    assert!(fifo.delete(obj(u32::MAX, 1)).is_err());
    assert!(!fifo.has_synced());
    assert!(fifo.add(obj(u32::MAX, 1)).is_err());
    assert!(fifo.has_synced());
    let fifo = builder().build();
    fifo.delete(obj(1, 1)).unwrap(); // ignored, and yet it populates
    assert!(fifo.has_synced());
}

#[test]
fn a_transform_error_populates_too() {
    let fifo = builder().transform(|_| Err::<Arc<_>, _>("no")).build();
    assert!(fifo.update(obj(1, 1)).is_err());
    assert!(fifo.has_synced());
}

#[test]
fn waiters_wake_blocking_timed_and_async() {
    let fifo = builder().build();
    fifo.replace(list(&[obj(1, 1)])).unwrap();
    assert!(!fifo.wait_synced_timeout(Duration::from_millis(5)));
    std::thread::scope(|s| {
        let blocking = s.spawn(|| fifo.wait_synced_blocking());
        let timed = s.spawn(|| fifo.wait_synced_timeout(Duration::from_secs(60)));
        let future = s.spawn(|| futures_lite::future::block_on(fifo.wait_synced()));
        pop(&fifo);
        assert!(blocking.join().unwrap() && timed.join().unwrap() && future.join().unwrap());
    });
}

#[test]
fn waiters_learn_of_a_close_before_the_sync() {
    let fifo = builder().build();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| fifo.wait_synced_blocking());
        fifo.close();
        assert!(!waiter.join().unwrap());
    });
}

//! Bounded when asked (obligation 10).

use std::time::Duration;

use delta_fifo::DeltaType::*;
use delta_fifo::{Compression, Limits, TryPushError, TryReplaceError};
use futures_lite::future;

use crate::{Fifo, builder, list, obj, pop};

fn with(keys: Option<usize>, deltas: Option<usize>) -> Fifo {
    builder().limits(Limits { keys, deltas }).build()
}

#[test]
fn a_full_queue_gives_the_object_back() {
    let fifo = with(Some(2), None);
    fifo.try_add(obj(1, 1)).unwrap();
    fifo.try_add(obj(2, 1)).unwrap();
    let Err(TryPushError::Full(object)) = fifo.try_add(obj(3, 1)) else { panic!("the limit is two keys") };
    assert_eq!(*object, obj(3, 1));
    fifo.try_update(obj(1, 2)).unwrap(); // a pending key needs no room
    let claim = fifo.try_pop().unwrap();
    fifo.try_add(obj(3, 1)).unwrap(); // taken deltas are not pending
    drop(claim);

    let fifo = with(None, Some(2));
    fifo.try_add(obj(1, 1)).unwrap();
    fifo.try_update(obj(1, 2)).unwrap();
    assert!(matches!(fifo.try_update(obj(1, 3)), Err(TryPushError::Full(_))));
    assert!(matches!(fifo.try_delete(obj(1, 3)), Err(TryPushError::Full(_))));
    assert_eq!(pop(&fifo).1.len(), 2);
    fifo.try_update(obj(1, 3)).unwrap();
}

#[test]
fn both_limits_hold_together() {
    let fifo = with(Some(2), Some(3));
    fifo.try_add(obj(1, 1)).unwrap();
    fifo.try_add(obj(1, 2)).unwrap();
    fifo.try_add(obj(1, 3)).unwrap();
    assert!(fifo.try_add(obj(2, 1)).is_err(), "three deltas");
    pop(&fifo);
    // The refused call took no key either: two fit.
    fifo.try_add(obj(2, 1)).unwrap();
    fifo.try_add(obj(3, 1)).unwrap();
    assert!(fifo.try_add(obj(4, 1)).is_err(), "two keys");
}

#[test]
fn a_merged_delta_needs_no_room() {
    let fifo = builder().limits(Limits { keys: None, deltas: Some(1) }).compression(Compression::KeepLatest).build();
    for version in 0..100 {
        fifo.try_update(obj(1, version)).unwrap();
    }
    assert!(fifo.try_update(obj(2, 1)).is_err());
    assert_eq!(pop(&fifo), (1, vec![(Updated, Some(99), false)]));
}

#[test]
fn the_object_that_comes_back_is_the_one_that_went_in() {
    let fifo = builder()
        .limits(Limits { keys: Some(1), deltas: None })
        .transform(|o| Ok::<_, &str>(std::sync::Arc::new(obj(o.key, o.version + 100))))
        .build();
    fifo.try_add(obj(1, 1)).unwrap();
    assert_eq!(*fifo.try_add(obj(2, 1)).unwrap_err().into_object(), obj(2, 1));
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(101), false)]));
}

#[test]
fn blocked_producers_go_on_when_room_comes() {
    let fifo = with(Some(1), Some(1));
    fifo.add(obj(0, 1)).unwrap();
    std::thread::scope(|s| {
        for key in 1..=4 {
            let fifo = &fifo;
            s.spawn(move || match key % 2 {
                0 => fifo.add(obj(key, 1)).unwrap(),
                _ => future::block_on(fifo.add_async(obj(key, 1))).unwrap(),
            });
        }
        let mut keys: Vec<u32> = (0..5).map(|_| *fifo.pop_blocking().unwrap().key()).collect();
        keys.sort_unstable();
        assert_eq!(keys, [0, 1, 2, 3, 4]);
    });
    assert!(fifo.is_empty());
}

#[test]
fn a_dropped_producer_passes_its_room_on() {
    let fifo = with(Some(1), None);
    fifo.add(obj(0, 1)).unwrap();
    std::thread::scope(|s| {
        let mut cancelled = Box::pin(fifo.add_async(obj(1, 1)));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::future::Future::poll(cancelled.as_mut(), &mut cx).is_pending());
        let other = s.spawn(|| fifo.add(obj(2, 1)).unwrap());
        drop(fifo.try_pop().unwrap());
        drop(cancelled);
        other.join().unwrap();
    });
    assert_eq!(pop(&fifo).0, 2);
    assert!(fifo.is_empty(), "a dropped add queued nothing");
}

#[test]
fn a_close_lifts_the_limits() {
    let fifo = with(Some(1), None);
    fifo.add(obj(0, 1)).unwrap();
    std::thread::scope(|s| {
        let blocked = s.spawn(|| fifo.add(obj(1, 1)).unwrap());
        std::thread::sleep(Duration::from_millis(5));
        fifo.close();
        blocked.join().unwrap();
    });
    fifo.try_add(obj(2, 1)).unwrap();
    assert_eq!(fifo.len(), 3);
}

#[test]
fn a_replace_waits_for_room_and_goes_in_whole() {
    let fifo = with(Some(2), None);
    fifo.add(obj(1, 1)).unwrap();
    fifo.try_replace(list(&[obj(2, 1), obj(3, 1), obj(4, 1)])).unwrap();
    assert_eq!(fifo.len(), 4, "all or nothing: the list is in memory anyway");
    let Err(TryReplaceError::Full(back)) = fifo.try_replace(list(&[obj(5, 1)])) else { panic!("full") };
    assert_eq!(back.len(), 1);
    std::thread::scope(|s| {
        let blocking = s.spawn(|| fifo.replace(back).unwrap());
        let asynchronous = s.spawn(|| future::block_on(fifo.replace_async(list(&[obj(6, 1)]))).unwrap());
        while !(blocking.is_finished() && asynchronous.is_finished()) {
            drop(fifo.pop_timeout(Duration::from_millis(1)));
        }
        blocking.join().unwrap();
        asynchronous.join().unwrap();
    });
}

#[test]
fn a_requeue_is_counted_and_never_refused() {
    let fifo = with(Some(1), Some(1));
    fifo.try_add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.try_add(obj(2, 1)).unwrap();
    claim.requeue();
    assert_eq!(fifo.len(), 2);
    pop(&fifo);
    assert!(fifo.try_add(obj(3, 1)).is_err(), "one is still pending");
    pop(&fifo);
    fifo.try_add(obj(3, 1)).unwrap();
}

#[test]
fn tombstones_are_limited_too() {
    let fifo = with(None, Some(1));
    fifo.add(obj(1, 1)).unwrap();
    let error = fifo.try_delete_final_state_unknown(1, Some(obj(1, 2).into())).unwrap_err();
    assert_eq!((error.tombstone.key, error.tombstone.object.unwrap().version), (1, 2));
    std::thread::scope(|s| {
        let blocked = s.spawn(|| fifo.delete_final_state_unknown(1, None));
        let claim = fifo.try_pop().unwrap();
        blocked.join().unwrap();
        drop(claim);
    });
    assert_eq!(pop(&fifo), (1, vec![(Deleted, None, true)]));
}

#[test]
fn deltas_that_are_swallowed_give_their_room_back() {
    let fifo = builder().limits(Limits { keys: None, deltas: Some(2) }).compression(Compression::KeepLatest).build();
    for version in 0..10 {
        fifo.try_delete_final_state_unknown(9, None).unwrap(); // nothing there: ignored
        fifo.try_add(obj(1, version)).unwrap();
        let claim = fifo.try_pop().unwrap();
        fifo.try_delete(obj(1, version)).unwrap();
        fifo.try_add(obj(1, version + 1)).unwrap(); // pending: a deletion and a creation, the limit
        assert!(fifo.try_add(obj(2, 1)).is_err());
        fifo.try_delete(obj(1, version + 1)).unwrap(); // swallows both
        fifo.try_add(obj(2, 1)).unwrap(); // one has become free
        drop(claim);
        assert_eq!(pop(&fifo).0, 2);
        assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(version + 1), false)]));
    }
}

#[test]
fn a_requeue_that_merges_wakes_who_waits_for_room() {
    let fifo = builder().limits(Limits { keys: None, deltas: Some(2) }).compression(Compression::KeepLatest).build();
    fifo.add(obj(1, 1)).unwrap();
    fifo.delete(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap(); // created and deleted
    fifo.add(obj(1, 2)).unwrap();
    fifo.delete(obj(1, 2)).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| fifo.add(obj(2, 1)).unwrap());
        std::thread::sleep(Duration::from_millis(5));
        claim.requeue(); // created, deleted: the second life is swallowed
        assert_eq!(fifo.get(&1).unwrap().len(), 2);
        drop(fifo.try_pop().unwrap());
        waits.join().unwrap();
    });
}

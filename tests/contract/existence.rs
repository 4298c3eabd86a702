//! In flight counts as existing (obligation 1).

use delta_fifo::DeltaType::*;

use crate::{Store, builder, drain, fifo_over, list, obj, pop, short};

#[test]
fn delete_of_a_claimed_key_is_queued() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.delete(obj(1, 2)).unwrap();
    drop(claim);
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(2), false)]));
}

#[test]
fn delete_of_a_key_whose_claim_ends_in_a_deletion_is_ignored() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    fifo.delete(obj(1, 2)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.delete(obj(1, 3)).unwrap(); // the store still shows the object, but it is gone
    store.apply(&claim);
    drop(claim);
    assert!(fifo.is_empty());
}

#[test]
fn delete_merges_into_a_pending_deletion_of_a_claimed_key() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.delete(obj(1, 2)).unwrap();
    fifo.delete(obj(1, 3)).unwrap();
    drop(claim);
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(2), false)]));
}

#[test]
fn replace_tombstones_a_claimed_key_with_the_newest_object_in_flight() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    fifo.update(obj(1, 2)).unwrap();
    let claim = fifo.try_pop().unwrap(); // version 2 is in flight, the store shows 1
    fifo.replace(vec![]).unwrap();
    store.apply(&claim);
    drop(claim);
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(2), true)]));
}

#[test]
fn replace_leaves_a_claimed_deletion_alone() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    fifo.delete(obj(1, 2)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.replace(vec![]).unwrap(); // the store still lists the key
    store.apply(&claim);
    drop(claim);
    assert!(fifo.is_empty());
}

#[test]
fn replace_prefers_the_newest_pending_object_to_the_one_in_flight() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.update(obj(1, 2)).unwrap();
    fifo.replace(vec![]).unwrap();
    drop(claim);
    assert_eq!(pop(&fifo), (1, vec![(Updated, Some(2), false), (Deleted, Some(2), true)]));
}

#[test]
fn resync_skips_queued_and_claimed_keys() {
    let store = Store::with(&[obj(1, 1), obj(2, 1), obj(3, 1)]);
    let fifo = fifo_over(&store);
    fifo.update(obj(1, 2)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.update(obj(2, 2)).unwrap();
    fifo.resync().unwrap();
    store.apply(&claim);
    drop(claim);
    assert_eq!(pop(&fifo), (2, vec![(Updated, Some(2), false)]));
    assert_eq!(pop(&fifo), (3, vec![(Sync, Some(1), false)]));
    assert!(fifo.is_empty());
}

#[test]
fn a_known_object_that_cannot_be_looked_up_may_exist() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    store.fail_get.store(true, std::sync::atomic::Ordering::Relaxed);
    fifo.delete(obj(1, 2)).unwrap();
    fifo.resync().unwrap(); // skipped, not failed
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(2), false)]));
    fifo.replace(vec![]).unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Deleted, None, true)]));
}

#[test]
fn embedded_store_remembers_what_was_released_last() {
    let fifo = builder().embedded_store().idle_keys(0).build();
    fifo.add(obj(1, 1)).unwrap();
    fifo.update(obj(1, 2)).unwrap();
    let claim = fifo.try_pop().unwrap();
    assert!(fifo.known_object(&1).is_none(), "not processed yet");
    fifo.update(obj(1, 3)).unwrap();
    drop(claim);
    assert_eq!(fifo.known_object(&1).unwrap().version, 2);
    fifo.replace(list(&[])).unwrap();
    let claim = fifo.try_pop().unwrap();
    assert_eq!(short(claim.deltas()), [(Updated, Some(3), false), (Deleted, Some(3), true)]);
    claim.requeue();
    assert_eq!(fifo.known_object(&1).unwrap().version, 2, "a requeue is no release");
    drop(fifo.try_pop().unwrap());
    assert!(fifo.known_object(&1).is_none());
    assert!(fifo.known_keys().is_empty());
    fifo.delete(obj(1, 4)).unwrap();
    assert!(fifo.is_empty(), "nothing exists under the key any more");
}

#[test]
fn embedded_store_serves_delete_replace_and_resync() {
    let fifo = builder().embedded_store().emit_replaced(true).build();
    for key in 1..=3 {
        fifo.add(obj(key, 1)).unwrap();
    }
    while fifo.try_pop().is_ok() {}
    fifo.delete(obj(1, 2)).unwrap();
    fifo.replace(list(&[obj(2, 2)])).unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(2), false)]));
    assert_eq!(pop(&fifo), (2, vec![(Replaced, Some(2), false)]));
    assert_eq!(pop(&fifo), (3, vec![(Deleted, Some(1), true)]));
    fifo.resync().unwrap();
    assert_eq!(pop(&fifo), (2, vec![(Sync, Some(2), false)]));
    assert!(fifo.is_empty());
}

#[test]
fn without_known_objects_a_delete_after_the_release_is_ignored() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    drop(fifo.try_pop().unwrap());
    fifo.delete(obj(1, 2)).unwrap();
    fifo.delete_final_state_unknown(1, None);
    assert!(fifo.is_empty());
    fifo.resync().unwrap();
    assert!(fifo.is_empty());
}

#[test]
fn the_store_ends_equal_to_the_list() {
    let store = Store::with(&[obj(1, 1), obj(2, 1)]);
    let fifo = fifo_over(&store);
    fifo.add(obj(3, 1)).unwrap();
    fifo.replace(list(&[obj(2, 2), obj(4, 1)])).unwrap();
    drain(&fifo, &store);
    assert_eq!([1, 2, 3, 4].map(|key| store.version(key)), [None, Some(2), None, Some(1)]);
}

#[test]
fn two_deletes_that_ask_the_store_at_the_same_time_both_end() {
    let store = Store::with(&[obj(2, 1)]);
    let fifo = fifo_over(&store);
    for key in [1, 2] {
        // Each lookup of one delete has the other one begin, as two threads in lock step would.
        let f = fifo.clone();
        store.on_next_get(move || f.delete(obj(key, 3)).unwrap());
        fifo.delete(obj(key, 2)).unwrap();
    }
    assert_eq!(pop(&fifo), (2, vec![(Deleted, Some(3), false)]), "two deletions in a row are one");
    assert!(fifo.is_empty());
}

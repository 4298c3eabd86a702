//! Resync never goes back in time (obligation 3). The hook in `get_by_key` runs between the read and the commit.

use delta_fifo::DeltaType::*;

use crate::{Store, drain, fifo_over, obj, pop};

#[test]
fn an_update_that_is_applied_between_read_and_commit_is_not_overtaken() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    let (f, s) = (fifo.clone(), store.clone());
    store.on_next_get(move || {
        f.update(obj(1, 2)).unwrap();
        drain(&f, &s);
    });
    fifo.resync().unwrap();
    drain(&fifo, &store);
    assert_eq!(store.version(1), Some(2), "the Sync carried the state of before the update");
}

#[test]
fn an_update_that_is_pending_at_the_commit_takes_the_key_over() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    let f = fifo.clone();
    store.on_next_get(move || f.update(obj(1, 2)).unwrap());
    fifo.resync().unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Updated, Some(2), false)]));
    assert!(fifo.is_empty());
}

#[test]
fn a_delete_between_read_and_commit_is_not_undone() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    let (f, s) = (fifo.clone(), store.clone());
    store.on_next_get(move || {
        f.delete(obj(1, 2)).unwrap();
        drain(&f, &s);
    });
    fifo.resync().unwrap();
    drain(&fifo, &store);
    assert_eq!(store.version(1), None);
}

#[test]
fn a_second_resync_inside_the_first_queues_one_sync_only() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    let f = fifo.clone();
    store.on_next_get(move || f.resync().unwrap());
    fifo.resync().unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Sync, Some(1), false)]));
    assert!(fifo.is_empty());
}

#[test]
fn a_key_that_is_gone_at_the_lookup_is_not_stuck() {
    let store = Store::with(&[obj(1, 1), obj(2, 1)]);
    let fifo = fifo_over(&store);
    let (f, s) = (fifo.clone(), store.clone());
    store.on_next_list(move || {
        f.delete(obj(1, 2)).unwrap();
        drain(&f, &s);
    });
    fifo.resync().unwrap();
    assert_eq!(pop(&fifo), (2, vec![(Sync, Some(1), false)]));
    assert!(fifo.is_empty());
    fifo.add(obj(1, 3)).unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(3), false)]));
}

#[test]
fn a_panic_in_the_lookup_leaves_no_key_reserved() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    store.on_next_get(|| panic!("the store broke"));
    let f = fifo.clone();
    assert!(std::thread::spawn(move || f.resync()).join().is_err());
    assert!(fifo.is_empty());
    fifo.resync().unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Sync, Some(1), false)]));
}

#[test]
fn a_key_error_ends_the_resync_and_keeps_what_was_queued() {
    let store = Store::with(&[obj(1, 1), obj(u32::MAX, 1)]);
    let fifo = fifo_over(&store);
    let error = fifo.resync().unwrap_err();
    assert_eq!(error.object.key, u32::MAX);
    assert_eq!(pop(&fifo), (1, vec![(Sync, Some(1), false)]));
}

#[test]
fn resync_before_the_first_replace_populates_nothing() {
    let store = Store::with(&[obj(1, 1), obj(2, 1)]);
    let fifo = fifo_over(&store);
    fifo.resync().unwrap();
    assert!(!fifo.has_synced());
    let claim = fifo.try_pop().unwrap();
    assert!(claim.is_initial(), "the queue is not populated yet");
    drop(claim);
    // The key that is still queued is found by the Replace and counted.
    fifo.replace(vec![]).unwrap();
    assert!(!fifo.has_synced());
    assert_eq!(pop(&fifo), (2, vec![(Sync, Some(1), false), (Deleted, Some(1), true)]));
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(1), true)]));
    assert!(fifo.has_synced());
}

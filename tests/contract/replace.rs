//! Replace takes effect at one instant (obligations 2 and 4). The hook in `list_keys` runs after that instant.

use std::sync::Arc;

use delta_fifo::DeltaType::*;
use delta_fifo::PushError;

use crate::{Fifo, Store, builder, drain, fifo_over, list, obj, pop};

/// A Replace of `objects`, with `hook` in its middle.
fn replace_with(
    store: &Arc<Store>,
    fifo: &Arc<Fifo>,
    objects: &[crate::Obj],
    hook: impl FnOnce(&Fifo, &Store) + Send + 'static,
) {
    let (f, s) = (fifo.clone(), store.clone());
    store.on_next_list(move || hook(&f, &s));
    fifo.replace(list(objects)).unwrap();
}

#[test]
fn an_update_after_the_instant_wins_over_the_list() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    replace_with(&store, &fifo, &[obj(1, 5)], |fifo, _| fifo.update(obj(1, 7)).unwrap());
    drain(&fifo, &store);
    assert_eq!(store.version(1), Some(7));
}

#[test]
fn keys_added_and_updated_after_the_instant_survive_together() {
    for new_first in [true, false] {
        let store = Store::with(&[obj(1, 1)]);
        let fifo = fifo_over(&store);
        replace_with(&store, &fifo, &[], move |fifo, _| {
            if new_first {
                fifo.add(obj(2, 1)).unwrap();
            }
            fifo.update(obj(1, 2)).unwrap();
            if !new_first {
                fifo.add(obj(2, 1)).unwrap();
            }
        });
        drain(&fifo, &store);
        assert_eq!((store.version(1), store.version(2)), (Some(2), Some(1)), "new first: {new_first}");
    }
}

#[test]
fn a_key_added_popped_applied_and_released_after_the_instant_is_not_tombstoned() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    let (f, s) = (fifo.clone(), store.clone());
    store.on_next_list(move || {
        f.update(obj(1, 2)).unwrap();
        drain(&f, &s);
        assert_eq!(s.version(1), Some(2));
    });
    fifo.replace(vec![]).unwrap();
    assert!(fifo.is_empty(), "the key was updated after the instant: its slot still says so");
    assert_eq!(store.version(1), Some(2));
}

#[test]
fn a_delete_that_found_nothing_after_the_instant_keeps_the_list_from_bringing_the_key_back() {
    let store = Store::with(&[]);
    let fifo = fifo_over(&store);
    replace_with(&store, &fifo, &[obj(1, 5), obj(2, 5)], |fifo, _| fifo.delete(obj(1, 6)).unwrap());
    drain(&fifo, &store);
    assert_eq!((store.version(1), store.version(2)), (None, Some(5)));
}

#[test]
fn a_delete_after_the_instant_wins_over_the_list() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    replace_with(&store, &fifo, &[obj(1, 5)], |fifo, store| {
        fifo.delete(obj(1, 6)).unwrap();
        drain(fifo, store);
    });
    drain(&fifo, &store);
    assert_eq!(store.version(1), None);
}

#[test]
fn stamps_do_not_outlive_their_replace() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    replace_with(&store, &fifo, &[], |fifo, _| fifo.update(obj(1, 2)).unwrap());
    drain(&fifo, &store);
    fifo.replace(vec![]).unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(2), true)]));
}

#[test]
fn a_key_that_moves_from_slot_to_store_during_the_scan_is_found() {
    let store = Store::with(&[]);
    let fifo = fifo_over(&store);
    fifo.add(obj(1, 1)).unwrap(); // before the instant, so it must go
    let (f, s) = (fifo.clone(), store.clone());
    store.on_next_list(move || drain(&f, &s)); // after the scan of slots
    fifo.replace(vec![]).unwrap();
    assert_eq!(store.version(1), Some(1));
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(1), true)]));
}

#[test]
fn a_key_that_is_deleted_and_applied_during_the_scan_is_not_deleted_twice() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    fifo.delete(obj(1, 2)).unwrap(); // before the instant
    replace_with(&store, &fifo, &[], drain);
    assert!(fifo.is_empty());
}

#[test]
fn a_refused_object_refuses_the_whole_list() {
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    let error = fifo.replace(list(&[obj(2, 1), obj(u32::MAX, 1), obj(3, 1)])).unwrap_err();
    assert_eq!((error.index, error.list.len()), (1, 3));
    assert!(matches!(error.cause, PushError::Key(_)));
    assert_eq!(fifo.len(), 1);
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(1), false)]));

    let fifo = builder().transform(|o| if o.version == 9 { Err("nine") } else { Ok(o) }).build();
    let error = fifo.replace(list(&[obj(1, 1), obj(2, 9)])).unwrap_err();
    assert_eq!(error.index, 1);
    assert!(fifo.is_empty());
    assert!(!fifo.has_synced(), "a refused Replace populates nothing");
}

#[test]
fn a_panic_in_known_objects_leaves_the_queue_as_it_was() {
    let store = Store::with(&[obj(1, 1)]);
    let fifo = fifo_over(&store);
    store.on_next_list(|| panic!("the store broke"));
    let f = fifo.clone();
    let outcome = std::thread::spawn(move || f.replace(list(&[obj(2, 1)]))).join();
    assert!(outcome.is_err());
    assert!(fifo.is_empty());
    assert!(!fifo.has_synced());
    // The next one works, and is the initial one.
    fifo.replace(list(&[obj(2, 1)])).unwrap();
    let claim = fifo.try_pop().unwrap();
    assert!(claim.is_initial());
    drop(claim);
    assert_eq!(pop(&fifo), (1, vec![(Deleted, Some(1), true)]));
    assert!(fifo.has_synced());
}

#[test]
fn duplicates_in_the_list_are_two_deltas_of_one_key() {
    let fifo = builder().emit_replaced(true).build();
    fifo.replace(list(&[obj(1, 1), obj(2, 1), obj(1, 2)])).unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Replaced, Some(1), false), (Replaced, Some(2), false)]));
    assert_eq!(pop(&fifo), (2, vec![(Replaced, Some(1), false)]));
    assert!(fifo.has_synced());
}

#[test]
fn replaces_of_several_threads_end_in_one_of_the_lists() {
    let store = Store::with(&[]);
    let fifo = fifo_over(&store);
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let fifo = &fifo;
            s.spawn(move || {
                for round in 0..50 {
                    let objects: Vec<_> =
                        (0..20).filter(|k| k % 4 == t || k % 3 == 0).map(|k| obj(k, round * 4 + t)).collect();
                    fifo.replace(list(&objects)).unwrap();
                }
            });
        }
        let (fifo, store) = (&fifo, &store);
        s.spawn(move || {
            for _ in 0..2_000 {
                if let Ok(claim) = fifo.try_pop() {
                    store.apply(&claim);
                }
            }
        });
    });
    drain(&fifo, &store);
    let present: Vec<u32> = (0..20).filter(|k| store.version(*k).is_some()).collect();
    let legal = (0..4).map(|t| (0..20).filter(|k| k % 4 == t || k % 3 == 0).collect::<Vec<u32>>());
    assert!(legal.clone().any(|l| l == present), "{present:?} is none of the lists");
}

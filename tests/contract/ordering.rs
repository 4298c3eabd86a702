//! Order across keys and within a key, fairness, compression (obligations 8 and 9).

use std::num::NonZeroU32;
use std::sync::Arc;

use delta_fifo::DeltaType::*;
use delta_fifo::{Compression, Delta, Deltas};

use crate::{Obj, builder, list, obj, pop, short};

#[test]
fn keys_come_in_the_order_of_their_first_delta() {
    let fifo = builder().build();
    for key in [3, 1, 2, 3, 1] {
        fifo.update(obj(key, 1)).unwrap();
    }
    assert_eq!([pop(&fifo).0, pop(&fifo).0, pop(&fifo).0], [3, 1, 2]);
}

#[test]
fn no_line_jumping() {
    // G-17: a re-add of a queued key keeps its place, a re-add after the pop goes to the tail.
    let fifo = builder().build();
    fifo.add(obj(1, 1)).unwrap();
    fifo.add(obj(2, 1)).unwrap();
    fifo.add(obj(1, 2)).unwrap();
    assert_eq!(pop(&fifo).0, 1);
    fifo.add(obj(1, 3)).unwrap();
    assert_eq!([pop(&fifo).0, pop(&fifo).0], [2, 1]);
}

#[test]
fn a_hot_key_goes_to_the_tail_each_time() {
    let fifo = builder().build();
    for key in 0..4 {
        fifo.add(obj(key, 0)).unwrap();
    }
    let mut seen = Vec::new();
    for version in 1..=8 {
        let claim = fifo.try_pop().unwrap();
        seen.push(*claim.key());
        fifo.update(obj(0, version)).unwrap(); // queued, or dirty while it is claimed
        drop(claim);
    }
    assert_eq!(seen[..4], [0, 1, 2, 3], "the others had their turn in the first round");
    assert!(seen[4..].iter().all(|key| *key == 0));
}

#[test]
fn replace_queues_updates_before_deletions() {
    let fifo = builder().embedded_store().build();
    for key in 1..=3 {
        fifo.add(obj(key, 1)).unwrap();
    }
    while fifo.try_pop().is_ok() {}
    fifo.update(obj(2, 2)).unwrap();
    fifo.replace(list(&[obj(9, 1), obj(8, 1)])).unwrap();
    assert_eq!([pop(&fifo).0, pop(&fifo).0, pop(&fifo).0], [2, 9, 8]);
    let mut rest = [pop(&fifo).0, pop(&fifo).0];
    rest.sort_unstable();
    assert_eq!(rest, [1, 3]);
}

#[test]
fn fresh_events_do_not_wait_behind_a_replace_in_the_background() {
    let share = NonZeroU32::new(4).unwrap();
    let fifo = builder().background_share(share).emit_replaced(true).build();
    let objects: Vec<Obj> = (0..1_000).map(|key| obj(key, 1)).collect();
    fifo.replace(list(&objects)).unwrap();
    for key in 5_000..5_010 {
        fifo.add(obj(key, 1)).unwrap();
    }
    fifo.update(obj(999, 2)).unwrap(); // waits in the background: moves to the front
    assert_eq!(fifo.len(), 1_010);
    let first: Vec<u32> = (0..16).map(|_| pop(&fifo).0).collect();
    let fresh = first.iter().filter(|key| **key >= 5_000).count();
    assert_eq!(fresh, 10, "{first:?}");
    assert!(first.contains(&999), "{first:?}");
    assert!(first.contains(&0) && first.contains(&1), "one of four is from the background: {first:?}");
    let mut rest = 0;
    while let Ok(claim) = fifo.try_pop() {
        assert_ne!(*claim.key(), 999, "its old ticket is dead");
        rest += 1;
    }
    assert_eq!((rest, fifo.len()), (1_010 - 16, 0));
    assert!(fifo.has_synced());
}

#[test]
fn the_background_does_not_starve() {
    let fifo = builder().background_share(NonZeroU32::new(8).unwrap()).build();
    fifo.replace(list(&[obj(1, 1)])).unwrap();
    let popped_after = (2..100).position(|key| {
        fifo.add(obj(key, 1)).unwrap();
        fifo.add(obj(key + 1_000, 1)).unwrap();
        pop(&fifo).0 == 1
    });
    assert!(popped_after.is_some_and(|n| n <= 8), "{popped_after:?}");
}

#[test]
fn a_promoted_key_keeps_its_deltas_in_order() {
    let fifo = builder().background_share(NonZeroU32::new(100).unwrap()).emit_replaced(true).build();
    fifo.add(obj(9, 1)).unwrap();
    drop(fifo.try_pop().unwrap()); // the turn of the background
    fifo.replace(list(&[obj(1, 1), obj(2, 1)])).unwrap();
    fifo.update(obj(2, 2)).unwrap();
    let claim = fifo.try_pop().unwrap();
    assert_eq!((*claim.key(), short(claim.deltas())), (2, vec![(Replaced, Some(1), false), (Updated, Some(2), false)]));
    fifo.update(obj(2, 3)).unwrap();
    drop(claim);
    assert_eq!(pop(&fifo), (2, vec![(Updated, Some(3), false)]));
    assert_eq!(pop(&fifo), (1, vec![(Replaced, Some(1), false)]));
    assert!(fifo.try_pop().is_err());
}

#[test]
fn keep_latest_bounds_a_key() {
    let fifo = builder().compression(Compression::KeepLatest).build();
    fifo.add(obj(1, 0)).unwrap();
    for version in 1..10_000 {
        fifo.update(obj(1, version)).unwrap();
    }
    assert_eq!(fifo.get(&1).unwrap().len(), 1);
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(9_999), false)]));
}

#[test]
fn keep_latest_holds_across_a_requeue() {
    let fifo = builder().compression(Compression::KeepLatest).build();
    fifo.add(obj(1, 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    fifo.update(obj(1, 2)).unwrap();
    claim.requeue();
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(2), false)]));
}

#[test]
fn client_go_keeps_every_update() {
    let fifo = builder().build();
    for version in 0..100 {
        fifo.update(obj(1, version)).unwrap();
    }
    assert_eq!(pop(&fifo).1.len(), 100);
}

#[test]
fn a_custom_compression_sees_all_and_may_drop_all() {
    let compress = |key: &u32, deltas: Deltas<Obj, u32>| -> Deltas<Obj, u32> {
        match key {
            1 => deltas.into_iter().filter(|d| !matches!(d, Delta::Sync(_))).collect(),
            _ => deltas,
        }
    };
    let fifo = builder().compression(Compression::Custom(Arc::new(compress))).embedded_store().build();
    fifo.add(obj(1, 1)).unwrap();
    fifo.add(obj(2, 1)).unwrap();
    while fifo.try_pop().is_ok() {}
    fifo.resync().unwrap();
    assert_eq!(fifo.len(), 2);
    assert_eq!(pop(&fifo), (2, vec![(Sync, Some(1), false)]));
    assert!(fifo.try_pop().is_err(), "key 1 had nothing left");
    fifo.update(obj(1, 2)).unwrap();
    assert_eq!(pop(&fifo), (1, vec![(Updated, Some(2), false)]));
}

#[test]
fn a_panic_in_a_custom_compression_puts_the_deltas_back() {
    let armed = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let switch = armed.clone();
    let compress = move |_: &u32, deltas: Deltas<Obj, u32>| {
        assert!(!switch.swap(false, std::sync::atomic::Ordering::Relaxed), "compression");
        deltas
    };
    let fifo = builder().compression(Compression::Custom(Arc::new(compress))).build();
    fifo.add(obj(1, 1)).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(fifo.try_pop()))).is_err());
    assert_eq!(pop(&fifo), (1, vec![(Added, Some(1), false)]));
}

#[test]
fn dead_tickets_do_not_use_up_the_turns_of_the_background() {
    let fifo = builder().background_share(NonZeroU32::new(2).unwrap()).embedded_store().build();
    for key in 0..100 {
        fifo.add(obj(key, 1)).unwrap();
    }
    while fifo.try_pop().is_ok() {}
    fifo.resync().unwrap();
    let mut waiting = fifo.list_keys();
    // All but the one that waits longest of the rest move to the front.
    let last = waiting.pop().unwrap();
    for key in &waiting {
        fifo.update(obj(*key, 2)).unwrap();
    }
    let popped: Vec<u32> = (0..2).map(|_| pop(&fifo).0).collect();
    assert!(popped.contains(&last), "two pops serve the background once, whatever is dead there: {popped:?}");
}

//! The checks that a replay makes of the queue: they must notice a queue that is wrong.

use std::collections::HashMap;
use std::sync::Arc;

use delta_fifo::{Deleted, Delta, KnownObjects};

use crate::event;
use crate::object::Item;
use crate::store::Store;
use crate::stream::{Event, EventStream};

fn item(name: u64, sequence: u64) -> Arc<Item> {
    let line = event("ADDED", name);
    let record = EventStream::new(line.as_bytes()).next().unwrap().unwrap();
    let Event::Object(_, object) = record.event else { panic!("an ADDED event is an object") };
    Arc::new(Item::new(object, sequence))
}

fn key(name: u64) -> Arc<str> {
    format!("ns/pod-{name}").into()
}

fn expected(alive: &[(u64, u64)]) -> HashMap<Arc<str>, u64> {
    alive.iter().map(|&(name, sequence)| (key(name), sequence)).collect()
}

#[test]
fn an_older_or_repeated_delta_is_out_of_order() {
    let store = Store::new();
    assert!(store.apply(&key(1), &Delta::Added(item(1, 1))));
    assert!(store.apply(&key(1), &Delta::Updated(item(1, 3))));
    assert!(!store.apply(&key(1), &Delta::Updated(item(1, 2))), "older");
    assert!(!store.apply(&key(1), &Delta::Updated(item(1, 2))), "repeated");
    assert!(store.apply(&key(2), &Delta::Added(item(2, 1))), "another key has an order of its own");
}

#[test]
fn order_is_checked_across_a_deletion() {
    let store = Store::new();
    assert!(store.apply(&key(1), &Delta::Added(item(1, 1))));
    assert!(store.apply(&key(1), &Delta::Deleted(Deleted::Observed(item(1, 3)))));
    assert!(store.list_keys().is_empty() && store.get_by_key(&key(1)).unwrap().is_none());
    assert!(!store.apply(&key(1), &Delta::Added(item(1, 2))), "the object comes back to life");
    assert!(store.apply(&key(1), &Delta::Added(item(1, 4))));
    assert_eq!(store.list_keys(), [key(1)]);
}

#[test]
fn the_end_state_must_be_the_input_s() {
    let store = Store::new();
    store.apply(&key(1), &Delta::Added(item(1, 1)));
    store.apply(&key(2), &Delta::Added(item(2, 2)));
    assert!(store.holds(&expected(&[(1, 1), (2, 2)])));
    assert!(!store.holds(&expected(&[(1, 1)])), "an object too many");
    assert!(!store.holds(&expected(&[(1, 1), (2, 2), (3, 3)])), "an object is missing");
    assert!(!store.holds(&expected(&[(1, 1), (3, 2)])), "another object");
    assert!(!store.holds(&expected(&[(1, 1), (2, 4)])), "the last change of an object is missing");
}

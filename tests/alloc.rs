//! What the queue allocates: nothing per call in steady state, and what it took for a burst comes back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use delta_fifo::{BoxError, Compression, DeltaFifo, Keyed, KnownObjects};

use counting_alloc::{allocations, live_bytes};

#[global_allocator]
static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;

const KEYS: usize = 1_000;

/// Tickets per block of the order queue (crossbeam's `SegQueue`): it allocates one block for so many pushes.
const BLOCK: usize = 31;

struct Object(Arc<str>);

impl Keyed for Object {
    fn key(&self) -> Arc<str> {
        self.0.clone()
    }
}

fn objects(n: usize) -> Vec<Arc<Object>> {
    (0..n).map(|i| Arc::new(Object(format!("ns/{i:07}").into()))).collect()
}

/// A consumer's store. A put of a known key allocates nothing.
#[derive(Default)]
struct Store(Mutex<HashMap<Arc<str>, Arc<Object>>>);

impl Store {
    fn put(&self, object: &Arc<Object>) {
        self.0.lock().unwrap().insert(object.key(), object.clone());
    }
}

impl KnownObjects<Object, Arc<str>> for Store {
    fn list_keys(&self) -> Vec<Arc<str>> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
    fn get_by_key(&self, key: &Arc<str>) -> Result<Option<Arc<Object>>, BoxError> {
        Ok(self.0.lock().unwrap().get(key).cloned())
    }
}

/// Allocations of `rounds` rounds of `round`, after as many to warm up.
fn in_steady_state(rounds: usize, mut round: impl FnMut(usize)) -> usize {
    (0..rounds).for_each(&mut round);
    let before = allocations();
    (0..rounds).for_each(&mut round);
    usize::try_from(allocations() - before).unwrap()
}

/// The blocks that `tickets` tickets may cost; the first and the last one are shared with others.
fn blocks(tickets: usize) -> usize {
    tickets / BLOCK + 1
}

#[test]
fn a_round_trip_allocates_nothing_with_the_embedded_store() {
    let objects = objects(KEYS);
    let fifo: DeltaFifo<Object> = DeltaFifo::builder().embedded_store().build();
    let allocated = in_steady_state(31_000, |i| {
        fifo.update(objects[i * 7 % KEYS].clone()).unwrap();
        fifo.try_pop().unwrap().done();
    });
    assert!(allocated <= blocks(31_000), "{allocated} allocations in 31,000 round trips");
    assert_eq!(fifo.known_keys().len(), KEYS);
}

#[test]
fn a_round_trip_allocates_nothing_with_an_external_store() {
    let objects = objects(KEYS);
    let store = Arc::new(Store::default());
    let fifo: DeltaFifo<Object> = DeltaFifo::builder().known_objects(store.clone()).build();
    let allocated = in_steady_state(31_000, |i| {
        fifo.update(objects[i * 7 % KEYS].clone()).unwrap();
        let claim = fifo.try_pop().unwrap();
        store.put(claim.deltas().newest().unwrap().object().unwrap());
    });
    assert!(allocated <= blocks(31_000), "{allocated} allocations in 31,000 round trips");
    assert_eq!(store.list_keys().len(), KEYS);
}

/// An update of a key that is queued already needs no ticket, so there is nothing at all to allocate for it.
#[test]
fn an_update_of_a_queued_key_allocates_nothing() {
    let objects = objects(KEYS);
    let fifo: DeltaFifo<Object> = DeltaFifo::builder().compression(Compression::KeepLatest).build();
    let allocated = in_steady_state(10_000, |i| fifo.update(objects[i % KEYS].clone()).unwrap());
    assert_eq!(allocated, 0);
}

/// Several deltas of a key are in a vector, which goes back to a pool with the release.
#[test]
fn coalesced_updates_allocate_nothing() {
    let objects = objects(KEYS);
    let fifo: DeltaFifo<Object> = DeltaFifo::builder().embedded_store().build();
    let allocated = in_steady_state(10_000, |i| {
        for _ in 0..3 {
            fifo.update(objects[i * 7 % KEYS].clone()).unwrap();
        }
        assert_eq!(fifo.try_pop().unwrap().deltas().len(), 3);
    });
    assert!(allocated <= blocks(10_000), "{allocated} allocations in 10,000 pops of three deltas");
}

/// A key that becomes dirty while it is claimed is queued again by its release.
#[test]
fn a_dirty_release_allocates_nothing() {
    let objects = objects(1);
    let fifo: DeltaFifo<Object> = DeltaFifo::builder().embedded_store().build();
    fifo.update(objects[0].clone()).unwrap();
    let allocated = in_steady_state(10_000, |_| {
        let claim = fifo.try_pop().unwrap();
        fifo.update(objects[0].clone()).unwrap();
        claim.done();
    });
    assert!(allocated <= blocks(10_000), "{allocated} allocations in 10,000 dirty releases");
}

/// What a burst of queued keys took is given back when they have been processed, but for the reserve (the builder's
/// `idle_keys`), the pool of vectors and one block of tickets.
#[test]
fn memory_comes_back_after_a_burst() {
    let objects = objects(100_000);
    let fifo: DeltaFifo<Object> = DeltaFifo::builder().idle_keys(0).build();
    let round = || {
        for object in &objects {
            fifo.update(object.clone()).unwrap();
            fifo.update(object.clone()).unwrap();
        }
        let full = live_bytes();
        while let Ok(claim) = fifo.try_pop() {
            claim.done();
        }
        full
    };
    let before = live_bytes();
    let full = round();
    let kept = live_bytes() - before;
    let peak = full - before;
    assert!(peak > 100 * 100_000, "a queued key takes memory: {peak} bytes for 100,000 keys");
    // 64 shards with at most 64 places each, 256 vectors.
    assert!(kept < 1 << 20, "{kept} of {peak} bytes were kept");
    round();
    assert_eq!(live_bytes() - before, kept, "a second burst keeps no more");
}

/// The same where objects stay known: the burst is given back, the store is not.
#[test]
fn memory_comes_back_to_the_store_after_a_burst() {
    let objects = objects(100_000);
    let fifo: DeltaFifo<Object> = DeltaFifo::builder().embedded_store().idle_keys(0).build();
    for object in &objects {
        fifo.update(object.clone()).unwrap();
        fifo.try_pop().unwrap().done();
    }
    let store = live_bytes();
    objects.iter().for_each(|object| fifo.update(object.clone()).unwrap());
    assert!(live_bytes() - store > 50 * 100_000);
    while let Ok(claim) = fifo.try_pop() {
        claim.done();
    }
    let kept = live_bytes() - store;
    assert!(kept < 4096, "{kept} bytes more than the store were kept");
}

/// Everything is freed with the queue.
#[test]
fn nothing_is_left_when_the_queue_is_dropped() {
    let objects = objects(KEYS);
    let round = || {
        let fifo: DeltaFifo<Object> = DeltaFifo::builder().embedded_store().build();
        for object in objects.iter().chain(&objects) {
            fifo.update(object.clone()).unwrap();
        }
        for _ in 0..KEYS / 2 {
            fifo.try_pop().unwrap().done();
        }
        fifo.replace(objects[1..].to_vec()).unwrap();
    };
    round(); // once for what is initialised on first use
    let before = live_bytes();
    round();
    assert_eq!(live_bytes() - before, 0);
}

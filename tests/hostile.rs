//! Input that somebody sends on purpose: each case ends in a clear error or in bounded use.

#[path = "hostile/input.rs"]
mod input;
#[path = "../examples/replay/stream.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, missing_debug_implementations)]
mod stream;

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use delta_fifo::{
    BoxError, Compression, DefaultHashBuilder, Delta, DeltaFifo, KnownObjects, Limits, PopTimeoutError, TryPushError,
};

#[global_allocator]
static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;

type Fifo = DeltaFifo<u32, u32>;

fn fifo() -> delta_fifo::Builder<u32, u32> {
    Fifo::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n))
}

// ----- keys -----

#[test]
fn a_key_of_a_megabyte_is_kept_once() {
    let fifo = DeltaFifo::<Arc<str>>::builder_with_key_fn(|key: &Arc<str>| Ok::<_, &str>(key.clone()))
        .embedded_store()
        .build();
    let keys: Vec<Arc<str>> = (0..32).map(|n| format!("{n}{}", "k".repeat(1 << 20)).into()).collect();
    for round in 0..3 {
        for key in &keys {
            fifo.update(key.clone()).unwrap();
        }
        assert_eq!(fifo.len(), 32, "round {round}");
        while let Ok(claim) = fifo.try_pop() {
            assert!(keys.contains(claim.key()));
        }
    }
    // All uses of the key share its one text: the table, the object, and this test.
    assert!(keys.iter().all(|key| Arc::strong_count(key) == 3));
}

/// Java's string hash, which "Aa" and "BB" collide in, and so does every sequence of them.
#[derive(Default)]
struct Weak(u32);

impl Hasher for Weak {
    fn finish(&self) -> u64 {
        self.0.into()
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.wrapping_mul(31).wrapping_add((*byte).into()));
    }
}

fn colliding(number: u32, pairs: u32) -> String {
    (0..pairs).map(|bit| if number >> bit & 1 == 0 { "Aa" } else { "BB" }).collect()
}

/// A key that counts how often it is compared.
#[derive(Clone)]
struct Counted(String, Arc<AtomicU64>);

impl PartialEq for Counted {
    fn eq(&self, other: &Counted) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

fn counted<S: BuildHasher + Clone>(hasher: S) -> DeltaFifo<Counted, Counted, S> {
    DeltaFifo::builder_with_key_fn(|key: &Counted| Ok::<_, &str>(key.clone())).hasher(hasher).build()
}

#[test]
fn a_million_keys_that_collide_in_a_weak_hash_do_not_in_the_default_one() {
    // 2^20 of them; fewer without optimisation, where each takes ten times as long.
    const PAIRS: u32 = if cfg!(debug_assertions) { 17 } else { 20 };
    let keys = 1_u64 << PAIRS;
    let compared = Arc::new(AtomicU64::new(0));
    let fifo = counted(DefaultHashBuilder::default());
    let weak = BuildHasherDefault::<Weak>::default();
    let hash = weak.hash_one(colliding(0, PAIRS));
    for number in 0..keys as u32 {
        let key = colliding(number, PAIRS);
        assert_eq!(weak.hash_one(&key), hash, "the attack is none");
        fifo.add(Counted(key, compared.clone())).unwrap();
    }
    assert_eq!(fifo.len() as u64, keys);
    assert!(compared.load(Ordering::Relaxed) < keys / 10, "{} comparisons", compared.load(Ordering::Relaxed));
}

#[test]
fn keys_chosen_against_one_queue_do_not_collide_in_the_next() {
    let (seen, other) = (DefaultHashBuilder::default(), DefaultHashBuilder::default());
    // Whoever could see one queue's hashes picks keys that fall into one bucket of 1,024.
    let chosen: Vec<u64> = (0..).filter(|key| seen.hash_one(key) % 1_024 == 0).take(256).collect();
    let mut buckets = HashMap::<u64, u32>::new();
    chosen.iter().for_each(|key| *buckets.entry(other.hash_one(key) % 1_024).or_default() += 1);
    let fullest = buckets.into_values().max().unwrap();
    assert!(fullest < 16, "{fullest} of 256 keys fall into one bucket of 1,024");
}

#[test]
fn keys_that_do_collide_are_slow_but_not_wrong() {
    let compared = Arc::new(AtomicU64::new(0));
    let fifo = counted(BuildHasherDefault::<Weak>::default());
    let keys: Vec<String> = (0..512).map(|number| colliding(number, 9)).collect();
    for key in &keys {
        fifo.add(Counted(key.clone(), compared.clone())).unwrap();
    }
    fifo.replace(keys[..256].iter().map(|key| Counted(key.clone(), compared.clone()).into()).collect()).unwrap();
    for (number, key) in keys.iter().enumerate() {
        let claim = fifo.try_pop().unwrap();
        assert_eq!(claim.key().0, *key);
        assert_eq!(claim.deltas().newest().unwrap().is_deleted(), number >= 256);
    }
}

// ----- floods -----

#[test]
fn one_key_for_ever_is_bounded_by_keep_latest() {
    let fifo = fifo().compression(Compression::KeepLatest).build();
    for n in 0..100_000_u32 {
        match n % 3 {
            0 => fifo.add(7).unwrap(),
            1 => fifo.delete(7).unwrap(),
            _ => fifo.update(7).unwrap(),
        }
    }
    let claim = fifo.try_pop().unwrap();
    assert!(claim.deltas().len() <= 3, "{:?}", claim.deltas());
    assert!(fifo.try_pop().is_err());
}

#[test]
fn one_key_for_ever_is_bounded_by_a_limit() {
    let fifo = fifo().limits(Limits { keys: None, deltas: Some(1_000) }).build();
    let refused =
        (0..100_000).filter(|_| matches!(fifo.try_update(7), Err(TryPushError::Full(object)) if *object == 7));
    assert_eq!(refused.count(), 99_000);
    assert_eq!(fifo.try_pop().unwrap().deltas().len(), 1_000);
}

#[test]
fn one_key_for_ever_does_not_keep_others_waiting() {
    let fifo = fifo().build();
    fifo.add(7).unwrap();
    fifo.add(8).unwrap();
    let flood = fifo.try_pop().unwrap();
    (0..1_000).for_each(|_| fifo.update(7).unwrap());
    assert_eq!(*fifo.try_pop().unwrap().key(), 8);
    drop(flood);
    assert_eq!(fifo.try_pop().unwrap().deltas().len(), 1_000);
}

#[test]
fn limits_hold_at_every_moment() {
    let limits = Limits { keys: Some(10), deltas: Some(15) };
    let fifo = fifo().limits(limits).build();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let fifo = &fifo;
                scope.spawn(move || (0..5_000).for_each(|n| fifo.update((n * 7 + producer) % 40).unwrap()))
            })
            .collect();
        scope.spawn(|| while fifo.pop_blocking().is_ok() {});
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // A walk is no snapshot: a key may move behind it. But no walk sees more tickets than there can be.
                assert!(fifo.len() <= 10, "{} keys are queued", fifo.len());
                thread::yield_now();
            }
        });
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        over.store(true, Ordering::Relaxed);
        fifo.close();
    });
    // After all that, exactly the limit fits.
    let fifo = Fifo::builder_with_key_fn(|n: &u32| Ok::<_, &str>(*n)).limits(limits).build();
    assert_eq!((0..100).filter(|n| fifo.try_add(*n).is_ok()).count(), 10);
}

#[test]
fn a_list_of_one_object_a_million_times_is_one_key() {
    let fifo = fifo().compression(Compression::KeepLatest).build();
    let object = Arc::new(7);
    fifo.replace(vec![object.clone(); 1_000_000]).unwrap();
    assert_eq!(fifo.len(), 1);
    assert_eq!(fifo.try_pop().unwrap().deltas().as_slice(), [Delta::Sync(object)]);
}

/// The same where the store is the user's, who lists one key a million times as well.
#[test]
fn a_store_that_lists_one_key_a_million_times_has_one_key() {
    struct Stutters;
    impl KnownObjects<u32, u32> for Stutters {
        fn list_keys(&self) -> Vec<u32> {
            vec![8; 1_000_000]
        }
        fn get_by_key(&self, key: &u32) -> Result<Option<Arc<u32>>, BoxError> {
            Ok((*key == 8).then(|| Arc::new(8)))
        }
    }
    let fifo = fifo().compression(Compression::KeepLatest).known_objects(Stutters).build();
    let object = Arc::new(7);
    fifo.replace(vec![object; 1_000_000]).unwrap();
    assert_eq!(fifo.len(), 2);
    assert_eq!(*fifo.try_pop().unwrap().key(), 7);
    let tombstone = fifo.try_pop().unwrap();
    assert_eq!((*tombstone.key(), tombstone.deltas().len()), (8, 1));
    drop(tombstone);
    fifo.resync().unwrap();
    assert_eq!(fifo.list_keys(), [8]);
}

/// A fresh event moves a key out of the background and leaves a dead ticket there. With a front lane that never runs
/// empty, these must not pile up.
#[test]
fn tickets_of_promoted_keys_do_not_pile_up() {
    let fifo = DeltaFifo::<Arc<str>>::builder_with_key_fn(|key: &Arc<str>| Ok::<_, &str>(key.clone()))
        .embedded_store()
        .background_share(NonZeroU32::new(4).unwrap())
        .build();
    let (busy, key): (Arc<str>, Arc<str>) = ("busy".into(), "key".into());
    fifo.add(key.clone()).unwrap();
    drop(fifo.try_pop().unwrap());
    for _ in 0..10_000 {
        fifo.update(busy.clone()).unwrap();
        fifo.resync().unwrap();
        fifo.update(key.clone()).unwrap();
        // As many pops as keys, and the front is not empty before either.
        for _ in 0..2 {
            fifo.try_pop().unwrap().done();
        }
    }
    // The table, the object it knows, this test, and what is left of 10,000 tickets.
    let tickets = Arc::strong_count(&key) - 3;
    assert!(tickets <= 16, "{tickets} tickets of one key");
}

// ----- numbers -----

#[test]
fn a_timeout_beyond_the_clock_waits_like_no_timeout() {
    let fifo = fifo().build();
    thread::scope(|scope| {
        let consumer = scope.spawn(|| fifo.pop_timeout(Duration::MAX).map(|claim| *claim.key()));
        let batch = scope.spawn(|| fifo.pop_batch_timeout(1, Duration::MAX).map(|batch| batch.len()));
        let synced = scope.spawn(|| fifo.wait_synced_timeout(Duration::MAX));
        fifo.add(7).unwrap();
        fifo.add(8).unwrap();
        assert!(consumer.join().unwrap().is_ok());
        assert_eq!(batch.join().unwrap(), Ok(1));
        assert!(synced.join().unwrap());
    });
    assert!(fifo.close_and_drain_timeout(Duration::MAX));
}

#[test]
fn a_timeout_of_nothing_looks_once() {
    let fifo = fifo().build();
    assert_eq!(fifo.pop_timeout(Duration::ZERO).unwrap_err(), PopTimeoutError::Timeout);
    fifo.add(7).unwrap();
    assert!(fifo.pop_timeout(Duration::ZERO).is_ok());
    assert!(fifo.wait_synced_timeout(Duration::ZERO));
}

#[test]
fn sizes_beyond_memory_are_cut_down() {
    let fifo = fifo().expected_keys(usize::MAX).idle_keys(usize::MAX).build();
    fifo.add(7).unwrap();
    assert_eq!(fifo.try_pop_batch(usize::MAX).unwrap().len(), 1);
}

#[test]
fn limits_of_nothing_refuse_everything_and_of_the_most_nothing() {
    let limits = |n| Limits { keys: Some(n), deltas: Some(n) };
    let none = fifo().limits(limits(0)).build();
    assert!(matches!(none.try_add(7), Err(TryPushError::Full(_))));
    none.close();
    none.try_add(7).unwrap();
    let most = fifo().limits(limits(usize::MAX)).build();
    most.replace(vec![1.into(), 2.into()]).unwrap();
    most.try_add(7).unwrap();
    assert_eq!(most.len(), 3);
}

// ----- claims -----

#[test]
fn a_claim_that_is_forgotten_costs_its_key_and_no_other() {
    let fifo = fifo().build();
    fifo.add(7).unwrap();
    let mut claim = fifo.try_pop().unwrap();
    // Its memory is let go, so that a leak check finds only leaks that nobody made on purpose.
    drop(claim.take_deltas());
    std::mem::forget(claim);
    fifo.add(7).unwrap();
    fifo.add(8).unwrap();
    assert_eq!(*fifo.try_pop().unwrap().key(), 8);
    assert!(!fifo.close_and_drain_timeout(Duration::from_millis(1)));
}

#[test]
fn nothing_is_left_of_a_queue_that_ends_with_claims_and_waiters() {
    let object = Arc::new(7);
    let fifo = Arc::new(fifo().embedded_store().build());
    fifo.add(object.clone()).unwrap();
    let claim = fifo.try_pop().unwrap().into_owned(&fifo);
    fifo.update(object.clone()).unwrap();
    let mut waiter = Box::pin({
        let fifo = fifo.clone();
        async move { fifo.pop().await.map(|claim| *claim.key()) }
    });
    assert!(futures_lite::future::block_on(futures_lite::future::poll_once(&mut waiter)).is_none());
    drop(fifo);
    drop(waiter);
    assert_eq!(Arc::strong_count(&object), 4, "the claim keeps its queue");
    drop(claim);
    assert_eq!(Arc::strong_count(&object), 1);
}

//! Where the workers put what they get: the last state of each object. It is the queue's known objects, too.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use delta_fifo::{BoxError, Delta, KnownObjects};

use crate::object::Item;

/// A sharded map from key to object.
///
/// It checks the order of each key. The input's own check (`intake.rs`) has seen that `resourceVersion` grows from
/// event to event of a key, so an item whose event number grows has a `resourceVersion` that grows. Numbers that do
/// not grow would be the queue's fault, also where the input has no usable `resourceVersion`.
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

type Shard = HashMap<Arc<str>, Entry>;

struct Entry {
    /// `None` after a deletion. The entry stays, so that order is checked across deletion and re-creation.
    object: Option<Arc<Item>>,
    sequence: u64,
}

impl Store {
    pub fn new() -> Self {
        Store { shards: (0..64).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(key) as usize % self.shards.len();
        lock(&self.shards[index])
    }

    /// Writes one delta. False if it came out of order.
    ///
    /// Called under the claim of the key, so no two calls for one key overlap.
    pub fn apply(&self, key: &Arc<str>, delta: &Delta<Item>) -> bool {
        let Some(item) = delta.object() else { return true };
        let object = (!delta.is_deleted()).then(|| item.clone());
        let mut shard = self.shard(key);
        let Some(entry) = shard.get_mut(key) else {
            shard.insert(key.clone(), Entry { object, sequence: item.sequence });
            return true;
        };
        let in_order = item.sequence > entry.sequence;
        *entry = Entry { object, sequence: item.sequence };
        in_order
    }

    /// Whether exactly these objects are here, each as the event of that number left it.
    pub fn holds(&self, expected: &HashMap<Arc<str>, u64>) -> bool {
        let alive = |key: &str| self.shard(key).get(key).and_then(|entry| entry.object.clone());
        self.count() == expected.len()
            && expected.iter().all(|(key, &sequence)| alive(key).is_some_and(|item| item.sequence == sequence))
    }

    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).values().filter(|entry| entry.object.is_some()).count()).sum()
    }

    /// Number of objects by namespace and phase.
    pub fn tally(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut tally: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for shard in &self.shards {
            for item in lock(shard).values().filter_map(|entry| entry.object.as_ref()) {
                let by_phase = tally.entry(item.object.namespace.to_string()).or_default();
                *by_phase.entry(item.object.phase.to_string()).or_default() += 1;
            }
        }
        tally
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KnownObjects<Item, Arc<str>> for Store {
    fn list_keys(&self) -> Vec<Arc<str>> {
        let alive = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            let alive = shard.iter().filter(|(_, entry)| entry.object.is_some());
            alive.map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(alive).collect()
    }

    fn get_by_key(&self, key: &Arc<str>) -> Result<Option<Arc<Item>>, BoxError> {
        Ok(self.shard(key).get(key).and_then(|entry| entry.object.clone()))
    }
}

//! One version of the store, and how the next one is made from it.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::error::IndexError;
use crate::informer::ResourceVersion;
use crate::informer::guard::catch;
use crate::informer::pmap::{Entry, PMap};
use crate::key::BoxError;

pub(super) type IndexFunc<T> = Arc<dyn Fn(&T) -> Result<Vec<String>, BoxError> + Send + Sync>;

/// What the store keeps with an object.
pub(in crate::informer) struct Stored<T> {
    pub(in crate::informer) object: Arc<T>,
    /// Index id and values, sorted, of each index that has them. Remembered, so that a removal takes out exactly what
    /// was put in, whatever the index function says by then.
    values: Box<[IndexValues]>,
    /// The last round of Resync that was delivered for this key; see `informer::resync`.
    round: AtomicU64,
}

type IndexValues = (u64, Box<[Arc<str>]>);

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        Stored {
            object: self.object.clone(),
            values: self.values.clone(),
            round: AtomicU64::new(self.round.load(Ordering::Relaxed)),
        }
    }
}

/// One named index.
pub(super) struct Index<T, K> {
    pub(super) id: u64,
    pub(super) name: Arc<str>,
    pub(super) func: IndexFunc<T>,
    /// False while the objects that were there before the index are being indexed; readers do not see it yet.
    pub(super) ready: bool,
    /// What the function said to a writer while the index was not ready: the addition of the index fails with it, not
    /// the write.
    pub(super) failed: Arc<OnceLock<BoxError>>,
    pub(super) keys: PMap<Arc<str>, PMap<K, ()>>,
}

impl<T, K> Clone for Index<T, K> {
    fn clone(&self) -> Self {
        Index {
            id: self.id,
            name: self.name.clone(),
            func: self.func.clone(),
            ready: self.ready,
            failed: self.failed.clone(),
            keys: self.keys.clone(),
        }
    }
}

impl<T, K> Index<T, K> {
    pub(super) fn new(id: u64, name: Arc<str>, func: IndexFunc<T>) -> Self {
        Index { id, name, func, ready: false, failed: Arc::default(), keys: PMap::new() }
    }

    /// The same index of nothing.
    pub(super) fn emptied(&self) -> Self {
        Index { keys: PMap::new(), ..self.clone() }
    }

    /// Runs the index function: user code, so under no lock. Sorted, each value once. A panic is an error.
    pub(super) fn values_of(&self, object: &T) -> Result<Vec<String>, IndexError> {
        match catch(|| (self.func)(object)) {
            Ok(mut values) => {
                values.sort_unstable();
                values.dedup();
                Ok(values)
            }
            Err(source) => Err(IndexError { index: self.name.clone(), source }),
        }
    }
}

/// A version of the store. Immutable once published.
pub(super) struct State<T, K> {
    pub(super) objects: PMap<K, Stored<T>>,
    pub(super) indices: Vec<Index<T, K>>,
    /// Changes whenever an index is added or removed.
    pub(super) generation: u64,
    pub(super) version: ResourceVersion,
}

impl<T, K> Clone for State<T, K> {
    fn clone(&self) -> Self {
        State {
            objects: self.objects.clone(),
            indices: self.indices.clone(),
            generation: self.generation,
            version: self.version.clone(),
        }
    }
}

/// The values of one object under each index: computed before any lock is taken.
pub(super) type Computed = Vec<(u64, Vec<String>)>;

/// What was replaced. Kept until no lock is held, because it may be the last owner of a user's object.
pub(super) type Garbage<T, K> = Vec<Arc<Entry<K, Stored<T>>>>;

/// What a key had before a write.
pub(in crate::informer) struct Before<T> {
    pub(in crate::informer) object: Option<Arc<T>>,
    pub(in crate::informer) round: u64,
}

impl<T, K> State<T, K> {
    pub(super) fn new() -> Self {
        State { objects: PMap::new(), indices: Vec::new(), generation: 0, version: ResourceVersion::UNSET }
    }

    pub(super) fn index(&self, name: &str) -> Option<&Index<T, K>> {
        self.indices.iter().find(|index| index.ready && *index.name == *name)
    }

    /// Runs the index functions: user code, so under no lock.
    pub(super) fn compute(&self, object: &T) -> Result<Computed, IndexError> {
        let mut computed = Vec::with_capacity(self.indices.len());
        for index in &self.indices {
            match index.values_of(object) {
                Ok(values) => computed.push((index.id, values)),
                Err(error) if index.ready => return Err(error),
                Err(error) => drop(index.failed.set(error.source)),
            }
        }
        Ok(computed)
    }
}

impl<T, K: Hash + Eq + Clone> State<T, K> {
    pub(super) fn put<S: BuildHasher>(
        &mut self,
        hasher: &S,
        key: K,
        object: Arc<T>,
        computed: Computed,
        round: u64,
        garbage: &mut Garbage<T, K>,
    ) -> Before<T> {
        let hash = hasher.hash_one(&key);
        let old = self.objects.get(hash, &key).cloned();
        let values = self.reindex(hasher, hash, &key, old.as_ref().map_or(&[], |old| &old.value.values), computed);
        // A key that is new has missed no Resync; one that was there keeps what it is owed.
        let round = old.as_ref().map_or(round, |old| old.value.round.load(Ordering::Relaxed));
        garbage.extend(self.objects.insert(hash, key, Stored { object, values, round: AtomicU64::new(round) }));
        Before { object: old.map(|old| old.value.object.clone()), round }
    }

    pub(super) fn remove<S: BuildHasher>(
        &mut self,
        hasher: &S,
        key: &K,
        round: u64,
        garbage: &mut Garbage<T, K>,
    ) -> Before<T> {
        let hash = hasher.hash_one(key);
        let Some(old) = self.objects.remove(hash, key) else { return Before { object: None, round } };
        self.reindex(hasher, hash, key, &old.value.values, Vec::new());
        let before = Before { object: Some(old.value.object.clone()), round };
        garbage.push(old);
        before
    }

    /// Reads a key and notes that Resync rounds up to `round` are delivered with this reading. No new version is made.
    pub(super) fn touch<S: BuildHasher>(&self, hasher: &S, key: &K, round: u64) -> Before<T> {
        match self.objects.get(hasher.hash_one(key), key) {
            None => Before { object: None, round },
            Some(entry) => {
                let stored = &entry.value;
                // Relaxed: only the holder of the key's claim comes here, and claims of a key follow one another.
                Before { object: Some(stored.object.clone()), round: stored.round.swap(round, Ordering::Relaxed) }
            }
        }
    }

    /// Gives an object that was there before index `id` its values under it, unless it has them by now.
    pub(super) fn backfill<S: BuildHasher>(
        &mut self,
        hasher: &S,
        seen: &Arc<Entry<K, Stored<T>>>,
        mut computed: Computed,
        garbage: &mut Garbage<T, K>,
    ) {
        let hash = hasher.hash_one(&seen.key);
        match self.objects.get(hash, &seen.key) {
            Some(now) if Arc::ptr_eq(now, seen) => {}
            // Written or removed since: the writer knew the index.
            _ => return,
        }
        // The values under the other indices stay.
        for (id, values) in &seen.value.values {
            if computed.iter().all(|(new_id, _)| new_id != id) {
                computed.push((*id, values.iter().map(|value| (**value).to_owned()).collect()));
            }
        }
        let values = self.reindex(hasher, hash, &seen.key, &seen.value.values, computed);
        let stored = Stored { values, ..seen.value.clone() };
        garbage.extend(self.objects.insert(hash, seen.key.clone(), stored));
    }

    /// Moves a key from its old values to its new ones in every index; returns the new values for keeping. All old
    /// values that are gone go first, then all new ones come: never pairwise.
    fn reindex<S: BuildHasher>(
        &mut self,
        hasher: &S,
        hash: u64,
        key: &K,
        old: &[IndexValues],
        computed: Computed,
    ) -> Box<[IndexValues]> {
        for (id, old_values) in old {
            let Some(index) = self.indices.iter_mut().find(|index| index.id == *id) else { continue };
            let new_values = computed.iter().find(|(new_id, _)| new_id == id).map_or(&[][..], |(_, values)| values);
            for value in old_values {
                if new_values.binary_search_by(|new| (**new).cmp(value)).is_ok() {
                    continue;
                }
                let value_hash = hasher.hash_one(&**value);
                if let Some(keys) = index.keys.get_mut(value_hash, &**value) {
                    keys.remove(hash, key);
                    if keys.is_empty() {
                        index.keys.remove(value_hash, &**value);
                    }
                }
            }
        }
        let mut kept = Vec::with_capacity(computed.len());
        for (id, new_values) in computed {
            let Some(index) = self.indices.iter_mut().find(|index| index.id == id) else { continue };
            let old_values = old.iter().find(|(old_id, _)| *old_id == id).map_or(&[][..], |(_, values)| values);
            let mut values = Vec::with_capacity(new_values.len());
            for value in new_values {
                if let Ok(at) = old_values.binary_search_by(|old| (**old).cmp(&*value)) {
                    values.push(old_values[at].clone());
                    continue;
                }
                let value_hash = hasher.hash_one(&*value);
                // One text for all objects that share the value.
                let shared = index.keys.get(value_hash, &*value).map(|entry| entry.key.clone());
                let value: Arc<str> = shared.clone().unwrap_or_else(|| value.into());
                if shared.is_none() {
                    index.keys.insert(value_hash, value.clone(), PMap::new());
                }
                if let Some(keys) = index.keys.get_mut(value_hash, &*value) {
                    keys.insert(hash, key.clone(), ());
                }
                values.push(value);
            }
            if !values.is_empty() {
                kept.push((id, values.into_boxed_slice()));
            }
        }
        kept.into_boxed_slice()
    }
}

//! The algorithm: what each operation does to the state. No locks and no waiting here; the calls do all of it
//! under the one mutex. The rule numbers are those of `docs/semantics.md`.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::Arc;

use crate::compress::Compression;
use crate::delta::{Deleted, DeletedFinalStateUnknown, Delta, Deltas};
use crate::error::{PushError, TransformError};
use crate::key::{BoxError, KeyError, KeyFn};
use crate::known::KnownObjects;
use crate::queue::Limits;

use super::claim::Popped;

pub(super) type TransformFn<T> = Box<dyn Fn(Arc<T>) -> Result<Arc<T>, BoxError> + Send + Sync>;

/// A list with its keys.
pub(super) type Prepared<T, K> = Vec<(K, Arc<T>)>;

/// What the builder gathers. Nothing of it changes later.
pub(super) struct Options<T, K> {
    pub(super) key_fn: KeyFn<T, K>,
    pub(super) known: Known<T, K>,
    pub(super) emit_replaced: bool,
    pub(super) transform: Option<TransformFn<T>>,
    pub(super) compression: Compression<T, K>,
    pub(super) limits: Limits,
    pub(super) name: Cow<'static, str>,
}

/// Where the queue learns what the consumer has applied.
pub(super) enum Known<T, K> {
    /// It does not.
    Nothing,
    /// From the consumer's store.
    Store(Box<dyn KnownObjects<T, K>>),
    /// From its own memory of what was released, `State::released`.
    Embedded,
}

/// All that changes.
///
/// A key is in `items` exactly when it has pending deltas or is claimed, and in `queue`, once, exactly when it has
/// pending deltas and is not claimed.
pub(super) struct State<T, K, S> {
    items: HashMap<K, Item<T, K>, S>,
    queue: VecDeque<K>,
    /// Embedded store: the object of each key that was released last.
    released: HashMap<K, Arc<T>, S>,
    /// The deltas in all `Item::pending`.
    deltas: usize,
    /// The keys that have pending deltas.
    keys: usize,
    /// Some producer has called (A5.1).
    populated: bool,
    /// The keys of the first Replace that are not processed yet.
    remaining: usize,
    pub(super) synced: bool,
    pub(super) closed: bool,
}

struct Item<T, K> {
    pending: Deltas<T, K>,
    /// `pending` holds a delta of the first Replace.
    initial: bool,
    /// The newest delta of the claim that holds the key now.
    claimed: Option<Delta<T, K>>,
}

/// A delta on its way into the queue.
pub(super) struct Push<T, K> {
    pub(super) key: K,
    pub(super) delta: Delta<T, K>,
}

impl<T, K> Options<T, K> {
    /// A3.1
    pub(super) fn key_of(&self, object: &Arc<T>) -> Result<K, KeyError<T>> {
        self.key_fn.key_of(object).map_err(|source| KeyError { object: object.clone(), source })
    }

    /// A3.2
    pub(super) fn transform(&self, object: &Arc<T>) -> Result<Arc<T>, TransformError<T>> {
        match &self.transform {
            None => Ok(object.clone()),
            Some(transform) => {
                transform(object.clone()).map_err(|source| TransformError { object: object.clone(), source })
            }
        }
    }
}

impl<T, K: Clone + Eq + Hash, S: BuildHasher + Clone> State<T, K, S> {
    pub(super) fn new(hasher: S) -> Self {
        State {
            items: HashMap::with_hasher(hasher.clone()),
            queue: VecDeque::new(),
            released: HashMap::with_hasher(hasher),
            deltas: 0,
            keys: 0,
            populated: false,
            remaining: 0,
            synced: false,
            closed: false,
        }
    }

    // ---- views ----

    pub(super) fn queue(&self) -> &VecDeque<K> {
        &self.queue
    }

    pub(super) fn pending(&self, key: &K) -> Option<&Deltas<T, K>> {
        self.items.get(key).map(|item| &item.pending).filter(|pending| !pending.is_empty())
    }

    pub(super) fn released(&self) -> &HashMap<K, Arc<T>, S> {
        &self.released
    }

    /// The keys with pending deltas: the queued ones in order, then the claimed ones that are dirty.
    pub(super) fn pending_keys(&self) -> Vec<K> {
        let dirty = |item: &Item<T, K>| item.claimed.is_some() && !item.pending.is_empty();
        let dirty = self.items.iter().filter(|(_, item)| dirty(item)).map(|(key, _)| key);
        self.queue.iter().chain(dirty).cloned().collect()
    }

    /// What the waiters for a sync, for a drain and for a key look at.
    pub(super) fn signals(&self) -> (bool, bool, bool) {
        (self.synced, self.is_drained(), self.queue.is_empty())
    }

    /// Nothing is queued and nothing is claimed.
    pub(super) fn is_drained(&self) -> bool {
        self.items.is_empty()
    }

    // ---- append ----

    /// A4, A3.3, A3.4. The place of a key that is queued already does not change; a claimed key is queued by the
    /// end of its claim.
    fn append(&mut self, options: &Options<T, K>, key: K, delta: Delta<T, K>) {
        let item =
            self.items.entry(key.clone()).or_insert(Item { pending: Deltas::new(), initial: false, claimed: None });
        let before = item.pending.len();
        append(options, &mut item.pending, delta);
        self.deltas = self.deltas + item.pending.len() - before;
        if before == 0 {
            self.keys += 1;
            if item.claimed.is_none() {
                self.queue.push_back(key);
            }
        }
    }

    /// Whether the limits let the delta in. After a close they let everything in: nobody may be left to make room.
    pub(super) fn has_room(&self, options: &Options<T, K>, push: &Push<T, K>) -> bool {
        let Limits { keys, deltas } = options.limits;
        if self.closed || options.limits == Limits::default() {
            return true;
        }
        match self.pending(&push.key) {
            None => keys.is_none_or(|limit| self.keys < limit) && deltas.is_none_or(|limit| self.deltas < limit),
            Some(pending) => {
                let grows = options.compression.append_rule().grows(pending, &push.delta);
                !grows || deltas.is_none_or(|limit| self.deltas < limit)
            }
        }
    }

    /// The same for a Replace, which goes in as a whole: it may start while anything fits.
    pub(super) fn has_room_for_replace(&self, options: &Options<T, K>) -> bool {
        let Limits { keys, deltas } = options.limits;
        self.closed || (keys.is_none_or(|limit| self.keys < limit) && deltas.is_none_or(|limit| self.deltas < limit))
    }

    // ---- add, update, delete ----

    /// A5.1: the call makes the queue populated first of all, even if its object is then refused.
    pub(super) fn prepare_put(
        &mut self,
        options: &Options<T, K>,
        object: &Arc<T>,
        delta: fn(Arc<T>) -> Delta<T, K>,
    ) -> Result<Push<T, K>, PushError<T>> {
        self.populate();
        let key = options.key_of(object).map_err(PushError::Key)?;
        let object = options.transform(object).map_err(PushError::Transform)?;
        Ok(Push { key, delta: delta(object) })
    }

    pub(super) fn put(&mut self, options: &Options<T, K>, push: Push<T, K>) {
        self.append(options, push.key, push.delta);
    }

    /// A6.1: an object without a key leaves everything as it was. `None`: there is nothing to delete.
    pub(super) fn prepare_delete(
        &mut self,
        options: &Options<T, K>,
        object: &Arc<T>,
    ) -> Result<Option<Push<T, K>>, PushError<T>> {
        let key = options.key_of(object).map_err(PushError::Key)?;
        self.populate();
        if !self.exists(options, &key) {
            return Ok(None);
        }
        let object = options.transform(object).map_err(PushError::Transform)?;
        Ok(Some(Push { key, delta: Delta::Deleted(Deleted::Observed(object)) }))
    }

    /// A6.7: a tombstone has its key with it and is not transformed.
    pub(super) fn prepare_tombstone(&mut self, key: K, object: Option<Arc<T>>) -> Push<T, K> {
        self.populate();
        Push { delta: tombstone(key.clone(), object), key }
    }

    /// A6.3, A6.4, A6.5
    pub(super) fn delete(&mut self, options: &Options<T, K>, push: Push<T, K>) {
        if self.exists(options, &push.key) {
            self.append(options, push.key, push.delta);
        }
    }

    /// Whether a deletion of this key tells the consumer anything (A6.3, A6.4). While a key is claimed its claim
    /// decides, because the consumer's store may not show yet what the claim does.
    pub(super) fn exists(&self, options: &Options<T, K>, key: &K) -> bool {
        match self.items.get(key) {
            Some(item) => !item.is_gone(),
            None => !matches!(self.get_known(options, key), Ok(None)),
        }
    }

    // ---- replace, resync ----

    /// All keys and transformed objects of the list, or the first refusal: nothing is queued then (client-go keeps
    /// the part of the list before the refused object, A7.1).
    pub(super) fn prepare_replace(
        &self,
        options: &Options<T, K>,
        list: &[Arc<T>],
    ) -> Result<Prepared<T, K>, (usize, PushError<T>)> {
        let mut keys = Vec::with_capacity(list.len());
        for (index, object) in list.iter().enumerate() {
            keys.push(options.key_of(object).map_err(|error| (index, PushError::Key(error)))?);
        }
        let mut prepared = Vec::with_capacity(list.len());
        for (index, (key, object)) in keys.into_iter().zip(list).enumerate() {
            let object = options.transform(object).map_err(|error| (index, PushError::Transform(error)))?;
            prepared.push((key, object));
        }
        Ok(prepared)
    }

    /// A7
    pub(super) fn replace(&mut self, options: &Options<T, K>, list: Prepared<T, K>) {
        let mut touched = HashSet::with_hasher(self.items.hasher().clone());
        for (key, object) in list {
            touched.insert(key.clone());
            let delta = if options.emit_replaced { Delta::Replaced(object) } else { Delta::Sync(object) };
            self.append(options, key, delta);
        }
        // A7.2. The keys that are queued or claimed and not in the list.
        let missing: Vec<K> = self
            .items
            .iter()
            .filter(|(key, item)| !touched.contains(*key) && !item.is_gone())
            .map(|(key, _)| key.clone())
            .collect();
        for key in missing {
            let object = self.items[&key].newest().and_then(Delta::object).cloned();
            touched.insert(key.clone());
            self.append(options, key.clone(), tombstone(key, object));
        }
        // A7.3. The keys that only the consumer has.
        for key in self.known_keys(options) {
            if touched.contains(&key) || self.items.contains_key(&key) {
                continue;
            }
            let object = self.get_known(options, &key).ok().flatten();
            touched.insert(key.clone());
            self.append(options, key.clone(), tombstone(key, object));
        }
        // A7.4, counted by identity.
        if !self.populated {
            self.remaining = touched.len();
            for key in &touched {
                self.items.get_mut(key).expect("each touched key has a pending delta").initial = true;
            }
        }
        self.populate();
    }

    /// A8. A key that is queued or claimed is left alone: what it holds is as new as the store, or newer.
    pub(super) fn resync(&mut self, options: &Options<T, K>) -> Result<(), KeyError<T>> {
        for key in self.known_keys(options) {
            let Ok(Some(object)) = self.get_known(options, &key) else { continue };
            let key = options.key_of(&object)?;
            if !self.items.contains_key(&key) {
                self.append(options, key, Delta::Sync(object));
            }
        }
        Ok(())
    }

    fn known_keys(&self, options: &Options<T, K>) -> Vec<K> {
        match &options.known {
            Known::Nothing => Vec::new(),
            Known::Store(store) => store.list_keys(),
            Known::Embedded => self.released.keys().cloned().collect(),
        }
    }

    fn get_known(&self, options: &Options<T, K>, key: &K) -> Result<Option<Arc<T>>, BoxError> {
        match &options.known {
            Known::Nothing => Ok(None),
            Known::Store(store) => store.get_by_key(key),
            Known::Embedded => Ok(self.released.get(key).cloned()),
        }
    }

    // ---- take, release ----

    /// The oldest key with all its deltas. A key that the user's compression leaves nothing of is processed.
    pub(super) fn take(&mut self, options: &Options<T, K>) -> Option<Popped<T, K>> {
        loop {
            let popped = self.take_at(options, 0)?;
            if !popped.deltas.is_empty() {
                return Some(popped);
            }
            self.release(options, &popped.key, popped.counted);
        }
    }

    /// This key with all its deltas, wherever it is in the queue.
    pub(super) fn take_key(&mut self, options: &Options<T, K>, key: &K) -> Option<Popped<T, K>> {
        let index = self.queue.iter().position(|queued| queued == key)?;
        let popped = self.take_at(options, index)?;
        if popped.deltas.is_empty() {
            self.release(options, key, popped.counted);
            return None;
        }
        Some(popped)
    }

    fn take_at(&mut self, options: &Options<T, K>, index: usize) -> Option<Popped<T, K>> {
        let key = self.queue.get(index)?.clone();
        let item = self.items.get_mut(&key).expect("a queued key has an item");
        // On a copy and before anything changes: if the user's function panics, all is as it was.
        let compressed = match &options.compression {
            Compression::Custom(compress) => Some(compress(&key, item.pending.clone())),
            Compression::ClientGo | Compression::KeepLatest => None,
        };
        let pending = mem::take(&mut item.pending);
        let counted = mem::take(&mut item.initial);
        self.deltas -= pending.len();
        self.keys -= 1;
        self.queue.remove(index);
        // Before the user's compression: that decides what the consumer is shown, not what the queue knows.
        item.claimed = pending.newest().cloned();
        let deltas = compressed.unwrap_or(pending);
        Some(Popped { key, deltas, is_initial: counted || !self.populated, counted })
    }

    /// The claim's deltas are processed.
    pub(super) fn release(&mut self, options: &Options<T, K>, key: &K, counted: bool) {
        let Entry::Occupied(mut item) = self.items.entry(key.clone()) else { panic!("a claimed key has an item") };
        let newest = item.get_mut().claimed.take().expect("the key is claimed");
        if item.get().pending.is_empty() {
            item.remove();
        } else {
            self.queue.push_back(key.clone());
        }
        if matches!(options.known, Known::Embedded) {
            match newest {
                Delta::Deleted(_) => self.released.remove(key),
                Delta::Added(o) | Delta::Updated(o) | Delta::Replaced(o) | Delta::Sync(o) => {
                    self.released.insert(key.clone(), o)
                }
            };
        }
        self.finish(counted);
    }

    /// The claim's deltas go back in front of the newer ones of their key, and the key to the tail.
    pub(super) fn requeue(&mut self, options: &Options<T, K>, key: &K, mut deltas: Deltas<T, K>, counted: bool) {
        if deltas.is_empty() {
            // The handler took them, so there is nothing to put back.
            return self.release(options, key, counted);
        }
        let item = self.items.get_mut(key).expect("a claimed key has an item");
        item.claimed = None;
        let newer = mem::take(&mut item.pending);
        let before = newer.len();
        for delta in newer {
            append(options, &mut deltas, delta);
        }
        self.deltas = self.deltas + deltas.len() - before;
        self.keys += usize::from(before == 0);
        item.pending = deltas;
        item.initial |= counted;
        self.queue.push_back(key.clone());
    }

    fn finish(&mut self, counted: bool) {
        self.remaining -= usize::from(counted);
        self.latch();
    }

    fn populate(&mut self) {
        self.populated = true;
        self.latch();
    }

    /// One way. Called after every change of what it reads.
    fn latch(&mut self) {
        self.synced |= self.populated && self.remaining == 0;
    }
}

impl<T, K> Item<T, K> {
    /// What the queue has seen last of this key.
    fn newest(&self) -> Option<&Delta<T, K>> {
        self.pending.newest().or(self.claimed.as_ref())
    }

    /// The claim that runs now deletes the object, and nothing has come since.
    fn is_gone(&self) -> bool {
        self.pending.is_empty() && self.claimed.as_ref().is_some_and(Delta::is_deleted)
    }
}

fn append<T, K: Clone>(options: &Options<T, K>, deltas: &mut Deltas<T, K>, delta: Delta<T, K>) {
    let mut fallen_away = Deltas::new();
    options.compression.append_rule().append(deltas, delta, &mut fallen_away, Vec::new);
}

/// Tombstones never nest: `object` is what the newest delta holds, also where that is a tombstone itself.
fn tombstone<T, K>(key: K, object: Option<Arc<T>>) -> Delta<T, K> {
    Delta::Deleted(Deleted::FinalStateUnknown(Arc::new(DeletedFinalStateUnknown { key, object })))
}

//! What was delivered, written down key by key, and checked against what the queue promises.
//!
//! ```text
//!   producers: (writer, key, seq) ──► queue ──► claim ──► Account::check ──► handler ──► Account::book
//!                                                (prefix, Sync, order)        (may panic)   (only on success)
//! ```
//!
//! Every object carries its writer and two counts of that writer for that key, so the stream of one key can be
//! checked with no knowledge of how threads interleaved.

// The soak example uses a part of this.
#![allow(dead_code, unreachable_pub, missing_debug_implementations)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use delta_fifo::{BoxError, Delta, DeltaType, Deltas, KnownObjects};

pub type Key = u32;

/// One state of one key, as one writer reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub key: Key,
    pub writer: usize,
    /// The number of this call among all calls of the writer for the key.
    pub seq: u32,
    /// The number of this call among its adds and updates.
    pub update: u32,
    /// The writer deleted the key between its previous update and this one.
    pub after_delete: bool,
    /// Nanoseconds from the start of the run.
    pub at: u64,
}

/// The consumer's store: one cell per key.
pub struct Store(Vec<Mutex<Option<Arc<Object>>>>);

impl Store {
    pub fn new(keys: Key) -> Store {
        Store((0..keys).map(|_| Mutex::new(None)).collect())
    }

    fn cell(&self, key: Key) -> MutexGuard<'_, Option<Arc<Object>>> {
        self.0[key as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: Key) -> Option<Arc<Object>> {
        self.cell(key).clone()
    }

    pub fn apply(&self, key: Key, delta: &Delta<Object, Key>) {
        *self.cell(key) = if delta.is_deleted() { None } else { delta.object().cloned() };
    }
}

impl KnownObjects<Object, Key> for Store {
    fn list_keys(&self) -> Vec<Key> {
        (0..self.0.len() as Key).filter(|key| self.cell(*key).is_some()).collect()
    }

    fn get_by_key(&self, key: &Key) -> Result<Option<Arc<Object>>, BoxError> {
        Ok(self.get(*key))
    }
}

/// What one writer has reported so far of one key. Only the writer itself writes it.
#[derive(Default)]
pub struct Issued {
    pub seq: AtomicU32,
    pub update: AtomicU32,
    deleted: AtomicU32,
}

impl Issued {
    /// The next update. It counts when [`confirm_update`](Self::confirm_update) is called.
    pub fn update(&self, key: Key, writer: usize, at: u64) -> Object {
        // Relaxed here and below: one writer; readers come after its thread was joined.
        let (seq, update) = (self.seq.load(Ordering::Relaxed) + 1, self.update.load(Ordering::Relaxed) + 1);
        let after_delete = update > 1 && self.deleted.load(Ordering::Relaxed) != 0;
        Object { key, writer, seq, update, after_delete, at }
    }

    /// Before the call, because a consumer may be quicker than its return.
    pub fn confirm_update(&self) {
        self.seq.fetch_add(1, Ordering::Relaxed);
        self.update.fetch_add(1, Ordering::Relaxed);
        self.deleted.store(0, Ordering::Relaxed);
    }

    pub fn delete(&self, key: Key, writer: usize, at: u64) -> Object {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        self.deleted.store(1, Ordering::Relaxed);
        Object { key, writer, seq, update: self.update.load(Ordering::Relaxed), after_delete: false, at }
    }
}

/// What was delivered of one key.
struct Delivered {
    state: Option<Arc<Object>>,
    writers: Vec<Writer>,
    /// The updates of the last claim, if it went back to the queue: they come first in the next one.
    put_back: Vec<(usize, u32)>,
}

#[derive(Clone)]
struct Writer {
    seq: u32,
    update: u32,
    /// A deletion was delivered after its last update.
    deleted: bool,
}

pub struct Account {
    keys: Vec<Mutex<Delivered>>,
    /// All updates arrive, one by one. Else (`KeepLatest`) only the newest has to.
    every_update: bool,
    /// Whose updates may be left out: a list's objects give way to what a producer reports meanwhile.
    lister: usize,
    violations: Mutex<Vec<String>>,
}

impl Account {
    pub fn new(keys: Key, writers: usize, lister: usize, every_update: bool) -> Account {
        let writer = Writer { seq: 0, update: 0, deleted: true };
        let delivered = || Delivered { state: None, writers: vec![writer.clone(); writers], put_back: Vec::new() };
        Account {
            keys: (0..keys).map(|_| Mutex::new(delivered())).collect(),
            every_update,
            lister,
            violations: Mutex::new(Vec::new()),
        }
    }

    pub fn violation(&self, text: String) {
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        if violations.len() < 20 {
            violations.push(text);
        }
    }

    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the key; a second owner at the same time is a violation by itself.
    pub fn hold(&self, key: Key) -> Held<'_> {
        let delivered = match self.keys[key as usize].try_lock() {
            Ok(delivered) => delivered,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => {
                self.violation(format!("two claims of key {key} at the same time"));
                self.keys[key as usize].lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        Held { account: self, key, delivered }
    }

    /// The state of a key after everything that was processed.
    pub fn state(&self, key: Key) -> Option<Arc<Object>> {
        self.hold(key).delivered.state.clone()
    }

    /// The number of the last update of `writer` that was processed.
    pub fn last_update(&self, key: Key, writer: usize) -> u32 {
        self.hold(key).delivered.writers[writer].update
    }
}

/// Exclusive access to the books of a key, for as long as its claim.
pub struct Held<'a> {
    account: &'a Account,
    key: Key,
    delivered: MutexGuard<'a, Delivered>,
}

fn updates(deltas: &[Delta<Object, Key>]) -> Vec<(usize, u32)> {
    let objects = deltas.iter().filter(|delta| !delta.is_deleted()).filter_map(Delta::object);
    objects.map(|object| (object.writer, object.update)).collect()
}

impl Held<'_> {
    /// Checks what a claim shows before it is processed.
    pub fn check(&self, deltas: &Deltas<Object, Key>) {
        let (account, key) = (self.account, self.key);
        if deltas.is_empty() {
            account.violation(format!("a claim of key {key} without deltas"));
        }
        if account.every_update && !updates(deltas).starts_with(&self.delivered.put_back) {
            let put_back = &self.delivered.put_back;
            account.violation(format!("key {key}: {put_back:?} were put back, but the next claim has {deltas:?}"));
        }
        if !account.every_update && deltas.len() > 3 {
            account.violation(format!("key {key}: KeepLatest shows {} deltas", deltas.len()));
        }
        for (i, delta) in deltas.iter().enumerate() {
            if delta.object().is_some_and(|object| object.key != key) {
                account.violation(format!("key {key} was handed {delta:?}"));
            }
            // A Resync queues only idle keys, so nothing can stand before its delta, and nothing newer was processed.
            if delta.delta_type() == DeltaType::Sync && (i != 0 || delta.object() != self.delivered.state.as_ref()) {
                let state = &self.delivered.state;
                account.violation(format!("key {key}: {delta:?} at place {i}, but what was processed is {state:?}"));
            }
        }
    }

    /// The claim goes back to the queue.
    pub fn put_back(&mut self, deltas: &[Delta<Object, Key>]) {
        self.delivered.put_back = updates(deltas);
    }

    /// The claim was processed.
    pub fn book(&mut self, deltas: &[Delta<Object, Key>]) {
        let (account, key) = (self.account, self.key);
        self.delivered.put_back.clear();
        for delta in deltas {
            if delta.is_deleted() {
                self.delivered.writers.iter_mut().for_each(|writer| writer.deleted = true);
                self.delivered.state = None;
                if let Delta::Deleted(delta_fifo::Deleted::Observed(object)) = delta {
                    let writer = &mut self.delivered.writers[object.writer];
                    if object.seq <= writer.seq {
                        account.violation(format!("key {key}: {delta:?} came after number {}", writer.seq));
                    }
                    writer.seq = object.seq;
                }
                continue;
            }
            let object = delta.object().expect("only a tombstone may be without an object").clone();
            self.delivered.state = Some(object.clone());
            if delta.delta_type() == DeltaType::Sync {
                continue;
            }
            let writer = &mut self.delivered.writers[object.writer];
            let next = writer.update + 1;
            let every_update = account.every_update && object.writer != account.lister;
            if object.seq <= writer.seq || object.update < next || (every_update && object.update != next) {
                account.violation(format!("key {key}: expected update {next} of its writer, got {delta:?}"));
            }
            if object.after_delete && !writer.deleted {
                account.violation(format!("key {key}: the deletion before {delta:?} was not delivered"));
            }
            *writer = Writer { seq: object.seq, update: object.update, deleted: false };
        }
    }
}

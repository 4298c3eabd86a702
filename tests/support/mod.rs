//! What the tests of the queue share: an object, a consumer's store, and one trait over the engine and the baseline,
//! so that a test is written once and runs on both.

// Each test program uses its own part of this file.
#![allow(dead_code, unreachable_pub, missing_debug_implementations)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delta_fifo::baseline::MutexFifo;
use delta_fifo::{
    BoxError, Compression, DefaultHashBuilder, Deleted, Delta, DeltaFifo, Deltas, KnownObjects, Limits, TryPopError,
    TryPushError, TryReplaceError,
};

/// The name that has no key.
pub const NO_KEY: &str = "bad";

/// The name that the transformer of [`Config::transform`] refuses.
pub const UNFIT: &str = "unfit";

/// An object: the key is its name, the version tells its states apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    pub name: String,
    pub rv: u64,
    /// How often the transformer has seen it.
    pub transformed: u32,
}

impl Object {
    pub fn new(name: &str, rv: u64) -> Arc<Object> {
        Arc::new(Object { name: name.to_owned(), rv, transformed: 0 })
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.rv)?;
        (0..self.transformed).try_for_each(|_| f.write_str("'"))
    }
}

/// An object in short.
pub fn o(name: &str, rv: u64) -> Arc<Object> {
    Object::new(name, rv)
}

/// Deltas in short: `Added a@1`, `Deleted a@1`, and for a tombstone `Deleted(a: a@1)` or `Deleted(a)`.
pub fn names(deltas: &[Delta<Object, String>]) -> Vec<String> {
    let name = |delta: &Delta<Object, String>| match (delta, delta.object()) {
        (Delta::Deleted(Deleted::FinalStateUnknown(tombstone)), Some(object)) => {
            format!("Deleted({}: {object:?})", tombstone.key)
        }
        (Delta::Deleted(Deleted::FinalStateUnknown(tombstone)), None) => format!("Deleted({})", tombstone.key),
        (delta, object) => format!("{} {:?}", delta.delta_type(), object.expect("only a tombstone has none")),
    };
    deltas.iter().map(name).collect()
}

/// client-go's tests have such a key function: by name, with one name that fails.
pub fn key_of(object: &Object) -> Result<String, String> {
    if object.name == NO_KEY { Err(format!("{object:?} has no key")) } else { Ok(object.name.clone()) }
}

/// The consumer's store. Its keys are listed in ascending order.
#[derive(Default)]
pub struct Store {
    objects: Mutex<BTreeMap<String, Arc<Object>>>,
    /// Keys that are listed even if there is no object.
    ghosts: BTreeSet<String>,
    /// Keys whose lookup fails.
    broken: Mutex<BTreeSet<String>>,
}

impl Store {
    /// A store with these objects.
    pub fn of(objects: &[Arc<Object>]) -> Arc<Store> {
        let store = Store::default();
        store.objects().extend(objects.iter().map(|object| (object.name.clone(), object.clone())));
        Arc::new(store)
    }

    /// A store with ghosts: listed keys without an object.
    pub fn with_ghosts(ghosts: impl IntoIterator<Item = String>) -> Store {
        Store { ghosts: ghosts.into_iter().collect(), ..Store::default() }
    }

    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Object>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the lookup of this key fails.
    pub fn break_lookup(&self, key: &str) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
    }

    /// Applies what a claim carries, oldest first: a deletion removes the key, all else puts the object.
    pub fn apply(&self, key: &str, deltas: &[Delta<Object, String>]) {
        let mut objects = self.objects();
        for delta in deltas {
            match delta {
                Delta::Deleted(_) => objects.remove(key),
                Delta::Added(o) | Delta::Updated(o) | Delta::Replaced(o) | Delta::Sync(o) => {
                    objects.insert(key.to_owned(), o.clone())
                }
            };
        }
    }
}

impl KnownObjects<Object, String> for Store {
    fn list_keys(&self) -> Vec<String> {
        let keys: BTreeSet<String> = self.objects().keys().chain(&self.ghosts).cloned().collect();
        keys.into_iter().collect()
    }

    fn get_by_key(&self, key: &String) -> Result<Option<Arc<Object>>, BoxError> {
        if self.broken.lock().unwrap_or_else(PoisonError::into_inner).contains(key) {
            return Err(format!("the lookup of {key} fails").into());
        }
        Ok(self.objects().get(key).cloned())
    }
}

/// Where a queue under test finds known objects.
#[derive(Clone, Default)]
pub enum Known {
    #[default]
    Nothing,
    Store(Arc<Store>),
    Embedded,
}

/// The options of a queue under test.
#[derive(Clone)]
pub struct Config {
    pub known: Known,
    pub emit_replaced: bool,
    pub transform: bool,
    pub compression: Compression<Object, String>,
    pub limits: Limits,
    pub background_share: Option<NonZeroU32>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            known: Known::Nothing,
            emit_replaced: false,
            transform: false,
            compression: Compression::ClientGo,
            limits: Limits::default(),
            background_share: None,
        }
    }
}

impl Config {
    /// With the consumer's store as known objects.
    pub fn with_store(store: &Arc<Store>) -> Self {
        Config { known: Known::Store(store.clone()), ..Config::default() }
    }
}

/// Marks the object, so that a second run over it would be seen.
fn transform(object: Arc<Object>) -> Result<Arc<Object>, String> {
    if object.name == UNFIT {
        return Err(format!("{object:?} is unfit"));
    }
    Ok(Arc::new(Object { transformed: object.transformed + 1, ..(*object).clone() }))
}

/// Tests that are generic over [`Queue`], run on the engine and on the baseline.
#[macro_export]
macro_rules! on_both {
    ($($(#[$doc:meta])* fn $name:ident<$q:ident: Queue>() $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            fn check<$q: Queue>() $body

            #[test]
            fn engine() {
                check::<delta_fifo::DeltaFifo<Object, String>>();
            }

            #[test]
            fn baseline() {
                check::<delta_fifo::baseline::MutexFifo<Object, String>>();
            }
        }
    )*};
}

/// What became of a producer's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted,
    Full,
    KeyError,
    TransformError,
}

/// Which form of a call is made. The baseline has no async forms; it waits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Try,
    Blocking,
    Async,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Add,
    Update,
    Delete,
}

/// The operations that the engine and the baseline share, with errors reduced to what can be compared.
pub trait Queue: Sized + Send + Sync {
    const NAME: &'static str;
    /// Whether `list_keys` gives the order of the queue.
    const LISTS_IN_ORDER: bool;
    type Claim<'q>: Claimed
    where
        Self: 'q;

    fn with(config: Config) -> Self;
    fn push(&self, verb: Verb, object: Arc<Object>, form: Form) -> Outcome;
    fn push_tombstone(&self, key: &str, object: Option<Arc<Object>>, form: Form) -> Outcome;
    /// The place of the refused object comes with a refusal.
    fn push_list(&self, list: Vec<Arc<Object>>, form: Form) -> (Outcome, Option<usize>);
    fn resync(&self) -> Outcome;
    fn pop_now(&self) -> Result<Self::Claim<'_>, TryPopError>;
    fn pop_batch_now(&self, max: usize) -> Result<Vec<Self::Claim<'_>>, TryPopError>;
    /// Waits. `None`: closed.
    fn pop_wait(&self, form: Form) -> Option<Self::Claim<'_>>;
    fn pop_batch_wait(&self, max: usize, form: Form) -> Option<Vec<Self::Claim<'_>>>;
    fn has_synced(&self) -> bool;
    fn wait_synced(&self) -> bool;
    fn close(&self);
    fn close_and_drain(&self);
    fn is_closed(&self) -> bool;
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool;
    fn list_keys(&self) -> Vec<String>;
    fn get(&self, key: &str) -> Option<Deltas<Object, String>>;
    fn known_object(&self, key: &str) -> Option<Arc<Object>>;
    fn known_keys(&self) -> Vec<String>;

    fn add(&self, object: Arc<Object>) -> Outcome {
        self.push(Verb::Add, object, Form::Try)
    }
    fn update(&self, object: Arc<Object>) -> Outcome {
        self.push(Verb::Update, object, Form::Try)
    }
    fn delete(&self, object: Arc<Object>) -> Outcome {
        self.push(Verb::Delete, object, Form::Try)
    }
    fn delete_final_state_unknown(&self, key: &str, object: Option<Arc<Object>>) -> Outcome {
        self.push_tombstone(key, object, Form::Try)
    }
    fn replace(&self, list: &[Arc<Object>]) -> Outcome {
        self.push_list(list.to_vec(), Form::Try).0
    }
}

/// A claim of the engine or of the baseline.
pub trait Claimed {
    fn key(&self) -> &str;
    fn deltas(&self) -> &Deltas<Object, String>;
    fn take(&mut self) -> Deltas<Object, String>;
    fn is_initial(&self) -> bool;
    fn put_back(self);
    fn finish(self);
}

macro_rules! impl_queue {
    (
        $queue:ident, $claim:ty, $name:literal, in_order: $in_order:literal, lanes: $lanes:expr,
        forms: $block_on:ident($add:ident, $update:ident, $delete:ident, $delete_unknown:ident, $replace:ident, $pop:ident, $pop_batch:ident)
    ) => {
        impl Queue for $queue<Object, String> {
            const NAME: &'static str = $name;
            const LISTS_IN_ORDER: bool = $in_order;
            type Claim<'q> = $claim;

            fn with(config: Config) -> Self {
                let builder = $queue::builder_with_key_fn(key_of)
                    .emit_replaced(config.emit_replaced)
                    .compression(config.compression)
                    .limits(config.limits);
                let builder = match config.known {
                    Known::Nothing => builder,
                    Known::Store(store) => builder.known_objects(store),
                    Known::Embedded => builder.embedded_store(),
                };
                let builder = if config.transform { builder.transform(transform) } else { builder };
                $lanes(builder, config.background_share).build()
            }
            fn push(&self, verb: Verb, object: Arc<Object>, form: Form) -> Outcome {
                let o = object.clone();
                let result = match (verb, form) {
                    (Verb::Add, Form::Try) => self.try_add(o),
                    (Verb::Update, Form::Try) => self.try_update(o),
                    (Verb::Delete, Form::Try) => self.try_delete(o),
                    (Verb::Add, Form::Blocking) => self.add(o).map_err(Into::into),
                    (Verb::Update, Form::Blocking) => self.update(o).map_err(Into::into),
                    (Verb::Delete, Form::Blocking) => self.delete(o).map_err(Into::into),
                    (Verb::Add, Form::Async) => $block_on!(self.$add(o)).map_err(Into::into),
                    (Verb::Update, Form::Async) => $block_on!(self.$update(o)).map_err(Into::into),
                    (Verb::Delete, Form::Async) => $block_on!(self.$delete(o)).map_err(Into::into),
                };
                outcome(result, &object)
            }
            fn push_tombstone(&self, key: &str, object: Option<Arc<Object>>, form: Form) -> Outcome {
                let key = key.to_owned();
                match form {
                    Form::Try => {
                        if let Err(returned) = self.try_delete_final_state_unknown(key.clone(), object.clone()) {
                            let tombstone = returned.tombstone;
                            assert_eq!(
                                (tombstone.key, tombstone.object),
                                (key, object),
                                "what was passed in comes back"
                            );
                            return Outcome::Full;
                        }
                    }
                    Form::Blocking => self.delete_final_state_unknown(key, object),
                    Form::Async => $block_on!(self.$delete_unknown(key, object)),
                }
                Outcome::Accepted
            }
            fn push_list(&self, list: Vec<Arc<Object>>, form: Form) -> (Outcome, Option<usize>) {
                let result = match form {
                    Form::Try => self.try_replace(list.clone()),
                    Form::Blocking => self.replace(list.clone()).map_err(TryReplaceError::Refused),
                    Form::Async => $block_on!(self.$replace(list.clone())).map_err(TryReplaceError::Refused),
                };
                match result {
                    Ok(()) => (Outcome::Accepted, None),
                    Err(TryReplaceError::Full(returned)) => {
                        assert_eq!(returned, list, "the list comes back");
                        (Outcome::Full, None)
                    }
                    Err(TryReplaceError::Refused(error)) => {
                        assert_eq!(error.list, list, "the list comes back");
                        (outcome(Err(error.cause.into()), &list[error.index]), Some(error.index))
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            fn resync(&self) -> Outcome {
                match self.resync() {
                    Ok(()) => Outcome::Accepted,
                    Err(_) => Outcome::KeyError,
                }
            }
            fn pop_now(&self) -> Result<Self::Claim<'_>, TryPopError> {
                self.try_pop()
            }
            fn pop_batch_now(&self, max: usize) -> Result<Vec<Self::Claim<'_>>, TryPopError> {
                self.try_pop_batch(max)
            }
            fn pop_wait(&self, form: Form) -> Option<Self::Claim<'_>> {
                match form {
                    Form::Try => self.pop_timeout(Duration::from_secs(600)).ok(),
                    Form::Blocking => self.pop_blocking().ok(),
                    Form::Async => $block_on!(self.$pop()).ok(),
                }
            }
            fn pop_batch_wait(&self, max: usize, form: Form) -> Option<Vec<Self::Claim<'_>>> {
                match form {
                    Form::Try => self.pop_batch_timeout(max, Duration::from_secs(600)).ok(),
                    Form::Blocking => self.pop_batch_blocking(max).ok(),
                    Form::Async => $block_on!(self.$pop_batch(max)).ok(),
                }
            }
            fn has_synced(&self) -> bool {
                self.has_synced()
            }
            fn wait_synced(&self) -> bool {
                self.wait_synced_blocking()
            }
            fn close(&self) {
                self.close();
            }
            fn close_and_drain(&self) {
                self.close_and_drain_blocking();
            }
            fn is_closed(&self) -> bool {
                self.is_closed()
            }
            fn len(&self) -> usize {
                self.len()
            }
            fn is_empty(&self) -> bool {
                self.is_empty()
            }
            fn list_keys(&self) -> Vec<String> {
                self.list_keys()
            }
            fn get(&self, key: &str) -> Option<Deltas<Object, String>> {
                self.get(&key.to_owned())
            }
            fn known_object(&self, key: &str) -> Option<Arc<Object>> {
                self.known_object(&key.to_owned())
            }
            fn known_keys(&self) -> Vec<String> {
                self.known_keys()
            }
        }

        impl<'q> Claimed for $claim {
            fn key(&self) -> &str {
                self.key()
            }
            fn deltas(&self) -> &Deltas<Object, String> {
                self.deltas()
            }
            fn take(&mut self) -> Deltas<Object, String> {
                self.take_deltas()
            }
            fn is_initial(&self) -> bool {
                self.is_initial()
            }
            fn put_back(self) {
                self.requeue();
            }
            fn finish(self) {
                self.done();
            }
        }
    };
}

/// Reduces an error, after a look at what it carries.
fn outcome(result: Result<(), TryPushError<Object>>, passed_in: &Arc<Object>) -> Outcome {
    let Err(error) = result else { return Outcome::Accepted };
    let outcome = match &error {
        TryPushError::Full(_) => Outcome::Full,
        TryPushError::Key(_) => Outcome::KeyError,
        TryPushError::Transform(_) => Outcome::TransformError,
        error => panic!("{error}"),
    };
    assert_eq!(error.source().is_some(), outcome != Outcome::Full, "A2.5: the cause is in the chain");
    assert!(Arc::ptr_eq(&error.into_object(), passed_in), "what was passed in comes back");
    outcome
}

macro_rules! block_on {
    ($future:expr) => {
        futures_lite::future::block_on($future)
    };
}

/// The baseline waits as it is.
macro_rules! no_future {
    ($result:expr) => {
        $result
    };
}

impl_queue!(
    DeltaFifo,
    delta_fifo::Claim<'q, Object, String, DefaultHashBuilder>,
    "engine",
    in_order: false,
    lanes: |builder: delta_fifo::Builder<Object, String>, share: Option<NonZeroU32>| match share {
        Some(share) => builder.background_share(share),
        None => builder,
    },
    forms: block_on(add_async, update_async, delete_async, delete_final_state_unknown_async, replace_async, pop, pop_batch)
);
impl_queue!(
    MutexFifo,
    delta_fifo::baseline::Claim<'q, Object, String, DefaultHashBuilder>,
    "baseline",
    in_order: true,
    lanes: |builder, _share| builder,
    forms: no_future(add, update, delete, delete_final_state_unknown, replace, pop_blocking, pop_batch_blocking)
);

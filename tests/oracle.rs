//! Random sequences of every operation, under every option, on the engine and on the baseline: all that can be seen
//! must be equal after each step. One thread; what threads do to each other is the models' and the stress test's part.
//!
//! `PROPTEST_CASES=100000 cargo test --release --test oracle` runs longer than the default.
//!
//! Two things the engine leaves open are followed, not compared: the order among keys that one call queued from the
//! embedded store, and which lane a pop serves when there are two.

mod support;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use delta_fifo::baseline::MutexFifo;
use delta_fifo::{Compression, DeltaFifo, Deltas, Limits, TryPopError};
use proptest::prelude::*;

use support::{Claimed, Config, Form, Known, NO_KEY, Object, Outcome, Queue, Store, UNFIT, Verb, o};

type Engine = DeltaFifo<Object, String>;
type Baseline = MutexFifo<Object, String>;

/// The names; the last two are refused by the key function and by the transformer.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", NO_KEY, UNFIT];

// ---- what can happen ----

#[derive(Clone, Debug)]
enum Op {
    Push(Verb, usize, Form),
    PushTombstone(usize, bool, Form),
    Replace(Vec<usize>, Form),
    Resync,
    Pop(Form),
    PopBatch(usize, Form),
    /// Ends one of the claims that are out.
    End(usize, End),
    Close,
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// Processed, and the store shows it.
    Applied,
    /// Processed, but the store lags.
    Lagging,
    Requeued,
    /// The handler panics.
    Panicked,
    /// The handler takes the deltas, and then they cannot be requeued.
    TakenAndRequeued,
    TakenAndDone,
}

#[derive(Clone, Debug)]
struct Options {
    known: KnownKind,
    emit_replaced: bool,
    transform: bool,
    compression: CompressionKind,
    limits: Limits,
    background_share: Option<NonZeroU32>,
    /// What the consumer's store holds at the start.
    stored: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum KnownKind {
    Nothing,
    Store,
    Embedded,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CompressionKind {
    ClientGo,
    KeepLatest,
    /// A custom function that changes nothing.
    KeepAll,
    /// One that keeps the newest delta.
    KeepNewest,
    /// One that drops all but the oldest, so that the claim's newest delta is not the newest there was.
    KeepOldest,
    /// One that leaves nothing where there are only Syncs.
    DropSyncs,
}

impl CompressionKind {
    fn compression(self) -> Compression<Object, String> {
        let custom =
            |f: fn(&String, Deltas<Object, String>) -> Deltas<Object, String>| Compression::Custom(Arc::new(f));
        match self {
            CompressionKind::ClientGo => Compression::ClientGo,
            CompressionKind::KeepLatest => Compression::KeepLatest,
            CompressionKind::KeepAll => custom(|_, deltas| deltas),
            CompressionKind::KeepNewest => custom(|_, deltas| deltas.into_iter().last().into_iter().collect()),
            CompressionKind::KeepOldest => custom(|_, deltas| deltas.into_iter().take(1).collect()),
            CompressionKind::DropSyncs => custom(|_, deltas| {
                let only_syncs = deltas.iter().all(|delta| delta.delta_type().as_str() == "Sync");
                if only_syncs { Deltas::new() } else { deltas }
            }),
        }
    }
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Try), Just(Form::Blocking), Just(Form::Async)]
}

/// Mostly sound names.
fn name() -> impl Strategy<Value = usize> {
    prop_oneof![24 => 0..5usize, 1 => 5..7usize]
}

fn op() -> impl Strategy<Value = Op> {
    let verb = prop_oneof![3 => Just(Verb::Add), 4 => Just(Verb::Update), 4 => Just(Verb::Delete)];
    let end = prop_oneof![
        8 => Just(End::Applied),
        2 => Just(End::Lagging),
        4 => Just(End::Requeued),
        2 => Just(End::Panicked),
        1 => Just(End::TakenAndRequeued),
        1 => Just(End::TakenAndDone),
    ];
    prop_oneof![
        24 => (verb, name(), form()).prop_map(|(verb, name, form)| Op::Push(verb, name, form)),
        4 => (name(), any::<bool>(), form()).prop_map(|(name, object, form)| Op::PushTombstone(name, object, form)),
        8 => (prop::collection::vec(name(), 0..6), form()).prop_map(|(names, form)| Op::Replace(names, form)),
        4 => Just(Op::Resync),
        16 => form().prop_map(Op::Pop),
        4 => (1..4usize, form()).prop_map(|(max, form)| Op::PopBatch(max, form)),
        18 => (0..8usize, end).prop_map(|(claim, end)| Op::End(claim, end)),
        // Rare, because not much is interesting after it.
        1 => Just(Op::Close),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let known = prop_oneof![1 => Just(KnownKind::Nothing), 2 => Just(KnownKind::Store), 2 => Just(KnownKind::Embedded)];
    let compression = prop_oneof![
        3 => Just(CompressionKind::ClientGo),
        3 => Just(CompressionKind::KeepLatest),
        1 => Just(CompressionKind::KeepAll),
        1 => Just(CompressionKind::KeepNewest),
        1 => Just(CompressionKind::KeepOldest),
        1 => Just(CompressionKind::DropSyncs),
    ];
    let limit = |max| prop_oneof![2 => Just(None), 1 => (0..max).prop_map(Some)];
    let limits = (limit(5usize), limit(10usize)).prop_map(|(keys, deltas)| Limits { keys, deltas });
    let limits = prop_oneof![Just(Limits::default()), limits];
    let share = prop_oneof![3 => Just(None), 1 => (1..4u32).prop_map(NonZeroU32::new)];
    let stored = prop::collection::vec(name(), 0..4);
    (known, any::<bool>(), any::<bool>(), compression, limits, share, stored).prop_map(
        |(known, emit_replaced, transform, compression, limits, background_share, stored)| {
            // Which keys one pop drops can be compared only where the order is fixed.
            let in_order = compression == CompressionKind::DropSyncs;
            let known = if in_order && known == KnownKind::Embedded { KnownKind::Store } else { known };
            let background_share = background_share.filter(|_| !in_order);
            Options { known, emit_replaced, transform, compression, limits, background_share, stored }
        },
    )
}

impl Options {
    fn config(&self, store: &Arc<Store>) -> Config {
        Config {
            known: match self.known {
                KnownKind::Nothing => Known::Nothing,
                KnownKind::Store => Known::Store(store.clone()),
                KnownKind::Embedded => Known::Embedded,
            },
            emit_replaced: self.emit_replaced,
            transform: self.transform,
            compression: self.compression.compression(),
            limits: self.limits,
            background_share: self.background_share,
        }
    }
}

// ---- one run ----

type Checked<R = ()> = Result<R, TestCaseError>;

/// One key, claimed in both.
struct Pair<'q> {
    engine: <Engine as Queue>::Claim<'q>,
    baseline: <Baseline as Queue>::Claim<'q>,
}

struct Run<'q> {
    options: &'q Options,
    engine: &'q Engine,
    baseline: &'q Baseline,
    /// What each one's consumer has applied.
    stores: [Arc<Store>; 2],
    claims: Vec<Pair<'q>>,
    /// Keys that stand next to each other in the baseline's queue, and in any order in the engine's.
    unordered: Vec<BTreeSet<String>>,
    next_rv: u64,
}

impl<'q> Run<'q> {
    fn object(&mut self, name: usize) -> Arc<Object> {
        self.next_rv += 1;
        Object::new(NAMES[name], self.next_rv)
    }

    /// A call that might wait for room is made in the form that does not.
    fn producer_form(&self, form: Form) -> Form {
        if self.options.limits == Limits::default() { form } else { Form::Try }
    }

    /// Likewise for a pop that might wait for a key.
    fn consumer_form(&self, form: Form) -> Form {
        let may_drop = self.options.compression == CompressionKind::DropSyncs;
        let has_key = !self.baseline.is_empty() && !may_drop;
        if has_key || self.baseline.is_closed() { form } else { Form::Try }
    }

    fn step(&mut self, op: &Op) -> Checked {
        let (engine, baseline) = (self.engine, self.baseline);
        match op {
            Op::Push(verb, name, form) => {
                let (object, form) = (self.object(*name), self.producer_form(*form));
                prop_assert_eq!(engine.push(*verb, object.clone(), form), baseline.push(*verb, object, form));
            }
            Op::PushTombstone(name, with_object, form) => {
                let object = with_object.then(|| self.object(*name));
                let (key, form) = (NAMES[*name], self.producer_form(*form));
                let got = engine.push_tombstone(key, object.clone(), form);
                prop_assert_eq!(got, baseline.push_tombstone(key, object, form));
            }
            Op::Replace(names, form) => {
                let list: Vec<_> = names.iter().map(|name| self.object(*name)).collect();
                let form = self.producer_form(*form);
                let before = self.queued();
                prop_assert_eq!(engine.push_list(list.clone(), form), baseline.push_list(list.clone(), form));
                let listed: BTreeSet<_> = list.iter().map(|object| object.name.clone()).collect();
                self.note_unordered(&before, &listed);
            }
            Op::Resync => {
                let before = self.queued();
                let got: Outcome = Queue::resync(engine);
                prop_assert_eq!(got, Queue::resync(baseline));
                self.note_unordered(&before, &BTreeSet::new());
            }
            Op::Pop(form) => {
                let got = match self.consumer_form(*form) {
                    Form::Try => engine.pop_now(),
                    form => engine.pop_wait(form).ok_or(TryPopError::Closed),
                };
                self.pair(got.map(|claim| vec![claim]), 1)?;
            }
            Op::PopBatch(max, form) => {
                let got = match self.consumer_form(*form) {
                    Form::Try => engine.pop_batch_now(*max),
                    form => engine.pop_batch_wait(*max, form).ok_or(TryPopError::Closed),
                };
                self.pair(got, *max)?;
            }
            Op::End(claim, end) => {
                if !self.claims.is_empty() {
                    let pair = self.claims.swap_remove(claim % self.claims.len());
                    self.end(pair, *end);
                }
            }
            Op::Close => {
                engine.close();
                baseline.close();
            }
        }
        Ok(())
    }

    /// The keys of the baseline's queue, in order.
    fn queued(&self) -> Vec<String> {
        let mut keys = self.baseline.list_keys();
        keys.truncate(self.baseline.len());
        keys
    }

    /// Embedded known objects are in no order, and so are the keys that are queued for them.
    fn note_unordered(&mut self, before: &[String], listed: &BTreeSet<String>) {
        if self.options.known == KnownKind::Embedded {
            let new = self.queued().into_iter().filter(|key| !before.contains(key) && !listed.contains(key));
            self.unordered.push(new.collect());
        }
    }

    /// Takes out of the baseline what the engine has handed out, and compares.
    fn pair(&mut self, got: Result<Vec<<Engine as Queue>::Claim<'q>>, TryPopError>, max: usize) -> Checked {
        let got = match got {
            Ok(got) => got,
            Err(error) => {
                prop_assert_eq!(Some(error), self.baseline.pop_now().err());
                return Ok(());
            }
        };
        let in_any_order = self.options.background_share.is_some();
        for engine in &got {
            prop_assert!(self.claims.iter().all(|pair| pair.engine.key() != engine.key()), "a key is claimed twice");
        }
        let count = got.len();
        for engine in got {
            let key = engine.key().clone();
            let head = self.queued().first().cloned();
            let same_group = |head: &String| self.unordered.iter().any(|set| set.contains(head) && set.contains(&key));
            let baseline = if in_any_order || head.as_ref().is_some_and(same_group) {
                self.baseline.try_pop_key(&key).ok_or(TryPopError::Empty)
            } else {
                self.baseline.pop_now()
            };
            let baseline = match baseline {
                Ok(baseline) => baseline,
                Err(error) => return Err(TestCaseError::fail(format!("the baseline has no {key}: {error}"))),
            };
            prop_assert_eq!(engine.key(), baseline.key());
            prop_assert_eq!(engine.deltas(), baseline.deltas(), "deltas of {}", key);
            prop_assert_eq!(engine.is_initial(), baseline.is_initial(), "is_initial of {}", key);
            for set in &mut self.unordered {
                set.remove(&key);
            }
            self.claims.push(Pair { engine, baseline });
        }
        prop_assert!(count == max || self.baseline.pop_now().is_err(), "{} of {} keys in a batch", count, max);
        Ok(())
    }

    fn end(&self, pair: Pair<'q>, end: End) {
        if let End::Applied = end {
            self.stores[0].apply(pair.engine.key(), pair.engine.deltas());
            self.stores[1].apply(pair.baseline.key(), pair.baseline.deltas());
        }
        end_one(pair.engine, end);
        end_one(pair.baseline, end);
    }

    /// Everything that can be seen from outside.
    fn check(&self) -> Checked {
        prop_assert_eq!(self.engine.len(), self.baseline.len(), "len");
        prop_assert_eq!(Queue::is_empty(self.engine), self.baseline.is_empty());
        prop_assert_eq!(self.engine.has_synced(), self.baseline.has_synced(), "has_synced");
        prop_assert_eq!(self.engine.is_closed(), self.baseline.is_closed(), "is_closed");
        prop_assert_eq!(sorted(self.engine.list_keys()), sorted(self.baseline.list_keys()), "list_keys");
        prop_assert_eq!(sorted(self.engine.known_keys()), sorted(self.baseline.known_keys()), "known_keys");
        for name in NAMES {
            let key = name.to_owned();
            prop_assert_eq!(self.engine.get(&key), self.baseline.get(&key), "pending deltas of {}", name);
            let known = (self.engine.known_object(&key), self.baseline.known_object(&key));
            prop_assert_eq!(known.0, known.1, "known object of {}", name);
        }
        prop_assert_eq!(&*self.stores[0].objects(), &*self.stores[1].objects(), "the consumers' stores");
        Ok(())
    }

    /// Ends all claims and takes out what is left.
    fn drain(&mut self) -> Checked {
        self.engine.close();
        self.baseline.close();
        loop {
            while let Some(pair) = self.claims.pop() {
                self.end(pair, End::Applied);
                self.check()?;
            }
            self.pair(self.engine.pop_now().map(|claim| vec![claim]), 1)?;
            if self.claims.is_empty() {
                break;
            }
        }
        prop_assert!(self.engine.has_synced() == self.baseline.has_synced());
        // Nothing is queued or claimed, so this does not wait.
        Queue::close_and_drain(self.engine);
        Queue::close_and_drain(self.baseline);
        self.check()
    }
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

fn end_one(mut claim: impl Claimed, end: End) {
    match end {
        End::Applied | End::Lagging => claim.finish(),
        End::Requeued => claim.put_back(),
        // Unwinds like a panic, but without the message.
        End::Panicked => {
            let unwind = AssertUnwindSafe(move || {
                let _claim = claim;
                panic::resume_unwind(Box::new("the handler panics"))
            });
            let result: Result<(), _> = panic::catch_unwind(unwind);
            assert!(result.is_err());
        }
        End::TakenAndRequeued => {
            drop(claim.take());
            claim.put_back();
        }
        End::TakenAndDone => {
            drop(claim.take());
            claim.finish();
        }
    }
}

fn run(options: &Options, ops: &[Op]) -> Checked {
    let stored: Vec<_> = options.stored.iter().map(|name| o(NAMES[*name], 0)).collect();
    let stores = [Store::of(&stored), Store::of(&stored)];
    let engine = Engine::with(options.config(&stores[0]));
    let baseline = Baseline::with(options.config(&stores[1]));
    let (engine, baseline) = (&engine, &baseline);
    let mut run = Run { options, engine, baseline, stores, claims: Vec::new(), unordered: Vec::new(), next_rv: 0 };
    run.check()?;
    for (index, op) in ops.iter().enumerate() {
        let checked = run.step(op).and_then(|()| run.check());
        checked.map_err(|error| TestCaseError::fail(format!("op {index}, {op:?}: {error}")))?;
    }
    run.drain()
}

/// Some hundred cases unless `PROPTEST_CASES` says how many.
fn cases() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => ProptestConfig { cases: 600, ..default },
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn engine_and_baseline_show_the_same(options in options(), ops in prop::collection::vec(op(), 0..80)) {
        run(&options, &ops)?;
    }
}

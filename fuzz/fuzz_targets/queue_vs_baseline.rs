//! Sequences of operations under every option, on the engine and on the baseline: after each step, all that can be
//! seen is equal. The fuzzer searches where `tests/oracle.rs` draws at random.
//!
//! The order among keys that one call queued from the embedded store is open, and so is the lane a pop serves when there
//! are two. There the engine decides, and the baseline takes the same key out.

#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use arbitrary::Arbitrary;
use delta_fifo::baseline::MutexFifo;
use delta_fifo::{Compression, DeltaFifo, Limits};
use libfuzzer_sys::fuzz_target;
use support::{Config, Form, Known, NO_KEY, Object, Queue, Store, UNFIT, Verb};

type Engine = DeltaFifo<Object, String>;
type Baseline = MutexFifo<Object, String>;

/// The last two are refused, by the key function and by the transformer.
const NAMES: [&str; 6] = ["a", "b", "c", "d", NO_KEY, UNFIT];

#[derive(Arbitrary, Debug)]
struct Input {
    known: u8,
    emit_replaced: bool,
    transform: bool,
    compression: u8,
    keys: Option<u8>,
    deltas: Option<u8>,
    background_share: Option<u8>,
    ops: Vec<Op>,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Add(u8),
    Update(u8),
    Delete(u8),
    Tombstone(u8, bool),
    /// Which names are in the list, by bit, and whether one of them is there twice.
    Replace(u8, bool),
    Resync,
    Pop,
    PopBatch(u8),
    Done(u8),
    Apply(u8),
    Requeue(u8),
    TakeAndRequeue(u8),
    Close,
}

struct Run<'q> {
    engine: &'q Engine,
    baseline: &'q Baseline,
    stores: [Arc<Store>; 2],
    claims: Vec<(<Engine as Queue>::Claim<'q>, <Baseline as Queue>::Claim<'q>)>,
    /// Any key may come first: there are two lanes.
    any_order: bool,
    /// Keys whose order among each other is open.
    unordered: Vec<BTreeSet<String>>,
    embedded: bool,
    next_rv: u64,
}

fn name(n: u8) -> &'static str {
    NAMES[n as usize % NAMES.len()]
}

impl<'q> Run<'q> {
    fn object(&mut self, n: u8) -> Arc<Object> {
        self.next_rv += 1;
        Object::new(name(n), self.next_rv)
    }

    fn queued(&self) -> Vec<String> {
        let mut keys = self.baseline.list_keys();
        keys.truncate(self.baseline.len());
        keys
    }

    fn note_unordered(&mut self, before: &[String], listed: &[Arc<Object>]) {
        if self.embedded {
            let listed = |key: &String| listed.iter().any(|object| object.name == *key);
            let new = self.queued().into_iter().filter(|key| !before.contains(key) && !listed(key));
            self.unordered.push(new.collect());
        }
    }

    fn push(&mut self, verb: Verb, n: u8) {
        let object = self.object(n);
        let got = self.engine.push(verb, object.clone(), Form::Try);
        assert_eq!(got, self.baseline.push(verb, object, Form::Try));
    }

    /// The baseline hands out what the engine did.
    fn take(&mut self, got: Vec<<Engine as Queue>::Claim<'q>>) {
        for engine in got {
            let key = engine.key().clone();
            let head = self.queued().first().cloned().expect("the engine has a key that the baseline has not");
            let open = self.unordered.iter().any(|set| set.contains(&head) && set.contains(&key));
            let baseline = match self.any_order || open {
                true => self.baseline.try_pop_key(&key).expect("the baseline has not queued this key"),
                false => self.baseline.try_pop().expect("it has a head"),
            };
            assert_eq!(&key, baseline.key());
            assert_eq!(engine.deltas(), baseline.deltas(), "deltas of {key}");
            assert_eq!(engine.is_initial(), baseline.is_initial(), "is_initial of {key}");
            assert!(self.claims.iter().all(|claim| *claim.0.key() != key), "{key} is claimed twice");
            for set in &mut self.unordered {
                set.remove(&key);
            }
            self.claims.push((engine, baseline));
        }
    }

    fn pop(&mut self, max: usize) {
        let got = match max {
            1 => self.engine.try_pop().map(|claim| vec![claim]),
            _ => self.engine.try_pop_batch(max),
        };
        match got {
            Ok(got) => {
                let count = got.len();
                self.take(got);
                assert!(count == max || self.baseline.is_empty(), "{count} of {max}");
            }
            Err(error) => assert_eq!(Some(error), self.baseline.try_pop().err()),
        }
    }

    fn claim(&mut self, n: u8) -> Option<(<Engine as Queue>::Claim<'q>, <Baseline as Queue>::Claim<'q>)> {
        (!self.claims.is_empty()).then(|| self.claims.swap_remove(n as usize % self.claims.len()))
    }

    fn apply(&self, (engine, baseline): (<Engine as Queue>::Claim<'q>, <Baseline as Queue>::Claim<'q>)) {
        self.stores[0].apply(engine.key(), engine.deltas());
        self.stores[1].apply(baseline.key(), baseline.deltas());
        engine.done();
        baseline.done();
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Add(n) => self.push(Verb::Add, *n),
            Op::Update(n) => self.push(Verb::Update, *n),
            Op::Delete(n) => self.push(Verb::Delete, *n),
            Op::Tombstone(n, with_object) => {
                let object = with_object.then(|| self.object(*n));
                let got = self.engine.push_tombstone(name(*n), object.clone(), Form::Try);
                assert_eq!(got, self.baseline.push_tombstone(name(*n), object, Form::Try));
            }
            Op::Replace(names, twice) => {
                let mut list: Vec<_> = (0..6).filter(|n| names >> n & 1 == 1).map(|n| self.object(n)).collect();
                if *twice && let Some(first) = list.first().cloned() {
                    list.push(first);
                }
                let before = self.queued();
                let got = self.engine.push_list(list.clone(), Form::Try);
                assert_eq!(got, self.baseline.push_list(list.clone(), Form::Try));
                self.note_unordered(&before, &list);
            }
            Op::Resync => {
                let before = self.queued();
                assert_eq!(Queue::resync(self.engine), Queue::resync(self.baseline));
                self.note_unordered(&before, &[]);
            }
            Op::Pop => self.pop(1),
            Op::PopBatch(max) => self.pop(2 + (*max % 3) as usize),
            Op::Done(n) => drop(self.claim(*n)),
            Op::Apply(n) => {
                if let Some(claims) = self.claim(*n) {
                    self.apply(claims);
                }
            }
            Op::Requeue(n) => {
                if let Some((engine, baseline)) = self.claim(*n) {
                    engine.requeue();
                    baseline.requeue();
                }
            }
            Op::TakeAndRequeue(n) => {
                if let Some((mut engine, mut baseline)) = self.claim(*n) {
                    assert_eq!(engine.take_deltas(), baseline.take_deltas());
                    engine.requeue();
                    baseline.requeue();
                }
            }
            Op::Close => {
                self.engine.close();
                self.baseline.close();
            }
        }
    }

    fn check(&self) {
        let sorted = |mut keys: Vec<String>| {
            keys.sort();
            keys
        };
        let (engine, baseline) = (self.engine, self.baseline);
        assert_eq!(engine.len(), baseline.len());
        assert_eq!(engine.has_synced(), baseline.has_synced());
        assert_eq!(engine.is_closed(), baseline.is_closed());
        assert_eq!(sorted(engine.list_keys()), sorted(baseline.list_keys()));
        assert_eq!(sorted(engine.known_keys()), sorted(baseline.known_keys()));
        for name in NAMES {
            let key = name.to_owned();
            assert_eq!(engine.get(&key), baseline.get(&key), "pending deltas of {name}");
            assert_eq!(engine.known_object(&key), baseline.known_object(&key), "known object of {name}");
        }
        assert_eq!(*self.stores[0].objects(), *self.stores[1].objects());
    }
}

fuzz_target!(|input: Input| {
    let stores = [Arc::new(Store::default()), Arc::new(Store::default())];
    let config = |store: &Arc<Store>| Config {
        known: match input.known % 3 {
            0 => Known::Nothing,
            1 => Known::Store(store.clone()),
            _ => Known::Embedded,
        },
        emit_replaced: input.emit_replaced,
        transform: input.transform,
        compression: match input.compression % 4 {
            0 | 1 => Compression::ClientGo,
            2 => Compression::KeepLatest,
            _ => Compression::Custom(Arc::new(|_, deltas| deltas.into_iter().last().into_iter().collect())),
        },
        limits: Limits { keys: input.keys.map(|n| (n % 6).into()), deltas: input.deltas.map(|n| (n % 12).into()) },
        background_share: input.background_share.and_then(|n| NonZeroU32::new((n % 4).into())),
    };
    let engine = Engine::with(config(&stores[0]));
    let baseline = Baseline::with(config(&stores[1]));
    let mut run = Run {
        engine: &engine,
        baseline: &baseline,
        stores,
        claims: Vec::new(),
        any_order: input.background_share.is_some(),
        unordered: Vec::new(),
        embedded: input.known % 3 == 2,
        next_rv: 0,
    };
    for op in input.ops.iter().take(100) {
        run.step(op);
        run.check();
    }
    engine.close();
    baseline.close();
    while !run.claims.is_empty() || !baseline.is_empty() {
        while let Some(claims) = run.claims.pop() {
            run.apply(claims);
        }
        run.pop(1);
        run.check();
    }
    assert_eq!(engine.has_synced(), baseline.has_synced());
});

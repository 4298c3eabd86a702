//! The load: producers, consumers, a lister and a resyncer on one queue, with faults, and the checks at the end.

#![allow(dead_code, unreachable_pub, missing_debug_implementations)]

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use delta_fifo::{Claim, Compression, DefaultHashBuilder, DeltaFifo, Limits, PopTimeoutError, TryPopError};
use futures_lite::{StreamExt, future};

use crate::account::{Account, Held, Issued, Key, Object, Store};

type Fifo = DeltaFifo<Object, Key>;
type OneClaim<'q> = Claim<'q, Object, Key, DefaultHashBuilder>;

/// How long anything may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is tried.
#[derive(Clone, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub producers: usize,
    pub consumers: usize,
    pub keys: Key,
    pub embedded: bool,
    pub limits: Limits,
    pub keep_latest: bool,
    pub background_share: Option<NonZeroU32>,
    /// Handlers that panic, requeue or ask to be requeued on drop, in 1,000.
    pub faults: u32,
    /// How many events a producer reports before it pauses for a moment; 0: it never does.
    pub burst: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            name: "default",
            producers: 8,
            consumers: 8,
            keys: 1_000,
            embedded: true,
            limits: Limits::default(),
            keep_latest: false,
            background_share: None,
            faults: 20,
            burst: 0,
        }
    }
}

/// What was done. All counts go up only.
#[derive(Debug, Default)]
pub struct Counts {
    pub updates: AtomicU64,
    pub deletes: AtomicU64,
    pub full: AtomicU64,
    pub replaces: AtomicU64,
    pub resyncs: AtomicU64,
    pub claims: AtomicU64,
    pub delivered: AtomicU64,
    pub panics: AtomicU64,
    pub requeues: AtomicU64,
    pub timeouts: AtomicU64,
    pub cancelled: AtomicU64,
}

impl Counts {
    /// In the order of the fields.
    pub fn values(&self) -> [(&'static str, u64); 11] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("updates", of(&self.updates)),
            ("deletes", of(&self.deletes)),
            ("full", of(&self.full)),
            ("replaces", of(&self.replaces)),
            ("resyncs", of(&self.resyncs)),
            ("claims", of(&self.claims)),
            ("delivered", of(&self.delivered)),
            ("panics", of(&self.panics)),
            ("requeues", of(&self.requeues)),
            ("timeouts", of(&self.timeouts)),
            ("cancelled", of(&self.cancelled)),
        ]
    }
}

fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// A panic that the load itself makes. Raised past the panic hook, so the output stays readable.
struct Injected;

/// Everything the threads share.
pub struct Run {
    pub fifo: Arc<Fifo>,
    pub counts: Counts,
    shape: Shape,
    store: Arc<Store>,
    account: Account,
    /// By writer, then by key.
    issued: Vec<Vec<Issued>>,
    stop: AtomicBool,
    /// No handler reports anything any more.
    over: RwLock<bool>,
    start: Instant,
    seed: u64,
    /// Called with the nanoseconds from report to processing.
    on_latency: Box<dyn Fn(u64) + Send + Sync>,
}

impl Run {
    pub fn new(shape: Shape, seed: u64) -> Run {
        Run::with_latency(shape, seed, |_| {})
    }

    pub fn with_latency(shape: Shape, seed: u64, on_latency: impl Fn(u64) + Send + Sync + 'static) -> Run {
        let store = Arc::new(Store::new(shape.keys));
        let mut builder = Fifo::builder_with_key_fn(|object: &Object| Ok::<_, &str>(object.key)).emit_replaced(true);
        builder = if shape.embedded { builder.embedded_store() } else { builder.known_objects(store.clone()) };
        if shape.keep_latest {
            builder = builder.compression(Compression::KeepLatest);
        }
        if let Some(share) = shape.background_share {
            builder = builder.background_share(share);
        }
        // The lister, and handlers, which report too; the finisher is one.
        let writers = shape.producers + 1 + shape.consumers + 1;
        let issued = || (0..shape.keys).map(|_| Issued::default()).collect();
        Run {
            fifo: Arc::new(builder.limits(shape.limits).build()),
            counts: Counts::default(),
            store,
            account: Account::new(shape.keys, writers, shape.producers, !shape.keep_latest),
            issued: (0..writers).map(|_| issued()).collect(),
            stop: AtomicBool::new(false),
            over: RwLock::new(false),
            start: Instant::now(),
            seed,
            shape,
            on_latency: Box::new(on_latency),
        }
    }

    fn rng(&self, thread: usize) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000_003).wrapping_add(thread as u64))
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn is_limited(&self) -> bool {
        self.shape.limits != Limits::default()
    }

    /// Runs for `duration`, calling `observe` ten times a second, then drains and checks. What is wrong comes back.
    pub fn run(&self, duration: Duration, mut observe: impl FnMut(&Run)) -> Vec<String> {
        let (finisher, claims) = mpsc::channel::<OneClaim<'static>>();
        thread::scope(|scope| {
            scope.spawn(move || self.finish(&claims));
            for consumer in 0..self.shape.consumers {
                let finisher = finisher.clone();
                scope.spawn(move || self.consume(consumer, &finisher));
            }
            drop(finisher);
            let resyncer = scope.spawn(|| self.resync());
            let lister = scope.spawn(|| self.list());
            let producers: Vec<_> = (0..self.shape.producers).map(|p| scope.spawn(move || self.produce(p))).collect();

            let end = Instant::now() + duration;
            while Instant::now() < end {
                thread::sleep(Duration::from_millis(100).min(end.saturating_duration_since(Instant::now())));
                observe(self);
            }
            self.stop.store(true, Ordering::Relaxed);
            let patience = Instant::now() + PATIENCE;
            for thread in producers.into_iter().chain([lister, resyncer]) {
                while !thread.is_finished() {
                    if Instant::now() > patience {
                        self.give_up("a producer is stuck");
                    }
                    thread::park_timeout(Duration::from_millis(1));
                }
                thread.join().expect("what a producer calls does not panic");
            }
            *self.over.write().unwrap_or_else(PoisonError::into_inner) = true;
            self.report_last_states();
            if !self.fifo.close_and_drain_timeout(PATIENCE) {
                self.give_up("the drain is stuck");
            }
        });
        self.check_books();
        self.check_final_list();
        self.account.violations()
    }

    /// Threads may be asleep for ever, so there is no way to end them but this.
    fn give_up(&self, why: &str) -> ! {
        let (shape, counts) = (&self.shape, self.counts.values());
        eprintln!("{why}: {shape:?}, seed {}; {:?}; {counts:?}; {:?}", self.seed, self.fifo, self.account.violations());
        std::process::abort();
    }

    // ----- producers -----

    fn produce(&self, writer: usize) {
        let mut rng = self.rng(writer);
        let mut reported = 0;
        while !self.stop.load(Ordering::Relaxed) {
            // Three in four go to a few keys that everybody writes.
            let key =
                if rng.u8(..4) > 0 { rng.u32(..self.shape.keys.div_ceil(16)) } else { rng.u32(..self.shape.keys) };
            self.report(&mut rng, writer, key);
            reported += 1;
            if self.shape.burst != 0 && reported % self.shape.burst == 0 {
                thread::sleep(Duration::from_millis(rng.u64(..5)));
            }
        }
    }

    fn report(&self, rng: &mut fastrand::Rng, writer: usize, key: Key) {
        let (fifo, issued) = (&self.fifo, &self.issued[writer][key as usize]);
        let now = self.now();
        if rng.u8(..8) == 0 {
            one_more(&self.counts.deletes);
            let object = issued.delete(key, writer, now);
            match rng.u8(..4) {
                0 => fifo.delete_final_state_unknown(key, None),
                1 => future::block_on(fifo.delete_async(object)).expect("the key function never fails"),
                _ => fifo.delete(object).expect("the key function never fails"),
            }
            return;
        }
        let object = issued.update(key, writer, now);
        let form = rng.u8(..8);
        if form == 0 {
            // Its number is given out again if it finds no room, so it is confirmed late, and a consumer may be
            // quicker; nobody but this thread reads the count meanwhile.
            match fifo.try_update(object) {
                Ok(()) => issued.confirm_update(),
                Err(_) => return one_more(&self.counts.full),
            }
        } else {
            issued.confirm_update();
            match form {
                1 => future::block_on(fifo.update_async(object)),
                2 | 3 => fifo.add(object),
                _ => fifo.update(object),
            }
            .expect("the key function never fails");
        }
        one_more(&self.counts.updates);
    }

    /// Each key gets one more update from one producer, which nothing follows: so the end state is known.
    fn report_last_states(&self) {
        for key in 0..self.shape.keys {
            let writer = key as usize % self.shape.producers;
            let issued = &self.issued[writer][key as usize];
            let object = issued.update(key, writer, self.now());
            issued.confirm_update();
            self.fifo.update(object).expect("the key function never fails");
            one_more(&self.counts.updates);
        }
    }

    fn list(&self) {
        let lister = self.shape.producers;
        let mut rng = self.rng(lister);
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(rng.u64(1..20)));
            self.fifo.replace(self.half_of_all(&mut rng)).expect("the key function never fails");
            one_more(&self.counts.replaces);
        }
    }

    fn half_of_all(&self, rng: &mut fastrand::Rng) -> Vec<Arc<Object>> {
        let lister = self.shape.producers;
        let mut list = Vec::new();
        for key in 0..self.shape.keys {
            if rng.bool() {
                let issued = &self.issued[lister][key as usize];
                list.push(Arc::new(issued.update(key, lister, self.now())));
                issued.confirm_update();
            }
        }
        list
    }

    fn resync(&self) {
        let mut rng = self.rng(usize::MAX);
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(rng.u64(1..10)));
            self.fifo.resync().expect("the key function never fails");
            one_more(&self.counts.resyncs);
        }
    }

    // ----- consumers -----

    /// Each consumer has its own way to pop, until the queue is closed and drained.
    fn consume(&self, consumer: usize, finisher: &mpsc::Sender<OneClaim<'static>>) {
        let mut rng = self.rng(1_000 + consumer);
        let fifo = &self.fifo;
        match consumer % 8 {
            0 | 1 => {
                while let Ok(claim) = fifo.pop_blocking() {
                    self.process(&mut rng, consumer, claim);
                }
            }
            2 => loop {
                match fifo.pop_timeout(Duration::from_micros(rng.u64(..300))) {
                    Ok(claim) => self.process(&mut rng, consumer, claim),
                    Err(PopTimeoutError::Timeout) => one_more(&self.counts.timeouts),
                    Err(PopTimeoutError::Closed) => break,
                }
            },
            3 => {
                while let Ok(batch) = fifo.pop_batch_blocking(rng.usize(1..20)) {
                    batch.into_iter().for_each(|claim| self.process(&mut rng, consumer, claim));
                }
            }
            4 => loop {
                match fifo.try_pop() {
                    Ok(claim) => self.process(&mut rng, consumer, claim),
                    Err(TryPopError::Empty) => thread::yield_now(),
                    Err(TryPopError::Closed) => break,
                }
            },
            5 => future::block_on(async {
                let mut claims = fifo.claims();
                while let Some(claim) = claims.next().await {
                    self.process(&mut rng, consumer, claim);
                }
            }),
            6 => future::block_on(async {
                // Polled once and dropped: what it had been woken for goes to another consumer.
                loop {
                    let popped = match future::poll_once(fifo.pop()).await {
                        Some(popped) => popped,
                        None => {
                            one_more(&self.counts.cancelled);
                            fifo.pop().await
                        }
                    };
                    let Ok(claim) = popped else { break };
                    self.process(&mut rng, consumer, claim);
                }
            }),
            _ => {
                while let Ok(claim) = fifo.pop_blocking() {
                    let mut claim = claim.into_owned(fifo);
                    let deltas = claim.take_deltas();
                    self.count_claim(deltas.len());
                    let mut held = self.account.hold(*claim.key());
                    held.check(&deltas);
                    deltas.iter().for_each(|delta| self.store.apply(*claim.key(), delta));
                    held.book(&deltas);
                    drop(held);
                    finisher.send(claim).expect("the finisher ends after all consumers");
                }
            }
        }
    }

    /// Claims that were sent away end here, on another thread than the one that popped them. Such a release may queue
    /// its key again when all consumers have gone, so whoever releases pops too (see `DeltaFifo::pop`).
    fn finish(&self, claims: &mpsc::Receiver<OneClaim<'static>>) {
        claims.iter().for_each(Claim::done);
        let finisher = self.shape.consumers;
        let mut rng = self.rng(1_000 + finisher);
        while let Ok(claim) = self.fifo.pop_blocking() {
            self.process(&mut rng, finisher, claim);
        }
    }

    fn count_claim(&self, deltas: usize) {
        one_more(&self.counts.claims);
        self.counts.delivered.fetch_add(deltas as u64, Ordering::Relaxed);
    }

    fn process(&self, rng: &mut fastrand::Rng, consumer: usize, claim: OneClaim<'_>) {
        self.count_claim(claim.deltas().len());
        let mut claim = Some(claim);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let claim = claim.take().expect("it was just put there");
            // Dropped before the claim, also on unwind: the next owner must find the books free.
            let held = self.account.hold(*claim.key());
            self.handle(rng, consumer, claim, held);
        }));
        match outcome {
            Ok(()) => {}
            Err(payload) if payload.is::<Injected>() => one_more(&self.counts.panics),
            Err(_) => self.account.violation("a panic that nobody injected".to_owned()),
        }
    }

    fn handle(&self, rng: &mut fastrand::Rng, consumer: usize, mut claim: OneClaim<'_>, mut held: Held<'_>) {
        let key = *claim.key();
        held.check(claim.deltas());
        let fails = rng.u32(..1_000) < self.shape.faults;
        // A handler that fails may have applied anything between nothing and all.
        let applied = if fails { rng.usize(..=claim.deltas().len()) } else { claim.deltas().len() };
        claim.deltas().iter().take(applied).for_each(|delta| self.store.apply(key, delta));
        if rng.u8(..64) == 0 && !self.is_limited() {
            let over = self.over.read().unwrap_or_else(PoisonError::into_inner);
            if !*over {
                // From inside a handler, for its own key or another one.
                let other = if rng.bool() { key } else { rng.u32(..self.shape.keys) };
                self.report(rng, self.shape.producers + 1 + consumer, other);
            }
        }
        if fails {
            held.put_back(claim.deltas());
            drop(held);
            match rng.u8(..4) {
                0 => claim.requeue(),
                1 => {
                    claim.requeue_on_drop(true);
                    drop(claim);
                }
                _ => resume_unwind(Box::new(Injected)),
            }
            return one_more(&self.counts.requeues);
        }
        let now = self.now();
        for object in claim.deltas().iter().filter(|delta| !delta.is_deleted()).filter_map(|delta| delta.object()) {
            (self.on_latency)(now.saturating_sub(object.at));
        }
        held.book(claim.deltas());
        drop(held);
        if rng.bool() { claim.done() } else { drop(claim) }
    }

    // ----- the end -----

    fn check_books(&self) {
        let violation = |text| self.account.violation(text);
        if !self.fifo.is_empty() || !self.fifo.list_keys().is_empty() {
            violation(format!("drained, but there is {:?}", self.fifo.list_keys()));
        }
        if !self.fifo.has_synced() {
            violation("everything was processed, but the queue has not synced".to_owned());
        }
        for key in 0..self.shape.keys {
            let state = self.account.state(key);
            self.check_store(key, &state);
            let last_writer = key as usize % self.shape.producers;
            for (writer, issued) in self.issued.iter().enumerate() {
                let (issued, delivered) =
                    (issued[key as usize].update.load(Ordering::Relaxed), self.account.last_update(key, writer));
                let all = writer == last_writer || (!self.shape.keep_latest && writer != self.shape.producers);
                if all && issued != delivered {
                    violation(format!("key {key}: writer {writer} made {issued} updates, {delivered} were delivered"));
                }
                if writer == last_writer && state.as_ref().is_none_or(|s| (s.writer, s.update) != (writer, issued)) {
                    violation(format!("key {key}: ends as {state:?}, not as update {issued} of writer {writer}"));
                }
            }
        }
    }

    fn check_store(&self, key: Key, state: &Option<Arc<Object>>) {
        let stored = if self.shape.embedded { self.fifo.known_object(&key) } else { self.store.get(key) };
        if stored != *state {
            self.account.violation(format!("key {key}: processed {state:?}, but the store has {stored:?}"));
        }
    }

    /// Nobody else works now, so the list must win for every key.
    fn check_final_list(&self) {
        let list = self.half_of_all(&mut self.rng(usize::MAX - 1));
        self.fifo.replace(list.clone()).expect("the key function never fails");
        while let Ok(claim) = self.fifo.try_pop() {
            claim.deltas().iter().for_each(|delta| self.store.apply(*claim.key(), delta));
        }
        let mut listed = vec![None; self.shape.keys as usize];
        for object in list {
            let key = object.key as usize;
            listed[key] = Some(object);
        }
        for (key, object) in listed.iter().enumerate() {
            self.check_store(key as Key, object);
        }
    }
}

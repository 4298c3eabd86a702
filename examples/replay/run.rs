//! One replay: producers, the queue, workers.
//!
//! ```text
//!   feed ─► producer ─┐                       ┌─► worker ─► store
//!   feed ─► producer ─┼─► queue (one per run) ┼─► worker ─► store      each side measures on its own,
//!   feed ─► producer ─┘                       └─► worker ─► store      and the parts are added up at the end
//! ```
//!
//! Each key is fed by one producer, in the order of the input. The last producer's end closes the queue; the workers
//! end when it is drained.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use delta_fifo::{Delta, DeltaType};
use hdrhistogram::Histogram;

use crate::object::{Item, Op};
use crate::progress::Progress;
use crate::store::Store;
use crate::stream::Change;

/// Gets a key and its deltas.
pub type Handle<'a> = dyn FnMut(&Arc<str>, &[Delta<Item>]) + 'a;

/// What a replay asks of a queue, so that two kinds can be compared.
pub trait Queue: Sync {
    fn name(&self) -> &'static str;
    fn add(&self, item: Arc<Item>);
    fn update(&self, item: Arc<Item>);
    fn delete(&self, item: Arc<Item>);
    fn close(&self);
    /// Waits for a key and hands its deltas to `handle`. False when the queue is closed and drained.
    fn pop(&self, handle: &mut Handle<'_>) -> bool;
}

/// Figures of one run.
pub struct Outcome {
    pub queue: &'static str,
    /// From the start of the first producer to the end of the last worker.
    pub elapsed: Duration,
    pub fed: u64,
    pub work: Work,
    /// Duration of each add, update or delete call, in nanoseconds.
    pub enqueue: Histogram<u64>,
}

/// What the workers saw.
pub struct Work {
    pub pops: u64,
    pub added: u64,
    pub updated: u64,
    pub deleted: u64,
    /// Replaced and Sync: a replay never causes one.
    pub other: u64,
    /// Deltas that were not newer than the one before of their key.
    pub out_of_order: u64,
    /// Most deltas that one claim carried.
    pub largest: usize,
    /// From the enqueue call to the claim, for each delta, in nanoseconds.
    pub wait: Histogram<u64>,
}

impl Work {
    fn new() -> Self {
        let wait = histogram();
        Work { pops: 0, added: 0, updated: 0, deleted: 0, other: 0, out_of_order: 0, largest: 0, wait }
    }

    pub fn deltas(&self) -> u64 {
        self.added + self.updated + self.deleted + self.other
    }

    fn see(&mut self, store: &Store, since_start: Duration, key: &Arc<str>, deltas: &[Delta<Item>]) {
        self.pops += 1;
        self.largest = self.largest.max(deltas.len());
        for delta in deltas {
            match delta.delta_type() {
                DeltaType::Added => self.added += 1,
                DeltaType::Updated => self.updated += 1,
                DeltaType::Deleted => self.deleted += 1,
                DeltaType::Replaced | DeltaType::Sync => self.other += 1,
            }
            if let Some(item) = delta.object() {
                note(&mut self.wait, item.waited(since_start));
            }
            if !store.apply(key, delta) {
                self.out_of_order += 1;
            }
        }
    }

    fn add(&mut self, other: &Work) {
        self.pops += other.pops;
        self.added += other.added;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.other += other.other;
        self.out_of_order += other.out_of_order;
        self.largest = self.largest.max(other.largest);
        self.wait.add(&other.wait).expect("both grow as needed");
    }
}

/// Three significant digits, as large as needed.
fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("3 is a valid precision")
}

fn note(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.record(duration.as_nanos() as u64).expect("it grows as needed");
}

/// Feeds `feeds` through `queue` into `store`. `handling` is slept in each claim, as a call to a server would take it.
pub fn run<Q: Queue, F: Iterator<Item = Op> + Send>(
    queue: &Q,
    store: &Store,
    feeds: Vec<F>,
    workers: usize,
    handling: Duration,
    progress: Option<&Progress>,
) -> Outcome {
    let start = Instant::now();
    let (enqueue, work) = thread::scope(|scope| {
        let work: Vec<_> = (0..workers).map(|_| scope.spawn(move || consume(queue, store, start, handling))).collect();
        let fed: Vec<_> =
            feeds.into_iter().map(|feed| scope.spawn(move || produce(queue, feed, start, progress))).collect();
        let mut enqueue = histogram();
        for fed in fed {
            enqueue.add(fed.join().expect("a producer panicked")).expect("both grow as needed");
        }
        queue.close();
        let mut sum = Work::new();
        for work in work {
            sum.add(&work.join().expect("a worker panicked"));
        }
        (enqueue, sum)
    });
    Outcome { queue: queue.name(), elapsed: start.elapsed(), fed: enqueue.len(), work, enqueue }
}

fn produce<Q: Queue>(
    queue: &Q,
    feed: impl Iterator<Item = Op>,
    start: Instant,
    progress: Option<&Progress>,
) -> Histogram<u64> {
    let mut took = histogram();
    for op in feed {
        let early = op.due.saturating_sub(start.elapsed());
        if !early.is_zero() {
            thread::sleep(early);
        }
        let before = Instant::now();
        op.item.stamp(before - start);
        match op.change {
            Change::Added => queue.add(op.item),
            Change::Modified => queue.update(op.item),
            Change::Deleted => queue.delete(op.item),
        }
        note(&mut took, before.elapsed());
        if let Some(progress) = progress {
            progress.event();
        }
    }
    took
}

fn consume<Q: Queue>(queue: &Q, store: &Store, start: Instant, handling: Duration) -> Work {
    let mut work = Work::new();
    while queue.pop(&mut |key, deltas| {
        work.see(store, start.elapsed(), key, deltas);
        if !handling.is_zero() {
            thread::sleep(handling);
        }
    }) {}
    work
}

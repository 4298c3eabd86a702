//! Histories of real threads on the real table and queue, checked against a sequential specification: single keys with
//! their pops, releases and requeues, and Replace across keys. The models of `loom-tests` run the same specification
//! on the stand-ins, where seeded bugs show that it can fail.

#[path = "linearizability/spec.rs"]
mod spec;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use delta_fifo::{Claim, Delta, DeltaFifo};
use spec::{Change, Record, Step, is_linearizable};

/// Key and version.
type Object = (u32, u32);
type Fifo = DeltaFifo<Object, u32>;

fn fifo() -> Fifo {
    Fifo::builder_with_key_fn(|object: &Object| Ok::<_, &str>(object.0)).embedded_store().shards(2).idle_keys(1).build()
}

/// Times the calls of all threads.
#[derive(Default)]
struct Clock(AtomicU64);

impl Clock {
    fn time<R>(&self, call: impl FnOnce() -> R) -> (u64, R, u64) {
        let begin = self.0.fetch_add(1, Ordering::SeqCst);
        let result = call();
        (begin, result, self.0.fetch_add(1, Ordering::SeqCst))
    }
}

fn changes(claim: &Claim<'_, Object, u32>) -> Vec<Change> {
    let change = |delta: &Delta<Object, u32>| match delta {
        Delta::Deleted(_) => Change::Gone,
        other => Change::Put(other.object().expect("it is no deletion").1),
    };
    claim.deltas().iter().map(change).collect()
}

/// One thread's random calls on two keys.
fn calls(fifo: &Fifo, clock: &Clock, rng: &mut fastrand::Rng, thread: u32) -> Vec<Record> {
    let mut records = Vec::new();
    let mut held: Vec<Claim<'_, Object, u32>> = Vec::new();
    for i in 0..6 {
        let key = rng.u32(..2);
        let (begin, steps, end) = match rng.u32(..10) {
            0..=3 => clock.time(|| {
                let version = thread * 100 + i;
                fifo.update((key, version)).expect("the key function does not fail");
                vec![Step::Put(key, version)]
            }),
            4 => clock.time(|| {
                fifo.delete((key, 0)).expect("the key function does not fail");
                vec![Step::Delete(key)]
            }),
            5 | 6 if !held.is_empty() => {
                let claim = held.swap_remove(rng.usize(..held.len()));
                let key = *claim.key();
                let requeue = rng.bool();
                clock.time(|| match requeue {
                    true => {
                        claim.requeue();
                        vec![Step::Requeue(key)]
                    }
                    false => {
                        claim.done();
                        vec![Step::Release(key)]
                    }
                })
            }
            _ => {
                let (begin, popped, end) = clock.time(|| fifo.try_pop());
                let steps = match popped {
                    Err(_) => vec![Step::Ticket(None)],
                    Ok(claim) => {
                        let steps = vec![Step::Ticket(Some(*claim.key())), Step::Take(*claim.key(), changes(&claim))];
                        held.push(claim);
                        steps
                    }
                };
                (begin, steps, end)
            }
        };
        let mut after = None;
        for step in steps {
            let this = records.len();
            records.push(Record { step, begin, end, after: after.replace(this) });
        }
    }
    for claim in held {
        let key = *claim.key();
        let (begin, (), end) = clock.time(|| claim.done());
        records.push(Record { step: Step::Release(key), begin, end, after: None });
    }
    records
}

/// Whether two calls of a history were under way at the same time.
fn overlaps(history: &[Record]) -> bool {
    history.iter().any(|a| history.iter().any(|b| a.begin < b.begin && b.begin < a.end))
}

#[test]
fn single_keys_are_linearizable() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut overlapping = 0;
    for round in 0..2_000 {
        let (fifo, clock, barrier) = (fifo(), Clock::default(), Barrier::new(3));
        let histories: Vec<Vec<Record>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=3)
                .map(|thread| {
                    let (fifo, clock, barrier, mut rng) = (&fifo, &clock, &barrier, rng.fork());
                    scope.spawn(move || {
                        barrier.wait();
                        calls(fifo, clock, &mut rng, thread)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let mut history = Vec::new();
        for records in histories {
            let offset = history.len();
            history.extend(records.into_iter().map(|r| Record { after: r.after.map(|i| i + offset), ..r }));
        }
        overlapping += u32::from(overlaps(&history));
        assert!(is_linearizable(&history), "seed {seed}, round {round}: not linearizable:\n{history:#?}");
    }
    println!("2,000 histories, {overlapping} with overlapping calls, seed {seed}");
    assert_ne!(overlapping, 0, "no two calls overlapped: nothing was checked");
}

/// A call that changes what exists.
#[derive(Clone, Debug)]
enum Op {
    Put(u32, u32),
    Delete(u32),
    Replace(Vec<Object>),
}

type Known = BTreeMap<u32, u32>;

/// Whether some order of the calls gives the result.
fn explains(calls: &mut Vec<(u64, Op, u64)>, known: &Known, result: &Known) -> bool {
    if calls.is_empty() {
        return known == result;
    }
    (0..calls.len()).any(|i| {
        if calls.iter().any(|other| other.2 < calls[i].0) {
            return false;
        }
        let call = calls.remove(i);
        let mut next = known.clone();
        match &call.1 {
            Op::Put(key, version) => drop(next.insert(*key, *version)),
            Op::Delete(key) => drop(next.remove(key)),
            Op::Replace(list) => next = list.iter().copied().collect(),
        }
        let found = explains(calls, &next, result);
        calls.insert(i, call);
        found
    })
}

/// Replaces, puts and deletes of three threads on three keys, while a fourth consumes.
#[test]
fn replace_is_linearizable_across_keys() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut overlapping = 0;
    for round in 0..2_000 {
        let (fifo, clock, barrier) = (fifo(), Clock::default(), Barrier::new(4));
        let mut calls: Vec<(u64, Op, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=3)
                .map(|thread| {
                    let (fifo, clock, barrier, mut rng) = (&fifo, &clock, &barrier, rng.fork());
                    scope.spawn(move || {
                        barrier.wait();
                        let mut calls = Vec::new();
                        for i in 0..2 {
                            let (key, version) = (rng.u32(..3), thread * 100 + i);
                            let op = match (thread, rng.u32(..3)) {
                                (1, 0) => Op::Replace(vec![(key, version)]),
                                (1, _) => Op::Replace(vec![(key, version), (rng.u32(3..5), version + 50)]),
                                (_, 0) => Op::Delete(key),
                                _ => Op::Put(key, version),
                            };
                            let (begin, (), end) = clock.time(|| match &op {
                                Op::Put(key, version) => fifo.update((*key, *version)).expect("no key error"),
                                Op::Delete(key) => fifo.delete((*key, 0)).expect("no key error"),
                                Op::Replace(list) => {
                                    fifo.replace(list.iter().map(|&object| object.into()).collect())
                                        .expect("no key error");
                                }
                            });
                            calls.push((begin, op, end));
                        }
                        calls
                    })
                })
                .collect();
            let (fifo, barrier) = (&fifo, &barrier);
            scope.spawn(move || {
                barrier.wait();
                while fifo.pop_blocking().is_ok() {}
            });
            let calls = threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect();
            fifo.close();
            calls
        });
        let result: Known = (0..5).filter_map(|key| fifo.known_object(&key).map(|object| *object)).collect();
        overlapping += u32::from(calls.iter().any(|a| calls.iter().any(|b| a.0 < b.0 && b.0 < a.2)));
        assert!(
            explains(&mut calls, &Known::new(), &result),
            "seed {seed}, round {round}: no order of {calls:?} gives {result:?}"
        );
    }
    println!("2,000 histories, {overlapping} with overlapping calls, seed {seed}");
    assert_ne!(overlapping, 0, "no two calls overlapped: nothing was checked");
}

/// The search itself: a push that returned before a pop that finds nothing is refused.
#[test]
fn a_bad_history_is_refused() {
    let put = Record { step: Step::Put(1, 7), begin: 0, end: 1, after: None };
    let empty = |begin, end| Record { step: Step::Ticket(None), begin, end, after: None };
    assert!(!is_linearizable(&[put.clone(), empty(2, 3)]));
    assert!(is_linearizable(&[Record { end: 4, ..put }, empty(2, 3)]));
}

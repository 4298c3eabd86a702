//! What is too big for loom: four to eight threads that do everything at once, under shuttle's random schedules. The
//! operations are random too, drawn from the schedule's own source, so that a replayed schedule draws the same.
//!
//! Each asserts at the end every obligation that can be told from outside: nothing lost or twice, order per key and
//! producer, one owner at a time, a Sync never older than what is known, synced, and no ticket or slot left.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use delta_fifo::{Delta, Limits};
use loom_tests::*;
use shuttle::rand::{Rng, thread_rng};

/// What consumers saw, and the exclusion they rely on.
#[derive(Clone, Default)]
struct Witness {
    owned: Arc<[Owned; KEYS as usize]>,
    holds: Log<u32>,
    /// Key and version of each add or update, in the order of its processing.
    seen: Log<(u32, u32)>,
}

impl Witness {
    fn process(&self, w: &World, claim: &FifoClaim<'_>) {
        let key = *claim.key();
        self.owned[key as usize].hold(|| {
            thread::yield_now();
            for delta in claim.deltas() {
                if let Delta::Added(object) | Delta::Updated(object) = delta {
                    self.seen.push((key, object.version));
                }
            }
            w.apply(claim);
        });
        self.holds.push(key);
    }

    /// Consumes to the end; now and then puts a claim back.
    fn consume(&self, w: &World) {
        let mut patience = 5;
        while let Ok(claim) = w.fifo.pop_blocking() {
            if patience > 0 && thread_rng().gen_ratio(1, 4) {
                patience -= 1;
                claim.requeue();
                continue;
            }
            self.process(w, &claim);
        }
    }

    fn assert_complete(&self, reported: &Log<(u32, u32)>) {
        let seen = self.seen.take();
        for key in 0..KEYS {
            let holds = self.holds.len();
            assert!(self.owned[key as usize].holds() as usize <= holds);
            for producer in 0..8 {
                let own: Vec<u32> =
                    seen.iter().filter(|(k, v)| *k == key && v / 100 == producer).map(|(_, v)| *v).collect();
                assert!(own.windows(2).all(|pair| pair[0] < pair[1]), "key {key}: out of order or twice: {own:?}");
            }
        }
        let (mut seen, mut reported) = (seen, reported.take());
        seen.sort_unstable();
        reported.sort_unstable();
        assert_eq!(seen, reported, "lost or doubled");
    }
}

/// Random calls of one producer. Versions tell the producer and the order.
fn produce(w: &World, producer: u32, calls: u32, reported: &Log<(u32, u32)>) {
    for i in 1..=calls {
        let key = thread_rng().gen_range(0..KEYS);
        let version = producer * 100 + i;
        match thread_rng().gen_range(0..4) {
            0 => w.delete(key),
            1 => {
                w.add(key, version);
                reported.push((key, version));
            }
            _ => {
                w.update(key, version);
                reported.push((key, version));
            }
        }
    }
}

fn everything(name: &'static str, mode: Mode, options: fn(FifoBuilder) -> FifoBuilder) {
    check(name, move || {
        let w = World::with(mode, options);
        let witness = Witness::default();
        let reported = Log::default();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let witness = witness.clone();
                spawn(&w, move |w| witness.consume(w))
            })
            .collect();
        let mut feeders: Vec<_> = (1..=3)
            .map(|producer| {
                let reported = reported.clone();
                spawn(&w, move |w| produce(w, producer, 5, &reported))
            })
            .collect();
        feeders.push(spawn(&w, |w| {
            w.resync();
            w.replace(&[(1, 900), (3, 901)]);
            w.resync();
            w.replace(&[(2, 902)]);
        }));
        for feeder in feeders {
            feeder.join().unwrap();
        }
        w.fifo.close_and_drain_blocking();
        for consumer in consumers {
            consumer.join().unwrap();
        }
        witness.assert_complete(&reported);
        assert!(w.fifo.has_synced(), "the count is stuck");
        w.assert_clean();
    });
}

/// Seven threads: three producers, a thread that resyncs and replaces, two consumers that also requeue, a drain.
#[test]
fn everything_external() {
    everything("everything_external", Mode::External, |b| b);
}

/// The same with known objects in the slots.
#[test]
fn everything_embedded() {
    everything("everything_embedded", Mode::Embedded, |b| b);
}

/// The same with two lanes.
#[test]
fn everything_in_two_lanes() {
    everything("everything_in_two_lanes", Mode::External, |b| b.background_share(NonZeroU32::new(2).unwrap()));
}

/// The same with limits: every producer waits again and again, and all of it comes through.
#[test]
fn everything_with_limits() {
    everything("everything_with_limits", Mode::External, |b| b.limits(Limits { keys: Some(2), deltas: Some(3) }));
}

/// Six threads: four producers (two async) into a queue that holds one delta, one consumer that takes batches. Nothing
/// but the consumer makes room, so a lost wake-up of a producer is a deadlock.
#[test]
fn full_house() {
    check("full_house", || {
        let w = World::with(Mode::Nowhere, |b| b.limits(Limits { keys: Some(1), deltas: Some(1) }));
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                spawn(&w, move |w| {
                    for i in 0..3 {
                        let object = obj((producer + i) % KEYS, producer * 10 + i + 1);
                        match producer % 2 {
                            0 => w.fifo.add(object).unwrap(),
                            _ => block_on(w.fifo.add_async(object)).unwrap(),
                        }
                    }
                })
            })
            .collect();
        let consumer = spawn(&w, |w| {
            let mut got = 0;
            while got < 12 {
                for claim in w.fifo.pop_batch_blocking(2).unwrap() {
                    assert_eq!(claim.deltas().len(), 1, "the limit is exceeded");
                    got += 1;
                }
            }
        });
        for producer in producers {
            producer.join().unwrap();
        }
        consumer.join().unwrap();
        w.assert_clean();
    });
}

/// Six threads: two consumers that give up again and again (a poll and a drop), two that wait, one producer.
#[test]
fn impatient_consumers() {
    check("impatient_consumers", || {
        let w = World::new(Mode::Nowhere);
        let got = Log::default();
        let mut consumers = Vec::new();
        for _ in 0..2 {
            let got = got.clone();
            consumers.push(spawn(&w, move |w| {
                for _ in 0..4 {
                    let mut pop = pin!(w.fifo.pop());
                    if let std::task::Poll::Ready(Ok(claim)) =
                        pop.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                    {
                        got.extend(versions(&claim));
                    }
                    thread::yield_now();
                }
            }));
        }
        for i in 0..2 {
            let got = got.clone();
            consumers.push(spawn(&w, move |w| {
                let next = || match i {
                    0 => w.fifo.pop_blocking(),
                    _ => block_on(w.fifo.pop()),
                };
                while let Ok(claim) = next() {
                    got.extend(versions(&claim));
                }
            }));
        }
        for version in 1..=8 {
            w.add(version % KEYS, version);
        }
        // Not by the close: every ticket must find its consumer.
        while got.len() < 8 {
            thread::yield_now();
        }
        w.fifo.close();
        for consumer in consumers {
            consumer.join().unwrap();
        }
        w.assert_clean();
    });
}

fn linearizable(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        w.seed(2, 2);
        let history = History::new(&w);
        let consumers: Vec<_> = (0..2).map(|_| spawn(&w, World::consume)).collect();
        let producers: Vec<_> = (1..=3)
            .map(|producer| {
                let history = history.clone();
                spawn(&w, move |w| {
                    for i in 0..2 {
                        let key = thread_rng().gen_range(0..3);
                        let version = producer * 100 + i;
                        history.run(
                            w,
                            match (producer, thread_rng().gen_range(0..3)) {
                                (1, 0) => Op::Replace(vec![(key, version)]),
                                (1, 1) => Op::Replace(vec![(0, version), (key.max(1), version + 50)]),
                                (_, 0) => Op::Delete(key),
                                _ => Op::Put(key, version),
                            },
                        );
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        w.fifo.close();
        for consumer in consumers {
            consumer.join().unwrap();
        }
        history.assert_linearizable(&w);
        w.assert_clean();
    });
}

/// Six threads: three producers with random calls, replaces among them, two consumers. The end must be that of a
/// sequential order.
#[test]
fn linearizable_external() {
    linearizable("linearizable_external", Mode::External);
}

/// The same with known objects in the slots.
#[test]
fn linearizable_embedded() {
    linearizable("linearizable_embedded", Mode::Embedded);
}

/// Seven threads around the informer's hand-over: two producers of their own keys, two workers, two that add and
/// remove handlers, and a barrier again and again. A handler checks each event against what it knows; one that stays has
/// what the store has; the barrier is never early.
#[test]
fn informer_everything() {
    check("informer_everything", || {
        let i = Informer::new(2);
        let stays = i.register();
        let workers: Vec<_> = (0..2).map(|worker| spawn_in(&i, move |i| i.work(worker, worker + 1))).collect();
        // By key, the version that is queued.
        let queued: Arc<[AtomicU32; KEYS as usize]> = Arc::new(std::array::from_fn(|_| AtomicU32::new(0)));
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let queued = queued.clone();
                spawn_in(&i, move |i| {
                    let mut last = [None; 2];
                    for version in 1..=4 {
                        let which = thread_rng().gen_range(0..2);
                        let key = producer * 2 + which;
                        if thread_rng().gen_ratio(1, 4) {
                            i.delete(key);
                            last[which as usize] = None;
                        } else {
                            i.put(key, version);
                            queued[key as usize].store(version, std::sync::atomic::Ordering::SeqCst);
                            last[which as usize] = Some(version);
                        }
                    }
                    (0..2).filter_map(|which| Some((producer * 2 + which, last[which as usize]?))).collect::<Vec<_>>()
                })
            })
            .collect();
        let guests: Vec<_> = (0..2)
            .map(|_| {
                spawn_in(&i, |i| {
                    let mut guest = i.register();
                    for _ in 0..2 {
                        guest.view();
                        if thread_rng().gen_bool(0.5) {
                            assert!(i.remove(&guest));
                            guest = i.register();
                        }
                    }
                    guest
                })
            })
            .collect();
        for _ in 0..3 {
            let targets: Vec<_> = queued.iter().map(|v| v.load(std::sync::atomic::Ordering::SeqCst)).collect();
            assert!(i.is_reached());
            for (key, target) in (0..KEYS).zip(targets) {
                assert!(i.applied(key) >= target, "reached before it was applied");
            }
        }
        let objects: Vec<_> = producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect();
        let guests: Vec<_> = guests.into_iter().map(|guest| guest.join().unwrap()).collect();
        i.fifo.close();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(i.handlers(), 3, "a handler is lost, or back");
        i.assert_settled(&objects, &[&stays, &guests[0], &guests[1]]);
    });
}

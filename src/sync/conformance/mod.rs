//! The stand-ins behave like the real parts: both are taken through the same random operations, and must answer the
//! same. Here the stand-ins are made of std's primitives; under a checker the same files are made of the checker's.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::task::{Context, Waker};

use super::real;

mod on_std;
use on_std::{standin, standin_event};

const SEEDS: u64 = 200;
const STEPS: usize = 300;

/// Runs `body` with many random sources; a failure names the seed.
fn for_each_seed(body: impl Fn(&mut fastrand::Rng)) {
    for seed in 0..SEEDS {
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut fastrand::Rng::with_seed(seed))));
        if let Err(panic) = outcome {
            eprintln!("with seed {seed}:");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn tables_agree() {
    type Hasher = BuildHasherDefault<DefaultHasher>;
    for_each_seed(|rng| {
        let real = real::Table::<u32, u32, Hasher>::new(4, Hasher::default());
        let other = standin::Table::<u32, u32, Hasher>::new(4, Hasher::default());
        for step in 0..STEPS as u32 {
            let key = rng.u32(..12);
            let (hash, other_hash) = (real.hash(&key), other.hash(&key));
            match rng.u32(..4) {
                0 => {
                    let (mut real, mut other) = (real.lock(hash), other.lock(other_hash));
                    let there = real.get_mut(&key).is_some();
                    assert_eq!(there, other.get_mut(&key).is_some());
                    if !there {
                        assert_eq!(real.insert(key, step), other.insert(key, step));
                    }
                }
                1 => {
                    let (mut real, mut other) = (real.lock(hash), other.lock(other_hash));
                    let (real, other) = (real.get_mut(&key), other.get_mut(&key));
                    assert_eq!(real, other);
                    if let (Some(real), Some(other)) = (real, other) {
                        *real += 1;
                        *other += 1;
                    }
                }
                2 => assert_eq!(real.lock(hash).remove(&key), other.lock(other_hash).remove(&key)),
                _ => {
                    let (mut all, mut others) = (BTreeMap::new(), BTreeMap::new());
                    real.scan(|key, value| assert_eq!(all.insert(*key, *value), None, "visited twice"));
                    other.scan(|key, value| assert_eq!(others.insert(*key, *value), None, "visited twice"));
                    assert_eq!(all, others);
                }
            }
        }
    });
}

#[test]
fn queues_agree() {
    for weak in [false, true] {
        for_each_seed(|rng| {
            let (real, other) = (real::Queue::new(), standin::Queue::with(weak));
            for step in 0..STEPS {
                if rng.bool() {
                    real.push(step);
                    other.push(step);
                } else {
                    assert_eq!(real.pop(), other.pop());
                }
                assert_eq!(real.len(), other.len());
                assert_eq!(real.is_empty(), other.is_empty());
            }
        });
    }
}

/// The stand-in is always empty, which a real one may be too: what is common is that nothing is made up or kept twice.
#[test]
fn pools_agree() {
    for_each_seed(|rng| {
        let (real, other) = (real::Pool::new(3), standin::Pool::new(3));
        let mut stocked = Vec::new();
        for step in 0..STEPS {
            if rng.bool() {
                assert_eq!(other.put(step), Some(step), "what it does not keep it gives back");
                match real.put(step) {
                    None => stocked.push(step),
                    Some(refused) => assert_eq!((refused, stocked.len()), (step, 3)),
                }
            } else {
                assert_eq!(other.take(), None);
                match real.take() {
                    None => assert!(stocked.is_empty()),
                    Some(taken) => stocked.retain(|&step| step != taken),
                }
            }
        }
    });
}

fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Who is woken by which call, and what a dropped listener passes on.
#[test]
fn events_agree() {
    for_each_seed(|rng| {
        let (real, other) = (real::Event::new(), standin_event::Event::new());
        let mut listeners = Vec::new();
        for _ in 0..STEPS {
            match rng.u32(..8) {
                0..=2 => listeners.push((real::asleep(real.listen()), standin_event::asleep(other.listen()))),
                3 => {
                    let n = if rng.u32(..4) == 0 { usize::MAX } else { rng.usize(1..3) };
                    real.notify(n);
                    other.notify(n);
                }
                4 => {
                    let n = rng.usize(1..3);
                    real.notify_additional(n);
                    other.notify_additional(n);
                }
                5 if !listeners.is_empty() => drop(listeners.swap_remove(rng.usize(..listeners.len()))),
                _ if !listeners.is_empty() => {
                    let at = rng.usize(..listeners.len());
                    let (real, other) = &mut listeners[at];
                    let ready = is_ready(real);
                    assert_eq!(ready, is_ready(other), "one wakes, the other does not");
                    if ready {
                        drop(listeners.swap_remove(at));
                    }
                }
                _ => {}
            }
        }
        // Whom the rest of the notifications went to.
        for (real, other) in &mut listeners {
            assert_eq!(is_ready(real), is_ready(other), "one wakes, the other does not");
        }
    });
}

//! Eight producers and eight consumers on 1,000 keys, with a lister, a resyncer, and handlers that panic, requeue and
//! give up half-way. Every delta is accounted for, every key keeps its order, no key is claimed twice at a time, and
//! the store ends as a sequential account allows.
//!
//! `DELTA_FIFO_STRESS_SECONDS` is the time of each shape (default: half a second), `DELTA_FIFO_STRESS_SEED` the seed of
//! the load. The interleaving is the machine's, so a seed does not replay a run; it replays what was tried.

#[path = "stress/account.rs"]
mod account;
#[path = "stress/load.rs"]
mod load;

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use delta_fifo::Limits;
use load::{Run, Shape};

/// One shape at a time has the machine.
static ALONE: Mutex<()> = Mutex::new(());

fn variable(name: &str) -> Option<f64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, but is {text:?}")))
}

fn stress(shape: Shape) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = variable("DELTA_FIFO_STRESS_SECONDS").unwrap_or(0.5);
    let seed = variable("DELTA_FIFO_STRESS_SEED").map_or_else(|| fastrand::u64(..1 << 50), |seed| seed as u64);
    let run = Run::new(shape.clone(), seed);
    let violations = run.run(Duration::from_secs_f64(seconds), |_| {});
    let counts: Vec<String> = run.counts.values().iter().map(|(name, n)| format!("{name} {n}")).collect();
    println!("{}: {seconds} s, seed {seed}: {}", shape.name, counts.join(", "));
    assert!(violations.is_empty(), "{shape:?}, seed {seed}: {violations:#?}");
    let count = |name| run.counts.values().iter().find(|(n, _)| *n == name).expect("there is such a count").1;
    for name in ["updates", "deletes", "replaces", "resyncs", "claims", "panics", "requeues"] {
        assert_ne!(count(name), 0, "{name}: a run without one proves nothing");
    }
}

#[test]
fn embedded_store() {
    stress(Shape { name: "embedded_store", ..Shape::default() });
}

#[test]
fn external_store() {
    stress(Shape { name: "external_store", embedded: false, ..Shape::default() });
}

#[test]
fn embedded_store_with_limits() {
    let limits = Limits { keys: Some(200), deltas: Some(500) };
    stress(Shape { name: "embedded_store_with_limits", limits, ..Shape::default() });
}

#[test]
fn external_store_with_limits() {
    let limits = Limits { keys: Some(50), deltas: Some(60) };
    stress(Shape { name: "external_store_with_limits", embedded: false, limits, ..Shape::default() });
}

#[test]
fn embedded_store_keep_latest() {
    stress(Shape { name: "embedded_store_keep_latest", keep_latest: true, ..Shape::default() });
}

#[test]
fn external_store_keep_latest_with_limits() {
    let limits = Limits { keys: Some(100), deltas: None };
    let name = "external_store_keep_latest_with_limits";
    stress(Shape { name, embedded: false, keep_latest: true, limits, ..Shape::default() });
}

#[test]
fn two_lanes() {
    let background_share = NonZeroU32::new(4);
    stress(Shape { name: "two_lanes", embedded: false, background_share, ..Shape::default() });
}

#[test]
fn bursts_on_few_keys() {
    stress(Shape { name: "bursts_on_few_keys", keys: 8, burst: 100, faults: 200, ..Shape::default() });
}

//! A panic at every call into user code: one after another, in pairs, and at random on several threads. Whatever
//! panics, nothing that was accepted is lost, no key is stuck, nothing is poisoned, room is given back, and nothing
//! leaks.
//!
//! `DELTA_FIFO_FAULT_PAIRS` is how many pairs are tried for each queue (default 1,000, spread evenly; `all` for all).

#[path = "faults/futures.rs"]
mod futures;
#[path = "faults/inject.rs"]
mod inject;
#[path = "faults/script.rs"]
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use inject::{Plan, Site};
use script::{Run, Setup};

/// Calls whose panics cost nothing but the call itself.
const CONTAINED: [Site; 9] = [
    Site::KeyFn,
    Site::Transform,
    Site::Compress,
    Site::ListKeys,
    Site::GetByKey,
    Site::Handler,
    Site::KeyClone,
    Site::KeyDrop,
    Site::ObjectDrop,
];

fn setups() -> Vec<Setup> {
    let plain = Setup { embedded: false, functions: false, limited: false, two_lanes: false, keep_latest: false };
    vec![
        Setup { limited: true, ..plain },
        Setup { functions: true, ..plain },
        Setup { embedded: true, limited: true, keep_latest: true, ..plain },
        Setup { embedded: true, functions: true, limited: true, two_lanes: true, ..plain },
    ]
}

/// Runs the script with panics at these calls, and says what is wrong afterwards.
fn run(setup: Setup, sites: &[Site], at: &[u64]) -> (std::sync::Arc<Plan>, String) {
    let plan = Plan::new(sites, at, 0);
    let run = Run::new(setup, &plan);
    run.script();
    let wrong = run.check();
    (plan, wrong)
}

/// Fails with the first few of what went wrong.
fn verdict(what: &str, runs: usize, fired: &BTreeMap<Site, u64>, failed: &[String]) {
    println!("{what}: {runs} runs, panics by call: {fired:?}, {} runs failed", failed.len());
    assert!(
        failed.is_empty(),
        "{what}: {} of {runs} runs failed, such as\n{}",
        failed.len(),
        failed[..failed.len().min(5)].join("\n")
    );
}

fn inject(what: &str, setup: Setup, sites: &[Site], plans: impl Iterator<Item = Vec<u64>>) {
    let (mut runs, mut fired, mut failed) = (0, BTreeMap::new(), Vec::new());
    for at in plans {
        let (plan, wrong) = run(setup, sites, &at);
        runs += 1;
        plan.fired().into_iter().for_each(|site| *fired.entry(site).or_default() += 1);
        if !wrong.is_empty() {
            failed.push(format!("{setup:?}, calls {at:?}, panics {:?}:\n{wrong}", plan.fired()));
        }
    }
    verdict(what, runs, &fired, &failed);
}

fn calls(setup: Setup, sites: &[Site]) -> u64 {
    let (plan, wrong) = run(setup, sites, &[]);
    assert_eq!(wrong, "", "{setup:?}: wrong without any fault");
    plan.calls()
}

#[test]
fn a_panic_at_any_call_costs_that_call_only() {
    for setup in setups() {
        let calls = calls(setup, &CONTAINED);
        inject("one after another", setup, &CONTAINED, (1..=calls).map(|n| vec![n]));
    }
}

#[test]
fn two_panics_at_any_two_calls_cost_those_calls_only() {
    for setup in setups() {
        // A few more than without faults: after the first panic the script goes on differently.
        let calls = calls(setup, &CONTAINED) + 10;
        let all = calls * (calls - 1) / 2;
        let wanted = match std::env::var("DELTA_FIFO_FAULT_PAIRS").as_deref() {
            Err(_) => 1_000,
            Ok("all") => all,
            Ok(number) => number.parse().expect("DELTA_FIFO_FAULT_PAIRS must be a number, or all"),
        };
        let step = (all / wanted).max(1);
        let pairs = (1..=calls).flat_map(|a| (a + 1..=calls).map(move |b| vec![a, b]));
        inject("in pairs", setup, &CONTAINED, pairs.step_by(step as usize));
    }
}

#[test]
fn panics_on_several_threads_leave_the_other_keys_alone() {
    for setup in setups() {
        let plan = Plan::new(&CONTAINED, &[], 50);
        let run = Run::new(setup, &plan);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let producers: Vec<_> = (0..3)
                .map(|producer| {
                    let run = &run;
                    scope.spawn(move || {
                        // Each key has one producer, so the journal of a key is in the order of its calls.
                        for n in 0..400 {
                            let id = producer + 3 * fastrand::u32(..4);
                            if n % 5 == 4 { run.delete(id) } else { run.update(id) }
                        }
                    })
                })
                .collect();
            let consumers = 3;
            for consumer in 0..consumers {
                let (run, over) = (&run, &over);
                scope.spawn(move || {
                    // Acquire: after the producers' last calls.
                    while !over.load(Ordering::Acquire) {
                        if !run.pop(|| ()) {
                            if consumer == 0 {
                                run.resync();
                            }
                            thread::yield_now();
                        }
                    }
                });
            }
            producers.into_iter().for_each(|producer| producer.join().expect("panics of the plan are caught"));
            over.store(true, Ordering::Release);
        });
        let wrong = run.check();
        let mut fired = BTreeMap::new();
        plan.fired().into_iter().for_each(|site| *fired.entry(site).or_default() += 1);
        let failed = if wrong.is_empty() { vec![] } else { vec![format!("{setup:?}: {wrong}")] };
        verdict("on several threads", 1, &fired, &failed);
    }
}

#[test]
fn a_panic_of_hash_costs_that_call_only() {
    for setup in setups() {
        let calls = calls(setup, &[Site::KeyHash]);
        inject("hash", setup, &[Site::KeyHash], (1..=calls).map(|n| vec![n]));
    }
}

/// The documented limit: an `Eq` that panics while the queue looks for a claimed or queued key may cost that key.
#[test]
fn a_panic_of_eq_costs_at_most_its_own_key() {
    for setup in setups() {
        let calls = calls(setup, &[Site::KeyEq]);
        let mut failed = Vec::new();
        for n in 1..=calls {
            let (plan, wrong) = run(setup, &[Site::KeyEq], &[n]);
            assert_eq!(plan.fired(), [Site::KeyEq]);
            let keys: BTreeSet<&str> =
                wrong.lines().filter_map(|line| line.strip_prefix("key ")?.split([' ', ':']).next()).collect();
            if keys.len() > 1 || wrong.contains("never becomes empty") || wrong.contains("left") {
                failed.push(format!("{setup:?}, call {n}:\n{wrong}"));
            }
        }
        verdict("eq", calls as usize, &BTreeMap::from([(Site::KeyEq, calls)]), &failed);
    }
}

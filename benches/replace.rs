//! The calls of W6 and W7 with criterion: a list, or a Resync, of keys that are all known and idle.

#![allow(unreachable_pub, dead_code, reason = "the modules are shared with the bench `workloads`")]

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

mod workloads {
    pub mod engine;
    pub mod object;
}

use workloads::engine::{Embedded, Engine, External, Held, Outside};
use workloads::object::objects;

const KEYS: usize = 100_000;

fn on<E: Engine>(c: &mut Criterion) {
    let objects = objects(KEYS);
    let engine = E::new(KEYS);
    engine.know(&objects);
    // The call is timed, and what it queued is popped outside the clock.
    let timed = |iterations: u64, call: &dyn Fn()| -> Duration {
        let one = |_| {
            let begin = Instant::now();
            call();
            let took = begin.elapsed();
            for _ in 0..KEYS {
                engine.pop(|_| {});
            }
            took
        };
        (0..iterations).map(one).sum()
    };
    for (name, call) in [
        ("replace", &(|| engine.replace(objects.clone())) as &dyn Fn()),
        ("resync", &(|| engine.resync()) as &dyn Fn()),
    ] {
        let mut group = c.benchmark_group(name);
        group.sample_size(10).throughput(Throughput::Elements(KEYS as u64));
        group.bench_function(BenchmarkId::new("100k_keys", E::NAME), |b| b.iter_custom(|n| timed(n, call)));
    }
}

criterion_group!(benches, on::<Embedded>, on::<External>, on::<Held>, on::<Outside>);
criterion_main!(benches);

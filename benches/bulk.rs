//! W1 with criterion: keys that come in for the first time, and are then popped.

#![allow(unreachable_pub, dead_code, reason = "the modules are shared with the bench `workloads`")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

mod workloads {
    pub mod engine;
    pub mod object;
}

use workloads::engine::{Embedded, Engine, External, Held, Outside};
use workloads::object::objects;

const KEYS: [(usize, &str); 2] = [(10_000, "10k_keys"), (100_000, "100k_keys")];

fn on<E: Engine>(c: &mut Criterion) {
    for (keys, name) in KEYS {
        let objects = objects(keys);
        let mut group = c.benchmark_group("bulk");
        group.throughput(Throughput::Elements(keys as u64));
        group.bench_function(BenchmarkId::new(format!("add/{name}"), E::NAME), |b| {
            b.iter_batched_ref(
                || E::new(keys),
                |engine| objects.iter().for_each(|object| engine.add(object.clone())),
                BatchSize::PerIteration,
            );
        });
        group.bench_function(BenchmarkId::new(format!("pop/{name}"), E::NAME), |b| {
            let full = || {
                let engine = E::new(keys);
                objects.iter().for_each(|object| engine.add(object.clone()));
                engine.close();
                engine
            };
            b.iter_batched_ref(full, |engine| while engine.pop(|_| {}) {}, BatchSize::PerIteration);
        });
    }
}

criterion_group!(benches, on::<Embedded>, on::<External>, on::<Held>, on::<Outside>);
criterion_main!(benches);

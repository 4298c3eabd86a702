//! W3b with criterion: one thread updates a key, pops it, applies it, releases it; and updates that find their key
//! queued.

#![allow(unreachable_pub, dead_code, reason = "the modules are shared with the bench `workloads`")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

mod workloads {
    pub mod engine;
    pub mod object;
}

use workloads::engine::{Embedded, Engine, External, Held, Outside};
use workloads::object::{Draw, draws, objects};

const KEYS: [(usize, &str); 3] = [(100, "100_keys"), (10_000, "10k_keys"), (100_000, "100k_keys")];

fn on<E: Engine>(c: &mut Criterion) {
    let mut group = c.benchmark_group("round_trip");
    for (keys, name) in KEYS {
        let objects = objects(keys);
        let engine = E::new(keys);
        engine.know(&objects);
        let draws = draws(Draw::Uniform, keys, 1 << 20, 1).remove(0);
        for (fresh, kind) in [(false, "shared"), (true, "fresh")] {
            let mut next = draws.iter().cycle().map(|&i| &objects[i as usize]);
            group.bench_function(BenchmarkId::new(format!("{kind}/{name}"), E::NAME), |b| {
                b.iter(|| {
                    let object = next.next().expect("a cycle has no end");
                    engine.update(if fresh { object.fresh() } else { object.clone() });
                    engine.pop(|_| {})
                });
            });
        }
    }
}

criterion_group!(benches, on::<Embedded>, on::<External>, on::<Held>, on::<Outside>);
criterion_main!(benches);

//! W2, W2u and W3 with criterion: producers and consumers at the same time, from the first update until the last one is
//! applied. Ids as `steady_zipf/2p2c/10k_keys`.

#![allow(unreachable_pub, dead_code, reason = "the modules are shared with the bench `workloads`")]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

mod workloads {
    pub mod engine;
    pub mod object;
}

use workloads::engine::{Embedded, Engine, External, Held, Outside};
use workloads::object::{Draw, draws, objects};

const UPDATES: usize = 200_000;

fn on<E: Engine>(c: &mut Criterion) {
    for (draw, name) in [(Draw::Zipf, "steady_zipf"), (Draw::Uniform, "steady_uniform")] {
        let mut group = c.benchmark_group(name);
        group.sample_size(10).measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(UPDATES as u64));
        for (keys, keys_name) in [(10_000, "10k_keys"), (100_000, "100k_keys")] {
            for threads in [1, 2] {
                let id = BenchmarkId::new(format!("{threads}p{threads}c/{keys_name}"), E::NAME);
                group.bench_function(id, |b| {
                    b.iter_custom(|iterations| (0..iterations).map(|_| stream::<E>(draw, keys, threads)).sum());
                });
            }
        }
    }
}

fn stream<E: Engine>(draw: Draw, keys: usize, threads: usize) -> Duration {
    let objects = objects(keys);
    let engine = E::new(keys);
    engine.know(&objects);
    let draws = draws(draw, keys, UPDATES, threads);
    let start = Barrier::new(2 * threads + 1);
    thread::scope(|scope| {
        let (engine, objects, start) = (&engine, &objects, &start);
        let produce = |own: Vec<u32>| {
            start.wait();
            own.into_iter().for_each(|i| engine.update(objects[i as usize].clone()));
        };
        let producers: Vec<_> = draws.into_iter().map(|own| scope.spawn(move || produce(own))).collect();
        let consume = || {
            start.wait();
            while engine.pop(|_| {}) {}
        };
        let consumers: Vec<_> = (0..threads).map(|_| scope.spawn(consume)).collect();
        start.wait();
        let begin = Instant::now();
        for producer in producers {
            producer.join().expect("a producer does not panic");
        }
        engine.close();
        for consumer in consumers {
            consumer.join().expect("a consumer does not panic");
        }
        begin.elapsed()
    })
}

criterion_group!(benches, on::<Embedded>, on::<External>, on::<Held>, on::<Outside>);
criterion_main!(benches);

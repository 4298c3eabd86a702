//! How much goes through: W1, W2, W3, W3b, W5, W9.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::object::{Draw, draws, objects};
use super::run::Run;
use counting_alloc::allocations;

/// W1: one thread adds new keys, then pops and applies all.
pub fn bulk<E: Engine>(run: &Run) {
    let objects = objects(run.scaled(1_000_000));
    let engine = E::new(objects.len());
    let mut handled = 0;

    let begin = Instant::now();
    for object in &objects {
        engine.add(object.clone());
    }
    let added = begin.elapsed();
    let begin = Instant::now();
    while handled < objects.len() {
        engine.pop(|deltas| handled += deltas);
    }
    let popped = begin.elapsed();

    run.check("objects in the store", engine.stored(), objects.len());
    run.report("add_ns", added.as_nanos() as f64 / objects.len() as f64, "ns");
    run.report("pop_ns", popped.as_nanos() as f64 / objects.len() as f64, "ns");
}

/// W2, W3: as many producers as consumers; from the first update until the last one is applied.
pub fn steady<E: Engine>(run: &Run, draw: Draw, keys: usize, threads: usize) {
    let (updates, elapsed, pops) = stream::<E>(run, draw, keys, run.scaled(4_000_000), threads, Duration::ZERO);
    run.report("updates_per_s", updates as f64 / elapsed.as_secs_f64(), "1/s");
    run.report("pops", pops as f64, "1");
}

/// W9: W3's shape over threads and handlers. The workload's name says both.
pub fn scale<E: Engine>(run: &Run) {
    for micros in [0, 1, 10] {
        let handler = Duration::from_micros(micros);
        for threads in (0..).map(|n| 1 << n).take_while(|&threads| threads <= run.threads) {
            let workload = format!("W9/{micros}us/{threads}t");
            let run = Run { workload, ..*run };
            let (updates, elapsed, _) = stream::<E>(&run, Draw::Zipf, 10_000, run.scaled(1_000_000), threads, handler);
            run.report("updates_per_s", updates as f64 / elapsed.as_secs_f64(), "1/s");
        }
    }
}

/// Updates of known keys from `threads` producers to `threads` consumers: how many, how long, in how many pops.
fn stream<E: Engine>(
    run: &Run,
    draw: Draw,
    keys: usize,
    updates: usize,
    threads: usize,
    handler: Duration,
) -> (usize, Duration, usize) {
    let objects = objects(keys);
    let engine = E::new(keys);
    engine.know(&objects);
    let draws = draws(draw, keys, updates, threads);
    let updates = draws.iter().map(Vec::len).sum();
    let start = Barrier::new(2 * threads + 1);

    let (elapsed, handled, pops) = thread::scope(|scope| {
        let produce = |own: &[u32]| {
            start.wait();
            for &i in own {
                engine.update(run.updated(&objects[i as usize]));
            }
        };
        let consume = || {
            let (mut handled, mut pops) = (0, 0);
            start.wait();
            while engine.pop(|deltas| {
                handled += deltas;
                spin(handler);
            }) {
                pops += 1;
            }
            (handled, pops)
        };
        let producers: Vec<_> = draws.iter().map(|own| scope.spawn(move || produce(own))).collect();
        let consumers: Vec<_> = (0..threads).map(|_| scope.spawn(consume)).collect();
        start.wait();
        let begin = Instant::now();
        for producer in producers {
            producer.join().expect("a producer does not panic");
        }
        engine.close();
        let (mut handled, mut pops) = (0, 0);
        for consumer in consumers {
            let (h, p) = consumer.join().expect("a consumer does not panic");
            handled += h;
            pops += p;
        }
        (begin.elapsed(), handled, pops)
    });
    run.check("deltas handled", handled, updates);
    run.check("objects in the store", engine.stored(), keys);
    (updates, elapsed, pops)
}

/// A handler that computes.
pub fn spin(duration: Duration) {
    if duration.is_zero() {
        return;
    }
    let begin = Instant::now();
    while begin.elapsed() < duration {
        spin_loop();
    }
}

/// W3b: one thread updates a key, pops it, applies it, releases it.
pub fn round_trip<E: Engine>(run: &Run) {
    let objects = objects(10_000);
    let engine = E::new(objects.len());
    engine.know(&objects);
    let draws = draws(Draw::Uniform, objects.len(), run.scaled(4_000_000), 1).remove(0);
    let mut handled = 0;
    let mut trip = |i: &u32| {
        engine.update(run.updated(&objects[*i as usize]));
        engine.pop(|deltas| handled += deltas);
    };
    let warm = &draws[..draws.len().min(100_000)];
    warm.iter().for_each(&mut trip);

    let before = allocations();
    let begin = Instant::now();
    draws.iter().for_each(&mut trip);
    let elapsed = begin.elapsed();
    let allocations = (allocations() - before) as f64 / draws.len() as f64;

    run.check("deltas handled", handled, warm.len() + draws.len());
    run.report("round_trip_ns", elapsed.as_nanos() as f64 / draws.len() as f64, "ns");
    // The object itself is the producer's.
    run.report("allocations", allocations - f64::from(u8::from(run.fresh)), "1");
}

/// W5: eight consumers with a handler that sleeps.
pub fn slow_handlers<E: Engine>(run: &Run) {
    let objects = objects(run.scaled(20_000));
    let engine = E::new(objects.len());
    for object in &objects {
        engine.add(object.clone());
    }
    engine.close();
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| while engine.pop(|_| thread::sleep(Duration::from_micros(200))) {});
        }
    });
    let elapsed = begin.elapsed();
    run.check("objects in the store", engine.stored(), objects.len());
    run.report("pops_per_s", objects.len() as f64 / elapsed.as_secs_f64(), "1/s");
}

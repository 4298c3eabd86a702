//! How long a call takes while the other side is busy: W4.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::engine::Engine;
use super::object::{Draw, draws, objects};
use super::run::Run;
use super::throughput::spin;

/// The quantiles that are reported, with their names.
pub const QUANTILES: [(&str, f64); 6] = [
    ("update_p50_us", 0.5),
    ("update_p90_us", 0.9),
    ("update_p99_us", 0.99),
    ("update_p99_9_us", 0.999),
    ("update_p99_99_us", 0.9999),
    ("update_max_us", 1.0),
];

/// W4: the handler computes for 20 us, an update is due every 10 us. A producer that is late catches up; what counts
/// is the time of the call.
pub fn busy_handler<E: Engine>(run: &Run) {
    const PACE: Duration = Duration::from_micros(10);
    let updates = run.scaled(300_000);
    let objects = objects(10_000);
    let engine = E::new(objects.len());
    engine.know(&objects);
    let draws = draws(Draw::Uniform, objects.len(), updates, 1).remove(0);
    let mut calls = Histogram::<u64>::new(3).expect("three digits are possible");

    let (handled, took) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut handled = 0;
            while engine.pop(|deltas| {
                handled += deltas;
                spin(Duration::from_micros(20));
            }) {}
            handled
        });
        let start = Instant::now();
        let mut due = Duration::ZERO;
        for &i in &draws {
            while start.elapsed() < due {
                spin_loop();
            }
            due += PACE;
            let object = run.updated(&objects[i as usize]);
            let begin = Instant::now();
            engine.update(object);
            calls.record(begin.elapsed().as_nanos() as u64).expect("a histogram made by `new` grows");
        }
        let took = start.elapsed();
        engine.close();
        (consumer.join().expect("a consumer does not panic"), took)
    });

    run.check("deltas handled", handled, updates);
    for (metric, quantile) in QUANTILES {
        run.report(metric, calls.value_at_quantile(quantile) as f64 / 1e3, "us");
    }
    // 1 if the producer could keep its pace.
    run.report("pace_kept", (PACE * updates as u32).as_secs_f64() / took.as_secs_f64(), "1");
}

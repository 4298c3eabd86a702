//! Soak: episode after episode of random load on the queue, all features in turn, with handlers that fail, for as long
//! as it is told to. It fails on an order violation, on a lost or doubled delta, on a key that is stuck, on memory that
//! does not come back, and on a standstill; each episode has the checks of `tests/stress.rs`.
//!
//! ```text
//! cargo run --release --example soak                             one minute
//! cargo run --release --example soak -- --seconds 28800          a night
//! cargo run --release --example soak -- --seed 7                 the same shapes again
//! ```
//!
//! The report and its plots go to `target/soak`.

// One program: `pub` means "for the other modules".
#![allow(unreachable_pub, missing_debug_implementations)]

mod latency;
mod report;

#[path = "../../tests/stress/account.rs"]
mod account;
#[path = "../../tests/stress/load.rs"]
mod load;
#[path = "../../benches/workloads/svg.rs"]
mod svg;

/// What `svg.rs` expects beside it.
mod table {
    pub fn number(value: f64) -> String {
        if value >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
    }
}

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use delta_fifo::Limits;
use latency::Latencies;
use load::{Run, Shape};
use report::{Episode, Report};

#[global_allocator]
static ALLOCATOR: counting_alloc::CountingProcess = counting_alloc::CountingProcess;

/// What an episode may leave behind: thread-locals and the report's own lines.
const LEFT_OVER: i64 = 256 * 1024;
/// Observations are a tenth of a second apart.
const STANDSTILL: u32 = 100;

/// Random load on the queue, checked, for as long as you like.
#[derive(Parser)]
struct Args {
    /// How long to go on.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of shapes and load; by default a random one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Where the report goes.
    #[arg(long, default_value = "target/soak")]
    report: PathBuf,
}

fn shape(rng: &mut fastrand::Rng) -> Shape {
    let keys = [8, 100, 1_000, 20_000][rng.usize(..4)];
    let limit = |rng: &mut fastrand::Rng| rng.bool().then(|| 10 + rng.usize(..2_000));
    Shape {
        name: "soak",
        producers: rng.usize(1..=8),
        consumers: rng.usize(4..=8),
        keys,
        embedded: rng.bool(),
        limits: if rng.bool() { Limits::default() } else { Limits { keys: limit(rng), deltas: limit(rng) } },
        keep_latest: rng.u8(..3) == 0,
        background_share: (rng.u8(..3) == 0).then(|| NonZeroU32::MIN.saturating_add(rng.u32(..5))),
        faults: [0, 20, 200][rng.usize(..3)],
        burst: [0, 0, 100, 1_000][rng.usize(..4)],
    }
}

fn episode(shape: &Shape, seed: u64, duration: Duration) -> Episode {
    let latencies = Latencies::new();
    let started = Instant::now();
    let run = {
        let latencies = latencies.clone();
        Run::with_latency(shape.clone(), seed, move |nanoseconds| latencies.record(nanoseconds))
    };
    let (mut peak_bytes, mut peak_keys) = (0, 0);
    let (mut claims, mut unchanged) = (0, 0);
    let violations = run.run(duration, |run| {
        peak_bytes = peak_bytes.max(counting_alloc::process_live_bytes());
        peak_keys = peak_keys.max(run.fifo.len());
        let now = run.counts.claims.load(std::sync::atomic::Ordering::Relaxed);
        unchanged = if now == claims { unchanged + 1 } else { 0 };
        claims = now;
        if unchanged > STANDSTILL && !run.fifo.is_empty() {
            // Its threads may never end, so neither would a panic here.
            eprintln!("standstill: {shape:?}, seed {seed}, {:?}, {:?}", run.fifo, run.counts.values());
            std::process::abort();
        }
    });
    Episode {
        shape: shape.clone(),
        seed,
        seconds: started.elapsed().as_secs_f64(),
        counts: run.counts.values(),
        peak_bytes,
        peak_keys,
        left_bytes: 0,
        p50: latencies.quantile(0.5),
        p99: latencies.quantile(0.99),
        violations,
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 50));
    let mut rng = fastrand::Rng::with_seed(seed);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    println!("soak for {} s, seed {seed}", args.seconds);
    let mut report = Report::new(seed);
    // The first episode also makes what stays for good: thread names, tables of the standard library.
    let mut baseline = None;
    while Instant::now() < end && !report.has_failed() {
        let shape = shape(&mut rng);
        let duration = Duration::from_millis(rng.u64(500..5_000)).min(end.saturating_duration_since(Instant::now()));
        let mut episode = episode(&shape, rng.u64(..1 << 50), duration);
        let live = counting_alloc::process_live_bytes();
        let own = *baseline.get_or_insert(live);
        episode.left_bytes = live - own;
        if episode.left_bytes > LEFT_OVER + report.bytes() {
            let left = episode.left_bytes;
            episode.violations.push(format!("{left} bytes did not come back"));
        }
        println!("{}", episode.line());
        report.add(episode);
    }
    match report.write(&args.report) {
        Ok(path) => println!("{}\nreport: {}", report.summary(), path.display()),
        Err(error) => {
            eprintln!("the report can't be written to {}: {error}", args.report.display());
            return ExitCode::FAILURE;
        }
    }
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

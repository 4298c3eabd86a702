//! Runs the workloads of ../README.md on the parts of kube-runtime that do the same work, and prints one JSON
//! object per figure.

mod dispatcher;
mod object;
mod report;
mod scheduler;

use std::error::Error;
use std::hint::spin_loop;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use object::{SEED, SplitMix64, Zipf};
use report::{Bench, Counting};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Work = fn(&Bench);

/// What runs where, in this order. What is missing has no counterpart; README.md says why.
const RUNS: &[(&str, &str, Work)] = &[
    ("W1", "kube-rs/dispatcher", dispatcher::bulk),
    ("W1", "kube-rs/scheduler", scheduler::bulk),
    ("W2", "kube-rs/dispatcher", |bench| dispatcher::steady(bench, 10_000, true)),
    ("W2", "kube-rs/scheduler", |bench| scheduler::steady(bench, 10_000, true)),
    ("W2u", "kube-rs/dispatcher", |bench| dispatcher::steady(bench, bench.scaled(1_000_000), false)),
    ("W2u", "kube-rs/scheduler", |bench| scheduler::steady(bench, bench.scaled(1_000_000), false)),
    ("W3b", "kube-rs/dispatcher", dispatcher::round_trip),
    ("W4", "kube-rs/dispatcher", dispatcher::busy_handler),
    ("W4", "kube-rs/scheduler", scheduler::busy_handler),
    ("W5", "kube-rs/controller", scheduler::slow_handlers),
    ("W6", "kube-rs/dispatcher", dispatcher::replace),
    ("W8", "kube-rs/dispatcher", dispatcher::memory),
    ("W8", "kube-rs/scheduler", scheduler::memory),
];

/// The workloads of the format that have no counterpart here: asking for them is no mistake.
const NOT_HERE: &[&str] = &["W3", "W6q", "W7", "W7q"];

const USAGE: &str =
    "usage: rival-kube-rs [--workload W2,W4] [--engine kube-rs/scheduler] [--scale 0.02] [--buffer 1024]";

#[derive(Clone)]
struct Options {
    workloads: Option<Vec<String>>,
    engines: Option<Vec<String>>,
    scale: f64,
    buffer: usize,
    in_process: bool,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
        let mut options = Options { workloads: None, engines: None, scale: 1.0, buffer: 1024, in_process: false };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value; {USAGE}"));
            match arg.as_str() {
                "--workload" => options.workloads = Some(value()?.split(',').map(String::from).collect()),
                "--engine" => options.engines = Some(value()?.split(',').map(String::from).collect()),
                "--scale" => options.scale = value()?.parse()?,
                "--buffer" => options.buffer = value()?.parse()?,
                "--in-process" => options.in_process = true,
                // Part of the common command line; the output is always JSON lines.
                "--json" => {}
                // The same: an `Event` owns its object, so each is a new one.
                "--objects" => drop(value()?),
                _ => return Err(format!("unknown argument {arg}; {USAGE}").into()),
            }
        }
        if !(options.scale > 0.0 && options.scale <= 1.0) {
            return Err(format!("--scale is {}; give a factor above 0 and up to 1", options.scale).into());
        }
        if options.buffer == 0 {
            return Err("--buffer is 0; the broadcast needs at least one entry".into());
        }
        for name in options.workloads.iter().flatten() {
            if !NOT_HERE.contains(&name.as_str()) && !RUNS.iter().any(|(workload, ..)| workload == name) {
                return Err(format!("no workload {name}; {USAGE}").into());
            }
        }
        for name in options.engines.iter().flatten() {
            if !RUNS.iter().any(|(_, engine, _)| engine == name) {
                return Err(format!("no engine {name}; {USAGE}").into());
            }
        }
        Ok(options)
    }

    fn wants(&self, workload: &str, engine: &str) -> bool {
        let chosen = |names: &Option<Vec<String>>, name: &str| {
            names.as_ref().is_none_or(|names| names.iter().any(|chosen| chosen == name))
        };
        chosen(&self.workloads, workload) && chosen(&self.engines, engine)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kube-rs rival: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    if !options.in_process {
        let cpus = std::thread::available_parallelism()?.get();
        println!(
            "{}",
            json!({"meta": {"program": "kube-runtime", "version": VERSION, "buffer": options.buffer, "cpus": cpus, "objects": "fresh"}})
        );
    }
    for &(workload, engine, work) in RUNS {
        if !options.wants(workload, engine) {
            continue;
        }
        if options.in_process {
            work(&Bench {
                workload,
                engine,
                scale: options.scale,
                buffer: options.buffer,
                emit: &|line| println!("{line}"),
            });
        } else {
            child(workload, engine, &options)?;
        }
    }
    Ok(())
}

/// Checked against the lock file by a test.
const VERSION: &str = "5.0.0";

/// A fresh process for each, so that none runs on the heap that another left behind.
fn child(workload: &str, engine: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let status = Command::new(std::env::current_exe()?)
        .args(["--in-process", "--workload", workload, "--engine", engine])
        .args(["--scale", &options.scale.to_string(), "--buffer", &options.buffer.to_string()])
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("{workload} on {engine} failed: {status}").into()) }
}

/// The keys to update, drawn before the clock starts.
fn draws(updates: usize, keys: usize, skewed: bool) -> Vec<u32> {
    let mut rng = SplitMix64(SEED);
    let ranks = Zipf::new(keys);
    (0..updates).map(|_| if skewed { ranks.draw(&mut rng) } else { rng.below(keys) } as u32).collect()
}

fn busy(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Every workload checks its own counts and panics when they are off; so running each of them once is the test.
    #[test]
    fn every_workload_reports_finite_figures() {
        for &(workload, engine, work) in RUNS {
            let lines = RefCell::new(Vec::new());
            work(&Bench {
                workload,
                engine,
                scale: 0.001,
                buffer: 16,
                emit: &|line: serde_json::Value| lines.borrow_mut().push(line),
            });
            let lines = lines.into_inner();
            assert!(!lines.is_empty(), "{workload} on {engine} reported nothing");
            for line in lines {
                // serde_json writes a value that is not finite as null.
                assert!(line["value"].is_number(), "{line}");
            }
        }
    }

    #[test]
    fn version_is_that_of_the_lock_file() {
        let lock = include_str!("../Cargo.lock");
        assert!(lock.contains(&format!("name = \"kube-runtime\"\nversion = \"{VERSION}\"")));
    }
}

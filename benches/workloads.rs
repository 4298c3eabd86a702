//! The workloads W1 to W9 on the engine and on the baseline, in turn, and what has become of their goals.
//!
//! ```text
//! cargo bench --bench workloads                                  # everything, five rounds: half an hour
//! cargo bench --bench workloads -- --only W2,W3 --rounds 9
//! cargo bench --bench workloads -- --svg docs/img                # and the plots
//! cargo bench --bench workloads -- --scale 0.02 --rounds 1       # does it run? no figure counts
//! ```
//!
//! What the workloads are and what their figures mean is in `docs/PERFORMANCE.md`. Each measurement is a process of
//! its own; a round runs one workload on all engines, one after the other (A B C D, A B C D, ...), so that the
//! neighbours on the machine disturb all of them alike. Ratios are taken within a round.

#![allow(unreachable_pub, reason = "a program has no API; `pub` is the short way to say that a module shares it")]

use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum};

mod workloads {
    pub mod engine;
    pub mod goals;
    pub mod latency;
    pub mod memory;
    pub mod object;
    pub mod plots;
    pub mod run;
    pub mod stall;
    pub mod svg;
    pub mod table;
    pub mod throughput;
}

use workloads::run::{ENGINES, Figure, Run, WORKLOADS};
use workloads::table::Results;

#[global_allocator]
static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Objects {
    /// The known object again: what the queue costs, and nothing else.
    Shared,
    /// A new object per update, as a producer makes them.
    Fresh,
}

/// Runs the workloads and prints what has become of their goals.
#[derive(Parser)]
struct Args {
    /// Workloads to run, separated by commas (all).
    #[arg(long, alias = "workload", value_delimiter = ',')]
    only: Vec<String>,
    /// Engines to run, separated by commas (all).
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// How often each workload runs on each engine (5; with --json 1).
    #[arg(long)]
    rounds: Option<usize>,
    /// Factor on the amount of work; below 1 it only shows that everything runs.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// What is handed over for an update.
    #[arg(long, value_enum, default_value_t = Objects::Shared)]
    objects: Objects,
    /// The largest number of threads a side in W9 (twice the cores).
    #[arg(long)]
    threads: Option<usize>,
    /// Print figures as lines of JSON, and no table.
    #[arg(long)]
    json: bool,
    /// Write the plots here, as far as their workloads were run.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Given by `cargo bench`; without a meaning here.
    #[arg(long, hide = true)]
    bench: bool,
    /// One measurement in this process. The program calls itself with it.
    #[arg(long, hide = true, num_args = 2, value_names = ["WORKLOAD", "ENGINE"])]
    child: Option<Vec<String>>,
}

impl Args {
    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(2, usize::from);
        self.threads.unwrap_or_else(|| 2 * cores().next_power_of_two())
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.child {
        Some(child) => child_main(&args, &child[0], &child[1]),
        None => parent_main(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workloads: {error}");
            ExitCode::FAILURE
        }
    }
}

fn child_main(args: &Args, workload: &str, engine: &str) -> Result<(), Box<dyn Error>> {
    let run = Run {
        workload: workload.to_owned(),
        engine: "",
        scale: args.scale,
        fresh: args.objects == Objects::Fresh,
        threads: args.threads(),
    };
    let known = workloads::run::run(run, engine);
    known.then_some(()).ok_or_else(|| format!("there is no workload {workload} or no engine {engine}").into())
}

fn parent_main(args: &Args) -> Result<(), Box<dyn Error>> {
    if args.scale <= 0.0 {
        return Err("--scale must be above 0".into());
    }
    let workloads = chosen("workload", &args.only, &WORKLOADS)?;
    let engines = chosen("engine", &args.engines, &ENGINES)?;
    let rounds = args.rounds.unwrap_or(if args.json { 1 } else { 5 });
    let mut results = Results::default();
    for workload in &workloads {
        for round in 1..=rounds {
            for engine in &engines {
                eprintln!("{workload}, round {round} of {rounds}: {engine}");
                for figure in measure(args, workload, engine)? {
                    let figure = Figure { round, ..figure };
                    if args.json {
                        println!("{}", serde_json::to_string(&figure)?);
                    }
                    results.add(figure);
                }
            }
        }
    }
    if let Some(dir) = &args.svg {
        for path in workloads::plots::write(&results, dir)? {
            eprintln!("wrote {}", path.display());
        }
    }
    if !args.json {
        io::stdout().write_all(results.table().as_bytes())?;
        if args.scale < 1.0 {
            println!("\nScale {}: this only shows that everything runs.", args.scale);
        }
    }
    Ok(())
}

fn chosen(what: &str, asked: &[String], all: &[&'static str]) -> Result<Vec<&'static str>, String> {
    if let Some(unknown) = asked.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("there is no {what} {unknown}; there are {}", all.join(", ")));
    }
    Ok(all.iter().copied().filter(|name| asked.is_empty() || asked.iter().any(|asked| asked == name)).collect())
}

fn measure(args: &Args, workload: &str, engine: &str) -> Result<Vec<Figure>, Box<dyn Error>> {
    let objects = args.objects.to_possible_value().expect("no variant is skipped");
    let output = Command::new(std::env::current_exe()?)
        .args(["--child", workload, engine, "--scale", &args.scale.to_string()])
        .args(["--objects", objects.get_name(), "--threads", &args.threads().to_string()])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{workload} on {engine} failed ({})", output.status).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

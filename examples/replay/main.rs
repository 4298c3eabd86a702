//! Replays a recorded Kubernetes watch stream through the delta queue, and tells what came out.
//!
//! ```text
//! cargo run --release --example replay                          the embedded sample
//! cargo run --release --example replay -- pods.json             a recording
//! timeout 60 kubectl get pods -A --watch --output-watch-events -o json | cargo run --release --example replay -- -
//! cargo run --release --example replay -- --compare             against client-go's algorithm
//! ```
//!
//! | file | does |
//! |---|---|
//! | `args.rs` | command line |
//! | `source.rs` | bytes from a file, a pipe or the sample |
//! | `stream.rs`, `scan.rs`, `event.rs` | bytes to events; survives broken input |
//! | `intake.rs`, `pace.rs` | events to calls of the queue; keeps the account of what must come out |
//! | `run.rs` | producers, queue, workers, measuring |
//! | `queue.rs` | the queue, and the baseline to compare with |
//! | `object.rs`, `store.rs` | what is queued, and where it ends up |
//! | `report.rs`, `progress.rs` | summary and progress bar |

#![allow(unreachable_pub, reason = "a program has no public interface; `pub` marks what other modules use")]

mod args;
mod intake;
mod object;
mod pace;
mod progress;
mod queue;
mod report;
mod run;
mod source;
mod store;
mod stream;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::args::Args;
use crate::intake::{Intake, Tell};
use crate::object::Op;
use crate::pace::Pace;
use crate::progress::Progress;
use crate::report::{Figures, Summary};
use crate::run::{Outcome, run};
use crate::source::Source;
use crate::store::Store;
use crate::stream::EventStream;

/// Exit status; `args.rs` documents them.
const BAD_INPUT: u8 = 1;
const NOT_READABLE: u8 = 2;
const BROKEN_PROMISE: u8 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.compare && !cfg!(feature = "baseline") {
        eprintln!(
            "replay: this build has no baseline to compare with. Run\n    \
             cargo run --release --features baseline --example replay -- --compare"
        );
        return NOT_READABLE.into();
    }
    let source = match Source::open(args.input.as_deref()) {
        Ok(source) => source,
        Err(error) => {
            eprintln!("replay: {error}");
            return NOT_READABLE.into();
        }
    };
    replay(&args, source).into()
}

fn replay(args: &Args, source: Source) -> u8 {
    let bar = !args.quiet && !args.json;
    let progress = Progress::of_input(bar, source.length, source.position);
    let pace = Pace::new(args.rate, args.pace);
    let full_speed = pace.is_full_speed();
    let stream = EventStream::new(source.reader).max_object(args.max_object_bytes);
    let tell = Tell { strict: args.strict, shown: args.show_problems };
    let mut intake = Intake::new(stream, pace, tell, &progress);

    let store = Arc::new(Store::new());
    let (store, runs) = if args.in_memory() {
        let ops: Vec<Op> = intake.by_ref().collect();
        progress.clear();
        let rounds = if args.compare && full_speed { args.rounds } else { 1 };
        rounds_from_memory(args, ops, &intake, rounds, bar)
    } else {
        let queue = options(args).engine(&store);
        let outcome = run(&queue, &store, vec![&mut intake], args.workers.into(), args.handling(), None);
        let figures = Figures::new(&outcome, &store, &intake.events, &intake.account, args.keep_latest);
        (store, vec![figures])
    };

    if intake.problems() > args.show_problems {
        progress.say(&format!("replay: {} more problems", intake.problems() - args.show_problems));
    }
    if intake.stopped {
        progress.say("replay: stopped at the first problem, because of --strict");
    }
    let summary = Summary {
        input: source.name,
        throughput_includes_parsing: !args.in_memory(),
        workers: args.workers,
        producers: args.producers,
        events: intake.events.clone(),
        problems: intake.problems(),
        objects: store.tally(),
        runs,
    };
    let read_failed = intake.read_failed;
    drop(progress);
    show(args, &summary);
    if summary.runs.iter().any(|run| !run.faults.is_empty()) {
        BROKEN_PROMISE
    } else if read_failed {
        NOT_READABLE
    } else if summary.problems > 0 {
        BAD_INPUT
    } else {
        0
    }
}

fn options(args: &Args) -> queue::Options {
    queue::Options { keep_latest: args.keep_latest, max_pending: args.max_pending }
}

/// Each queue in turn, round by round, so that none has the warm caches for itself. The store is the last one's.
fn rounds_from_memory<R: io::Read>(
    args: &Args,
    ops: Vec<Op>,
    intake: &Intake<'_, R>,
    rounds: u16,
    bar: bool,
) -> (Arc<Store>, Vec<Figures>) {
    type Run = fn(&Args, &Arc<Store>, Vec<std::vec::IntoIter<Op>>, &Progress) -> Outcome;
    fn through<Q: run::Queue>(
        args: &Args,
        store: &Arc<Store>,
        feeds: Vec<std::vec::IntoIter<Op>>,
        progress: &Progress,
        queue: &Q,
    ) -> Outcome {
        run(queue, store, feeds, args.workers.into(), args.handling(), Some(progress))
    }
    let engine: Run = |args, store, feeds, bar| through(args, store, feeds, bar, &options(args).engine(store));
    #[allow(unused_mut, reason = "the baseline is optional")]
    let mut queues = vec![engine];
    #[cfg(feature = "baseline")]
    if args.compare {
        queues.push(|args, store, feeds, bar| through(args, store, feeds, bar, &options(args).held_mutex(store)));
        queues.push(|args, store, feeds, bar| through(args, store, feeds, bar, &options(args).claimed_mutex(store)));
    }

    let runs = usize::from(rounds) * queues.len();
    let progress = Progress::of_events(bar, (ops.len() * runs) as u64);
    let shares = by_key(ops, args.producers.into());
    let mut store = Arc::new(Store::new());
    let mut figures = vec![Vec::new(); queues.len()];
    for _ in 0..rounds {
        for (queue, figures) in queues.iter().zip(&mut figures) {
            store = Arc::new(Store::new());
            let feeds = shares.iter().map(|share| share.clone().into_iter()).collect();
            let outcome = queue(args, &store, feeds, &progress);
            figures.push(Figures::new(&outcome, &store, &intake.events, &intake.account, args.keep_latest));
        }
    }
    (store, figures.into_iter().filter_map(Figures::median).collect())
}

/// Splits the calls so that each key has one producer, in the order of the input.
fn by_key(ops: Vec<Op>, producers: usize) -> Vec<Vec<Op>> {
    let hasher = RandomState::new();
    let mut shares = vec![Vec::new(); producers];
    for op in ops {
        let share = hasher.hash_one(&op.item.object.key) as usize % producers;
        shares[share].push(op);
    }
    shares
}

fn show(args: &Args, summary: &Summary) {
    if args.quiet {
        return;
    }
    let text = if args.json { serde_json::to_string(summary).expect("plain figures") + "\n" } else { summary.text() };
    // The reader may have gone (`replay | head -3`); that is no fault of the replay.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

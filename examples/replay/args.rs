//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};

use crate::stream::DEFAULT_MAX_OBJECT;

/// Replays a recorded Kubernetes watch stream through the delta queue and tells what came out.
///
/// Record one with
///     kubectl get pods -A --watch --output-watch-events -o json > pods.json
/// or follow a cluster for a minute:
///     timeout 60 kubectl get pods -A --watch --output-watch-events -o json | replay -
#[derive(Debug, Parser)]
#[command(name = "replay", verbatim_doc_comment, after_long_help = STATUS, after_help = STATUS)]
pub struct Args {
    /// The stream: a file, plain or gzip; `-` for standard input; nothing for the embedded sample
    pub input: Option<PathBuf>,

    /// Threads that process keys
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,

    /// Threads that feed the queue, each its share of the keys. More than one needs the input in memory first, see
    /// --preload
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub producers: u16,

    /// Read the whole input before the first event is queued, so that the figures are the queue's and not the parser's
    #[arg(long)]
    pub preload: bool,

    /// Feed at most so many events per second, instead of full speed
    #[arg(long, value_name = "EVENTS", conflicts_with = "pace", value_parser = positive)]
    pub rate: Option<f64>,

    /// Feed FACTOR times as fast as recorded, instead of full speed. A watch stream has no event times: the clock is
    /// the creationTimestamp of ADDED objects, and no pause is longer than a second
    #[arg(long, value_name = "FACTOR", value_parser = positive)]
    pub pace: Option<f64>,

    /// Run the same on client-go's algorithm, the mutex baseline, and print the figures side by side (implies --preload)
    #[arg(long)]
    pub compare: bool,

    /// Rounds of --compare, in turn; the median round by time is shown. One round if the speed is limited
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Microseconds that a worker sleeps for each key it gets, as a handler would that calls a server
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub work_us: u64,

    /// Keep only the newest of several updates of a key that wait (the default is client-go's: keep all)
    #[arg(long)]
    pub keep_latest: bool,

    /// Most changes that may wait in the queue; the producers wait for room
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub max_pending: Option<usize>,

    /// Stop reading at the first problem of the input. What was queued before is processed
    #[arg(long)]
    pub strict: bool,

    /// Problems that are told; the others are counted
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub show_problems: u64,

    /// Largest object that is read
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_MAX_OBJECT, value_parser = at_least_one)]
    pub max_object_bytes: usize,

    /// Print the summary as one JSON object
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,

    /// No progress bar and no summary: only problems, and the exit status
    #[arg(short, long, action = ArgAction::SetTrue)]
    pub quiet: bool,
}

const STATUS: &str = "\
Exit status:
  0  all input was sound
  1  some input was bad, or the server sent an ERROR event; with --strict, reading stopped there
  2  usage error, or the input could not be opened or read
  3  a broken promise of the queue: a key out of order, a change lost, or a wrong end state";

impl Args {
    /// The input must be in memory before the run.
    pub fn in_memory(&self) -> bool {
        self.preload || self.compare || self.producers > 1
    }

    pub fn handling(&self) -> Duration {
        Duration::from_micros(self.work_us)
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("must be more than 0".into()) }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("not a whole number".into()),
    }
}

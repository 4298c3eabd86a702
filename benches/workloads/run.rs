//! One workload on one engine, in a process of its own: nobody runs on the heap that another one left behind.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine::{Embedded, Engine, External, Held, Outside};
use super::object::{Draw, Object};
use super::{latency, memory, stall, throughput};

pub const ENGINES: [&str; 4] = [Embedded::NAME, External::NAME, Held::NAME, Outside::NAME];

/// In the order of the table. W2f is W2 with fresh objects, a `q` means that every key is queued before.
pub const WORKLOADS: [&str; 14] =
    ["W1", "W2", "W2f", "W2u", "W3", "W3b", "W4", "W5", "W6", "W6q", "W7", "W7q", "W8", "W9"];

/// A figure, as one line of JSON; `benches/rivals/README.md` describes the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    pub workload: String,
    pub engine: String,
    pub metric: String,
    pub value: f64,
    pub unit: String,
    pub scale: f64,
    #[serde(default)]
    pub round: usize,
}

/// What a workload needs to know, and where its figures go.
pub struct Run {
    pub workload: String,
    pub engine: &'static str,
    pub scale: f64,
    pub fresh: bool,
    /// The largest number of threads a side in W9.
    pub threads: usize,
}

impl Run {
    /// Shrinks a count for quick runs, but leaves enough to run into the interesting paths.
    pub fn scaled(&self, n: usize) -> usize {
        ((n as f64 * self.scale) as usize).max(n.min(1_000))
    }

    /// What is handed over for an update of `object`.
    pub fn updated(&self, object: &Arc<Object>) -> Arc<Object> {
        if self.fresh { object.fresh() } else { object.clone() }
    }

    pub fn report(&self, metric: impl Into<String>, value: f64, unit: &str) {
        let figure = Figure {
            workload: self.workload.clone(),
            engine: self.engine.to_owned(),
            metric: metric.into(),
            value,
            unit: unit.to_owned(),
            scale: self.scale,
            round: 0,
        };
        println!("{}", serde_json::to_string(&figure).expect("a figure is plain data"));
    }

    pub fn report_ms(&self, metric: &str, value: Duration) {
        self.report(metric, value.as_secs_f64() * 1e3, "ms");
    }

    /// Figures of a run that lost something are worthless.
    pub fn check(&self, what: &str, got: usize, want: usize) {
        assert_eq!(got, want, "{} on {}: {what}; its figures would be worthless", self.workload, self.engine);
    }
}

/// Runs what `run` says; `false` if there is no such workload or engine.
pub fn run(run: Run, engine: &str) -> bool {
    match engine {
        Embedded::NAME => on::<Embedded>(run),
        External::NAME => on::<External>(run),
        Held::NAME => on::<Held>(run),
        Outside::NAME => on::<Outside>(run),
        _ => false,
    }
}

fn on<E: Engine>(mut run: Run) -> bool {
    run.engine = E::NAME;
    match &*run.workload {
        "W1" => throughput::bulk::<E>(&run),
        "W2" => throughput::steady::<E>(&run, Draw::Zipf, 10_000, 1),
        "W2f" => throughput::steady::<E>(&Run { fresh: true, ..run }, Draw::Zipf, 10_000, 1),
        "W2u" => throughput::steady::<E>(&run, Draw::Uniform, run.scaled(1_000_000), 1),
        "W3" => throughput::steady::<E>(&run, Draw::Zipf, 10_000, 2),
        "W3b" => throughput::round_trip::<E>(&run),
        "W4" => latency::busy_handler::<E>(&run),
        "W5" => throughput::slow_handlers::<E>(&run),
        "W6" => stall::stall::<E>(&run, "replace_ms", false, |engine, list| engine.replace(list)),
        "W6q" => stall::stall::<E>(&run, "replace_ms", true, |engine, list| engine.replace(list)),
        "W7" => stall::stall::<E>(&run, "resync_ms", false, |engine, _| engine.resync()),
        "W7q" => stall::stall::<E>(&run, "resync_ms", true, |engine, _| engine.resync()),
        "W8" => memory::memory::<E>(&run),
        "W9" => throughput::scale::<E>(&run),
        _ => return false,
    }
    true
}

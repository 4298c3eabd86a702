//! What is asked of each figure.

/// One goal; all are judged on medians.
#[derive(Clone, Copy)]
pub enum Goal {
    /// So many times better than the baseline with the handler under the lock.
    Held(f64),
    /// So many times better than the baseline with the handler outside.
    Outside(f64),
    /// Not above this.
    AtMost(f64),
    /// Not more than 10 % above the same engine's other figure.
    Like(&'static str),
    /// Not more than 10 % below the same engine with fewer threads.
    NoFall,
}

/// A figure of a workload. Rows without a goal explain others.
pub struct Row {
    pub workload: &'static str,
    pub metric: &'static str,
    pub goals: &'static [Goal],
}

const fn row(workload: &'static str, metric: &'static str, goals: &'static [Goal]) -> Row {
    Row { workload, metric, goals }
}

use Goal::{AtMost, Held, Like, NoFall, Outside};

/// The longest stall a call may cause, in ms, and how much better than the baseline it has to be.
const STALL: &[Goal] = &[AtMost(0.5), Held(1000.0)];

pub const ROWS: &[Row] = &[
    row("W1", "add_ns", &[Held(1.0 / 0.9)]),
    row("W1", "pop_ns", &[Held(10.0)]),
    row("W2", "updates_per_s", &[Held(5.0), Outside(2.0)]),
    row("W2", "pops", &[]),
    row("W2f", "updates_per_s", &[]),
    row("W2f", "pops", &[]),
    row("W2u", "updates_per_s", &[Held(3.0), Outside(2.0)]),
    row("W2u", "pops", &[]),
    row("W3", "updates_per_s", &[Held(6.0), Outside(2.0)]),
    row("W3", "pops", &[]),
    row("W3b", "round_trip_ns", &[Held(1.25), Outside(1.25)]),
    row("W3b", "allocations", &[AtMost(0.0)]),
    row("W4", "update_p50_us", &[Held(1.0)]),
    row("W4", "update_p99_us", &[Held(200.0)]),
    row("W4", "update_p99_9_us", &[Held(200.0)]),
    row("W4", "update_max_us", &[]),
    row("W4", "pace_kept", &[]),
    row("W5", "pops_per_s", &[Held(8.0)]),
    row("W6", "replace_ms", &[Held(1.0)]),
    row("W6", "update_max_ms", STALL),
    row("W6", "update_own_max_ms", STALL),
    row("W6", "pop_gap_max_ms", STALL),
    row("W6", "pop_gap_own_max_ms", STALL),
    row("W6", "sleeper_max_ms", &[]),
    row("W6q", "replace_ms", &[Held(1.0)]),
    row("W6q", "update_max_ms", STALL),
    row("W6q", "update_own_max_ms", STALL),
    row("W6q", "pop_gap_max_ms", STALL),
    row("W6q", "pop_gap_own_max_ms", STALL),
    row("W6q", "sleeper_max_ms", &[]),
    row("W7", "resync_ms", &[Held(1.0)]),
    row("W7", "update_max_ms", STALL),
    row("W7", "update_own_max_ms", STALL),
    row("W7", "pop_gap_max_ms", STALL),
    row("W7", "pop_gap_own_max_ms", STALL),
    row("W7", "sleeper_max_ms", &[]),
    row("W7q", "resync_ms", &[Held(1.0)]),
    row("W7q", "update_max_ms", STALL),
    row("W7q", "update_own_max_ms", STALL),
    row("W7q", "pop_gap_max_ms", STALL),
    row("W7q", "pop_gap_own_max_ms", STALL),
    row("W7q", "sleeper_max_ms", &[]),
    row("W8", "store_bytes_per_key", &[Held(1.0)]),
    row("W8", "queued_bytes_per_key", &[Held(1.0)]),
    row("W8", "drained_bytes_per_key", &[Like("store_bytes_per_key")]),
    row("W8", "store_live_bytes_per_key", &[]),
    row("W8", "queued_live_bytes_per_key", &[]),
    row("W8", "drained_live_bytes_per_key", &[Like("store_live_bytes_per_key")]),
];

/// The goals of W9, whose workloads are made from handler and threads.
pub const SCALE: &[Goal] = &[NoFall];

/// Whether more is better; `None` for figures that only explain others.
pub fn higher_is_better(metric: &str) -> Option<bool> {
    match metric {
        "pops" | "pace_kept" | "sleeper_max_ms" => None,
        _ => Some(metric.ends_with("_per_s")),
    }
}

//! The summary: the figures of each run, as text or as one JSON object.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::intake::{Account, Events};
use crate::run::Outcome;
use crate::store::Store;
use crate::stream::event::quoted;

/// All that is told at the end.
#[derive(Serialize)]
pub struct Summary {
    pub input: String,
    /// What `throughput` covers.
    pub throughput_includes_parsing: bool,
    pub workers: u16,
    pub producers: u16,
    pub events: Events,
    /// Problems of the input: bad places, ERROR events, versions that go back.
    pub problems: u64,
    pub runs: Vec<Figures>,
    /// Objects at the end, by namespace and phase.
    pub objects: BTreeMap<String, BTreeMap<String, u64>>,
}

/// One run, or the median of several.
#[derive(Clone, Serialize)]
pub struct Figures {
    pub queue: &'static str,
    pub rounds: usize,
    pub seconds: f64,
    pub events_per_second: f64,
    pub deltas: DeltaCounts,
    pub pops: u64,
    /// Events per pop: how much work the queue has put together.
    pub coalescing: f64,
    pub largest_pop: usize,
    pub objects_left: usize,
    pub enqueue_ns: Percentiles,
    pub queue_wait_ns: Percentiles,
    /// What the queue did wrong; empty if it kept its promises.
    pub faults: Vec<String>,
}

#[derive(Clone, Serialize)]
pub struct DeltaCounts {
    pub added: u64,
    pub updated: u64,
    pub deleted: u64,
    pub other: u64,
}

#[derive(Clone, Serialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: histogram.max() }
    }

    fn rows(&self) -> [(&'static str, u64); 5] {
        [("p50", self.p50), ("p90", self.p90), ("p99", self.p99), ("p99.9", self.p999), ("max", self.max)]
    }
}

impl Figures {
    /// Checks the run against the input's account of it.
    pub fn new(outcome: &Outcome, store: &Store, events: &Events, account: &Account, keep_latest: bool) -> Self {
        let work = &outcome.work;
        let seconds = outcome.elapsed.as_secs_f64();
        let mut faults = Vec::new();
        if work.out_of_order > 0 {
            faults.push(format!("{} deltas came out of order within their key", work.out_of_order));
        }
        // client-go's policy leaves out a deletion of what is gone already, and nothing else.
        let expected = events.changes() - account.deleted_unknown;
        let lost = if keep_latest { work.deltas() > expected } else { work.deltas() != expected };
        if lost || outcome.fed != events.changes() {
            faults.push(format!("{expected} changes to deliver, {} delivered", work.deltas()));
        }
        if !store.holds(&account.alive) {
            faults.push(wrong_end_state(store, &account.alive));
        }
        Figures {
            queue: outcome.queue,
            rounds: 1,
            seconds,
            events_per_second: outcome.fed as f64 / seconds,
            deltas: DeltaCounts { added: work.added, updated: work.updated, deleted: work.deleted, other: work.other },
            pops: work.pops,
            coalescing: if work.pops == 0 { 0.0 } else { outcome.fed as f64 / work.pops as f64 },
            largest_pop: work.largest,
            objects_left: store.count(),
            enqueue_ns: Percentiles::of(&outcome.enqueue),
            queue_wait_ns: Percentiles::of(&work.wait),
            faults,
        }
    }

    /// The median round by time; the faults of all.
    pub fn median(mut rounds: Vec<Figures>) -> Option<Figures> {
        rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let mut median = rounds.get(rounds.len() / 2)?.clone();
        median.rounds = rounds.len();
        median.faults = rounds.into_iter().flat_map(|round| round.faults).collect();
        Some(median)
    }
}

fn wrong_end_state(store: &Store, expected: &HashMap<Arc<str>, u64>) -> String {
    format!("the end state differs from the input: {} objects expected, {} found", expected.len(), store.count())
}

impl Summary {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string");
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Events { added, modified, deleted, bookmarks, server_errors, bad } = self.events;
        writeln!(out, "input      {}", self.input)?;
        writeln!(
            out,
            "events     {added} ADDED, {modified} MODIFIED, {deleted} DELETED, {bookmarks} BOOKMARK, {server_errors} ERROR"
        )?;
        writeln!(out, "problems   {} ({bad} broken places)", self.problems)?;
        writeln!(out, "threads    {} producer(s), {} worker(s)", self.producers, self.workers)?;
        writeln!(out)?;
        self.write_runs(out)?;
        writeln!(out)?;
        self.write_objects(out)?;
        for run in &self.runs {
            for fault in &run.faults {
                writeln!(out, "\nBROKEN PROMISE of {}: {fault}", run.queue)?;
            }
        }
        if self.runs.iter().all(|run| run.faults.is_empty()) {
            writeln!(out, "\nchecked    each key in order, each change delivered, end state as the input says")?;
        }
        Ok(())
    }

    fn write_runs(&self, out: &mut String) -> std::fmt::Result {
        let mut row = |name: &str, value: &dyn Fn(&Figures) -> String| {
            write!(out, "{name:<18}")?;
            for run in &self.runs {
                write!(out, " {:>14}", value(run))?;
            }
            writeln!(out)
        };
        row("queue", &|run| run.queue.into())?;
        row("deltas", &|run| {
            (run.deltas.added + run.deltas.updated + run.deltas.deleted + run.deltas.other).to_string()
        })?;
        row("  Added", &|run| run.deltas.added.to_string())?;
        row("  Updated", &|run| run.deltas.updated.to_string())?;
        row("  Deleted", &|run| run.deltas.deleted.to_string())?;
        row("pops", &|run| run.pops.to_string())?;
        row("events per pop", &|run| format!("{:.2}", run.coalescing))?;
        row("  largest pop", &|run| run.largest_pop.to_string())?;
        row("objects left", &|run| run.objects_left.to_string())?;
        row("time", &|run| nanoseconds((run.seconds * 1e9) as u64))?;
        row("events/s", &|run| format!("{:.0}", run.events_per_second))?;
        if let [first, _, ..] = &self.runs[..] {
            row("  relative", &|run| format!("{:.2}", run.events_per_second / first.events_per_second))?;
        }
        for (index, (name, _)) in self.runs[0].enqueue_ns.rows().into_iter().enumerate() {
            row(&format!("enqueue {name}"), &|run| nanoseconds(run.enqueue_ns.rows()[index].1))?;
        }
        for (index, (name, _)) in self.runs[0].queue_wait_ns.rows().into_iter().enumerate() {
            row(&format!("queue wait {name}"), &|run| nanoseconds(run.queue_wait_ns.rows()[index].1))?;
        }
        if self.throughput_includes_parsing {
            writeln!(out, "(time and events/s include reading the input; --preload leaves that out)")?;
        }
        if let [first, _, ..] = &self.runs[..] {
            writeln!(out, "(mutex: client-go's algorithm; held: the handler runs under the lock, as in client-go;")?;
            writeln!(out, " free: outside of it. Median of {} round(s), by time)", first.rounds)?;
        }
        Ok(())
    }

    fn write_objects(&self, out: &mut String) -> std::fmt::Result {
        if self.objects.is_empty() {
            return writeln!(out, "no objects left");
        }
        writeln!(out, "{:<24} {:<14} {:>8}", "namespace", "phase", "objects")?;
        for (namespace, by_phase) in &self.objects {
            for (phase, objects) in by_phase {
                writeln!(out, "{:<24} {:<14} {objects:>8}", name(namespace), name(phase))?;
            }
        }
        Ok(())
    }
}

/// Text of the input, safe for a terminal.
fn name(text: &str) -> String {
    if text.is_empty() { "-".into() } else { quoted(text).trim_matches('`').into() }
}

fn nanoseconds(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

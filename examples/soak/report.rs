//! What a soak shows at its end: figures of every episode, and plots.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::load::Shape;
use crate::svg::{Chart, Series};

/// More labels would not be readable.
const LABELS: usize = 12;

pub struct Episode {
    pub shape: Shape,
    pub seed: u64,
    pub seconds: f64,
    pub counts: [(&'static str, u64); 11],
    pub peak_bytes: i64,
    pub peak_keys: usize,
    /// More than after the first episode.
    pub left_bytes: i64,
    /// From report to processing, in microseconds.
    pub p50: f64,
    pub p99: f64,
    pub violations: Vec<String>,
}

impl Episode {
    fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count)
    }

    fn faults(&self) -> u64 {
        self.count("panics") + self.count("requeues")
    }

    pub fn line(&self) -> String {
        let Shape { producers, consumers, keys, .. } = self.shape;
        let mut line = format!(
            "{:4.1} s  {producers} + {consumers} on {keys:5} keys  {:9} delivered  {:6} faults  p99 {:9.0} µs  peak {:6.1} MB  left {:4} kB",
            self.seconds,
            self.count("delivered"),
            self.faults(),
            self.p99,
            self.peak_bytes as f64 / 1e6,
            self.left_bytes / 1_000,
        );
        if !self.violations.is_empty() {
            let _ = write!(line, "\n  FAILED: {:?}, seed {}: {:#?}", self.shape, self.seed, self.violations);
        }
        line
    }
}

/// What a plot shows of an episode.
type Measure = fn(&Episode) -> f64;

pub struct Report {
    seed: u64,
    episodes: Vec<Episode>,
}

impl Report {
    pub fn new(seed: u64) -> Self {
        Report { seed, episodes: Vec::new() }
    }

    pub fn add(&mut self, episode: Episode) {
        self.episodes.push(episode);
    }

    pub fn has_failed(&self) -> bool {
        self.episodes.iter().any(|episode| !episode.violations.is_empty())
    }

    /// What the report itself holds.
    pub fn bytes(&self) -> i64 {
        (self.episodes.capacity() * size_of::<Episode>()) as i64
    }

    fn total(&self, name: &str) -> u64 {
        self.episodes.iter().map(|episode| episode.count(name)).sum()
    }

    pub fn summary(&self) -> String {
        let seconds: f64 = self.episodes.iter().map(|episode| episode.seconds).sum();
        let worst = self.episodes.iter().map(|episode| episode.left_bytes).max().unwrap_or(0);
        format!(
            "{}: {} episodes in {seconds:.0} s, seed {}: {} deltas delivered in {} claims, {} replaces, {} resyncs, \
             {} faults, at most {} kB not given back after an episode",
            if self.has_failed() { "FAILED" } else { "passed" },
            self.episodes.len(),
            self.seed,
            self.total("delivered"),
            self.total("claims"),
            self.total("replaces"),
            self.total("resyncs"),
            self.episodes.iter().map(Episode::faults).sum::<u64>(),
            worst / 1_000,
        )
    }

    fn chart(&self, title: &str, y_label: &str, log: bool, series: &[(&str, Measure)]) -> Chart {
        let every = self.episodes.len().div_ceil(LABELS).max(1);
        let label = |n: usize| if n.is_multiple_of(every) { (n + 1).to_string() } else { String::new() };
        let values = |f: Measure| self.episodes.iter().map(|e| Some(f(e))).collect();
        Chart {
            title: title.to_owned(),
            y_label: y_label.to_owned(),
            x_labels: (0..self.episodes.len()).map(label).collect(),
            series: series.iter().map(|(name, f)| Series { name: (*name).to_owned(), values: values(*f) }).collect(),
            log,
            bars: false,
        }
    }

    /// Writes the plots and the page that shows them.
    pub fn write(&self, dir: &Path) -> io::Result<PathBuf> {
        std::fs::create_dir_all(dir)?;
        let charts = [
            (
                "memory.svg",
                self.chart(
                    "Memory by episode",
                    "MB",
                    false,
                    &[("at its peak", |e| megabytes(e.peak_bytes)), ("not given back", |e| megabytes(e.left_bytes))],
                ),
            ),
            (
                "throughput.svg",
                self.chart(
                    "Deltas processed by episode",
                    "deltas/s",
                    false,
                    &[("delivered", |e| e.count("delivered") as f64 / e.seconds)],
                ),
            ),
            (
                "latency.svg",
                self.chart(
                    "From report to processing, by episode",
                    "µs",
                    true,
                    &[("median", |e| e.p50), ("99 %", |e| e.p99)],
                ),
            ),
        ];
        let mut page = format!("# Soak\n\n{}.\n\n", self.summary());
        for (name, chart) in &charts {
            std::fs::write(dir.join(name), chart.render())?;
            let _ = writeln!(page, "![{}]({name})\n", chart.title);
        }
        page.push_str("Load and limits differ from episode to episode, and so must latency: a load without limits and with\nfewer consumers than producers queues up until it ends.\n\n| episode | seconds | shape |");
        let names = self.episodes.first().map_or([("", 0); 11], |episode| episode.counts);
        names.iter().for_each(|(name, _)| _ = write!(page, " {name} |"));
        page.push_str(" most queued keys | p50 µs | p99 µs | peak MB | left kB |\n|---|---|---|");
        page.push_str(&"---:|".repeat(names.len() + 5));
        page.push('\n');
        for (n, e) in self.episodes.iter().enumerate() {
            let _ = write!(page, "| {} | {:.1} | {} |", n + 1, e.seconds, described(&e.shape));
            e.counts.iter().for_each(|(_, count)| _ = write!(page, " {count} |"));
            let (peak, left) = (megabytes(e.peak_bytes), e.left_bytes / 1_000);
            let _ = writeln!(page, " {} | {:.0} | {:.0} | {peak:.1} | {left} |", e.peak_keys, e.p50, e.p99);
        }
        for episode in self.episodes.iter().filter(|episode| !episode.violations.is_empty()) {
            let _ = writeln!(page, "\n## Failed\n\n```text\n{}\n```", episode.line());
        }
        let path = dir.join("README.md");
        std::fs::write(&path, page)?;
        Ok(path)
    }
}

fn megabytes(bytes: i64) -> f64 {
    bytes.max(0) as f64 / 1e6
}

fn described(shape: &Shape) -> String {
    let mut text = format!("{} + {} on {} keys", shape.producers, shape.consumers, shape.keys);
    text.push_str(if shape.embedded { ", embedded store" } else { ", external store" });
    if shape.keep_latest {
        text.push_str(", keep latest");
    }
    let limit = |name: &str, limit: Option<usize>| limit.map_or(String::new(), |limit| format!(", {name} ≤ {limit}"));
    text += &(limit("keys", shape.limits.keys) + &limit("deltas", shape.limits.deltas));
    if let Some(share) = shape.background_share {
        let _ = write!(text, ", background 1 of {share}");
    }
    if shape.burst != 0 {
        let _ = write!(text, ", bursts of {}", shape.burst);
    }
    let _ = write!(text, ", {} ‰ of handlers fail", shape.faults);
    text
}

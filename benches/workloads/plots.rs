//! The plots of the README.

use std::io;
use std::path::{Path, PathBuf};

use super::engine::{Embedded, Engine, External, Held, Outside};
use super::latency::QUANTILES;
use super::svg::{Chart, Series};
use super::table::Results;

const ENGINES: [(&str, &str); 4] = [
    (Embedded::NAME, "delta-fifo"),
    (External::NAME, "delta-fifo, own store"),
    (Held::NAME, "mutex, held"),
    (Outside::NAME, "mutex, outside"),
];

/// Writes what there are results for; the paths that were written.
pub fn write(results: &Results, dir: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir)?;
    let mut written = Vec::new();
    let mut charts = vec![
        ("latency-busy-handler.svg".to_owned(), latency(results)),
        ("stall-replace.svg".to_owned(), stall(results)),
    ];
    let mut handlers: Vec<String> = results.scale_points().into_iter().map(|(_, handler, _)| handler).collect();
    handlers.dedup();
    charts.extend(
        handlers.into_iter().map(|handler| (format!("throughput-{handler}.svg"), throughput(results, &handler))),
    );
    for (name, chart) in charts {
        if chart.series.iter().any(|series| series.values.iter().any(Option::is_some)) {
            let path = dir.join(name);
            std::fs::write(&path, chart.render())?;
            written.push(path);
        }
    }
    Ok(written)
}

/// The medians of each engine that has any, at `points` of (workload, metric).
fn series(results: &Results, points: &[(String, &str)]) -> Vec<Series> {
    let of = |engine: &str| -> Vec<_> {
        points.iter().map(|(workload, metric)| Some(results.summary(workload, engine, metric)?.median)).collect()
    };
    let all = ENGINES.iter().map(|&(engine, name)| Series { name: name.to_owned(), values: of(engine) });
    all.filter(|series| series.values.iter().any(Option::is_some)).collect()
}

fn throughput(results: &Results, handler: &str) -> Chart {
    let points: Vec<_> = results.scale_points().into_iter().filter(|(_, h, _)| h == handler).collect();
    let metrics: Vec<_> = points.iter().map(|(workload, ..)| (workload.clone(), "updates_per_s")).collect();
    Chart {
        title: format!("Throughput over threads, handler of {}", handler.replace("us", " µs")),
        y_label: "updates/s".to_owned(),
        x_labels: points.iter().map(|(_, _, n)| format!("{n} + {n}")).collect(),
        series: series(results, &metrics),
        log: false,
        bars: false,
    }
}

fn latency(results: &Results) -> Chart {
    let points: Vec<_> = QUANTILES.iter().map(|&(metric, _)| ("W4".to_owned(), metric)).collect();
    Chart {
        title: "Latency of an update while a handler is busy".to_owned(),
        y_label: "µs (logarithmic)".to_owned(),
        x_labels: ["p50", "p90", "p99", "p99.9", "p99.99", "max"].map(str::to_owned).to_vec(),
        series: series(results, &points),
        log: true,
        bars: false,
    }
}

fn stall(results: &Results) -> Chart {
    let columns = [
        ("W6", "update_own_max_ms", "Replace: update"),
        ("W6", "pop_gap_own_max_ms", "Replace: pop"),
        ("W6q", "update_own_max_ms", "full: update"),
        ("W6q", "pop_gap_own_max_ms", "full: pop"),
        ("W7", "update_own_max_ms", "Resync: update"),
        ("W7", "pop_gap_own_max_ms", "Resync: pop"),
    ];
    let points: Vec<_> = columns.iter().map(|&(workload, metric, _)| (workload.to_owned(), metric)).collect();
    Chart {
        title: "Longest stall during a Replace or Resync of 1,000,000 keys".to_owned(),
        y_label: "ms without waits for a core (logarithmic)".to_owned(),
        x_labels: columns.iter().map(|&(.., label)| label.to_owned()).collect(),
        series: series(results, &points),
        log: true,
        bars: true,
    }
}

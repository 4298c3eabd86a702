//! Reads the JSON lines of several rounds and prints one markdown table: median, range and spread of each figure,
//! and how many times better the reference engine is.
//!
//! A round is not marked in the input: the n-th value of a figure belongs to round n, so ratios are taken between
//! runs that were neighbours in time, and their range tells how far the machine moved under them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use serde::Deserialize;

const USAGE: &str = "usage: rival-table RESULTS.jsonl [REFERENCE-ENGINE]";

/// A line of the format in ../../README.md.
#[derive(Deserialize)]
struct Line {
    workload: String,
    engine: String,
    metric: String,
    value: f64,
    #[serde(default = "full")]
    scale: f64,
    #[serde(default)]
    note: String,
}

fn full() -> f64 {
    1.0
}

/// One figure: its values in the order of the rounds.
struct Figure {
    engine: String,
    note: String,
    values: Vec<f64>,
}

/// Everything read: figures by workload and metric, in the order in which they first came.
#[derive(Default)]
struct Results {
    order: Vec<(String, String)>,
    figures: BTreeMap<(String, String), Vec<Figure>>,
    meta: Vec<serde_json::Value>,
    scale: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Better {
    Higher,
    Lower,
    /// Goes with another figure to explain it.
    Neither,
}

fn better(metric: &str) -> Better {
    match metric {
        "pops" | "pace_kept" | "sleeper_max_ms" => Better::Neither,
        _ if metric.ends_with("_per_s") => Better::Higher,
        _ => Better::Lower,
    }
}

impl Results {
    fn read(text: &str) -> Result<Results, Box<dyn Error>> {
        let mut results = Results::default();
        for (number, line) in text.lines().enumerate() {
            // A program may print other things around its figures.
            if !line.starts_with('{') {
                continue;
            }
            let at = |error: &dyn std::fmt::Display| format!("line {}: {error}: {line}", number + 1);
            let value: serde_json::Value = serde_json::from_str(line).map_err(|error| at(&error))?;
            if let Some(meta) = value.get("meta") {
                if !results.meta.contains(meta) {
                    results.meta.push(meta.clone());
                }
                continue;
            }
            let line: Line = serde_json::from_value(value).map_err(|error| at(&error))?;
            results.add(line).map_err(|error| at(&error))?;
        }
        if results.order.is_empty() { Err("no figures in the input".into()) } else { Ok(results) }
    }

    fn add(&mut self, line: Line) -> Result<(), String> {
        let scale = *self.scale.get_or_insert(line.scale);
        if scale != line.scale {
            return Err(format!("scale {} after scale {scale}: such runs cannot be compared", line.scale));
        }
        let key = (line.workload, line.metric);
        let engines = self.figures.entry(key.clone()).or_insert_with(|| {
            self.order.push(key);
            Vec::new()
        });
        if let Some(figure) = engines.iter_mut().find(|figure| figure.engine == line.engine) {
            figure.values.push(line.value);
        } else {
            let Line { engine, note, value, .. } = line;
            engines.push(Figure { engine, note, values: vec![value] });
        }
        Ok(())
    }

    fn table(&self, reference: &str) -> Result<String, Box<dyn Error>> {
        if !self.figures.values().flatten().any(|figure| figure.engine == reference) {
            let mut engines: Vec<_> = self.figures.values().flatten().map(|figure| figure.engine.as_str()).collect();
            engines.sort_unstable();
            engines.dedup();
            return Err(format!("no figures of the reference {reference}; there are {}", engines.join(", ")).into());
        }
        let mut out = String::new();
        let mut notes: Vec<&str> = Vec::new();
        if let Some(scale) = self.scale.filter(|&scale| scale != 1.0) {
            writeln!(out, "Scale {scale}: this only shows that everything runs.\n")?;
        }
        writeln!(out, "| workload | figure | engine | n | median | min .. max | spread | {reference} is better by |")?;
        writeln!(out, "|---|---|---|--:|--:|--:|--:|--:|")?;
        for key in &self.order {
            let engines = &self.figures[key];
            let base = engines.iter().find(|figure| figure.engine == reference);
            for figure in engines {
                let mut sorted = figure.values.clone();
                sorted.sort_by(f64::total_cmp);
                let (low, high, middle) = (sorted[0], sorted[sorted.len() - 1], median(&sorted));
                let spread = if middle == 0.0 { "-".into() } else { format!("{:.0} %", (high - low) / middle * 100.0) };
                let mark = if figure.note.is_empty() {
                    String::new()
                } else {
                    let known = notes.iter().position(|&note| note == figure.note);
                    let index = known.unwrap_or_else(|| {
                        notes.push(&figure.note);
                        notes.len() - 1
                    });
                    format!(" [{}]", index + 1)
                };
                let ratio = match base {
                    Some(base) if base.engine != figure.engine => ratio(&key.1, base, figure),
                    _ => "-".into(),
                };
                writeln!(
                    out,
                    "| {} | {} | {}{mark} | {} | {} | {} .. {} | {spread} | {ratio} |",
                    key.0,
                    key.1,
                    figure.engine,
                    sorted.len(),
                    number(middle),
                    number(low),
                    number(high),
                )?;
            }
        }
        for (index, note) in notes.iter().enumerate() {
            write!(out, "\n[{}] {note}", index + 1)?;
        }
        if !notes.is_empty() {
            out.push('\n');
        }
        for meta in &self.meta {
            let mut parts = Vec::new();
            for (name, value) in meta.as_object().into_iter().flatten() {
                parts.push(format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), String::from)));
            }
            write!(out, "\n- {}", parts.join(", "))?;
        }
        out.push('\n');
        Ok(out)
    }
}

/// How many times better the reference is: the median over the rounds, with the range.
fn ratio(metric: &str, base: &Figure, other: &Figure) -> String {
    let better = better(metric);
    let mut ratios: Vec<f64> = base
        .values
        .iter()
        .zip(&other.values)
        .map(|(base, other)| if better == Better::Higher { base / other } else { other / base })
        .filter(|ratio| ratio.is_finite())
        .collect();
    if better == Better::Neither || ratios.is_empty() {
        return "-".into();
    }
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
    format!("{} x ({} .. {})", number(median(&ratios)), number(low), number(high))
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// Three digits that mean something, and millions as such.
fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e6 => format!("{:.2} M", value / 1e6),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rival-table: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or(USAGE)?;
    let reference = args.next().unwrap_or_else(|| "delta-fifo".into());
    if args.next().is_some() {
        return Err(USAGE.into());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let table = Results::read(&text)?.table(&reference)?;
    std::io::stdout().write_all(table.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE_ROUNDS: &str = r#"
warming up
{"meta":{"program":"a rival","version":"1"}}
{"workload":"W2","engine":"delta-fifo","metric":"updates_per_s","value":8e6}
{"workload":"W2","engine":"rival","metric":"updates_per_s","value":2e6,"unit":"1/s","note":"half asleep"}
{"workload":"W3b","engine":"delta-fifo","metric":"round_trip_ns","value":100,"unit":"ns"}
{"workload":"W3b","engine":"rival","metric":"round_trip_ns","value":300,"unit":"ns"}
{"meta":{"program":"a rival","version":"1"}}
{"workload":"W2","engine":"delta-fifo","metric":"updates_per_s","value":6e6}
{"workload":"W2","engine":"rival","metric":"updates_per_s","value":1e6,"unit":"1/s"}
{"workload":"W2","engine":"delta-fifo","metric":"updates_per_s","value":10e6}
{"workload":"W2","engine":"rival","metric":"updates_per_s","value":2e6,"unit":"1/s"}
"#;

    #[test]
    fn medians_spread_and_ratios() {
        let table = Results::read(THREE_ROUNDS).unwrap().table("delta-fifo").unwrap();
        for row in [
            "| W2 | updates_per_s | delta-fifo | 3 | 8.00 M | 6.00 M .. 10.00 M | 50 % | - |",
            // Round by round: 4, 6, 5.
            "| W2 | updates_per_s | rival [1] | 3 | 2.00 M | 1.00 M .. 2.00 M | 50 % | 5.00 x (4.00 .. 6.00) |",
            "| W3b | round_trip_ns | rival | 1 | 300 | 300 .. 300 | 0 % | 3.00 x (3.00 .. 3.00) |",
            "[1] half asleep",
            "- program a rival, version 1",
        ] {
            assert!(table.contains(row), "no {row:?} in\n{table}");
        }
        assert_eq!(table.matches("program a rival").count(), 1);
    }

    #[test]
    fn explaining_figures_have_no_ratio() {
        assert_eq!(better("pops"), Better::Neither);
        assert_eq!(better("pops_per_s"), Better::Higher);
        assert_eq!(better("update_p99_us"), Better::Lower);
    }

    #[test]
    fn mixed_scales_are_refused() {
        let mixed = r#"{"workload":"W1","engine":"a","metric":"add_ns","value":1,"scale":0.02}
{"workload":"W1","engine":"b","metric":"add_ns","value":1}"#;
        let error = Results::read(mixed).err().unwrap().to_string();
        assert!(error.contains("line 2: scale 1 after scale 0.02"), "{error}");
    }

    #[test]
    fn a_missing_reference_is_named() {
        let error = Results::read(THREE_ROUNDS).unwrap().table("nobody").unwrap_err().to_string();
        assert_eq!(error, "no figures of the reference nobody; there are delta-fifo, rival");
    }

    #[test]
    fn broken_lines_are_shown() {
        let error = Results::read("{\"workload\":\"W1\"}").err().unwrap().to_string();
        assert!(error.starts_with("line 1: missing field `engine`"), "{error}");
        assert!(Results::read("nothing here").is_err());
    }
}

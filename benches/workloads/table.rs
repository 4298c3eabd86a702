//! Figures of all rounds, and the table made of them.

use std::fmt::Write as _;

use super::engine::{Embedded, Engine, External, Held, Outside};
use super::goals::{self, Goal, higher_is_better};
use super::run::Figure;

#[derive(Default)]
pub struct Results(Vec<Figure>);

/// Median and range of one figure on one engine.
#[derive(Clone, Copy)]
pub struct Summary {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Summary {
    fn of(mut values: Vec<f64>) -> Option<Summary> {
        values.sort_by(f64::total_cmp);
        let (&low, &high) = (values.first()?, values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        Some(Summary { median, low, high })
    }
}

impl Results {
    pub fn add(&mut self, figure: Figure) {
        self.0.push(figure);
    }

    pub fn rounds(&self) -> usize {
        self.0.iter().map(|figure| figure.round).max().unwrap_or(0)
    }

    fn values(&self, workload: &str, engine: &str, metric: &str) -> Vec<f64> {
        let is = |f: &&Figure| f.workload == workload && f.engine == engine && f.metric == metric;
        self.0.iter().filter(is).map(|f| f.value).collect()
    }

    pub fn summary(&self, workload: &str, engine: &str, metric: &str) -> Option<Summary> {
        Summary::of(self.values(workload, engine, metric))
    }

    /// How many times better `engine` is than `base`: round by round, between runs that were neighbours in time.
    fn better_by(&self, workload: &str, metric: &str, engine: &str, base: &str) -> Option<Summary> {
        let higher = higher_is_better(metric)?;
        let (ours, theirs) = (self.values(workload, engine, metric), self.values(workload, base, metric));
        let ratio = |(ours, theirs): (&f64, &f64)| if higher { ours / theirs } else { theirs / ours };
        Summary::of(ours.iter().zip(&theirs).map(ratio).filter(|ratio| !ratio.is_nan()).collect())
    }

    /// The workloads of W9 that were run: name, handler, threads.
    pub fn scale_points(&self) -> Vec<(String, String, usize)> {
        let mut points: Vec<(String, String, usize)> = Vec::new();
        for figure in &self.0 {
            let mut parts = figure.workload.split('/');
            if let (Some("W9"), Some(handler), Some(threads)) = (parts.next(), parts.next(), parts.next())
                && let Some(Ok(threads)) = threads.strip_suffix('t').map(str::parse)
                && !points.iter().any(|(workload, ..)| *workload == figure.workload)
            {
                points.push((figure.workload.clone(), handler.to_owned(), threads));
            }
        }
        points
    }

    /// The best of this engine with fewer threads.
    fn best_with_fewer(&self, workload: &str, metric: &str) -> Option<f64> {
        let points = self.scale_points();
        let (_, handler, threads) = points.iter().find(|(name, ..)| name == workload)?;
        let fewer = points.iter().filter(|(_, h, t)| h == handler && t < threads);
        fewer.filter_map(|(name, ..)| Some(self.summary(name, Embedded::NAME, metric)?.median)).reduce(f64::max)
    }

    fn judge(&self, workload: &str, metric: &str, goal: Goal) -> Option<(String, bool)> {
        let ours = self.summary(workload, Embedded::NAME, metric)?.median;
        let better_by = |base| Some(self.better_by(workload, metric, Embedded::NAME, base)?.median);
        Some(match goal {
            Goal::Held(factor) => (format!(">= {} x held", number(factor)), better_by(Held::NAME)? >= factor),
            Goal::Outside(factor) => (format!(">= {} x outside", number(factor)), better_by(Outside::NAME)? >= factor),
            Goal::AtMost(most) => (format!("<= {}", number(most)), ours <= most),
            Goal::Like(other) => {
                let other_value = self.summary(workload, Embedded::NAME, other)?.median;
                (format!("as {other}"), ours <= 1.1 * other_value)
            }
            Goal::NoFall => {
                let fewer = self.best_with_fewer(workload, metric)?;
                ("no fall".to_owned(), ours >= 0.9 * fewer)
            }
        })
    }

    /// The table, in markdown.
    pub fn table(&self) -> String {
        let mut out = String::new();
        out.push_str("| workload | figure | delta-fifo | own store outside | mutex, held | mutex, outside | x held | x outside | goal | met |\n");
        out.push_str("|---|---|--:|--:|--:|--:|--:|--:|---|---|\n");
        let fixed = goals::ROWS.iter().map(|row| (row.workload.to_owned(), row.metric, row.goals));
        let scale = self.scale_points().into_iter().map(|(name, ..)| (name, "updates_per_s", goals::SCALE));
        for (workload, metric, goals) in fixed.chain(scale) {
            self.row(&mut out, &workload, metric, goals);
        }
        let _ = write!(
            out,
            "\nMedians of {} rounds, with the range. \"x\" is how many times better delta-fifo is, ",
            self.rounds()
        );
        out.push_str("taken round by round.\n");
        out
    }

    fn row(&self, out: &mut String, workload: &str, metric: &str, goals: &[Goal]) {
        if ![Embedded::NAME, External::NAME, Held::NAME, Outside::NAME]
            .iter()
            .any(|engine| self.summary(workload, engine, metric).is_some())
        {
            return;
        }
        let _ = write!(out, "| {workload} | {metric} |");
        for engine in [Embedded::NAME, External::NAME, Held::NAME, Outside::NAME] {
            let _ = write!(out, " {} |", self.summary(workload, engine, metric).map_or("-".into(), range));
        }
        for base in [Held::NAME, Outside::NAME] {
            let _ =
                write!(out, " {} |", self.better_by(workload, metric, Embedded::NAME, base).map_or("-".into(), range));
        }
        let judged: Vec<_> = goals.iter().filter_map(|&goal| self.judge(workload, metric, goal)).collect();
        let goal: Vec<_> = judged.iter().map(|(goal, _)| goal.as_str()).collect();
        let met: Vec<_> = judged.iter().map(|&(_, met)| if met { "yes" } else { "NO" }).collect();
        let _ = writeln!(out, " {} | {} |", goal.join(", "), met.join(", "));
    }
}

fn range(summary: Summary) -> String {
    let Summary { median, low, high } = summary;
    if low == high { number(median) } else { format!("{} ({} .. {})", number(median), number(low), number(high)) }
}

/// Three digits that mean something, and millions as such.
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e6 => format!("{:.2} M", value / 1e6),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 0.1 || size == 0.0 => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        _ => format!("{value:.3}"),
    }
}

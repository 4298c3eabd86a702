//! A small writer of charts as SVG: lines over a logarithmic or even x axis, and bars, with a logarithmic or linear y.
//! Colours are readable on a light and on a dark page.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 46.0;
const COLORS: [&str; 4] = ["#1f8a5b", "#3b7dd8", "#d9534f", "#c98a1b"];
const INK: &str = "#808080";

/// One engine's values, one per x; `None` where there is none.
pub struct Series {
    pub name: String,
    pub values: Vec<Option<f64>>,
}

pub struct Chart {
    pub title: String,
    pub y_label: String,
    pub x_labels: Vec<String>,
    pub series: Vec<Series>,
    pub log: bool,
    pub bars: bool,
}

impl Chart {
    fn range(&self) -> (f64, f64) {
        let all = || self.series.iter().flat_map(|series| series.values.iter().flatten().copied());
        let high = all().fold(f64::MIN_POSITIVE, f64::max);
        if self.log {
            let low = all().filter(|value| *value > 0.0).fold(high, f64::min);
            (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0))
        } else {
            (0.0, high * 1.05)
        }
    }

    fn y(&self, value: f64, (low, high): (f64, f64)) -> f64 {
        let value = if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let part = ((value - low) / (high - low)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self, (low, high): (f64, f64)) -> Vec<f64> {
        if self.log {
            return (low as i32..=high as i32).map(|power| 10_f64.powi(power)).collect();
        }
        let rough = high / 5.0;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * unit).find(|step| *step >= rough).unwrap_or(rough);
        (0..).map(|n| f64::from(n) * step).take_while(|tick| *tick <= high).collect()
    }

    pub fn render(&self) -> String {
        let mut out = String::new();
        let range = self.range();
        let _ = writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="{INK}">"#
        );
        let _ = writeln!(
            out,
            r#"<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{}</text>"#,
            escape(&self.title)
        );
        let _ = writeln!(out, r#"<text x="{LEFT}" y="{}">{}</text>"#, TOP - 8.0, escape(&self.y_label));
        self.legend(&mut out);
        for tick in self.ticks(range) {
            let y = self.y(tick, range);
            let _ = writeln!(
                out,
                r#"<path d="M{LEFT} {y:.1}H{:.1}" stroke="{INK}" stroke-opacity="0.25"/><text x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                tick_label(tick)
            );
        }
        let slot = (WIDTH - LEFT - RIGHT) / self.x_labels.len() as f64;
        let middle = |i: usize| LEFT + (i as f64 + 0.5) * slot;
        for (i, label) in self.x_labels.iter().enumerate() {
            let _ = writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                middle(i),
                HEIGHT - BOTTOM + 18.0,
                escape(label)
            );
        }
        for (index, series) in self.series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let points = series.values.iter().enumerate().filter_map(|(i, value)| value.map(|value| (i, value)));
            if self.bars {
                let width = slot * 0.8 / self.series.len() as f64;
                for (i, value) in points {
                    let (x, y) = (middle(i) - slot * 0.4 + index as f64 * width, self.y(value, range));
                    let _ = writeln!(
                        out,
                        r#"<rect x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" fill="{color}"><title>{}: {}</title></rect>"#,
                        width - 1.0,
                        HEIGHT - BOTTOM - y,
                        escape(&series.name),
                        tick_label(value)
                    );
                }
                continue;
            }
            let mut path = String::new();
            let mut dots = String::new();
            for (i, value) in points {
                let (x, y) = (middle(i), self.y(value, range));
                let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
                let _ = write!(dots, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{color}"/>"#);
            }
            let _ = writeln!(out, r#"<path d="{path}" fill="none" stroke="{color}" stroke-width="2"/>{dots}"#);
        }
        out.push_str("</svg>\n");
        out
    }

    fn legend(&self, out: &mut String) {
        let mut x = LEFT;
        for (index, series) in self.series.iter().enumerate() {
            let _ = writeln!(
                out,
                r#"<rect x="{x:.1}" y="30" width="10" height="10" fill="{}"/><text x="{:.1}" y="39">{}</text>"#,
                COLORS[index % COLORS.len()],
                x + 14.0,
                escape(&series.name)
            );
            x += 34.0 + 6.6 * series.name.chars().count() as f64;
        }
    }
}

fn tick_label(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{} M", super::table::number(value / 1e6)),
        _ if value >= 1.0 => super::table::number(value),
        _ => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

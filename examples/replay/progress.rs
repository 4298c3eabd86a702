//! The progress bar. Without a terminal there is none.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Shows how far the replay is, and lets other messages pass above it.
///
/// The bar draws itself some times per second; the replay only counts.
pub struct Progress {
    bar: ProgressBar,
    events: Arc<AtomicU64>,
    /// Bytes of the input that were read; `None` if the bar's length is in events.
    bytes: Option<Arc<AtomicU64>>,
}

impl Progress {
    /// Follows the bytes that are read, `length` in all.
    pub fn of_input(wanted: bool, length: Option<u64>, bytes: Arc<AtomicU64>) -> Self {
        let style = match length {
            Some(_) => "{bar:30} {bytes}/{total_bytes}, {events} events, {elapsed}",
            None => "{spinner} {bytes}, {events} events, {elapsed}",
        };
        Progress::new(wanted, length, style, Some(bytes))
    }

    /// Follows `events` events that are in memory.
    pub fn of_events(wanted: bool, events: u64) -> Self {
        Progress::new(wanted, Some(events), "{bar:30} {events}/{len} events, {elapsed}", None)
    }

    fn new(wanted: bool, length: Option<u64>, style: &str, bytes: Option<Arc<AtomicU64>>) -> Self {
        let events = Arc::new(AtomicU64::new(0));
        if !wanted || !io::stderr().is_terminal() {
            return Progress { bar: ProgressBar::hidden(), events, bytes };
        }
        let shown = events.clone();
        let style = ProgressStyle::with_template(style).expect("a constant template").with_key(
            "events",
            move |_: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}", shown.load(Ordering::Relaxed));
            },
        );
        let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress { bar, events, bytes }
    }

    /// One more event.
    pub fn event(&self) {
        let events = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        if self.bar.is_hidden() {
            return;
        }
        let position = self.bytes.as_ref().map_or(events, |bytes| bytes.load(Ordering::Relaxed));
        if position != self.bar.position() {
            self.bar.set_position(position);
        }
    }

    /// Takes the bar away, so that another one can be shown.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// A line on standard error.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

//! One JSON object per figure on standard output; ../README.md describes the format.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;

/// One workload on one engine, and how its figures leave the program.
pub struct Bench<'a> {
    pub workload: &'a str,
    pub engine: &'a str,
    pub scale: f64,
    /// Entries in the broadcast buffer of the shared store.
    pub buffer: usize,
    pub emit: &'a dyn Fn(serde_json::Value),
}

impl Bench<'_> {
    /// Shrinks a count for quick runs, but leaves enough to run into the interesting paths.
    pub fn scaled(&self, n: usize) -> usize {
        ((n as f64 * self.scale) as usize).max(n.min(1_000))
    }

    pub fn report(&self, metric: &str, value: f64, unit: &str) {
        self.report_with_note(metric, value, unit, "");
    }

    pub fn report_with_note(&self, metric: &str, value: f64, unit: &str, note: &str) {
        let mut line = json!({
            "workload": self.workload, "engine": self.engine, "metric": metric, "value": value, "unit": unit,
            "scale": self.scale,
        });
        if !note.is_empty() {
            line["note"] = note.into();
        }
        (self.emit)(line);
    }

    /// Figures of a run that lost something are worthless.
    pub fn check(&self, what: &str, got: usize, want: usize) {
        assert_eq!(got, want, "{} on {}: {what}; its figures would be worthless", self.workload, self.engine);
    }

    pub fn report_calls(&self, mut calls: Vec<Duration>, note: &str) {
        calls.sort_unstable();
        let last = calls.len() - 1;
        for (metric, quantile) in
            [("update_p50_us", 0.5), ("update_p99_us", 0.99), ("update_p99_9_us", 0.999), ("update_max_us", 1.0)]
        {
            let call = calls[((quantile * calls.len() as f64) as usize).min(last)];
            self.report_with_note(metric, call.as_nanos() as f64 / 1e3, "us", note);
        }
    }
}

/// Resident memory in bytes.
pub fn rss() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("W8 reads /proc/self/status and needs Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a VmRSS line");
    let kb = line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).expect("VmRSS in kB");
    kb * 1024.0
}

/// The system allocator with a counter of allocations, for W3b.
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

pub fn allocations() -> u64 {
    ALLOCATIONS.load(Relaxed)
}

// SAFETY: every call is handed to `System` with its arguments as they came; counting touches no memory of a caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `ptr` came from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, and `ptr` came from `System`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

//! Latencies in buckets that many threads count into: eight per doubling, so a quantile is right to 9 %.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PER_DOUBLING: u64 = 8;

#[derive(Clone)]
pub struct Latencies(Arc<Vec<AtomicU64>>);

impl Latencies {
    pub fn new() -> Self {
        Latencies(Arc::new((0..64 * PER_DOUBLING).map(|_| AtomicU64::new(0)).collect()))
    }

    pub fn record(&self, nanoseconds: u64) {
        let bucket = (nanoseconds.max(1) as f64).log2() * PER_DOUBLING as f64;
        self.0[(bucket as usize).min(self.0.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Microseconds; 0 if nothing was recorded.
    pub fn quantile(&self, part: f64) -> f64 {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return 2_f64.powf((bucket as f64 + 0.5) / PER_DOUBLING as f64) / 1_000.0;
            }
        }
        0.0
    }
}

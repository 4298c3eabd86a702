//! Back-off: how long to wait before something that failed is tried again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::guard::{after, capped};

/// How long to wait between attempts: longer each time, with jitter, up to a limit.
///
/// The default is client-go's: 0.8 s, doubled each time up to 30 s, each wait stretched by a random factor between 1
/// and 2, back to the start after two quiet minutes.
///
/// ```
/// use delta_fifo::informer::BackoffPolicy;
/// use std::time::Duration;
///
/// let eager = BackoffPolicy { min: Duration::from_millis(10), ..BackoffPolicy::default() };
/// assert_eq!(eager.max, Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffPolicy {
    /// The first wait.
    pub min: Duration,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// By how much a wait is longer than the one before.
    pub factor: f32,
    /// Whether each wait is stretched by a random factor between 1 and 2.
    pub jitter: bool,
    /// Begin with `min` again when nothing failed for this long.
    pub reset_after: Duration,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        BackoffPolicy {
            min: Duration::from_millis(800),
            max: Duration::from_secs(30),
            factor: 2.0,
            jitter: true,
            reset_after: Duration::from_secs(120),
        }
    }
}

impl BackoffPolicy {
    fn delays(&self) -> ExponentialBackoff {
        let builder = ExponentialBuilder::new()
            .with_min_delay(capped(self.min))
            .with_max_delay(capped(self.max))
            .with_factor(self.factor)
            .without_max_times();
        // Seeded here: without the standard library's help backon would give every process the same jitter.
        if self.jitter { builder.with_jitter().with_jitter_seed(fastrand::u64(..)) } else { builder }.build()
    }

    /// The wait before attempt number `attempt` is repeated; the first attempt is 1.
    pub(super) fn delay_after(&self, attempt: u32) -> Duration {
        // Longer waits than the limit are not computed: 2^40 is beyond any.
        self.delays().nth(attempt.clamp(1, 40) as usize - 1).unwrap_or(self.max)
    }
}

/// The waits of one loop.
pub(super) struct Backoff {
    policy: BackoffPolicy,
    delays: ExponentialBackoff,
    /// When the last wait was over. Quiet time counts from here, so that a loop that fails all the time and waits long
    /// is not taken for a quiet one.
    last: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(policy: BackoffPolicy) -> Self {
        Backoff { policy, delays: policy.delays(), last: None }
    }

    /// How long to wait now.
    pub(super) fn next(&mut self) -> Duration {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > self.policy.reset_after) {
            self.delays = self.policy.delays();
        }
        let delay = self.delays.next().unwrap_or(self.policy.max);
        self.last = Some(after(now, delay));
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(range: (f32, f32), delay: Duration) {
        assert!((range.0..range.1).contains(&delay.as_secs_f32()), "{delay:?} is not in {range:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn grows_to_the_limit_and_begins_again_after_two_quiet_minutes() {
        let mut backoff = Backoff::new(BackoffPolicy::default());
        for range in [(0.8, 1.6), (1.6, 3.2), (3.2, 6.4), (6.4, 12.8), (12.8, 25.6), (25.6, 51.2), (30.0, 60.0)] {
            secs(range, backoff.next());
        }
        // Constant failure is no quiet time, however long it goes on.
        for _ in 0..20 {
            let delay = backoff.next();
            secs((30.0, 60.0), delay);
            tokio::time::advance(delay + Duration::from_secs(100)).await;
        }
        tokio::time::advance(Duration::from_secs(200)).await;
        secs((0.8, 1.6), backoff.next());
    }

    #[test]
    fn two_loops_do_not_wait_in_step() {
        let (a, b) = (BackoffPolicy::default().delay_after(1), BackoffPolicy::default().delay_after(1));
        assert_ne!(a, b);
        secs((30.0, 60.0), BackoffPolicy::default().delay_after(u32::MAX));
    }
}

//! Runs one model: under loom every execution up to a bound of preemptions, under shuttle many random schedules.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[cfg(loom)]
pub use loom::{future::block_on, sync::atomic::AtomicU32, thread};
#[cfg(shuttle)]
pub use shuttle::{future::block_on, sync::atomic::AtomicU32, thread};

/// How many times a thread may be preempted in one execution.
///
/// Two finds every seeded bug; one misses several. `DELTA_FIFO_BOUND` (a number, or `none`) overrides it.
pub const BOUND: usize = 2;

/// Runs `model` and prints how much of it there was. `name` is that of the test function.
pub fn check(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = executions.clone();
    let start = Instant::now();
    let how = explore(name, move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    eprintln!("\nMODEL {name} {how} executions={executions} seconds={:.2}", start.elapsed().as_secs_f64());
}

#[cfg(loom)]
fn explore(_name: &str, model: impl Fn() + Send + Sync + 'static) -> String {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = match std::env::var("DELTA_FIFO_BOUND").ok().as_deref() {
        None => Some(BOUND),
        Some("none") => None,
        Some(number) => Some(number.parse().expect("DELTA_FIFO_BOUND is a number or `none`")),
    };
    builder.max_branches = 20_000;
    // These two end a model early, and with success.
    assert!(builder.max_duration.is_none(), "unset LOOM_MAX_DURATION: it ends a model early, as if it had passed");
    assert!(builder.max_permutations.is_none(), "unset LOOM_MAX_PERMUTATIONS: it ends a model early");
    let how = format!("bound={:?}", builder.preemption_bound);
    builder.check(model);
    how
}

/// `SHUTTLE_ITERATIONS`, `SHUTTLE_SCHEDULER` (`random` or `pct`) and `SHUTTLE_SEED` choose the schedules. A failure
/// prints its schedule; `SHUTTLE_REPLAY` runs that one again.
#[cfg(shuttle)]
fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) -> String {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    let number = |variable: &str| {
        let value = std::env::var(variable).ok()?;
        Some(value.parse::<u64>().unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")))
    };
    if let Ok(schedule) = std::env::var("SHUTTLE_REPLAY") {
        shuttle::replay(model, &schedule);
        return "replay".to_owned();
    }
    let iterations = number("SHUTTLE_ITERATIONS").unwrap_or(1_000) as usize;
    // A seed that is always the same would look at the same schedules for ever.
    let seed = number("SHUTTLE_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock past 1970");
        now.as_nanos() as u64
    });
    eprintln!("{name}: SHUTTLE_SEED={seed}");
    let mut config = shuttle::Config::new();
    config.stack_size = 256 * 1024;
    match std::env::var("SHUTTLE_SCHEDULER").as_deref() {
        Ok("pct") => {
            shuttle::Runner::new(PctScheduler::new_from_seed(seed, 3, iterations), config).run(model);
            format!("pct seed={seed}")
        }
        Ok("random") | Err(_) => {
            shuttle::Runner::new(RandomScheduler::new_from_seed(seed, iterations), config).run(model);
            format!("random seed={seed}")
        }
        Ok(other) => panic!("SHUTTLE_SCHEDULER is `random` or `pct`, not {other:?}"),
    }
}

/// What only the owner of a claim may touch. Its accesses are relaxed: who comes without a happens-before edge may
/// read an old value, and loom tries that.
#[derive(Debug)]
pub struct Owned {
    holds: AtomicU32,
    holders: AtomicUsize,
}

impl Default for Owned {
    fn default() -> Self {
        Owned { holds: AtomicU32::new(0), holders: AtomicUsize::new(0) }
    }
}

impl Owned {
    /// Runs `f` as the only holder.
    pub fn hold<R>(&self, f: impl FnOnce() -> R) -> R {
        // The counter of holders is std's, so invisible to the checker: it orders nothing.
        assert_eq!(self.holders.fetch_add(1, Ordering::SeqCst), 0, "two holders of one key");
        let holds = self.holds.load(Ordering::Relaxed);
        let result = f();
        self.holds.store(holds + 1, Ordering::Relaxed);
        assert_eq!(self.holders.fetch_sub(1, Ordering::SeqCst), 1, "two holders of one key");
        result
    }

    /// How often it was held, as far as this thread can see.
    pub fn holds(&self) -> u32 {
        self.holds.load(Ordering::Relaxed)
    }
}

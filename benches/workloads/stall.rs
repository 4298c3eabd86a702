//! What a Replace or a Resync of a million keys does to everybody else: W6, W7.
//!
//! A thread that is not served is either held up by the queue or waits for a core: there are more busy threads than
//! cores here. So each stall is given twice, as the clock saw it and without the time in which the thread was
//! runnable and had no core (`_own_`), which the kernel counts per thread. Where the queue was empty, the own time of
//! a pop counts from the call of the update that it waited for. A third figure is that of a thread that only sleeps.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::object::{Object, SEED, SplitMix64, object, objects};
use super::run::Run;

/// Stalls below this are not looked at more closely.
const LONG: Duration = Duration::from_micros(100);

/// How long this thread has been runnable without a core.
struct Waited {
    schedstat: Option<File>,
    last: Duration,
}

impl Waited {
    fn new() -> Waited {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let mut waited = Waited { schedstat, last: Duration::ZERO };
        waited.since_last();
        waited
    }

    /// The time since the last call of this; zero where the kernel does not say.
    fn since_last(&mut self) -> Duration {
        let mut text = [0; 96];
        let read = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let now = std::str::from_utf8(&text[..read]).ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
        let now = now.map_or(self.last, Duration::from_nanos);
        let since = now.saturating_sub(self.last);
        self.last = now;
        since
    }
}

/// The longest stall, as the clock saw it and without the wait for a core.
#[derive(Default)]
struct Longest {
    wall: Duration,
    own: Duration,
}

impl Longest {
    fn record(&mut self, wall: Duration, own: Duration) {
        self.wall = self.wall.max(wall);
        self.own = self.own.max(own);
    }
}

struct Scene<E> {
    engine: E,
    begin: Instant,
    /// When the last update was called, in ns since the beginning.
    updated: AtomicU64,
    /// The call has begun: stalls count from here.
    called: AtomicBool,
    stop: AtomicBool,
    handled: AtomicUsize,
}

impl<E: Engine> Scene<E> {
    /// Pops until the end; the longest time between two calls of the handler.
    fn pop(&self) -> Longest {
        let mut gap = Longest::default();
        let mut waited = Waited::new();
        let mut previous = Instant::now();
        let mut handled = 0;
        loop {
            let empty = self.engine.is_empty();
            let open = self.engine.pop(|deltas| {
                handled += deltas;
                let now = Instant::now();
                let stall = now - previous;
                if stall > LONG {
                    let waited = waited.since_last();
                    let called = self.begin + Duration::from_nanos(self.updated.load(Relaxed));
                    let since = if empty { previous.max(called) } else { previous };
                    if self.called.load(Relaxed) {
                        gap.record(stall, now.saturating_duration_since(since).saturating_sub(waited));
                    }
                } else if handled % 256 == 0 {
                    // What was waited in small portions is not to be taken off the next stall.
                    waited.since_last();
                }
                previous = Instant::now();
                self.handled.store(handled, Relaxed);
            });
            if !open {
                return gap;
            }
        }
    }

    /// Updates a key of the list every 100 us; the longest call.
    fn update(&self, run: &Run, listed: &[Arc<Object>]) -> Longest {
        let mut longest = Longest::default();
        let mut waited = Waited::new();
        let mut rng = SplitMix64(SEED);
        while !self.stop.load(Relaxed) {
            let object = run.updated(&listed[rng.below(listed.len())]);
            waited.since_last();
            let begin = Instant::now();
            self.updated.store((begin - self.begin).as_nanos() as u64, Relaxed);
            self.engine.update(object);
            let call = begin.elapsed();
            if self.called.load(Relaxed) {
                longest.record(call, call.saturating_sub(waited.since_last()));
            }
            thread::sleep(Duration::from_micros(100));
        }
        longest
    }

    /// By how much a thread oversleeps that does nothing else.
    fn sleep(&self) -> Duration {
        const NAP: Duration = Duration::from_millis(1);
        let mut longest = Duration::ZERO;
        while !self.stop.load(Relaxed) {
            let begin = Instant::now();
            thread::sleep(NAP);
            if self.called.load(Relaxed) {
                longest = longest.max(begin.elapsed().saturating_sub(NAP));
            }
        }
        longest
    }
}

/// W6, W7: `call` while another thread pops and a third updates a key every 100 us, until everything that the call
/// queued has been popped: a queue may return at once and make the others wait later.
pub fn stall<E: Engine>(run: &Run, metric: &str, queued: bool, call: impl Fn(&E, Vec<Arc<Object>>)) {
    let keys = run.scaled(1_000_000);
    let gone = keys / 1_000;
    let objects = objects(keys + gone);
    let scene = Scene {
        engine: E::new(keys),
        begin: Instant::now(),
        updated: AtomicU64::new(0),
        called: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        handled: AtomicUsize::new(0),
    };
    scene.engine.know(&objects[..keys]);
    // The list drops the first keys and brings as many new ones.
    let list = objects[gone..].to_vec();
    if queued {
        for object in &objects[..keys] {
            scene.engine.update(run.updated(object));
        }
    }

    let (took, gap, update, asleep) = thread::scope(|scope| {
        let popper = scope.spawn(|| scene.pop());
        let updater = scope.spawn(|| scene.update(run, &objects[gone..keys]));
        let sleeper = scope.spawn(|| scene.sleep());
        // Everything is in motion when the call comes, and in the queued case the queue is still all but full.
        while scene.handled.load(Relaxed) < 100 {
            thread::sleep(Duration::from_micros(100));
        }
        scene.called.store(true, Relaxed);
        let begin = Instant::now();
        call(&scene.engine, list);
        let took = begin.elapsed();
        // The last object in the queue tells when all is popped.
        scene.engine.update(object("last"));
        while !scene.engine.knows("last") {
            thread::sleep(Duration::from_micros(100));
        }
        scene.stop.store(true, Relaxed);
        let update = updater.join().expect("the updater does not panic");
        let asleep = sleeper.join().expect("the sleeper does not panic");
        scene.engine.close();
        (took, popper.join().expect("the popper does not panic"), update, asleep)
    });

    run.check("objects in the store", scene.engine.stored(), keys + 1);
    run.report_ms(metric, took);
    run.report_ms("update_max_ms", update.wall);
    run.report_ms("update_own_max_ms", update.own);
    run.report_ms("pop_gap_max_ms", gap.wall);
    run.report_ms("pop_gap_own_max_ms", gap.own);
    run.report_ms("sleeper_max_ms", asleep);
}

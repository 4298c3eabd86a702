//! A release against a producer who comes late: the slot is removed, or kept idle, or queued again, and never with a
//! delta in it that nobody will take.

use loom_tests::*;

fn late_producer(name: &'static str, mode: Mode, idle_keys: usize) {
    check(name, move || {
        let w = World::with(mode, |builder| builder.idle_keys(idle_keys));
        w.add(1, 1);
        let claim = w.fifo.try_pop().unwrap();
        let a = spawn(&w, |w| w.update(1, 2));
        drop(claim);
        a.join().unwrap();
        let claim = w.fifo.try_pop().expect("the update is stranded");
        assert_eq!(versions(&claim), [2]);
        drop(claim);
        assert!(w.fifo.has_no_ticket(), "a clean key was queued again");
        if mode == Mode::Embedded {
            assert_eq!(w.known(1), Some(2), "I8: what was released last is known");
        }
        if idle_keys == 0 {
            w.assert_clean();
        }
    });
}

/// **Release against a late producer, the slot goes.**
///
/// Main releases key 1, thread A updates it. Allowed: A finds the claim (dirty, main requeues), or no slot (a new
/// one). In both the update comes out once, and no slot is left.
///
/// Bound 2: 4 executions.
#[test]
fn late_producer_removed() {
    late_producer("late_producer_removed", Mode::Nowhere, 0);
}

/// **The same where the idle key keeps its working memory.** The slot stays, and must not count as queued.
///
/// Bound 2: 4 executions.
#[test]
fn late_producer_reserved() {
    late_producer("late_producer_reserved", Mode::Nowhere, 1);
}

/// **The same where the slot holds the known object.**
///
/// Bound 2: 4 executions.
#[test]
fn late_producer_embedded() {
    late_producer("late_producer_embedded", Mode::Embedded, 0);
}

/// **A release that queues a dirty key wakes a sleeper.**
///
/// Main holds key 1, thread A updates it, thread B waits and gets the update; main takes nothing after its release.
///
/// Bound 2: 45 executions.
#[test]
fn release_wakes() {
    check("release_wakes", || {
        let w = World::new(Mode::Nowhere);
        w.add(1, 1);
        let claim = w.fifo.try_pop().unwrap();
        let a = spawn(&w, |w| w.update(1, 2));
        let b = spawn(&w, |w| assert_eq!(versions(&w.fifo.pop_blocking().unwrap()), [2]));
        drop(claim);
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

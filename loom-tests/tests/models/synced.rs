//! `has_synced` (E4, I7): not before the last release of an initial claim, exact with duplicates and early pops, and
//! its waiters wake.

use loom_tests::*;

/// **Synced means processed, and visible.**
///
/// Thread A consumes, thread B looks once, main replaces by two keys. If B reads "synced", both keys were applied and
/// B sees it: the store is relaxed, so only `has_synced` can have ordered it.
///
/// Bound 2: 4,407 executions, 1.2 s.
#[test]
fn synced_not_early() {
    check("synced_not_early", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, World::consume);
        let b = spawn(&w, |w| {
            if w.fifo.has_synced() {
                assert_eq!((w.known(1), w.known(2)), (Some(1), Some(1)), "synced before the last release");
            }
        });
        w.replace(&[(1, 1), (2, 1)]);
        w.fifo.close();
        a.join().unwrap();
        b.join().unwrap();
        assert!(w.fifo.has_synced());
        w.assert_clean();
    });
}

/// **The initial delta lands on a busy slot.** A Resync's Sync of key 1 is queued before the first Replace (it does not
/// populate); thread A consumes, main replaces by key 1 in version 7. Allowed: synced only after 7 was applied.
///
/// Bound 2: 268 executions.
#[test]
fn synced_on_busy_slot() {
    check("synced_on_busy_slot", || {
        let w = World::new(Mode::External);
        w.seed(1, 1);
        w.resync();
        let a = spawn(&w, World::consume);
        w.replace(&[(1, 7)]);
        let applied = w.known(1);
        if w.fifo.has_synced() {
            assert_eq!(w.known(1), Some(7), "synced before the last release, {applied:?} is known");
        }
        w.fifo.close();
        a.join().unwrap();
        assert!(w.fifo.has_synced());
        w.assert_clean();
    });
}

/// **Duplicates in the list, and a tombstone, count by identity.** Key 1 comes twice in the list, key 2 is known and
/// not listed. Thread A consumes, thread B looks, main replaces.
///
/// Bound 2: 4,933 executions, 1.1 s.
#[test]
fn synced_with_duplicates() {
    check("synced_with_duplicates", || {
        let w = World::new(Mode::External);
        w.seed(2, 1);
        let a = spawn(&w, World::consume);
        let b = spawn(&w, |w| {
            if w.fifo.has_synced() {
                assert_eq!((w.known(1), w.known(2)), (Some(2), None), "synced before the last release");
            }
        });
        w.replace(&[(1, 1), (1, 2)]);
        w.fifo.close();
        a.join().unwrap();
        b.join().unwrap();
        assert!(w.fifo.has_synced());
        w.assert_clean();
    });
}

/// **The first call populates, whoever it is.** Thread A adds, main replaces, thread C consumes. Allowed: either is
/// the first; the count is exact at the end.
///
/// Bound 2: 4,626 executions, 0.9 s.
#[test]
fn populate_once() {
    check("populate_once", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, |w| w.add(1, 2));
        let consumer = spawn(&w, World::consume);
        w.replace(&[(1, 2)]);
        a.join().unwrap();
        w.fifo.close();
        consumer.join().unwrap();
        assert!(w.fifo.has_synced(), "the count is stuck");
        w.assert_clean();
    });
}

/// **A requeued initial claim is not processed yet.** Thread A requeues what it pops first, then consumes; main
/// replaces by key 1 and looks.
///
/// Bound 2: 139 executions.
#[test]
fn requeued_initial_is_not_synced() {
    check("requeued_initial_is_not_synced", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, |w| {
            if let Ok(claim) = w.fifo.pop_blocking() {
                claim.requeue();
            }
            w.consume();
        });
        w.replace(&[(1, 1)]);
        if w.fifo.has_synced() {
            assert_eq!(w.known(1), Some(1), "synced before the last release");
        }
        w.fifo.close();
        a.join().unwrap();
        assert!(w.fifo.has_synced(), "the count is stuck");
        w.assert_clean();
    });
}

/// **Two initial deltas of a key that a requeue joins count once.** Key 1 comes twice in the list. Thread A requeues the
/// claim it gets first, which may be between the two, then consumes; main replaces.
///
/// Bound 2: 124 executions, 0.1 s.
#[test]
fn requeued_duplicate_counts_once() {
    check("requeued_duplicate_counts_once", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, |w| {
            if let Ok(claim) = w.fifo.pop_blocking() {
                claim.requeue();
            }
            w.consume();
        });
        w.replace(&[(1, 1), (1, 2)]);
        w.fifo.close();
        a.join().unwrap();
        assert!(w.fifo.has_synced(), "the count is stuck");
        w.assert_clean();
    });
}

/// **`is_initial` is exact.** Thread A pops key 1 (queued by a Resync before the first call) and looks, main replaces
/// by it. Allowed: the claim is initial, whether it came before the Replace or carries its delta.
///
/// Bound 2: 193 executions, 0.1 s.
#[test]
fn early_claim_is_initial() {
    check("early_claim_is_initial", || {
        let w = World::new(Mode::External);
        w.seed(1, 1);
        w.resync();
        let a = spawn(&w, |w| {
            while let Ok(claim) = w.fifo.pop_blocking() {
                let replaced = claim.deltas().iter().any(|delta| delta.object().is_some_and(|o| o.version == 7));
                assert!(claim.is_initial() || !replaced, "a claim with a delta of the first replace is initial");
                w.apply(&claim);
            }
        });
        w.replace(&[(1, 7)]);
        w.fifo.close();
        a.join().unwrap();
        assert!(w.fifo.has_synced());
        w.assert_clean();
    });
}

/// **A waiter wakes, and sees what was applied.** Thread A consumes, thread B waits for the sync, main replaces.
///
/// Bound 2: 1,131 executions, 0.3 s.
#[test]
fn wait_synced_wakes() {
    check("wait_synced_wakes", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, |w| {
            let claim = w.fifo.pop_blocking().unwrap();
            w.apply(&claim);
        });
        let b = spawn(&w, |w| {
            assert!(w.fifo.wait_synced_blocking());
            assert_eq!(w.known(1), Some(1), "synced before the last release");
        });
        w.replace(&[(1, 1)]);
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **The same for a task, woken by an add** (which completes an empty initial batch).
///
/// Bound 2: 37 executions.
#[test]
fn wait_synced_wakes_async() {
    check("wait_synced_wakes_async", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| assert!(block_on(w.fifo.wait_synced())));
        w.add(1, 1);
        a.join().unwrap();
        w.consume_queued();
        w.assert_clean();
    });
}

/// **Close wakes a waiter for the sync.** Thread A waits, main closes an unpopulated queue.
///
/// Bound 2: 22 executions.
#[test]
fn close_wakes_wait_synced() {
    check("close_wakes_wait_synced", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| assert!(!w.fifo.wait_synced_blocking()));
        w.fifo.close();
        a.join().unwrap();
    });
}

//! `close_and_drain` (E6): returns when nothing is queued and nothing is claimed, and always returns.

use std::num::NonZeroU32;

use loom_tests::*;

/// **It waits for the claims.**
///
/// Thread A consumes and works on what it claimed, main adds key 1 and drains. When main returns, A's work on the key
/// must be visible: the store is relaxed, so the drain itself has to order it.
///
/// Bound 2: 214 executions.
#[test]
fn drain_waits_for_claim() {
    check("drain_waits_for_claim", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, World::consume);
        w.add(1, 1);
        w.fifo.close_and_drain_blocking();
        assert_eq!(w.known(1), Some(1), "drained before the last release");
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **It waits for a key that is dirty in a claim.** Thread A owns key 1, which has a newer delta, and consumes on;
/// main drains.
///
/// Bound 2: 114 executions.
#[test]
fn drain_waits_for_dirty() {
    check("drain_waits_for_dirty", || {
        let w = World::new(Mode::External);
        w.add(1, 1);
        let claim = w.fifo.try_pop().unwrap().into_owned(&w.fifo);
        w.update(1, 2);
        let a = spawn(&w, move |w| {
            drop(claim);
            w.consume();
        });
        w.fifo.close_and_drain_blocking();
        assert_eq!(w.known(1), Some(2), "drained before the last release");
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **It waits for two consumers, in two shards.** Main adds keys 1 and 2; A and B each work on what they get.
///
/// Bound 2: 2,248 executions, 0.5 s.
#[test]
fn drain_two_consumers() {
    check("drain_two_consumers", || {
        let w = World::new(Mode::External);
        w.add(1, 1);
        w.add(2, 1);
        let consumers: Vec<_> = (0..2).map(|_| spawn(&w, World::consume)).collect();
        w.fifo.close_and_drain_blocking();
        assert_eq!((w.known(1), w.known(2)), (Some(1), Some(1)), "drained before the last release");
        for consumer in consumers {
            consumer.join().unwrap();
        }
        w.assert_clean();
    });
}

/// **The same for a task.**
///
/// Bound 2: 296 executions.
#[test]
fn drain_async() {
    check("drain_async", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, World::consume);
        w.add(1, 1);
        block_on(w.fifo.close_and_drain());
        assert_eq!(w.known(1), Some(1), "drained before the last release");
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **It returns though a promoted key's old ticket is still in the background lane.**
///
/// A Replace queues key 1 in the background, an update promotes it: one dead ticket. Thread A consumes to the end,
/// main drains. The release may come before the dead ticket is buried; the burial must wake the drain as well.
///
/// Bound 2: 180 executions, 0.1 s.
#[test]
fn drain_buries_dead_ticket() {
    check("drain_buries_dead_ticket", || {
        let w = World::with(Mode::External, |b| b.background_share(NonZeroU32::new(2).unwrap()));
        // Turn 0 serves the background; let it pass, so that the front is asked first.
        assert!(w.fifo.try_pop().is_err());
        w.replace(&[(1, 1)]);
        w.update(1, 2);
        let a = spawn(&w, World::consume);
        w.fifo.close_and_drain_blocking();
        assert_eq!(w.known(1), Some(2), "drained before the last release");
        a.join().unwrap();
        w.assert_clean();
    });
}

//! Two lanes: a key in the background lane that a fresh event promotes is handed out once, in front.

use std::num::NonZeroU32;
use std::sync::Arc;

use loom_tests::*;

fn two_lanes(mode: Mode) -> Arc<World> {
    let w = World::with(mode, |builder| builder.background_share(NonZeroU32::new(8).unwrap()));
    // The first turn of eight serves the background; the model wants the others.
    assert!(w.fifo.try_pop().is_err());
    w
}

/// **A promotion against the claim of the old ticket.** Key 1 waits in the background. Thread A updates it, thread C
/// pops. Allowed: C takes the old ticket and the update comes later, or the new ticket carries both; each delta once.
///
/// Bound 2: 10 executions.
#[test]
fn promotion_against_claim() {
    check("promotion_against_claim", || {
        let w = two_lanes(Mode::Nowhere);
        w.replace(&[(1, 1)]);
        let got = Log::default();
        let theirs = got.clone();
        let c = spawn(&w, move |w| {
            if let Ok(claim) = w.fifo.try_pop() {
                theirs.extend(versions(&claim));
            }
        });
        w.update(1, 2);
        c.join().unwrap();
        while let Ok(claim) = w.fifo.try_pop() {
            got.extend(versions(&claim));
        }
        assert_eq!(got.take(), [1, 2], "lost, doubled or out of order");
        assert_eq!(w.fifo.len(), 0, "a dead ticket is counted");
        w.assert_clean();
    });
}

/// **Two promotions of one key, and a consumer.** Threads A and B update key 1, which waits in the background, main
/// takes one claim and then the rest. One of them promotes.
///
/// Bound 2: 70 executions.
#[test]
fn two_promotions() {
    check("two_promotions", || {
        let w = two_lanes(Mode::Nowhere);
        w.replace(&[(1, 1), (2, 1)]);
        let a = spawn(&w, |w| w.update(1, 2));
        let b = spawn(&w, |w| w.update(1, 3));
        let first = w.fifo.pop_blocking().unwrap();
        let mut got = versions(&first);
        drop(first);
        a.join().unwrap();
        b.join().unwrap();
        while let Ok(claim) = w.fifo.try_pop() {
            got.extend(versions(&claim));
        }
        got.sort_unstable();
        assert_eq!(got, [1, 1, 2, 3], "lost or doubled");
        assert_eq!(w.fifo.len(), 0, "a dead ticket is counted");
        w.assert_clean();
    });
}

/// **A fresh event does not wait behind the background.** A Replace queues keys 1 and 2, thread A updates key 2 and
/// thread B adds key 3; then main pops. Allowed: 2 and 3 in either order, then 1.
///
/// Bound 2: 16 executions.
#[test]
fn fresh_events_come_first() {
    check("fresh_events_come_first", || {
        let w = two_lanes(Mode::Nowhere);
        w.replace(&[(1, 1), (2, 1)]);
        let a = spawn(&w, |w| w.update(2, 2));
        let b = spawn(&w, |w| w.add(3, 1));
        a.join().unwrap();
        b.join().unwrap();
        let mut order: Vec<u32> = std::iter::from_fn(|| w.fifo.try_pop().ok().map(|claim| *claim.key())).collect();
        order[..2].sort_unstable();
        assert_eq!(order, [2, 3, 1], "a fresh event waits behind the background");
        w.assert_clean();
    });
}

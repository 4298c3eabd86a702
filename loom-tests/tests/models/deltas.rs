//! Producers against a consumer: no delta is lost or comes twice (C-1), a key has one ticket (I1).

use delta_fifo::TryPopError;
use loom_tests::*;

/// **No delta is lost, none comes twice, a producer's own order is kept (C-1, I4).**
///
/// Thread A adds 1 and updates it to 2, thread B updates the same key to 100, main consumes until it has three
/// deltas. Allowed: B's delta anywhere, A's two in order. Two producers and one key are the smallest that can join,
/// make and requeue one slot; two deltas of A show its order.
///
/// Bound 2: 1,120 executions, 0.3 s.
#[test]
fn no_lost_delta() {
    check("no_lost_delta", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| {
            w.add(1, 1);
            w.update(1, 2);
        });
        let b = spawn(&w, |w| w.update(1, 100));
        let mut got = Vec::new();
        while got.len() < 3 {
            got.extend(versions(&w.fifo.pop_blocking().unwrap()));
        }
        a.join().unwrap();
        b.join().unwrap();
        let own: Vec<u32> = got.iter().copied().filter(|&version| version < 100).collect();
        assert_eq!(own, [1, 2], "lost, doubled or out of order");
        assert_eq!(got.len(), 3, "lost or doubled");
        w.assert_clean();
    });
}

/// **The same across the border of two shards.**
///
/// Thread A adds key 1 and key 2, thread B updates key 2, main consumes. Allowed: key 2's deltas in either order,
/// together or apart. Two keys, because one shard's guard must not be what keeps the order queue right.
///
/// Bound 2: 2,298 executions, 0.6 s.
#[test]
fn no_lost_delta_two_keys() {
    check("no_lost_delta_two_keys", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| {
            w.add(1, 1);
            w.add(2, 2);
        });
        let b = spawn(&w, |w| w.update(2, 3));
        let mut got = Vec::new();
        while got.len() < 3 {
            let claim = w.fifo.pop_blocking().unwrap();
            got.extend(versions(&claim).into_iter().map(|version| (*claim.key(), version)));
        }
        a.join().unwrap();
        b.join().unwrap();
        got.sort_unstable();
        assert_eq!(got, [(1, 1), (2, 2), (2, 3)]);
        w.assert_clean();
    });
}

/// **One ticket per queued key (I1).**
///
/// Threads A and B each update key 1; main looks when both are done. Allowed: one claim with both deltas. The
/// smallest race of two producers for a slot that is not there.
///
/// Bound 2: 25 executions.
#[test]
fn one_ticket_per_key() {
    check("one_ticket_per_key", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| w.update(1, 1));
        let b = spawn(&w, |w| w.update(1, 2));
        a.join().unwrap();
        b.join().unwrap();
        assert_eq!(w.fifo.len(), 1, "one ticket per key");
        let mut got = versions(&w.fifo.try_pop().unwrap());
        got.sort_unstable();
        assert_eq!(got, [1, 2], "lost or doubled");
        assert_eq!(w.fifo.try_pop().map(drop), Err(TryPopError::Empty));
        w.assert_clean();
    });
}

/// **A call that has returned is seen by the caller's own pop**, also where its delta joined the slot of another
/// producer: the ticket is out before the guard is released.
///
/// Thread A adds key 1, main updates it and then looks without waiting. Allowed: main's delta, with or without A's.
/// Never nothing.
///
/// Bound 2: 40 executions.
#[test]
fn own_push_is_found() {
    check("own_push_is_found", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| w.add(1, 1));
        w.update(1, 2);
        let claim = w.fifo.try_pop().expect("a push that has returned is not found");
        assert!(versions(&claim).contains(&2));
        drop(claim);
        a.join().unwrap();
        w.consume_queued();
        w.assert_clean();
    });
}

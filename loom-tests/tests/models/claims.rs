//! A claim is exclusive (I2), what arrives meanwhile comes after it, and a requeue keeps the order (I4).

use loom_tests::*;

/// **One owner at a time (C-1, I2), and the deltas of a key in order over all owners.**
///
/// Threads A and B consume, main reports three versions of key 1 and closes. What the owner touches is relaxed, so
/// exclusion must also order it: each hold sees the one before. Three deltas, because two can always be told apart by
/// the first claim.
///
/// Bound 2: 1,987 executions, 0.5 s.
#[test]
fn exclusive_and_ordered() {
    check("exclusive_and_ordered", || {
        let w = World::new(Mode::Nowhere);
        let owned = std::sync::Arc::new(Owned::default());
        let seen = Log::default();
        let holds = Log::default();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let (owned, seen, holds) = (owned.clone(), seen.clone(), holds.clone());
                spawn(&w, move |w| {
                    while let Ok(claim) = w.fifo.pop_blocking() {
                        owned.hold(|| seen.extend(versions(&claim)));
                        holds.push(());
                    }
                })
            })
            .collect();
        w.add(1, 1);
        w.update(1, 2);
        w.update(1, 3);
        w.fifo.close();
        for consumer in consumers {
            consumer.join().unwrap();
        }
        assert_eq!(seen.take(), [1, 2, 3], "lost, doubled or out of order");
        assert_eq!(owned.holds() as usize, holds.len(), "an owner did not see the one before");
        w.assert_clean();
    });
}

/// **A delta that arrives during a claim comes out after it.**
///
/// Main holds key 1; thread A updates it, thread B waits for a claim. Allowed: B gets the update, and only after main
/// has let go. Main's hold is relaxed, so B must see it by the queue alone.
///
/// Bound 2: 45 executions.
#[test]
fn dirty_claim_comes_after() {
    check("dirty_claim_comes_after", || {
        let w = World::new(Mode::Nowhere);
        w.add(1, 1);
        let owned = std::sync::Arc::new(Owned::default());
        let claim = w.fifo.try_pop().unwrap();
        let a = spawn(&w, |w| w.update(1, 2));
        let theirs = owned.clone();
        let b = spawn(&w, move |w| {
            let claim = w.fifo.pop_blocking().unwrap();
            assert_eq!(theirs.holds(), 1, "a claim came before the release of the one before");
            theirs.hold(|| assert_eq!(versions(&claim), [2]));
        });
        owned.hold(|| ());
        drop(claim);
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **A requeue puts its deltas in front of newer ones, and loses none (I4).**
///
/// Main holds version 1 of key 1 and requeues it; thread A updates to 2 and 3 meanwhile, thread B consumes until it
/// has seen three. Allowed: 1, 2, 3 and nothing else.
///
/// Bound 2: 977 executions, 0.3 s.
#[test]
fn requeue_keeps_order() {
    check("requeue_keeps_order", || {
        let w = World::new(Mode::Nowhere);
        w.add(1, 1);
        let claim = w.fifo.try_pop().unwrap();
        let a = spawn(&w, |w| {
            w.update(1, 2);
            w.update(1, 3);
        });
        let b = spawn(&w, |w| {
            let mut got = Vec::new();
            while let Ok(claim) = w.fifo.pop_blocking() {
                got.extend(versions(&claim));
            }
            assert_eq!(got, [1, 2, 3], "lost, doubled or out of order");
        });
        claim.requeue();
        a.join().unwrap();
        w.fifo.close();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **A requeue wakes a consumer.**
///
/// Main holds key 1, thread A sleeps (or is about to); main requeues and takes nothing itself. The claim is one that
/// requeues on drop: the way of a cancelled handler, and of a panic.
///
/// Bound 2: 7 executions.
#[test]
fn requeue_wakes() {
    check("requeue_wakes", || {
        let w = World::new(Mode::Nowhere);
        w.add(1, 1);
        let mut claim = w.fifo.try_pop().unwrap();
        let a = spawn(&w, |w| assert_eq!(versions(&w.fifo.pop_blocking().unwrap()), [1]));
        claim.requeue_on_drop(true);
        drop(claim);
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **Two owners who requeue each other's key lose nothing.**
///
/// Threads A and B each pop once and requeue, main reports two versions and then consumes what is left. Allowed:
/// versions 1 and 2 in order at the end.
///
/// Bound 2: 82 executions.
#[test]
fn two_requeues() {
    check("two_requeues", || {
        let w = World::new(Mode::Nowhere);
        let workers: Vec<_> = (0..2)
            .map(|_| {
                spawn(&w, |w| {
                    if let Ok(claim) = w.fifo.try_pop() {
                        claim.requeue();
                    }
                })
            })
            .collect();
        w.add(1, 1);
        w.update(1, 2);
        for worker in workers {
            worker.join().unwrap();
        }
        let claim = w.fifo.try_pop().expect("a requeued key is queued");
        assert_eq!(versions(&claim), [1, 2], "lost, doubled or out of order");
        drop(claim);
        w.assert_clean();
    });
}

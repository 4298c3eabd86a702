//! Close (E2): everybody wakes, and what was reported before comes out first.

use loom_tests::*;

/// **Close wakes every sleeper.** Threads A (blocking) and B (async) wait, main closes. Both get the end.
///
/// Bound 2: 500 executions, 0.1 s.
#[test]
fn close_wakes_all() {
    check("close_wakes_all", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| assert!(w.fifo.pop_blocking().is_err()));
        let b = spawn(&w, |w| assert!(block_on(w.fifo.pop()).is_err()));
        w.fifo.close();
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **What was reported before the close comes out, then the end.**
///
/// Threads A and B consume, main adds keys 1 and 2 and closes. Allowed: any split of the work; at the end all is known
/// and nothing is queued.
///
/// Bound 2: 2,252 executions, 0.7 s.
#[test]
fn close_delivers() {
    check("close_delivers", || {
        let w = World::new(Mode::External);
        let consumers: Vec<_> = (0..2).map(|_| spawn(&w, World::consume)).collect();
        w.add(1, 1);
        w.add(2, 1);
        w.fifo.close();
        for consumer in consumers {
            consumer.join().unwrap();
        }
        assert_eq!((w.known(1), w.known(2)), (Some(1), Some(1)), "stranded");
        w.assert_clean();
    });
}

/// **The smallest form:** thread A consumes to the end, main adds and closes. In the weak build an empty answer of
/// the queue orders nothing, so only `closed` itself carries the add to A.
///
/// Bound 2: 84 executions.
#[test]
fn close_delivers_one() {
    check("close_delivers_one", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, World::consume);
        w.add(1, 1);
        w.fifo.close();
        a.join().unwrap();
        assert_eq!(w.known(1), Some(1), "stranded");
        w.assert_clean();
    });
}

/// **… also a delta that joined the slot of another producer, whose call has not returned yet.** Thread A adds key 1,
/// main updates it, closes and consumes to the end. Main's update must come out.
///
/// Bound 2: 58 executions.
#[test]
fn close_delivers_joined() {
    check("close_delivers_joined", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| w.add(1, 1));
        w.update(1, 2);
        w.fifo.close();
        let mut got = Vec::new();
        while let Ok(claim) = w.fifo.pop_blocking() {
            got.extend(versions(&claim));
        }
        assert!(got.contains(&2), "an update that returned before the close is stranded");
        a.join().unwrap();
        w.consume();
        w.assert_clean();
    });
}

/// **… and a delta that made a claimed key dirty.** Thread A holds key 1, releases it and consumes to the end, main
/// updates the key, closes and consumes to the end. Main may leave early; A, the owner, finds the rest.
///
/// Bound 2: 61 executions.
#[test]
fn close_delivers_dirty() {
    check("close_delivers_dirty", || {
        let w = World::new(Mode::External);
        w.add(1, 1);
        let claim = w.fifo.try_pop().unwrap().into_owned(&w.fifo);
        let a = spawn(&w, move |w| {
            drop(claim);
            w.consume();
        });
        w.update(1, 2);
        w.fifo.close();
        w.consume();
        a.join().unwrap();
        assert_eq!(w.known(1), Some(2), "stranded");
        w.assert_clean();
    });
}

/// **A producer after the close is served (A11.2).** Thread A adds after main's close, and consumes; main consumes
/// too. Whoever gets it: it comes out.
///
/// Bound 2: 37 executions.
#[test]
fn closed_producer_is_served() {
    check("closed_producer_is_served", || {
        let w = World::new(Mode::External);
        let a = spawn(&w, |w| {
            w.add(1, 1);
            w.consume();
        });
        w.fifo.close();
        w.consume();
        a.join().unwrap();
        assert_eq!(w.known(1), Some(1), "stranded");
        w.assert_clean();
    });
}

//! Resync never goes back in time (C-3), gives a busy key nothing and an idle one exactly one Sync, and its
//! reservation is in nobody's way.
//!
//! `World::apply` asserts in every model that a Sync carries exactly the known object.

use delta_fifo::Delta;
use loom_tests::*;

fn never_older(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        let consumer = spawn(&w, World::consume);
        let a = spawn(&w, World::resync);
        w.update(1, 2);
        a.join().unwrap();
        w.fifo.close();
        consumer.join().unwrap();
        assert_eq!(w.known(1), Some(2), "the known object went back");
        w.assert_clean();
    });
}

/// **Resync against an update.** Key 1 is known in version 1. Thread A resyncs, main updates to 2, thread C consumes.
/// Allowed: a Sync of 1 before the update, a Sync of 2 after it, or none.
///
/// Bound 2: 1,937 executions, 0.5 s.
#[test]
fn resync_never_older() {
    never_older("resync_never_older", Mode::External);
}

/// **The same where known objects are in the slots.**
///
/// Bound 2: 1,026 executions, 0.2 s.
#[test]
fn resync_never_older_embedded() {
    never_older("resync_never_older_embedded", Mode::Embedded);
}

fn against_delete(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        let consumer = spawn(&w, World::consume);
        let a = spawn(&w, World::resync);
        w.delete(1);
        a.join().unwrap();
        w.fifo.close();
        consumer.join().unwrap();
        assert_eq!(w.known(1), None, "resurrected");
        w.assert_clean();
        w.add(1, 9);
        let claim = w.fifo.try_pop().expect("the key is stuck");
        assert_eq!(versions(&claim), [9]);
    });
}

/// **Resync against a delete.** Thread A resyncs, main deletes key 1, thread C consumes. Allowed: a Sync before the
/// deletion, or none. Afterwards the key is gone, no reservation is left, and it can come back.
///
/// Bound 2: 1,199 executions, 0.4 s.
#[test]
fn resync_against_delete() {
    against_delete("resync_against_delete", Mode::External);
}

/// **The same where known objects are in the slots.**
///
/// Bound 2: 498 executions, 0.1 s.
#[test]
fn resync_against_delete_embedded() {
    against_delete("resync_against_delete_embedded", Mode::Embedded);
}

fn skips_busy(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        w.seed(2, 1);
        w.update(1, 2);
        let claim = w.fifo.try_pop().unwrap();
        let a = spawn(&w, World::resync);
        w.resync();
        a.join().unwrap();
        w.apply(&claim);
        drop(claim);
        let claim = w.fifo.try_pop().unwrap();
        assert_eq!((*claim.key(), claim.deltas().as_slice()), (2, &[Delta::Sync(obj(2, 1))][..]), "one Sync");
        drop(claim);
        assert!(w.fifo.try_pop().is_err(), "a busy key got a Sync");
        w.assert_clean();
    });
}

/// **Two Resyncs: a busy key gets nothing, an idle one exactly one Sync.** Key 1 is claimed, key 2 idle. Threads A and
/// main resync. Allowed: one Sync of key 2; where one Resync takes over the other's reservation, the other gives up.
///
/// Bound 2: 20 executions.
#[test]
fn two_resyncs() {
    skips_busy("two_resyncs", Mode::External);
}

/// **The same where known objects are in the slots.**
///
/// Bound 2: 8 executions.
#[test]
fn two_resyncs_embedded() {
    skips_busy("two_resyncs_embedded", Mode::Embedded);
}

/// **A producer takes a reservation over.** Thread A resyncs key 1, main adds to it and pops at once. The add has
/// returned, so main finds a ticket, whether A holds the key reserved or not.
///
/// Bound 2: 24 executions.
#[test]
fn producer_takes_reservation_over() {
    check("producer_takes_reservation_over", || {
        let w = World::new(Mode::External);
        w.seed(1, 1);
        let a = spawn(&w, World::resync);
        w.update(1, 2);
        let claim = w.fifo.try_pop().expect("an update that has returned is not found");
        w.apply(&claim);
        drop(claim);
        a.join().unwrap();
        w.consume_queued();
        assert_eq!(w.known(1), Some(2));
        w.assert_clean();
    });
}

/// **Two reservations of one key are told apart.** Main resyncs key 1 and is late; thread A updates it, consumes the
/// update and resyncs as well. Main finds a reservation that is not its own, and must not commit what it read.
///
/// Bound 2: 37 executions.
#[test]
fn reservations_are_told_apart() {
    check("reservations_are_told_apart", || {
        let w = World::new(Mode::External);
        w.seed(1, 1);
        let a = spawn(&w, |w| {
            w.update(1, 2);
            w.consume_queued();
            w.resync();
        });
        w.resync();
        a.join().unwrap();
        w.consume_queued();
        assert_eq!(w.known(1), Some(2));
        w.assert_clean();
    });
}

fn against_replace(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        w.seed(2, 1);
        let consumer = spawn(&w, World::consume);
        let a = spawn(&w, World::resync);
        w.replace(&[(2, 5)]);
        a.join().unwrap();
        w.fifo.close();
        consumer.join().unwrap();
        assert_eq!((w.known(1), w.known(2)), (None, Some(5)));
        w.assert_clean();
    });
}

/// **Resync against Replace.** Keys 1 and 2 are known, the list has 2. Thread A resyncs, main replaces, thread C
/// consumes. Allowed: at the end exactly the list.
///
/// Bound 2: 12,198 executions, 3.6 s.
#[test]
fn resync_against_replace() {
    against_replace("resync_against_replace", Mode::External);
}

/// **The same where known objects are in the slots.**
///
/// Bound 2: 4,071 executions, 1.3 s.
#[test]
fn resync_against_replace_embedded() {
    against_replace("resync_against_replace_embedded", Mode::Embedded);
}

//! Replace finds every key that exists (C-2): one that moves slot → claimed → known → no slot is never missed, and
//! its tombstone carries the newest object.

use delta_fifo::{Deleted, Delta};
use loom_tests::*;

fn moving_key(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.add(1, 1);
        let a = spawn(&w, World::consume);
        w.replace(&[]);
        w.fifo.close();
        a.join().unwrap();
        assert_eq!(w.known(1), None, "replace missed a key");
        w.assert_clean();
    });
}

/// **A key that moves while the scan runs is found.** Thread A consumes key 1, main replaces by an empty list.
/// Allowed: a tombstone for key 1, wherever the scan met it. One moving key is enough: the scan meets it in each of
/// its states.
///
/// Bound 2: 164 executions.
#[test]
fn replace_finds_moving_key() {
    moving_key("replace_finds_moving_key", Mode::External);
}

/// **The same where known objects are in the slots.**
///
/// Bound 2: 139 executions.
#[test]
fn replace_finds_moving_key_embedded() {
    moving_key("replace_finds_moving_key_embedded", Mode::Embedded);
}

/// **Two moving keys in two shards, one of them listed, and an old key that is only known.** Threads A and B consume,
/// main replaces. Allowed: the list, and nothing else.
///
/// Bound 2: 8,021 executions, 1.7 s.
#[test]
fn replace_two_shards() {
    check("replace_two_shards", || {
        let w = World::new(Mode::External);
        w.seed(3, 1);
        w.add(1, 1);
        w.add(2, 1);
        let consumers: Vec<_> = (0..2).map(|_| spawn(&w, World::consume)).collect();
        w.replace(&[(2, 5)]);
        w.fifo.close();
        for consumer in consumers {
            consumer.join().unwrap();
        }
        assert_eq!((w.known(1), w.known(2), w.known(3)), (None, Some(5), None), "replace missed a key");
        w.assert_clean();
    });
}

fn tombstone_is_newest(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        w.update(1, 2);
        let a = spawn(&w, |w| {
            let mut tombstones = Vec::new();
            while let Ok(claim) = w.fifo.pop_blocking() {
                for delta in claim.deltas() {
                    if let Delta::Deleted(Deleted::FinalStateUnknown(tombstone)) = delta {
                        tombstones.push(tombstone.object.as_ref().map(|object| object.version));
                    }
                }
                w.apply(&claim);
            }
            assert_eq!(tombstones, [Some(2)], "one tombstone, with the newest object");
        });
        w.replace(&[]);
        w.fifo.close();
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **A tombstone carries the newest object the queue has seen (C-2).** Key 1 is known in version 1,
/// and 2 is queued; thread A consumes, main replaces by an empty list. Allowed: exactly one tombstone, of version 2,
/// also where the claim is not applied yet.
///
/// Bound 2: 164 executions.
#[test]
fn tombstone_carries_newest() {
    tombstone_is_newest("tombstone_carries_newest", Mode::External);
}

/// **The same where known objects are in the slots.**
///
/// Bound 2: 139 executions.
#[test]
fn tombstone_carries_newest_embedded() {
    tombstone_is_newest("tombstone_carries_newest_embedded", Mode::Embedded);
}

fn claimed_deletion_is_gone(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        w.delete(1);
        let a = spawn(&w, |w| {
            let mut deletions = 0;
            while let Ok(claim) = w.fifo.pop_blocking() {
                deletions += claim.deltas().iter().filter(|delta| delta.is_deleted()).count();
                w.apply(&claim);
            }
            assert_eq!(deletions, 1, "a key that was deleted already is deleted once more");
        });
        w.replace(&[]);
        w.fifo.close();
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **A claim whose newest delta is a deletion counts as gone.** Thread A consumes the deletion of key 1, main replaces
/// by an empty list. Allowed: one deletion, no tombstone.
///
/// Bound 2: 103 executions.
#[test]
fn claimed_deletion_counts_as_gone() {
    claimed_deletion_is_gone("claimed_deletion_counts_as_gone", Mode::External);
}

/// **The same where known objects are in the slots.**
///
/// Bound 2: 92 executions.
#[test]
fn claimed_deletion_counts_as_gone_embedded() {
    claimed_deletion_is_gone("claimed_deletion_counts_as_gone_embedded", Mode::Embedded);
}

/// **A delete of a claimed key is queued: in flight counts as existing.** Without known objects only the claim knows
/// of key 1. Thread A releases the claim, main deletes. Allowed: the deletion comes out, or it found no slot because
/// the release came first.
///
/// Bound 2: 46 executions.
#[test]
fn delete_of_claimed_key() {
    check("delete_of_claimed_key", || {
        let w = World::new(Mode::External);
        w.add(1, 1);
        let a = spawn(&w, World::consume);
        w.delete(1);
        w.fifo.close();
        a.join().unwrap();
        assert_eq!(w.known(1), None, "a delete that came after the add is lost");
        w.assert_clean();
    });
}

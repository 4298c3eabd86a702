//! Rows (`src/sync/rows.rs`): a removal may move other keys' rows, under the feet of a walk, of a ticket, of a claim,
//! and of a Replace that has marked them. In these builds every removal does. Keys 0, 2 and 3 share a shard.

use std::sync::Arc;

use delta_fifo::{Deleted, Delta};
use loom_tests::*;

fn tombstones(claim: &FifoClaim<'_>) -> usize {
    let is_tombstone = |delta: &&Delta<_, _>| matches!(delta, Delta::Deleted(Deleted::FinalStateUnknown(_)));
    claim.deltas().iter().filter(is_tombstone).count()
}

/// Key 2 is known in the row behind key 0, whose deletion is claimed. While main replaces by the list, a thread releases
/// the claim, which moves key 2 to the first row.
fn replace_while_row_moves(list: &[(u32, u32)]) -> Arc<World> {
    let w = World::new(Mode::Embedded);
    w.seed(0, 1);
    w.seed(2, 1);
    w.delete(0);
    let claim = w.fifo.try_pop().unwrap().into_owned(&w.fifo);
    let a = spawn(&w, move |_| drop(claim));
    w.replace(list);
    a.join().unwrap();
    w
}

/// **A walk finds a row that moves (Replace, known objects in the slots).** The deletion of key 0 is claimed, key 2 is
/// known in the row behind it. Thread A releases the claim, which removes row 0 and moves key 2 there; main
/// replaces by an empty list, then consumes. Allowed: exactly one tombstone for key 2.
///
/// Two keys are the fewest of which one moves.
///
/// Bound 2: 27 executions.
#[test]
fn walk_finds_moved_row() {
    check("walk_finds_moved_row", || {
        let w = replace_while_row_moves(&[]);
        let mut deleted = 0;
        while let Ok(claim) = w.fifo.try_pop() {
            deleted += tombstones(&claim);
        }
        assert_eq!(deleted, 1, "the walk missed a key that moved");
        w.assert_clean();
    });
}

/// **A walk that sees a row twice makes one tombstone (Replace, known objects in the user's store).** Key 0 is claimed,
/// key 2 is claimed behind it. Thread A releases key 0, which moves key 2 from where the walk has been to where it
/// has not; thread B releases key 2 and consumes; main replaces by an empty list. Allowed: one tombstone for each
/// key, wherever it was met.
///
/// Bound 2: 1,559 executions.
#[test]
fn walk_sees_moved_row_twice() {
    check("walk_sees_moved_row_twice", || {
        let w = World::new(Mode::External);
        w.add(0, 1);
        w.add(2, 1);
        let [first, second] = [(); 2].map(|()| w.fifo.try_pop().unwrap().into_owned(&w.fifo));
        let deleted = Log::default();
        let apply = |w: &World, claim: &FifoClaim<'_>, deleted: &Log<()>| {
            if *claim.key() == 2 {
                deleted.extend(std::iter::repeat_n((), tombstones(claim)));
            }
            w.apply(claim);
        };
        let a = spawn(&w, move |_| drop(first));
        let b = spawn(&w, {
            let deleted = deleted.clone();
            move |w| {
                w.apply(&second);
                drop(second);
                while let Ok(claim) = w.fifo.pop_blocking() {
                    apply(w, &claim, &deleted);
                }
            }
        });
        w.replace(&[]);
        w.fifo.close();
        a.join().unwrap();
        b.join().unwrap();
        // What A's release queued after B had left.
        while let Ok(claim) = w.fifo.try_pop() {
            apply(&w, &claim, &deleted);
        }
        assert_eq!(deleted.len(), 1, "a key that was seen twice is deleted twice");
        w.assert_clean();
    });
}

/// **A ticket finds its key although the row has moved.** Keys 0, 2 and 3 are queued in three rows. Threads A and B
/// consume; each release removes a row and moves those behind it. Allowed: every key once, with its own delta.
///
/// Three keys, so that a row that has moved leaves another key in its place.
///
/// Bound 2: 114 executions.
#[test]
fn ticket_finds_moved_row() {
    check("ticket_finds_moved_row", || {
        let w = World::new(Mode::Nowhere);
        [0, 2, 3].into_iter().for_each(|key| w.add(key, key + 1));
        let got = Log::default();
        let consumers = [(); 2].map(|()| {
            let got = got.clone();
            spawn(&w, move |w| {
                while let Ok(claim) = w.fifo.try_pop() {
                    got.extend(versions(&claim).into_iter().map(|version| (*claim.key(), version)));
                }
            })
        });
        consumers.into_iter().for_each(|consumer| consumer.join().unwrap());
        let mut got = got.take();
        got.sort_unstable();
        assert_eq!(got, [(0, 1), (2, 3), (3, 4)], "a ticket led to another key");
        w.assert_clean();
    });
}

/// **A row takes its mark along (Replace, known objects in the slots).** As in `walk_finds_moved_row`, but key 2 is in the
/// list, so Replace marks its row, which then may move. Allowed: key 2 is there in the list's version.
///
/// Bound 2: 30 executions.
#[test]
fn mark_moves_with_row() {
    check("mark_moves_with_row", || {
        let w = replace_while_row_moves(&[(2, 5)]);
        w.consume_queued();
        assert_eq!(w.known(2), Some(5), "a key of the list was deleted");
        w.assert_clean();
    });
}

/// **A Replace leaves no mark behind.** Main replaces by key 2, then by nothing, while thread A consumes. Allowed:
/// nothing is left.
///
/// Bound 2: 384 executions.
#[test]
fn marks_are_cleared() {
    check("marks_are_cleared", || {
        let w = World::new(Mode::Embedded);
        let a = spawn(&w, World::consume);
        w.replace(&[(2, 1)]);
        w.replace(&[]);
        w.fifo.close();
        a.join().unwrap();
        assert_eq!(w.known(2), None, "a key stayed that no list has");
        w.assert_clean();
    });
}

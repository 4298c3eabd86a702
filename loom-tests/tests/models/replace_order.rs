//! Replace is linearizable against the calls of other producers (C-4): the end is that of some
//! sequential order of the calls in which each producer's own order is kept, consistently across keys.
//!
//! In most models main replaces, thread A reports, thread C consumes: what is popped, applied and released
//! while the Replace runs has no slot any more when the Replace comes to its key. Key 1 and key 2 are in different
//! shards. The checker of the end state is `History`; it knows nothing of epochs.

use Op::{Delete, Put};
use loom_tests::*;

/// Replaces by `list` while each of `producers` makes its calls and one consumer runs.
fn against(
    name: &'static str,
    mode: Mode,
    known: &'static [(u32, u32)],
    list: &'static [(u32, u32)],
    producers: &'static [&'static [Op]],
) {
    check(name, move || {
        let w = World::new(mode);
        for &(key, version) in known {
            w.seed(key, version);
        }
        let history = History::new(&w);
        let consumer = spawn(&w, World::consume);
        let threads: Vec<_> = producers
            .iter()
            .map(|calls| {
                let history = history.clone();
                spawn(&w, move |w| {
                    for call in *calls {
                        history.run(w, call.clone());
                    }
                })
            })
            .collect();
        history.run(&w, Op::Replace(list.to_vec()));
        for thread in threads {
            thread.join().unwrap();
        }
        w.fifo.close();
        consumer.join().unwrap();
        history.assert_linearizable(&w);
        w.assert_clean();
    });
}

macro_rules! race {
    ($(#[$doc:meta])* $name:ident, $embedded:ident: $known:expr, $list:expr, $($calls:expr),+) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            against(stringify!($name), Mode::External, &$known, &$list, &[$(&$calls),+]);
        }

        /// The same with known objects in the slots.
        #[test]
        fn $embedded() {
            against(stringify!($embedded), Mode::Embedded, &$known, &$list, &[$(&$calls),+]);
        }
    };
}

race! {
    /// **A new key, then an old one.** Known: 1. The list is empty. A adds 2, then updates 1. Never: 2 survives as newer
    /// than the list while 1 is tombstoned as older.
    ///
    /// Bound 2: 7,114 executions, 1.9 s; embedded 4,915 executions, 1.1 s.
    new_then_old, new_then_old_embedded: [(1, 1)], [], [Put(2, 2), Put(1, 3)]
}

race! {
    /// **An old key, then a new one.** The same calls in the other order.
    ///
    /// Bound 2: 7,251 executions, 1.6 s; embedded 4,994 executions, 1.1 s.
    old_then_new, old_then_new_embedded: [(1, 1)], [], [Put(1, 2), Put(2, 3)]
}

race! {
    /// **A listed key updated, then deleted.** If the delete comes after the instant, the list must not revive the key,
    /// also where the deletion was applied and released before the Replace came to it.
    ///
    /// Bound 2: 4,160 executions, 0.8 s; embedded 2,950 executions, 0.6 s.
    update_then_delete, update_then_delete_embedded: [(1, 1)], [(1, 5)], [Put(1, 7), Delete(1)]
}

race! {
    /// **A delete that finds nothing.** Key 1 is listed and not known. A adds 2, then deletes 1. If 2 survives, the
    /// delete came after the list as well, and 1 must be gone.
    ///
    /// Bound 2: 7,112 executions, 2.1 s; embedded 6,893 executions, 1.8 s.
    delete_finds_nothing, delete_finds_nothing_embedded: [], [(1, 5)], [Put(2, 7), Delete(1)]
}

race! {
    /// **A delete, then an add of the same key.** The add must win over the list if it came after it.
    ///
    /// Bound 2: 4,188 executions, 1.0 s; embedded 2,950 executions, 1.1 s.
    delete_then_add, delete_then_add_embedded: [(1, 1)], [(1, 5)], [Delete(1), Put(1, 9)]
}

race! {
    /// **A delete of a known key, then an add of another.** The order across keys with a delete in front.
    ///
    /// Bound 2: 7,278 executions, 2.4 s; embedded 5,008 executions, 1.7 s.
    delete_old_then_new, delete_old_then_new_embedded: [(1, 1)], [(1, 5)], [Delete(1), Put(2, 9)]
}

race! {
    /// **Two deletes of one key**, the second of which finds the first in flight.
    ///
    /// Bound 2: 4,135 executions, 1.4 s; embedded 2,896 executions, 0.7 s.
    delete_twice, delete_twice_embedded: [(1, 1)], [(1, 5)], [Delete(1), Delete(1)]
}

fn two_producers_race(name: &'static str, mode: Mode) {
    check(name, move || {
        let w = World::new(mode);
        w.seed(1, 1);
        let history = History::new(&w);
        let (theirs, others) = (history.clone(), history.clone());
        let a = spawn(&w, move |w| theirs.run(w, Put(2, 2)));
        let b = spawn(&w, move |w| {
            others.run(w, Delete(2));
            others.run(w, Put(1, 3));
        });
        history.run(&w, Op::Replace(Vec::new()));
        a.join().unwrap();
        b.join().unwrap();
        w.consume_queued();
        history.assert_linearizable(&w);
        w.assert_clean();
    });
}

/// **Two producers.** Known: 1. The list is empty. Thread A adds 2; thread B deletes 2 and updates 1. If 1 survives and A
/// began after that, 2 must survive. Consumed at the end: a fourth thread would cost minutes, and the models above
/// have it.
///
/// Bound 2: 2,135 executions, 0.7 s.
#[test]
fn two_producers() {
    two_producers_race("two_producers", Mode::External);
}

/// The same with known objects in the slots.
///
/// Bound 2: 730 executions, 0.1 s.
#[test]
fn two_producers_embedded() {
    two_producers_race("two_producers_embedded", Mode::Embedded);
}

/// **Two Replaces run one after the other.** Thread A replaces by key 1, main by key 2, thread C consumes. Allowed:
/// one list or the other, never both or none.
///
/// Bound 2: 3,746 executions, 0.8 s.
#[test]
fn two_replaces() {
    check("two_replaces", || {
        let w = World::new(Mode::External);
        let history = History::new(&w);
        let consumer = spawn(&w, World::consume);
        let other = history.clone();
        let a = spawn(&w, move |w| other.run(w, Op::Replace(vec![(1, 1)])));
        history.run(&w, Op::Replace(vec![(2, 2)]));
        a.join().unwrap();
        w.fifo.close();
        consumer.join().unwrap();
        history.assert_linearizable(&w);
        w.assert_clean();
    });
}

/// **Two Replaces and an update.** As `two_replaces`, and thread B updates key 1 and then key 2.
///
/// Bound 2: 2,332 executions, 0.5 s.
#[test]
fn two_replaces_and_updates() {
    check("two_replaces_and_updates", || {
        let w = World::new(Mode::Embedded);
        let history = History::new(&w);
        let (others, updates) = (history.clone(), history.clone());
        let a = spawn(&w, move |w| others.run(w, Op::Replace(vec![(1, 1)])));
        let b = spawn(&w, move |w| {
            updates.run(w, Put(1, 3));
            updates.run(w, Put(2, 4));
        });
        history.run(&w, Op::Replace(vec![(2, 2)]));
        a.join().unwrap();
        b.join().unwrap();
        w.consume_queued();
        history.assert_linearizable(&w);
        w.assert_clean();
    });
}

//! The informer's hand-over between the store and the handlers: whenever a handler comes, each change is part of what
//! it is shown first or comes as an event, in order, and never both. Each handler checks every event against what it
//! knows.

use loom_tests::*;

/// **A late registration against a write.**
///
/// Key 1 is in the store and its update is queued. Thread A is a worker, main registers. Allowed: the handler is shown
/// version 1 and told of 2, or is shown 2 and told of nothing. One key and one write: there is one instant to miss.
///
/// Bound 2: 4 executions.
#[test]
fn late_registration() {
    check("late_registration", || {
        let i = Informer::new(2);
        i.put(1, 1);
        i.work_queued(0);
        i.put(1, 2);
        let a = spawn_in(&i, |i| i.work_queued(1));
        let listener = i.register();
        a.join().unwrap();
        i.assert_settled(&[(1, 2)], &[&listener]);
    });
}

/// **A late registration against two workers that write different keys.**
///
/// Keys 1 and 2, in two shards, are queued. Threads A and B are workers, main registers. Allowed: any split of the two
/// between what is shown and what is told, and both writes in the store.
///
/// Bound 2: 94 executions.
#[test]
fn late_registration_two_workers() {
    check("late_registration_two_workers", || {
        let i = Informer::new(2);
        i.put(1, 1);
        i.put(2, 1);
        let workers: Vec<_> = (0..2).map(|worker| spawn_in(&i, move |i| i.work_queued(worker))).collect();
        let listener = i.register();
        for worker in workers {
            worker.join().unwrap();
        }
        i.assert_settled(&[(1, 1), (2, 1)], &[&listener]);
    });
}

/// **A registration against a deletion.**
///
/// Key 1 is in the store and its deletion is queued; one handler is there. Thread A is a worker, main registers another
/// one. Allowed: it is shown the object and told of the deletion, or is shown nothing and told nothing. The first one is
/// told of the deletion.
///
/// Bound 2: 4 executions.
#[test]
fn registration_against_delete() {
    check("registration_against_delete", || {
        let i = Informer::new(2);
        i.put(1, 1);
        i.work_queued(0);
        let first = i.register();
        i.delete(1);
        let a = spawn_in(&i, |i| i.work_queued(1));
        let second = i.register();
        a.join().unwrap();
        i.assert_settled(&[], &[&first, &second]);
    });
}

/// **Two registrations against a write.** Thread A is a worker with one update, thread B and main each register. Allowed:
/// both handlers are in the list at the end, and each is as in `late_registration`.
///
/// Bound 2: 31 executions.
#[test]
fn two_registrations() {
    check("two_registrations", || {
        let i = Informer::new(1);
        i.put(1, 1);
        let a = spawn_in(&i, |i| i.work_queued(0));
        let b = spawn_in(&i, Informer::register);
        let mine = i.register();
        a.join().unwrap();
        let theirs = b.join().unwrap();
        assert_eq!(i.handlers(), 2, "a handler is lost");
        i.assert_settled(&[(1, 1)], &[&mine, &theirs]);
    });
}

/// **A removal against a write.**
///
/// Two handlers, an update is queued. Thread A is a worker, main removes the first handler. Allowed: A has taken the list
/// with both, or with one. In both cases nothing gets into the buffer of the first after its removal, and the second
/// misses nothing.
///
/// Bound 2: 5 executions.
#[test]
fn removal_against_write() {
    check("removal_against_write", || {
        let i = Informer::new(1);
        let (first, second) = (i.register(), i.register());
        i.put(1, 1);
        let a = spawn_in(&i, |i| i.work_queued(0));
        assert!(i.remove(&first));
        a.join().unwrap();
        assert_eq!(first.waiting(), 0, "it was told after its removal");
        assert!(!i.remove(&first), "it was removed twice");
        i.assert_settled(&[(1, 1)], &[&second]);
    });
}

/// **A removal against a registration.**
///
/// One handler, an update is queued. Thread A is a worker, thread B registers, main removes the first. Allowed: only B's
/// is in the list at the end, and it misses nothing.
///
/// Bound 2: 34 executions.
#[test]
fn removal_against_registration() {
    check("removal_against_registration", || {
        let i = Informer::new(1);
        let first = i.register();
        i.put(1, 1);
        let a = spawn_in(&i, |i| i.work_queued(0));
        let b = spawn_in(&i, Informer::register);
        assert!(i.remove(&first));
        a.join().unwrap();
        let second = b.join().unwrap();
        assert_eq!(i.handlers(), 1, "a handler is lost, or back");
        assert_eq!(first.waiting(), 0, "it was told after its removal");
        i.assert_settled(&[(1, 1)], &[&second]);
    });
}

/// **The events of a key in order, over two workers.**
///
/// A handler is there from the beginning. Threads A and B are workers, main queues two versions of key 1 between them.
/// Allowed: one claim with both, or two claims, of which the second is told after the first: a key is held until it is
/// told.
///
/// Bound 2: 46 executions.
#[test]
fn events_in_order() {
    check("events_in_order", || {
        let i = Informer::new(2);
        let listener = i.register();
        i.put(1, 1);
        let workers: Vec<_> = (0..2).map(|worker| spawn_in(&i, move |i| i.work_queued(worker))).collect();
        i.put(1, 2);
        for worker in workers {
            worker.join().unwrap();
        }
        // Both may have looked before the update was there.
        i.work_queued(0);
        i.assert_settled(&[(1, 2)], &[&listener]);
    });
}

/// **Synced means told.**
///
/// A handler is there from the beginning. Thread A is a worker, thread B replaces by two keys, main looks. If main reads
/// "synced", both are in the handler's buffer.
///
/// Bound 2: 2,479 executions, 0.6 s.
#[test]
fn synced_means_told() {
    check("synced_means_told", || {
        let i = Informer::new(1);
        let listener = i.register();
        let a = spawn_in(&i, |i| i.work(0, 2));
        let b = spawn_in(&i, |i| {
            i.fifo.replace(vec![obj(1, 1), obj(2, 1)]).unwrap();
            i.fifo.close();
        });
        if i.fifo.has_synced() {
            assert_eq!(listener.view(), [(1, 1), (2, 1)], "synced before it was told");
        }
        a.join().unwrap();
        b.join().unwrap();
        assert!(i.fifo.has_synced());
        i.assert_settled(&[(1, 1), (2, 1)], &[&listener]);
    });
}

//! The informer's barrier, on which `wait_for` stands: it does not end before everything that was queued before it
//! began is applied, and it ends. What was applied is noted relaxed, so the barrier itself has to order it.

use std::sync::Arc;

use delta_fifo::informer::barrier::Bracket;
use loom_tests::*;

/// Claims what is queued first, as worker 0 does, and leaves the bracket open.
fn claim_one(i: &Arc<Informer>) -> (FifoClaim<'static>, Bracket) {
    let (claim, bracket) = block_on(i.barrier.claim(0, async { i.fifo.try_pop() }));
    (claim.unwrap().into_owned(&i.fifo), bracket)
}

/// **One worker.**
///
/// Thread A is a worker that sleeps in between, main queues key 1 and waits for the barrier. Allowed: A claims before, during
/// or after any step of the barrier, and main sees what it applied.
///
/// Bound 2: 5,955 executions, 1.1 s.
#[test]
fn barrier_one_worker() {
    check("barrier_one_worker", || {
        let i = Informer::new(1);
        let a = spawn_in(&i, |i| i.work(0, 1));
        i.put(1, 1);
        assert!(i.is_reached());
        assert_eq!(i.applied(1), 1, "reached before it was applied");
        i.fifo.close();
        a.join().unwrap();
        i.assert_settled(&[(1, 1)], &[]);
    });
}

/// **Two workers, two keys in two shards.**
///
/// Keys 1 and 2 are queued. Threads A and B are workers, main waits for the barrier. The versions are applied in any order,
/// and both before main goes on.
///
/// Bound 2: 14,444 executions, 4.0 s.
#[test]
fn barrier_two_workers() {
    check("barrier_two_workers", || {
        let i = Informer::new(2);
        i.put(1, 1);
        i.put(2, 1);
        let workers: Vec<_> = (0..2).map(|worker| spawn_in(&i, move |i| i.work_one(worker))).collect();
        assert!(i.is_reached());
        assert_eq!((i.applied(1), i.applied(2)), (1, 1), "reached before it was applied");
        for worker in workers {
            worker.join().unwrap();
        }
        i.assert_settled(&[(1, 1), (2, 1)], &[]);
    });
}

/// **A change behind a claim.**
///
/// Key 1 is claimed in an open bracket, and its update waits behind the claim. Thread A closes the bracket, releases, and
/// works on; main waits for the barrier. The bracket says that it applied key 1: that was not the update. This found a
/// real fault: what such a bracket logged before the barrier's first list was counted.
///
/// Bound 2: 10,825 executions, 2.1 s.
#[test]
fn barrier_behind_a_claim() {
    check("barrier_behind_a_claim", || {
        let i = Informer::new(1);
        i.put(1, 1);
        let (claim, bracket) = claim_one(&i);
        i.put(1, 2);
        let a = spawn_in(&i, move |i| {
            i.barrier.close(bracket, [1].iter());
            drop(claim);
            i.work_queued(0);
        });
        assert!(i.is_reached());
        assert_eq!(i.applied(1), 2, "reached before it was applied");
        a.join().unwrap();
        i.assert_settled(&[(1, 2)], &[]);
    });
}

/// **A claim that is given back.**
///
/// Key 1 is claimed in an open bracket. Thread A requeues it and closes the bracket, as a compression that panics does, and
/// works on; main waits for the barrier. This found a real fault: the key was in neither list of the barrier.
///
/// Bound 2: 3,299 executions, 0.6 s.
#[test]
fn barrier_against_requeue() {
    check("barrier_against_requeue", || {
        let i = Informer::new(1);
        i.put(1, 1);
        let (claim, bracket) = claim_one(&i);
        let a = spawn_in(&i, move |i| {
            claim.requeue();
            i.barrier.give_back(bracket);
            i.work_one(0);
        });
        assert!(i.is_reached());
        assert_eq!(i.applied(1), 1, "reached before it was applied");
        i.fifo.close();
        a.join().unwrap();
        i.assert_settled(&[(1, 1)], &[]);
    });
}

/// **Other keys do not keep it.**
///
/// Key 1 is queued. Thread A is a worker, thread B queues key 2 and is another one, main waits for the barrier. Allowed:
/// key 2 is applied or not, key 1 is.
///
/// Bound 2: 14,182 executions, 3.3 s.
#[test]
fn barrier_against_later_changes() {
    check("barrier_against_later_changes", || {
        let i = Informer::new(2);
        i.put(1, 1);
        let a = spawn_in(&i, |i| i.work_one(0));
        let b = spawn_in(&i, |i| {
            i.put(2, 1);
            i.work_one(1);
        });
        assert!(i.is_reached());
        assert_eq!(i.applied(1), 1, "reached before it was applied");
        a.join().unwrap();
        b.join().unwrap();
        i.assert_settled(&[(1, 1), (2, 1)], &[]);
    });
}

/// **A change that cannot be applied.**
///
/// Version 1 of key 1 is refused, and queued. Thread A is a worker; main's barrier must say no. Then main queues a list that
/// says it again and thread B applies it; the barrier must say yes, with the list applied.
///
/// Bound 2: 3,129 executions, 0.8 s.
#[test]
fn barrier_against_failure() {
    check("barrier_against_failure", || {
        let i = Informer::that_refuses(Some(1), 1);
        i.put(1, 1);
        let a = spawn_in(&i, |i| i.work_one(0));
        assert!(!i.is_reached(), "reached, though it could not be applied");
        a.join().unwrap();
        let failures = i.barrier.list_begins();
        i.fifo.replace(vec![obj(1, 1)]).unwrap();
        i.barrier.list_queued(failures);
        let b = spawn_in(&i, |i| i.work_one(0));
        assert!(i.is_reached(), "a list makes up for what failed");
        assert_eq!(i.applied(1), 1, "reached before the list was applied");
        b.join().unwrap();
        i.assert_settled(&[(1, 1)], &[]);
    });
}

/// **A list that comes while the barrier is under way.**
///
/// Version 1 of key 1 is refused, and queued. Thread A is a worker, then hands over the list that makes up for it, then is
/// a worker again; main waits for the barrier. Allowed: no; or yes, and then the list is applied. This found a real fault:
/// the list forgave, though a barrier that began before it does not wait for it.
///
/// Bound 2: 1,758 executions, 0.3 s.
#[test]
fn barrier_against_list() {
    check("barrier_against_list", || {
        let i = Informer::that_refuses(Some(1), 1);
        i.put(1, 1);
        let a = spawn_in(&i, |i| {
            i.work_one(0);
            let failures = i.barrier.list_begins();
            i.fifo.replace(vec![obj(1, 2)]).unwrap();
            i.barrier.list_queued(failures);
            i.work_one(0);
        });
        if i.is_reached() {
            assert_eq!(i.applied(1), 2, "reached before the list was applied");
        }
        a.join().unwrap();
        i.assert_settled(&[(1, 2)], &[]);
    });
}

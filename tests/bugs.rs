//! Bugs that client-go has or had, each as a test: those that concern the queue. The comment of a test names the report
//! in kubernetes/kubernetes (k/k) or client-go and what went wrong there; `h01` and so on number them. Numbers that are
//! missing are bugs of stores, reflectors and handlers, and are tested where those are.
//!
//! Every test that needs no more than the shared operations runs on the engine and on the baseline.

mod support;

use std::future::Future;
use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use delta_fifo::{Compression, Deleted, Delta, DeltaFifo, Limits, TryPopError};

use support::{Claimed, Config, Form, Known, NO_KEY, Object, Outcome, Queue, Store, names, o};

/// Long enough for any machine; only a hang takes it.
const HANG: Duration = Duration::from_secs(60);

/// Pops a key, applies it to the store, releases it; what it carried.
fn process<Q: Queue>(fifo: &Q, store: &Store) -> Vec<String> {
    let claim = fifo.pop_now().expect("a key is queued");
    store.apply(claim.key(), claim.deltas());
    let deltas = names(claim.deltas());
    claim.finish();
    deltas
}

on_both! {
    /// k/k#115658: created and deleted while the watch was down, its Added still queued: it stayed for ever.
    fn h01_object_that_nobody_saw_go_is_deleted<Q: Queue>() {
        let store = Store::of(&[]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.add(o("x", 1));
        fifo.replace(&[]);
        assert_eq!(process(&fifo, &store), ["Added x@1", "Deleted(x: x@1)"]);
        assert!(store.objects().is_empty());

        // In both places: the queue's object is the newer one. And a tombstone never holds a tombstone.
        let store = Store::of(&[o("x", 1)]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.update(o("x", 2));
        fifo.replace(&[]);
        fifo.add(o("x", 3));
        fifo.replace(&[]);
        fifo.replace(&[]);
        assert_eq!(process(&fifo, &store), ["Updated x@2", "Deleted(x: x@2)", "Added x@3", "Deleted(x: x@3)"]);
    }

    /// k/k#83810: the relist's delta was dropped behind a Deleted, so an object made anew was never announced.
    fn h02_recreated_object_is_announced<Q: Queue>() {
        let store = Store::of(&[o("foo", 1)]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.delete(o("foo", 1));
        fifo.replace(&[o("foo", 2)]);
        assert_eq!(process(&fifo, &store), ["Deleted foo@1", "Sync foo@2"]);
    }

    /// k/k PR#86015: a relist and a resync had the same type, and handlers missed what the relist had found. Users
    /// could not tell why they were called (h21).
    fn h03_relist_and_resync_can_be_told_apart<Q: Queue>() {
        let store = Store::of(&[]);
        let fifo = Q::with(Config { emit_replaced: true, ..Config::with_store(&store) });
        fifo.replace(&[o("a", 1)]);
        assert_eq!(process(&fifo, &store), ["Replaced a@1"]);
        fifo.resync();
        assert_eq!(process(&fifo, &store), ["Sync a@1"]);
        fifo.update(o("a", 2));
        assert_eq!(process(&fifo, &store), ["Updated a@2"]);
    }

    /// k/k#26966: a delete was lost because the key was in nobody's books, popped and not yet applied.
    fn h04_key_in_flight_exists<Q: Queue>() {
        let store = Store::of(&[]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.add(o("a", 1));
        let claim = fifo.pop_now().unwrap();
        fifo.delete(o("a", 2));
        store.apply(claim.key(), claim.deltas());
        claim.finish();
        assert_eq!(process(&fifo, &store), ["Deleted a@2"]);
        assert!(store.objects().is_empty());

        // Replace: missing, and the tombstone has the state that is in flight.
        fifo.add(o("a", 3));
        let claim = fifo.pop_now().unwrap();
        fifo.replace(&[]);
        store.apply(claim.key(), claim.deltas());
        claim.finish();
        assert_eq!(process(&fifo, &store), ["Deleted(a: a@3)"]);

        // A deletion in flight: it is gone, though the store still has it.
        fifo.add(o("a", 4));
        process(&fifo, &store);
        fifo.delete(o("a", 5));
        let claim = fifo.pop_now().unwrap();
        fifo.delete(o("a", 6));
        fifo.replace(&[]);
        fifo.resync();
        store.apply(claim.key(), claim.deltas());
        claim.finish();
        assert!(fifo.is_empty());
    }

    /// client-go#360: by design. Nobody knows of the object any more.
    fn h05_without_known_objects_a_delete_after_the_pop_is_ignored<Q: Queue>() {
        let fifo = Q::with(Config::default());
        fifo.add(o("a", 1));
        fifo.pop_now().unwrap().finish();
        assert_eq!(fifo.delete(o("a", 1)), Outcome::Accepted);
        assert!(fifo.is_empty());
    }

    /// k/k#31981: a resync queued the stored state behind a newer update.
    fn h06_resync_leaves_busy_keys_alone<Q: Queue>() {
        let store = Store::of(&[o("a", 1)]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.update(o("a", 2));
        fifo.resync();
        let claim = fifo.pop_now().unwrap();
        assert_eq!(names(claim.deltas()), ["Updated a@2"]);
        // In flight as well: the store does not show it yet.
        fifo.resync();
        store.apply(claim.key(), claim.deltas());
        claim.finish();
        assert!(fifo.is_empty());
    }

    /// k/k PR#40815: a resync that interleaves with updates. The versions that the consumer sees of a key never fall.
    fn h07_no_sync_is_older_than_an_accepted_update<Q: Queue>() {
        for known in [Known::Store(Store::of(&[])), Known::Embedded] {
            let store = match &known {
                Known::Store(store) => store.clone(),
                _ => Store::of(&[]),
            };
            let fifo = Q::with(Config { known, ..Config::default() });
            let (fifo, done) = (&fifo, &AtomicBool::new(false));
            thread::scope(|scope| {
                scope.spawn(|| {
                    for rv in 1..=3_000 {
                        fifo.update(o("a", rv));
                    }
                    done.store(true, Ordering::Release);
                });
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        assert_eq!(fifo.resync(), Outcome::Accepted);
                    }
                    fifo.close();
                });
                let mut seen = 0;
                while let Some(claim) = fifo.pop_wait(Form::Blocking) {
                    for delta in claim.deltas() {
                        let rv = delta.object().unwrap().rv;
                        assert!(rv >= seen, "{delta:?} after {seen}");
                        seen = rv;
                    }
                    store.apply(claim.key(), claim.deltas());
                    claim.finish();
                }
                assert_eq!(seen, 3_000);
            });
        }
    }

    /// k/k#90581: a pop slept on, because the queue was closed between its look and its sleep.
    fn h08_close_wakes_every_waiting_pop<Q: Queue>() {
        for round in 0..200 {
            let fifo = Arc::new(Q::with(Config::default()));
            let (ended, ends) = mpsc::channel();
            thread::scope(|scope| {
                for form in [Form::Blocking, Form::Async, Form::Try] {
                    let (fifo, ended) = (fifo.clone(), ended.clone());
                    scope.spawn(move || {
                        assert!(fifo.pop_wait(form).is_none());
                        ended.send(()).unwrap();
                    });
                }
                // Early in one round, late in another.
                (0..round * 20).for_each(|_| std::hint::spin_loop());
                fifo.close();
                for _ in 0..3 {
                    if ends.recv_timeout(HANG).is_err() {
                        eprintln!("{}: a pop sleeps on after close, round {round}", Q::NAME);
                        std::process::abort();
                    }
                }
            });
        }
    }

    /// k/k#103789: producers waited for the slowest handler. One thread: a call that waits for the claim never returns.
    fn h09_no_call_waits_for_a_handler<Q: Queue>() {
        let store = Store::of(&[o("b", 1)]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.add(o("a", 1));
        let claim = fifo.pop_now().unwrap();
        fifo.add(o("a", 2));
        fifo.update(o("c", 1));
        fifo.delete(o("a", 3));
        fifo.replace(&[o("c", 2)]);
        fifo.resync();
        assert_eq!(fifo.pop_now().unwrap().key(), "c");
        assert!(fifo.get("a").is_some());
        fifo.close();
        assert_eq!(names(claim.deltas()), ["Added a@1"]);
    }

    /// k/k#124337: a resync transformed objects again that were already in the cache, and raced with their readers.
    fn h11_transformer_sees_each_object_once<Q: Queue>() {
        for embedded in [false, true] {
            let store = Store::of(&[]);
            let known = if embedded { Known::Embedded } else { Known::Store(store.clone()) };
            let fifo = Q::with(Config { known, transform: true, ..Config::default() });
            // A mark is one run of the transformer.
            fifo.add(o("a", 1));
            fifo.update(o("a", 2));
            assert_eq!(process(&fifo, &store), ["Added a@1'", "Updated a@2'"]);
            fifo.resync();
            assert_eq!(process(&fifo, &store), ["Sync a@2'"]);
            fifo.replace(&[o("b", 3)]);
            assert_eq!(process(&fifo, &store), ["Sync b@3'"]);
            assert_eq!(process(&fifo, &store), ["Deleted(a: a@2')"]);
            fifo.delete(o("b", 4));
            assert_eq!(process(&fifo, &store), ["Deleted b@4'"]);
            fifo.add(o("c", 5));
            fifo.delete_final_state_unknown("c", Some(o("c", 6)));
            assert_eq!(process(&fifo, &store), ["Added c@5'", "Deleted(c: c@6)"]);
        }
    }

    /// k/k#129024: a handler that panicked during the initial list never became synced.
    fn h14_panic_during_the_first_list_delays_the_sync_and_no_more<Q: Queue>() {
        let fifo = Q::with(Config::default());
        fifo.replace(&[o("a", 1), o("b", 1)]);
        for key in ["a", "b"] {
            let claim = fifo.pop_now().unwrap();
            assert_eq!(claim.key(), key);
            let handler = AssertUnwindSafe(move || {
                let _claim = claim;
                panic::resume_unwind(Box::new("the handler panics"));
            });
            assert!(panic::catch_unwind(handler).is_err());
            assert!(!fifo.has_synced());
        }
        for key in ["a", "b"] {
            assert!(!fifo.has_synced());
            let claim = fifo.pop_now().unwrap();
            assert_eq!((claim.key(), claim.is_initial()), (key, true));
            claim.finish();
        }
        assert!(fifo.has_synced() && fifo.wait_synced());
    }

    /// k/k#113763: a consumer could not tell the first list from what came later.
    fn h15_claims_say_whether_they_belong_to_the_first_list<Q: Queue>() {
        let store = Store::of(&[]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.replace(&[o("a", 1), o("b", 1)]);
        fifo.add(o("c", 1));
        let claims = fifo.pop_batch_now(3).unwrap();
        let initial: Vec<_> = claims.iter().map(|claim| (claim.key().to_owned(), claim.is_initial())).collect();
        assert_eq!(initial, [("a".to_owned(), true), ("b".to_owned(), true), ("c".to_owned(), false)]);
        drop(claims);
        fifo.replace(&[o("a", 2)]);
        assert!(!fifo.pop_now().unwrap().is_initial(), "a relist is not the first list");
    }

    /// k/k PR#96797: a key that was in the first list twice was waited for twice.
    fn h16_duplicate_in_the_first_list_counts_once<Q: Queue>() {
        let fifo = Q::with(Config::default());
        fifo.replace(&[o("a", 1), o("a", 2)]);
        assert!(!fifo.has_synced());
        let claim = fifo.pop_now().unwrap();
        assert_eq!(names(claim.deltas()), ["Sync a@1", "Sync a@2"]);
        assert!(!fifo.has_synced(), "it is popped, and not yet processed");
        claim.finish();
        assert!(fifo.has_synced());
    }

    /// k/k PR#31755: synced was reported before the deletions that the first list implies were popped.
    fn h17_sync_waits_for_the_deletions_that_the_first_list_implies<Q: Queue>() {
        let store = Store::of(&[o("foo", 1), o("bar", 1), o("baz", 1)]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.replace(&[o("foo", 2)]);
        for want in ["Sync foo@2", "Deleted(bar: bar@1)", "Deleted(baz: baz@1)"] {
            assert!(!fifo.has_synced());
            assert_eq!(process(&fifo, &store), [want]);
        }
        assert!(fifo.has_synced());
    }

    /// k/k#134928: an error while a list was taken in was swallowed, and the queue said that it had synced.
    fn h23_refused_list_changes_nothing_and_comes_back<Q: Queue>() {
        let store = Store::of(&[o("gone", 1)]);
        let fifo = Q::with(Config::with_store(&store));
        assert_eq!(fifo.replace(&[o("a", 1), o(NO_KEY, 1), o("b", 1)]), Outcome::KeyError);
        assert!(fifo.is_empty() && !fifo.has_synced());
        assert_eq!(fifo.push_list(vec![o("a", 1), o(NO_KEY, 1)], Form::Blocking), (Outcome::KeyError, Some(1)));
        // The corrected list is then the first one.
        fifo.replace(&[o("a", 1)]);
        let claim = fifo.pop_now().unwrap();
        assert!(claim.is_initial());
        claim.finish();
        assert!(!fifo.has_synced(), "`gone` is still to be deleted");
    }

    /// PR#137314 and others: what is not consumed grew without bound.
    fn h24_memory_is_bounded_when_asked<Q: Queue>() {
        let fifo = Q::with(Config { compression: Compression::KeepLatest, ..Config::default() });
        for rv in 0..1_000 {
            match rv % 5 {
                0 => fifo.add(o("a", rv)),
                4 => fifo.delete(o("a", rv)),
                _ => fifo.update(o("a", rv)),
            };
            assert!(fifo.get("a").unwrap().len() <= 3);
        }

        let fifo = Q::with(Config { limits: Limits { keys: Some(2), deltas: Some(3) }, ..Config::default() });
        assert_eq!(fifo.add(o("a", 1)), Outcome::Accepted);
        assert_eq!(fifo.add(o("b", 1)), Outcome::Accepted);
        assert_eq!(fifo.add(o("c", 1)), Outcome::Full, "two keys are pending");
        assert_eq!(fifo.update(o("a", 2)), Outcome::Accepted, "a further delta of a pending key");
        assert_eq!(fifo.update(o("b", 2)), Outcome::Full, "three deltas are pending");
        fifo.pop_now().unwrap().finish();
        assert_eq!(fifo.add(o("c", 1)), Outcome::Accepted);
        assert_eq!(fifo.replace(&[o("b", 3), o("c", 3), o("d", 3)]), Outcome::Full);
        fifo.close();
        assert_eq!(fifo.add(o("d", 1)), Outcome::Accepted, "after a close nobody may be left to make room");
    }

    /// k/k#111370: one surviving object kept the whole list alive.
    fn h25_nothing_is_kept_of_what_was_processed<Q: Queue>() {
        for known in [Known::Nothing, Known::Embedded] {
            let embedded = matches!(known, Known::Embedded);
            let fifo = Q::with(Config { known, ..Config::default() });
            let list: Vec<_> = (0..100).map(|n| o(&format!("{n}"), 1)).collect();
            let newer: Vec<_> = (0..100).map(|n| o(&format!("{n}"), 2)).collect();
            fifo.replace(&list);
            for object in &newer {
                fifo.update(object.clone());
            }
            while let Ok(claim) = fifo.pop_now() {
                claim.finish();
            }
            for (object, newer) in list.iter().zip(&newer) {
                assert_eq!(Arc::strong_count(object), 1);
                assert_eq!(Arc::strong_count(newer), 1 + usize::from(embedded), "embedded: the newest, and no other");
            }
        }
    }

    /// PR#133565: deleted and made anew while nobody looked surfaced as an update. No policy hides the deletion.
    fn h26_deletion_is_not_hidden_by_a_recreation<Q: Queue>() {
        for compression in [Compression::ClientGo, Compression::KeepLatest] {
            let store = Store::of(&[o("a", 1)]);
            let fifo = Q::with(Config { compression, ..Config::with_store(&store) });
            fifo.delete(o("a", 2));
            fifo.add(o("a", 3));
            assert_eq!(process(&fifo, &store), ["Deleted a@2", "Added a@3"]);
        }
    }

    /// k/k#112745: a Sync next to a newer change is noise. `KeepLatest` merges it, without losing what happened.
    fn h27_keep_latest_merges_a_relist_with_what_was_queued<Q: Queue>() {
        let store = Store::of(&[]);
        let fifo = Q::with(Config { compression: Compression::KeepLatest, ..Config::with_store(&store) });
        fifo.add(o("a", 1));
        fifo.replace(&[o("a", 2)]);
        assert_eq!(process(&fifo, &store), ["Added a@2"]);
        fifo.resync();
        fifo.update(o("a", 3));
        assert_eq!(process(&fifo, &store), ["Updated a@3"]);
    }

    /// k/k#107376: a key was queued twice after a delete and an add.
    fn h29_key_is_queued_once<Q: Queue>() {
        let store = Store::of(&[]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.add(o("a", 1));
        fifo.delete(o("a", 1));
        fifo.add(o("a", 2));
        assert_eq!((fifo.len(), fifo.list_keys()), (1, vec!["a".to_owned()]));
        assert_eq!(process(&fifo, &store), ["Added a@1", "Deleted a@1", "Added a@2"]);
        assert_eq!(fifo.pop_now().err(), Some(TryPopError::Empty));
    }

    /// k/k PR#141079: a drain returned while keys were queued and none was in work.
    fn h30_drain_waits_for_what_is_queued_and_for_what_is_claimed<Q: Queue>() {
        let fifo = Q::with(Config::default());
        fifo.add(o("a", 1));
        fifo.add(o("b", 1));
        let (drained, drain) = mpsc::channel();
        thread::scope(|scope| {
            let fifo = &fifo;
            scope.spawn(move || {
                fifo.close_and_drain();
                drained.send(()).unwrap();
            });
            while !fifo.is_closed() {
                thread::yield_now();
            }
            fifo.pop_now().unwrap().finish();
            assert!(drain.try_recv().is_err(), "b is queued");
            let claim = fifo.pop_now().unwrap();
            // It becomes dirty, so it is queued once more when it is released.
            fifo.update(o("b", 2));
            claim.finish();
            let claim = fifo.pop_now().unwrap();
            assert!(drain.try_recv().is_err(), "b is claimed");
            claim.put_back();
            assert!(drain.try_recv().is_err(), "b is queued again");
            fifo.pop_now().unwrap().finish();
            if drain.recv_timeout(HANG).is_err() {
                eprintln!("{}: the drain does not end", Q::NAME);
                std::process::abort();
            }
        });
    }

    /// Dozens of consumers crashed on tombstones, which came where they expected an object. Here the type says it.
    fn h31_tombstone_is_a_case_of_the_type<Q: Queue>() {
        let store = Arc::new(Store::with_ghosts(["ghost".to_owned()]));
        let fifo = Q::with(Config::with_store(&store));
        fifo.replace(&[]);
        let claim = fifo.pop_now().unwrap();
        match claim.deltas().newest().unwrap() {
            Delta::Deleted(Deleted::Observed(object)) => panic!("nobody saw {object:?} go"),
            Delta::Deleted(Deleted::FinalStateUnknown(tombstone)) => {
                assert_eq!((&*tombstone.key, &tombstone.object), ("ghost", &None));
            }
            delta => panic!("{delta:?}"),
        }
    }

    /// client-go#336: handlers were serial, and people built their own dispatchers by key on top.
    fn h34_keys_run_in_parallel_and_each_key_in_order<Q: Queue>() {
        let store = Store::of(&[]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.add(o("a", 1));
        fifo.add(o("b", 1));
        let (a, b) = (fifo.pop_now().unwrap(), fifo.pop_now().unwrap());
        assert_eq!((a.key(), b.key()), ("a", "b"), "two keys are in work at the same time");
        fifo.update(o("a", 2));
        fifo.update(o("a", 3));
        assert_eq!(fifo.pop_now().err(), Some(TryPopError::Empty), "but never one key twice");
        drop(b);
        a.finish();
        assert_eq!(process(&fifo, &store), ["Updated a@2", "Updated a@3"]);
    }
}

/// Our own, in the manner of h30: the drain looked at the order queue, where the old place of a promoted key still
/// lay, and the pop that removed that told nobody.
#[test]
fn drain_ends_where_only_the_old_place_of_a_promoted_key_is_left() {
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    let share = NonZeroU32::new(1_000);
    let fifo = DeltaFifo::<Object, String>::with(Config { background_share: share, ..Config::default() });
    assert!(fifo.pop_now().is_err(), "the first turn is the background's");
    fifo.replace(vec![o("a", 1)]).unwrap();
    fifo.update(o("a", 2)).unwrap();
    let claim = fifo.pop_now().unwrap();

    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut drain = pin!(fifo.close_and_drain());
    let mut is_over = || {
        woken.0.store(false, Ordering::Release);
        drain.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    };
    assert!(!is_over(), "a is claimed");
    claim.finish();
    if !is_over() {
        assert_eq!(fifo.pop_now().err(), Some(TryPopError::Closed));
        assert!(woken.0.load(Ordering::Acquire), "the drain sleeps on");
        assert!(is_over());
    }
}

on_both! {
    /// Our own: a limit on deltas still counted what a merge had taken away, until the queue was full for ever.
    fn room_comes_back_when_a_merge_shortens_a_key<Q: Queue>() {
        let limits = Limits { keys: None, deltas: Some(3) };
        let fifo = Q::with(Config { limits, compression: Compression::KeepLatest, ..Config::default() });
        for rv in 0..10 {
            fifo.update(o("a", rv));
            fifo.delete(o("a", rv));
            fifo.add(o("a", rv));
            // The second deletion takes the place of the first one and of the life between them.
            assert_eq!(fifo.delete(o("a", rv)), Outcome::Accepted);
            assert_eq!(fifo.get("a").unwrap().len(), 2);
            assert_eq!(fifo.add(o("b", rv)), Outcome::Accepted, "two of three are pending");
            assert_eq!(fifo.add(o("c", rv)), Outcome::Full);
            drop(fifo.pop_batch_now(2).unwrap());
        }
    }
}

/// Our own: the end of the time was past the end of time.
#[test]
fn longest_timeout_is_no_panic() {
    let fifo = DeltaFifo::<Object, String>::with(Config::default());
    fifo.add(o("a", 1)).unwrap();
    fifo.pop_timeout(Duration::MAX).unwrap().finish();
    assert!(fifo.wait_synced_timeout(Duration::MAX));
    assert!(fifo.close_and_drain_timeout(Duration::MAX));
}

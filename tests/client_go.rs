//! client-go's own tests of its queue that the recorded traces do not cover, and the rules with failing lookups, failing
//! transformers and odd tombstones. `g01` and so on number the tests of client-go's `delta_fifo_test.go` in the order of
//! that file; rules are those of `docs/semantics.md`.

mod support;

use std::error::Error;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use delta_fifo::{DeltaFifo, KeyError, PushError, TryPopError};

use support::{Claimed, Config, Form, NO_KEY, Object, Outcome, Queue, Store, UNFIT, Verb, names, o};

/// The queue's keys in order with their deltas, by popping all.
fn drain<Q: Queue>(fifo: &Q) -> Vec<Vec<String>> {
    std::iter::from_fn(|| fifo.pop_now().ok()).map(|claim| names(claim.deltas())).collect()
}

on_both! {
    /// Two producers, one consumer; each producer's order is kept.
    fn g01_each_producers_order_is_kept<Q: Queue>() {
        let fifo = &Q::with(Config::default());
        thread::scope(|scope| {
            for producer in ["x", "y"] {
                scope.spawn(move || {
                    for n in 0..500 {
                        assert_eq!(fifo.push(Verb::Add, o(&format!("{producer}{n:03}"), n), Form::Blocking), Outcome::Accepted);
                    }
                });
            }
            let mut seen = [0, 0];
            for _ in 0..1_000 {
                let claim = fifo.pop_wait(Form::Blocking).unwrap();
                let seen = &mut seen[usize::from(claim.key().starts_with('y'))];
                assert_eq!(claim.deltas().newest().unwrap().object().unwrap().rv, *seen);
                *seen += 1;
            }
        });
    }

    /// What Replace finds missing in the queue alone, with known objects and without.
    fn g03_replace_finds_deletions_among_queued_keys<Q: Queue>() {
        for store in [None, Some(Store::of(&[]))] {
            let config = || Config { emit_replaced: true, ..store.as_ref().map_or_else(Config::default, Config::with_store) };
            let fifo = Q::with(config());
            fifo.add(o("a", 1));
            fifo.replace(&[]);
            fifo.replace(&[]);
            assert_eq!(drain(&fifo), [["Added a@1", "Deleted(a: a@1)"]]);

            let fifo = Q::with(config());
            fifo.add(o("a", 1));
            fifo.delete(o("a", 1));
            fifo.replace(&[]);
            assert_eq!(drain(&fifo), [["Added a@1", "Deleted a@1"]], "one deletion is enough");

            let fifo = Q::with(config());
            fifo.add(o("a", 1));
            fifo.replace(&[o("a", 1)]);
            fifo.replace(&[o("a", 1)]);
            fifo.replace(&[]);
            assert_eq!(drain(&fifo), [["Added a@1", "Replaced a@1", "Replaced a@1", "Deleted(a: a@1)"]]);

            let fifo = Q::with(config());
            fifo.add(o("a", 1));
            fifo.delete(o("a", 1));
            fifo.add(o("a", 2));
            fifo.replace(&[]);
            assert_eq!(drain(&fifo), [["Added a@1", "Deleted a@1", "Added a@2", "Deleted(a: a@2)"]]);
        }
    }

    /// A3.2: each object once, tombstones never.
    fn g05_transformer<Q: Queue>() {
        let fifo = Q::with(Config { transform: true, ..Config::default() });
        fifo.add(o("foo", 10));
        fifo.update(o("bar", 11));
        fifo.update(o("foo", 12));
        fifo.delete(o("foo", 15));
        fifo.replace(&[]);
        fifo.update(o("bar", 16));
        fifo.replace(&[]);
        assert_eq!(
            drain(&fifo),
            [vec!["Added foo@10'", "Updated foo@12'", "Deleted foo@15'"], vec!["Updated bar@11'", "Deleted(bar: bar@11')", "Updated bar@16'", "Deleted(bar: bar@16')"]]
        );
    }

    /// A3.2: what the transformer refuses is not queued, but the call has made the queue populated (A5.1).
    fn transformer_that_fails<Q: Queue>() {
        let store = Store::of(&[o(UNFIT, 1)]);
        let with_transform = || Config { transform: true, ..Config::with_store(&store) };
        for verb in [Verb::Add, Verb::Update, Verb::Delete] {
            for form in [Form::Try, Form::Blocking, Form::Async] {
                let fifo = Q::with(with_transform());
                assert_eq!(fifo.push(verb, o(UNFIT, 2), form), Outcome::TransformError);
                assert!(fifo.is_empty() && fifo.has_synced());
            }
        }
        for form in [Form::Try, Form::Blocking, Form::Async] {
            let fifo = Q::with(with_transform());
            let list = vec![o("a", 2), o(UNFIT, 2)];
            assert_eq!(fifo.push_list(list, form), (Outcome::TransformError, Some(1)));
            assert!(fifo.is_empty() && !fifo.has_synced());
        }
        // A delete that finds nothing asks nobody.
        let fifo = Q::with(Config { transform: true, ..Config::default() });
        assert_eq!(fifo.delete(o(UNFIT, 2)), Outcome::Accepted);
        // Neither a tombstone nor a Resync is transformed.
        let fifo = Q::with(with_transform());
        fifo.delete_final_state_unknown(UNFIT, Some(o(UNFIT, 3)));
        assert_eq!(drain(&fifo), [["Deleted(unfit: unfit@3)"]]);
        fifo.resync();
        assert_eq!(drain(&fifo), [["Sync unfit@1"]]);
    }

    /// A5.1, A6.1: a call without a key populates the queue if it is an add or update, and not if it is a delete.
    fn key_function_that_fails<Q: Queue>() {
        for (verb, populates) in [(Verb::Add, true), (Verb::Update, true), (Verb::Delete, false)] {
            for form in [Form::Try, Form::Blocking, Form::Async] {
                let fifo = Q::with(Config::default());
                assert_eq!(fifo.push(verb, o(NO_KEY, 1), form), Outcome::KeyError);
                assert!(fifo.is_empty());
                assert_eq!(fifo.has_synced(), populates, "{verb:?}");
            }
        }
    }

    /// Which object a tombstone carries, and the order of what one Replace queues.
    fn g10_order_and_objects_of_what_a_replace_deletes<Q: Queue>() {
        let store = Store::of(&[o("foo", 5), o("bar", 6), o("baz", 7)]);
        let fifo = Q::with(Config::with_store(&store));
        fifo.delete(o("baz", 10));
        fifo.replace(&[o("foo", 5)]);
        assert_eq!(drain(&fifo), [["Deleted baz@10"], ["Sync foo@5"], ["Deleted(bar: bar@6)"]]);

        let fifo = Q::with(Config::with_store(&store));
        fifo.add(o("baz", 10));
        fifo.replace(&[o("foo", 5)]);
        assert_eq!(drain(&fifo), [vec!["Added baz@10", "Deleted(baz: baz@10)"], vec!["Sync foo@5"], vec!["Deleted(bar: bar@6)"]]);

        let fifo = Q::with(Config::with_store(&store));
        fifo.replace(&[o("bar", 100), o("foo", 100)]);
        fifo.replace(&[o("foo", 101)]);
        assert_eq!(
            drain(&fifo),
            [vec!["Sync bar@100", "Deleted(bar: bar@100)"], vec!["Sync foo@100", "Sync foo@101"], vec!["Deleted(baz: baz@7)"]]
        );
    }

    /// An update that is queued beats the resync.
    fn g15_update_and_resync<Q: Queue>() {
        let fifo = Q::with(Config::with_store(&Store::of(&[o("foo", 5)])));
        fifo.update(o("foo", 6));
        fifo.resync();
        assert_eq!(drain(&fifo), [["Updated foo@6"]]);
    }

    /// A key that comes back stands behind those that waited.
    fn g17_nobody_jumps_the_line<Q: Queue>() {
        let fifo = Q::with(Config::default());
        fifo.add(o("foo", 10));
        fifo.add(o("bar", 1));
        fifo.add(o("foo", 11));
        fifo.add(o("foo", 13));
        fifo.add(o("zab", 30));
        assert_eq!(names(fifo.pop_now().unwrap().deltas()), ["Added foo@10", "Added foo@11", "Added foo@13"]);
        fifo.add(o("foo", 14));
        assert_eq!(drain(&fifo), [["Added bar@1"], ["Added zab@30"], ["Added foo@14"]]);
    }

    /// A2.2: a tombstone's key is taken as it is; its object is looked at by nobody.
    fn g18_key_of_a_tombstone<Q: Queue>() {
        let fifo = Q::with(Config::with_store(&Store::of(&[o("a", 1), o("b", 1), o(NO_KEY, 1)])));
        fifo.delete_final_state_unknown("a", None);
        fifo.delete_final_state_unknown("b", Some(o("another name", 2)));
        fifo.delete_final_state_unknown(NO_KEY, Some(o(NO_KEY, 2)));
        assert_eq!(drain(&fifo), [["Deleted(a)"], ["Deleted(b: another name@2)"], ["Deleted(bad: bad@2)"]]);
    }

    /// A10.3: the table.
    fn g19_has_synced<Q: Queue>() {
        let new = || Q::with(Config::default());
        let pop = |fifo: &Q| fifo.pop_now().unwrap().finish();
        assert!(!new().has_synced());
        let fifo = new();
        fifo.add(o("a", 1));
        assert!(fifo.has_synced());
        let fifo = new();
        fifo.replace(&[]);
        assert!(fifo.has_synced());
        let fifo = new();
        fifo.replace(&[o("a", 1), o("b", 2)]);
        assert!(!fifo.has_synced());
        pop(&fifo);
        assert!(!fifo.has_synced());
        pop(&fifo);
        assert!(fifo.has_synced());
    }

    /// Ten waiting pops.
    fn g20_close_ends_all_pops<Q: Queue>() {
        let fifo = Arc::new(Q::with(Config::default()));
        let (ended, ends) = mpsc::channel();
        let pops: Vec<_> = (0..10).map(|_| (fifo.clone(), ended.clone())).collect();
        thread::scope(|scope| {
            for (fifo, ended) in pops {
                scope.spawn(move || ended.send(fifo.pop_wait(Form::Blocking).is_none()).unwrap());
            }
            fifo.close();
            for _ in 0..10 {
                assert!(ends.recv_timeout(Duration::from_secs(60)).expect("a pop ends"));
            }
        });
        assert_eq!(fifo.pop_now().err(), Some(TryPopError::Closed));
    }

    /// A6.4, A7.3, A8.3: a lookup that fails counts as "may exist", makes a tombstone without an object, and skips the
    /// key of a resync.
    fn lookup_that_fails<Q: Queue>() {
        let store = Store::of(&[o("a", 1), o("b", 1)]);
        store.break_lookup("a");
        store.break_lookup("absent");
        let fifo = Q::with(Config::with_store(&store));
        fifo.delete(o("a", 2));
        fifo.delete(o("absent", 2));
        assert_eq!(drain(&fifo), [["Deleted a@2"], ["Deleted absent@2"]]);
        assert_eq!(Queue::resync(&fifo), Outcome::Accepted);
        assert_eq!(drain(&fifo), [["Sync b@1"]]);
        fifo.replace(&[]);
        assert_eq!(drain(&fifo), [["Deleted(a)"], ["Deleted(b: b@1)"]]);
    }

    /// A11.2: a closed queue takes and delivers.
    fn closed_queue_still_delivers<Q: Queue>() {
        let fifo = Q::with(Config::with_store(&Store::of(&[o("c", 1)])));
        fifo.close();
        fifo.close();
        fifo.add(o("a", 1));
        fifo.replace(&[o("b", 1)]);
        assert_eq!(fifo.pop_batch_wait(2, Form::Async).unwrap().len(), 2);
        assert_eq!(names(fifo.pop_wait(Form::Blocking).unwrap().deltas()), ["Deleted(c: c@1)"]);
        assert!(fifo.pop_wait(Form::Blocking).is_none());
        assert!(fifo.pop_batch_wait(2, Form::Blocking).is_none());
    }
}

/// A2.5: object and cause are in the error, and the cause is reachable through the chain.
#[test]
fn key_error_has_its_object_and_its_cause() {
    let fifo = DeltaFifo::<Object, String>::with(Config::default());
    let object = o(NO_KEY, 1);
    let error = fifo.add(object.clone()).unwrap_err();
    assert_eq!(error.source().expect("a cause").to_string(), "bad@1 has no key");
    let PushError::Key(KeyError { object: returned, source, .. }) = error else { panic!("{error}") };
    assert!(Arc::ptr_eq(&returned, &object));
    assert_eq!(source.to_string(), "bad@1 has no key");

    let error = fifo.replace(vec![o("a", 1), object.clone()]).unwrap_err();
    assert_eq!(error.source().expect("a cause").to_string(), "bad@1 has no key");
    assert_eq!((error.index, error.list.len()), (1, 2));
}

//! What only the baseline has, or does in its own way: handlers under the mutex, and its waiting.

mod support;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use delta_fifo::baseline::MutexFifo;
use delta_fifo::{Compression, Deltas, Limits, PopTimeoutError};

use support::{Config, Known, Object, Queue, names, o};

type Fifo = MutexFifo<Object, String>;

/// Long enough for any machine; only a hang takes it.
const HANG: Duration = Duration::from_secs(60);

/// Runs `wait` in a thread, `then` here, and waits for the first to end.
fn ends_after<R: Send>(wait: impl FnOnce() -> R + Send, then: impl FnOnce()) -> R {
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel();
        scope.spawn(move || end.send(wait()).unwrap());
        then();
        ended.recv_timeout(HANG).unwrap_or_else(|_| {
            eprintln!("a call waits for ever");
            std::process::abort()
        })
    })
}

#[test]
fn handler_under_the_mutex_sees_what_a_claim_shows() {
    let fifo = Fifo::with(Config { known: Known::Embedded, ..Config::default() });
    fifo.replace(vec![o("a", 1), o("b", 1)]).unwrap();
    fifo.update(o("a", 2)).unwrap();
    let seen = fifo.pop_held(|popped| (popped.key.clone(), names(&popped.deltas), popped.is_initial));
    assert_eq!(seen, Ok(("a".to_owned(), vec!["Sync a@1".to_owned(), "Updated a@2".to_owned()], true)));
    assert_eq!(fifo.known_object(&"a".to_owned()), Some(o("a", 2)));
    assert!(!fifo.has_synced());
    fifo.pop_held(|popped| drop(std::mem::take(&mut popped.deltas))).unwrap();
    assert!(fifo.has_synced());
    assert_eq!(fifo.known_object(&"b".to_owned()), Some(o("b", 1)));
    fifo.close();
    assert!(fifo.pop_held(|_| ()).is_err(), "closed");
}

/// client-go's rule A9.5: the deltas are lost, the mutex is free, the key counts as processed.
#[test]
fn panic_under_the_mutex_loses_the_deltas_and_nothing_else() {
    let fifo = Fifo::with(Config::default());
    fifo.replace(vec![o("a", 1)]).unwrap();
    let handler = AssertUnwindSafe(|| fifo.pop_held(|_| panic::resume_unwind(Box::new("the handler panics"))));
    assert!(panic::catch_unwind(handler).is_err());
    assert!(fifo.is_empty() && fifo.has_synced());
    fifo.add(o("a", 2)).unwrap();
    assert_eq!(fifo.pop_held(|popped| names(&popped.deltas)), Ok(vec!["Added a@2".to_owned()]));
}

#[test]
fn panic_of_the_users_compression_leaves_the_queue_as_it_was() {
    let calls = AtomicUsize::new(0);
    let compress = move |_: &String, deltas: Deltas<Object, String>| {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            panic::resume_unwind(Box::new("the compression panics"));
        }
        deltas
    };
    let fifo = Fifo::with(Config { compression: Compression::Custom(Arc::new(compress)), ..Config::default() });
    fifo.add(o("a", 1)).unwrap();
    fifo.add(o("b", 1)).unwrap();
    assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(fifo.try_pop()))).is_err());
    assert_eq!(fifo.list_keys(), ["a", "b"]);
    assert_eq!(names(fifo.try_pop().unwrap().deltas()), ["Added a@1"]);
}

#[test]
fn waiting_calls_end_when_what_they_wait_for_happens() {
    let limits = Limits { keys: Some(1), deltas: None };
    let full = || {
        let fifo = Fifo::with(Config { limits, ..Config::default() });
        fifo.add(o("a", 1)).unwrap();
        fifo
    };
    let is_there = |fifo: &Fifo, key: &str| fifo.get(&key.to_owned()).is_some();

    // Room.
    let fifo = full();
    ends_after(|| fifo.add(o("b", 1)).unwrap(), || fifo.try_pop().unwrap().done());
    assert!(is_there(&fifo, "b"));
    let fifo = full();
    ends_after(|| fifo.replace(vec![o("b", 1), o("c", 1)]).unwrap(), || fifo.pop_held(|_| ()).unwrap());
    assert_eq!(fifo.len(), 2, "a list goes in as a whole");
    let fifo = full();
    ends_after(|| fifo.update(o("b", 1)).unwrap(), || fifo.close());
    assert!(is_there(&fifo, "b"), "after a close nobody may be left to make room");

    // A key: a new one, and one that its claim gives back.
    let fifo = Fifo::with(Config::default());
    ends_after(|| fifo.pop_blocking().unwrap().done(), || fifo.add(o("a", 1)).unwrap());
    fifo.add(o("a", 1)).unwrap();
    let claim = fifo.try_pop().unwrap();
    ends_after(|| fifo.pop_batch_blocking(2).unwrap().len(), || claim.requeue());
    assert_eq!(fifo.pop_timeout(Duration::ZERO).err(), Some(PopTimeoutError::Timeout));

    // The sync, and the end of the last claim.
    let fifo = Fifo::with(Config::default());
    fifo.replace(vec![o("a", 1)]).unwrap();
    assert!(!fifo.wait_synced_timeout(Duration::ZERO));
    let claim = fifo.try_pop().unwrap();
    assert!(ends_after(|| fifo.wait_synced_blocking(), || claim.done()));
    fifo.add(o("a", 2)).unwrap();
    let claim = fifo.try_pop().unwrap();
    assert!(!fifo.close_and_drain_timeout(Duration::ZERO));
    ends_after(|| fifo.close_and_drain_blocking(), || claim.done());

    // A close ends the wait for a sync that never comes.
    let fifo = Fifo::with(Config::default());
    assert!(!ends_after(|| fifo.wait_synced_blocking(), || fifo.close()));
    assert_eq!(fifo.pop_timeout(HANG).err(), Some(PopTimeoutError::Closed));
}

#[test]
fn workers_process_all_and_a_panic_costs_a_retry() {
    let fifo = Fifo::with(Config::default());
    for key in 0..100 {
        fifo.add(o(&key.to_string(), 1)).unwrap();
    }
    fifo.close();
    let failed = AtomicUsize::new(0);
    let processed = fifo.process(4, |claim| {
        assert_eq!(claim.deltas().len(), 1);
        if claim.key() == "7" && failed.fetch_add(1, Ordering::Relaxed) < 3 {
            panic::resume_unwind(Box::new("the handler panics"));
        }
    });
    assert_eq!((processed.claims, processed.panics), (103, 3));
}

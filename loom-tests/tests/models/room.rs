//! The limits (E3): never exceeded by producers, and a producer that waits for room wakes when it comes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use delta_fifo::Limits;
use loom_tests::*;

fn limited(mode: Mode, keys: Option<usize>, deltas: Option<usize>) -> Arc<World> {
    World::with(mode, |builder| builder.limits(Limits { keys, deltas }))
}

/// **A blocked producer wakes.** One delta fits. Thread A adds two keys, main takes one at a time. Allowed: both come
/// out.
///
/// Bound 2: 346 executions.
#[test]
fn room_wakes_producer() {
    check("room_wakes_producer", || {
        let w = limited(Mode::Nowhere, None, Some(1));
        let a = spawn(&w, |w| {
            w.add(1, 1);
            w.add(2, 1);
        });
        drop(w.fifo.pop_blocking().unwrap());
        drop(w.fifo.pop_blocking().unwrap());
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **Two blocked producers wake.** One key fits, and it is there. Threads A (blocking) and B (async) add two more,
/// main takes three.
///
/// Bound 2: 11,170 executions, 3.5 s.
#[test]
fn room_wakes_two() {
    check("room_wakes_two", || {
        let w = limited(Mode::Nowhere, Some(1), None);
        w.add(1, 1);
        let a = spawn(&w, |w| w.add(2, 1));
        let b = spawn(&w, |w| block_on(w.fifo.add_async(obj(3, 1))).unwrap());
        for _ in 0..3 {
            drop(w.fifo.pop_blocking().unwrap());
        }
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **A limit is not exceeded.** Two shards, one key fits. Threads A and B each try to add one. Allowed: exactly one of
/// them is refused.
///
/// Bound 2: 45 executions.
#[test]
fn limit_is_kept() {
    check("limit_is_kept", || {
        let w = limited(Mode::Nowhere, Some(1), None);
        let a = spawn(&w, |w| w.fifo.try_add(obj(1, 1)).is_ok());
        let b = spawn(&w, |w| w.fifo.try_add(obj(2, 1)).is_ok());
        let admitted = [a.join().unwrap(), b.join().unwrap()];
        assert_eq!(admitted.iter().filter(|&&ok| ok).count(), 1, "one fits: {admitted:?}");
        assert_eq!(w.fifo.len(), 1);
    });
}

/// **Close wakes a blocked producer**, and its delta is delivered.
///
/// Bound 2: 22 executions.
#[test]
fn close_wakes_producer() {
    check("close_wakes_producer", || {
        let w = limited(Mode::Nowhere, None, Some(1));
        w.add(1, 1);
        let a = spawn(&w, |w| w.add(2, 1));
        w.fifo.close();
        a.join().unwrap();
        assert_eq!(w.fifo.len(), 2, "what is reported after the close is queued");
    });
}

/// **A waiter that needs no room in the end does not use a wake-up up.**
///
/// One delta fits, key 1 has it. Thread A deletes key 1 (waits for room, and later finds nothing to delete), thread B
/// adds key 2, main takes one claim. There is room then, so B must come in.
///
/// Bound 2: 1,414 executions, 0.3 s.
#[test]
fn unused_room_is_passed_on() {
    check("unused_room_is_passed_on", || {
        let w = limited(Mode::Nowhere, None, Some(1));
        w.add(1, 1);
        let a = spawn(&w, |w| w.delete(1));
        let b = spawn(&w, |w| w.add(2, 1));
        drop(w.fifo.pop_blocking().unwrap());
        // One of the two takes the room; only a further claim makes room for the other.
        drop(w.fifo.pop_blocking().unwrap());
        w.fifo.close();
        a.join().unwrap();
        b.join().unwrap();
        w.consume_queued();
        w.assert_clean();
    });
}

/// **An empty Replace that waited for room leaves it to others.** One delta fits, key 1 has it. Thread A replaces by
/// an empty list, thread B adds key 2, main consumes two claims.
///
/// Bound 2: 9,243 executions, 2.5 s.
#[test]
fn replace_leaves_room() {
    check("replace_leaves_room", || {
        let w = limited(Mode::Nowhere, None, Some(1));
        w.add(1, 1);
        let a = spawn(&w, |w| w.replace(&[]));
        let b = spawn(&w, |w| w.add(2, 1));
        drop(w.fifo.pop_blocking().unwrap());
        // B's key, or the tombstone of a key 1 that was still claimed; then there is room for B's.
        drop(w.fifo.pop_blocking().unwrap());
        b.join().unwrap();
        a.join().unwrap();
        w.consume_queued();
        w.assert_clean();
    });
}

/// **A cancelled wait for room passes its wake-up on.** One key fits, and it is there. Thread A polls an add once and
/// drops it, thread B adds and blocks, main takes what it needs for B.
///
/// Bound 2: 723 executions, 0.2 s.
#[test]
fn cancelled_room_passes_on() {
    check("cancelled_room_passes_on", || {
        let w = limited(Mode::Nowhere, Some(1), None);
        w.add(1, 1);
        let a = spawn(&w, |w| {
            let mut add = pin!(w.fifo.add_async(obj(3, 1)));
            add.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        });
        let b = spawn(&w, |w| w.add(2, 1));
        drop(w.fifo.pop_blocking().unwrap());
        if a.join().unwrap() {
            // A's key is in; it has to go before B's can come.
            drop(w.fifo.pop_blocking().unwrap());
        }
        b.join().unwrap();
        w.consume_queued();
        w.assert_clean();
    });
}

fn refused_delete(name: &'static str, options: fn(FifoBuilder) -> FifoBuilder) {
    check(name, move || {
        let w = World::with(Mode::External, options);
        w.seed(1, 1);
        let a = spawn(&w, |w| w.fifo.try_delete(obj(1, 0)).is_ok());
        // Where the deletion takes the room first, the Replace is refused.
        let replaced = w.fifo.try_replace(vec![obj(3, 1), obj(1, 5)]).is_ok();
        let deleted = a.join().unwrap();
        w.consume_queued();
        match w.known(1) {
            None => assert!(deleted, "a refused delete deleted"),
            Some(version) => assert_eq!((version, replaced), (5, true), "a refused delete hid the list"),
        }
        w.assert_clean();
    });
}

/// **A delete that is refused for want of room leaves no trace (C-8).** One delta fits; key 1 is known. Main replaces by keys
/// 3 and 1, and key 3 fills the queue. Thread A tries to delete key 1. Allowed: the deletion wins, or the list's
/// version; where A was refused, only the latter. (Where A comes first, the Replace is refused.)
///
/// Bound 2: 73 executions.
#[test]
fn refused_delete_leaves_no_trace() {
    refused_delete("refused_delete_leaves_no_trace", |b| b.limits(Limits { keys: None, deltas: Some(1) }));
}

/// **The same for a delete that the transformer refuses.**
///
/// Bound 2: 40 executions.
#[test]
fn untransformed_delete_leaves_no_trace() {
    refused_delete("untransformed_delete_leaves_no_trace", |b| {
        b.transform(|object: Arc<Obj>| if object.version == 0 { Err("a delete") } else { Ok(object) })
    });
}

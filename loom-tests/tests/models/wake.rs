//! No wake-up is lost (E1): blocking, async and as a stream, with one consumer and with two, also when a wait is
//! cancelled.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use futures_core::Stream;
use loom_tests::*;

/// **One sleeper, one ticket.** Thread A pops, main adds. The smallest wake-up race.
///
/// Bound 2: 13 executions.
#[test]
fn wake_one() {
    check("wake_one", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| drop(w.fifo.pop_blocking().unwrap()));
        w.add(1, 1);
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **The same for a task.** Thread A polls [`DeltaFifo::pop`](delta_fifo::DeltaFifo::pop) to its end.
///
/// Bound 2: 19 executions.
#[test]
fn wake_async() {
    check("wake_async", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| drop(block_on(w.fifo.pop()).unwrap()));
        w.add(1, 1);
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **The same for the stream of claims**, which keeps its listener between two polls.
///
/// Bound 2: 147 executions.
#[test]
fn wake_stream() {
    check("wake_stream", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| {
            let mut claims = w.fifo.claims();
            let mut next = || block_on(std::future::poll_fn(|cx| pin!(&mut claims).poll_next(cx)));
            drop(next().expect("not closed"));
            assert!(next().is_none(), "closed");
        });
        w.add(1, 1);
        w.fifo.close();
        a.join().unwrap();
        w.assert_clean();
    });
}

/// **Two sleepers, two tickets: both wake.** Threads A and B each keep the key they pop, main adds two keys. A
/// notification that counts a sleeper who is already notified (`notify(1)`) leaves one asleep.
///
/// Bound 2: 260 executions, 0.1 s.
#[test]
fn wake_two() {
    check("wake_two", || {
        let w = World::new(Mode::Nowhere);
        let consumers: Vec<_> = (0..2).map(|_| spawn(&w, |w| drop(w.fifo.pop_blocking().unwrap()))).collect();
        w.add(1, 1);
        w.add(2, 1);
        for consumer in consumers {
            consumer.join().unwrap();
        }
        w.assert_clean();
    });
}

/// **A sleeper and a task, two tickets.** As `wake_two`, one of them async.
///
/// Bound 2: 451 executions, 0.1 s.
#[test]
fn wake_two_mixed() {
    check("wake_two_mixed", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| drop(w.fifo.pop_blocking().unwrap()));
        let b = spawn(&w, |w| drop(block_on(w.fifo.pop()).unwrap()));
        w.add(1, 1);
        w.add(2, 1);
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **A wake-up that is not needed is not missing elsewhere.** Thread A takes two keys, thread B one, main adds three.
/// A consumer that finds a ticket without sleeping drops its listener, which may have been notified.
///
/// Bound 2: 691 executions, 0.1 s.
#[test]
fn unused_wake_up_is_passed_on() {
    check("unused_wake_up_is_passed_on", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| {
            drop(w.fifo.pop_blocking().unwrap());
            drop(w.fifo.pop_blocking().unwrap());
        });
        let b = spawn(&w, |w| drop(w.fifo.pop_blocking().unwrap()));
        w.add(1, 1);
        w.add(2, 1);
        w.add(3, 1);
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **A cancelled wait passes its wake-up on.**
///
/// Thread A polls a pop once and drops it, as a timeout or a `select!` does; if it got the key, it reports another
/// one. Thread B sleeps, main adds one key. B must always get one.
///
/// Bound 2: 194 executions.
#[test]
fn cancelled_wait_passes_on() {
    check("cancelled_wait_passes_on", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| {
            let mut pop = pin!(w.fifo.pop());
            if pop.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                w.add(2, 1);
            }
        });
        let b = spawn(&w, |w| drop(w.fifo.pop_blocking().unwrap()));
        w.add(1, 1);
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **A dropped stream passes its wake-up on**, as a cancelled pop does.
///
/// Bound 2: 194 executions.
#[test]
fn dropped_stream_passes_on() {
    check("dropped_stream_passes_on", || {
        let w = World::new(Mode::Nowhere);
        let a = spawn(&w, |w| {
            let polled = pin!(w.fifo.claims()).poll_next(&mut Context::from_waker(Waker::noop()));
            if polled.is_ready() {
                w.add(2, 1);
            }
        });
        let b = spawn(&w, |w| drop(w.fifo.pop_blocking().unwrap()));
        w.add(1, 1);
        a.join().unwrap();
        b.join().unwrap();
        w.assert_clean();
    });
}

/// **A batch takes what is there and strands nobody.** Thread A pops a batch of two, thread B one key, main adds two.
/// Allowed: either way round; who finds nothing gets the end of the queue.
///
/// Bound 2: 2,349 executions, 0.6 s.
#[test]
fn batch_and_single() {
    check("batch_and_single", || {
        let w = World::new(Mode::Nowhere);
        let got = Log::default();
        let (first, second) = (got.clone(), got.clone());
        let a = spawn(&w, move |w| {
            while let Ok(batch) = w.fifo.pop_batch_blocking(2) {
                first.extend(batch.iter().map(|claim| *claim.key()));
            }
        });
        let b = spawn(&w, move |w| {
            while let Ok(claim) = w.fifo.pop_blocking() {
                second.push(*claim.key());
            }
        });
        w.add(1, 1);
        w.add(2, 1);
        w.fifo.close();
        a.join().unwrap();
        b.join().unwrap();
        let mut got = got.take();
        got.sort_unstable();
        assert_eq!(got, [1, 2], "lost or doubled");
        w.assert_clean();
    });
}

//! `kube-rs/dispatcher`: a shared reflector store and one subscriber.
//!
//! The producer drives `reflector(writer, events)`, as a watch would. For each event the reflector puts the object
//! into its store and broadcasts a reference to it, and waits while the buffer of the broadcast is full. The
//! consumer is a subscriber: it receives the reference and reads the newest object from the store. So "apply" is
//! the producer's work here, and nothing is coalesced: each update is one pop.

use std::cell::Cell;
use std::hint::{black_box, spin_loop};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::{Stream, StreamExt, stream};
use kube_runtime::reflector::{self, ReflectHandle, Store, store::Writer};
use kube_runtime::watcher::{self, Event};

use crate::object::{Object, objects};
use crate::report::{Bench, allocations, rss};
use crate::{busy, draws};

/// A shared store that knows the objects already, and a subscriber to what follows.
fn shared(buffer: usize, known: &[Object]) -> (Writer<Object>, Store<Object>, ReflectHandle<Object>) {
    let mut writer = Writer::new_shared(buffer, ());
    fill(&mut writer, known);
    let handle = writer.subscribe().expect("new_shared makes a writer that can be subscribed to");
    (writer, handle.reader(), handle)
}

/// The first list, straight into the store: the subscriber sees none of it.
pub fn fill(writer: &mut Writer<Object>, known: &[Object]) {
    writer.apply_watcher_event(&Event::Init);
    for object in known {
        writer.apply_watcher_event(&Event::InitApply(object.clone()));
    }
    writer.apply_watcher_event(&Event::InitDone);
}

fn events(events: impl Iterator<Item = Event<Object>>) -> impl Stream<Item = watcher::Result<Event<Object>>> {
    stream::iter(events.map(Ok))
}

/// Runs the reflector until the watch ends.
fn drive(writer: Writer<Object>, watch: impl Stream<Item = watcher::Result<Event<Object>>>) {
    block_on(async {
        let mut reflector = pin!(reflector::reflector(writer, watch));
        while let Some(event) = reflector.next().await {
            event.expect("these watches have no errors");
        }
    });
}

/// W1: add new keys, then receive all of them; the buffer takes as many.
pub fn bulk(bench: &Bench) {
    let all = objects(bench.scaled(1_000_000));
    let (writer, store, mut handle) = shared(all.len(), &[]);
    let begin = Instant::now();
    drive(writer, events(all.iter().map(|object| Event::Apply(object.updated(1)))));
    let added = begin.elapsed();
    let begin = Instant::now();
    let mut popped = 0;
    block_on(async {
        while let Some(object) = handle.next().await {
            black_box(object);
            popped += 1;
        }
    });
    let elapsed = begin.elapsed();
    bench.check("objects popped", popped, all.len());
    bench.check("objects in the store", store.len(), all.len());
    let note = "the object is put into the store in the add";
    bench.report_with_note("add_ns", added.as_nanos() as f64 / all.len() as f64, "ns", note);
    bench.report_with_note("pop_ns", elapsed.as_nanos() as f64 / all.len() as f64, "ns", note);
}

/// W2, W2u: one thread drives the watch, another receives.
pub fn steady(bench: &Bench, keys: usize, skewed: bool) {
    let known = objects(keys);
    let indices = draws(bench.scaled(4_000_000), keys, skewed);
    let (writer, store, mut handle) = shared(bench.buffer, &known);
    let begin = Instant::now();
    let popped = std::thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            block_on(async {
                let mut popped = 0;
                while let Some(object) = handle.next().await {
                    black_box(object);
                    popped += 1;
                }
                popped
            })
        });
        let updates = indices.iter().zip(1..).map(|(&i, rv)| Event::Apply(known[i as usize].updated(rv)));
        drive(writer, events(updates));
        consumer.join().expect("the consumer does not panic")
    });
    let elapsed = begin.elapsed();
    bench.check("updates popped", popped, indices.len());
    bench.check("objects in the store", store.len(), keys);
    bench.report("updates_per_s", indices.len() as f64 / elapsed.as_secs_f64(), "1/s");
    bench.report("pops", popped as f64, "1");
}

/// W3b: one thread drives one event and receives it.
pub fn round_trip(bench: &Bench) {
    let known = objects(10_000);
    let indices = draws(bench.scaled(4_000_000), known.len(), false);
    let warm = indices.len().min(100_000);
    let (writer, _, mut handle) = shared(bench.buffer, &known);
    let all = indices[..warm].iter().chain(&indices);
    let watch = events(all.map(|&i| Event::Apply(known[i as usize].updated(1))));
    let mut reflector = pin!(reflector::reflector(writer, watch));
    let mut trips = |n: usize| {
        block_on(async {
            for _ in 0..n {
                black_box(reflector.next().await);
                black_box(handle.next().await.expect("the watch goes on"));
            }
        });
    };
    trips(warm);
    let (before, begin) = (allocations(), Instant::now());
    trips(indices.len());
    let (elapsed, after) = (begin.elapsed(), allocations());
    bench.report("round_trip_ns", elapsed.as_nanos() as f64 / indices.len() as f64, "ns");
    bench.report("allocations", (after - before) as f64 / indices.len() as f64, "1");
}

/// W4: the subscriber spins for 20 us, one update is due every 10 us; the time is that in which the watch is held
/// up by one update.
pub fn busy_handler(bench: &Bench) {
    let known = objects(10_000);
    let indices = draws(bench.scaled(300_000), known.len(), false);
    let (writer, _, mut handle) = shared(bench.buffer, &known);
    let mut calls = Vec::with_capacity(indices.len());
    let took = std::thread::scope(|scope| {
        scope.spawn(move || {
            block_on(async {
                while handle.next().await.is_some() {
                    busy(Duration::from_micros(20));
                }
            });
        });
        let start = Instant::now();
        let call = Cell::new(start);
        let watch = events(indices.iter().enumerate().map(|(n, &i)| {
            while start.elapsed() < n as u32 * Duration::from_micros(10) {
                spin_loop();
            }
            let event = Event::Apply(known[i as usize].updated(1));
            call.set(Instant::now());
            event
        }));
        block_on(async {
            let mut reflector = pin!(reflector::reflector(writer, watch));
            while reflector.next().await.is_some() {
                calls.push(call.get().elapsed());
            }
        });
        start.elapsed()
    });
    bench.check("updates", calls.len(), indices.len());
    bench.report_calls(calls, "a full buffer holds the watch up");
    bench.report("pace_kept", indices.len() as f64 * 10e-6 / took.as_secs_f64(), "1");
}

/// W6: a relist. Nothing is told to the subscriber about the keys that are gone, and no update can come in between:
/// the watch that brings them is the one that lists.
pub fn replace(bench: &Bench) {
    let keys = bench.scaled(1_000_000);
    let gone = keys / 1_000;
    let all = objects(keys + gone);
    let (writer, store, mut handle) = shared(bench.buffer, &all[..keys]);
    let begin = Instant::now();
    let (elapsed, gap, popped) = std::thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            block_on(async {
                let (mut previous, mut gap, mut popped) = (begin, Duration::ZERO, 0);
                while let Some(object) = handle.next().await {
                    black_box(object);
                    let now = Instant::now();
                    gap = gap.max(now - previous);
                    previous = now;
                    popped += 1;
                }
                (gap, popped)
            })
        });
        let list = all[gone..].iter().map(|object| Event::InitApply(object.updated(1)));
        drive(writer, events([Event::Init].into_iter().chain(list).chain([Event::InitDone])));
        let elapsed = begin.elapsed();
        let (gap, popped) = consumer.join().expect("the consumer does not panic");
        (elapsed, gap, popped)
    });
    bench.check("objects popped", popped, keys);
    bench.check("objects in the store", store.len(), keys);
    let note = "relist through the watch; no deletions are dispatched, updates wait for its end";
    bench.report_with_note("replace_ms", elapsed.as_secs_f64() * 1e3, "ms", note);
    bench.report_with_note("pop_gap_max_ms", gap.as_secs_f64() * 1e3, "ms", note);
}

/// W8: the store. Its objects are copies of its own, so their size is taken off.
pub fn memory(bench: &Bench) {
    let known = objects(bench.scaled(1_000_000));
    let before = rss();
    let mut writer = Writer::new(());
    fill(&mut writer, &known);
    let bytes = (rss() - before) / known.len() as f64 - object_bytes();
    bench.check("objects in the store", writer.as_reader().len(), known.len());
    bench.report("store_bytes_per_key", bytes, "B");
}

/// What an object takes in an `Arc`: two counters before it, and a word of the allocator, in steps of 16 bytes.
pub fn object_bytes() -> f64 {
    (size_of::<Object>() + 16 + 8).next_multiple_of(16) as f64
}

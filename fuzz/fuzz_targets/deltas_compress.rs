//! What each compression makes of a key's deltas, against its rules, which are written down here once more and in
//! another way.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use delta_fifo::{Compression, Deleted, Delta, DeltaFifo, DeltaType};
use libfuzzer_sys::fuzz_target;

type D = Delta<u32, u8>;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Event {
    Add,
    Update,
    Delete,
    Tombstone,
    List,
    Unlist,
}

#[derive(Arbitrary, Debug)]
struct Input {
    emit_replaced: bool,
    events: Vec<Event>,
}

/// Everything that was reported and counts, with nothing merged.
fn reported(events: &[Event], emit_replaced: bool) -> Vec<D> {
    let mut all: Vec<D> = Vec::new();
    for (n, event) in (0..).zip(events) {
        // Before the first event the object exists, as the one numbered 1,000.
        let gone = all.last().is_some_and(Delta::is_deleted);
        let newest = all.last().and_then(Delta::object).cloned().unwrap_or(Arc::new(1_000));
        let tombstone = |object| {
            let unknown = delta_fifo::DeletedFinalStateUnknown { key: 0, object };
            Delta::Deleted(Deleted::FinalStateUnknown(Arc::new(unknown)))
        };
        all.push(match event {
            Event::Add => Delta::Added(n.into()),
            Event::Update => Delta::Updated(n.into()),
            Event::Delete => Delta::Deleted(Deleted::Observed(n.into())),
            Event::Tombstone => tombstone(None),
            Event::List if emit_replaced => Delta::Replaced(n.into()),
            Event::List => Delta::Sync(n.into()),
            // A list says nothing new of what is gone already.
            Event::Unlist if gone => continue,
            Event::Unlist => tombstone(Some(newest)),
        });
    }
    all
}

fn run(compression: Compression<u32, u8>, events: &[Event], emit_replaced: bool) -> Vec<D> {
    let fifo = DeltaFifo::<u32, u8>::builder_with_key_fn(|_: &u32| Ok::<_, &str>(0))
        .embedded_store()
        .emit_replaced(emit_replaced)
        .compression(compression)
        .build();
    fifo.add(1_000).unwrap();
    fifo.try_pop().unwrap().done();
    for (n, event) in (0..).zip(events) {
        match event {
            Event::Add => fifo.add(n).unwrap(),
            Event::Update => fifo.update(n).unwrap(),
            Event::Delete => fifo.delete(n).unwrap(),
            Event::Tombstone => fifo.delete_final_state_unknown(0, None),
            Event::List => fifo.replace(vec![n.into()]).unwrap(),
            Event::Unlist => fifo.replace(vec![]).unwrap(),
        }
    }
    fifo.try_pop().map(|mut claim| claim.take_deltas().into_iter().collect()).unwrap_or_default()
}

/// client-go's rule: of deletions in a row one stays, the first one that was seen, or else the last.
fn client_go(all: &[D]) -> Vec<D> {
    all.chunk_by(|a, b| a.is_deleted() && b.is_deleted())
        .map(|chunk| {
            let seen = chunk.iter().find(|delta| matches!(delta, Delta::Deleted(Deleted::Observed(_))));
            seen.or(chunk.last()).expect("a chunk is not empty").clone()
        })
        .collect()
}

fn says(kind: DeltaType) -> u8 {
    match kind {
        DeltaType::Sync => 0,
        DeltaType::Replaced => 1,
        DeltaType::Updated => 2,
        DeltaType::Added => 3,
        DeltaType::Deleted => 4,
    }
}

/// A life: changes with no deletion between them.
fn check_life(life: &[D], all: &[D]) {
    let [delta] = life else { panic!("a life is one delta, but is {life:?}") };
    let strongest = all.iter().map(|delta| says(delta.delta_type())).max();
    assert_eq!(delta.object(), all.last().and_then(Delta::object), "it is the newest state");
    assert_eq!(Some(says(delta.delta_type())), strongest, "under the type that says most");
}

fn check_keep_latest(all: &[D], kept: &[D]) {
    assert!(kept.len() <= 3, "{kept:?}");
    let deletions: Vec<usize> = (0..all.len()).filter(|i| all[*i].is_deleted()).collect();
    let (Some(first), Some(last)) = (deletions.first(), deletions.last()) else {
        if !all.is_empty() {
            check_life(kept, all);
        }
        return;
    };
    // The life before the first deletion, one deletion, and the life after the last one.
    let place = kept.iter().position(Delta::is_deleted).expect("a deletion is never hidden");
    assert_eq!(kept.iter().filter(|delta| delta.is_deleted()).count(), 1);
    match *first {
        0 => assert_eq!(place, 0),
        _ => check_life(&kept[..place], &all[..*first]),
    }
    match &all[last + 1..] {
        [] => assert_eq!(place + 1, kept.len()),
        after => check_life(&kept[place + 1..], after),
    }
}

fuzz_target!(|input: Input| {
    let events = &input.events[..input.events.len().min(200)];
    let all = reported(events, input.emit_replaced);
    let gathered = run(Compression::ClientGo, events, input.emit_replaced);
    assert_eq!(gathered, client_go(&all));
    check_keep_latest(&all, &run(Compression::KeepLatest, events, input.emit_replaced));
    // A custom function sees what client-go's rule gathers, and its answer is what comes out.
    let custom = Compression::Custom(Arc::new(|_: &u8, deltas: delta_fifo::Deltas<u32, u8>| {
        let mut deltas: Vec<D> = deltas.into_iter().collect();
        deltas.reverse();
        deltas.into()
    }));
    let mut reversed = run(custom, events, input.emit_replaced);
    reversed.reverse();
    assert_eq!(reversed, gathered);
});

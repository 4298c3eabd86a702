//! The fuzzer writes a script for each of three threads. Whatever they do to each other, at the end every update is
//! accounted for, in order, no key was claimed twice at a time, and nothing is stuck.

#![no_main]

#[path = "../../tests/stress/account.rs"]
mod account;

use std::num::NonZeroU32;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use account::{Account, Issued, Key, Object, Store};
use arbitrary::Arbitrary;
use delta_fifo::{Claim, Compression, DefaultHashBuilder, DeltaFifo};
use libfuzzer_sys::fuzz_target;

const KEYS: Key = 4;
const THREADS: usize = 3;

#[derive(Arbitrary, Debug)]
struct Input {
    embedded: bool,
    keep_latest: bool,
    two_lanes: bool,
    scripts: [Vec<Op>; THREADS],
}

#[derive(Arbitrary, Debug)]
enum Op {
    Update(u8),
    Delete(u8),
    Tombstone(u8),
    /// Only the first thread lists: lists of two sources have no order.
    Replace(u8),
    Resync,
    Pop,
    PopTwo,
    /// Claims are kept, so that other threads meet them.
    Done,
    Requeue,
    PopBriefly,
}

struct Run {
    fifo: DeltaFifo<Object, Key>,
    store: Arc<Store>,
    account: Account,
    issued: Vec<Vec<Issued>>,
}

type OneClaim<'q> = Claim<'q, Object, Key, DefaultHashBuilder>;

impl Run {
    fn update(&self, writer: usize, key: Key) -> Object {
        let issued = &self.issued[writer][key as usize];
        let object = issued.update(key, writer, 0);
        issued.confirm_update();
        object
    }

    fn done(&self, claim: OneClaim<'_>) {
        let key = *claim.key();
        let mut held = self.account.hold(key);
        held.check(claim.deltas());
        claim.deltas().iter().for_each(|delta| self.store.apply(key, delta));
        held.book(claim.deltas());
        drop(held);
        claim.done();
    }

    fn requeue(&self, claim: OneClaim<'_>) {
        let mut held = self.account.hold(*claim.key());
        held.check(claim.deltas());
        held.put_back(claim.deltas());
        drop(held);
        claim.requeue();
    }

    fn script(&self, thread: usize, ops: &[Op]) {
        let fifo = &self.fifo;
        let mut claims = Vec::new();
        for op in ops.iter().take(24) {
            match op {
                Op::Update(n) => {
                    let key = Key::from(*n) % KEYS;
                    fifo.update(self.update(thread, key)).unwrap();
                }
                Op::Delete(n) => {
                    let key = Key::from(*n) % KEYS;
                    fifo.delete(self.issued[thread][key as usize].delete(key, thread, 0)).unwrap();
                }
                Op::Tombstone(n) => {
                    let key = Key::from(*n) % KEYS;
                    // Counted like a delete: an update after it must not hide it.
                    let _ = self.issued[thread][key as usize].delete(key, thread, 0);
                    fifo.delete_final_state_unknown(key, None);
                }
                Op::Replace(keys) if thread == 0 => {
                    let listed = (0..KEYS).filter(|key| keys >> key & 1 == 1);
                    fifo.replace(listed.map(|key| Arc::new(self.update(THREADS, key))).collect()).unwrap();
                }
                Op::Replace(_) | Op::Resync => fifo.resync().unwrap(),
                Op::Pop => claims.extend(fifo.try_pop()),
                Op::PopTwo => claims.extend(fifo.try_pop_batch(2).into_iter().flatten()),
                Op::PopBriefly => claims.extend(fifo.pop_timeout(Duration::from_micros(20))),
                Op::Done => claims.pop().into_iter().for_each(|claim| self.done(claim)),
                Op::Requeue => claims.pop().into_iter().for_each(|claim| self.requeue(claim)),
            }
        }
        claims.into_iter().for_each(|claim| self.done(claim));
    }

    fn check(&self, keep_latest: bool, embedded: bool) {
        while let Ok(claim) = self.fifo.try_pop() {
            self.done(claim);
        }
        assert!(self.fifo.is_empty() && self.fifo.list_keys().is_empty());
        assert!(self.fifo.close_and_drain_timeout(Duration::from_secs(10)), "a claim is left");
        for key in 0..KEYS {
            let stored = if embedded { self.fifo.known_object(&key) } else { self.store.get(key) };
            assert_eq!(stored, self.account.state(key), "the store of key {key}");
            for (writer, issued) in self.issued.iter().enumerate().take(THREADS) {
                let issued = issued[key as usize].update.load(std::sync::atomic::Ordering::Relaxed);
                let delivered = self.account.last_update(key, writer);
                assert!(delivered == issued || keep_latest, "key {key}: {delivered} of {issued} updates of {writer}");
            }
        }
        let violations = self.account.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

fuzz_target!(|input: Input| {
    let store = Arc::new(Store::new(KEYS));
    let mut builder = DeltaFifo::builder_with_key_fn(|object: &Object| Ok::<_, &str>(object.key)).emit_replaced(true);
    builder = if input.embedded { builder.embedded_store() } else { builder.known_objects(store.clone()) };
    if input.keep_latest {
        builder = builder.compression(Compression::KeepLatest);
    }
    if input.two_lanes {
        builder = builder.background_share(NonZeroU32::MIN.saturating_add(1));
    }
    let run = Run {
        fifo: builder.shards(2).build(),
        store,
        account: Account::new(KEYS, THREADS + 1, THREADS, !input.keep_latest),
        issued: (0..=THREADS).map(|_| (0..KEYS).map(|_| Issued::default()).collect()).collect(),
    };
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for (thread, ops) in input.scripts.iter().enumerate() {
            let (run, start) = (&run, &start);
            scope.spawn(move || {
                start.wait();
                run.script(thread, ops);
            });
        }
    });
    run.check(input.keep_latest, input.embedded);
});

//! User code that runs in the middle of a Replace: the `Drop` of an object that the list replaces, of a key, and `Hash`.
//! One thread, so each of these runs at the same place every time.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::LocalKey;

use delta_fifo::{Builder, Compression, DeltaFifo};

type Hook = (u32, Box<dyn FnOnce()>);

thread_local! {
    /// Runs once, when the object of this version is dropped.
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    /// The key whose next drop, or hash, panics.
    static DROP_BOMB: Cell<u32> = const { Cell::new(0) };
    static HASH_BOMB: Cell<u32> = const { Cell::new(0) };
}

struct Object {
    id: u32,
    version: u32,
}

impl Drop for Object {
    fn drop(&mut self) {
        let hook = HOOK.with_borrow_mut(|hook| hook.take_if(|(version, _)| *version == self.version));
        if let Some((_, hook)) = hook {
            hook();
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if HASH_BOMB.get() == self.0 && self.0 != 0 {
            HASH_BOMB.set(0);
            resume_unwind(Box::new("hash"));
        }
        self.0.hash(state);
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if DROP_BOMB.get() == self.0 && self.0 != 0 && !std::thread::panicking() {
            DROP_BOMB.set(0);
            resume_unwind(Box::new("drop"));
        }
    }
}

fn obj(id: u32, version: u32) -> Arc<Object> {
    Arc::new(Object { id, version })
}

type Fifo = DeltaFifo<Object, Key>;

/// Compression lets a newer state replace a pending one, whose `Drop` then runs within the Replace.
fn builder() -> Builder<Object, Key> {
    DeltaFifo::builder_with_key_fn(|object: &Object| Ok::<_, &str>(Key(object.id)))
        .compression(Compression::KeepLatest)
        .shards(2)
        .idle_keys(0)
}

fn drain(fifo: &Fifo) -> Vec<(u32, bool)> {
    let mut seen = Vec::new();
    while let Ok(claim) = fifo.try_pop() {
        seen.push((claim.key().0, claim.deltas().newest().unwrap().is_deleted()));
    }
    seen
}

/// A key that is queued at the instant, and processed while the list goes in, existed and is gone now. (That the
/// instant was before is shown by key 9, which the list does not have either.)
fn a_key_that_is_processed_meanwhile(builder: Builder<Object, Key>) {
    let fifo = Rc::new(builder.build());
    fifo.add(obj(7, 70)).unwrap();
    fifo.add(obj(1, 10)).unwrap();
    let inner = fifo.clone();
    HOOK.set(Some((
        10,
        Box::new(move || {
            inner.add(obj(9, 90)).unwrap();
            assert_eq!(inner.try_pop().unwrap().key().0, 7);
        }),
    )));
    fifo.replace(vec![obj(1, 11)]).unwrap();
    let seen = drain(&fifo);
    assert!(seen.contains(&(9, false)), "the Replace came before key 9: {seen:?}");
    assert!(seen.contains(&(7, true)), "key 7 was queued when the Replace came, and gets no tombstone: {seen:?}");
}

#[test]
fn a_key_that_is_processed_meanwhile_gets_its_tombstone() {
    a_key_that_is_processed_meanwhile(builder());
}

#[test]
fn a_key_that_is_processed_meanwhile_gets_its_tombstone_embedded() {
    a_key_that_is_processed_meanwhile(builder().embedded_store());
}

/// A Replace of the keys 1 to 39 whose end panics: deletes that found nothing have left stamped slots for it to sweep,
/// and the code of one of their keys panics.
fn replace_that_panics(builder: Builder<Object, Key>, known: bool, bomb: &'static LocalKey<Cell<u32>>) -> Rc<Fifo> {
    let fifo = Rc::new(builder.build());
    if known {
        fifo.add(obj(500, 500)).unwrap();
        fifo.try_pop().unwrap().done();
    }
    let inner = fifo.clone();
    HOOK.set(Some((
        10,
        Box::new(move || {
            (900..910).for_each(|id| inner.delete(obj(id, 0)).unwrap());
            bomb.set(905);
        }),
    )));
    let mut list = vec![obj(1, 10), obj(1, 11)];
    list.extend((2..40).map(|id| obj(id, 10 * id + 5)));
    let outcome = catch_unwind(AssertUnwindSafe(|| fifo.replace(list).unwrap()));
    assert!(outcome.is_err(), "nothing of that key ran");
    bomb.set(0);
    drain(&fifo);
    fifo
}

/// The hasher is random, so is the shard in which the panic comes.
const TIMES: usize = 20;

#[test]
fn a_panic_at_the_end_of_a_replace_costs_the_next_one_nothing() {
    for bomb in [&DROP_BOMB, &HASH_BOMB] {
        for _ in 0..TIMES {
            let fifo = replace_that_panics(builder().embedded_store(), true, bomb);
            assert_eq!(fifo.known_keys().iter().filter(|key| key.0 < 40).count(), 39);
            fifo.replace(vec![]).unwrap();
            drain(&fifo);
            assert_eq!(fifo.known_keys(), [], "what the panic left behind hides deletions");
        }
    }
}

#[test]
fn a_panic_at_the_end_of_the_first_replace_does_not_keep_it_from_syncing() {
    for bomb in [&DROP_BOMB, &HASH_BOMB] {
        let fifo = replace_that_panics(builder(), false, bomb);
        assert!(fifo.has_synced(), "all of it was queued and processed");
    }
}

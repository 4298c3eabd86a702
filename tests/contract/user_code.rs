//! User code runs under no lock and no map guard (obligation 7): all of it calls back into the queue here, on the same
//! key. Under a guard that would hang; a debug build asserts it besides.

use std::cell::Cell;
use std::sync::{Arc, OnceLock, Weak};

use delta_fifo::{BoxError, Compression, DeltaFifo, Deltas, KnownObjects};

type Queue = DeltaFifo<Nosy, u32>;

/// What user code has: a way to the queue.
#[derive(Default)]
struct Home(OnceLock<Weak<Queue>>);

impl Home {
    /// Touches the queue in every way that takes a guard.
    fn call_back(&self, key: u32) {
        thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
        let Some(queue) = self.0.get().and_then(Weak::upgrade) else { return };
        if DEPTH.replace(1) == 0 {
            for k in [key, key + 1] {
                let _ = (queue.get(&k), queue.len(), queue.list_keys(), queue.known_object(&k));
            }
            queue.delete_final_state_unknown(1_000_000, None); // ignored, but it looks everywhere
            DEPTH.set(0);
        }
    }
}

/// An object whose drop calls back.
struct Nosy {
    key: u32,
    version: u32,
    home: Arc<Home>,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        self.home.call_back(self.key);
    }
}

struct NosyStore {
    home: Arc<Home>,
    objects: std::sync::Mutex<std::collections::BTreeMap<u32, Arc<Nosy>>>,
}

impl KnownObjects<Nosy, u32> for NosyStore {
    fn list_keys(&self) -> Vec<u32> {
        self.home.call_back(1);
        self.objects.lock().unwrap().keys().copied().collect()
    }

    fn get_by_key(&self, key: &u32) -> Result<Option<Arc<Nosy>>, BoxError> {
        if *key != 1_000_000 {
            self.home.call_back(*key);
        }
        Ok(self.objects.lock().unwrap().get(key).cloned())
    }
}

fn exercise(embedded: bool, compression: fn(&Arc<Home>) -> Compression<Nosy, u32>) {
    let home = Arc::new(Home::default());
    let (key_home, transform_home) = (home.clone(), home.clone());
    let store = Arc::new(NosyStore { home: home.clone(), objects: Default::default() });
    let builder = DeltaFifo::<Nosy, u32>::builder_with_key_fn(move |o: &Nosy| {
        key_home.call_back(o.key);
        Ok::<_, BoxError>(o.key)
    })
    .transform(move |o| {
        transform_home.call_back(o.key);
        Ok::<_, BoxError>(Arc::new(Nosy { key: o.key, version: o.version, home: o.home.clone() }))
    })
    .compression(compression(&home))
    .idle_keys(0);
    let queue = match embedded {
        true => builder.embedded_store().build(),
        false => builder.known_objects(store.clone()).build(),
    };
    let queue = Arc::new(queue);
    home.0.set(Arc::downgrade(&queue)).unwrap();

    let object = |key, version| Arc::new(Nosy { key, version, home: home.clone() });
    let consume = |requeue: bool| {
        while let Ok(claim) = queue.try_pop() {
            for delta in claim.deltas() {
                let applied = (!delta.is_deleted()).then(|| delta.object().unwrap().clone());
                let mut objects = store.objects.lock().unwrap();
                let old = match applied {
                    Some(object) => objects.insert(*claim.key(), object),
                    None => objects.remove(claim.key()),
                };
                drop(objects);
                drop(old);
            }
            if requeue {
                return claim.requeue();
            }
        }
    };
    for round in 0..3 {
        for key in 0..5 {
            queue.add(object(key, round)).unwrap();
            queue.update(object(key, round + 1)).unwrap();
            queue.update(object(key, round + 2)).unwrap();
        }
        queue.delete(object(3, 9)).unwrap();
        queue.delete(object(3, 10)).unwrap(); // merged: one of the two falls away
        queue.delete_final_state_unknown(3, Some(object(3, 11)));
        consume(true);
        let claim = queue.try_pop().unwrap();
        queue.delete(object(*claim.key(), 12)).unwrap();
        queue.update(object(*claim.key(), 13)).unwrap();
        claim.requeue();
        consume(false);
        queue.resync().unwrap();
        queue.replace((1..4).map(|key| object(key, 20)).collect()).unwrap();
        consume(false);
        queue.replace(vec![]).unwrap();
        consume(false);
    }
    assert!(queue.is_empty());
    assert!(store.objects.lock().unwrap().is_empty());
}

#[test]
fn user_code_may_use_the_queue_it_is_called_from() {
    for embedded in [true, false] {
        exercise(embedded, |_| Compression::ClientGo);
        exercise(embedded, |_| Compression::KeepLatest);
        exercise(embedded, |home| {
            let home = home.clone();
            Compression::Custom(Arc::new(move |key: &u32, deltas: Deltas<Nosy, u32>| {
                home.call_back(*key);
                deltas
            }))
        });
    }
}

#[test]
fn a_waker_may_use_the_queue_it_wakes_for() {
    struct NosyWaker(Arc<Queue>);
    impl std::task::Wake for NosyWaker {
        fn wake(self: Arc<Self>) {
            let _ = (self.0.get(&1), self.0.len(), self.0.list_keys());
        }
    }
    let queue = Arc::new(DeltaFifo::builder_with_key_fn(|o: &Nosy| Ok::<_, BoxError>(o.key)).build());
    let home = Arc::new(Home::default());
    let waker = Arc::new(NosyWaker(queue.clone())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut pop = Box::pin(queue.pop());
    assert!(std::future::Future::poll(pop.as_mut(), &mut cx).is_pending());
    queue.add(Nosy { key: 1, version: 1, home }).unwrap();
    assert!(std::future::Future::poll(pop.as_mut(), &mut cx).is_ready());
}

//! The informer of a model: the crate's queue, hand-over and barrier, a content that is a sorted list, and handlers that
//! check each event against what they know.

use std::future::Future;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use delta_fifo::informer::barrier::{Barrier, Bracket};
use delta_fifo::informer::hand_over::{Content, Door, Handlers, Work, Writers, turn};
use delta_fifo::{BoxError, Claim, Delta, DeltaFifo, KnownObjects};

use crate::check::{AtomicU32, block_on, thread};
use crate::world::{Fifo, Identity, KEYS, Obj, obj};

/// Keys and versions, sorted.
pub type Objects = Vec<(u32, u32)>;

fn find(objects: &Objects, key: u32) -> Option<u32> {
    objects.iter().find(|object| object.0 == key).map(|object| object.1)
}

fn set(objects: &mut Objects, key: u32, version: Option<u32>) {
    objects.retain(|object| object.0 != key);
    objects.extend(version.map(|version| (key, version)));
    objects.sort_unstable();
}

/// A key, what it was, and what it is.
pub type Told = (u32, Option<u32>, Option<u32>);

/// A handler: what it was shown first, and what it was told since, behind the crate's door.
pub struct Listener {
    view: Mutex<Objects>,
    buffer: Door<Vec<Told>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    fn new(shown: &Objects) -> Self {
        Listener { view: Mutex::new(shown.clone()), buffer: Door::new(Vec::new()) }
    }

    /// Looks at what it was told since. Each event must start from what the handler knows: one that comes twice, or
    /// out of order, or after one that was lost, does not.
    pub fn view(&self) -> Objects {
        let told = std::mem::take(&mut *self.buffer.lock());
        let mut view = self.view.lock().unwrap();
        for (key, old, new) in told {
            let known = find(&view, key);
            assert_eq!(known, old, "key {key}: the handler knows {known:?}, and is told of {old:?} to {new:?}");
            set(&mut view, key, new);
        }
        view.clone()
    }

    /// How many events wait.
    pub fn waiting(&self) -> usize {
        self.buffer.lock().len()
    }
}

/// The store: the crate's pointer and lock. It is what the queue knows objects by.
struct Store {
    content: Content<Objects>,
    writers: Writers<Listener>,
}

impl KnownObjects<Obj, u32> for Store {
    fn list_keys(&self) -> Vec<u32> {
        self.content.load_full().iter().map(|object| object.0).collect()
    }

    fn get_by_key(&self, key: &u32) -> Result<Option<Arc<Obj>>, BoxError> {
        Ok(find(&self.content.load_full(), *key).map(|version| obj(*key, version)))
    }
}

/// A queue, a store, its handlers and a barrier.
pub struct Informer {
    /// The queue.
    pub fifo: Arc<Fifo>,
    /// The barrier.
    pub barrier: Barrier<u32>,
    store: Arc<Store>,
    /// The newest version of each key that was applied. Relaxed: what the barrier promises has to hold by its own edges.
    applied: [AtomicU32; KEYS as usize],
    /// A version that cannot be applied, once.
    refused: Option<u32>,
}

impl std::fmt::Debug for Informer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Informer")
    }
}

impl Informer {
    /// With so many workers.
    pub fn new(workers: usize) -> Arc<Informer> {
        Informer::that_refuses(None, workers)
    }

    /// The same; `refused` is a version that cannot be applied.
    pub fn that_refuses(refused: Option<u32>, workers: usize) -> Arc<Informer> {
        let store = Arc::new(Store { content: Content::new(Vec::new()), writers: Writers::default() });
        let fifo = DeltaFifo::<Obj, u32>::builder_with_key_fn(|o: &Obj| Ok::<_, BoxError>(o.key))
            .hasher(BuildHasherDefault::<Identity>::default())
            .idle_keys(0)
            .emit_replaced(true)
            .known_objects(store.clone())
            .build();
        let applied = std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Informer { fifo: Arc::new(fifo), barrier: Barrier::new(workers), store, applied, refused })
    }

    /// Queues an object.
    pub fn put(&self, key: u32, version: u32) {
        self.fifo.update(Obj { key, version }).expect("the key function does not fail");
    }

    /// Queues a deletion.
    pub fn delete(&self, key: u32) {
        self.fifo.delete(Obj { key, version: 0 }).expect("the key function does not fail");
    }

    /// Claims up to `batch` keys at a time, until the queue is closed and empty.
    pub fn work(&self, worker: usize, batch: usize) {
        block_on(async {
            loop {
                let (claims, bracket) = self.barrier.claim(worker, self.fifo.pop_batch(batch)).await;
                let Ok(claims) = claims else { return self.barrier.close(bracket, std::iter::empty()) };
                turn(self, &self.barrier, bracket, claims).await;
            }
        });
    }

    /// Applies what is queued now, and does not sleep.
    pub fn work_queued(&self, worker: usize) {
        while self.work_one(worker) {}
    }

    /// Claims and applies one key, if there is one.
    pub fn work_one(&self, worker: usize) -> bool {
        block_on(async {
            let (claim, bracket) = self.barrier.claim(worker, async { self.fifo.try_pop() }).await;
            match claim {
                Ok(claim) => {
                    turn(self, &self.barrier, bracket, vec![claim]).await;
                    true
                }
                Err(_) => {
                    self.barrier.close(bracket, std::iter::empty());
                    false
                }
            }
        })
    }

    /// Adds a handler.
    pub fn register(&self) -> Arc<Listener> {
        self.store.writers.register(&self.store.content, Listener::new)
    }

    /// Removes a handler, as a handle does: out of the list, then its door is shut and what waits is dropped.
    pub fn remove(&self, listener: &Arc<Listener>) -> bool {
        let removed = self.store.writers.remove(listener);
        if removed {
            listener.buffer.shut().clear();
        }
        removed
    }

    /// How many handlers there are.
    pub fn handlers(&self) -> usize {
        self.store.writers.handlers().len()
    }

    /// What the store has.
    pub fn content(&self) -> Objects {
        Objects::clone(&self.store.content.load_full())
    }

    /// The newest version of a key that was applied, as far as this thread can see.
    pub fn applied(&self, key: u32) -> u32 {
        self.applied[key as usize].load(Ordering::Relaxed)
    }

    /// Waits for the barrier.
    pub fn is_reached(&self) -> bool {
        block_on(self.barrier.is_reached(&self.fifo))
    }

    /// After everything was applied: the store has `objects`, and so have the handlers.
    pub fn assert_settled(&self, objects: &[(u32, u32)], listeners: &[&Arc<Listener>]) {
        assert!(self.fifo.has_no_ticket(), "a ticket is left");
        assert_eq!(self.fifo.slots_len(), 0, "a slot is left");
        assert_eq!(self.content(), objects, "the store differs from what was queued");
        for listener in listeners {
            assert_eq!(listener.view(), objects, "a handler's view differs from the store");
        }
    }
}

type News = (Vec<Told>, Handlers<Listener>);

impl Work<Obj, u32, BuildHasherDefault<Identity>> for Informer {
    type News = News;

    /// What a worker of the informer does, with a content that is a list.
    fn apply(&self, claims: &[Claim<'_, Obj, u32, BuildHasherDefault<Identity>>], bracket: &Bracket) -> Vec<News> {
        let mut writing = self.store.writers.begin(&self.store.content);
        let mut next = Objects::clone(writing.base());
        let (mut told, mut applied) = (Vec::new(), Vec::new());
        for claim in claims {
            let key = *claim.key();
            for delta in claim.deltas() {
                let old = find(&next, key);
                let new = match delta {
                    Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) => Some(object.version),
                    Delta::Deleted(_) => None,
                    Delta::Sync(_) => continue,
                };
                if new.is_some() && new == self.refused && !matches!(delta, Delta::Replaced(_)) {
                    self.barrier.failed(bracket);
                    continue;
                }
                set(&mut next, key, new);
                told.push((key, old, new));
                applied.extend(new.map(|version| (key, version)));
            }
        }
        drop(writing.publish(next));
        let handlers = writing.done();
        for (key, version) in applied {
            self.applied[key as usize].store(version, Ordering::Relaxed);
        }
        vec![(told, handlers)]
    }

    fn tell(&self, (told, handlers): News) -> impl Future<Output = ()> + Send {
        for listener in handlers.iter() {
            for event in &told {
                if let Ok(mut buffer) = listener.buffer.enter() {
                    buffer.push(*event);
                }
            }
        }
        std::future::ready(())
    }
}

/// A thread of a model.
pub fn spawn_in<R: Send + 'static>(
    informer: &Arc<Informer>,
    body: impl FnOnce(&Informer) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let informer = informer.clone();
    thread::spawn(move || body(&informer))
}

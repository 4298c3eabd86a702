//! The hand-over between the store and the handlers: who is told of a write, and what a handler is shown that comes
//! late. Each change is part of what a handler is shown first or comes as an event, never both and never neither.
//!
//! ```text
//!  claim ─► Writers::begin ─► publish ─► done ─► tell the handlers of that instant ─► release
//!           the writers' lock ───────────────┘          (no lock)
//!  register: content and list, at one instant under the same lock
//! ```
//!
//! - The list of handlers lives in the writers' lock, so it is read at the instant of a write and at no other. A handler
//!   is listed under that lock too, with the content it finds there.
//! - The keys of a write stay claimed until the handlers are told ([`turn`]), so a key's events come in order.
//! - A handler's buffer is behind a [`Door`]. Who took the list before a removal may still tell; the door is shut then.
//!
//! Readers load the content's pointer and take no lock. The models compile this file as it is.

use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

use super::barrier::{Barrier, Bracket};
use crate::queue::Claim;
use crate::seeded::{self, Bug};
use crate::sync::{Loaded, Mutex, MutexGuard, Published};

/// The handlers there are at one instant.
pub type Handlers<H> = Arc<Vec<Arc<H>>>;

/// A content that readers load and nobody changes: the next one is published in its place, by a [`Writing`].
pub struct Content<S>(Published<S>);

impl<S> Content<S> {
    /// The first content.
    pub fn new(content: S) -> Self {
        Content(Published::new(Arc::new(content)))
    }

    /// To look at for a moment.
    #[cfg_attr(not(feature = "informer"), allow(dead_code))]
    #[inline]
    pub(crate) fn load(&self) -> Loaded<S> {
        self.0.load()
    }

    /// To keep.
    #[inline]
    pub fn load_full(&self) -> Arc<S> {
        self.0.load_full()
    }
}

/// The writers' lock of a content, and in it the handlers that are told of writes. Held for no user code and no drop of
/// a user's object.
pub struct Writers<H> {
    handlers: Mutex<Handlers<H>>,
}

impl<H> Default for Writers<H> {
    fn default() -> Self {
        Writers { handlers: Mutex::new(Arc::default()) }
    }
}

impl<H> Writers<H> {
    fn lock(&self) -> MutexGuard<'_, Handlers<H>> {
        // No user code runs under the lock, so a poisoned one guards nothing half done.
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a write: nobody else writes, and no handler comes or goes, until it is over.
    pub fn begin<'a, S>(&'a self, content: &'a Content<S>) -> Writing<'a, S, H> {
        let early_list = seeded::on(Bug::HandlersReadEarly).then(|| self.lock().clone());
        let early_base = seeded::on(Bug::WriteReadsEarly).then(|| content.load_full());
        let guard = self.lock();
        let told = early_list.unwrap_or_else(|| guard.clone());
        let base = early_base.unwrap_or_else(|| content.load_full());
        Writing { guard, told, base, content, writers: self }
    }

    /// Adds a handler that is made from the content of that moment: it is told of every write after it, and of none
    /// before.
    pub fn register<S>(&self, content: &Content<S>, make: impl FnOnce(&S) -> H) -> Arc<H> {
        let early = seeded::on(Bug::ReplayReadEarly).then(|| content.load_full());
        let mut writing = self.begin(content);
        let handler = Arc::new(make(early.as_ref().unwrap_or(&writing.base)));
        if seeded::on(Bug::RegisterInTwoSteps) {
            drop(writing);
            writing = self.begin(content);
        }
        let mut next = Vec::clone(&writing.guard);
        next.push(handler.clone());
        *writing.guard = Arc::new(next);
        handler
    }

    /// Takes a handler out; `false` if it was out already. Writes that begin later do not tell it. One that has begun
    /// may: shut its [`Door`] after this.
    pub fn remove(&self, handler: &Arc<H>) -> bool {
        let mut guard = self.lock();
        let left: Vec<_> = guard.iter().filter(|other| !Arc::ptr_eq(other, handler)).cloned().collect();
        if seeded::on(Bug::RemoveInTwoSteps) {
            drop(guard);
            guard = self.lock();
        }
        let removed = left.len() != guard.len();
        // The caller has the handler, the new list has the others: none is dropped under the lock.
        *guard = Arc::new(left);
        removed
    }

    /// The handlers there are now. Not for telling them of a write: by then there may be others.
    pub fn handlers(&self) -> Handlers<H> {
        self.lock().clone()
    }
}

/// A write under way: the writers' lock is held.
pub struct Writing<'a, S, H> {
    // First, so that nothing below is dropped under the lock.
    guard: MutexGuard<'a, Handlers<H>>,
    told: Handlers<H>,
    base: Arc<S>,
    content: &'a Content<S>,
    writers: &'a Writers<H>,
}

impl<S, H> Writing<'_, S, H> {
    /// The content to start from.
    pub fn base(&self) -> &Arc<S> {
        &self.base
    }

    /// Publishes the next content. Returns the one before, to be dropped after the write.
    pub fn publish(&mut self, next: S) -> Arc<S> {
        self.base = Arc::new(next);
        self.content.0.swap(self.base.clone())
    }

    /// The write is over. Returns the handlers to tell of it.
    pub fn done(self) -> Handlers<H> {
        let Writing { guard, told, writers, base, .. } = self;
        drop(guard);
        drop(base);
        if seeded::on(Bug::HandlersReadLate) { writers.handlers() } else { told }
    }
}

/// What is let in until it is shut: the buffer of a handler that may be removed.
pub struct Door<B> {
    behind: Mutex<Behind<B>>,
}

struct Behind<B> {
    shut: bool,
    buffer: B,
}

/// The buffer behind a [`Door`], locked.
pub struct Inside<'a, B>(MutexGuard<'a, Behind<B>>);

impl<B> Door<B> {
    /// An open door.
    pub fn new(buffer: B) -> Self {
        Door { behind: Mutex::new(Behind { shut: false, buffer }) }
    }

    /// The buffer, whether the door is shut or not.
    pub fn lock(&self) -> Inside<'_, B> {
        Inside(self.behind.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The buffer for one who brings something; as an error if the door is shut.
    pub fn enter(&self) -> Result<Inside<'_, B>, Inside<'_, B>> {
        let inside = self.lock();
        if inside.0.shut && !seeded::on(Bug::DoorStaysOpen) { Err(inside) } else { Ok(inside) }
    }

    /// Shuts the door: nothing comes in any more. Returns the buffer, with what is left in it.
    pub fn shut(&self) -> Inside<'_, B> {
        let mut inside = self.lock();
        inside.0.shut = true;
        inside
    }
}

impl<B> Deref for Inside<'_, B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0.buffer
    }
}

impl<B> DerefMut for Inside<'_, B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.0.buffer
    }
}

/// What a worker does with what it claims.
pub trait Work<T, K, S>: Sync
where
    K: Hash + Eq + Clone,
    S: BuildHasher + Clone,
{
    /// What the handlers are to be told, and which.
    type News: Send;

    /// Writes what the claims carry. What cannot be applied is counted with [`Barrier::failed`], which needs the bracket.
    fn apply(&self, claims: &[Claim<'_, T, K, S>], bracket: &Bracket) -> Vec<Self::News>;

    /// Tells the handlers.
    fn tell(&self, news: Self::News) -> impl Future<Output = ()> + Send;
}

/// From the claim to the release: applies, closes the bracket, tells, and only then lets the keys go.
pub async fn turn<T, K, S, W>(work: &W, barrier: &Barrier<K>, bracket: Bracket, claims: Vec<Claim<'_, T, K, S>>)
where
    T: Send + Sync,
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Clone + Send + Sync,
    W: Work<T, K, S>,
{
    let mut claims = claims;
    let news = if seeded::on(Bug::BracketClosesEarly) {
        let keys: Vec<K> = claims.iter().map(|claim| claim.key().clone()).collect();
        let late = bracket.again();
        barrier.close(bracket, keys.iter());
        work.apply(&claims, &late)
    } else {
        let news = work.apply(&claims, &bracket);
        barrier.close(bracket, claims.iter().map(Claim::key));
        news
    };
    if seeded::on(Bug::ToldAfterRelease) {
        claims.clear();
    }
    for one in news {
        work.tell(one).await;
    }
    drop(claims);
}

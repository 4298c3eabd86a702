//! From the queue to the store and on to the handlers: what a worker does with the keys it claims.
//!
//! A worker claims a batch of keys, makes one write of all their changes, and gives the events to the handlers' buffers;
//! then it releases the keys. So what a handler is told is in the store by then, events of a key come in order, and
//! no key is held while a handler runs.
//!
//! Who is told of a write, and why a handler that comes late misses nothing and gets nothing twice: see `hand_over`.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::consume_budget;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::barrier::Bracket;
use super::guard::{catch, contain};
use super::hand_over::{Handlers, Work, turn};
use super::pipeline::Pipeline;
use super::progress::Progress;
use super::reflector::Control;
use super::store::{Before, Op};
use super::{BackoffPolicy, Event, EventKind, Reason, ReflectorError, ResourceVersion, Store, Versioned};
use crate::delta::{Deleted, DeletedFinalStateUnknown, Delta};
use crate::key::BoxError;
use crate::queue::{Claim, DefaultHashBuilder, DeltaFifo};

/// How many keys a worker claims at a time. One write for all of them; more would hold keys for longer.
const BATCH: usize = 64;

/// How long a worker rests after the queue's custom compression panicked. The key is back in the queue then, at its
/// tail; if it panics each time, the others must not wait long for it.
const AFTER_PANIC: BackoffPolicy = BackoffPolicy {
    min: Duration::from_millis(10),
    max: Duration::from_millis(500),
    factor: 2.0,
    jitter: true,
    reset_after: Duration::from_secs(5),
};

/// Whether two states of a key are of one object.
pub(super) type SameObject<T> = Box<dyn Fn(&T, &T) -> bool + Send + Sync>;

/// What the tasks of an informer share.
pub(super) struct Core<T, K>
where
    K: Hash + Eq + Clone,
{
    pub(super) queue: Arc<DeltaFifo<T, K>>,
    pub(super) store: Arc<Store<T, K>>,
    /// The last round of Resync. A handler is in a round if its own `due_round` says so, a key is behind it if the
    /// store's note says so: nothing is decided by what happens to be true at delivery.
    pub(super) round: AtomicU64,
    pub(super) progress: Progress<K>,
    pub(super) control: Arc<Control>,
    pub(super) same_object: Option<SameObject<T>>,
}

/// Who is told.
#[derive(Clone, Copy)]
enum Audience {
    All,
    /// Those who asked for a Resync since round `.0`, up to round `.1`.
    Due(u64, u64),
    /// Those who ask for Resyncs at all: a list brought what is known already.
    Resyncing,
}

pub(super) struct Outgoing<T, K> {
    event: Event<T, K>,
    audience: Audience,
    initial: bool,
}

/// What handlers are to be told, and the handlers there were at the instant of the write.
type Applied<T, K> = (Vec<Outgoing<T, K>>, Handlers<Pipeline<T, K>>);

impl<T, K> Core<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    /// Claims and applies until the queue is closed and empty.
    pub(super) async fn work(&self, worker: usize) {
        let (mut batch, mut backoff) = (BATCH, Backoff::new(AFTER_PANIC));
        loop {
            let claimed = contain(self.progress.barrier.claim(worker, self.queue.pop_batch(batch))).await;
            let (claims, bracket) = match claimed {
                Ok(claimed) => claimed,
                Err(error) => {
                    // What was claimed is queued again, and nothing is missed. One at a time now, then more again, so
                    // that a key that panics each time takes few others with it.
                    batch = 1;
                    self.control.report(&ReflectorError::Compression(error));
                    sleep(backoff.next()).await;
                    continue;
                }
            };
            batch = (batch * 2).min(BATCH);
            let Ok(claims) = claims else {
                self.progress.barrier.close(bracket, std::iter::empty());
                return;
            };
            turn(self, &self.progress.barrier, bracket, claims).await;
            consume_budget().await;
        }
    }

    async fn deliver(&self, handlers: &[Arc<Pipeline<T, K>>], outgoing: Outgoing<T, K>) {
        let Outgoing { event, audience, initial } = outgoing;
        for handler in handlers {
            let admitted = match audience {
                Audience::All => true,
                Audience::Due(seen, round) => handler.is_due(seen, round),
                Audience::Resyncing => !handler.resync_period.is_zero(),
            };
            if admitted {
                handler.push(event.clone(), initial).await;
            }
        }
    }

    /// Writes what the claims carry, all at once; if that is refused, key by key, so that one bad object keeps nobody
    /// else back.
    fn apply_all(&self, claims: &[Claim<'_, T, K, DefaultHashBuilder>], bracket: &Bracket) -> Vec<Applied<T, K>> {
        match self.write(claims) {
            Ok(applied) => vec![applied],
            Err(error) if claims.len() == 1 => {
                self.not_applied(error, bracket);
                vec![]
            }
            Err(_) => {
                let one_by_one = claims.chunks(1).map(|claim| self.write(claim));
                one_by_one.filter_map(|result| result.map_err(|error| self.not_applied(error, bracket)).ok()).collect()
            }
        }
    }

    /// The store is behind now: only a list can tell what it missed.
    fn not_applied(&self, error: BoxError, bracket: &Bracket) {
        self.progress.barrier.failed(bracket);
        self.control.report(&ReflectorError::Apply(error));
        self.control.relist();
    }

    fn write(&self, claims: &[Claim<'_, T, K, DefaultHashBuilder>]) -> Result<Applied<T, K>, BoxError> {
        // Acquire: whoever reads a round sees which handlers are in it.
        let round = self.round.load(Ordering::Acquire);
        let mut ops = Vec::with_capacity(claims.len());
        for claim in claims {
            for delta in claim.deltas() {
                let key = claim.key().clone();
                ops.push(match delta {
                    Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) => {
                        Op::Put(key, object.clone())
                    }
                    Delta::Sync(_) => Op::Touch(key),
                    Delta::Deleted(_) => Op::Remove(key),
                });
            }
        }
        let (before, handlers) = catch(|| Ok(self.store.write(ops, round, ResourceVersion::UNSET)?))?;
        let mut events = Vec::with_capacity(before.len());
        let deltas = claims.iter().flat_map(|claim| claim.deltas().iter().map(move |delta| (claim, delta)));
        for ((claim, delta), before) in deltas.zip(before) {
            let reported = catch(|| {
                self.events_of(claim, delta, before, round, &mut events);
                Ok(())
            });
            if let Err(error) = reported {
                // The store has it, the handlers do not: `same_object` or a version function panicked.
                self.control.report(&ReflectorError::Apply(error));
            }
        }
        Ok((events, handlers))
    }

    /// What a delta means, given what the store had. Rule E5.
    fn events_of(
        &self,
        claim: &Claim<'_, T, K, DefaultHashBuilder>,
        delta: &Delta<T, K>,
        before: Before<T>,
        round: u64,
        events: &mut Vec<Outgoing<T, K>>,
    ) {
        let initial = claim.is_initial();
        let mut audience = Audience::All;
        let mut push = |kind, reason, audience| {
            let event = Event { key: claim.key().clone(), kind, reason, attempt: 1 };
            events.push(Outgoing { event, audience, initial });
        };
        let reason = match delta {
            Delta::Added(_) | Delta::Updated(_) | Delta::Deleted(Deleted::Observed(_)) => Reason::Watch,
            Delta::Replaced(_) | Delta::Deleted(Deleted::FinalStateUnknown(_)) => Reason::Relist,
            Delta::Sync(_) => Reason::Resync,
        };
        match (delta, before.object) {
            (Delta::Deleted(deleted), old) => push(EventKind::Deleted(with_last_state(deleted, old)), reason, audience),
            // Gone in the meantime.
            (Delta::Sync(_), None) => {}
            (Delta::Sync(_), Some(object)) => {
                let kind = EventKind::Updated { old: object.clone(), new: object };
                push(kind, reason, Audience::Due(before.round, round));
            }
            (Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object), None) => {
                push(EventKind::Added { object: object.clone(), initial }, reason, audience);
            }
            (Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object), Some(old)) => {
                if let Some(same) = &self.same_object
                    && !same(&old, object)
                {
                    let tombstone = DeletedFinalStateUnknown { key: claim.key().clone(), object: Some(old) };
                    let gone = Deleted::FinalStateUnknown(Arc::new(tombstone));
                    push(EventKind::Deleted(gone), reason, audience);
                    push(EventKind::Added { object: object.clone(), initial }, reason, audience);
                    return;
                }
                if matches!(delta, Delta::Replaced(_)) {
                    let (was, is) = (old.resource_version(), object.resource_version());
                    if was == is && !is.is_unset() {
                        audience = Audience::Resyncing;
                    }
                }
                push(EventKind::Updated { old, new: object.clone() }, reason, audience);
            }
        }
    }
}

impl<T, K> Work<T, K, DefaultHashBuilder> for Core<T, K>
where
    T: Versioned + Send + Sync + 'static,
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    type News = Applied<T, K>;

    fn apply(&self, claims: &[Claim<'_, T, K, DefaultHashBuilder>], bracket: &Bracket) -> Vec<Applied<T, K>> {
        catch(|| Ok(self.apply_all(claims, bracket))).unwrap_or_else(|error| {
            self.not_applied(error, bracket);
            vec![]
        })
    }

    async fn tell(&self, (events, handlers): Applied<T, K>) {
        for outgoing in events {
            self.deliver(&handlers, outgoing).await;
            // While there is something to do nothing here waits: let the reflector and the handlers run too.
            consume_budget().await;
        }
    }
}

/// A tombstone without an object gets the store's.
fn with_last_state<T, K: Clone>(deleted: &Deleted<T, K>, old: Option<Arc<T>>) -> Deleted<T, K> {
    match deleted {
        Deleted::FinalStateUnknown(tombstone) if tombstone.object.is_none() && old.is_some() => {
            let key = tombstone.key.clone();
            Deleted::FinalStateUnknown(Arc::new(DeletedFinalStateUnknown { key, object: old }))
        }
        deleted => deleted.clone(),
    }
}

//! The state machine of a key. One slot per key lives in the sharded table; every transition runs under the write
//! guard of its shard, in this file, and returns what the caller now has to do.
//!
//! The idea is a task's state in an async runtime: a task is scheduled, running, both or neither, and a wake-up of a
//! running task is answered by its runner. Here a key is queued, claimed, claimed and dirty, or idle.
//!
//! # States
//!
//! | state | ticket in the order queue | pending deltas | who acts next |
//! |---|---|---|---|
//! | absent (no slot) | no | none | a producer |
//! | idle (slot without a flag) | no | none | a producer; a release, a Resync or a Replace may remove it |
//! | `QUEUED` | exactly one live | at least one | the consumer that pops the ticket |
//! | `CLAIMED` | no | none | the owner of the claim: release |
//! | `CLAIMED`, dirty | no | at least one | the owner of the claim: its release queues the key |
//! | `RESYNCING` | no | none | the Resync that reserved it, or any producer, who takes it over |
//!
//! ```text
//!              append                 claim                  release (clean)
//!   absent ───────────────► QUEUED ───────────► CLAIMED ───────────────────────► absent or idle
//!     │                       ▲                  │   ▲ append: dirty
//!     │ reserve               │ release (dirty)  │   │
//!     ▼            append     │ requeue          ▼   │
//!   RESYNCING ────────────────┴──────────────── CLAIMED, dirty
//! ```
//!
//! # Invariants
//!
//! - **I1** A slot is `QUEUED` exactly while one live ticket of its key is in the order queue or in the hands of the
//!   consumer that has just popped it. (A ticket of the background lane is live while its number is the slot's.)
//! - **I2** `CLAIMED` is set exactly while one [`Claim`](crate::Claim) of the key lives. It is the lock on processing
//!   the key; nobody but its owner takes the key's deltas or writes its known object.
//! - **I3** At most one of `QUEUED`, `CLAIMED`, `RESYNCING` is set. `QUEUED` means that `pending` is not empty,
//!   `RESYNCING` and idle mean that it is.
//! - **I4** `pending` holds the deltas in the order of their calls, compressed by the queue's rule. Requeued deltas
//!   stand before newer ones.
//! - **I5** While `CLAIMED`, `in_flight` is the newest object that the claim carries, and `IN_FLIGHT_DELETED` says
//!   that it is gone: what is in flight counts as existing, or as gone.
//! - **I6** `stamp` is the largest epoch that a producer read in an append (or in a delete that found nothing). It
//!   outlives the claim while a Replace of that epoch runs.
//! - **I7** `INITIAL_PENDING` and `INITIAL_CLAIMED` each stand for one count of [`Synced`](super::synced::Synced).
//! - **I8** In embedded mode `known` is the newest object of the last claim that was released. Else it is `None`.
//!
//! # Who may touch what
//!
//! The guard of the shard is needed for every field; there is no other access. User objects never drop here: what
//! falls out of a slot is returned in a [`Garbage`], which the caller drops after the guard.

use std::sync::Arc;

use crate::compress::AppendRule;
use crate::delta::{Delta, Deltas};
use crate::seeded::{self, Bug};

const QUEUED: u8 = 1;
const CLAIMED: u8 = 1 << 1;
const RESYNCING: u8 = 1 << 2;
/// The newest delta of the claim is a deletion (I5).
const IN_FLIGHT_DELETED: u8 = 1 << 3;
/// A pending delta is one of the first Replace (I7).
const INITIAL_PENDING: u8 = 1 << 4;
/// The claim carries a delta of the first Replace (I7).
const INITIAL_CLAIMED: u8 = 1 << 5;
/// The working memory is counted in the reserve and stays when the key is idle.
const RESERVED: u8 = 1 << 6;

/// What the table holds for a key. Small, because an idle known key pays for it.
pub(super) struct Slot<T, K> {
    known: Option<Arc<T>>,
    busy: Option<Box<Busy<T, K>>>,
}

/// The working memory of a key that is not merely known.
struct Busy<T, K> {
    pending: Deltas<T, K>,
    in_flight: Option<Arc<T>>,
    stamp: u64,
    /// While `QUEUED` the number of the live ticket, while `RESYNCING` that of the Resync.
    number: u64,
    flags: u8,
}

/// What fell out of a slot. It is dropped after the guard, because it may run a user's `Drop`.
#[must_use = "dropped here, a user's Drop would run under the guard"]
pub(super) struct Garbage<T, K> {
    pub(super) deltas: Deltas<T, K>,
    pub(super) objects: [Option<Arc<T>>; 2],
}

impl<T, K> Garbage<T, K> {
    pub(super) const fn new() -> Self {
        Garbage { deltas: Deltas::new(), objects: [None, None] }
    }
}

/// The duty after an append.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Append {
    /// Push one ticket with this number while the guard is held (I1), wake a consumer after it.
    PushTicket,
    /// The key's ticket moves from the background lane to the front: push one, count the old one as stale, wake.
    Promote,
    /// The key has its ticket already.
    AlreadyQueued,
    /// The owner of the claim will queue the key.
    OwnerWillRequeue,
}

/// The duty after a release.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The key is dirty: push one ticket and wake a consumer.
    Requeue,
    /// Nothing to do: the slot stays, idle.
    Keep,
    /// Remove the slot.
    Remove,
}

/// Whether a key's object exists, as far as its slot knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Existence<T> {
    /// It exists; this is the newest state, if there is one.
    Live(Option<Arc<T>>),
    /// Its newest delta is a deletion.
    Gone {
        /// That delta is still pending, so another one may be merged into it.
        pending: bool,
    },
    /// The slot says nothing: ask known objects.
    Unknown,
}

/// How one append is done.
#[derive(Clone, Copy)]
pub(super) struct AppendMode {
    pub(super) rule: AppendRule,
    /// The epoch to stamp the slot with; 0 for what Replace and Resync append.
    pub(super) stamp: u64,
    /// The number for the ticket, if one is to be pushed; not 0 in the background lane.
    pub(super) number: u64,
    /// Whether a key that waits in the background is moved to the front.
    pub(super) promote: bool,
}

/// What a claim takes out of a slot.
pub(super) struct Taken<T, K> {
    pub(super) deltas: Deltas<T, K>,
    pub(super) initial: bool,
}

/// What decides whether an idle slot stays.
#[derive(Clone, Copy)]
pub(super) struct Retention<'a> {
    /// Known objects are kept in the slots.
    pub(super) embedded: bool,
    /// The epoch, read under the guard.
    pub(super) epoch: u64,
    pub(super) reserve: &'a super::reserve::Reserve,
}

impl<T, K> Slot<T, K> {
    pub(super) const fn new() -> Self {
        Slot { known: None, busy: None }
    }

    fn flags(&self) -> u8 {
        self.busy.as_ref().map_or(0, |busy| busy.flags)
    }

    fn is(&self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    fn busy_mut(&mut self) -> &mut Busy<T, K> {
        self.busy.get_or_insert_with(|| {
            Box::new(Busy { pending: Deltas::new(), in_flight: None, stamp: 0, number: 0, flags: 0 })
        })
    }

    fn claimed_mut(&mut self) -> &mut Busy<T, K> {
        match &mut self.busy {
            Some(busy) if busy.flags & CLAIMED != 0 => busy,
            _ => panic!("I2: a key is released that is not claimed"),
        }
    }

    /// The object this queue has processed last (embedded mode).
    pub(super) fn known(&self) -> Option<&Arc<T>> {
        self.known.as_ref()
    }

    /// The deltas that a claim would take.
    pub(super) fn pending(&self) -> Option<&Deltas<T, K>> {
        self.busy.as_ref().map(|busy| &busy.pending).filter(|pending| !pending.is_empty())
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.is(CLAIMED)
    }

    /// Queued or claimed: something of this key is still to be processed.
    pub(super) fn is_busy(&self) -> bool {
        self.is(QUEUED | CLAIMED)
    }

    /// Whether a producer stamped the key at or past `epoch` (I6).
    pub(super) fn is_stamped_since(&self, epoch: u64) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.stamp >= epoch)
    }

    /// What the slot knows of the object: queued, then in flight, then (embedded) known.
    pub(super) fn existence(&self) -> Existence<T> {
        if let Some(busy) = &self.busy {
            if let Some(newest) = busy.pending.newest() {
                return match newest.is_deleted() {
                    true => Existence::Gone { pending: true },
                    false => Existence::Live(newest.object().cloned()),
                };
            }
            if busy.flags & CLAIMED != 0 && !seeded::on(Bug::DeleteSkipsClaimed) {
                return match busy.flags & IN_FLIGHT_DELETED != 0 && !seeded::on(Bug::ReplaceDeletesTwice) {
                    true => Existence::Gone { pending: false },
                    false => Existence::Live(busy.in_flight.clone()),
                };
            }
        }
        match &self.known {
            Some(known) => Existence::Live(Some(known.clone())),
            None => Existence::Unknown,
        }
    }

    /// Whether an append of `delta` would make a key pending, and whether it would add a delta: what the limits count.
    pub(super) fn growth(&self, rule: AppendRule, delta: &Delta<T, K>) -> (bool, bool) {
        match self.pending() {
            None => (true, true),
            Some(pending) => (false, rule.grows(pending, delta)),
        }
    }

    // ----- transitions -----

    /// absent, idle, RESYNCING -> QUEUED; QUEUED stays; CLAIMED becomes dirty.
    #[inline]
    pub(super) fn transition_to_queued(
        &mut self,
        delta: Delta<T, K>,
        mode: AppendMode,
        garbage: &mut Garbage<T, K>,
        buffer: impl FnOnce() -> Vec<Delta<T, K>>,
    ) -> Append {
        let busy = self.busy_mut();
        if !seeded::on(Bug::AppendNoStamp) {
            busy.stamp = busy.stamp.max(mode.stamp);
        }
        let trusts = seeded::on(Bug::AppendTrustsReservation) && !matches!(delta, Delta::Sync(_));
        mode.rule.append(&mut busy.pending, delta, &mut garbage.deltas, buffer);
        if busy.flags & CLAIMED != 0 {
            return if seeded::on(Bug::AppendTicketWhenClaimed) {
                Append::PushTicket
            } else {
                Append::OwnerWillRequeue
            };
        }
        if busy.flags & QUEUED != 0 {
            if mode.promote && busy.number != 0 {
                if !seeded::on(Bug::PromoteKeepsOldTicket) {
                    busy.number = 0;
                }
                return Append::Promote;
            }
            return if seeded::on(Bug::AppendAlwaysTicket) { Append::PushTicket } else { Append::AlreadyQueued };
        }
        if trusts && busy.flags & RESYNCING != 0 {
            return Append::OwnerWillRequeue;
        }
        // A Resync that reserved the key finds it taken over (its number no longer counts).
        busy.flags = busy.flags & !RESYNCING | QUEUED;
        busy.number = mode.number;
        Append::PushTicket
    }

    /// QUEUED -> CLAIMED, or `None` for a ticket that is no longer live (a key that was promoted).
    #[inline]
    pub(super) fn transition_to_claimed(&mut self, number: u64) -> Option<Taken<T, K>> {
        let busy = self.busy.as_mut().filter(|busy| busy.flags & QUEUED != 0 && busy.number == number)?;
        let mut deltas = std::mem::take(&mut busy.pending);
        assert!(!deltas.is_empty(), "I3: a queued key has deltas");
        if seeded::on(Bug::ClaimReversesDeltas) {
            let mut reversed: Vec<_> = deltas.into_iter().collect();
            reversed.reverse();
            deltas = reversed.into();
        }
        let newest = deltas.newest();
        let deleted = newest.is_some_and(Delta::is_deleted);
        busy.in_flight = newest.filter(|_| !seeded::on(Bug::ClaimForgetsNewest)).and_then(Delta::object).cloned();
        let initial = busy.flags & INITIAL_PENDING != 0;
        busy.flags = busy.flags & (RESERVED | INITIAL_CLAIMED) | CLAIMED;
        if deleted {
            busy.flags |= IN_FLIGHT_DELETED;
        }
        if initial {
            busy.flags |= INITIAL_CLAIMED;
        }
        Some(Taken { deltas, initial })
    }

    /// CLAIMED -> QUEUED if it is dirty, else idle or gone. The flag says whether the claim was an initial one.
    #[inline]
    pub(super) fn transition_to_released(
        &mut self,
        retention: Retention<'_>,
        garbage: &mut Garbage<T, K>,
    ) -> (Release, bool) {
        let busy = self.claimed_mut();
        let initial = busy.flags & INITIAL_CLAIMED != 0;
        let deleted = busy.flags & IN_FLIGHT_DELETED != 0;
        busy.flags &= RESERVED | INITIAL_PENDING;
        let in_flight = busy.in_flight.take();
        let dirty = !busy.pending.is_empty();
        if (dirty || seeded::on(Bug::ReleaseAlwaysRequeue)) && !seeded::on(Bug::ReleaseDropsDirty) {
            busy.flags |= QUEUED;
            busy.number = 0;
        }
        let requeue = busy.flags & QUEUED != 0;
        garbage.objects = match (retention.embedded, deleted) {
            (true, false) => [std::mem::replace(&mut self.known, in_flight), None],
            (true, true) => [self.known.take(), in_flight],
            (false, _) => [in_flight, None],
        };
        if requeue {
            return (Release::Requeue, initial);
        }
        (self.retire(retention, deleted), initial)
    }

    /// CLAIMED -> QUEUED, with `deltas` in front of what is pending (I4). `false`: there was nothing to put back and
    /// nothing pending, the caller has to release instead.
    pub(super) fn transition_to_requeued(
        &mut self,
        deltas: Deltas<T, K>,
        rule: AppendRule,
        garbage: &mut Garbage<T, K>,
    ) -> Requeue {
        let busy = self.claimed_mut();
        if deltas.is_empty() {
            return Requeue::Nothing;
        }
        let newer = std::mem::replace(&mut busy.pending, deltas);
        if seeded::on(Bug::RequeueBehindNewer) {
            let older = std::mem::replace(&mut busy.pending, newer);
            for delta in older {
                rule.append(&mut busy.pending, delta, &mut garbage.deltas, Vec::new);
            }
        } else if !seeded::on(Bug::RequeueLosesDeltas) {
            for delta in newer {
                rule.append(&mut busy.pending, delta, &mut garbage.deltas, || Vec::with_capacity(4));
            }
        }
        garbage.objects[0] = busy.in_flight.take();
        // Two counts become one where the newer deltas were initial as well (I7).
        let both = INITIAL_CLAIMED | INITIAL_PENDING;
        let merged = busy.flags & both == both;
        let initial = busy.flags & both != 0;
        busy.flags = busy.flags & RESERVED | QUEUED;
        if initial {
            busy.flags |= INITIAL_PENDING;
        }
        busy.number = 0;
        Requeue::PushTicket { merged_initial: merged }
    }

    /// Tags what is queued or claimed of this key as part of the first Replace (I7). `true` if it has to be counted.
    pub(super) fn tag_initial(&mut self) -> bool {
        let Some(busy) = self.busy.as_mut() else { return false };
        let tag = match (busy.pending.is_empty(), busy.flags & CLAIMED != 0) {
            (false, _) => INITIAL_PENDING,
            (true, true) => INITIAL_CLAIMED,
            (true, false) => return false,
        };
        let new = busy.flags & tag == 0;
        busy.flags |= tag;
        new
    }

    /// A delete found nothing: leaves the epoch behind, so that a running Replace does not bring the key back (I6).
    pub(super) fn stamp(&mut self, epoch: u64) {
        let busy = self.busy_mut();
        busy.stamp = busy.stamp.max(epoch);
    }

    /// absent, idle -> RESYNCING. `false` if the key is busy: it gets no Sync.
    pub(super) fn transition_to_resyncing(&mut self, number: u64) -> bool {
        if self.is_busy() {
            return false;
        }
        let busy = self.busy_mut();
        busy.flags |= RESYNCING;
        busy.number = number;
        true
    }

    /// absent, idle -> RESYNCING for a delete, which has just seen that the key is not busy. A reservation that is
    /// there already is shared: two deletes that took the key from each other could go on doing so for ever. Returns
    /// the number that counts.
    pub(super) fn reserve(&mut self, number: u64) -> u64 {
        if !self.is(RESYNCING) {
            let reserved = self.transition_to_resyncing(number);
            debug_assert!(reserved, "a busy slot says whether its object exists");
        }
        self.busy_mut().number
    }

    /// Whether the Resync `number` still holds the key.
    pub(super) fn is_resyncing(&self, number: u64) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.flags & RESYNCING != 0 && busy.number == number)
    }

    /// RESYNCING -> idle or gone, if the Resync `number` still holds it.
    pub(super) fn transition_from_resyncing(&mut self, number: u64, retention: Retention<'_>) -> Release {
        if !self.is_resyncing(number) {
            return Release::Keep;
        }
        self.busy_mut().flags &= !RESYNCING;
        // Most often the object was gone. A key that does exist loses no more than its place in the reserve.
        self.retire(retention, !seeded::on(Bug::ReservationTakesReserve))
    }

    /// Idle, and here only because a Replace was running.
    pub(super) fn is_left_over(&self) -> bool {
        match &self.busy {
            Some(busy) => busy.flags & (QUEUED | CLAIMED | RESYNCING | RESERVED) == 0,
            None => self.known.is_none(),
        }
    }

    /// What becomes of an idle slot: a busy one is left alone.
    #[inline]
    pub(super) fn retire(&mut self, retention: Retention<'_>, deleted: bool) -> Release {
        let Some(busy) = self.busy.as_mut() else {
            return if self.known.is_some() { Release::Keep } else { Release::Remove };
        };
        if busy.flags & (QUEUED | CLAIMED | RESYNCING) != 0 {
            return Release::Keep;
        }
        // A running Replace (odd epoch) must find the stamp (I6); it sweeps the slot at its end.
        let stamped = retention.epoch % 2 == 1 && busy.stamp >= retention.epoch;
        let wanted = !deleted || self.known.is_some();
        if stamped && !seeded::on(Bug::ReleaseDropsStamped) {
            // The sweep leaves reserved slots alone, so one that will not be wanted then gives its place back now.
            if !wanted && busy.flags & RESERVED != 0 && !seeded::on(Bug::ReleaseKeepsReserve) {
                busy.flags &= !RESERVED;
                retention.reserve.give_back();
            }
            return Release::Keep;
        }
        if busy.flags & RESERVED != 0 {
            if wanted {
                return Release::Keep;
            }
            retention.reserve.give_back();
        } else if wanted && retention.reserve.take() {
            busy.flags |= RESERVED;
            return Release::Keep;
        }
        // No user object is left in it (I3, I5), so it may drop under the guard.
        self.busy = None;
        if self.known.is_some() { Release::Keep } else { Release::Remove }
    }
}

/// The duty after a requeue.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requeue {
    /// Push one ticket and wake a consumer; count one initial key less if two became one.
    PushTicket {
        /// See [`Slot::transition_to_requeued`].
        merged_initial: bool,
    },
    /// There is nothing to put back: release instead.
    Nothing,
}

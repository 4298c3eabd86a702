//! Limits: how many keys and deltas may be pending, and the producers that wait for room.
//!
//! The counts are kept only in a queue that has a limit. They change under the slot's guard, so a limit is never
//! exceeded by a producer. What comes back from a consumer (requeue) and what a Replace or a Resync brings is counted
//! but not refused: the first is already paid for in memory, the second is all or nothing.

use crate::seeded::{self, Bug};
use crate::sync::{AtomicUsize, Event, Ordering};

/// Limits on what may be pending, that is queued or waiting behind a claim. `None` is no limit; a limit of 0 lets nothing
/// in until the queue is closed.
///
/// ```
/// use delta_fifo::Limits;
///
/// let limits = Limits { keys: Some(10_000), deltas: Some(100_000) };
/// assert_eq!(Limits::default(), Limits { keys: None, deltas: None });
/// # let _ = limits;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most keys with pending deltas. A further delta of a pending key needs no room.
    pub keys: Option<usize>,
    /// The most pending deltas of all keys together. A delta that is merged into an older one needs no room.
    pub deltas: Option<usize>,
}

impl Limits {
    /// Whether nothing is limited.
    fn is_unlimited(&self) -> bool {
        self.keys.is_none() && self.deltas.is_none()
    }
}

pub(crate) struct Room {
    limits: Limits,
    keys: AtomicUsize,
    deltas: AtomicUsize,
    event: Event,
}

/// Takes one of `limit`, all or nothing.
fn take_one(count: &AtomicUsize, limit: Option<usize>) -> bool {
    let Some(limit) = limit else { return true };
    if seeded::on(Bug::LimitCheckThenAct) {
        if count.load(Ordering::Relaxed) >= limit {
            return false;
        }
        count.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    // Relaxed: the count guards no data, and the compare-exchange keeps it within the limit.
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1)).is_ok()
}

impl Room {
    pub(super) fn new(limits: Limits) -> Self {
        Room { limits, keys: AtomicUsize::new(0), deltas: AtomicUsize::new(0), event: Event::new() }
    }

    #[inline]
    pub(super) fn is_unlimited(&self) -> bool {
        self.limits.is_unlimited()
    }

    /// Room for a delta that makes a key pending (or not) and adds to the deltas (or not). Under the slot's guard.
    pub(super) fn take(&self, new_key: bool, new_delta: bool) -> bool {
        if new_key && !take_one(&self.keys, self.limits.keys) {
            return false;
        }
        if new_delta && !take_one(&self.deltas, self.limits.deltas) {
            if new_key && self.limits.keys.is_some() {
                self.keys.fetch_sub(1, Ordering::Relaxed); // Relaxed: as in `take_one`.
            }
            return false;
        }
        true
    }

    /// Counts without asking. Under the slot's guard.
    pub(super) fn force(&self, new_key: bool, new_deltas: usize) {
        // Relaxed: as in `take_one`.
        if new_key && self.limits.keys.is_some() {
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
        if new_deltas > 0 && self.limits.deltas.is_some() {
            self.deltas.fetch_add(new_deltas, Ordering::Relaxed);
        }
    }

    /// A key's deltas were taken. Under the slot's guard; [`notify`](Self::notify) comes after it.
    pub(super) fn give_back(&self, key: bool, deltas: usize) {
        // Relaxed: as in `take_one`. A waiting producer sees it by the fence in the event (E3 in `queue/mod.rs`).
        if key && self.limits.keys.is_some() {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
        if deltas > 0 && self.limits.deltas.is_some() {
            self.deltas.fetch_sub(deltas, Ordering::Relaxed);
        }
    }

    /// Wakes every producer that waits. Not as many as there is room for: one that turns out to need none, or
    /// something else than what there is, would use up a wake-up that another one needs.
    pub(super) fn notify(&self) {
        if seeded::on(Bug::RoomNoNotify) {
            return;
        }
        let producers = if seeded::on(Bug::RoomNotifyOne) { 1 } else { usize::MAX };
        self.event.notify_additional(producers);
    }

    /// Whether anything at all fits, for the calls that go in as a whole.
    pub(super) fn has_room(&self) -> bool {
        // Relaxed: as in `take_one`.
        self.limits.keys.is_none_or(|limit| self.keys.load(Ordering::Relaxed) < limit)
            && self.limits.deltas.is_none_or(|limit| self.deltas.load(Ordering::Relaxed) < limit)
    }

    /// Gives the room for one key and one delta back, should its taker unwind before it is used.
    pub(super) fn give_back_on_unwind(&self) -> GiveBack<'_> {
        GiveBack(self)
    }

    /// Where producers register that wait for room.
    pub(super) fn event(&self) -> &Event {
        &self.event
    }
}

/// See [`Room::give_back_on_unwind`]. Forgotten where the room is used.
pub(super) struct GiveBack<'a>(&'a Room);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.0.give_back(true, 1);
        // Nothing may be pending that would wake a producer who was refused meanwhile.
        self.0.notify();
    }
}

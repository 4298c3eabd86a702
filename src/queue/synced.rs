//! "The first list has been processed": the count behind `has_synced`.
//!
//! The count starts at one, the guard. The first mutating call populates the queue: an add, update or delete takes the
//! guard away at once (the initial batch is empty), the first Replace takes it away after it has counted its keys.
//! Each key with an initial delta counts one from the append, under its slot's guard and before its ticket is out,
//! until the release of the claim that carried it (I7 in `slot.rs`). Zero is reached once and is final.
//!
//! | edge | release end | acquire end | carries |
//! |---|---|---|---|
//! | E4 | [`Synced::count_off`] | [`Synced::has_synced`] | everything the owner of the claim did before its release |

use crate::seeded::{self, Bug};
use crate::sync::{AtomicBool, AtomicUsize, Event, Ordering};

pub(crate) struct Synced {
    populated: AtomicBool,
    /// The guard and the initial keys that are not processed yet.
    remaining: AtomicUsize,
    event: Event,
}

impl Synced {
    pub(super) fn new() -> Self {
        Synced { populated: AtomicBool::new(false), remaining: AtomicUsize::new(1), event: Event::new() }
    }

    /// Whether there has been a first mutating call. Claims made before it are initial.
    pub(super) fn is_populated(&self) -> bool {
        // Relaxed: a flag that guards no data. Whoever claims a key saw the append of its delta under the slot's
        // guard, and with it this flag, which the producer set before.
        self.populated.load(Ordering::Relaxed)
    }

    /// Marks the queue populated; `true` for the one caller that did. Who gets `true` owes a [`release_guard`].
    ///
    /// [`release_guard`]: Self::release_guard
    pub(super) fn populate(&self) -> bool {
        if self.is_populated() {
            return false;
        }
        if seeded::on(Bug::PopulateInTwoSteps) {
            let first = !self.populated.load(Ordering::Relaxed);
            self.populated.store(true, Ordering::Relaxed);
            return first;
        }
        // Relaxed: the swap alone decides who is first; it publishes nothing.
        !self.populated.swap(true, Ordering::Relaxed)
    }

    /// The first Replace failed half-way (a panic in user code): the next mutating call is the first again.
    pub(super) fn unpopulate(&self) {
        // Relaxed: as in `populate`.
        self.populated.store(false, Ordering::Relaxed);
    }

    /// The initial batch is complete.
    pub(super) fn release_guard(&self) {
        self.count_off();
    }

    /// One more initial key. Called under the slot's guard, before the ticket is out.
    pub(super) fn count(&self) {
        // Relaxed: the count cannot reach zero meanwhile, because the guard is held until the last key is counted;
        // and the key's own count-off comes after this by the slot's guard.
        self.remaining.fetch_add(1, Ordering::Relaxed);
    }

    /// An initial key was processed (or the guard is released).
    pub(super) fn count_off(&self) {
        // E4 release: publishes what the owner did to who sees zero. Every decrement is part of one release sequence,
        // so a reader of the last one synchronises with all. Relaxed would let a waiter read a store without the
        // initial objects.
        let order = if seeded::on(Bug::SyncedDecrementRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        let before = self.remaining.fetch_sub(1, order);
        assert_ne!(before, 0, "I7: more initial keys are processed than were counted");
        if before == 1 && !seeded::on(Bug::SyncedNoNotify) {
            self.event.notify(usize::MAX);
        }
    }

    pub(super) fn has_synced(&self) -> bool {
        // E4 acquire: whoever reads zero sees what all owners of initial claims did before their releases.
        let order = if seeded::on(Bug::SyncedLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        self.remaining.load(order) == 0
    }

    /// Where the waiters for the sync register.
    pub(super) fn event(&self) -> &Event {
        &self.event
    }
}

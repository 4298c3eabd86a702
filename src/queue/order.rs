//! The order of keys: tickets in one FIFO, or in two lanes.
//!
//! With one lane a key's place is that of its first delta since its last claim, as in client-go (A14). With two lanes
//! (obligation 8) the keys that a Replace or a Resync queues wait in the background: one pop of `share` serves it
//! first, so it never starves, and fresh events do not wait behind a million replayed keys. A fresh event for a key
//! that waits there moves the key to the front; its old ticket stays behind, dead, told by its number.

use std::num::NonZeroU32;

use crate::sync::{AtomicU64, AtomicUsize, Hint, Ordering, Queue};

/// A key's place in the order queue.
pub(super) struct Ticket<K> {
    pub(super) key: K,
    pub(super) hint: Hint,
    /// 0 in the front lane, unique in the background lane.
    pub(super) number: u64,
}

pub(super) struct Order<K> {
    /// Without a number: it would be 0, and a place less large costs every queued key less memory.
    front: Queue<(K, Hint)>,
    background: Option<Background<K>>,
}

struct Background<K> {
    queue: Queue<Ticket<K>>,
    share: NonZeroU32,
    turn: AtomicUsize,
    next_number: AtomicU64,
    /// Tickets of promoted keys that are still in `queue`.
    dead: AtomicUsize,
}

impl<K> Order<K> {
    pub(super) fn new(background_share: Option<NonZeroU32>) -> Self {
        let background = background_share.map(|share| Background {
            queue: Queue::new(),
            share,
            turn: AtomicUsize::new(0),
            next_number: AtomicU64::new(1),
            dead: AtomicUsize::new(0),
        });
        Order { front: Queue::new(), background }
    }

    /// The number for a ticket that a Replace or a Resync may push.
    pub(super) fn background_number(&self) -> u64 {
        match &self.background {
            // Relaxed: only uniqueness counts.
            Some(background) => background.next_number.fetch_add(1, Ordering::Relaxed),
            None => 0,
        }
    }

    /// Whether a fresh event moves a key to the front.
    pub(super) fn promotes(&self) -> bool {
        self.background.is_some()
    }

    #[inline]
    pub(super) fn push(&self, ticket: Ticket<K>) {
        match &self.background {
            Some(background) if ticket.number != 0 => background.queue.push(ticket),
            _ => self.front.push((ticket.key, ticket.hint)),
        }
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<Ticket<K>> {
        let Some(background) = &self.background else { return self.pop_front() };
        // Relaxed: a turn counter; it decides which lane is asked first, not what is found there.
        let turn = background.turn.fetch_add(1, Ordering::Relaxed) as u32;
        if turn % background.share == 0 {
            background.queue.pop().or_else(|| self.pop_front())
        } else {
            self.pop_front().or_else(|| background.queue.pop())
        }
    }

    #[inline]
    fn pop_front(&self) -> Option<Ticket<K>> {
        self.front.pop().map(|(key, hint)| Ticket { key, hint, number: 0 })
    }

    /// After a dead ticket, in the same turn: asks the background once more, so that dead tickets use up no turns of
    /// it and never pile up.
    pub(super) fn pop_again(&self) -> Option<Ticket<K>> {
        self.background.as_ref().and_then(|background| background.queue.pop()).or_else(|| self.pop_front())
    }

    /// A key was promoted: its old ticket is dead.
    pub(super) fn count_dead(&self) {
        if let Some(background) = &self.background {
            // Relaxed: for `len` only.
            background.dead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A dead ticket was popped.
    pub(super) fn count_buried(&self) {
        match &self.background {
            // Relaxed: for `len` only.
            Some(background) => background.dead.fetch_sub(1, Ordering::Relaxed),
            None => panic!(
                "I1: the key of a ticket is not in the table: is its Eq or Hash inconsistent, or has it changed?"
            ),
        };
    }

    /// The number of live tickets; exact while nobody pushes or pops.
    pub(super) fn len(&self) -> usize {
        let waiting = self.background.as_ref().map_or(0, |background| {
            // Relaxed: an estimate under concurrency anyway.
            background.queue.len().saturating_sub(background.dead.load(Ordering::Relaxed))
        });
        self.front.len() + waiting
    }

    /// Whether there is no ticket at all, live or dead.
    #[inline]
    pub(super) fn has_no_ticket(&self) -> bool {
        self.front.is_empty() && self.background.as_ref().is_none_or(|background| background.queue.is_empty())
    }
}

//! The events of one handler that wait: which key may be served next, and what its next event is.
//!
//! Pure data, no lock and no time of its own, so it can be tested as it is. A *ticket* in `order` stands for one event of
//! its key, so without retries events leave in the order in which they came. A key is *blocked* while a call for it
//! runs or a retry of it waits; tickets that come up meanwhile are put aside and return to the front when it is not.
//!
//! | slot | next event of the key |
//! |---|---|
//! | `blocked`, no `retry` | is being handled |
//! | `blocked`, `retry` | waits for its time in `timers` |
//! | not blocked | the first of `events` when a ticket of the key comes up |

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;

use tokio::time::Instant;

use crate::delta::Deleted;
use crate::informer::store::Replay;
use crate::informer::{Event, EventKind, Reason};
use crate::queue::DefaultHashBuilder;

/// An event with what is counted about it.
pub(super) struct Queued<T, K> {
    pub(super) event: Event<T, K>,
    /// How many initial events it stands for: the handler has synced when all of them are settled.
    pub(super) initial: usize,
}

struct Slot<T, K> {
    events: VecDeque<Queued<T, K>>,
    /// Tickets of this key in `order`.
    tickets: usize,
    /// Tickets that came up while the key was blocked.
    aside: usize,
    blocked: bool,
    retry: Option<Queued<T, K>>,
}

impl<T, K> Default for Slot<T, K> {
    fn default() -> Self {
        Slot { events: VecDeque::new(), tickets: 0, aside: 0, blocked: false, retry: None }
    }
}

pub(super) struct Buffer<T, K> {
    slots: HashMap<K, Slot<T, K>, DefaultHashBuilder>,
    order: VecDeque<K>,
    /// Retries, by the time from which they may run.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    timer_keys: HashMap<u64, K>,
    next_timer: u64,
    /// What the store had when the handler came; goes first.
    replay: Option<Replay<T, K>>,
    waiting: usize,
    running: usize,
}

/// Events that were merged away; dropped by the caller when no lock is held.
pub(super) type Garbage<T, K> = Vec<Queued<T, K>>;

/// What became of a pushed event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Queued,
    /// Merged into an event that waits.
    Merged,
    /// It undid an event that waits, so both are gone; so many initial events are settled by that.
    Cancelled {
        initial: usize,
    },
}

impl<T, K: Hash + Eq + Clone> Buffer<T, K> {
    pub(super) fn new(replay: Option<Replay<T, K>>) -> Self {
        Buffer {
            slots: HashMap::default(),
            order: VecDeque::new(),
            timers: BinaryHeap::new(),
            timer_keys: HashMap::new(),
            next_timer: 0,
            replay,
            waiting: 0,
            running: 0,
        }
    }

    /// Events that wait: queued, for a retry, or in the replay.
    pub(super) fn waiting(&self) -> usize {
        self.waiting + self.replay.as_ref().map_or(0, Replay::remaining)
    }

    /// Calls that run.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn push(&mut self, queued: Queued<T, K>, coalesce: bool, garbage: &mut Garbage<T, K>) -> Pushed {
        let key = queued.event.key.clone();
        let slot = self.slots.entry(key.clone()).or_default();
        let before = slot.events.len();
        let pushed = append(&mut slot.events, queued, coalesce, garbage);
        self.waiting = self.waiting + slot.events.len() - before;
        // A ticket of an event that was cancelled stays and serves the next one: no more tickets than events ever.
        if slot.tickets + slot.aside < slot.events.len() {
            slot.tickets += 1;
            self.order.push_back(key);
        }
        pushed
    }

    /// Whether events of this key wait, so that one more could be merged.
    pub(super) fn has_waiting(&self, key: &K) -> bool {
        self.slots.get(key).is_some_and(|slot| !slot.events.is_empty())
    }

    /// The next event that may be handled; its key is blocked until the event is settled. Else the time of the next
    /// retry, if there is one.
    pub(super) fn take(
        &mut self,
        now: Instant,
        coalesce: bool,
        garbage: &mut Garbage<T, K>,
    ) -> Result<Queued<T, K>, Option<Instant>> {
        if let Some(retry) = self.take_retry(now, coalesce, garbage) {
            return Ok(retry);
        }
        match self.replay.as_mut().map(Iterator::next) {
            None => {}
            Some(None) => self.replay = None,
            Some(Some((key, object))) => {
                self.slots.entry(key.clone()).or_default().blocked = true;
                self.running += 1;
                let kind = EventKind::Added { object, initial: true };
                return Ok(Queued { event: Event { key, kind, reason: Reason::Replay, attempt: 1 }, initial: 1 });
            }
        }
        while let Some(key) = self.order.pop_front() {
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            slot.tickets -= 1;
            if slot.blocked {
                slot.aside += 1;
            } else if let Some(queued) = slot.events.pop_front() {
                slot.blocked = true;
                self.waiting -= 1;
                self.running += 1;
                return Ok(queued);
            } else {
                self.tidy(&key);
            }
        }
        Err(self.timers.peek().map(|Reverse((at, _))| *at))
    }

    fn take_retry(&mut self, now: Instant, coalesce: bool, garbage: &mut Garbage<T, K>) -> Option<Queued<T, K>> {
        let Reverse((at, id)) = *self.timers.peek()?;
        if at > now {
            return None;
        }
        self.timers.pop();
        let key = self.timer_keys.remove(&id)?;
        let slot = self.slots.get_mut(&key)?;
        let retry = slot.retry.take()?;
        self.waiting -= 1;
        self.running += 1;
        if !coalesce || slot.events.is_empty() {
            return Some(retry);
        }
        // What came while it waited is merged into it: the handler is not shown a state that is long gone.
        let before = slot.events.len();
        let mut merged = VecDeque::from([retry]);
        for queued in slot.events.drain(..) {
            append(&mut merged, queued, true, garbage);
        }
        let first = merged.pop_front();
        slot.events = merged;
        self.waiting = self.waiting + slot.events.len() - before;
        first
    }

    /// The call is over, for good.
    pub(super) fn settle(&mut self, key: &K) {
        self.running -= 1;
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.blocked = false;
        let aside = std::mem::take(&mut slot.aside);
        slot.tickets += aside;
        (0..aside).for_each(|_| self.order.push_front(key.clone()));
        self.tidy(key);
    }

    /// The call failed: again at `at`.
    pub(super) fn settle_for_retry(&mut self, queued: Queued<T, K>, at: Instant) {
        self.running -= 1;
        let key = queued.event.key.clone();
        let slot = self.slots.entry(key.clone()).or_default();
        slot.blocked = true;
        slot.retry = Some(queued);
        self.waiting += 1;
        self.timers.push(Reverse((at, self.next_timer)));
        self.timer_keys.insert(self.next_timer, key);
        self.next_timer += 1;
    }

    fn tidy(&mut self, key: &K) {
        if self.slots.get(key).is_some_and(|s| !s.blocked && s.tickets == 0 && s.events.is_empty()) {
            self.slots.remove(key);
        }
    }

    /// Everything that waits; what runs goes on. The buffer is empty after it.
    pub(super) fn drop_waiting(&mut self) -> Buffer<T, K> {
        let running = self.running;
        let dropped = std::mem::replace(self, Buffer::new(None));
        self.running = running;
        dropped
    }
}

/// Appends an event to those of its key, merging it into the last one where that says the same.
fn append<T, K>(
    events: &mut VecDeque<Queued<T, K>>,
    mut new: Queued<T, K>,
    coalesce: bool,
    garbage: &mut Garbage<T, K>,
) -> Pushed {
    let Some(last) = events.back_mut().filter(|_| coalesce) else {
        events.push_back(new);
        return Pushed::Queued;
    };
    let initial = last.initial + new.initial;
    let kind = match (&last.event.kind, &new.event.kind) {
        (EventKind::Deleted(_), EventKind::Added { .. } | EventKind::Updated { .. }) => {
            events.push_back(new);
            return Pushed::Queued;
        }
        // Nobody has heard of it, and it is gone. If a call was tried, the handler has heard of it.
        (EventKind::Added { .. }, EventKind::Deleted(_)) if last.event.attempt == 1 => {
            garbage.extend(events.pop_back());
            garbage.push(new);
            return Pushed::Cancelled { initial };
        }
        (EventKind::Deleted(Deleted::Observed(seen)), EventKind::Deleted(Deleted::FinalStateUnknown(_))) => {
            EventKind::Deleted(Deleted::Observed(seen.clone()))
        }
        (_, EventKind::Deleted(deleted)) => EventKind::Deleted(deleted.clone()),
        (
            EventKind::Added { initial, .. },
            EventKind::Updated { new: object, .. } | EventKind::Added { object, .. },
        ) => EventKind::Added { object: object.clone(), initial: *initial },
        (EventKind::Updated { old, .. }, EventKind::Updated { new, .. } | EventKind::Added { object: new, .. }) => {
            EventKind::Updated { old: old.clone(), new: new.clone() }
        }
    };
    // A Resync says less than a change.
    let reason = if new.event.reason == Reason::Resync { last.event.reason } else { new.event.reason };
    new.event.kind = kind;
    new.event.reason = reason;
    new.event.attempt = last.event.attempt;
    new.initial = initial;
    garbage.push(std::mem::replace(last, new));
    Pushed::Merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    type B = Buffer<u64, u8>;

    fn event(key: u8, kind: EventKind<u64, u8>) -> Queued<u64, u8> {
        Queued { event: Event { key, kind, reason: Reason::Watch, attempt: 1 }, initial: 0 }
    }

    fn added(key: u8, value: u64) -> Queued<u64, u8> {
        event(key, EventKind::Added { object: value.into(), initial: false })
    }

    fn updated(key: u8, old: u64, new: u64) -> Queued<u64, u8> {
        event(key, EventKind::Updated { old: old.into(), new: new.into() })
    }

    fn deleted(key: u8, value: u64) -> Queued<u64, u8> {
        event(key, EventKind::Deleted(Deleted::Observed(value.into())))
    }

    fn push(buffer: &mut B, queued: Queued<u64, u8>, coalesce: bool) -> Pushed {
        buffer.push(queued, coalesce, &mut Vec::new())
    }

    fn take(buffer: &mut B, now: Instant) -> Result<Queued<u64, u8>, Option<Instant>> {
        buffer.take(now, false, &mut Vec::new())
    }

    #[test]
    fn events_leave_in_the_order_in_which_they_came() {
        let now = Instant::now();
        let mut buffer = B::new(None);
        for value in 0..10 {
            push(&mut buffer, updated((value % 3) as u8, 0, value), false);
        }
        for value in 0..10 {
            let Ok(queued) = take(&mut buffer, now) else { panic!("event {value} is missing") };
            assert_eq!(queued.event.object().map(|o| **o), Some(value));
            buffer.settle(&queued.event.key);
        }
        assert!(take(&mut buffer, now).is_err());
        assert!(buffer.slots.is_empty() && buffer.order.is_empty());
    }

    #[test]
    fn a_failed_key_waits_and_the_others_do_not() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut buffer = B::new(None);
        push(&mut buffer, added(1, 10), false);
        push(&mut buffer, updated(1, 10, 11), false);
        push(&mut buffer, added(2, 20), false);
        let failed = take(&mut buffer, now).ok().unwrap();
        buffer.settle_for_retry(failed, later);
        assert_eq!(take(&mut buffer, now).ok().unwrap().event.key, 2);
        assert_eq!(take(&mut buffer, now).err().unwrap(), Some(later));
        let again = take(&mut buffer, later).ok().unwrap();
        assert_eq!(**again.event.object().unwrap(), 10, "the failed event comes first");
        assert!(take(&mut buffer, later).is_err(), "its key is blocked");
        buffer.settle(&1);
        assert_eq!(**take(&mut buffer, later).ok().unwrap().event.object().unwrap(), 11);
    }

    #[test]
    fn a_life_that_nobody_saw_is_not_told_and_takes_no_memory() {
        let mut buffer = B::new(None);
        for value in 0..1000 {
            push(&mut buffer, added(1, value), true);
            assert_eq!(push(&mut buffer, deleted(1, value), true), Pushed::Cancelled { initial: 0 });
        }
        assert_eq!((buffer.waiting(), buffer.order.len()), (0, 1));
        assert!(take(&mut buffer, Instant::now()).is_err());
        assert!(buffer.slots.is_empty() && buffer.order.is_empty());
    }

    #[test]
    fn an_addition_that_was_tried_is_not_cancelled() {
        let now = Instant::now();
        let mut buffer = B::new(None);
        push(&mut buffer, added(1, 1), true);
        let mut failed = take(&mut buffer, now).ok().unwrap();
        failed.event.attempt = 2;
        buffer.settle_for_retry(failed, now);
        push(&mut buffer, deleted(1, 1), true);
        let next = buffer.take(now, true, &mut Vec::new()).ok().unwrap();
        assert!(next.event.is_deleted());
        buffer.settle(&1);
        assert!(buffer.slots.values().all(|slot| slot.events.is_empty()));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Put(u8),
        Delete(u8),
        Take,
        Settle(bool),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (0u8..4).prop_map(Op::Put),
            1 => (0u8..4).prop_map(Op::Delete),
            2 => Just(Op::Take),
            2 => any::<bool>().prop_map(Op::Settle),
        ];
        prop::collection::vec(op, 0..200)
    }

    proptest! {
        /// Whatever is merged, retried or cancelled: a handler that applies what it is given ends with the truth, is
        /// never called twice at once for a key, and sees each event fit what it has.
        #[test]
        fn a_view_built_from_the_events_is_the_truth(ops in ops(), coalesce in any::<bool>()) {
            let now = Instant::now();
            let mut buffer = B::new(None);
            let mut truth: BTreeMap<u8, u64> = BTreeMap::new();
            let mut view: BTreeMap<u8, u64> = BTreeMap::new();
            let mut running: Vec<Queued<u64, u8>> = Vec::new();
            let mut version = 0;
            let mut garbage = Vec::new();
            let finish = ops.len() * 4;
            for op in ops.into_iter().chain([Op::Take, Op::Settle(true)].into_iter().cycle().take(finish)) {
                version += 1;
                match op {
                    Op::Put(key) => {
                        let queued = match truth.insert(key, version) {
                            None => added(key, version),
                            Some(old) => updated(key, old, version),
                        };
                        buffer.push(queued, coalesce, &mut garbage);
                    }
                    Op::Delete(key) => {
                        if let Some(old) = truth.remove(&key) {
                            buffer.push(deleted(key, old), coalesce, &mut garbage);
                        }
                    }
                    Op::Take => {
                        if let Ok(queued) = buffer.take(now, coalesce, &mut garbage) {
                            prop_assert!(running.iter().all(|r| r.event.key != queued.event.key));
                            running.push(queued);
                        }
                    }
                    Op::Settle(ok) => {
                        let Some(mut queued) = running.pop() else { continue };
                        let key = queued.event.key;
                        if !ok {
                            queued.event.attempt += 1;
                            buffer.settle_for_retry(queued, now);
                            continue;
                        }
                        match &queued.event.kind {
                            EventKind::Added { object, .. } => prop_assert_eq!(view.insert(key, **object), None),
                            EventKind::Updated { old, new } => {
                                let had = view.insert(key, **new);
                                prop_assert!(had == Some(**old), "{:?} is not {}", had, old);
                            }
                            // Of a life whose addition failed and was merged with its end, only the end is told.
                            EventKind::Deleted(_) => drop(view.remove(&key)),
                        }
                        buffer.settle(&key);
                    }
                }
                if coalesce {
                    prop_assert!(buffer.slots.values().all(|slot| slot.events.len() <= 2));
                    prop_assert!(buffer.order.len() <= 8);
                }
            }
            prop_assert_eq!(view, truth);
            prop_assert_eq!((buffer.waiting(), buffer.running()), (0, 0));
            prop_assert!(buffer.slots.is_empty() && buffer.order.is_empty() && buffer.timers.is_empty());
        }
    }
}

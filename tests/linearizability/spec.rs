//! The sequential specification of a queue with an embedded store, and a search for a sequential order of a recorded
//! history (Wing and Gong's, with the visited states remembered as Lowe does).
//!
//! A pop is two steps within its call, and the specification says so: it takes the oldest ticket, then all deltas the
//! key has at that moment. As one step it would not hold: A takes the ticket of key 1, B takes that of key 2 and then
//! adds to key 1, and A's claim carries B's delta although B's pop came before it.

use std::collections::{BTreeMap, HashSet, VecDeque};

/// What a claim carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// An added or updated object, by its version.
    Put(u32),
    /// A deletion.
    Gone,
}

/// One step of a call, with what it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An add or update of a key.
    Put(u32, u32),
    /// A delete of a key.
    Delete(u32),
    /// The first half of a pop: the oldest ticket, or none.
    Ticket(Option<u32>),
    /// The second half: what the key has.
    Take(u32, Vec<Change>),
    /// The end of a claim.
    Release(u32),
    /// A claim that is put back.
    Requeue(u32),
}

/// A step that took effect somewhere between two readings of one clock.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// What was done.
    pub(crate) step: Step,
    /// The clock before the call.
    pub(crate) begin: u64,
    /// The clock after it.
    pub(crate) end: u64,
    /// It comes after this other record (the second half of a pop after the first).
    pub(crate) after: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    queued: bool,
    claimed: bool,
    pending: Vec<Change>,
    in_flight: Vec<Change>,
    known: Option<u32>,
}

impl Slot {
    fn append(&mut self, change: Change) {
        if change != Change::Gone || self.pending.last() != Some(&Change::Gone) {
            self.pending.push(change);
        }
    }

    fn exists(&self) -> bool {
        match self.pending.last().or(self.in_flight.last()) {
            Some(change) => *change != Change::Gone,
            None => self.known.is_some(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    order: VecDeque<u32>,
    slots: BTreeMap<u32, Slot>,
}

impl State {
    fn append(&mut self, key: u32, change: Change) {
        let slot = self.slots.entry(key).or_default();
        slot.append(change);
        self.queue(key);
    }

    /// Gives a key that has something pending its ticket, unless it has one or its claim will.
    fn queue(&mut self, key: u32) {
        let slot = self.slots.entry(key).or_default();
        if !slot.queued && !slot.claimed && !slot.pending.is_empty() {
            slot.queued = true;
            self.order.push_back(key);
        }
    }

    /// Whether the step may happen now, with the answer it had. If so, it has.
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Put(key, version) => self.append(*key, Change::Put(*version)),
            Step::Delete(key) => {
                if self.slots.entry(*key).or_default().exists() {
                    self.append(*key, Change::Gone);
                }
            }
            Step::Ticket(None) => return self.order.is_empty(),
            Step::Ticket(Some(key)) => return self.order.pop_front() == Some(*key),
            Step::Take(key, changes) => {
                let slot = self.slots.entry(*key).or_default();
                if !slot.queued || slot.pending != *changes {
                    return false;
                }
                (slot.queued, slot.claimed) = (false, true);
                slot.in_flight = std::mem::take(&mut slot.pending);
            }
            Step::Release(key) | Step::Requeue(key) => {
                let slot = self.slots.entry(*key).or_default();
                if !slot.claimed {
                    return false;
                }
                slot.claimed = false;
                let in_flight = std::mem::take(&mut slot.in_flight);
                if matches!(step, Step::Requeue(_)) {
                    let newer = std::mem::replace(&mut slot.pending, in_flight);
                    newer.into_iter().for_each(|change| slot.append(change));
                } else {
                    slot.known = match in_flight.last() {
                        Some(Change::Put(version)) => Some(*version),
                        _ => None,
                    };
                }
                self.queue(*key);
            }
        }
        true
    }
}

/// Whether some order of the records, in which a record that ended before another one began stands before it, is one
/// that the specification allows. At most 64 records.
pub(crate) fn is_linearizable(history: &[Record]) -> bool {
    assert!(history.len() <= 64, "a history of {} steps is too long for this search", history.len());
    search(history, 0, &State::default(), &mut HashSet::new())
}

fn search(history: &[Record], done: u64, state: &State, seen: &mut HashSet<(u64, State)>) -> bool {
    let is_done = |i: usize| done & (1 << i) != 0;
    let Some(horizon) = (0..history.len()).filter(|&i| !is_done(i)).map(|i| history[i].end).min() else {
        return true;
    };
    if !seen.insert((done, state.clone())) {
        return false;
    }
    (0..history.len()).any(|i| {
        let record = &history[i];
        let may_be_next = !is_done(i) && record.begin < horizon && record.after.is_none_or(is_done);
        let mut next = state.clone();
        may_be_next && next.take(&record.step) && search(history, done | 1 << i, &next, seen)
    })
}

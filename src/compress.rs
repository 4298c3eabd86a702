//! Compression: what happens to the deltas of a key that nobody has popped yet.
//!
//! The two built-in rules are pure functions over a [`Deltas`], run when a delta is appended, so a key's list never
//! holds more than the rule allows. They touch no user code; an object that falls away is handed back in `garbage`,
//! because a user's `Drop` must not run where the caller stands (under a map guard).

use std::fmt;
use std::sync::Arc;

use crate::delta::{Deleted, Delta, Deltas};

/// The function of [`Compression::Custom`]: a key and all its deltas in, what the consumer shall see out.
///
/// ```
/// use delta_fifo::{CompressFn, Deltas};
///
/// let keep_all: CompressFn<u32, u32> = std::sync::Arc::new(|_key: &u32, deltas: Deltas<u32, u32>| deltas);
/// # let _ = keep_all;
/// ```
pub type CompressFn<T, K> = Arc<dyn Fn(&K, Deltas<T, K>) -> Deltas<T, K> + Send + Sync>;

/// What a queue does with several deltas of one key.
///
/// ```
/// use delta_fifo::{Compression, Delta, DeltaFifo};
///
/// let fifo = DeltaFifo::<(u32, u32), u32>::builder_with_key_fn(|o: &(u32, u32)| Ok::<_, &str>(o.0))
///     .compression(Compression::KeepLatest)
///     .build();
/// for version in 0..1_000 {
///     fifo.update((7, version)).unwrap();
/// }
/// let claim = fifo.try_pop().unwrap();
/// assert_eq!(claim.deltas().as_slice(), [Delta::Updated((7, 999).into())]);
/// ```
pub enum Compression<T, K = Arc<str>> {
    /// client-go's rule (A.4): two deletions in a row become one, everything else is kept. A key that is updated and
    /// not popped grows without bound.
    ClientGo,
    /// A run of changes becomes its newest state; a deletion is never hidden behind a later re-creation.
    ///
    /// The merged delta has the type that says most: `Added` if the run began with the object's creation, else
    /// `Updated`, else `Replaced`, else `Sync`. Of a life that began after a deletion and ended again before
    /// anybody looked, only the second deletion is kept. So a key never has more than three deltas (changes, a
    /// deletion, changes), however slow the consumer is.
    KeepLatest,
    /// The user's own function. Changes are gathered by client-go's rule, and the function sees all of them when the
    /// key is claimed: under no lock and no guard, on the consumer's thread. An empty answer means that there is
    /// nothing to process: the key counts as processed and is not handed out. If the function panics, the
    /// deltas stay queued as they were. It decides what the consumer is shown, not what the queue knows: tombstones and
    /// the embedded store hold the newest object of before the function.
    Custom(CompressFn<T, K>),
}

impl<T, K> Clone for Compression<T, K> {
    fn clone(&self) -> Self {
        match self {
            Compression::ClientGo => Compression::ClientGo,
            Compression::KeepLatest => Compression::KeepLatest,
            Compression::Custom(f) => Compression::Custom(f.clone()),
        }
    }
}

impl<T, K> fmt::Debug for Compression<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::ClientGo => "ClientGo",
            Compression::KeepLatest => "KeepLatest",
            Compression::Custom(_) => "Custom",
        })
    }
}

/// The rule that is applied on append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendRule {
    ClientGo,
    KeepLatest,
}

impl<T, K> Compression<T, K> {
    pub(crate) fn append_rule(&self) -> AppendRule {
        match self {
            Compression::ClientGo | Compression::Custom(_) => AppendRule::ClientGo,
            Compression::KeepLatest => AppendRule::KeepLatest,
        }
    }
}

/// What appending comes to.
enum Step {
    /// The list grows by one.
    Push,
    /// The newest delta stays, the new one falls away.
    KeepOlder,
    /// The new delta takes the place of the newest one.
    KeepNewer,
    /// The new state takes the place of the newest one, under the type that says more.
    Merge,
    /// The new deletion takes the place of the last deletion and of the life after it.
    Swallow,
}

impl AppendRule {
    fn step<T, K>(self, deltas: &[Delta<T, K>], delta: &Delta<T, K>) -> Step {
        match (deltas.last(), delta) {
            // A4.2: a tombstone knows less than whatever comes after it; a deletion that was seen stays.
            (Some(Delta::Deleted(Deleted::Observed(_))), Delta::Deleted(_)) => Step::KeepOlder,
            (Some(Delta::Deleted(Deleted::FinalStateUnknown(_))), Delta::Deleted(_)) => Step::KeepNewer,
            _ if self == AppendRule::ClientGo => Step::Push,
            (Some(_), Delta::Deleted(_)) if deltas.len() >= 2 && deltas[deltas.len() - 2].is_deleted() => Step::Swallow,
            (Some(newest), _) if !newest.is_deleted() && !delta.is_deleted() => Step::Merge,
            _ => Step::Push,
        }
    }

    /// Whether [`append`](Self::append) would make the list longer.
    pub(crate) fn grows<T, K>(self, deltas: &Deltas<T, K>, delta: &Delta<T, K>) -> bool {
        matches!(self.step(deltas, delta), Step::Push)
    }

    /// Appends `delta` under this rule. What falls away goes to `garbage`; `buffer` makes a vector if one is needed.
    pub(crate) fn append<T, K>(
        self,
        deltas: &mut Deltas<T, K>,
        delta: Delta<T, K>,
        garbage: &mut Deltas<T, K>,
        buffer: impl FnOnce() -> Vec<Delta<T, K>>,
    ) {
        let step = self.step(deltas, &delta);
        match (step, deltas.newest_mut()) {
            (Step::Push, _) | (_, None) => deltas.push_with(delta, buffer),
            (Step::KeepOlder, _) => garbage.push(delta),
            (Step::KeepNewer, Some(newest)) => garbage.push(std::mem::replace(newest, delta)),
            (Step::Merge, Some(newest)) => {
                let merged = if says_more(newest) > says_more(&delta) { retype(newest, delta) } else { delta };
                garbage.push(std::mem::replace(newest, merged));
            }
            (Step::Swallow, Some(_)) => {
                garbage.extend(deltas.pop_newest());
                if let Some(older) = deltas.newest_mut() {
                    garbage.push(std::mem::replace(older, delta));
                }
            }
        }
    }
}

/// How much a type says about what happened since the consumer last looked.
fn says_more<T, K>(delta: &Delta<T, K>) -> u8 {
    match delta {
        Delta::Sync(_) => 0,
        Delta::Replaced(_) => 1,
        Delta::Updated(_) => 2,
        Delta::Added(_) => 3,
        Delta::Deleted(_) => 4,
    }
}

/// The object of `newer` under the type of `older`; neither is a deletion.
fn retype<T, K>(older: &Delta<T, K>, newer: Delta<T, K>) -> Delta<T, K> {
    match newer {
        Delta::Added(o) | Delta::Updated(o) | Delta::Replaced(o) | Delta::Sync(o) => match older {
            Delta::Added(_) => Delta::Added(o),
            Delta::Updated(_) => Delta::Updated(o),
            Delta::Replaced(_) => Delta::Replaced(o),
            Delta::Sync(_) | Delta::Deleted(_) => Delta::Sync(o),
        },
        deleted @ Delta::Deleted(_) => deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::DeletedFinalStateUnknown;

    type D = Delta<u32, u32>;

    fn added(v: u32) -> D {
        Delta::Added(v.into())
    }
    fn updated(v: u32) -> D {
        Delta::Updated(v.into())
    }
    fn replaced(v: u32) -> D {
        Delta::Replaced(v.into())
    }
    fn sync(v: u32) -> D {
        Delta::Sync(v.into())
    }
    fn seen(v: u32) -> D {
        Delta::Deleted(Deleted::Observed(v.into()))
    }
    fn tombstone(v: u32) -> D {
        Delta::Deleted(Deleted::FinalStateUnknown(Arc::new(DeletedFinalStateUnknown {
            key: 0,
            object: Some(v.into()),
        })))
    }

    fn run(rule: AppendRule, input: &[D]) -> (Vec<D>, usize) {
        let (mut deltas, mut garbage) = (Deltas::new(), Deltas::new());
        for delta in input {
            let before = deltas.len();
            let grows = rule.grows(&deltas, delta);
            rule.append(&mut deltas, delta.clone(), &mut garbage, || Vec::with_capacity(4));
            assert_eq!(grows, deltas.len() == before + 1, "grows() must tell what append() does");
        }
        (deltas.to_vec(), garbage.len())
    }

    #[test]
    fn client_go_merges_two_deletions_and_nothing_else() {
        let go = AppendRule::ClientGo;
        // The table of rule A4.2.
        assert_eq!(run(go, &[seen(1), seen(2)]), (vec![seen(1)], 1));
        assert_eq!(run(go, &[seen(1), tombstone(2)]), (vec![seen(1)], 1));
        assert_eq!(run(go, &[tombstone(1), seen(2)]), (vec![seen(2)], 1));
        assert_eq!(run(go, &[tombstone(1), tombstone(2)]), (vec![tombstone(2)], 1));
        // A4.3, A4.4.
        let all = [added(1), updated(2), updated(3), sync(3), sync(3), replaced(4), seen(4), added(5), seen(5)];
        assert_eq!(run(go, &all), (all.to_vec(), 0));
    }

    #[test]
    fn keep_latest_keeps_the_newest_state_and_the_type_that_says_most() {
        let latest = AppendRule::KeepLatest;
        assert_eq!(run(latest, &[added(1), updated(2), updated(3)]), (vec![added(3)], 2));
        assert_eq!(run(latest, &[updated(1), replaced(2), sync(3)]), (vec![updated(3)], 2));
        assert_eq!(run(latest, &[sync(1), replaced(2)]), (vec![replaced(2)], 1));
        assert_eq!(run(latest, &[sync(1), added(2)]), (vec![added(2)], 1));
    }

    #[test]
    fn keep_latest_never_hides_a_deletion_behind_a_creation() {
        let latest = AppendRule::KeepLatest;
        assert_eq!(run(latest, &[updated(1), seen(2), added(3)]).0, [updated(1), seen(2), added(3)]);
        assert_eq!(run(latest, &[updated(1), seen(2), added(3), updated(4)]).0, [updated(1), seen(2), added(4)]);
    }

    #[test]
    fn keep_latest_is_bounded_by_three() {
        let input: Vec<D> = (0..300).map(|i| if i % 3 == 2 { seen(i) } else { added(i) }).collect();
        for n in 0..input.len() {
            let (deltas, garbage) = run(AppendRule::KeepLatest, &input[..n]);
            assert!(deltas.len() <= 3, "{deltas:?}");
            assert_eq!(deltas.len() + garbage, n, "every delta is kept or handed back");
        }
        assert_eq!(run(AppendRule::KeepLatest, &[seen(1), added(2), seen(3)]).0, [seen(3)]);
    }
}

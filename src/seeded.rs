//! Seeded bugs: each names a wrong version of one line of the protocol. The models must catch every one of them, or
//! they prove nothing. In any build but a model-checking one [`on`] is a constant `false` and nothing of this is left.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One seeded bug.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[cfg_attr(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))), allow(unreachable_pub))]
        #[cfg_attr(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))), allow(dead_code))]
        pub enum Bug {
            $($(#[$doc])* $name,)*
        }

        /// Every seeded bug with its name.
        #[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
        pub const ALL: &[(&str, Bug)] = &[$((stringify!($name), Bug::$name),)*];
    };
}

bugs! {
    /// A walk goes towards the end of a shard, where removals come from.
    WalkTowardsTheEnd,
    /// A row that was noted is used without a look whose it is now.
    HintIsTrusted,
    /// A row that moves leaves its mark behind.
    MarkStaysBehind,
    /// A Replace leaves its marks to the next one.
    ReplaceKeepsMarks,
    /// A Replace does not ask whether its walk saw a key twice.
    ReplaceKeepsDoubles,
    /// A ticket is pushed although the key already has one.
    AppendAlwaysTicket,
    /// A ticket is pushed although the key is claimed.
    AppendTicketWhenClaimed,
    /// The ticket is pushed before the slot exists.
    TicketBeforeSlot,
    /// The slot is looked at under one guard and made under another.
    AppendCheckThenAct,
    /// No consumer is woken for a new ticket.
    AppendNoNotify,
    /// The ticket is pushed after the guard is released.
    TicketOutsideGuard,
    /// The consumer is woken before the ticket is there.
    NotifyBeforeTicket,
    /// `notify(1)` where `notify_additional(1)` is needed.
    NotifyNotAdditional,
    /// The deltas are copied under one guard and cleared under another.
    ClaimInTwoSteps,
    /// A consumer sleeps without a second look after it registered.
    PopNoRecheckAfterListen,
    /// A consumer that reads `closed` leaves without another look.
    PopClosedNoRecheck,
    /// A claim does not leave its newest object behind for a tombstone.
    ClaimForgetsNewest,
    /// The deltas of a key come out newest first.
    ClaimReversesDeltas,
    /// A key that became dirty during its claim is not queued again.
    ReleaseNoRequeue,
    /// A clean key is queued again.
    ReleaseAlwaysRequeue,
    /// The slot goes although it is dirty.
    ReleaseDropsDirty,
    /// No consumer is woken for a key that a release queued.
    ReleaseNoNotify,
    /// The release looks under one guard and removes under another.
    ReleaseInTwoSteps,
    /// Requeued deltas go behind the newer ones.
    RequeueBehindNewer,
    /// Requeued deltas are thrown away when newer ones are pending.
    RequeueLosesDeltas,
    /// A requeue wakes nobody.
    RequeueNoNotify,
    /// Known objects are scanned before the slots.
    ReplaceKnownFirst,
    /// Slots are not scanned.
    ReplaceOnlyKnown,
    /// Known objects are not scanned.
    ReplaceOnlySlots,
    /// Claimed slots are not scanned.
    ReplaceSkipsClaimed,
    /// A claimed deletion counts as existing.
    ReplaceDeletesTwice,
    /// Producers do not stamp.
    AppendNoStamp,
    /// Replace ignores stamps.
    ReplaceIgnoresStamp,
    /// Stamped slots do not outlive their claim.
    ReleaseDropsStamped,
    /// A delete that finds nothing leaves no stamp.
    DeleteNoStamp,
    /// A delete asks known objects before it looks at the slot.
    DeleteKnownFirst,
    /// A claimed key does not count as existing for a delete.
    DeleteSkipsClaimed,
    /// A delete leaves its stamp before it is decided.
    DeleteStampsEarly,
    /// A delete trusts its lookup although somebody took its reservation over.
    DeleteTrustsLookup,
    /// Slots kept for a Replace stay for ever.
    ReplaceKeepsSlots,
    /// A slot that is kept for its stamp keeps its place in the reserve too.
    ReleaseKeepsReserve,
    /// A reservation of a key that is gone takes a place in the reserve.
    ReservationTakesReserve,
    /// Replace sweeps while its epoch still runs.
    ReplaceSweepsEarly,
    /// Two Replaces run at the same time.
    ReplaceUnlocked,
    /// Resync reads the object before it reserves the key.
    ResyncReadsFirst,
    /// Resync queues a Sync for busy keys too.
    ResyncIgnoresBusy,
    /// Resync commits although a producer took the key over.
    ResyncCommitsOverridden,
    /// The reservations of two Resyncs have the same number.
    ResyncNumbersAlike,
    /// Resync leaves its reservation where the object is gone.
    ResyncKeepsReservation,
    /// A producer that meets a reservation leaves the ticket to the Resync.
    AppendTrustsReservation,
    /// Initial keys are counted off when they are claimed, not when they are released.
    SyncedAtClaim,
    /// The guard of the first Replace is released before its items are counted.
    SyncedGuardEarly,
    /// Initial keys are counted after their ticket is out.
    SyncedCountLate,
    /// `has_synced` loads Relaxed.
    SyncedLoadRelaxed,
    /// The count goes down Relaxed.
    SyncedDecrementRelaxed,
    /// An initial delta on a busy slot is not counted.
    SyncedTagLost,
    /// A requeued initial key counts as processed.
    SyncedRequeueCounts,
    /// A requeue that makes one initial key of two counts none off.
    SyncedMergedTwice,
    /// `populated` is read and written in two steps.
    PopulateInTwoSteps,
    /// Nobody is woken when the queue has synced.
    SyncedNoNotify,
    /// Who waits for the sync or a drain sleeps without a second look after it registered.
    WaitNoRecheckAfterListen,
    /// Close wakes one consumer only.
    CloseNotifyOne,
    /// Close wakes before it sets the flag.
    CloseNotifyFirst,
    /// `closed` is Relaxed.
    CloseRelaxed,
    /// The release of the last claim does not tell a drain.
    DrainNoNotify,
    /// A drain looks at the order queue only.
    DrainIgnoresClaims,
    /// A drain sets no flag, so releases do not tell it.
    DrainSetsNoFlag,
    /// A drain sets its flag and visits no slot before it looks for tickets.
    DrainStartsWithoutWalk,
    /// Taking deltas does not tell a producer that waits for room.
    RoomNoNotify,
    /// Room wakes one producer, who may not need it.
    RoomNotifyOne,
    /// A producer sleeps without a second look after it registered.
    RoomNoRecheckAfterListen,
    /// The limit is read and counted in two steps.
    LimitCheckThenAct,
    /// A promoted key's old ticket stays live.
    PromoteKeepsOldTicket,
    /// Burying a dead ticket does not tell a drain that saw it.
    BuryNoNotify,
    /// Close does not wake producers that wait for room.
    CloseNoRoomNotify,
    /// Close does not wake waiters for the sync.
    CloseNoSyncedNotify,
    /// The event has no fences.
    EventNoFence,
    /// A dropped listener keeps its notification.
    EventDropLosesNotify,
    /// The list of handlers is read before the writers' lock is taken.
    HandlersReadEarly,
    /// The list of handlers is read after the writers' lock is released.
    HandlersReadLate,
    /// A late handler is shown content that was read before the lock.
    ReplayReadEarly,
    /// A late handler is listed under another lock than the one its content was read under.
    RegisterInTwoSteps,
    /// A removal reads the list and writes it under two locks.
    RemoveInTwoSteps,
    /// A write starts from content that was read before the lock.
    WriteReadsEarly,
    /// Claims are released before the handlers are told.
    ToldAfterRelease,
    /// What is told after the removal of a handler gets in.
    DoorStaysOpen,
    /// A bracket is opened after the claim.
    BracketOpensLate,
    /// A bracket is closed before what was claimed is applied.
    BracketClosesEarly,
    /// A bracket is closed Relaxed.
    BracketClosesRelaxed,
    /// A bracket does not say what it applied.
    BracketLogsNothing,
    /// A bracket whose claims are queued again closes as any other.
    GiveBackNotCounted,
    /// Nobody is woken when a bracket closes.
    BracketNoNotify,
    /// No fence between the bracket and the stamp on either side.
    BarrierNoFence,
    /// The barrier does not wait for brackets that are open after the first list.
    BarrierSkipsFirstBrackets,
    /// The barrier does not wait for brackets that are open after the second list.
    BarrierSkipsSecondBrackets,
    /// The barrier waits for keys that are not pending any more.
    BarrierListsOnce,
    /// The barrier does not wait for the keys that are left.
    BarrierIgnoresLeft,
    /// The barrier counts what was logged before its first list.
    BarrierKeepsOldLog,
    /// The barrier counts brackets that were opened before its first list.
    BarrierIgnoresStamp,
    /// Nothing queued counts as nothing pending.
    IdleByQueue,
    /// Brackets that were opened during the look do not count.
    IdleNoSecondLook,
    /// The barrier sleeps without a second look after it registered.
    BarrierNoRecheckAfterListen,
    /// A failure is not counted.
    FailureNotCounted,
    /// A failure is forgiven by a list that came after the barrier began.
    FailureForgivenLate,
}

#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
pub use active::on;

#[cfg(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle")))]
mod active {
    use super::{ALL, Bug};
    use std::sync::OnceLock;

    /// The environment variable that names the one bug of this process.
    const VARIABLE: &str = "DELTA_FIFO_BUG";

    /// Whether the bug is seeded in this process.
    pub fn on(bug: Bug) -> bool {
        static ACTIVE: OnceLock<Option<Bug>> = OnceLock::new();
        *ACTIVE.get_or_init(|| match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => {
                let found = ALL.iter().find(|(n, _)| *n == name);
                Some(found.unwrap_or_else(|| panic!("{VARIABLE}: there is no seeded bug {name}")).1)
            }
            _ => None,
        }) == Some(bug)
    }
}

/// Always `false`: no bug is seeded in this build.
#[cfg(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))))]
#[inline(always)]
pub(crate) const fn on(_: Bug) -> bool {
    false
}

//! The proof that the models can fail: each seeded bug must be caught by the model named for it, with the failure
//! named for it.
//!
//! Each runs in a process of its own: the active bug is per process, and loom may abort after a panic. A model that
//! fails without a bug proves nothing, so each of them runs once without. `cargo loom-mutations` runs the table on
//! the stand-ins, `cargo loom-real-mutations` on the real queue and event; a bug that only one of them can see says so.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a model may take before it counts as "not caught": a bug may make it run for ever.
const LIMIT: Duration = Duration::from_secs(120);

/// The build in which a bug is to be caught.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    /// In all.
    Any,
    /// In the build with stand-ins, run on the weak queue: where an empty answer orders nothing.
    Weak,
    /// The real queue: a look that finds a ticket orders nothing.
    Real,
    /// The stand-in event: the bug is in it.
    StandInEvent,
}
use Build::{Any, Real, StandInEvent, Weak};

impl Build {
    fn is_this(self) -> bool {
        match self {
            Any => true,
            Weak => cfg!(not(real_queue)),
            Real => cfg!(real_queue),
            StandInEvent => cfg!(not(real_event)),
        }
    }
}

const DEADLOCK: &str = "deadlock; threads";

/// Bug, model, what the failure says, build.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str, Build)] = &[
    ("AppendAlwaysTicket", "deltas::one_ticket_per_key", "one ticket per key", Any),
    ("AppendTicketWhenClaimed", "release::late_producer_removed", "queued again", Any),
    ("TicketBeforeSlot", "wake::wake_one", "I1:", Any),
    ("AppendCheckThenAct", "deltas::one_ticket_per_key", "one ticket per key", Any),
    ("AppendNoNotify", "wake::wake_one", DEADLOCK, Any),
    ("TicketOutsideGuard", "deltas::own_push_is_found", "is not found", Any),
    ("NotifyBeforeTicket", "wake::wake_one", DEADLOCK, Any),
    ("NotifyNotAdditional", "wake::wake_two", DEADLOCK, Any),
    ("ClaimInTwoSteps", "deltas::no_lost_delta", "lost", Any),
    ("PopNoRecheckAfterListen", "wake::wake_one", DEADLOCK, Any),
    ("PopClosedNoRecheck", "close::close_delivers_one", "stranded", Any),
    ("ClaimForgetsNewest", "replace_scan::tombstone_carries_newest", "with the newest object", Any),
    ("ClaimReversesDeltas", "deltas::no_lost_delta", "out of order", Any),
    ("ReleaseNoRequeue", "release::late_producer_removed", "stranded", Any),
    ("ReleaseAlwaysRequeue", "release::late_producer_removed", "queued again", Any),
    ("ReleaseDropsDirty", "release::late_producer_removed", "stranded", Any),
    ("ReleaseNoNotify", "release::release_wakes", DEADLOCK, Any),
    ("ReleaseInTwoSteps", "release::late_producer_removed", "stranded", Any),
    ("RequeueBehindNewer", "claims::requeue_keeps_order", "out of order", Any),
    ("RequeueLosesDeltas", "claims::requeue_keeps_order", "out of order", Any),
    ("RequeueNoNotify", "claims::requeue_wakes", DEADLOCK, Any),
    ("ReplaceKnownFirst", "replace_scan::replace_finds_moving_key", "missed a key", Any),
    ("ReplaceOnlyKnown", "replace_scan::replace_finds_moving_key", "missed a key", Any),
    ("ReplaceOnlySlots", "replace_scan::replace_two_shards", "missed a key", Any),
    ("ReplaceSkipsClaimed", "replace_scan::replace_finds_moving_key", "missed a key", Any),
    ("ReplaceDeletesTwice", "replace_scan::claimed_deletion_counts_as_gone", "deleted once more", Any),
    ("AppendNoStamp", "replace_order::new_then_old", "not linearizable", Any),
    ("ReplaceIgnoresStamp", "replace_order::new_then_old", "not linearizable", Any),
    ("ReleaseDropsStamped", "replace_order::new_then_old", "not linearizable", Any),
    ("DeleteNoStamp", "replace_order::delete_finds_nothing", "not linearizable", Any),
    ("DeleteKnownFirst", "replace_scan::delete_of_claimed_key", "is lost", Any),
    ("DeleteSkipsClaimed", "replace_scan::delete_of_claimed_key", "panicked", Any),
    ("DeleteStampsEarly", "room::refused_delete_leaves_no_trace", "hid the list", Any),
    ("DeleteTrustsLookup", "replace_order::delete_finds_nothing", "not linearizable", Any),
    ("ReplaceKeepsSlots", "replace_order::new_then_old", "a slot is left", Any),
    ("ReleaseKeepsReserve", "reserve::deleted_key_leaves_no_slot", "a slot is left", Any),
    ("ReservationTakesReserve", "reserve::resync_of_gone_key_leaves_no_slot", "a slot is left", Any),
    ("ReplaceSweepsEarly", "replace_order::new_then_old", "a slot is left", Any),
    ("ReplaceUnlocked", "replace_order::two_replaces", "not linearizable", Any),
    ("ResyncReadsFirst", "resync::resync_never_older", "goes back in time", Any),
    ("ResyncIgnoresBusy", "resync::two_resyncs", "panicked", Any),
    ("ResyncCommitsOverridden", "resync::resync_never_older", "goes back in time", Any),
    ("ResyncNumbersAlike", "resync::reservations_are_told_apart", "goes back in time", Any),
    ("ResyncKeepsReservation", "resync::resync_against_delete", "a slot is left", Any),
    ("AppendTrustsReservation", "resync::producer_takes_reservation_over", "is not found", Any),
    ("SyncedAtClaim", "synced::synced_not_early", "synced before", Any),
    ("SyncedGuardEarly", "synced::synced_not_early", "synced before", Any),
    ("SyncedCountLate", "synced::populate_once", "I7:", Any),
    ("SyncedLoadRelaxed", "synced::synced_not_early", "synced before", Any),
    ("SyncedDecrementRelaxed", "synced::synced_not_early", "synced before", Any),
    ("SyncedTagLost", "synced::synced_on_busy_slot", "synced before", Any),
    ("SyncedRequeueCounts", "synced::requeued_initial_is_not_synced", "I7:", Any),
    ("SyncedMergedTwice", "synced::requeued_duplicate_counts_once", "the count is stuck", Any),
    ("PopulateInTwoSteps", "synced::populate_once", "I7:", Any),
    ("SyncedNoNotify", "synced::wait_synced_wakes", DEADLOCK, Any),
    ("WaitNoRecheckAfterListen", "synced::wait_synced_wakes", DEADLOCK, Any),
    ("CloseNotifyOne", "close::close_wakes_all", DEADLOCK, Any),
    ("CloseNotifyFirst", "close::close_wakes_all", DEADLOCK, Any),
    ("CloseRelaxed", "close::close_delivers_one", "stranded", Weak),
    ("CloseNoRoomNotify", "room::close_wakes_producer", DEADLOCK, Any),
    ("CloseNoSyncedNotify", "synced::close_wakes_wait_synced", DEADLOCK, Any),
    ("DrainNoNotify", "drain::drain_waits_for_claim", DEADLOCK, Any),
    ("DrainIgnoresClaims", "drain::drain_waits_for_claim", "drained before", Any),
    ("DrainSetsNoFlag", "drain::drain_waits_for_claim", DEADLOCK, Any),
    ("DrainStartsWithoutWalk", "drain::drain_waits_for_claim", DEADLOCK, Real),
    ("RoomNoNotify", "room::room_wakes_producer", DEADLOCK, Any),
    ("RoomNotifyOne", "room::unused_room_is_passed_on", DEADLOCK, Any),
    ("RoomNoRecheckAfterListen", "room::room_wakes_producer", DEADLOCK, Any),
    ("LimitCheckThenAct", "room::limit_is_kept", "one fits", Any),
    ("PromoteKeepsOldTicket", "lanes::fresh_events_come_first", "waits behind the background", Any),
    ("BuryNoNotify", "drain::drain_buries_dead_ticket", DEADLOCK, Any),
    ("WalkTowardsTheEnd", "rows::walk_finds_moved_row", "missed a key that moved", Any),
    ("ReplaceKeepsDoubles", "rows::walk_sees_moved_row_twice", "deleted twice", Any),
    ("HintIsTrusted", "rows::ticket_finds_moved_row", "panicked", Any),
    ("MarkStaysBehind", "rows::mark_moves_with_row", "a key of the list was deleted", Any),
    ("ReplaceKeepsMarks", "rows::marks_are_cleared", "a key stayed", Any),
    // Where known objects are in the slots, a Replace looks for what is missing in another way.
    ("ReplaceOnlyKnown", "replace_scan::replace_finds_moving_key_embedded", "missed a key", Any),
    ("ReplaceSkipsClaimed", "replace_scan::replace_finds_moving_key_embedded", "missed a key", Any),
    ("ReplaceDeletesTwice", "replace_scan::claimed_deletion_counts_as_gone_embedded", "deleted once more", Any),
    // The informer: the hand-over between store and handlers, and the barrier.
    ("HandlersReadEarly", "hand_over::late_registration", "differs from the store", Any),
    ("HandlersReadLate", "hand_over::late_registration", "is told of", Any),
    ("ReplayReadEarly", "hand_over::late_registration", "differs from the store", Any),
    ("RegisterInTwoSteps", "hand_over::late_registration", "differs from the store", Any),
    ("ReplayReadEarly", "hand_over::registration_against_delete", "differs from the store", Any),
    ("RemoveInTwoSteps", "hand_over::removal_against_registration", "a handler is lost", Any),
    ("WriteReadsEarly", "hand_over::late_registration_two_workers", "differs from what was queued", Any),
    ("ToldAfterRelease", "hand_over::events_in_order", "is told of", Any),
    ("ToldAfterRelease", "hand_over::synced_means_told", "synced before it was told", Any),
    ("DoorStaysOpen", "hand_over::removal_against_write", "told after its removal", Any),
    ("BracketOpensLate", "barrier::barrier_one_worker", "reached before", Any),
    ("BracketClosesEarly", "barrier::barrier_one_worker", "reached before", Any),
    ("BracketClosesRelaxed", "barrier::barrier_one_worker", "reached before", Any),
    ("BracketLogsNothing", "barrier::barrier_one_worker", DEADLOCK, Any),
    ("BracketNoNotify", "barrier::barrier_one_worker", DEADLOCK, Any),
    ("GiveBackNotCounted", "barrier::barrier_against_requeue", "reached before", Any),
    ("BarrierNoFence", "barrier::barrier_one_worker", DEADLOCK, Any),
    ("BarrierSkipsFirstBrackets", "barrier::barrier_against_requeue", "reached before", Any),
    ("BarrierSkipsSecondBrackets", "barrier::barrier_one_worker", "reached before", Any),
    ("BarrierListsOnce", "barrier::barrier_one_worker", DEADLOCK, Any),
    ("BarrierIgnoresLeft", "barrier::barrier_one_worker", "reached before", Any),
    ("BarrierKeepsOldLog", "barrier::barrier_behind_a_claim", "reached before", Any),
    ("BarrierIgnoresStamp", "barrier::barrier_behind_a_claim", "reached before", Any),
    ("IdleByQueue", "barrier::barrier_behind_a_claim", "reached before", Any),
    ("IdleNoSecondLook", "barrier::barrier_one_worker", "reached before", Any),
    ("BarrierNoRecheckAfterListen", "barrier::barrier_one_worker", DEADLOCK, Any),
    ("FailureNotCounted", "barrier::barrier_against_failure", "could not be applied", Any),
    ("FailureForgivenLate", "barrier::barrier_against_list", "reached before the list", Any),
    ("BarrierSkipsSecondBrackets", "barrier::barrier_two_workers", "reached before", Any),
    // The linearizability check finds these as well.
    ("TicketOutsideGuard", "histories::pops_are_linearizable", "not linearizable", Any),
    ("ClaimInTwoSteps", "histories::pops_are_linearizable", "not linearizable", Any),
    ("ClaimReversesDeltas", "histories::pops_are_linearizable", "not linearizable", Any),
    ("ReleaseNoRequeue", "histories::pops_are_linearizable", "not linearizable", Any),
    ("ReleaseDropsDirty", "histories::pops_are_linearizable", "not linearizable", Any),
    ("RequeueBehindNewer", "histories::requeues_are_linearizable", "not linearizable", Any),
    ("RequeueLosesDeltas", "histories::requeues_are_linearizable", "not linearizable", Any),
    ("ClaimForgetsNewest", "histories::requeues_are_linearizable", "not linearizable", Any),
    ("EventNoFence", "close::close_wakes_all", DEADLOCK, Any),
    ("EventDropLosesNotify", "wake::cancelled_wait_passes_on", DEADLOCK, StandInEvent),
];

enum Outcome {
    Passed,
    Failed(String),
    Late,
}

/// Runs one model of this binary with a bug (or "") seeded.
fn run(model: &str, bug: &str, build: Build) -> (Outcome, f64) {
    let start = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", model, "--nocapture"])
        .env("DELTA_FIFO_BUG", bug)
        .env("RUST_BACKTRACE", "0")
        .envs((build == Weak).then_some(("DELTA_FIFO_QUEUE", "weak")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this binary can be run again");
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |pipe: &mut dyn Read| {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("the output of a model can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let stdout = std::thread::spawn(move || read(&mut out));
    let stderr = std::thread::spawn(move || read(&mut err));
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break Some(status),
            None if start.elapsed() > LIMIT => {
                child.kill().expect("a child can be killed");
                child.wait().expect("a child can be waited for");
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = format!("{}{}", stdout.join().unwrap(), stderr.join().unwrap());
    let seconds = start.elapsed().as_secs_f64();
    let outcome = match status {
        None => Outcome::Late,
        Some(status) if status.success() => {
            assert!(text.contains("running 1 test"), "there is no model {model}");
            Outcome::Passed
        }
        Some(_) => Outcome::Failed(text),
    };
    (outcome, seconds)
}

/// `cargo loom-mutations`. `DELTA_FIFO_ONLY` (a part of a bug's name) picks some.
#[test]
#[ignore = "the mutation command: cargo loom-mutations"]
fn every_bug_is_caught() {
    let only = std::env::var("DELTA_FIFO_ONLY").unwrap_or_default();
    let mut bad = Vec::new();
    let mut healthy: Vec<(&str, bool)> = Vec::new();
    let mut caught = BTreeSet::new();
    println!();
    for &(bug, model, says, build) in TABLE.iter().filter(|row| row.0.contains(&only)) {
        if !build.is_this() {
            println!("MUTATION {bug:28} not visible in this build");
            continue;
        }
        let weak = build == Weak;
        if !healthy.contains(&(model, weak)) {
            match run(model, "", build).0 {
                Outcome::Passed => healthy.push((model, weak)),
                Outcome::Failed(text) => bad.push(format!("{model} fails without a bug:\n{text}")),
                Outcome::Late => bad.push(format!("{model} does not end without a bug")),
            }
        }
        let (outcome, seconds) = run(model, bug, build);
        let verdict = match outcome {
            Outcome::Failed(text) if text.contains(says) => {
                caught.insert(bug);
                "caught"
            }
            Outcome::Failed(text) => {
                bad.push(format!("{bug} in {model}: it fails, but does not say {says:?}:\n{text}"));
                "WRONG FAILURE"
            }
            Outcome::Passed => {
                bad.push(format!("{bug} survives {model}"));
                "SURVIVES"
            }
            Outcome::Late => {
                bad.push(format!("{bug} makes {model} run for more than {LIMIT:?}"));
                "TOO LONG"
            }
        };
        println!("MUTATION {bug:28} {verdict} by {model:45} {seconds:6.2} s");
    }
    println!("MUTATIONS {} caught of {} seeded", caught.len(), delta_fifo::seeded::ALL.len());
    for (bug, _) in delta_fifo::seeded::ALL {
        if !TABLE.iter().any(|row| row.0 == *bug) {
            bad.push(format!("{bug} has no model"));
        }
    }
    for row in TABLE {
        if !delta_fifo::seeded::ALL.iter().any(|(bug, _)| *bug == row.0) {
            bad.push(format!("there is no seeded bug {}", row.0));
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}

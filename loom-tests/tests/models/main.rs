//! The models: one file per race. `cargo loom` runs them all, `cargo shuttle` runs them under random schedules, and
//! `mutations.rs` shows that each of them can fail. See loom-tests/README.md.
//!
//! "Threads" counts the main one. "Executions" is what loom explored at the bound of two preemptions, on the strong
//! stand-ins.
#![cfg(any(loom, shuttle))]

mod barrier;
mod claims;
mod close;
mod deltas;
mod drain;
mod hand_over;
mod histories;
mod lanes;
mod release;
mod replace_order;
mod replace_scan;
mod reserve;
mod resync;
mod room;
mod rows;
#[cfg(shuttle)]
mod scenarios;
mod synced;
mod wake;

#[cfg(loom)]
mod mutations;

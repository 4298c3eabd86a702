//! The informer stack from the outside, one binary. Time is tokio's paused clock wherever it matters.

#![allow(unreachable_pub)] // one binary: `pub` means "for the other modules"

mod bugs;
mod chaos;
mod handlers;
mod limits;
mod panics;
mod reflector;
mod resync;
mod shared;
mod shutdown;
mod store;
mod support;
mod watch_list;

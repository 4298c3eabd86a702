//! `standin.rs`, `standin_event.rs` and `standin_published.rs` a second time, on std.
#![allow(dead_code)]

mod prim {
    pub(crate) use std::sync::atomic::{AtomicUsize, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::thread;
}
use crate::sync::rows;

#[path = "../../standin.rs"]
pub(super) mod standin;
#[path = "../../standin_event.rs"]
pub(super) mod standin_event;
#[path = "../../standin_published.rs"]
pub(super) mod standin_published;

//! The checker's primitives, under one set of names, so that one file of stand-ins serves both checkers.

#[cfg(all(loom, feature = "loom"))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(all(loom, feature = "loom", not(real_event)))]
pub(crate) use loom::thread;

#[cfg(all(shuttle, feature = "shuttle"))]
pub(crate) use shuttle::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

//! The real parts.

pub(crate) use super::event::{Asleep, Event, EventListener, Listener, asleep};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use super::rows::{Hint, Row, Visits};
pub(crate) use super::table::{Shard, Table};

/// Counts the guards that this thread holds, so that a debug build can prove that user code runs under none.
#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;

    thread_local!(static HELD: Cell<u32> = const { Cell::new(0) });

    #[derive(Debug)]
    pub(in crate::sync) struct Held;

    impl Held {
        pub(in crate::sync) fn new() -> Held {
            HELD.with(|held| {
                assert_eq!(held.get(), 0, "a map guard is taken while another one is held");
                held.set(1);
            });
            Held
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|held| held.set(0));
        }
    }

    pub(crate) fn assert_no_guard() {
        assert_eq!(HELD.with(Cell::get), 0, "user code would run under a map guard");
    }
}

#[cfg(not(debug_assertions))]
mod held {
    pub(in crate::sync) struct Held;

    impl Held {
        #[inline(always)]
        pub(in crate::sync) fn new() -> Held {
            Held
        }
    }

    #[inline(always)]
    pub(crate) fn assert_no_guard() {}
}

pub(super) use held::Held;
pub(crate) use held::assert_no_guard;

/// An unbounded FIFO.
pub(crate) struct Queue<T>(crossbeam_queue::SegQueue<T>);

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue(crossbeam_queue::SegQueue::new())
    }

    #[inline]
    pub(crate) fn push(&self, value: T) {
        self.0.push(value);
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A bounded stock of things that are expensive to make again.
pub(crate) struct Pool<T>(crossbeam_queue::ArrayQueue<T>);

impl<T> Pool<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Pool(crossbeam_queue::ArrayQueue::new(capacity))
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        self.0.pop()
    }

    /// Gives `value` back where the stock is full.
    #[inline]
    pub(crate) fn put(&self, value: T) -> Option<T> {
        self.0.push(value).err()
    }
}

/// How often a consumer looks again before it sleeps.
pub(crate) const SPINS: u32 = 64;

/// A short pause between two looks.
#[inline]
pub(crate) fn spin() {
    for _ in 0..4 {
        std::hint::spin_loop();
    }
}

/// Waits until notified (`true`) or until the time is over.
pub(crate) fn wait_deadline(listener: EventListener, deadline: std::time::Instant) -> bool {
    event_listener::Listener::wait_deadline(listener.listener, deadline).is_some()
}

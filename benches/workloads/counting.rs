//! The system allocator with counters. They are per thread, so that counting costs the threads of a measurement no
//! common cache line.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constants without a destructor: these can be used inside an allocator.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// Allocations that this thread has made so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread has allocated and not freed.
pub fn live_bytes() -> i64 {
    LIVE.get()
}

fn count(allocations: u64, bytes: i64) {
    // A thread that is ending has no counters any more; nobody asks for them then.
    let _ = ALLOCATIONS.try_with(|counter| counter.set(counter.get() + allocations));
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

pub struct Counting;

// SAFETY: every call is handed to `System` with the arguments it came with. Counting touches thread-locals that need
// neither memory nor a destructor, so it does not come back here.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`, and `ptr` came from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `realloc`, and `ptr` came from `System`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

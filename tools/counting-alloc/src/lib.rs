//! The system allocator with counters, for tests and benches: how often did a thread allocate, how much does it, or the
//! whole process, hold?
//!
//! The counters of a thread cost no cache line that threads share; the one of the process does, and is kept only by
//! [`CountingProcess`].
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;
//!
//! let before = counting_alloc::allocations();
//! let boxed = Box::new(1);
//! assert_eq!(counting_alloc::allocations(), before + 1);
//! drop(boxed);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    // Constants without a destructor: these can be used inside an allocator.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

static PROCESS_LIVE: AtomicI64 = AtomicI64::new(0);

/// Allocations that this thread has made so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread has allocated and not freed.
pub fn live_bytes() -> i64 {
    LIVE.get()
}

/// Bytes that all threads have allocated and not freed; counted under [`CountingProcess`].
pub fn process_live_bytes() -> i64 {
    // Relaxed: exact once the threads that allocate were joined, an estimate before.
    PROCESS_LIVE.load(Ordering::Relaxed)
}

fn count_thread(allocations: u64, bytes: i64) {
    // A thread that is ending has no counters any more; nobody asks for them then.
    let _ = ALLOCATIONS.try_with(|counter| counter.set(counter.get() + allocations));
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

fn count_process(_allocations: u64, bytes: i64) {
    PROCESS_LIVE.fetch_add(bytes, Ordering::Relaxed);
}

macro_rules! counting {
    ($(#[$doc:meta])* $name:ident, $count:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        // SAFETY: every call is handed to `System` with the arguments it came with. Counting neither allocates nor
        // unwinds, so it does not come back here.
        unsafe impl GlobalAlloc for $name {
            unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
                $count(1, layout.size() as i64);
                // SAFETY: the caller keeps the contract of `alloc`.
                unsafe { System.alloc(layout) }
            }

            unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
                $count(1, layout.size() as i64);
                // SAFETY: the caller keeps the contract of `alloc_zeroed`.
                unsafe { System.alloc_zeroed(layout) }
            }

            unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
                $count(0, -(layout.size() as i64));
                // SAFETY: the caller keeps the contract of `dealloc`, and `ptr` came from `System`.
                unsafe { System.dealloc(ptr, layout) }
            }

            unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
                $count(1, size as i64 - layout.size() as i64);
                // SAFETY: the caller keeps the contract of `realloc`, and `ptr` came from `System`.
                unsafe { System.realloc(ptr, layout, size) }
            }
        }
    };
}

counting! {
    /// Counts for each thread: [`allocations`], [`live_bytes`].
    Counting, count_thread
}
counting! {
    /// Counts for the process: [`process_live_bytes`].
    CountingProcess, count_process
}

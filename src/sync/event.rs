//! The event: event-listener's, with a count in front and a waker that cannot panic. The same file is checked by loom
//! (`--cfg real_event`), over event-listener's own loom mode.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

#[cfg(all(loom, feature = "loom"))]
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(not(all(loom, feature = "loom")))]
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crossbeam_utils::CachePadded;

use crate::seeded::{self, Bug};

/// event-listener's event, with a count of those who listen: its own `notify` takes a lock each time, and a lock that
/// every producer takes for every ticket would be the global one that this queue does without.
///
/// The count goes up before the listener registers, and a listener looks again after that, so with a fence on both
/// sides either the listener's look finds what `notify` is about, or `notify` finds the listener counted (E1, E3 in
/// `queue/mod.rs`). One that is counted and not registered yet is missed by a `notify`, which then was in the list's
/// lock before it: its look comes after what was published before. A count that is too high costs a lock.
pub(crate) struct Event {
    event: event_listener::Event,
    listening: Arc<CachePadded<AtomicUsize>>,
}

impl Event {
    pub(crate) fn new() -> Self {
        Event { event: event_listener::Event::new(), listening: Arc::new(CachePadded::new(AtomicUsize::new(0))) }
    }

    #[inline]
    fn somebody_listens(&self) -> bool {
        // Orders what the caller published before the look. Its counterpart is in `listen`.
        if !seeded::on(Bug::EventNoFence) {
            fence(Ordering::SeqCst);
        }
        // Relaxed: by the fences, see above.
        self.listening.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(crate) fn notify(&self, n: usize) {
        if self.somebody_listens() {
            self.event.notify(n);
        }
    }

    #[inline]
    pub(crate) fn notify_additional(&self, n: usize) {
        if self.somebody_listens() {
            self.event.notify_additional(n);
        }
    }

    pub(crate) fn listen(&self) -> EventListener {
        let counted = Counted::new(&self.listening);
        let listener = self.event.listen();
        // event-listener has no fence here: its `notify` always takes the lock, and that orders. Ours does not, so the
        // caller's next look must come after the count. On x86 the count itself is a full barrier; elsewhere it is not.
        if !seeded::on(Bug::EventNoFence) {
            fence(Ordering::SeqCst);
        }
        EventListener { listener, _counted: counted }
    }
}

/// One who listens.
struct Counted(Arc<CachePadded<AtomicUsize>>);

impl Counted {
    fn new(listening: &Arc<CachePadded<AtomicUsize>>) -> Self {
        // Relaxed: by the fence in `listen`, see `Event`.
        listening.fetch_add(1, Ordering::Relaxed);
        Counted(listening.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed: the one who counts off does not wait any more.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct EventListener {
    // In this order: a listener that drops passes its notification on to one who is still counted.
    pub(super) listener: event_listener::EventListener,
    _counted: Counted,
}

/// A wait that blocks the thread. A trait, as in event-listener and in the stand-in.
pub(crate) trait Listener {
    fn wait(self);
}

impl Listener for EventListener {
    fn wait(self) {
        event_listener::Listener::wait(self.listener);
    }
}

/// Waits until notified, as a future.
pub(crate) fn asleep(listener: EventListener) -> Asleep {
    Asleep { listener, waker: None }
}

/// A listener whose waker cannot panic.
///
/// event-listener calls wakers under its lock, in the middle of its own counting: a panic there would leave the event
/// wrong for ever, and nobody would be woken any more. So it is given a waker that contains the panic of the user's.
pub(crate) struct Asleep {
    listener: EventListener,
    /// The waker of the last poll, and the one made of it.
    waker: Option<(Waker, Waker)>,
}

impl Future for Asleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let waker = match &mut this.waker {
            Some((given, contained)) if given.will_wake(cx.waker()) => contained,
            other => {
                let contained = Waker::from(Arc::new(Contained(cx.waker().clone())));
                &mut other.insert((cx.waker().clone(), contained)).1
            }
        };
        Pin::new(&mut this.listener.listener).poll(&mut Context::from_waker(waker))
    }
}

struct Contained(Waker);

impl Wake for Contained {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The panic hook has reported it; the task that is not woken is the one whose waker is broken.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.wake_by_ref()));
    }
}

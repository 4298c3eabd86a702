//! The event: the real one over event-listener's loom mode (`--cfg real_event`), or a stand-in with the same contract, which
//! shuttle and the seeded bugs of the event itself need.

/// Consumers of a model do not spin: it would only multiply the executions.
pub(crate) const SPINS: u32 = 0;

pub(crate) fn spin() {}

/// See `event.rs`; the models' wakers do not panic.
#[cfg(not(all(loom, real_event)))]
pub(crate) type Asleep = EventListener;

/// Waits until notified, as a future.
#[cfg(not(all(loom, real_event)))]
pub(crate) fn asleep(listener: EventListener) -> Asleep {
    listener
}

/// Time does not pass in a model: a timeout is modelled as a cancelled wait.
pub(crate) fn wait_deadline(listener: EventListener, _deadline: std::time::Instant) -> bool {
    Listener::wait(listener);
    true
}

#[cfg(all(loom, real_event))]
pub(crate) use super::event::{Asleep, Event, EventListener, Listener, asleep};

#[cfg(not(all(loom, real_event)))]
pub(crate) use standin::{Event, EventListener, Listener};

#[cfg(not(all(loom, real_event)))]
mod standin {
    use std::collections::VecDeque;
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::super::prim::{AtomicUsize, Mutex, Ordering, fence, thread};
    use crate::seeded::{self, Bug};

    /// How a waiter was notified. One that drops passes its notification on as what it was.
    #[derive(Clone, Copy)]
    enum Kind {
        /// Counts the waiters that are notified already.
        Plain,
        Additional,
    }

    struct Waiter {
        id: usize,
        notified: Option<Kind>,
        thread: Option<thread::Thread>,
        waker: Option<Waker>,
    }

    #[derive(Default)]
    struct List {
        next: usize,
        waiters: VecDeque<Waiter>,
    }

    impl List {
        /// Notifies `n` waiters, the oldest first. What is to be woken is returned, for after the lock.
        fn notify(&mut self, n: usize, kind: Kind) -> Vec<Wake> {
            let already = match kind {
                Kind::Plain => self.waiters.iter().filter(|waiter| waiter.notified.is_some()).count(),
                Kind::Additional => 0,
            };
            let mut wake = Vec::new();
            let waiting = self.waiters.iter_mut().filter(|waiter| waiter.notified.is_none());
            for waiter in waiting.take(n.saturating_sub(already)) {
                waiter.notified = Some(kind);
                wake.extend(waiter.thread.take().map(Wake::Thread));
                wake.extend(waiter.waker.take().map(Wake::Task));
            }
            wake
        }
    }

    enum Wake {
        Thread(thread::Thread),
        Task(Waker),
    }

    fn wake(all: Vec<Wake>) {
        for one in all {
            match one {
                Wake::Thread(thread) => thread.unpark(),
                Wake::Task(waker) => waker.wake(),
            }
        }
    }

    struct Inner {
        /// How many listen, read without the lock.
        waiting: AtomicUsize,
        list: Mutex<List>,
    }

    /// event-listener's contract: listeners in the order they came; `notify` counts those that are notified already,
    /// `notify_additional` does not; a listener that is dropped after it was notified passes its notification on.
    pub(crate) struct Event(Arc<Inner>);

    impl Event {
        pub(crate) fn new() -> Self {
            Event(Arc::new(Inner { waiting: AtomicUsize::new(0), list: Mutex::new(List::default()) }))
        }

        fn somebody_listens(&self) -> bool {
            if !seeded::on(Bug::EventNoFence) {
                // As event-listener: a full fence, then a plain look whether anybody listens.
                fence(Ordering::SeqCst);
            }
            self.0.waiting.load(Ordering::Relaxed) != 0
        }

        pub(crate) fn notify_additional(&self, n: usize) {
            self.notify_as(n, Kind::Additional);
        }

        pub(crate) fn notify(&self, n: usize) {
            self.notify_as(n, Kind::Plain);
        }

        fn notify_as(&self, n: usize, kind: Kind) {
            if self.somebody_listens() {
                let woken = self.0.list.lock().unwrap().notify(n, kind);
                wake(woken);
            }
        }

        pub(crate) fn listen(&self) -> EventListener {
            let id = {
                let mut list = self.0.list.lock().unwrap();
                let id = list.next;
                list.next += 1;
                list.waiters.push_back(Waiter { id, notified: None, thread: None, waker: None });
                self.0.waiting.store(list.waiters.len(), Ordering::Relaxed);
                id
            };
            if !seeded::on(Bug::EventNoFence) {
                fence(Ordering::SeqCst);
            }
            EventListener { inner: self.0.clone(), id, done: false }
        }
    }

    pub(crate) struct EventListener {
        inner: Arc<Inner>,
        id: usize,
        done: bool,
    }

    pub(crate) trait Listener {
        fn wait(self);
    }

    impl EventListener {
        /// `true` when notified; else leaves behind whom to wake.
        fn poll_once(&mut self, thread: Option<thread::Thread>, waker: Option<Waker>) -> bool {
            let mut list = self.inner.list.lock().unwrap();
            let at = list.waiters.iter().position(|waiter| waiter.id == self.id).expect("listening");
            if list.waiters[at].notified.is_some() {
                list.waiters.remove(at);
                self.inner.waiting.store(list.waiters.len(), Ordering::Relaxed);
                self.done = true;
                return true;
            }
            list.waiters[at].thread = thread;
            list.waiters[at].waker = waker;
            false
        }
    }

    impl Listener for EventListener {
        fn wait(mut self) {
            while !self.poll_once(Some(thread::current()), None) {
                thread::park();
            }
        }
    }

    impl Future for EventListener {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            match self.poll_once(None, Some(cx.waker().clone())) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }
    }

    impl Drop for EventListener {
        fn drop(&mut self) {
            if self.done || std::thread::panicking() {
                return;
            }
            let mut list = self.inner.list.lock().unwrap();
            let at = list.waiters.iter().position(|waiter| waiter.id == self.id).expect("listening");
            let waiter = list.waiters.remove(at).expect("listening");
            self.inner.waiting.store(list.waiters.len(), Ordering::Relaxed);
            let pass_on = waiter.notified.filter(|_| !seeded::on(Bug::EventDropLosesNotify));
            let woken = pass_on.map(|kind| list.notify(1, kind)).unwrap_or_default();
            drop(list);
            wake(woken);
        }
    }
}

//! What comes from outside and must do no harm: panics of user code, and durations without an end.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::HandlerPanic;
use crate::key::BoxError;

/// Longer than anybody waits, and short enough to be added to any instant.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// `duration`, but at most thirty years: those can be added and doubled.
pub(super) fn capped(duration: Duration) -> Duration {
    duration.min(FOR_EVER)
}

/// `duration` after `instant`, or thirty years after it.
pub(super) fn after(instant: Instant, duration: Duration) -> Instant {
    instant + capped(duration)
}

fn error(panic: &(dyn Any + Send)) -> BoxError {
    HandlerPanic::new(panic).into()
}

/// Runs user code; a panic becomes an error.
pub(super) fn catch<R>(run: impl FnOnce() -> Result<R, BoxError>) -> Result<R, BoxError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(error(&*panic)))
}

/// Waits for a future that calls user code; a panic becomes an error.
///
/// Unwind safety: the future is not polled again, and what it shares with others (queue and store) is built so that a
/// panic of user code leaves it whole.
pub(super) async fn contain<R>(future: impl Future<Output = R>) -> Result<R, BoxError> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(error(&*panic))),
    })
    .await
}

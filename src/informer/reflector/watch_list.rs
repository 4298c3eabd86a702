//! The initial list as a stream: a watch that begins with the whole state and says where it ends.

use std::sync::Arc;

use tokio::task::consume_budget;
use tokio::time::{Instant, sleep};

use super::{End, Reflector, ReflectorError, ReflectorStore, Run, SHORT_WATCH, Watching, next};
use crate::informer::guard::contain;
use crate::informer::{ListWatch, ResourceVersion, SourceError, WatchEvent, WatchOptions};

/// What came before the end of the initial events. Nothing of it reaches the target before the end is known.
struct Gathered<T> {
    list: Vec<Arc<T>>,
    /// What came after the first event that was no addition, in order: applied on top of the list.
    then: Vec<WatchEvent<T>>,
}

/// How one attempt ended.
enum Attempt<L: ListWatch<T>, T> {
    Complete(Watching<L, T>, Gathered<T>, ResourceVersion),
    /// The stream ended early.
    Early {
        at_once: bool,
    },
    Failed(SourceError),
}

impl<T, L, R> Reflector<T, L, R>
where
    T: Send + Sync + 'static,
    L: ListWatch<T>,
    R: ReflectorStore<T>,
{
    /// `None`: make a list instead. Else the stream goes on as the watch.
    pub(super) async fn watch_list(&self, run: &mut Run) -> Option<Result<Watching<L, T>, End>> {
        if !self.options.watch_list || !self.source.streams_initial_list() {
            return None;
        }
        loop {
            let version = if run.unavailable { ResourceVersion::UNSET } else { run.last.clone() };
            match self.attempt(version).await {
                Attempt::Complete(stream, gathered, version) => {
                    run.unavailable = false;
                    let replaced =
                        contain(self.target.replace(gathered.list, version.clone())).await.unwrap_or_else(Err);
                    if let Err(error) = replaced {
                        return Some(Err(ReflectorError::Replace(error).into()));
                    }
                    for event in gathered.then {
                        if let Err(error) = self.hand_over(event).await {
                            return Some(Err(ReflectorError::Apply(error).into()));
                        }
                    }
                    self.reach(run, version);
                    return Some(Ok(stream));
                }
                // A source that ends each stream at once would be asked in a tight loop.
                Attempt::Early { at_once: true } => sleep(run.backoff.next()).await,
                Attempt::Early { at_once: false } => {}
                Attempt::Failed(error @ (SourceError::Refused(_) | SourceError::TooManyRequests { .. })) => {
                    self.wait_after(run, error).await;
                }
                Attempt::Failed(SourceError::Expired | SourceError::VersionTooLarge) if !run.unavailable => {
                    run.unavailable = true;
                }
                Attempt::Failed(SourceError::Unsupported) => return None,
                Attempt::Failed(error @ SourceError::Fatal(_)) => {
                    return Some(Err(ReflectorError::Watch(error).into()));
                }
                Attempt::Failed(error) => {
                    self.control.report(&ReflectorError::Watch(error));
                    return None;
                }
            }
        }
    }

    async fn attempt(&self, version: ResourceVersion) -> Attempt<L, T> {
        let started = Instant::now();
        let options = WatchOptions { initial_events: true, ..self.watch_options(version) };
        let mut stream = match self.open(options).await {
            Ok(stream) => stream,
            Err(error) => return Attempt::Failed(error),
        };
        let mut gathered = Gathered { list: Vec::new(), then: Vec::new() };
        let mut events = 0u64;
        loop {
            match next(&mut stream).await {
                None => return Attempt::Early { at_once: events == 0 && started.elapsed() < SHORT_WATCH },
                Some(Err(error)) => return Attempt::Failed(error),
                Some(Ok(WatchEvent::Bookmark { resource_version, initial_events_end: true })) => {
                    return Attempt::Complete(stream, gathered, resource_version);
                }
                Some(Ok(WatchEvent::Bookmark { .. })) => {}
                Some(Ok(WatchEvent::Added { object, .. })) if gathered.then.is_empty() => gathered.list.push(object),
                Some(Ok(event)) => gathered.then.push(event),
            }
            events += 1;
            consume_budget().await;
        }
    }
}

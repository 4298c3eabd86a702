//! Durations that mean "never": they are as long as can be, and no sum of them overflows.

use std::sync::Arc;
use std::time::Duration;

use delta_fifo::informer::{
    BackoffPolicy, Event, Handler, HandlerOptions, ReflectorOptions, Request, RetryPolicy, SharedInformer, Shutdown,
    SourceError,
};
use tokio::time::sleep;

use crate::support::{Recorder, obj, server_with, started};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test(start_paused = true)]
async fn a_shutdown_may_take_for_ever() {
    let server = server_with(&["a"]);
    let informer = started(&server);
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap();
    informer.wait_synced().await.unwrap();
    assert!(informer.shutdown(Shutdown::Graceful(Duration::MAX)).await.is_clean());
    assert_eq!(recorder.take(), ["add a=0 initial (relist)"]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_may_never_come() {
    let server = server_with(&["a"]);
    let informer = SharedInformer::builder(server.clone()).resync_period(Duration::MAX).build().unwrap();
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap();
    informer.start().unwrap();
    let options = HandlerOptions::new().resync_period(Duration::MAX);
    let other = informer.add_event_handler_with(recorder.handler(), options).unwrap();
    other.wait_synced().await.unwrap();
    recorder.wait_len(2).await;
    sleep(DAY).await;
    assert_eq!(recorder.len(), 2, "the additions and nothing else");
    let version = server.put(obj("b", 1));
    informer.store().wait_for(version).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reflector_may_wait_for_ever() {
    let server = server_with(&["a"]);
    let options = ReflectorOptions {
        watch_timeout: Duration::MAX,
        resync_period: Duration::MAX,
        max_internal_error_retry: Duration::MAX,
        ..ReflectorOptions::default()
    };
    let store = Arc::new(delta_fifo::informer::Store::new());
    let reflector = delta_fifo::informer::Reflector::new(server.clone(), store.clone()).options(options);
    let running = tokio::spawn(async move { reflector.run().await });
    store.wait_for(server.version()).await.unwrap();
    sleep(DAY).await;
    assert!(!running.is_finished());
    let watches = server.requests().into_iter().filter_map(|request| match request {
        Request::Watch(options) => options.timeout,
        Request::List(_) => None,
    });
    assert!(watches.map(|timeout| timeout > DAY).eq([true]), "one watch, and a long one");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_back_off_may_be_for_ever() {
    for jitter in [false, true] {
        let for_ever = BackoffPolicy {
            min: Duration::MAX,
            max: Duration::MAX,
            factor: f32::MAX,
            jitter,
            reset_after: Duration::MAX,
        };
        let server = server_with(&["a"]);
        let informer = SharedInformer::builder(server.clone())
            .reflector(ReflectorOptions { backoff: for_ever, ..ReflectorOptions::default() })
            .build()
            .unwrap();
        let failing = Handler::from_fn(|_: &Event<_>| Err::<(), _>("always"));
        let retry = RetryPolicy { retries: None, backoff: for_ever };
        let handle = informer.add_event_handler_with(failing, HandlerOptions::new().retry(retry)).unwrap();
        informer.start().unwrap();
        informer.wait_synced().await.unwrap();
        sleep(DAY).await;
        let stats = handle.stats();
        assert_eq!((stats.failed, stats.waiting), (1, 1), "it waits for its second attempt");
        // The reflector waits as long, and can be stopped.
        server.inject(|| Err(SourceError::Transport("broken".into())));
        let requests = server.requests().len();
        sleep(DAY).await;
        assert_eq!(server.requests().len(), requests);
        assert!(!informer.is_stopped());
        assert_eq!(informer.shutdown(Shutdown::Immediate).await.events_dropped, 1);
    }
}

//! A function of the user's that panics, once or for ever: it costs a wait and a report, and nothing stops silently.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::informer::{
    InformerBuilder, ListOptions, ListPage, ListWatch, Reflector, ReflectorError, ReflectorOptions, ResourceVersion,
    SharedInformer, Shutdown, SourceError, Store, WatchOptions,
};
use delta_fifo::{BoxError, Compression, Deltas, Keyed};
use futures_lite::stream::{self, Boxed};
use tokio::time::timeout;

use crate::support::{Obj, Recorder, Server, obj, server, server_with};

const LONG: Duration = Duration::from_secs(600);

/// Panics at its call number `.0`, counted from 1.
#[derive(Clone)]
struct Once(usize, Arc<AtomicUsize>);

impl Once {
    fn at(call: usize) -> Self {
        Once(call, Arc::default())
    }

    fn call(&self) {
        assert!(self.1.fetch_add(1, Ordering::Relaxed) + 1 != self.0, "the user's function broke");
    }
}

#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Errors {
    fn hook(&self) -> impl Fn(&ReflectorError) + Send + Sync + 'static {
        let errors = self.0.clone();
        move |error| errors.lock().unwrap().push(error.to_string())
    }

    fn assert_told(&self, what: &str) {
        let errors = self.0.lock().unwrap();
        let told =
            errors.iter().any(|text| text.contains(what) && text.contains("panicked: the user's function broke"));
        assert!(told, "{what} is not in {errors:?}");
    }
}

/// All that is put into the source gets to the store and to the handlers, and the shutdown is clean.
async fn recovers(server: &Server, builder: InformerBuilder<Obj>, what: &str) {
    let errors = Errors::default();
    let informer = builder.on_error(errors.hook()).build().unwrap();
    let recorder = Recorder::new();
    informer.add_event_handler(recorder.handler()).unwrap();
    informer.start().unwrap();
    timeout(LONG, informer.wait_synced()).await.expect("it syncs").unwrap();
    for value in 1..=3 {
        let version = server.put(obj("late", value));
        timeout(LONG, informer.store().wait_for(version)).await.expect("the change gets there").unwrap();
    }
    assert_eq!(informer.store().get(&"late".into()).unwrap().value, 3);
    errors.assert_told(what);
    let report = timeout(LONG, informer.shutdown(Shutdown::Graceful(Duration::from_secs(60)))).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(recorder.take().last().unwrap().contains("late"));
}

#[tokio::test(start_paused = true)]
async fn a_key_function_that_panics_is_reported_and_a_list_follows() {
    for (call, what) in [(1, "the list was refused"), (3, "a change was not applied")] {
        let server = server_with(&["a"]);
        // The first calls are for the list; the store asks for no keys.
        let once = Once::at(call);
        let builder = SharedInformer::builder_with_key_fn(server.clone(), move |object: &Obj| {
            once.call();
            Ok::<_, BoxError>(object.key())
        });
        recovers(&server, builder, what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_transformer_that_panics_is_reported_and_a_list_follows() {
    for (call, what) in [(1, "the list was refused"), (2, "a change was not applied")] {
        let server = server_with(&["a"]);
        let once = Once::at(call);
        let builder = SharedInformer::builder(server.clone()).transform(move |object| {
            once.call();
            Ok::<_, BoxError>(object)
        });
        recovers(&server, builder, what).await;
    }
}

/// The list is so long that it is queued on a thread of its own.
#[tokio::test]
async fn a_transformer_that_panics_in_a_long_list_is_reported_and_a_list_follows() {
    let server = server();
    for n in 0..5000 {
        server.put(obj(&n.to_string(), n));
    }
    let once = Once::at(4500);
    let builder = SharedInformer::builder(server.clone()).transform(move |object| {
        once.call();
        Ok::<_, BoxError>(object)
    });
    recovers(&server, builder, "the list was refused").await;
}

fn compression(panics: impl Fn(&str) -> bool + Send + Sync + 'static) -> Compression<Obj> {
    Compression::Custom(Arc::new(move |key: &Arc<str>, deltas: Deltas<Obj>| -> Deltas<Obj> {
        assert!(!panics(key), "the user's function broke");
        deltas
    }))
}

#[tokio::test(start_paused = true)]
async fn a_compression_that_panics_is_reported_and_the_key_is_tried_again() {
    let server = server_with(&["a", "b"]);
    let first = AtomicBool::new(true);
    let compression = compression(move |_| first.swap(false, Ordering::Relaxed));
    recovers(&server, SharedInformer::builder(server.clone()).compression(compression), "stays queued").await;
}

#[tokio::test(start_paused = true)]
async fn a_compression_that_always_panics_for_one_key_keeps_the_others_from_nothing() {
    let server = server();
    for n in 0..100 {
        server.put(obj(&n.to_string(), n));
    }
    server.put(obj("poison", 0));
    let (errors, calls) = (Errors::default(), Arc::new(AtomicUsize::new(0)));
    let count = calls.clone();
    let compression = compression(move |key| {
        count.fetch_add(1, Ordering::Relaxed);
        key == "poison"
    });
    let builder = SharedInformer::builder(server.clone()).compression(compression).on_error(errors.hook());
    let informer = builder.build().unwrap();
    let mut changes = informer.store().subscribe();
    informer.start().unwrap();
    let all_others = async {
        while informer.store().len() < 100 {
            changes.changed().await.unwrap();
        }
    };
    timeout(LONG, all_others).await.expect("the others are applied");
    errors.assert_told("stays queued");
    // A fresh change of another key gets through too, and the worker does not spin.
    server.put(obj("late", 1));
    let late = async {
        while informer.store().get(&"late".into()).is_none() {
            changes.changed().await.unwrap();
        }
    };
    timeout(LONG, late).await.expect("a fresh change is applied");
    let before = calls.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let more = calls.load(Ordering::Relaxed) - before;
    assert!((1..2000).contains(&more), "{more} calls in a minute");
    let report = timeout(LONG, informer.shutdown(Shutdown::Graceful(Duration::from_secs(5)))).await.unwrap();
    assert_eq!(report.keys_not_applied, 1, "what is left is told");
}

#[tokio::test(start_paused = true)]
async fn an_error_hook_that_panics_is_ignored() {
    let server = server_with(&["a"]);
    server.fail_next_list(SourceError::Internal("once".into()));
    let informer = SharedInformer::builder(server.clone())
        .on_error(|error| panic!("the hook broke over {error}"))
        .build()
        .unwrap();
    informer.start().unwrap();
    timeout(LONG, informer.wait_synced()).await.expect("it syncs").unwrap();
}

#[tokio::test(start_paused = true)]
async fn should_resync_that_panics_is_reported_and_asked_again() {
    let server = server_with(&["a"]);
    let errors = Errors::default();
    let options = ReflectorOptions { resync_period: Duration::from_secs(10), ..ReflectorOptions::default() };
    let (once, store) = (Once::at(1), Arc::new(Store::<Obj>::new()));
    let asked = once.1.clone();
    let reflector = Reflector::new(server.clone(), store.clone())
        .options(options)
        .on_error(errors.hook())
        .should_resync(move || {
            once.call();
            true
        });
    let running = tokio::spawn(async move { reflector.run().await });
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert!(!running.is_finished());
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    errors.assert_told("resync stopped half-way");
    let version = server.put(obj("b", 1));
    timeout(LONG, store.wait_for(version)).await.expect("the reflector goes on").unwrap();
    running.abort();
}

/// A source whose first list panics, the first watch too, and a stream of it.
struct Breaks(Once);

impl ListWatch<Obj> for Breaks {
    type Watch = Boxed<Result<delta_fifo::informer::WatchEvent<Obj>, SourceError>>;

    async fn list(&self, _: ListOptions) -> Result<ListPage<Obj>, SourceError> {
        self.0.call();
        Ok(ListPage::new(vec![Arc::new(obj("a", 1))], ResourceVersion::from(1)))
    }

    async fn watch(&self, _: WatchOptions) -> Result<Self::Watch, SourceError> {
        self.0.call();
        let once = self.0.clone();
        Ok(Box::pin(stream::poll_fn(move |_| {
            once.call();
            std::task::Poll::Pending
        })))
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_is_reported_and_asked_again() {
    // Call 1 is the list, 2 the watch, 3 its stream.
    for call in 1..=3 {
        let errors = Errors::default();
        let once = Once::at(call);
        let calls = once.1.clone();
        let store = Arc::new(Store::<Obj>::new());
        let options = ReflectorOptions { watch_list: false, ..ReflectorOptions::default() };
        let reflector = Reflector::new(Breaks(once), store.clone()).options(options).on_error(errors.hook());
        let running = tokio::spawn(async move { reflector.run().await });
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!running.is_finished(), "call {call}");
        errors.assert_told("failed");
        assert_eq!((store.len(), calls.load(Ordering::Relaxed)), (1, call + 3));
        running.abort();
    }
}

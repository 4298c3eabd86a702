//! `kube-rs/scheduler` and `kube-rs/controller`: a reflector store with the queue of kube-rs's controllers behind it.
//!
//! The producer does what a controller's watch does: it puts the object into the store and sends a reference to
//! the scheduler, which keeps each reference once while it waits. The consumer takes references from the scheduler
//! and reads the newest object from the store. As with the dispatcher, "apply" is the producer's work.
//!
//! `kube-rs/controller` is `applier`, the whole consumer side of a `Controller`, which also keeps two reconciles of
//! one object from running at a time; W5 needs that.

use std::convert::Infallible;
use std::hint::{black_box, spin_loop};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{Stream, StreamExt, poll, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_runtime::controller::{Action, Config, ReconcileRequest};
use kube_runtime::reflector::{Lookup, ObjectRef, Store, store::Writer};
use kube_runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use kube_runtime::watcher::Event;

use crate::dispatcher::{fill, object_bytes};
use crate::object::{Object, objects};
use crate::report::{Bench, rss};
use crate::{busy, draws};

type Requests = UnboundedReceiver<ScheduleRequest<ObjectRef<Object>>>;

/// The side of the watch.
struct Producer {
    writer: Writer<Object>,
    requests: UnboundedSender<ScheduleRequest<ObjectRef<Object>>>,
}

impl Producer {
    fn update(&mut self, object: Object) {
        let message = object.to_object_ref(());
        self.writer.apply_watcher_event(&Event::Apply(object));
        let request = ScheduleRequest { message, run_at: tokio::time::Instant::now() };
        self.requests.unbounded_send(request).expect("the scheduler outlives the producer");
    }
}

/// The side of the reconciler. It ends with the stream of requests, not when it is drained, so the producer has to
/// stay until all is popped.
struct Consumer {
    scheduler: Pin<Box<Scheduler<ObjectRef<Object>, Requests>>>,
    store: Store<Object>,
}

impl Consumer {
    async fn pop(&mut self) -> Arc<Object> {
        let key = self.scheduler.next().await.expect("the producer is still there");
        self.store.get(&key).expect("nothing is deleted here")
    }
}

fn queue(known: &[Object]) -> (Producer, Consumer) {
    let (requests, receiver) = unbounded();
    let mut writer = Writer::new(());
    fill(&mut writer, known);
    let store = writer.as_reader();
    (Producer { writer, requests }, Consumer { scheduler: Box::pin(scheduler(receiver)), store })
}

/// The scheduler needs a runtime with timers.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime on this thread")
}

/// Tells when the last update of every key has been seen: the queue itself cannot tell that it is empty.
struct Awaited {
    versions: Vec<u64>,
    keys: usize,
}

impl Awaited {
    /// The `n`-th update makes version `n`, counted from 1.
    fn of(indices: &[u32], keys: usize) -> Awaited {
        let mut versions = vec![0; keys];
        for (&i, rv) in indices.iter().zip(1..) {
            versions[i as usize] = rv;
        }
        let keys = versions.iter().filter(|&&rv| rv > 0).count();
        Awaited { versions, keys }
    }

    fn saw(&mut self, object: &Object) {
        let version = &mut self.versions[object.index as usize];
        if *version > 0 && *version == object.rv {
            *version = 0;
            self.keys -= 1;
        }
    }
}

/// W1.
pub fn bulk(bench: &Bench) {
    let all = objects(bench.scaled(1_000_000));
    let (mut producer, mut consumer) = queue(&[]);
    let runtime = runtime();
    let begin = Instant::now();
    for object in &all {
        producer.update(object.updated(1));
    }
    let added = begin.elapsed();
    let begin = Instant::now();
    runtime.block_on(async {
        for _ in 0..all.len() {
            black_box(consumer.pop().await);
        }
    });
    let popped = begin.elapsed();
    bench.check("objects in the store", consumer.store.len(), all.len());
    let note = "the object is put into the store in the add";
    bench.report_with_note("add_ns", added.as_nanos() as f64 / all.len() as f64, "ns", note);
    bench.report_with_note("pop_ns", popped.as_nanos() as f64 / all.len() as f64, "ns", note);
}

/// W2, W2u.
pub fn steady(bench: &Bench, keys: usize, skewed: bool) {
    let known = objects(keys);
    let indices = draws(bench.scaled(4_000_000), keys, skewed);
    let mut awaited = Awaited::of(&indices, keys);
    let (mut producer, mut consumer) = queue(&known);
    let (begin, mut pops) = (Instant::now(), 0);
    std::thread::scope(|scope| {
        let producing = scope.spawn(|| {
            for (&i, rv) in indices.iter().zip(1..) {
                producer.update(known[i as usize].updated(rv));
            }
        });
        runtime().block_on(async {
            while awaited.keys > 0 {
                awaited.saw(&*consumer.pop().await);
                pops += 1;
            }
        });
        producing.join().expect("the producer does not panic");
    });
    let elapsed = begin.elapsed();
    bench.check("objects in the store", consumer.store.len(), keys);
    bench.report("updates_per_s", indices.len() as f64 / elapsed.as_secs_f64(), "1/s");
    bench.report("pops", f64::from(pops), "1");
}

/// W4.
pub fn busy_handler(bench: &Bench) {
    let known = objects(10_000);
    let indices = draws(bench.scaled(300_000), known.len(), false);
    let mut awaited = Awaited::of(&indices, known.len());
    let (mut producer, mut consumer) = queue(&known);
    let mut calls = Vec::with_capacity(indices.len());
    let took = std::thread::scope(|scope| {
        scope.spawn(move || {
            runtime().block_on(async {
                while awaited.keys > 0 {
                    let object = consumer.pop().await;
                    busy(Duration::from_micros(20));
                    awaited.saw(&object);
                }
            });
        });
        let start = Instant::now();
        for (n, (&i, rv)) in indices.iter().zip(1..).enumerate() {
            while start.elapsed() < n as u32 * Duration::from_micros(10) {
                spin_loop();
            }
            let object = known[i as usize].updated(rv);
            let begin = Instant::now();
            producer.update(object);
            calls.push(begin.elapsed());
        }
        start.elapsed()
    });
    bench.report_calls(calls, "the call includes putting the object into the store");
    bench.report("pace_kept", indices.len() as f64 * 10e-6 / took.as_secs_f64(), "1");
}

/// W5: eight reconciles at a time, each sleeps for 200 us on a thread of its own; a timer of the runtime could not,
/// they count in ms.
pub fn slow_handlers(bench: &Bench) {
    let n = bench.scaled(20_000);
    let mut writer = Writer::<ConfigMap>::new(());
    writer.apply_watcher_event(&Event::Init);
    let mut requests = Vec::with_capacity(n);
    for i in 0..n {
        let metadata = ObjectMeta {
            namespace: Some(format!("ns-{:02}", i % 50)),
            name: Some(format!("pod-{i:07}")),
            ..ObjectMeta::default()
        };
        let object = ConfigMap { metadata, ..ConfigMap::default() };
        requests.push(Ok::<_, Infallible>(ReconcileRequest::from(object.to_object_ref(()))));
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
    let reconcile = |_: Arc<ConfigMap>, _: Arc<()>| {
        let sleep = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_micros(200)));
        Box::pin(async move {
            sleep.await.expect("sleeping does not panic");
            Ok::<_, Infallible>(Action::await_change())
        })
    };
    let begin = Instant::now();
    let done = runtime().block_on(async {
        // The stream of requests must not end: the applier would stop without running what is queued.
        let requests = stream::iter(requests).chain(stream::pending());
        let applier = kube_runtime::applier(
            reconcile,
            |_, never, _| match *never {},
            Arc::new(()),
            writer.as_reader(),
            requests,
            Config::default().concurrency(8),
        );
        count(applier.take(n)).await
    });
    let elapsed = begin.elapsed();
    bench.check("reconciles", done, n);
    bench.report("pops_per_s", n as f64 / elapsed.as_secs_f64(), "1/s");
}

async fn count<T, E: std::error::Error>(results: impl Stream<Item = Result<T, E>>) -> usize {
    results
        .fold(0, |n, result| {
            result.expect("no reconcile fails");
            std::future::ready(n + 1)
        })
        .await
}

/// W8: the store, with every key in the scheduler, and after draining.
pub fn memory(bench: &Bench) {
    let known = objects(bench.scaled(1_000_000));
    let per_key = |bytes: f64| bytes / known.len() as f64 - object_bytes();
    let runtime = runtime();
    let bare = rss();
    let (producer, mut consumer) = queue(&known);
    let store = rss();
    let (queued, drained) = runtime.block_on(async {
        for object in &known {
            let request = ScheduleRequest { message: object.to_object_ref(()), run_at: tokio::time::Instant::now() };
            producer.requests.unbounded_send(request).expect("the scheduler is still there");
        }
        // The scheduler takes all requests in when it is polled, and may give one back.
        let first = poll!(consumer.scheduler.next());
        let queued = rss();
        for _ in usize::from(first.is_ready())..known.len() {
            consumer.pop().await;
        }
        (queued, rss())
    });
    bench.check("objects in the store", consumer.store.len(), known.len());
    bench.report("store_bytes_per_key", per_key(store - bare), "B");
    bench.report("queued_bytes_per_key", per_key(queued - bare), "B");
    bench.report("drained_bytes_per_key", per_key(drained - bare), "B");
}

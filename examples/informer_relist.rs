//! What a relist of many objects costs those who are waiting: updates flow all the time, handlers are called and readers
//! read, and then everything is listed anew.
//!
//! `cargo run --release --features informer --example informer_relist -- 1000000`

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use delta_fifo::informer::{
    BackoffPolicy, Event, Handler, Informer, MemoryServer, Reason, ReflectorOptions, ResourceVersion, SharedInformer,
    Shutdown, Versioned,
};
use delta_fifo::{BoxError, Keyed};
use hdrhistogram::Histogram;

#[derive(Clone)]
struct Object {
    key: Arc<str>,
    version: u64,
    /// When the server took the change.
    at: Instant,
}

impl Keyed for Object {
    fn key(&self) -> Arc<str> {
        self.key.clone()
    }
}

impl Versioned for Object {
    fn resource_version(&self) -> ResourceVersion {
        self.version.into()
    }
}

fn object(i: u64) -> Object {
    Object { key: format!("ns-{:02}/pod-{i:07}", i % 50).into(), version: 0, at: Instant::now() }
}

struct Latency(Mutex<Histogram<u64>>);

impl Latency {
    fn new() -> Arc<Self> {
        let hour = 3_600_000_000;
        Arc::new(Latency(Mutex::new(Histogram::new_with_bounds(1, hour, 3).expect("the bounds are in order"))))
    }

    fn record(&self, time: Duration) {
        self.0.lock().unwrap().saturating_record(time.as_micros() as u64);
    }

    fn report(&self, what: &str) {
        let mut times = self.0.lock().unwrap();
        let ms = |q| times.value_at_quantile(q) as f64 / 1000.0;
        println!("  {what:<44} p50 {:>9.3} ms  p99 {:>9.3} ms  max {:>9.3} ms", ms(0.5), ms(0.99), ms(1.0));
        times.reset();
    }
}

async fn measure(objects: u64, background: bool) -> Result<(), BoxError> {
    println!("{objects} objects, {}", if background { "relists in the background lane" } else { "one lane" });
    let server = MemoryServer::new(|object: &mut Object, version| {
        object.version = version;
        object.at = Instant::now();
    });
    for i in 0..objects {
        server.put_silently(object(i));
    }

    let latency = Latency::new();
    let events = Arc::new(AtomicU64::new(0));
    let handler = Handler::from_fn({
        let (latency, events) = (latency.clone(), events.clone());
        move |event: &Event<Object>| {
            events.fetch_add(1, Ordering::Relaxed);
            if let (Reason::Watch, Some(object)) = (event.reason, event.object()) {
                latency.record(object.at.elapsed());
            }
            Ok::<_, BoxError>(())
        }
    });
    let backoff = BackoffPolicy { min: Duration::from_millis(1), ..BackoffPolicy::default() };
    let mut builder =
        SharedInformer::builder(server.clone()).reflector(ReflectorOptions { backoff, ..ReflectorOptions::default() });
    if background {
        builder = builder.background_share(NonZeroU32::new(8).expect("8 is not 0"));
    }
    let informer = Informer::new(builder, handler, Informer::options())?;
    let began = Instant::now();
    informer.start()?;
    informer.wait_synced().await?;
    println!("  first list applied and handled in {:.2?}", began.elapsed());

    let going = Arc::new(AtomicBool::new(true));
    let writer = std::thread::spawn({
        let (server, going) = (server.clone(), going.clone());
        move || {
            let mut i = 0;
            while going.load(Ordering::Relaxed) {
                server.put(object(i * 7919 % objects));
                i += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let reads = Latency::new();
    let reader = std::thread::spawn({
        let (store, going, reads) = (informer.store(), going.clone(), reads.clone());
        move || {
            let key = object(0).key;
            while going.load(Ordering::Relaxed) {
                let began = Instant::now();
                assert!(store.get(&key).is_some());
                reads.record(began.elapsed());
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    });

    tokio::time::sleep(Duration::from_secs(2)).await;
    latency.report("update to handler, quiet");
    reads.report("a read of the store, quiet");

    let listed = server.requests().len();
    let began = Instant::now();
    informer.shared().relist();
    // The list is over when the next watch begins; from then on updates flow again.
    while server.open_watches() == 0 || server.requests().len() <= listed + 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("  listed and queued in {:.2?}, while the watch stood still", began.elapsed());
    informer.store().wait_for(server.version()).await?;
    println!("  applied after {:.2?}", began.elapsed());
    latency.report("update to handler, relist included");
    reads.report("a read of the store, during the relist");
    going.store(false, Ordering::Relaxed);
    writer.join().map_err(|_| "the writer panicked")?;
    reader.join().map_err(|_| "the reader panicked")?;
    informer.shutdown(Shutdown::Graceful(Duration::from_secs(60))).await;
    println!("  {} events in all", events.load(Ordering::Relaxed));
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), BoxError> {
    let objects = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    for background in [false, true] {
        measure(objects, background).await?;
    }
    Ok(())
}

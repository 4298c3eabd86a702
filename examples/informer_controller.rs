//! A controller: for each deployment it makes the number of pods what it should be. The outside world fails now and
//! then, so a deployment is tried again after a wait, while the others go on.
//!
//! `cargo run --features informer --example informer_controller`

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::informer::{
    BackoffPolicy, Event, Handler, Informer, MemoryServer, ResourceVersion, RetryPolicy, SharedInformer, Shutdown,
    StoreReader, Versioned,
};
use delta_fifo::{BoxError, Keyed};

#[derive(Clone)]
struct Deployment {
    name: Arc<str>,
    replicas: u32,
    version: u64,
}

impl Keyed for Deployment {
    fn key(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl Versioned for Deployment {
    fn resource_version(&self) -> ResourceVersion {
        self.version.into()
    }
}

/// Where pods run. Every third call fails.
#[derive(Default)]
struct Cluster {
    pods: Mutex<HashMap<Arc<str>, u32>>,
    calls: Mutex<u32>,
}

impl Cluster {
    async fn scale(&self, name: &Arc<str>, replicas: u32) -> Result<(), BoxError> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut calls = self.calls.lock().unwrap();
        *calls += 1;
        if calls.is_multiple_of(3) {
            return Err("the cluster is busy".into());
        }
        self.pods.lock().unwrap().insert(name.clone(), replicas);
        Ok(())
    }
}

/// Makes the world as the store says it should be. It does not ask what the event was: the latest state is what counts,
/// and what is done twice does no harm.
async fn reconcile(cluster: &Cluster, store: &StoreReader<Deployment>, key: &Arc<str>) -> Result<(), BoxError> {
    let wanted = store.get(key).map_or(0, |deployment| deployment.replicas);
    cluster.scale(key, wanted).await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MemoryServer::new(|deployment: &mut Deployment, version| deployment.version = version);
    let deployment = |name: &str, replicas| Deployment { name: name.into(), replicas, version: 0 };
    for (name, replicas) in [("web", 3), ("db", 1), ("cache", 2)] {
        server.put(deployment(name, replicas));
    }

    let cluster = Arc::new(Cluster::default());
    let store = Arc::new(std::sync::OnceLock::<StoreReader<Deployment>>::new());
    let handler = Handler::from_async_fn({
        let (cluster, store) = (cluster.clone(), store.clone());
        move |event: Event<Deployment>| {
            let (cluster, store) = (cluster.clone(), store.clone());
            async move {
                let store = store.get().ok_or("the informer was started before its store was known")?;
                let outcome = reconcile(&cluster, store, &event.key).await;
                println!("{} attempt {}: {outcome:?}", event.key, event.attempt);
                outcome
            }
        }
    });
    let backoff = BackoffPolicy { min: Duration::from_millis(20), ..BackoffPolicy::default() };
    let options = Informer::options().concurrency(2).retry(RetryPolicy { retries: Some(8), backoff });
    let options = options.on_dead_letter(|letter| eprintln!("given up: {letter:?}"));
    let informer = Informer::new(SharedInformer::builder(server.clone()), handler, options)?;
    store.set(informer.store()).map_err(|_| "the store is set once")?;
    informer.start()?;
    informer.wait_synced().await?;

    server.put(deployment("web", 5));
    let version = server.delete(&"cache".into()).expect("it was there");
    informer.store().wait_for(version).await?;
    let report = informer.shutdown(Shutdown::Graceful(Duration::from_secs(10))).await;

    let pods = cluster.pods.lock().unwrap();
    println!("{pods:?}");
    assert!(report.is_clean());
    assert_eq!((pods["web"], pods["db"], pods["cache"]), (5, 1, 0));
    Ok(())
}

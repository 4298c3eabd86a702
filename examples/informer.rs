//! An informer over a source in memory: what is there, what changes, and a read of what was just written.
//!
//! `cargo run --features informer --example informer`

use std::sync::Arc;
use std::time::Duration;

use delta_fifo::informer::{
    Event, EventKind, Handler, Informer, MemoryServer, ResourceVersion, SharedInformer, Shutdown, Versioned,
};
use delta_fifo::{BoxError, Keyed};

#[derive(Clone)]
struct Pod {
    name: Arc<str>,
    phase: &'static str,
    version: u64,
}

impl Keyed for Pod {
    fn key(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl Versioned for Pod {
    fn resource_version(&self) -> ResourceVersion {
        self.version.into()
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MemoryServer::new(|pod: &mut Pod, version| pod.version = version);
    let pod = |name: &str, phase| Pod { name: name.into(), phase, version: 0 };
    server.put(pod("web-0", "Running"));

    let handler = Handler::from_fn(|event: &Event<Pod>| {
        match &event.kind {
            EventKind::Added { object, initial } => println!("{} is {} (initial: {initial})", event.key, object.phase),
            EventKind::Updated { old, new } => println!("{} was {}, is {}", event.key, old.phase, new.phase),
            EventKind::Deleted(_) => println!("{} is gone", event.key),
        }
        Ok::<_, BoxError>(())
    });
    let informer = Informer::new(SharedInformer::builder(server.clone()), handler, Informer::options())?;
    informer.start()?;
    informer.wait_synced().await?;

    server.put(pod("web-1", "Pending"));
    server.put(pod("web-1", "Running"));
    let version = server.delete(&"web-0".into()).expect("it was there");
    informer.store().wait_for(version).await?;
    println!("the store has {} pod", informer.store().len());

    let report = informer.shutdown(Shutdown::Graceful(Duration::from_secs(5))).await;
    assert!(report.is_clean());
    Ok(())
}

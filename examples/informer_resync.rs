//! Two handlers of one informer, each with a resync period of its own.
//!
//! `cargo run --features informer --example informer_resync`

use std::sync::Arc;
use std::time::Duration;

use delta_fifo::informer::{
    Event, Handler, HandlerOptions, MemoryServer, Reason, ResourceVersion, SharedInformer, Shutdown, Versioned,
};
use delta_fifo::{BoxError, Keyed};

#[derive(Clone)]
struct Node {
    name: Arc<str>,
    version: u64,
}

impl Keyed for Node {
    fn key(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl Versioned for Node {
    fn resource_version(&self) -> ResourceVersion {
        self.version.into()
    }
}

/// Prints what it is told, and why.
fn printer(name: &'static str) -> Handler<Node> {
    Handler::from_fn(move |event: &Event<Node>| {
        let why = match event.reason {
            Reason::Watch => "it changed",
            Reason::Relist => "it was listed",
            Reason::Resync => "it is time to look again",
            Reason::Replay => "it was there",
        };
        println!("{name}: {}, {why}", event.key);
        Ok::<_, BoxError>(())
    })
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MemoryServer::new(|node: &mut Node, version| node.version = version);
    server.put(Node { name: "node-a".into(), version: 0 });

    let informer = SharedInformer::builder(server).build()?;
    let every = |millis| HandlerOptions::new().resync_period(Duration::from_millis(millis));
    let often = informer.add_event_handler_with(printer("every 200 ms"), every(200).name("often"))?;
    let seldom = informer.add_event_handler_with(printer("every 500 ms"), every(500).name("seldom"))?;
    informer.start()?;
    tokio::time::sleep(Duration::from_millis(1100)).await;

    informer.shutdown(Shutdown::Graceful(Duration::from_secs(5))).await;
    for handle in [often, seldom] {
        println!("{} was called {} times", handle.name(), handle.stats().handled);
    }
    Ok(())
}

//! Looking objects up by an index: which pods run on a node. Reads are consistent and hold nobody up.
//!
//! `cargo run --features informer --example informer_index`

use std::sync::Arc;

use delta_fifo::informer::{Indexers, MemoryServer, ResourceVersion, SharedInformer, Shutdown, Versioned};
use delta_fifo::{BoxError, Keyed};

#[derive(Clone)]
struct Pod {
    name: Arc<str>,
    node: String,
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
    let pod = |name: &str, node: &str| Pod { name: name.into(), node: node.into(), version: 0 };
    for (name, node) in [("web-0", "n1"), ("web-1", "n2"), ("db-0", "n1")] {
        server.put(pod(name, node));
    }

    let by_node = Indexers::new().with("node", |pod: &Pod| Ok::<_, BoxError>(vec![pod.node.clone()]));
    let informer = SharedInformer::builder(server.clone()).indexers(by_node).build()?;
    informer.start()?;
    informer.wait_synced().await?;

    let store = informer.store();
    println!("on n1: {:?}", store.index_keys("node", "n1")?);

    // A snapshot stays as it is while the pod moves.
    let before = store.snapshot();
    let version = server.put(pod("web-0", "n2"));
    store.wait_for(version).await?;
    println!("on n1 before the move: {:?}", before.index_keys("node", "n1")?);
    println!("on n1 after it:        {:?}", store.index_keys("node", "n1")?);
    for pod in store.by_index("node", "n2")? {
        println!("on n2: {}", pod.name);
    }

    // Another index, while the informer runs.
    informer.add_indexers(Indexers::new().with("app", |pod: &Pod| {
        let app = pod.name.split('-').next().ok_or("a pod without a name")?;
        Ok::<_, BoxError>(vec![app.to_owned()])
    }))?;
    println!("of the app web: {:?}", store.index_keys("app", "web")?);
    assert_eq!(store.index_keys("app", "web")?.len(), 2);

    informer.shutdown(Shutdown::Immediate).await;
    Ok(())
}

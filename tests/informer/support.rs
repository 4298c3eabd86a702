//! What the tests share: an object, its server, and a handler that writes down what it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::informer::{
    Event, EventKind, Handler, MemoryServer, Reason, Request, ResourceVersion, SharedInformer, Versioned,
};
use delta_fifo::{Deleted, Keyed};
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Clone, Debug, PartialEq)]
pub struct Obj {
    pub key: Arc<str>,
    pub version: u64,
    pub value: u64,
    pub uid: u64,
    pub labels: Vec<String>,
}

impl Keyed for Obj {
    fn key(&self) -> Arc<str> {
        self.key.clone()
    }
}

impl Versioned for Obj {
    fn resource_version(&self) -> ResourceVersion {
        if self.version == 0 { ResourceVersion::UNSET } else { self.version.into() }
    }
}

pub type Server = MemoryServer<Obj>;

pub fn obj(key: &str, value: u64) -> Obj {
    Obj { key: key.into(), version: 0, value, uid: 0, labels: Vec::new() }
}

pub fn labelled(key: &str, labels: &[&str]) -> Obj {
    Obj { labels: labels.iter().map(|label| (*label).to_owned()).collect(), ..obj(key, 0) }
}

pub fn server() -> Server {
    MemoryServer::new(|object: &mut Obj, version| object.version = version)
}

pub fn server_with(keys: &[&str]) -> Server {
    let server = server();
    for (value, key) in keys.iter().enumerate() {
        server.put(obj(key, value as u64));
    }
    server
}

pub fn started(server: &Server) -> SharedInformer<Obj> {
    let informer = SharedInformer::builder(server.clone()).build().unwrap();
    informer.start().unwrap();
    informer
}

/// The versions of the lists so far, and with `w` in front those of the watches.
pub fn requests(server: &Server) -> Vec<String> {
    let requests = server.requests().into_iter();
    requests
        .map(|request| match request {
            Request::List(options) => options.resource_version.to_string(),
            Request::Watch(options) => format!("w{}", options.resource_version),
        })
        .collect()
}

pub fn lists(server: &Server) -> Vec<String> {
    requests(server).into_iter().filter(|request| !request.starts_with('w')).collect()
}

/// Lets everything that can run, run. With a paused clock, time moves by a millisecond.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Writes events down as text, with their times.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<Vec<(Instant, String)>>,
    changed: Notify,
}

impl Recorder {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn record(&self, event: &Event<Obj>) {
        self.events.lock().unwrap().push((Instant::now(), text(event)));
        self.changed.notify_waiters();
    }

    pub fn handler(self: &Arc<Self>) -> Handler<Obj> {
        let recorder = self.clone();
        Handler::from_fn(move |event: &Event<Obj>| {
            recorder.record(event);
            Ok::<_, std::convert::Infallible>(())
        })
    }

    pub fn len(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    /// What was written down, and forgotten now.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock().unwrap()).into_iter().map(|(_, text)| text).collect()
    }

    pub fn take_sorted(&self) -> Vec<String> {
        let mut events = self.take();
        events.sort();
        events
    }

    pub fn times(&self) -> Vec<Instant> {
        self.events.lock().unwrap().iter().map(|(time, _)| *time).collect()
    }

    pub async fn wait_len(&self, len: usize) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if self.len() >= len {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(3600), wait).await;
        assert!(waited.is_ok(), "{len} events were expected, these came: {:?}", self.take());
    }
}

/// `add a=1 initial`, `update a=1->2`, `delete a=2`, `gone a=2` and the reason.
pub fn text(event: &Event<Obj>) -> String {
    let key = &event.key;
    let what = match &event.kind {
        EventKind::Added { object, initial: true } => format!("add {key}={} initial", object.value),
        EventKind::Added { object, .. } => format!("add {key}={}", object.value),
        EventKind::Updated { old, new } => format!("update {key}={}->{}", old.value, new.value),
        EventKind::Deleted(Deleted::Observed(object)) => format!("delete {key}={}", object.value),
        EventKind::Deleted(deleted) => match deleted.object() {
            Some(object) => format!("gone {key}={}", object.value),
            None => format!("gone {key}"),
        },
    };
    let reason = match event.reason {
        Reason::Watch => "watch",
        Reason::Relist => "relist",
        Reason::Resync => "resync",
        Reason::Replay => "replay",
    };
    format!("{what} ({reason})")
}

/// A handler's view of the world, built from its events. Complains about an event that does not fit.
#[derive(Default)]
pub struct View {
    objects: Mutex<std::collections::BTreeMap<Arc<str>, Arc<Obj>>>,
    errors: Mutex<Vec<String>>,
}

impl View {
    pub fn apply(&self, event: &Event<Obj>) {
        let mut objects = self.objects.lock().unwrap();
        let had = objects.get(&event.key).map(|object| object.version);
        let fits = match &event.kind {
            EventKind::Added { object, .. } => {
                objects.insert(event.key.clone(), object.clone());
                had.is_none()
            }
            EventKind::Updated { old, new } => {
                objects.insert(event.key.clone(), new.clone());
                had == Some(old.version)
            }
            EventKind::Deleted(_) => objects.remove(&event.key).is_some(),
        };
        if !fits {
            self.errors.lock().unwrap().push(format!("{} does not fit version {had:?}", text(event)));
        }
    }

    pub fn handler(self: &Arc<Self>) -> Handler<Obj> {
        let view = self.clone();
        Handler::from_fn(move |event: &Event<Obj>| {
            view.apply(event);
            Ok::<_, std::convert::Infallible>(())
        })
    }

    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
    }

    /// Exactly these objects, at exactly these versions.
    pub fn assert_is(&self, expected: &[(Arc<str>, Arc<Obj>)]) {
        let objects = self.objects.lock().unwrap();
        let view: Vec<_> = objects.iter().map(|(key, object)| (key.clone(), object.version)).collect();
        let expected: Vec<_> = expected.iter().map(|(key, object)| (key.clone(), object.version)).collect();
        assert!(view == expected, "the view has {} objects, the source {}", view.len(), expected.len());
    }
}

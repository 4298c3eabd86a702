//! A server that answers by a script: changes that no watch hears of, disconnects, expired versions, refused lists,
//! duplicates. However it went, the store ends equal to the server. Time is the runtime's own, so back-offs cost none.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use delta_fifo::Keyed;
use delta_fifo::informer::{
    Faults, MemoryServer, Reflector, ReflectorOptions, ResourceVersion, SourceError, Store, Versioned,
};
use libfuzzer_sys::fuzz_target;

#[derive(Clone, Debug, PartialEq)]
struct Object {
    key: u8,
    version: u64,
}

impl Keyed<u8> for Object {
    fn key(&self) -> u8 {
        self.key
    }
}

impl Versioned for Object {
    fn resource_version(&self) -> ResourceVersion {
        self.version.into()
    }
}

#[derive(Arbitrary, Debug)]
struct Input {
    watch_list: bool,
    page_size: Option<u8>,
    seed: u64,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Put(u8),
    PutSilently(u8),
    Delete(u8),
    DeleteSilently(u8),
    Disconnect,
    ForgetHistory,
    Bookmark,
    FailList(u8),
    FailWatch(u8),
    /// Chances in 255.
    Faults {
        disconnect: u8,
        duplicate: u8,
        expire: u8,
        refuse: u8,
    },
    /// Seconds.
    Wait(u8),
}

fn error(kind: u8) -> SourceError {
    match kind % 4 {
        0 => SourceError::Expired,
        1 => SourceError::VersionTooLarge,
        2 => SourceError::transport("broken pipe"),
        _ => SourceError::Refused("connection refused".into()),
    }
}

async fn run(input: Input) {
    let server = MemoryServer::new(|object: &mut Object, version| object.version = version);
    server.set_streams_initial_list(input.watch_list);
    let store = Arc::new(Store::<Object, u8>::new());
    let page_size = input.page_size.map(|size| 1 + usize::from(size % 4));
    let options = ReflectorOptions { page_size, watch_list: input.watch_list, ..ReflectorOptions::default() };
    let reflector = Reflector::new(server.clone(), store.clone()).options(options);
    let running = tokio::spawn(async move { reflector.run().await });
    for step in input.steps.iter().take(60) {
        match step {
            Step::Put(key) => drop(server.put(Object { key: key % 16, version: 0 })),
            Step::PutSilently(key) => drop(server.put_silently(Object { key: key % 16, version: 0 })),
            Step::Delete(key) => drop(server.delete(&(key % 16))),
            Step::DeleteSilently(key) => drop(server.delete_silently(&(key % 16))),
            Step::Disconnect => server.disconnect(),
            Step::ForgetHistory => server.forget_history(),
            Step::Bookmark => server.bookmark(),
            Step::FailList(kind) => server.fail_next_list(error(*kind)),
            Step::FailWatch(kind) => server.fail_next_watch(error(*kind)),
            Step::Faults { disconnect, duplicate, expire, refuse } => {
                // At most half of everything fails, or nothing would ever come through.
                let chance = |n: &u8| f64::from(*n) / 510.0;
                let (disconnect, duplicate) = (chance(disconnect), chance(duplicate));
                let faults = Faults {
                    disconnect,
                    duplicate,
                    expire: chance(expire),
                    refuse: chance(refuse),
                    ..Faults::default()
                };
                server.set_faults(faults, input.seed);
            }
            Step::Wait(seconds) => tokio::time::sleep(Duration::from_secs((*seconds).into())).await,
        }
    }
    // The faults end. What no watch heard of needs a new list, which an expired watch brings.
    server.set_faults(Faults::default(), 0);
    server.put(Object { key: 16, version: 0 });
    server.fail_next_watch(SourceError::Expired);
    server.disconnect();
    for second in 0.. {
        let mut stored: Vec<_> = store.snapshot().iter().map(|(key, object)| (*key, object.clone())).collect();
        stored.sort_by_key(|(key, _)| *key);
        if stored == server.objects() {
            break;
        }
        assert!(second < 3_600, "an hour later the store has {stored:?}, the server {:?}", server.objects());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!running.is_finished(), "the reflector ended");
    running.abort();
}

fuzz_target!(|input: Input| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread").block_on(run(input));
});

//! `examples/replay`: its parser on sound and broken input, its check of what the queue delivers, and the program as a process.
//!
//! The parser and the store are the example's own files. The processes run the example that cargo builds for this test's profile.

#![cfg(not(any(loom, shuttle)))]
#![allow(dead_code, unreachable_pub, reason = "the example's modules; the tests use a part of them")]

#[path = "../examples/replay/object.rs"]
mod object;
#[path = "../examples/replay/pace.rs"]
mod pace;
#[path = "../examples/replay/store.rs"]
mod store;
#[path = "../examples/replay/stream.rs"]
mod stream;

#[path = "replay/checks.rs"]
mod checks;
#[path = "replay/parser.rs"]
mod parser;
#[path = "replay/process.rs"]
mod process;

/// One event on one line, without the line break. `n` makes its name and its version.
fn event(change: &str, n: u64) -> String {
    format!(
        r#"{{"type":"{change}","object":{{"kind":"Pod","metadata":{{"name":"pod-{n}","namespace":"ns","resourceVersion":"{n}","labels":{{"a":"b\"}}{{"}},"creationTimestamp":"2023-01-01T00:00:00Z"}},"spec":{{"list":[1,-2.5e3,true,null,[],{{}}]}},"status":{{"conditions":[{{"type":"Ready"}}],"phase":"Running"}}}}}}"#
    )
}

/// The same as `kubectl` prints it: one event on many lines.
fn pretty(line: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    serde_json::to_string_pretty(&value).unwrap()
}

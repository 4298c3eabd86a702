//! Replays what the real client-go did (`data/FORMAT.md`) and compares every answer.
//!
//! ```text
//! data/client-go-delta-fifo.jsonl.gz ─► a sequence ─► the same calls on a new queue ─► the same answers?
//! ```
//!
//! Both the engine and the baseline are replayed. `DELTA_FIFO_VECTORS` names another file (`.jsonl` or `.jsonl.gz`), or
//! a folder of them, to replay instead:
//!
//! ```text
//! DELTA_FIFO_VECTORS=FILE cargo test --release --test conformance -- --nocapture
//! ```

mod support;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use delta_fifo::baseline::MutexFifo;
use delta_fifo::{Deleted, Delta, DeltaFifo, TryPopError};
use serde::Deserialize;

use support::{Claimed, Config, Object, Outcome, Queue, Store};

/// How many failing sequences are printed of one file.
const SHOWN_FAILURES: usize = 3;

// ---- the file format, see data/FORMAT.md ----

#[derive(Deserialize)]
struct Sequence {
    id: String,
    kind: String,
    #[serde(default)]
    partial_replace: bool,
    config: SequenceConfig,
    ops: Vec<Op>,
    #[serde(rename = "final")]
    end: Final,
}

#[derive(Deserialize)]
struct SequenceConfig {
    known: bool,
    emit_replaced: bool,
    #[serde(default)]
    ghosts: Vec<String>,
}

#[derive(Deserialize)]
struct Final {
    queue: Vec<Entry>,
    store: Vec<StoreEntry>,
    has_synced: bool,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Add {
        key: String,
        rv: u64,
        want: Said,
    },
    Update {
        key: String,
        rv: u64,
        want: Said,
    },
    Delete {
        key: String,
        rv: u64,
        want: Said,
    },
    DeleteDfsu {
        key: String,
        rv: Option<u64>,
        want: Said,
    },
    Replace {
        items: Vec<Item>,
        want: Said,
    },
    Resync {
        want: Said,
    },
    Pop {
        apply: bool,
        /// The handler fails at its end; the item is not queued again all the same.
        #[serde(default)]
        fail: bool,
        want: Popped,
    },
    HasSynced {
        want: bool,
    },
    Close,
    IsClosed {
        want: bool,
    },
    Keys {
        want: Vec<String>,
    },
    Store {
        want: Vec<StoreEntry>,
    },
    Queue {
        want: Vec<Entry>,
    },
    Len {
        want: usize,
    },
    StorePut {
        key: String,
        rv: u64,
        obj: Option<String>,
    },
    StoreDel {
        key: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Ok,
    KeyError,
}

#[derive(Debug, Deserialize)]
struct Item {
    key: String,
    rv: u64,
}

/// Of a pop: what it handed out (with the error `process`, if the handler failed), or the error `closed`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Popped {
    Key { key: String, init: bool, deltas: Vec<Record>, err: Option<String> },
    Nothing { err: String },
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Entry {
    key: String,
    deltas: Vec<Record>,
}

/// A delta.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Record {
    #[serde(rename = "type")]
    delta_type: String,
    key: String,
    rv: Option<u64>,
    dfsu: bool,
    /// The object's name, where it is not the key.
    obj: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct StoreEntry {
    key: String,
    rv: u64,
    obj: Option<String>,
}

// ---- the replay ----

/// What a call answers.
#[derive(Debug, PartialEq)]
enum Answer {
    Nothing,
    Said(Said),
    Popped(Popped),
    Bool(bool),
    Len(usize),
    Keys(Vec<String>),
    Store(Vec<StoreEntry>),
    Queue(Vec<Entry>),
}

impl Op {
    /// What client-go answered.
    fn want(&self) -> Answer {
        match self {
            Op::Add { want, .. } | Op::Update { want, .. } | Op::Delete { want, .. } => Answer::Said(*want),
            Op::DeleteDfsu { want, .. } | Op::Replace { want, .. } | Op::Resync { want } => Answer::Said(*want),
            Op::Pop { want, .. } => Answer::Popped(want.clone()),
            Op::HasSynced { want } | Op::IsClosed { want } => Answer::Bool(*want),
            Op::Len { want } => Answer::Len(*want),
            Op::Keys { want } => Answer::Keys(want.clone()),
            Op::Store { want } => Answer::Store(want.clone()),
            Op::Queue { want } => Answer::Queue(want.clone()),
            Op::Close | Op::StorePut { .. } | Op::StoreDel { .. } => Answer::Nothing,
        }
    }

    /// Whether it is a Replace that client-go refused.
    fn is_refused_replace(&self) -> bool {
        matches!(self, Op::Replace { want: Said::KeyError, .. })
    }
}

/// What is different from the recording; `op` is its place in `ops`, or `None` for the final state.
struct Difference {
    op: Option<usize>,
    what: String,
}

/// A queue and the consumer's store, at some place in a sequence.
struct Replay<Q> {
    queue: Q,
    store: Arc<Store>,
}

impl<Q: Queue> Replay<Q> {
    fn new(config: &SequenceConfig) -> Self {
        let store = Arc::new(Store::with_ghosts(config.ghosts.clone()));
        let base = if config.known { Config::with_store(&store) } else { Config::default() };
        Replay { queue: Q::with(Config { emit_replaced: config.emit_replaced, ..base }), store }
    }

    fn act(&self, op: &Op) -> Answer {
        let Replay { queue, store } = self;
        match op {
            Op::Add { key, rv, .. } => said(queue.add(Object::new(key, *rv))),
            Op::Update { key, rv, .. } => said(queue.update(Object::new(key, *rv))),
            Op::Delete { key, rv, .. } => said(queue.delete(Object::new(key, *rv))),
            Op::DeleteDfsu { key, rv, .. } => {
                said(queue.delete_final_state_unknown(key, rv.map(|rv| Object::new(key, rv))))
            }
            Op::Replace { items, .. } => {
                let list: Vec<_> = items.iter().map(|item| Object::new(&item.key, item.rv)).collect();
                said(queue.replace(&list))
            }
            Op::Resync { .. } => said(queue.resync()),
            Op::Pop { apply, fail, .. } => Answer::Popped(self.pop(*apply, *fail)),
            Op::HasSynced { .. } => Answer::Bool(queue.has_synced()),
            Op::IsClosed { .. } => Answer::Bool(queue.is_closed()),
            Op::Len { .. } => Answer::Len(queue.len()),
            Op::Keys { .. } => Answer::Keys(store.objects().keys().cloned().collect()),
            Op::Store { .. } => Answer::Store(self.stored()),
            Op::Queue { .. } => Answer::Queue(self.queued()),
            Op::Close => {
                queue.close();
                Answer::Nothing
            }
            Op::StorePut { key, rv, obj } => {
                store.objects().insert(key.clone(), Object::new(obj.as_ref().unwrap_or(key), *rv));
                Answer::Nothing
            }
            Op::StoreDel { key } => {
                store.objects().remove(key);
                Answer::Nothing
            }
        }
    }

    fn pop(&self, apply: bool, fail: bool) -> Popped {
        match self.queue.pop_now() {
            Ok(claim) => {
                if apply {
                    self.store.apply(claim.key(), claim.deltas());
                }
                let (key, init) = (claim.key().to_owned(), claim.is_initial());
                let deltas = records(&key, claim.deltas());
                // client-go does not queue it again when the handler fails (A9.4): it is done all the same.
                claim.finish();
                Popped::Key { key, init, deltas, err: fail.then(|| "process".to_owned()) }
            }
            Err(TryPopError::Closed) => Popped::Nothing { err: "closed".to_owned() },
            Err(TryPopError::Empty) => Popped::Nothing { err: "empty".to_owned() },
        }
    }

    fn stored(&self) -> Vec<StoreEntry> {
        let entry = |(key, object): (&String, &Arc<Object>)| {
            let obj = name_unless(key, object);
            StoreEntry { key: key.clone(), rv: object.rv, obj }
        };
        self.store.objects().iter().map(entry).collect()
    }

    /// A look into the queue.
    fn queued(&self) -> Vec<Entry> {
        let entry = |key: String| {
            let deltas = records(&key, &self.queue.get(&key).expect("a key that is listed has deltas"));
            Entry { key, deltas }
        };
        self.queue.list_keys().into_iter().map(entry).collect()
    }

    /// Everything that can be seen without changing anything.
    fn state(&self) -> (Answer, Vec<StoreEntry>, [bool; 2], usize) {
        let flags = [self.queue.has_synced(), self.queue.is_closed()];
        (Answer::Queue(self.queued()).sorted_unless(Q::LISTS_IN_ORDER), self.stored(), flags, self.queue.len())
    }

    fn check(&self, op: &Op) -> Result<(), String> {
        let in_order = Q::LISTS_IN_ORDER;
        same(self.act(op).sorted_unless(in_order), op.want().sorted_unless(in_order))
    }

    fn check_final(&self, end: &Final) -> Result<(), String> {
        let queue = Answer::Queue(end.queue.clone()).sorted_unless(Q::LISTS_IN_ORDER);
        let flags = [end.has_synced, self.queue.is_closed()];
        same(self.state(), (queue, end.store.clone(), flags, end.queue.len()))?;
        // The order, by taking all out.
        same(self.drain(), end.queue.clone())
    }

    fn drain(&self) -> Vec<Entry> {
        std::iter::from_fn(|| {
            let claim = self.queue.pop_now().ok()?;
            Some(Entry { key: claim.key().to_owned(), deltas: records(claim.key(), claim.deltas()) })
        })
        .collect()
    }
}

impl Answer {
    fn sorted_unless(mut self, in_order: bool) -> Self {
        if let (Answer::Queue(entries), false) = (&mut self, in_order) {
            entries.sort_by(|a, b| a.key.cmp(&b.key));
        }
        self
    }
}

fn said(outcome: Outcome) -> Answer {
    Answer::Said(match outcome {
        Outcome::Accepted => Said::Ok,
        Outcome::KeyError => Said::KeyError,
        other => panic!("a call answered {other:?}, and there is no limit and no transformer"),
    })
}

fn name_unless(key: &str, object: &Object) -> Option<String> {
    (object.name != key).then(|| object.name.clone())
}

fn records(key: &str, deltas: &[Delta<Object, String>]) -> Vec<Record> {
    let record = |delta: &Delta<Object, String>| {
        let tombstone = match delta {
            Delta::Deleted(Deleted::FinalStateUnknown(tombstone)) => Some(tombstone),
            _ => None,
        };
        let key = tombstone.map_or(key, |tombstone| &tombstone.key);
        Record {
            delta_type: delta.delta_type().to_string(),
            key: key.to_owned(),
            rv: delta.object().map(|object| object.rv),
            dfsu: tombstone.is_some(),
            obj: delta.object().and_then(|object| name_unless(key, object)),
        }
    };
    deltas.iter().map(record).collect()
}

fn same<A: PartialEq + Debug>(got: A, want: A) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("got  {got:?}\n      want {want:?}")) }
}

fn replay<Q: Queue>(sequence: &Sequence) -> Result<(), Difference> {
    let replay = Replay::<Q>::new(&sequence.config);
    for (index, op) in sequence.ops.iter().enumerate() {
        replay.check(op).map_err(|what| Difference { op: Some(index), what })?;
    }
    replay.check_final(&sequence.end).map_err(|what| Difference { op: None, what })
}

/// Our own rule where client-go keeps a part of a refused list: a Replace that is refused changes nothing, so the
/// sequence goes on as if it had never been called.
fn replay_without_refused<Q: Queue>(sequence: &Sequence) -> Result<(), Difference> {
    let (with, without) = (Replay::<Q>::new(&sequence.config), Replay::<Q>::new(&sequence.config));
    for (index, op) in sequence.ops.iter().enumerate() {
        let got = with.act(op).sorted_unless(Q::LISTS_IN_ORDER);
        let want = match op.is_refused_replace() {
            true => Answer::Said(Said::KeyError),
            false => without.act(op).sorted_unless(Q::LISTS_IN_ORDER),
        };
        let compared = same(got, want).and_then(|()| same(with.state(), without.state()));
        compared.map_err(|what| Difference { op: Some(index), what })?;
    }
    same(with.drain(), without.drain()).map_err(|what| Difference { op: None, what })
}

// ---- the files ----

/// The files to replay: the recording in the repository, or what the environment variable names.
fn files() -> Vec<PathBuf> {
    let path = match std::env::var_os("DELTA_FIFO_VECTORS").filter(|path| !path.is_empty()) {
        None => return vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/client-go-delta-fifo.jsonl.gz")],
        Some(path) => PathBuf::from(path),
    };
    if !path.is_dir() {
        return vec![path];
    }
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let is_recording = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(is_recording).collect();
    files.sort();
    assert!(!files.is_empty(), "{}: there is no .jsonl or .jsonl.gz file in this folder", path.display());
    files
}

/// The sequences of a file, each with the number of its line.
fn sequences(file: &Path) -> Vec<(usize, Sequence)> {
    let name = file.display();
    let opened = File::open(file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let reader: Box<dyn Read> = match file.extension() {
        Some(extension) if extension == "gz" => Box::new(flate2::read::MultiGzDecoder::new(opened)),
        _ => Box::new(opened),
    };
    let mut sequences = Vec::new();
    for (index, line) in BufReader::new(reader).lines().enumerate() {
        let number = index + 1;
        let line = line.unwrap_or_else(|error| panic!("{name}:{number}: {error}"));
        if line.trim().is_empty() {
            continue;
        }
        let sequence = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{name}:{number}: not a sequence as data/FORMAT.md says: {error}"));
        sequences.push((number, sequence));
    }
    assert!(!sequences.is_empty(), "{name}: there is no sequence in this file");
    sequences
}

fn describe(file: &Path, line: usize, sequence: &Sequence, queue: &str, difference: &Difference) -> String {
    let place = match difference.op {
        Some(op) => format!("op {op}"),
        None => "the final state".to_owned(),
    };
    let mut text =
        format!("{}:{line}: sequence {} ({}), {place}, {queue}:", file.display(), sequence.id, sequence.kind);
    let config = &sequence.config;
    let _ = writeln!(
        text,
        "\n      known={} emit_replaced={} ghosts={:?}",
        config.known, config.emit_replaced, config.ghosts
    );
    let shown = difference.op.map_or(sequence.ops.len(), |op| op + 1);
    for (index, op) in sequence.ops[..shown].iter().enumerate() {
        let _ = writeln!(text, "  {index:>3} {op:?}");
    }
    let _ = write!(text, "      {}", difference.what);
    text
}

/// Runs `check` over the chosen sequences of every file, prints the counts, and fails with the first differences.
fn run<Q: Queue>(
    title: &str,
    chosen: impl Fn(&Sequence) -> bool,
    check: impl Fn(&Sequence) -> Result<(), Difference>,
) -> usize {
    let (mut total, mut failed, mut report) = (0, 0, String::new());
    for file in files() {
        let all = sequences(&file);
        let (mut ran, mut ops) = (0, 0);
        let mut kinds = BTreeMap::new();
        for (line, sequence) in all.iter().filter(|(_, sequence)| chosen(sequence)) {
            ran += 1;
            ops += sequence.ops.len();
            *kinds.entry(&*sequence.kind).or_insert(0) += 1;
            if let Err(difference) = check(sequence) {
                failed += 1;
                if failed <= SHOWN_FAILURES {
                    let _ = writeln!(report, "\n{}", describe(&file, *line, sequence, Q::NAME, &difference));
                }
            }
        }
        println!("{title}: {}: {ran} of {} sequences, {ops} ops, {}: {kinds:?}", file.display(), all.len(), Q::NAME);
        total += ran;
    }
    assert_eq!(failed, 0, "{failed} of {total} sequences differ ({}):\n{report}", Q::NAME);
    total
}

/// All but those in which client-go keeps a part of a refused Replace.
fn replay_all<Q: Queue>() {
    let ran = run::<Q>("replay", |sequence| !sequence.partial_replace, replay::<Q>);
    assert!(ran > 0, "there is no sequence to replay");
}

/// The others, and every other one with a refused Replace. A file need not have any.
fn replay_refused<Q: Queue>() {
    let has_refused = |sequence: &Sequence| sequence.ops.iter().any(Op::is_refused_replace);
    run::<Q>("refused Replace changes nothing", has_refused, replay_without_refused::<Q>);
}

#[test]
fn engine_does_what_client_go_did() {
    replay_all::<DeltaFifo<Object, String>>();
}

#[test]
fn baseline_does_what_client_go_did() {
    replay_all::<MutexFifo<Object, String>>();
}

#[test]
fn engine_refuses_a_replace_as_a_whole() {
    replay_refused::<DeltaFifo<Object, String>>();
}

#[test]
fn baseline_refuses_a_replace_as_a_whole() {
    replay_refused::<MutexFifo<Object, String>>();
}

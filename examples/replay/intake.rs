//! From the records of the stream to calls of the queue, with a running account of what must come out at the end.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use serde::Serialize;

use crate::object::{Item, Op};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::stream::event::quoted;
use crate::stream::{Cause, Change, Event, EventStream, Object, Problem};

/// Events of the input by type.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Events {
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
    pub bookmarks: u64,
    /// ERROR events.
    pub server_errors: u64,
    /// Broken places of the input.
    pub bad: u64,
}

impl Events {
    /// Events that change an object.
    pub fn changes(&self) -> u64 {
        self.added + self.modified + self.deleted
    }
}

/// What the input says must be there at the end.
#[derive(Default)]
pub struct Account {
    /// Each object that is alive, and the number of the event that left it so.
    pub alive: HashMap<Arc<str>, u64>,
    /// Deletions of objects that the input never showed: the queue leaves them out.
    pub deleted_unknown: u64,
}

/// How problems are told.
#[derive(Clone, Copy)]
pub struct Tell {
    /// Stop at the first one.
    pub strict: bool,
    /// How many are shown.
    pub shown: u64,
}

/// Iterates over the calls to make. Ends at the end of the input, or in strict mode at the first problem.
pub struct Intake<'p, R> {
    stream: EventStream<R>,
    pace: Pace,
    tell: Tell,
    progress: &'p Progress,
    pub events: Events,
    pub account: Account,
    /// Last `resourceVersion` of each object that is alive.
    versions: HashMap<Arc<str>, u64>,
    sequence: u64,
    problems: u64,
    /// Strict mode saw a problem.
    pub stopped: bool,
    /// The source failed.
    pub read_failed: bool,
}

impl<'p, R: Read> Intake<'p, R> {
    pub fn new(stream: EventStream<R>, pace: Pace, tell: Tell, progress: &'p Progress) -> Self {
        Intake {
            stream,
            pace,
            tell,
            progress,
            events: Events::default(),
            account: Account::default(),
            versions: HashMap::new(),
            sequence: 0,
            problems: 0,
            stopped: false,
            read_failed: false,
        }
    }

    /// Problems of any kind.
    pub fn problems(&self) -> u64 {
        self.problems
    }

    fn tell_problem(&mut self, text: &str) {
        self.problems += 1;
        if self.problems <= self.tell.shown {
            self.progress.say(&format!("replay: {text}"));
        }
        self.stopped |= self.tell.strict;
    }

    fn bad(&mut self, problem: Problem) {
        self.events.bad += 1;
        self.read_failed |= matches!(problem.cause, Cause::Read(_));
        self.tell_problem(&problem.to_string());
    }

    /// `None` if strict mode stops at this event.
    fn op(&mut self, line: u64, change: Change, object: Object) -> Option<Op> {
        self.check_version(line, change, &object);
        if self.stopped {
            return None;
        }
        self.sequence += 1;
        let key = object.key.clone();
        match change {
            Change::Added => self.events.added += 1,
            Change::Modified => self.events.modified += 1,
            Change::Deleted => self.events.deleted += 1,
        }
        let due = self.pace.due(object.created.as_deref().filter(|_| change == Change::Added));
        if change == Change::Deleted {
            if self.account.alive.remove(&key).is_none() {
                self.account.deleted_unknown += 1;
            }
        } else {
            self.account.alive.insert(key, self.sequence);
        }
        self.progress.event();
        Some(Op { change, item: Arc::new(Item::new(object, self.sequence)), due })
    }

    /// The versions of an object must not go back. Equal ones are sound: a watch that was restarted repeats a state.
    fn check_version(&mut self, line: u64, change: Change, object: &Object) {
        let Some(version) = object.version else { return };
        let before = if change == Change::Deleted {
            self.versions.remove(&object.key)
        } else {
            self.versions.insert(object.key.clone(), version)
        };
        if let Some(before) = before.filter(|&before| before > version) {
            let key = quoted(&object.key);
            self.tell_problem(&format!(
                "line {line}: resourceVersion of {key} goes back from {before} to {version}: the recording is out of order"
            ));
        }
    }
}

impl<R: Read> Iterator for Intake<'_, R> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        while !self.stopped {
            let record = match self.stream.next()? {
                Ok(record) => record,
                Err(problem) => {
                    self.bad(problem);
                    continue;
                }
            };
            match record.event {
                Event::Bookmark => self.events.bookmarks += 1,
                Event::Error(status) => {
                    self.events.server_errors += 1;
                    self.tell_problem(&format!("line {}: ERROR event from the server: {status}", record.line));
                }
                Event::Object(change, object) => return self.op(record.line, change, object),
            }
        }
        None
    }
}

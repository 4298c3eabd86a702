//! Reads a watch stream: JSON objects one after another, as `kubectl get … --watch --output-watch-events -o json`
//! writes them, on one line each or pretty-printed.
//!
//! ```text
//!   bytes ─► EventStream ─► Ok(Record { line, event })     one sound event
//!              │            Err(Problem { line, cause })   one broken place; the stream goes on behind it
//!              └ holds one object at a time, at most `max_object` bytes
//! ```
//!
//! Input is never trusted: nothing here panics, memory is bounded, and nesting is bounded. An event is handed out as
//! soon as its last brace arrives, so a live stream is followed without delay.
//!
//! # After broken JSON
//!
//! Reading goes on at the next line that starts with `{`, also if the broken object had swallowed that line. Text
//! between objects is one problem, however long it is.

use std::fmt;
use std::io::{self, Read};

#[path = "event.rs"]
pub mod event;
#[path = "scan.rs"]
pub mod scan;

pub use event::{Change, Event, Object};
use event::{Fault, parse, shown};
use scan::{Broken, MAX_DEPTH, Scan, Scanner};

/// Bytes asked of the source at once.
const CHUNK: usize = 64 * 1024;

/// Default of [`EventStream::max_object`]: far more than an API server accepts for one object.
pub const DEFAULT_MAX_OBJECT: usize = 64 << 20;

/// An event and where it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counted from 1.
    pub line: u64,
    pub event: Event,
}

/// One broken place of the input.
#[derive(Debug)]
pub struct Problem {
    /// The line where the broken object (or the stray text) begins, counted from 1.
    pub line: u64,
    pub cause: Cause,
}

/// What is wrong at a broken place.
#[derive(Debug)]
pub enum Cause {
    /// Not JSON. The place is where it stopped being JSON.
    Syntax { line: u64, column: usize, message: String },
    /// Text where an object should begin.
    Stray { column: usize, found: u8 },
    /// The input ended inside an object.
    Truncated { bytes: usize },
    /// A byte that no UTF-8 text has.
    NotUtf8 { line: u64, column: usize },
    /// UTF-16, told by its first two bytes. Nothing of the input can be read.
    Utf16,
    /// An object of more than the allowed number of bytes.
    TooLarge { limit: usize },
    /// Sound JSON, but no watch event; the text says what is missing.
    NotAnEvent(String),
    /// Sound JSON, but a field of an event has the wrong type, or stands there twice.
    Field { line: u64, column: usize, message: String },
    /// The source itself failed. The stream ends.
    Read(io::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        let place = |f: &mut fmt::Formatter<'_>, line: u64, column: usize| {
            if line == self.line { write!(f, "column {column}") } else { write!(f, "line {line}, column {column}") }
        };
        match &self.cause {
            Cause::Syntax { line, column, message } => {
                f.write_str("broken JSON at ")?;
                place(f, *line, *column)?;
                write!(f, ": {message}")
            }
            Cause::Stray { column, found } => {
                write!(f, "no JSON object at column {column}: expected `{{`, found {}", Byte(*found))
            }
            Cause::Truncated { bytes } => {
                write!(f, "truncated: the input ends inside the object that begins here, after {bytes} bytes of it")
            }
            Cause::NotUtf8 { line, column } => {
                f.write_str("not UTF-8 at ")?;
                place(f, *line, *column)
            }
            Cause::Utf16 => f.write_str(
                "the input is UTF-16, as an old PowerShell's `>` writes it: save it as UTF-8 \
                 (`… | Out-File -Encoding utf8 pods.json`)",
            ),
            Cause::TooLarge { limit } => write!(f, "object of more than {limit} bytes: raise --max-object-bytes"),
            Cause::NotAnEvent(what) => f.write_str(what),
            Cause::Field { line, column, message } => {
                f.write_str("no watch event: at ")?;
                place(f, *line, *column)?;
                write!(f, ": {message}")
            }
            Cause::Read(error) => write!(f, "the source can't be read any further: {error}"),
        }
    }
}

/// A byte for people.
struct Byte(u8);

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_ascii_graphic() { write!(f, "`{}`", self.0 as char) } else { write!(f, "byte 0x{:02x}", self.0) }
    }
}

/// Where the reader is.
enum Mode {
    /// Nothing was read yet: a byte order mark may come.
    Start,
    /// Between two objects.
    Between,
    /// In an object that began at `EventStream::start`.
    Inside(Scanner),
    /// Behind a broken place: looking for a line that starts with `{`.
    Skipping,
    /// The input is over, or can't be read.
    Over,
}

/// The events of `R`, in order. See the [module documentation](self).
pub struct EventStream<R> {
    source: R,
    max_object: usize,
    mode: Mode,
    /// `buffer[start..end]` was read and not consumed; behind it is room for the next read.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Line and column of `buffer[start]`, from 1.
    line: u64,
    column: usize,
}

impl<R: Read> EventStream<R> {
    pub fn new(source: R) -> Self {
        EventStream {
            source,
            max_object: DEFAULT_MAX_OBJECT,
            mode: Mode::Start,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            line: 1,
            column: 1,
        }
    }

    /// Objects of more bytes than this are refused.
    pub fn max_object(mut self, bytes: usize) -> Self {
        self.max_object = bytes;
        self
    }

    /// Reads more bytes; false at the end of the input.
    fn fill(&mut self) -> io::Result<bool> {
        // What is consumed is given back in one move, once it is the greater part.
        if self.start > self.end / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end + CHUNK, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    // A source that claims to have read more than there is room for is not believed.
                    self.end = self.buffer.len().min(self.end.saturating_add(read));
                    return Ok(read > 0);
                }
            }
        }
    }

    /// What was read and not consumed.
    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes bytes that hold no line break.
    fn skip_in_line(&mut self, bytes: usize) {
        self.start += bytes;
        self.column += bytes;
    }

    fn skip_line_break(&mut self) {
        self.start += 1;
        self.line += 1;
        self.column = 1;
    }

    fn problem(&self, cause: Cause) -> Problem {
        Problem { line: self.line, cause }
    }

    /// Line and column of the place where `scanner` stands.
    fn place(&self, scanner: &Scanner) -> (u64, usize) {
        let column = scanner.position() - scanner.line_start();
        let before = if scanner.lines() == 0 { self.column } else { 1 };
        (self.line + scanner.lines(), before + column)
    }

    /// Leaves a broken frame: back to the line in it that looks like the start of the next object, or forward to one.
    fn recover(&mut self, scanner: &Scanner) {
        if let Some(resume) = scanner.resume() {
            self.start += resume.offset;
            self.line += resume.lines;
            self.column = 1;
            self.mode = Mode::Between;
        } else {
            self.consume(scanner);
            self.mode = Mode::Skipping;
        }
    }

    /// Consumes the bytes that `scanner` has seen.
    fn consume(&mut self, scanner: &Scanner) {
        (self.line, self.column) = self.place(scanner);
        self.start += scanner.position();
    }

    /// Byte order marks. Asks for three bytes, so that they can be told.
    fn begin(&mut self) -> io::Result<Option<Problem>> {
        while self.end < 3 && self.fill()? {}
        self.mode = Mode::Between;
        match *self.rest() {
            [0xef, 0xbb, 0xbf, ..] => self.start = 3,
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                self.mode = Mode::Over;
                return Ok(Some(self.problem(Cause::Utf16)));
            }
            _ => {}
        }
        Ok(None)
    }

    /// One step between objects: an object begins, or text that should not be there.
    fn between(&mut self) -> Option<Problem> {
        while let Some(&byte) = self.rest().first() {
            match byte {
                b'\n' => self.skip_line_break(),
                b' ' | b'\t' | b'\r' => self.skip_in_line(1),
                b'{' => {
                    self.mode = Mode::Inside(Scanner::new());
                    return None;
                }
                found => {
                    self.mode = Mode::Skipping;
                    return Some(self.problem(Cause::Stray { column: self.column, found }));
                }
            }
        }
        None
    }

    fn skip_to_line_with_object(&mut self) {
        while let Some(&byte) = self.rest().first() {
            match byte {
                b'\n' => self.skip_line_break(),
                b'{' if self.column == 1 => {
                    self.mode = Mode::Between;
                    return;
                }
                _ => {
                    let rest = self.rest();
                    let bytes = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                    self.skip_in_line(bytes);
                }
            }
        }
    }

    /// One step inside an object; `None` if more bytes are needed.
    fn inside(&mut self) -> Option<Result<Record, Problem>> {
        let Mode::Inside(scanner) = &mut self.mode else { return None };
        // One byte past the limit settles it. To look further would make the answer depend on how much was read.
        let seen = self.end.min(self.start.saturating_add(self.max_object).saturating_add(1));
        let scan = scanner.scan(&self.buffer[self.start..seen]);
        let length = if let Scan::End(length) = scan { length } else { seen - self.start };
        if scan == Scan::More && length <= self.max_object {
            return None;
        }
        let Mode::Inside(scanner) = std::mem::replace(&mut self.mode, Mode::Between) else { return None };
        if let Scan::Broken(broken) = scan {
            let (line, column) = self.place(&scanner);
            let problem = self.problem(Cause::Syntax { line, column, message: broken.to_string() });
            self.recover(&scanner);
            return Some(Err(problem));
        }
        if length > self.max_object {
            let problem = self.problem(Cause::TooLarge { limit: self.max_object });
            // A complete frame is only too long; what looks like an object inside it is a part of it.
            if scan == Scan::More {
                self.recover(&scanner)
            } else {
                self.consume(&scanner)
            }
            return Some(Err(problem));
        }
        let parsed = parse(&self.rest()[..length]);
        let result = match parsed {
            Ok(event) => Ok(Record { line: self.line, event }),
            Err(fault) => Err(self.problem(fault.cause(self.line, self.column))),
        };
        if matches!(result, Err(Problem { cause: Cause::Syntax { .. }, .. })) && scanner.resume().is_some() {
            self.recover(&scanner);
        } else {
            self.consume(&scanner);
        }
        Some(result)
    }

    /// The input ended.
    fn end(&mut self) -> Option<Problem> {
        match std::mem::replace(&mut self.mode, Mode::Over) {
            Mode::Inside(scanner) => {
                let problem = self.problem(Cause::Truncated { bytes: self.rest().len() });
                // An object cut off in the middle of the file has swallowed the ones behind it: read them.
                if scanner.resume().is_some() {
                    self.recover(&scanner);
                }
                Some(problem)
            }
            _ => None,
        }
    }

    fn read_failed(&mut self, error: io::Error) -> Problem {
        self.mode = Mode::Over;
        self.problem(Cause::Read(error))
    }
}

impl<R: Read> Iterator for EventStream<R> {
    type Item = Result<Record, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let step = match self.mode {
                Mode::Start => match self.begin() {
                    Ok(problem) => problem.map(Err),
                    Err(error) => return Some(Err(self.read_failed(error))),
                },
                Mode::Between => self.between().map(Err),
                Mode::Skipping => {
                    self.skip_to_line_with_object();
                    None
                }
                Mode::Inside(_) => self.inside(),
                Mode::Over => return None,
            };
            if step.is_some() {
                return step;
            }
            let looked_at = if let Mode::Inside(scanner) = &self.mode { scanner.position() } else { 0 };
            if self.start + looked_at < self.end {
                continue;
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => {
                    if let Some(problem) = self.end() {
                        return Some(Err(problem));
                    }
                }
                Err(error) => return Some(Err(self.read_failed(error))),
            }
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Unexpected { found, expected } => write!(f, "expected {expected}, found {}", Byte(*found)),
            Broken::ControlInString(b'\n') => f.write_str("a line ends inside a string"),
            Broken::ControlInString(byte) => write!(f, "control character in a string, {}", Byte(*byte)),
            Broken::TooDeep => write!(f, "more than {MAX_DEPTH} brackets open"),
        }
    }
}

impl Fault {
    fn cause(self, line: u64, column: usize) -> Cause {
        let absolute =
            |lines: u64, columns: usize| (line + lines, if lines == 0 { column + columns } else { 1 + columns });
        match self {
            Fault::NotUtf8 { before: (lines, columns) } => {
                let (line, column) = absolute(lines, columns);
                Cause::NotUtf8 { line, column }
            }
            Fault::NotAnEvent(what) => Cause::NotAnEvent(what),
            Fault::Json(error) => {
                let (line, column) =
                    absolute((error.line() as u64).saturating_sub(1), error.column().saturating_sub(1));
                // serde_json puts its own place, relative to the frame, at the end; and it may quote the input.
                let text = error.to_string();
                let message = shown(text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message), 200);
                if error.is_data() {
                    Cause::Field { line, column, message }
                } else {
                    Cause::Syntax { line, column, message }
                }
            }
        }
    }
}

//! Finds where one JSON object ends, without building it.
//!
//! ```text
//!   … "object": { "metadata": { …      │ bytes so far (a frame that may be half read)
//!                 ▲           ▲        │
//!              open brackets: one bit each, object or array
//! ```
//!
//! A pushdown automaton over bytes. It knows the structure of JSON exactly (what may follow what), so a missing
//! brace is noticed at the first byte that cannot be, often the `{` of the next line, and not megabytes later. It is
//! loose about numbers, literals and escapes: the parser that gets the finished frame checks those.
//!
//! It also remembers the first `{` that stood at the start of a line *inside* the frame. In a sound stream that is
//! unusual; in a broken one it is where the next event begins, so the reader can go back there and lose nothing.

/// Open brackets allowed at once. `serde_json` refuses the 128th too.
pub const MAX_DEPTH: u32 = 127;

/// What the bytes seen so far add up to.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan {
    /// The frame goes on: feed more bytes.
    More,
    /// The object is complete; it takes this many bytes.
    End(usize),
    /// This cannot become JSON whatever follows.
    Broken(Broken),
}

/// Why a frame cannot become JSON.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// This byte cannot stand here.
    Unexpected { found: u8, expected: &'static str },
    /// A line break or another control character inside a string.
    ControlInString(u8),
    /// More than [`MAX_DEPTH`] open brackets.
    TooDeep,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value must come.
    Value,
    /// Just after `[`.
    ValueOrEnd,
    /// Just after `{`.
    KeyOrEnd,
    /// After a comma in an object.
    Key,
    Colon,
    /// After a value.
    CommaOrEnd,
    /// In a number or literal.
    Scalar,
    /// In a string, which is a key or a value.
    Text {
        key: bool,
    },
    /// After a backslash in such a string.
    Escape {
        key: bool,
    },
}

impl State {
    fn expects(self) -> &'static str {
        match self {
            State::Value => "a value",
            State::ValueOrEnd => "a value or `]`",
            State::KeyOrEnd => "a key in quotes or `}`",
            State::Key => "a key in quotes",
            State::Colon => "`:`",
            State::CommaOrEnd | State::Scalar => "`,` or a closing bracket",
            State::Text { .. } | State::Escape { .. } => "the rest of a string",
        }
    }
}

/// A place in the frame where the next object may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Bytes from the start of the frame.
    pub offset: usize,
    /// Line breaks from the start of the frame.
    pub lines: u64,
}

/// The automaton. One per frame; start it at the opening `{`.
pub struct Scanner {
    state: State,
    depth: u32,
    /// Bit `n` is set if the bracket at depth `n` is an array.
    arrays: u128,
    position: usize,
    lines: u64,
    line_start: usize,
    resume: Option<Resume>,
}

impl Scanner {
    pub fn new() -> Self {
        Scanner { state: State::Value, depth: 0, arrays: 0, position: 0, lines: 0, line_start: 0, resume: None }
    }

    /// Bytes of the frame that were looked at.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Line breaks in those bytes.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Where the line of [`position`](Scanner::position) begins in the frame; 0 on the first line.
    pub fn line_start(&self) -> usize {
        self.line_start
    }

    /// The first `{` at the start of a line after the frame's own.
    pub fn resume(&self) -> Option<Resume> {
        self.resume
    }

    /// Goes on over `frame`, which must begin with the bytes of the calls before.
    pub fn scan(&mut self, frame: &[u8]) -> Scan {
        while let Some(&byte) = frame.get(self.position) {
            if let State::Text { key } = self.state {
                let rest = &frame[self.position..];
                let Some(n) = rest.iter().position(|&b| b == b'"' || b == b'\\' || b < b' ') else {
                    self.position = frame.len();
                    return Scan::More;
                };
                self.position += n;
                self.state = match rest[n] {
                    b'"' if key => State::Colon,
                    b'"' => State::CommaOrEnd,
                    b'\\' => State::Escape { key },
                    control => return Scan::Broken(Broken::ControlInString(control)),
                };
                self.position += 1;
                continue;
            }
            if let State::Escape { key } = self.state {
                if byte < b' ' {
                    return Scan::Broken(Broken::ControlInString(byte));
                }
                self.state = State::Text { key };
                self.position += 1;
                continue;
            }
            if byte == b'{' && self.lines > 0 && self.position == self.line_start && self.resume.is_none() {
                self.resume = Some(Resume { offset: self.position, lines: self.lines });
            }
            match self.structure(byte) {
                Scan::More => {}
                other => return other,
            }
        }
        Scan::More
    }

    /// One byte outside of strings.
    fn structure(&mut self, byte: u8) -> Scan {
        if self.state == State::Scalar && !is_scalar(byte) {
            self.state = State::CommaOrEnd;
        }
        match (self.state, byte) {
            (State::Scalar, _) => {}
            (_, b' ' | b'\t' | b'\r') => {}
            (_, b'\n') => {
                self.lines += 1;
                self.line_start = self.position + 1;
            }
            (State::Value | State::ValueOrEnd, b'{') => return self.open(false),
            (State::Value | State::ValueOrEnd, b'[') => return self.open(true),
            (State::Value | State::ValueOrEnd, b'"') => self.state = State::Text { key: false },
            (State::Value | State::ValueOrEnd, _) if is_scalar(byte) => self.state = State::Scalar,
            (State::KeyOrEnd | State::Key, b'"') => self.state = State::Text { key: true },
            (State::Colon, b':') => self.state = State::Value,
            (State::CommaOrEnd, b',') => self.state = if self.in_array() { State::Value } else { State::Key },
            (State::KeyOrEnd, b'}') | (State::ValueOrEnd, b']') => return self.close(),
            (State::CommaOrEnd, b'}') if !self.in_array() => return self.close(),
            (State::CommaOrEnd, b']') if self.in_array() => return self.close(),
            (state, found) => return Scan::Broken(Broken::Unexpected { found, expected: state.expects() }),
        }
        self.position += 1;
        Scan::More
    }

    fn in_array(&self) -> bool {
        self.arrays >> self.depth & 1 == 1
    }

    fn open(&mut self, array: bool) -> Scan {
        if self.depth == MAX_DEPTH {
            return Scan::Broken(Broken::TooDeep);
        }
        self.depth += 1;
        self.arrays = self.arrays & !(1 << self.depth) | u128::from(array) << self.depth;
        self.state = if array { State::ValueOrEnd } else { State::KeyOrEnd };
        self.position += 1;
        Scan::More
    }

    fn close(&mut self) -> Scan {
        self.depth -= 1;
        self.state = State::CommaOrEnd;
        self.position += 1;
        if self.depth == 0 { Scan::End(self.position) } else { Scan::More }
    }
}

/// Bytes that numbers and literals are made of.
fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

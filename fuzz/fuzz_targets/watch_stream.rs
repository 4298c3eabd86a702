//! Any bytes into the parser of `examples/replay`: it never panics, it always ends, it hands out the same whatever pieces
//! the bytes come in, and it holds no more than one object.

#![no_main]

#[path = "../../examples/replay/stream.rs"]
#[allow(dead_code, unused_imports)]
mod stream;

use std::cell::Cell;
use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use stream::EventStream;

const MAX_OBJECT: usize = 512;

/// Gives the bytes in pieces of a fixed size, and remembers how much it was asked for at once.
struct Pieces<'a> {
    bytes: &'a [u8],
    size: usize,
    largest: &'a Cell<usize>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.largest.set(self.largest.get().max(buffer.len()));
        let n = self.size.min(buffer.len()).min(self.bytes.len());
        let (piece, rest) = self.bytes.split_at(n);
        buffer[..n].copy_from_slice(piece);
        self.bytes = rest;
        Ok(n)
    }
}

/// What comes out, as text.
fn read(bytes: &[u8], size: usize) -> Vec<String> {
    let largest = Cell::new(0);
    let stream = EventStream::new(Pieces { bytes, size, largest: &largest }).max_object(MAX_OBJECT);
    let mut seen = Vec::new();
    for item in stream {
        seen.push(match item {
            Ok(record) => format!("{record:?}"),
            Err(problem) => problem.to_string(),
        });
        assert!(seen.len() <= bytes.len(), "more came out than went in");
    }
    // The free room of its buffer, which grows by a fixed piece and is given back.
    assert!(largest.get() <= 1 << 20, "it holds {} bytes", largest.get());
    seen
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, usize::MAX);
    assert_eq!(read(bytes, 1), whole, "byte by byte");
    assert_eq!(read(bytes, 7), whole, "in pieces of 7");
});

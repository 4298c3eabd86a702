//! Bytes that claim to be a watch stream, and are made to hurt its reader.

use std::io::{self, Read};

use crate::stream::{Cause, EventStream};
use counting_alloc::live_bytes;

/// A text, then a byte again and again, then a text.
struct Endless<'a> {
    /// The most bytes that were held when it was asked for more.
    held: &'a mut i64,
    head: &'static [u8],
    byte: u8,
    times: usize,
    tail: &'static [u8],
}

impl Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        *self.held = live_bytes().max(*self.held);
        if self.head.is_empty() && self.times > 0 {
            let n = buffer.len().min(self.times);
            buffer[..n].fill(self.byte);
            self.times -= n;
            return Ok(n);
        }
        let text = if self.head.is_empty() { &mut self.tail } else { &mut self.head };
        text.read(buffer)
    }
}

const SOUND: &[u8] =
    b"\n{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\"}}}\n";

/// Whatever the line was, the next one is read, and what was held is a small multiple of the largest object.
fn is_survived(head: &'static [u8], byte: u8, is_expected: impl Fn(&Cause) -> bool) {
    const MAX_OBJECT: usize = 1 << 20;
    let before = live_bytes();
    let mut held = before;
    let source = Endless { held: &mut held, head, byte, times: 100 << 20, tail: SOUND };
    let items: Vec<_> = EventStream::new(source).max_object(MAX_OBJECT).collect();
    assert_eq!(items.len(), 2, "{items:?}");
    let problem = items[0].as_ref().expect_err("the line is no object");
    assert!(is_expected(&problem.cause), "{problem}");
    assert!(problem.to_string().len() < 300, "{} bytes of message", problem.to_string().len());
    items[1].as_ref().expect("the next line is sound");
    let held = held - before;
    assert!(held > 0 && held < 3 * MAX_OBJECT as i64, "{held} bytes were held");
}

#[test]
fn an_object_of_100_megabytes_is_refused_without_being_held() {
    is_survived(b"{\"type\":\"ADDED\",\"object\":{\"a\":\"", b'x', |cause| matches!(cause, Cause::TooLarge { .. }));
    is_survived(b"{\"type\":\"ADDED\",\"object\":{\"a\":1", b'1', |cause| matches!(cause, Cause::TooLarge { .. }));
    is_survived(b"{", b' ', |cause| matches!(cause, Cause::TooLarge { .. }));
}

#[test]
fn nesting_of_100_million_levels_is_refused_where_it_gets_too_deep() {
    is_survived(b"{\"a\":", b'[', |cause| matches!(cause, Cause::Syntax { .. }));
}

#[test]
fn text_that_is_no_object_is_one_problem_however_long() {
    is_survived(b"", b'x', |cause| matches!(cause, Cause::Stray { .. }));
    is_survived(b"", 0xff, |cause| matches!(cause, Cause::Stray { .. } | Cause::NotUtf8 { .. } | Cause::Utf16));
}

/// Found by fuzzing: an object that is too long and broken past the limit was reported as the one or the other,
/// depending on how many bytes a read happened to bring.
#[test]
fn what_is_said_of_an_object_does_not_depend_on_the_size_of_reads() {
    struct ByteByByte<'a>(&'a [u8]);
    impl Read for ByteByByte<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = buffer.len().min(1);
            self.0.read(&mut buffer[..n])
        }
    }
    let mut input = b"{\"a\":\"".to_vec();
    input.resize(600, b'x');
    input.extend(b"\",,}\n{\"type\":\"ADDED\"}");
    let at_once = EventStream::new(&input[..]).max_object(512).map(|item| format!("{item:?}"));
    let in_bytes = EventStream::new(ByteByByte(&input)).max_object(512).map(|item| format!("{item:?}"));
    assert_eq!(at_once.collect::<Vec<_>>(), in_bytes.collect::<Vec<_>>());
}

#[test]
fn invalid_utf8_is_placed_and_costs_its_object_only() {
    let mut input = b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\xff\xfe\"}}}".to_vec();
    input.extend(SOUND);
    let items: Vec<_> = EventStream::new(&input[..]).collect();
    assert!(matches!(&items[0], Err(problem) if matches!(problem.cause, Cause::NotUtf8 { .. })), "{items:?}");
    assert!(items[1].is_ok());
}

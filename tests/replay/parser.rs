//! The reader of watch streams, in the test's own process.

use std::io::{self, Read};

use proptest::prelude::*;

use crate::pace::{LONGEST_PAUSE, Pace};
use crate::stream::scan::MAX_DEPTH;
use crate::stream::{Cause, Change, Event, EventStream, Problem, Record};
use crate::{event, pretty};

fn read(input: &[u8]) -> Vec<Result<Record, Problem>> {
    EventStream::new(input).collect()
}

/// Names of the objects that were read, and the messages of the problems.
fn split(records: Vec<Result<Record, Problem>>) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut problems) = (Vec::new(), Vec::new());
    for record in records {
        match record {
            Ok(Record { event: Event::Object(_, object), .. }) => keys.push(object.key.to_string()),
            Ok(_) => {}
            Err(problem) => problems.push(problem.to_string()),
        }
    }
    (keys, problems)
}

/// Gives one byte per read.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let one = buffer.len().min(1);
        self.0.read(&mut buffer[..one])
    }
}

#[test]
fn an_event_is_read_with_what_the_replay_needs() {
    let records = read(event("MODIFIED", 7).as_bytes());
    let [Ok(Record { line: 1, event: Event::Object(Change::Modified, object) })] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!((&*object.key, &*object.namespace, &*object.phase), ("ns/pod-7", "ns", "Running"));
    assert_eq!((object.version, object.created.as_deref()), (Some(7), Some("2023-01-01T00:00:00Z")));
}

#[test]
fn all_layouts_give_the_same_events() {
    let lines: Vec<String> = (1..=5).map(|n| event("ADDED", n)).collect();
    let pretty: Vec<String> = lines.iter().map(|line| pretty(line)).collect();
    let layouts = [
        lines.join("\n"),
        lines.join("\n") + "\n",
        lines.join("\r\n"),
        lines.concat(),
        lines.join(" \t "),
        format!("\u{feff}{}", lines.join("\n")),
        format!("\n\n  {}\n\n", lines.join("\n\n  ")),
        pretty.join("\n"),
        pretty.concat(),
        format!("{}{}", pretty.join("\r\n").replace('\n', "\r\n"), "\r\n"),
    ];
    for layout in layouts {
        let (keys, problems) = split(read(layout.as_bytes()));
        assert_eq!(problems, Vec::<String>::new(), "{layout}");
        assert_eq!(keys, ["ns/pod-1", "ns/pod-2", "ns/pod-3", "ns/pod-4", "ns/pod-5"], "{layout}");
        assert_eq!(split(EventStream::new(Trickle(layout.as_bytes())).collect()), (keys, problems));
    }
}

#[test]
fn lines_are_those_where_the_objects_begin() {
    let input = format!("{}\n\n{}\n{}", event("ADDED", 1), pretty(&event("ADDED", 2)), event("ADDED", 3));
    let lines: Vec<u64> = read(input.as_bytes()).into_iter().map(|record| record.unwrap().line).collect();
    let pretty_lines = pretty(&event("ADDED", 2)).lines().count() as u64;
    assert_eq!(lines, [1, 3, 3 + pretty_lines]);
}

/// A live stream is followed: an event comes out without a read for what follows it.
#[test]
fn an_event_comes_out_with_its_last_brace() {
    struct Live(Option<Vec<u8>>);
    impl Read for Live {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.take().expect("no second read before the first event was handed out");
            buffer[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }
    let mut stream = EventStream::new(Live(Some(pretty(&event("ADDED", 1)).into_bytes())));
    assert!(stream.next().unwrap().is_ok());
}

#[test]
fn cluster_scoped_and_odd_objects_are_sound() {
    let inputs = [
        (r#"{"type":"ADDED","object":{"metadata":{"name":"node"}}}"#, "node"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":"a\u0062","namespace":"n\"s"}}}"#, "n\"s/ab"),
        (r#"{"object":{"status":"Failure","metadata":{"name":"s"}},"type":"ADDED"}"#, "s"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":"s"},"status":{"phase":{"deep":1}},"code":"x"}}"#, "s"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":"s","resourceVersion":"opaque"},"status":[1,[2]]}}"#, "s"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":"s","creationTimestamp":null},"status":null}}"#, "s"),
    ];
    for (input, key) in inputs {
        assert_eq!(split(read(input.as_bytes())), (vec![key.to_owned()], vec![]), "{input}");
    }
}

#[test]
fn bookmarks_and_errors_of_the_server_are_events() {
    let input = concat!(
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"3000"}}}"#,
        r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old\u001b[31m"}}"#,
        r#"{"type":"ERROR","object":{"code":"odd"}}"#,
    );
    let events: Vec<Event> = read(input.as_bytes()).into_iter().map(|record| record.unwrap().event).collect();
    let expired = r"410 `Expired` `too old\u{1b}[31m`".to_owned();
    assert_eq!(events, [Event::Bookmark, Event::Error(expired), Event::Error("no details".into())]);
}

/// Each message says where, and what; the sound event behind is read.
#[test]
fn what_is_no_event_is_named() {
    let cases = [
        (r#"{"type":"ADDED","object":{"metadata":{"namespace":"a"}}}"#, "line 1: ADDED object without a name"),
        (r#"{"type":"DELETED","object":{"metadata":{"name":""}}}"#, "line 1: DELETED object without a name"),
        (r#"{"type":"MODIFIED","object":{}}"#, "line 1: MODIFIED object without a name"),
        (r#"{"type":"MODIFIED"}"#, "line 1: MODIFIED event without an object"),
        (r#"{"type":"MOVED","object":{}}"#, "line 1: unknown event type `MOVED`"),
        (r#"{"kind":"Pod","metadata":{"name":"a"}}"#, "line 1: a plain object of kind `Pod`, not a watch event"),
        (r#"{"kind":"Secret","type":"Opaque"}"#, "--output-watch-events"),
        (r#"{"a":1}"#, "line 1: no watch event: the field `type` is missing"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":5}}}"#, "line 1: no watch event: at column 46: invalid type"),
        (r#"{"type":"ADDED","type":"ADDED"}"#, "duplicate field `type`"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":"\ud800"}}}"#, "line 1: broken JSON at column"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":truth}}}"#, "line 1: broken JSON at column"),
        (
            r#"{"type":"ADDED" "object":{}}"#,
            "line 1: broken JSON at column 17: expected `,` or a closing bracket, found `\"`",
        ),
        (r#"{"type":"ADDED"]}"#, "line 1: broken JSON at column 16"),
        ("{\"type\":\"ADD\n", "line 1: broken JSON at column 13: a line ends inside a string"),
        ("[1,2]", "line 1: no JSON object at column 1: expected `{`, found `[`"),
        ("W0101 kubectl says hello\nand {more}", "line 1: no JSON object at column 1"),
    ];
    for (broken, message) in cases {
        let input = format!("{broken}\n{}\n", event("ADDED", 1));
        let (keys, problems) = split(read(input.as_bytes()));
        assert_eq!(problems.len(), 1, "{broken}: {problems:?}");
        assert!(problems[0].contains(message), "{broken}: {problems:?}");
        assert_eq!(keys, ["ns/pod-1"], "{broken}");
    }
}

#[test]
fn a_message_never_repeats_a_huge_or_unprintable_input() {
    let long = "x\u{1b}".repeat(1 << 20);
    let escaped = serde_json::to_string(&long).unwrap();
    for input in [
        format!(r#"{{"type":{escaped}}}"#),
        format!(r#"{{"type":"ADDED","object":{{"metadata":{escaped}}}}}"#),
        format!(r#"{{"type":"ADDED",{escaped}}}"#),
    ] {
        let (_, problems) = split(read(input.as_bytes()));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].len() < 2000 && !problems[0].contains('\u{1b}'), "{}", problems[0].len());
    }
}

#[test]
fn bytes_that_are_not_utf8_are_placed() {
    let mut input = format!("{}\n", event("ADDED", 1)).into_bytes();
    input.extend(b"{\n  \"type\": \"ADD\xffED\"}\n");
    input.extend(event("ADDED", 2).bytes());
    let (keys, problems) = split(read(&input));
    assert_eq!(problems, ["line 2: not UTF-8 at line 3, column 15"]);
    assert_eq!(keys, ["ns/pod-1", "ns/pod-2"]);
}

#[test]
fn utf16_is_told_once() {
    let utf16: Vec<u8> = event("ADDED", 1).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (keys, problems) = split(read(&[&[0xff, 0xfe], &utf16[..]].concat()));
    assert!(keys.is_empty());
    assert!(problems.len() == 1 && problems[0].contains("UTF-16"), "{problems:?}");
}

#[test]
fn a_truncated_last_object_is_named_with_its_line() {
    for whole in [event("ADDED", 2), pretty(&event("ADDED", 2))] {
        for cut in 1..whole.len() {
            if !whole.is_char_boundary(cut) {
                continue;
            }
            let input = format!("{}\n{}", event("ADDED", 1), &whole[..cut]);
            let (keys, problems) = split(read(input.as_bytes()));
            assert_eq!(keys, ["ns/pod-1"], "cut at {cut}");
            assert_eq!(problems.len(), 1, "cut at {cut}: {problems:?}");
            assert!(problems[0].starts_with("line 2: truncated: the input ends inside"), "{problems:?}");
        }
    }
}

/// Cut off after `:`, an object takes the next ones for a part of itself. They come back.
#[test]
fn a_swallowed_object_is_read_after_all() {
    for cut in [r#"{"type":"ADDED","object":"#, r#"{"type":"ADDED","object":["#, r#"{"a":[{},"#] {
        for following in [vec![], vec![2], vec![2, 3], vec![2, 3, 4]] {
            let mut lines = vec![event("ADDED", 1), cut.to_owned()];
            lines.extend(following.iter().map(|&n| event("ADDED", n)));
            let expected: Vec<String> = [1].iter().chain(&following).map(|n| format!("ns/pod-{n}")).collect();
            let (keys, problems) = split(read(lines.join("\n").as_bytes()));
            assert_eq!(keys, expected, "{cut}");
            assert_eq!(problems.len(), 1, "{cut}: {problems:?}");
            assert!(problems[0].starts_with("line 2: "), "{problems:?}");
        }
    }
}

/// An endless object costs no memory: the stream says so and goes on at the next line with an object.
#[test]
fn an_object_over_the_limit_is_refused() {
    const LIMIT: usize = 1000;
    let short = event("ADDED", 1);
    assert!(short.len() <= LIMIT);
    let long = |bytes: usize| {
        let frame = r#"{"type":"ADDED","object":{"metadata":{"name":"long"}},"x":""}"#;
        let filler = "{".repeat(bytes - frame.len());
        frame.replace(r#""""#, &format!(r#""{filler}""#))
    };
    for (object, fits) in [(long(LIMIT), true), (long(LIMIT + 1), false), (long(10 << 20), false)] {
        let input = format!("{object}\n{short}\n");
        let (keys, problems) = split(EventStream::new(input.as_bytes()).max_object(LIMIT).collect());
        assert_eq!(keys, if fits { vec!["long", "ns/pod-1"] } else { vec!["ns/pod-1"] });
        assert_eq!(problems.len(), usize::from(!fits));
        assert!(problems.iter().all(|problem| problem.starts_with("line 1: object of more than 1000 bytes")));
    }
    // Without an end in sight, too.
    let endless = io::Cursor::new(br#"{"a":""#).chain(io::repeat(b'x').take(200 << 20));
    let mut stream = EventStream::new(endless.chain(io::Cursor::new("\n".to_owned() + &short))).max_object(LIMIT);
    assert!(matches!(stream.next(), Some(Err(Problem { line: 1, cause: Cause::TooLarge { limit: LIMIT } }))));
    assert!(matches!(stream.next(), Some(Ok(Record { line: 2, .. }))));
    assert!(stream.next().is_none());
}

#[test]
fn nesting_is_bounded_where_serde_json_bounds_it() {
    let nested = |brackets: u32| {
        let inner = brackets as usize - 1;
        format!(r#"{{"type":{}{}}}"#, "[".repeat(inner), "]".repeat(inner))
    };
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text);
    assert!(parse(&nested(MAX_DEPTH)).is_ok());
    assert!(parse(&nested(MAX_DEPTH + 1)).is_err());
    let (_, problems) = split(read(nested(MAX_DEPTH).as_bytes()));
    assert!(problems[0].contains("invalid type"), "{problems:?}");
    let (_, problems) = split(read(nested(MAX_DEPTH + 1).as_bytes()));
    assert!(problems[0].contains("more than 127 brackets"), "{problems:?}");
    let (_, problems) = split(read("{\"a\":\n".repeat(100_000).as_bytes()));
    assert!(!problems.is_empty());
}

#[test]
fn a_source_that_fails_ends_the_stream_with_its_reason() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is on fire"))
        }
    }
    let first = event("ADDED", 1) + "\n";
    let mut stream = EventStream::new(first.as_bytes().chain(Failing));
    assert!(stream.next().unwrap().is_ok());
    assert!(stream.next().unwrap().unwrap_err().to_string().contains("on fire"));
    assert!(stream.next().is_none());
}

/// What may happen to one line of a file, except that it gets line breaks.
#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Drop(prop::sample::Index),
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
}

impl Damage {
    fn apply(&self, line: &mut Vec<u8>) {
        match self {
            Damage::Cut(at) => line.truncate(at.index(line.len())),
            Damage::Drop(at) => drop(line.remove(at.index(line.len()))),
            Damage::Set(at, byte) => {
                let at = at.index(line.len());
                line[at] = *byte;
            }
            Damage::Insert(at, bytes) => {
                let at = at.index(line.len());
                line.splice(at..at, bytes.iter().copied());
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    // Structure is damaged more often than by bytes at random.
    let byte =
        || prop_oneof![prop::sample::select(b"{}[]\",:\\".to_vec()), any::<u8>()].prop_filter("", |b| *b != b'\n');
    prop_oneof![
        index().prop_map(Damage::Cut),
        index().prop_map(Damage::Drop),
        (index(), byte()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (index(), prop::collection::vec(byte(), 1..8)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ]
}

proptest! {
    /// Whatever happens inside one object, all others are read, in order.
    #[test]
    fn damage_stays_where_it_is(
        damage in damage(), damaged in 0..5usize, is_pretty: bool, trickle: bool,
    ) {
        let mut objects: Vec<Vec<u8>> = (0..5)
            .map(|n| if is_pretty { pretty(&event("ADDED", n)) } else { event("ADDED", n) }.into_bytes())
            .collect();
        damage.apply(&mut objects[damaged]);
        let input = objects.join(&b'\n');
        let records = if trickle { EventStream::new(Trickle(&input)).collect() } else { read(&input) };
        let (keys, problems) = split(records);
        let others: Vec<String> = (0..5).filter(|&n| n != damaged).map(|n| format!("ns/pod-{n}")).collect();
        let mut read = keys.iter();
        prop_assert!(others.iter().all(|key| read.any(|k| k == key)), "{keys:?} {problems:?}");
    }

    /// Any bytes at all: an end is reached, and lines only go forward.
    #[test]
    fn any_bytes_are_survived(
        pieces in prop::collection::vec(prop_oneof![
            Just(b"{".to_vec()), Just(b"}".to_vec()), Just(b"\n{".to_vec()), Just(b"\"".to_vec()), Just(b"[".to_vec()),
            Just(b",".to_vec()), Just(b":".to_vec()), Just(b"\n".to_vec()), Just(br#""type":"ADDED""#.to_vec()),
            Just(event("ADDED", 1).into_bytes()), prop::collection::vec(any::<u8>(), 0..8),
        ], 0..60),
        limit in 1..600usize,
    ) {
        let input = pieces.concat();
        let mut line = 1;
        for record in EventStream::new(&*input).max_object(limit) {
            let at = match &record {
                Ok(record) => record.line,
                Err(problem) => problem.line,
            };
            prop_assert!(line <= at, "{at} after {line}");
            line = at;
        }
        let last = 1 + input.iter().filter(|&&byte| byte == b'\n').count() as u64;
        prop_assert!(line <= last);
    }
}

#[test]
fn a_pace_follows_creation_times_and_skips_long_pauses() {
    let mut pace = Pace::new(None, Some(3600.0));
    let due: Vec<u128> = [
        Some("2024-02-28T23:00:00Z"),
        None,
        Some("2024-02-28T23:30:00Z"),   // half an hour: half a second
        Some("2024-02-28T23:00:00Z"),   // older: at once
        Some("2024-02-29T00:00:00.5Z"), // half an hour after the newest
        Some("2024-03-01T00:00:00Z"),   // a leap day: more than the longest pause
        Some("2024-03-01T00:00:36Z"),
        Some("yesterday"),
        Some("2024-13-01T00:00:00Z"),
        Some("-024-03-01T00:00:00Z"),
        Some("9999999999999999999-03-01T00:00:00Z"),
    ]
    .into_iter()
    .map(|added| pace.due(added).as_millis())
    .collect();
    let pause = LONGEST_PAUSE.as_millis();
    let rest = 1000 + pause + 10;
    assert_eq!(due, [0, 0, 500, 500, 1000, 1000 + pause, rest, rest, rest, rest, rest]);

    // Midnight of new year's day is one second after the last second of December, leap year or not.
    for (before, after) in
        [("2023-12-31T23:59:59Z", "2024-01-01T00:00:00Z"), ("2000-02-28T23:59:59Z", "2000-02-29T00:00:00Z")]
    {
        let mut pace = Pace::new(None, Some(2.0));
        pace.due(Some(before));
        assert_eq!(pace.due(Some(after)).as_millis(), 500);
    }

    let mut rate = Pace::new(Some(4.0), None);
    assert_eq!([rate.due(None), rate.due(None), rate.due(None)].map(|due| due.as_millis()), [0, 250, 500]);
    assert_eq!(Pace::new(None, None).due(Some("2024-02-28T23:00:00Z")).as_millis(), 0);
}

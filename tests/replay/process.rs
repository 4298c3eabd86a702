//! The program as a user runs it: arguments, exit status, messages, figures.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::Value;

use crate::{event, pretty};

/// The example of this test's profile. `cargo test` builds it; `cargo test --test replay` alone does not, so cargo is
/// asked again, which takes a moment if there is nothing to do.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        // target/<profile>/deps/replay-<hash>
        let test = env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let name = match profile.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            name => name,
        };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", "replay", "--profile", name, "--target-dir"])
            .arg(profile.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success());
        profile.join("examples").join(format!("replay{}", env::consts::EXE_SUFFIX))
    })
}

fn replay(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A program that stops early closes the pipe: an error here is no failure.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

struct Told {
    status: i32,
    problems: Vec<String>,
    summary: Value,
}

impl Told {
    /// Names of the numbers are as in the summary.
    fn events(&self, name: &str) -> u64 {
        self.summary["events"][name].as_u64().unwrap()
    }

    fn run(&self) -> &Value {
        &self.summary["runs"][0]
    }
}

/// Runs with `--json`.
fn told(arguments: &[&str], input: &[u8]) -> Told {
    let output = replay(&[arguments, &["--json"]].concat(), input);
    let problems = String::from_utf8(output.stderr).unwrap().lines().map(str::to_owned).collect();
    let summary = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {problems:?} {}", String::from_utf8_lossy(&output.stdout)));
    Told { status: output.status.code().unwrap(), problems, summary }
}

fn sample() -> String {
    let mut text = String::new();
    let file = fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/replay/sample.jsonl.gz")).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// What the sample must come to, counted apart from the example.
fn assert_is_the_sample(told: &Told) {
    assert_eq!((told.status, &told.problems[..]), (0, &[][..]));
    let events = ["added", "modified", "deleted", "bookmarks", "server_errors", "bad"].map(|name| told.events(name));
    assert_eq!(events, [1622, 2118, 1577, 2, 0, 0]);
    let objects = serde_json::json!({
        "be": { "Failed": 1, "Pending": 1, "Running": 4 },
        "burstable": { "Running": 2 },
        "guaranteed": { "Running": 2 },
        "ls": { "Pending": 1, "Running": 34 },
    });
    assert_eq!(told.summary["objects"], objects);
    for run in told.summary["runs"].as_array().unwrap() {
        assert_eq!(run["faults"], serde_json::json!([]));
        assert_eq!(run["objects_left"], 45);
        assert!(run["pops"].as_u64().unwrap() <= 5317);
        assert_eq!(run["enqueue_ns"]["max"].as_u64().unwrap().min(1), 1);
    }
}

fn assert_delivers_all(told: &Told) {
    for run in told.summary["runs"].as_array().unwrap() {
        assert_eq!(run["deltas"], serde_json::json!({ "added": 1622, "updated": 2118, "deleted": 1577, "other": 0 }));
    }
}

#[test]
fn the_sample_runs_without_arguments() {
    let told = told(&[], b"");
    assert_is_the_sample(&told);
    assert_delivers_all(&told);

    let output = replay(&[], b"");
    let text = String::from_utf8(output.stdout).unwrap();
    for line in ["1622 ADDED, 2118 MODIFIED, 1577 DELETED, 2 BOOKMARK, 0 ERROR", "end state as the input says"] {
        assert!(text.contains(line), "{text}");
    }
    let row = |line: &str| line.split_whitespace().collect::<Vec<_>>() == ["ls", "Running", "34"];
    assert!(text.lines().any(row), "{text}");
    assert_eq!(output.stderr, b"", "no progress bar without a terminal");
}

#[test]
fn files_pipes_and_layouts_come_to_the_same() {
    let text = sample();
    let folder = env::temp_dir().join(format!("delta-fifo-replay-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let plain = folder.join("plain.json");
    fs::write(&plain, &text).unwrap();
    let many_lines: String = text.lines().map(|line| pretty(line) + "\n").collect();

    let gzip = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/replay/sample.jsonl.gz");
    assert_is_the_sample(&told(&[gzip], b""));
    assert_is_the_sample(&told(&["-"], &fs::read(gzip).unwrap()));
    assert_is_the_sample(&told(&[plain.to_str().unwrap()], b""));
    assert_is_the_sample(&told(&["-"], many_lines.as_bytes()));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn threads_limits_and_policies_do_not_change_the_end() {
    for arguments in [
        &["--workers", "1"][..],
        &["--workers", "16", "--producers", "4"],
        &["--preload", "--workers", "2", "--work-us", "1"],
        &["--max-pending", "1", "--producers", "3"],
        &["--compare", "--rounds", "2", "--workers", "3", "--max-pending", "50"],
    ] {
        let told = told(arguments, b"");
        assert_is_the_sample(&told);
        assert_delivers_all(&told);
    }
}

#[test]
fn keep_latest_leaves_updates_out_and_ends_the_same() {
    // One slow worker: the changes of a pod meet in the queue.
    let told = told(&["--keep-latest", "--preload", "--workers", "1", "--work-us", "100"], b"");
    assert_is_the_sample(&told);
    assert!(told.run()["deltas"]["updated"].as_u64().unwrap() < 2118);
}

#[test]
fn compare_puts_the_baseline_beside() {
    let told = told(&["--compare", "--rounds", "3", "--producers", "2"], b"");
    assert_is_the_sample(&told);
    let queues: Vec<&str> =
        told.summary["runs"].as_array().unwrap().iter().map(|run| run["queue"].as_str().unwrap()).collect();
    assert_eq!(queues, ["delta-fifo", "mutex, held", "mutex, free"]);
}

/// Broken places, each with what its message must say. The sound events around them are all processed.
#[test]
fn broken_input_is_named_and_the_rest_is_processed() {
    let cases: [(&[u8], &str); 7] = [
        (br#"{"type":"ADDED","object":{"metadata":{"name":"a"}}"#, "line 2: broken JSON at line 3, column 1"),
        (br#"{"type":"ADDED","object":{"metadata":{"na"#, "line 2: broken JSON at column 42: a line ends"),
        (br#"{"type":"ADDED","object":{"metadata":{}}}"#, "line 2: ADDED object without a name"),
        (br#"{"kind":"Pod","metadata":{"name":"a"}}"#, "line 2: a plain object of kind `Pod`"),
        (b"Unable to connect to the server", "line 2: no JSON object at column 1: expected `{`, found `U`"),
        (b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\xff\"}}}", "line 2: not UTF-8 at column 47"),
        (
            br#"{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}"#,
            "line 2: ERROR event from the server: 410 `Expired` `too old`",
        ),
    ];
    for (broken, message) in cases {
        let lines = [event("ADDED", 1).into_bytes(), broken.to_vec(), event("ADDED", 2).into_bytes()];
        let input = lines.join(&b'\n');
        let told_all = told(&["-"], &input);
        assert_eq!(told_all.status, 1);
        assert_eq!(told_all.problems.len(), 1, "{:?}", told_all.problems);
        assert!(told_all.problems[0].starts_with(&format!("replay: {message}")), "{:?}", told_all.problems);
        assert_eq!(told_all.events("added"), 2, "{message}");
        assert_eq!(told_all.summary["objects"]["ns"]["Running"], 2);

        let strict = told(&["-", "--strict"], &input);
        assert_eq!(strict.status, 1);
        assert_eq!((strict.events("added"), &strict.run()["objects_left"]), (1, &1.into()), "{message}");
        assert!(strict.problems[1].contains("--strict"), "{:?}", strict.problems);
        assert_eq!(strict.run()["faults"], serde_json::json!([]));
    }
}

#[test]
fn a_truncated_last_object_costs_only_itself() {
    let whole = sample();
    let told = told(&["-"], &whole.as_bytes()[..whole.len() - 10]);
    assert_eq!(told.status, 1);
    assert!(told.problems[0].starts_with("replay: line 5319: truncated: the input ends inside"), "{:?}", told.problems);
    let changes = told.events("added") + told.events("modified") + told.events("deleted");
    assert_eq!((changes, told.events("bad")), (5316, 1));
}

#[test]
fn a_version_that_goes_back_is_told() {
    let input = [event("ADDED", 5), event("MODIFIED", 5).replace(r#":"5""#, r#":"4""#), event("ADDED", 6)].join("\n");
    let told_all = told(&["-"], input.as_bytes());
    assert_eq!((told_all.status, told_all.events("modified")), (1, 1));
    assert!(told_all.problems[0].contains("line 2: resourceVersion of `ns/pod-5` goes back from 5 to 4"));
    let strict = told(&["-", "--strict", "--preload"], input.as_bytes());
    assert_eq!((strict.status, strict.events("added"), strict.events("modified")), (1, 1, 0));
    assert_eq!(strict.run()["faults"], serde_json::json!([]));
}

#[test]
fn a_deletion_of_an_unknown_object_is_left_out() {
    let lines = [event("DELETED", 1), event("ADDED", 2), event("DELETED", 2), event("DELETED", 2)];
    let told = told(&["-"], lines.join("\n").as_bytes());
    assert_eq!((told.status, told.events("deleted")), (0, 3));
    assert_eq!(told.run()["deltas"], serde_json::json!({ "added": 1, "updated": 0, "deleted": 1, "other": 0 }));
}

#[test]
fn problems_over_the_shown_number_are_counted() {
    let input = "{}\n".repeat(50);
    let told_all = told(&["-", "--show-problems", "3"], input.as_bytes());
    assert_eq!((told_all.problems.len(), told_all.events("bad")), (4, 50));
    assert!(told_all.problems[3].contains("47 more"));
    let quiet = replay(&["-", "--quiet"], input.as_bytes());
    assert_eq!((quiet.status.code(), &quiet.stdout[..]), (Some(1), &b""[..]));
    assert_eq!(String::from_utf8(quiet.stderr).unwrap().lines().count(), 21);
}

#[test]
fn an_object_over_the_limit_is_refused_with_the_option_to_raise() {
    let input = format!("{}\n{}\n", pretty(&event("ADDED", 1)), r#"{"type":"BOOKMARK"}"#);
    let told = told(&["-", "--max-object-bytes", "100"], input.as_bytes());
    assert_eq!((told.status, told.events("bookmarks"), told.events("added")), (1, 1, 0));
    assert!(told.problems[0].contains("--max-object-bytes"));
}

#[test]
fn usage_and_file_errors_have_their_own_status() {
    let cases = [
        (&["no/such/file.json"][..], "no/such/file.json: "),
        (&[env!("CARGO_MANIFEST_DIR")], "is a directory"),
        (&["--workers", "0"], "--workers"),
        (&["--rate", "0"], "must be more than 0"),
        (&["--rate", "1", "--pace", "1"], "cannot be used with"),
        (&["--json", "--quiet"], "cannot be used with"),
        (&["--nonsense"], "--nonsense"),
    ];
    for (arguments, message) in cases {
        let output = replay(arguments, b"");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message) && output.stdout.is_empty(), "{arguments:?}: {stderr}");
    }
    let help = String::from_utf8(replay(&["--help"], b"").stdout).unwrap();
    assert!(help.contains("Exit status:") && help.contains("creationTimestamp"), "{help}");
}

/// A gzip file that was cut off: what is readable is processed, and the status says that reading failed.
#[test]
fn a_source_that_fails_midway_is_told() {
    let gzip = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/replay/sample.jsonl.gz")).unwrap();
    let told = told(&["-"], &gzip[..gzip.len() / 2]);
    assert_eq!(told.status, 2);
    assert!(told.problems[0].contains("the source can't be read any further"), "{:?}", told.problems);
    assert!(told.events("added") > 100);
    assert_eq!(told.run()["faults"], serde_json::json!([]));
}

#[test]
fn no_input_is_no_error() {
    let told = told(&["-"], b"\n");
    assert_eq!((told.status, told.events("added")), (0, 0));
    assert!(String::from_utf8(replay(&["-"], b"").stdout).unwrap().contains("no objects left"));
}

#[test]
fn rate_and_pace_hold_the_feed_back() {
    let lines: Vec<String> = (1..=41).map(|n| event("ADDED", n)).collect();
    let start = Instant::now();
    assert_eq!(told(&["-", "--rate", "200"], lines.join("\n").as_bytes()).status, 0);
    assert!(start.elapsed() >= Duration::from_millis(200));

    let hours: Vec<String> =
        (1..=4).map(|hour| event("ADDED", hour).replace("T00:", &format!("T{hour:02}:"))).collect();
    let start = Instant::now();
    assert_eq!(told(&["-", "--pace", "36000", "--producers", "2"], hours.join("\n").as_bytes()).status, 0);
    assert!(start.elapsed() >= Duration::from_millis(300));
}

/// As in `replay | head -1`.
#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut child =
        Command::new(program()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}

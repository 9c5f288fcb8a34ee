//! The demo shows no overlap, on the engine and on a real server, and leaves a server as it found it.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

use std::process::{Command, Stdio};
use std::time::Duration;

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

/// Longer than everything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stanchion-demo"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the demo to its end. Returns its exit code, its output and its errors.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = demo(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn the_engine_shows_grants_and_no_overlap() {
    let (code, shown, _) = run(&["--seconds", "2"]);
    assert_eq!(code, Some(0), "{shown}");
    let heading = "12 tasks in 3 clients contend for one lock on memory://demo.\n";
    assert!(shown.starts_with(heading), "{shown}");
    for expected in [
        "did not wait for a release",
        "inside A, without a message",
        "Overlaps: 0  stale tokens: 0  errors: 0\n",
        "commands and",
        "Nothing overlapped",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!shown.contains('\x1b'), "colour without a terminal");
}

#[test]
fn a_real_server_shows_no_overlap_and_is_left_as_it_was() {
    let server = RedisServer::start();
    for kind in ["lock", "fair", "rwlock"] {
        let (code, shown, errors) = run(&[kind, "--seconds=2", "--url", &server.url()]);
        assert_eq!(code, Some(0), "{shown}{errors}");
        let counts = "Overlaps: 0  stale tokens: 0  errors: 0\n";
        assert!(shown.contains(counts), "{shown}");
        // The notes of a turn and the results of operations expire after some seconds.
        let left = || {
            let mut left = server.keys();
            left.retain(|key| !key.starts_with("stanchion_fence:"));
            left
        };
        eventually_blocking("no key is left but the counter of tokens", || {
            left().is_empty()
        });
    }
}

#[test]
fn a_signal_ends_it_early_with_the_result() {
    for signal in [Signal::Int, Signal::Term] {
        let mut demo = Process::spawn(&mut demo(&["--seconds", "60"]));
        demo.wait_for_line(|line| line.contains("token"), SOON);
        demo.signal(signal);
        assert_eq!(demo.wait(SOON).code(), Some(0));
        demo.wait_for_line(|line| line.starts_with("Overlaps: 0"), SOON);
    }
}

#[test]
fn each_failure_has_one_line_and_an_exit_code() {
    for (args, expected, text) in [
        (&["--url", "redis://127.0.0.1:1/"][..], 69, "cannot reach"),
        (&["--url", "ftp://127.0.0.1/"], 78, "ftp"),
        (&["--seconds", "1"], 2, "--seconds is 2 to 600"),
        (&["--url"], 2, "--url needs a value"),
        (&["mutex"], 2, "\"mutex\" is not known"),
    ] {
        let (code, shown, error) = run(args);
        assert_eq!(code, Some(expected), "{args:?}: {error}");
        assert!(error.contains(text), "{args:?}: {error}");
        assert_eq!((shown.as_str(), error.lines().count()), ("", 1), "{args:?}");
    }
    let (code, help, _) = run(&["--help"]);
    assert!(code == Some(0) && help.contains("Usage:"), "{help}");
}

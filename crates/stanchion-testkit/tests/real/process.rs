//! [`Process`].

use std::process::Command;
use std::time::Duration;

use stanchion_testkit::{Process, Signal, eventually_blocking};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn lines_are_waited_for_and_kept() {
    let script = "echo one; echo two; read answer; echo got $answer";
    let mut child = Process::start("sh", &["-c", script]);
    let two = child.wait_for_line(|l| l.starts_with("tw"), LIMIT);
    assert_eq!(two, "two");
    child.send_line("yes");
    child.wait_for_line(|l| l == "got yes", LIMIT);
    assert!(child.wait(LIMIT).success());
    assert_eq!(child.lines(), ["one", "two", "got yes"]);
}

#[test]
#[should_panic(expected = "the output ended: the wanted line; seen: [\n    \"one\",\n]")]
fn a_line_that_never_comes_shows_what_came() {
    let mut child = Process::start("sh", &["-c", "echo one"]);
    child.wait_for_line(|l| l == "two", LIMIT);
}

#[test]
fn a_stopped_child_says_nothing_until_it_goes_on() {
    let mut child = Process::start("cat", &[]);
    child.signal(Signal::Stop);
    child.send_line("hello");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
    assert!(stat.contains(") T "), "not stopped: {stat}");
    assert!(child.lines().is_empty());
    child.signal(Signal::Cont);
    child.wait_for_line(|l| l == "hello", LIMIT);
    child.close_stdin();
    assert!(child.wait(LIMIT).success());
}

#[test]
fn signals_end_a_child() {
    use std::os::unix::process::ExitStatusExt as _;

    for (signal, number) in [(Signal::Kill, 9), (Signal::Term, 15), (Signal::Int, 2)] {
        // A test that runs in the background of a shell ignores SIGINT, and its children would too.
        let mut child = Process::start("env", &["--default-signal=INT", "cat"]);
        child.send_line("ready");
        child.wait_for_line(|l| l == "ready", LIMIT);
        child.signal(signal);
        assert_eq!(child.wait(LIMIT).signal(), Some(number));
    }
}

#[test]
fn a_dropped_child_is_killed_and_reaped() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $GREETING; exec cat"]);
    let mut child = Process::spawn(command.env("GREETING", "hi"));
    child.wait_for_line(|l| l == "hi", LIMIT);
    let proc = std::path::PathBuf::from(format!("/proc/{}", child.pid()));
    drop(child);
    eventually_blocking("the child is gone", || !proc.exists());
}

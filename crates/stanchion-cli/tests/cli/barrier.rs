//! `stanchion barrier`, and what the others tell of barriers.

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use crate::support::{SOON, code, json, output, status, text, with};

const PLACES: &str = "stanchion_barrier_in:{step}";

fn party(server: &RedisServer, more: &[&str]) -> Process {
    let args = [&["barrier", "step", "--parties", "3"], more].concat();
    Process::spawn(&mut with(server, &args))
}

fn places(server: &RedisServer, count: i64) {
    eventually_blocking("places are taken", || {
        server.cli(&["ZCARD", PLACES]).as_int() == count
    });
}

#[test]
fn three_commands_begin_together() {
    let server = RedisServer::start();
    let script = "echo $STANCHION_ARRIVAL in $STANCHION_GENERATION; exit 7";
    let command = ["--", "sh", "-c", script];
    let mut first = party(&server, &command);
    places(&server, 1);
    let mut second = party(&server, &command);
    places(&server, 2);
    let line = status(&server, "step");
    assert_eq!(
        (&line["kind"], &line["held"], &line["waiting_processes"]),
        (&"barrier".into(), &false.into(), &2.into()),
        "{line}"
    );
    assert_eq!(line["barrier"]["parties"], 3, "{line}");
    let shown = text(&output(&server, &["status", "step"]).stdout);
    assert!(shown.starts_with("step: 2 of 3 are here\n"), "{shown}");
    let listed = text(&output(&server, &["ls", "--scan"]).stdout);
    assert!(
        listed.contains("step") && listed.contains("2 of 3 are here"),
        "{listed}"
    );
    let last = output(&server, &["barrier", "step", "--parties", "3", "--json"]);
    let told = json(&last.stdout);
    assert_eq!((&told["arrival"], &told["last"]), (&3.into(), &true.into()));
    for (n, process) in [(1, &mut first), (2, &mut second)] {
        let said = format!("{n} in {}", told["generation"]);
        process.wait_for_line(|line| line == said, SOON);
        assert_eq!(process.wait(SOON).code(), Some(7));
    }
    places(&server, 0);
    assert_eq!(code(&server, &["status", "step", "--check"]), Some(0));
}

#[test]
fn a_barrier_that_is_not_complete_ends_with_a_code_of_its_own() {
    let server = RedisServer::start();
    let alone = |more: &[&str]| {
        let args = [&["barrier", "step", "--parties", "3"], more].concat();
        output(&server, &args)
    };
    for wait in [["--wait", "0"], ["--timeout", "200ms"]] {
        let late = alone(&[&wait[..], &["--", "echo", "ran"]].concat());
        assert_eq!((late.status.code(), &*text(&late.stdout)), (Some(75), ""));
        places(&server, 0);
    }
    // Whoever leaves breaks the round.
    let mut patient = party(&server, &["--on-leave", "break", "--", "echo", "ran"]);
    places(&server, 1);
    let shown = text(&output(&server, &["inspect", "step"]).stdout);
    assert!(shown.contains("breaks the round for all"), "{shown}");
    let late = alone(&["--wait", "200ms"]);
    assert_eq!(late.status.code(), Some(75));
    assert_eq!(patient.wait(SOON).code(), Some(73));
    assert!(!patient.lines().iter().any(|line| line == "ran"));
    let other = output(&server, &["barrier", "step", "--parties", "2"]);
    assert_eq!(other.status.code(), Some(78));
    assert!(text(&other.stderr).contains("has 3 parties, not 2"));
}

#[test]
fn a_signal_gives_the_place_back() {
    let server = RedisServer::start();
    let mut waits = party(&server, &["--", "echo", "ran"]);
    places(&server, 1);
    waits.signal(Signal::Term);
    assert_eq!(waits.wait(SOON).code(), Some(143));
    assert_eq!(server.cli(&["ZCARD", PLACES]).as_int(), 0);
}

//! Names and owners that anybody may have written: none of them controls the operator's terminal, or forges a line.

use stanchion_testkit::{Process, RedisServer, eventually_blocking};
use tempfile::NamedTempFile;

use crate::support::{HOLD, SOON, json, output, text, with};

/// Clears the screen, begins a line, turns the direction of the text, begins a sequence of one byte.
const HOSTILE: &str = "job\x1b[2J\nFORGED\u{202e}\u{9b}2J\x07";
/// An owner as Redisson writes it, but for its number.
const OWNER: &str = "9f1c0000-0000-4000-8000-000000000000:\x1b]0;x\x07\nFORGED\u{2066}";

/// Panics if `shown` contains a character that a terminal acts on, or a line that begins inside a name.
fn assert_harmless(what: &[&str], shown: &str) {
    let acts = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200f}".contains(c));
    assert_eq!(shown.find(acts), None, "{what:?} shows {shown:?}");
    let forged = shown.lines().find(|line| line.starts_with("FORGED"));
    assert_eq!(forged, None, "{what:?} shows {shown:?}");
}

/// Runs a command to its end, and returns what it shows.
fn shown(server: &RedisServer, args: &[&str]) -> String {
    let done = output(server, args);
    let shown = text(&done.stdout) + &text(&done.stderr);
    assert_harmless(args, &shown);
    shown
}

/// Every command about a name, and those that list names.
const COMMANDS: &str = "status NAME
status NAME --kind rwlock
inspect NAME
run NAME --wait 0 --verbose -- true
run NAME --wait 100ms --fair --verbose -- true
run NAME --wait 0 --read --verbose -- true
run NAME --wait 0 --write --verbose -- true
run NAME --wait 0 --permits 2 --verbose -- true
run NAME --every 1d --verbose -- true
run NAME --wait 0 --at-least 1s --verbose -- true
hold NAME --for 1s --wait 100ms
hold NAME --for 1s --wait 0 --fair
release NAME
leader NAME
ask NAME --reason now
watch NAME --count 1
permits NAME set 2
permits NAME reclaim 00ff0102030405060708090a0b0c0d0e
limit NAME --rate 1/h --wait 0 -- true
limit NAME --rate 1/h --burst 1 --wait 0 -- true
barrier NAME --parties 2 --wait 0
ls
ls --scan --all
top --once
clients
doctor --scan
bench --names NAME
ping
force-release NAME --yes";

#[test]
fn no_name_or_owner_acts_on_the_terminal() {
    let server = RedisServer::start();
    let right_to_left = "\u{200f}job\u{202e}".repeat(20);
    let long = "\x1b[2J".repeat(1024);
    for (name, before) in [
        // As Redisson holds it.
        (HOSTILE, &["HSET", HOSTILE, OWNER, "1"][..]),
        (HOSTILE, &["DEL", HOSTILE]),
        // In use as something else.
        (&right_to_left, &["SET", &right_to_left, OWNER]),
        (&long, &["HSET", &long, OWNER, "1"]),
    ] {
        let _ = server.cli(&["FLUSHALL"]);
        let _ = server.cli(before);
        let _ = server.cli(&["PEXPIRE", name, "60000"]);
        for command in COMMANDS.lines() {
            let words = command.split(' ');
            let args = words.map(|word| if word == "NAME" { name } else { word });
            let args: Vec<&str> = args.collect();
            let shown = shown(&server, &args);
            assert!(!shown.contains("panicked"), "{args:?}: {shown}");
        }
    }
}

#[test]
fn json_has_the_name_as_it_is() {
    let server = RedisServer::start();
    let _ = server.cli(&["HSET", HOSTILE, OWNER, "1"]);
    let line = json(&output(&server, &["status", HOSTILE, "--json"]).stdout);
    assert_eq!(line["name"], HOSTILE);
    assert_eq!(line["holder"]["owner"], OWNER);
    let line = json(&output(&server, &["inspect", HOSTILE, "--json"]).stdout);
    assert_eq!(line["name"], HOSTILE);
}

#[test]
fn a_holder_and_a_waiter_of_a_hostile_name_show_it_escaped() {
    let server = RedisServer::start();
    let (told_holder, told_waiter) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
    let start = |told: &NamedTempFile, script: &str| {
        let label = "--label=\x1b[31m";
        let args = ["run", HOSTILE, label, "--verbose", "--", "sh", "-c", script];
        Process::spawn(with(&server, &args).stderr(told.reopen().unwrap()))
    };
    let told = |file: &NamedTempFile| std::fs::read_to_string(file.path()).unwrap();
    let mut holder = start(&told_holder, HOLD);
    holder.wait_for_line(|line| line == "ready", SOON);
    let mut waiter = start(&told_waiter, HOLD);
    eventually_blocking("it says what it waits for", || {
        told(&told_waiter).contains("waiting for")
    });
    for args in [
        &["status", HOSTILE][..],
        &["ask", HOSTILE, "--reason", "\u{202e}now"],
        &["watch", HOSTILE, "--count", "1"],
        &["force-release", HOSTILE, "--yes"],
    ] {
        let _ = shown(&server, args);
    }
    waiter.wait_for_line(|line| line == "ready", SOON);
    eventually_blocking("it says that it was lost", || {
        told(&told_holder).contains("lost")
    });
    for file in [&told_holder, &told_waiter] {
        let lines = told(file);
        assert_harmless(&["run"], &lines);
        assert!(lines.contains("job\\u{1b}[2J\\nFORGED"), "{lines}");
    }
}

//! Asking for a lock, and what `run` does then.

use stanchion_testkit::{Process, RedisServer, eventually_blocking};

use crate::support::*;

/// Asks until the holder has heard it: it listens when it has held for a moment. Returns what was said.
fn asked(server: &RedisServer, reason: &str) -> String {
    let mut said = String::new();
    eventually_blocking("the holder hears it", || {
        let output = output(server, &["ask", "job", "--reason", reason]);
        said = text(&output.stdout);
        output.status.code() == Some(0)
    });
    said
}

#[test]
fn run_reports_a_release_request_and_continues() {
    let server = RedisServer::start();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut run = with(&server, &["run", "job", "--", "cat"]);
    let _holder = Process::spawn(run.stderr(log.reopen().unwrap()));
    eventually_blocking("it holds", || is_held(&server, "job"));
    assert_eq!(asked(&server, "a fix"), "job: the holder was asked\n");
    let told = || std::fs::read_to_string(log.path()).unwrap();
    let wanted = "stanchion: release of job requested: a fix\n";
    eventually_blocking("it says so", || told() == wanted);
    assert!(is_held(&server, "job"));
}

#[test]
fn run_stops_its_command_on_request_if_configured() {
    let server = RedisServer::start();
    let script = "trap 'echo stopped; exit 5' TERM; echo ready; idle";
    let mut holder = start_script(&server, &["job", "--on-request", "term"], script);
    assert_eq!(asked(&server, ""), "job: the holder was asked\n");
    holder.wait_for_line(|line| line == "stopped", SOON);
    assert_eq!(holder.wait(SOON).code(), Some(5));
    assert!(!is_held(&server, "job"));
}

#[test]
fn ask_names_the_holders_that_it_did_not_reach() {
    let server = RedisServer::start();
    let free = output(&server, &["ask", "job"]);
    assert_eq!(free.status.code(), Some(1));
    assert_eq!(text(&free.stdout), "job: is free\n");
    // Redisson's.
    let java = "7c9e6679-7425-40de-944b-e07fc1f90ae7:42";
    let _ = server.cli(&["HSET", "job", java, "1"]);
    let unheard = output(&server, &["ask", "job", "--json"]);
    assert_eq!(unheard.status.code(), Some(1));
    let line = json(&unheard.stdout);
    assert_eq!((&line["holders"], &line["heard"]), (&1.into(), &0.into()));
    let long = "x".repeat(201);
    assert_eq!(code(&server, &["ask", "job", "--reason", &long]), Some(78));
    let _ = server.cli(&["SET", "number", "3"]);
    assert_eq!(code(&server, &["ask", "number"]), Some(78));
}

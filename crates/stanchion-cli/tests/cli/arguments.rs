//! Arguments that no server takes, and where options may be.

use stanchion_testkit::RedisServer;

use crate::support::*;

#[test]
fn bad_arguments_exit_with_2() {
    let server = RedisServer::start();
    let long = "x".repeat(5000);
    for args in [
        &["run", "", "--", "true"][..],
        &["hold", "", "--for", "1m"],
        &["lead", "", "--", "true"],
        &["status", ""],
        &["watch", ""],
        &["inspect", ""],
        &["force-release", "", "--yes"],
        &["ask", ""],
        &["permits", "", "set", "2"],
        &["limit", "", "--rate", "1/s"],
        &["barrier", "", "--parties", "2"],
        &["leader", ""],
        &["release", "garbage"],
        &["lead", "job", "--value", &long, "--", "true"],
        &["lead", "job", "--forever", "--wait", "1s", "--", "true"],
        &["hold", "job", "--for", "100d"],
        &["run", "job", "--lease", "1ms", "--", "true"],
    ] {
        let done = output(&server, args);
        assert_eq!(
            done.status.code(),
            Some(2),
            "{args:?}: {}",
            text(&done.stderr)
        );
    }
}

#[test]
fn a_url_may_come_before_the_command() {
    let server = RedisServer::start();
    let url = server.url();
    for args in [
        &["--url", &url, "run", "job", "--", "true"][..],
        &["run", "--url", &url, "job", "--", "true"],
        &[&*format!("--url={url}"), "--prefix", "p:", "status", "job"],
    ] {
        let done = stanchion(args).output().unwrap();
        assert_eq!(
            done.status.code(),
            Some(0),
            "{args:?}: {}",
            text(&done.stderr)
        );
    }
    let refused = stanchion(&["--url", &url, "completions", "bash"]).output();
    assert_eq!(refused.unwrap().status.code(), Some(2), "it has no server");
}

#[test]
fn a_candidate_waits_as_long_as_it_is_told() {
    let server = RedisServer::start();
    let leader = ["lead", "indexer", "--", "sh", "-c", "echo ready; cat"];
    let mut leader = stanchion_testkit::Process::spawn(&mut with(&server, &leader));
    leader.wait_for_line(|line| line == "ready", SOON);
    for (wait, code) in [("0", "75"), ("200ms", "7")] {
        let options = ["lead", "indexer", "--wait", wait, "-E", code];
        let done = output(&server, &[&options[..], &["--", "true"]].concat());
        assert_eq!(done.status.code(), code.parse().ok(), "{wait}");
        assert!(text(&done.stderr).contains("somebody else leads indexer"));
    }
}

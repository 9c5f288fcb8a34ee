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
        assert!(text(&done.stderr).contains("another candidate leads indexer"));
    }
}

/// Each message says what happened and what to do, on one line.
#[test]
fn messages_help() {
    let server = RedisServer::start();
    let _ = server.cli(&["SET", "page", "text"]);
    let user = [
        "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-evalsha",
    ];
    let _ = server.cli(&user);
    let app = server.url().replace("redis://", "redis://app:pw@");
    let durations =
        "a duration is a number of seconds, or a text such as 90s, 5m, 1h30m, or `forever`";
    for (args, message) in [
        (
            &["status", "page"][..],
            "stanchion: page: rejected: the key holds another kind of value and was left untouched: \
             WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            &["run", "job", "--wait", "soon", "--", "true"],
            &format!("error: invalid value 'soon' for '--wait <DURATION>': {durations}"),
        ),
        (
            &["barrier", "step", "--parties", "3", "--wait", "0"],
            "stanchion: not all 3 parties of step have come",
        ),
        (
            &["run", "job", "--url", &app, "--", "true"],
            "stanchion: rejected while acquiring job: not permitted: NOPERM this user has no permissions to \
             run the 'evalsha' command; `stanchion doctor` shows which rights are missing, and the line that grants them",
        ),
    ] {
        let told = text(&output(&server, args).stderr);
        let told = told.lines().next().unwrap();
        // Redis 6 and Valkey say the same in other words.
        let same = |text: &str| text.replace(" or its subcommand", "");
        assert_eq!(same(told), message, "{args:?}");
    }
}

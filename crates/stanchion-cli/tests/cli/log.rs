//! The log at each level, and the additions of `--verbose`.

use stanchion_testkit::RedisServer;

use crate::support::{output, stanchion, text, with};

#[test]
fn verbose_logs_the_steps_of_a_healthy_run() {
    let server = RedisServer::start();
    let ran = output(&server, &["run", "job", "--verbose", "--", "true"]);
    let told = text(&ran.stderr);
    for step in [
        "connected to a server of version",
        "acquired job after",
        "fencing token",
        "starting the command",
        "released",
    ] {
        assert!(told.contains(step), "{step} in: {told}");
    }
    assert_eq!(
        text(&output(&server, &["run", "job", "--", "true"]).stderr),
        ""
    );
}

#[test]
fn the_log_of_a_healthy_run_shows_its_operations() {
    let server = RedisServer::start();
    let log = |filter: &str| {
        let ran = with(&server, &["run", "job", "--", "true"])
            .env("STANCHION_LOG", filter)
            .output();
        text(&ran.unwrap().stderr)
    };
    let debug = log("debug");
    for what in ["acquire", "release", "acquired job after"] {
        assert!(debug.contains(what), "{what} in: {debug}");
    }
    assert_eq!(log("warn"), "");
}

#[test]
fn a_filter_that_is_none_is_refused() {
    let server = RedisServer::start();
    for filter in ["debgu", "a=b=c", "stanchion_core=loud"] {
        let ran = with(&server, &["run", "job", "--", "true"])
            .env("STANCHION_LOG", filter)
            .output();
        let ran = ran.unwrap();
        let told = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{filter}: {told}");
        assert!(
            told.contains("STANCHION_LOG") && told.contains(filter),
            "{told}"
        );
    }
    assert_eq!(
        stanchion(&["--version"])
            .env("STANCHION_LOG", "debgu")
            .status()
            .unwrap()
            .code(),
        Some(0)
    );
}

//! `stanchion limit`, and what `status` tells of a rate limiter.

use stanchion_testkit::RedisServer;

use crate::support::{code, json, output, text};

#[test]
fn a_command_runs_at_the_rate_and_ends_as_itself() {
    let server = RedisServer::start();
    let limited = |more: &[&str]| {
        let mut args = vec!["limit", "api", "--rate", "2/h"];
        args.extend(more);
        output(&server, &args)
    };
    let first = limited(&["--", "sh", "-c", "echo $0; exit 7"]);
    assert_eq!(
        (first.status.code(), &*text(&first.stdout)),
        (Some(7), "sh\n")
    );
    assert_eq!(limited(&[]).status.code(), Some(0));
    // Told at once, although it would wait for ten minutes.
    for wait in ["0", "10m"] {
        let third = limited(&["--wait", wait, "--", "echo", "ran"]);
        assert_eq!((third.status.code(), &*text(&third.stdout)), (Some(75), ""));
        let said = text(&third.stderr);
        assert!(
            said.starts_with("stanchion: api: limited: 0 of 2 permits left, try again in 59m"),
            "{said}"
        );
    }
    let line = json(&limited(&["--wait", "0", "--json"]).stdout);
    assert_eq!(
        (&line["granted"], &line["limit"]),
        (&false.into(), &2.into())
    );
    assert!(
        line["retry_after_ms"].as_u64().unwrap() > 3_500_000,
        "{line}"
    );
    let shown = text(&output(&server, &["status", "api"]).stdout);
    assert!(
        shown.starts_with("api: 0 of 2/h free\n  next        in 59m"),
        "{shown}"
    );
    let status = json(&output(&server, &["status", "api", "--json"]).stdout);
    assert_eq!(
        (&status["kind"], &status["quota"]),
        (&"rate-limiter".into(), &"2/h".into())
    );
    assert_eq!(code(&server, &["status", "api", "--check"]), Some(1));
    assert_eq!(limited(&["--permits", "3"]).status.code(), Some(78));
}

#[test]
fn another_rate_gets_a_warning_and_is_set_with_an_option() {
    let server = RedisServer::start();
    assert_eq!(code(&server, &["limit", "api", "--rate", "2/h"]), Some(0));
    let other = ["limit", "api", "--rate", "100/h", "--wait", "0"];
    let warned = output(&server, &other);
    assert_eq!(warned.status.code(), Some(0));
    let said = text(&warned.stderr);
    assert!(
        said.contains("keeps its stored quota, 2/h, and not 100/h") && said.contains("limit --set"),
        "{said}"
    );
    assert_eq!(code(&server, &other), Some(75));

    let set = ["limit", "api", "--rate", "100/h", "--set"];
    assert_eq!(
        text(&output(&server, &set).stdout),
        "api: 100/h; it was 2/h\n"
    );
    let quiet = output(&server, &other);
    assert_eq!((quiet.status.code(), &*text(&quiet.stderr)), (Some(0), ""));
    let status = json(&output(&server, &["status", "api", "--json"]).stdout);
    assert_eq!(
        (&status["quota"], &status["free"]),
        (&"100/h".into(), &97.into()),
        "the permits in use count: {status}"
    );
    let line = ["limit", "new", "--rate", "1/s", "--set", "--json"];
    let line = json(&output(&server, &line).stdout);
    assert_eq!(
        (&line["rate"], &line["before"]),
        (&"1/s".into(), &serde_json::Value::Null)
    );
    for odd in [
        &["--burst", "2"][..],
        &["--permits", "2"],
        &["--wait", "0"],
        &["true"],
    ] {
        let mut args = set.to_vec();
        args.extend(odd);
        assert_eq!(code(&server, &args), Some(2), "{odd:?}");
    }
}

#[test]
fn a_bucket_has_a_burst() {
    let server = RedisServer::start();
    let args = [
        "limit", "user", "--rate", "1/h", "--burst", "2", "--wait", "0", "--json",
    ];
    let taken: Vec<bool> = (0..3)
        .map(|_| {
            json(&output(&server, &args).stdout)["granted"]
                .as_bool()
                .unwrap()
        })
        .collect();
    assert_eq!(taken, [true, true, false]);
    assert_eq!(server.keys(), ["stanchion_bucket:{user}"]);
}

#[test]
fn invalid_limits_are_refused_before_any_request() {
    let server = RedisServer::start();
    for args in [
        &["limit", "api"][..],
        &["limit", "api", "--rate", "ten"],
        &["limit", "api", "--rate", "0/s"],
        &["limit", "api", "--rate", "1/s", "--permits", "0"],
        &["limit", "api", "--rate", "1/s", "--wait", "soon"],
    ] {
        assert_eq!(code(&server, args), Some(2), "{args:?}");
    }
    let missing = ["limit", "api", "--rate", "9/s", "--", "/no/such/command"];
    assert_eq!(code(&server, &missing), Some(127));
}

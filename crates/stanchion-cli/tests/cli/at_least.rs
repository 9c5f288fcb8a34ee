//! `--at-least`: a quick job on machines whose clocks differ runs once.

use stanchion_testkit::{RedisServer, eventually_blocking};

use crate::support::{SOON, code, is_held, output, start_script, text};

const NIGHTLY: [&str; 13] = [
    "run",
    "nightly",
    "--wait",
    "0",
    "-E",
    "0",
    "--lease",
    "1s",
    "--at-least",
    "2s",
    "--",
    "echo",
    "ran",
];

#[test]
fn a_machine_whose_clock_is_late_skips_the_job() {
    let server = RedisServer::start();
    let first = output(&server, &NIGHTLY);
    assert_eq!(
        (first.status.code(), text(&first.stdout)),
        (Some(0), "ran\n".into())
    );
    assert!(is_held(&server, "nightly"));
    let late = output(&server, &NIGHTLY);
    assert_eq!(
        (late.status.code(), text(&late.stdout)),
        (Some(0), String::new())
    );
    let left = server.cli(&["PTTL", "nightly"]).as_int();
    assert!((1..=2_000).contains(&left), "{left}");
    eventually_blocking("the lease ends it", || !is_held(&server, "nightly"));
    assert_eq!(text(&output(&server, &NIGHTLY).stdout), "ran\n");
}

#[test]
fn a_killed_run_keeps_the_name_as_long() {
    let server = RedisServer::start();
    let options = ["nightly", "--lease", "1s", "--at-least", "1m"];
    let mut run = start_script(&server, &options, "echo ready; idle");
    run.signal(stanchion_testkit::Signal::Kill);
    run.wait(SOON);
    let left = server.cli(&["PTTL", "nightly"]).as_int();
    assert!(left > 30_000, "{left}");
}

#[test]
fn a_job_that_took_longer_frees_the_name_at_once() {
    let server = RedisServer::start();
    let args = [
        "run",
        "nightly",
        "--lease",
        "2s",
        "--at-least",
        "2200ms",
        "--",
        "sleep",
        "2.5",
    ];
    assert_eq!(code(&server, &args), Some(0));
    assert!(!is_held(&server, "nightly"));
}

#[test]
fn it_is_for_every_kind() {
    let server = RedisServer::start();
    for kind in ["--fair", "--write", "--permits=1"] {
        let name = kind.trim_start_matches('-');
        let args = |wait| {
            [
                "run",
                name,
                kind,
                "--wait",
                wait,
                "--lease",
                "1s",
                "--at-least",
                "2s",
                "--",
                "true",
            ]
        };
        assert_eq!(code(&server, &args("0")), Some(0), "{kind}");
        assert_eq!(code(&server, &args("0")), Some(75), "{kind}");
        assert_eq!(code(&server, &args("20s")), Some(0), "{kind}");
    }
}

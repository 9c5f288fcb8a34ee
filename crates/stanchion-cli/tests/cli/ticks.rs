//! `--tick`, `--every`: one run for each moment of a schedule, on one machine of many.

use stanchion_testkit::{RedisServer, Signal, eventually_blocking};

use crate::support::{SOON, code, is_held, json, output, start_script, text};

/// The server's clock, in seconds.
fn now(server: &RedisServer) -> u64 {
    let time = server.cli(&["TIME"]);
    time.as_array()[0].as_text().parse().unwrap()
}

fn nightly<'a>(tick: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run", "nightly", "--tick", tick];
    args.extend(more);
    args.extend(["--", "sh", "-c", "echo ran $STANCHION_TICK"]);
    args
}

#[test]
fn the_second_machine_reports_the_earlier_run() {
    let server = RedisServer::start();
    let tick = (now(&server) - 60).to_string();
    let first = output(&server, &nightly(&tick, &[]));
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let ran = text(&first.stdout);
    assert!(ran.starts_with("ran 20") && ran.ends_with("Z\n"), "{ran}");
    assert!(!is_held(&server, "nightly"));

    let second = output(&server, &nightly(&tick, &[]));
    assert_eq!(
        (second.status.code(), text(&second.stdout)),
        (Some(75), String::new())
    );
    let told = text(&second.stderr);
    assert!(told.contains("nightly has been run for 20"), "{told}");
    assert_eq!(code(&server, &nightly(&tick, &["-E", "0"])), Some(0));

    let second = json(&output(&server, &nightly(&tick, &["--json"])).stderr);
    assert_eq!(
        (&second["outcome"], &second["exit_code"]),
        (&"already_ran".into(), &75.into())
    );

    // The same moment, written otherwise, and the next one.
    let written = ran.trim().trim_start_matches("ran ");
    assert_eq!(code(&server, &nightly(written, &[])), Some(75));
    let next = (now(&server) - 59).to_string();
    assert_eq!(code(&server, &nightly(&next, &[])), Some(0));
    assert_eq!(code(&server, &nightly(&tick, &[])), Some(75));
}

/// Hosts with the same line of cron, one after the other, each when the run before is over: the flagship example of the README.
#[test]
fn hosts_one_after_the_other_run_once_in_a_period() {
    let server = RedisServer::start();
    let args = [
        "run", "nightly", "--every", "28d", "-E", "0", "--", "echo", "ran",
    ];
    let first = output(&server, &args);
    assert_eq!(text(&first.stdout), "ran\n", "{}", text(&first.stderr));
    for _ in 0..2 {
        let late = output(&server, &args);
        assert_eq!(
            (late.status.code(), text(&late.stdout)),
            (Some(0), String::new())
        );
    }
}

/// The due time in the zone is the tick, whatever the moment of this test.
#[test]
fn the_tick_is_the_due_time_in_the_zone() {
    let server = RedisServer::start();
    for (name, options, due) in [
        (
            "utc",
            &["--every", "1d", "--at", "00:00", "--zone", "UTC"][..],
            "T00:00:00Z",
        ),
        (
            "kathmandu",
            &[
                "--every",
                "24h",
                "--at",
                "00:00",
                "--zone",
                "Asia/Kathmandu",
            ],
            "T18:15:00Z",
        ),
        (
            "cron",
            &["--cron", "15 0 * * *", "--zone", "UTC"],
            "T00:15:00Z",
        ),
    ] {
        let mut args = vec!["run", name];
        args.extend(options);
        args.extend(["-E", "0", "--", "sh", "-c", "echo ran $STANCHION_TICK"]);
        let first = output(&server, &args);
        let (ran, said) = (text(&first.stdout), text(&first.stderr));
        assert_eq!(first.status.code(), Some(0), "{said}");
        assert!(
            ran.starts_with("ran 20") && ran.trim().ends_with(due),
            "{ran} {said}"
        );
        assert!(said.is_empty(), "{said}");
        let second = output(&server, &args);
        assert_eq!(
            (second.status.code(), text(&second.stdout)),
            (Some(0), String::new())
        );
    }
}

/// The edge of two periods of 90 minutes is within an hour, whatever the moment of this test.
#[test]
fn a_timer_near_an_edge_of_two_periods_gets_a_warning() {
    let server = RedisServer::start();
    let said = |period: &str| {
        let args = ["run", period, "--every", period, "--", "true"];
        text(&output(&server, &args).stderr)
    };
    let near = said("90m");
    assert!(
        near.contains("from the edge of two periods of 1h 30m in UTC"),
        "{near}"
    );
    assert!(near.contains("name its due time and its zone"), "{near}");
    assert_eq!(said("5s"), "");
}

/// Killed in mid-run, `run` leaves a tick that has run as far as it came. The next one waits for nothing but the lease.
#[test]
fn a_tick_whose_runner_was_killed_is_not_run_again() {
    let server = RedisServer::start();
    let tick = (now(&server) - 60).to_string();
    let options = ["nightly", "--tick", &tick, "--lease", "2s"];
    let mut run = start_script(&server, &options, "echo ready; idle");
    let overlap = output(&server, &nightly(&tick, &[]));
    assert_eq!(overlap.status.code(), Some(75));
    assert!(
        text(&overlap.stderr).contains("nightly is held by"),
        "{}",
        text(&overlap.stderr)
    );
    run.signal(Signal::Kill);
    run.wait(SOON);
    eventually_blocking("the lease ends it", || !is_held(&server, "nightly"));
    let again = output(&server, &nightly(&tick, &[]));
    assert_eq!(
        (again.status.code(), text(&again.stdout)),
        (Some(75), String::new())
    );
    assert!(
        text(&again.stderr).contains("has been run"),
        "{}",
        text(&again.stderr)
    );
    let next = (now(&server) - 59).to_string();
    assert_eq!(code(&server, &nightly(&next, &[])), Some(0));
}

#[test]
fn a_quick_run_rests_for_exactly_its_least_time() {
    let server = RedisServer::start();
    let args = [
        "run",
        "nightly",
        "--wait",
        "0",
        "--at-least",
        "3s",
        "--",
        "true",
    ];
    assert_eq!(code(&server, &args), Some(0));
    // The lease is 30 s.
    let left = server.cli(&["PTTL", "nightly"]).as_int();
    assert!((1..=3_000).contains(&left), "{left}");
    let rests = output(&server, &args);
    assert_eq!(rests.status.code(), Some(75));
    assert!(
        text(&rests.stderr).contains("nightly has run, and rests for"),
        "{}",
        text(&rests.stderr)
    );
    eventually_blocking("the rest ends", || !is_held(&server, "nightly"));
    assert_eq!(code(&server, &args), Some(0));
}

#[test]
fn an_invalid_moment_is_refused() {
    let server = RedisServer::start();
    let ahead = (now(&server) + 7_200).to_string();
    let old = (now(&server) - 8 * 86_400).to_string();
    for (options, exit, message) in [
        (&["--tick", "soon"][..], 2, "RFC 3339"),
        (&["--tick", "2026-11-23"], 2, "RFC 3339"),
        (&["--every", "0s"], 2, "a period is 1s to 28d"),
        (&["--every", "1month"], 2, "use --cron"),
        (&["--every", "*/5 * * * *"], 2, "use --cron"),
        (&["--every", "1d", "--at", "03:00"], 2, "--zone"),
        (
            &["--every", "1d", "--at", "3:00", "--zone", "UTC"],
            2,
            "a time of the day",
        ),
        (
            &["--every", "1d", "--at", "03:00", "--zone", "Berlin"],
            2,
            "time zone database",
        ),
        (
            &["--every", "7d", "--at", "03:00", "--zone", "UTC"],
            2,
            "use --cron",
        ),
        (&["--every", "1h", "--zone", "UTC"], 2, "--zone is for"),
        (&["--at", "03:00", "--zone", "UTC"], 2, "--every"),
        (&["--cron", "0 3 1 * *"], 2, "--zone"),
        (&["--cron", "@daily", "--zone", "UTC"], 2, "five fields"),
        (
            &["--cron", "0 3 1 * *", "--zone", "UTC", "--every", "1h"],
            2,
            "cannot be used with",
        ),
        (&["--every", "1h", "--tick", "0"], 2, "cannot be used with"),
        (&["--every", "1h", "--fair"], 2, "cannot be used with"),
        (&["--tick", &ahead], 78, "ahead of the server's clock"),
        (&["--tick", &old], 78, "older than"),
    ] {
        let mut args = vec!["run", "nightly"];
        args.extend(options);
        args.extend(["--", "echo", "ran"]);
        let refused = output(&server, &args);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(exit), "{options:?}: {told}");
        assert!(told.contains(message), "{options:?}: {told}");
        assert!(refused.stdout.is_empty());
    }
    let left = server.keys();
    assert!(!left.iter().any(|key| key.contains("nightly")), "{left:?}");
}

/// It does not wait for the server either, unless it is told to: jobs of an outage must not pile up.
#[test]
fn without_a_server_it_ends_at_once() {
    let mut server = RedisServer::start();
    let tick = now(&server).to_string();
    server.kill();
    assert_eq!(code(&server, &nightly(&tick, &[])), Some(69));
}

#[test]
fn a_job_at_rest_is_shown_as_such() {
    let server = RedisServer::start();
    let args = [
        "run",
        "nightly",
        "--wait",
        "0",
        "--at-least",
        "1h",
        "--",
        "true",
    ];
    assert_eq!(code(&server, &args), Some(0));
    let status = text(&output(&server, &["status", "nightly"]).stdout);
    assert!(
        status.starts_with("nightly: at rest after a run of a job: nobody holds it\n"),
        "{status}"
    );
    let listed = text(&output(&server, &["ls", "--scan"]).stdout);
    assert!(
        listed.contains("at rest") && !listed.contains("not seen"),
        "{listed}"
    );
}

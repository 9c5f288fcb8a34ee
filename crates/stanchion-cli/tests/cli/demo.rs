//! `demo`: no overlaps, on the engine and on a real server.

use stanchion_testkit::{Process, RedisServer, Signal};

use crate::support::{SOON, json, stanchion, text};

#[test]
fn the_engine_shows_no_overlap() {
    let demo = stanchion(&["demo", "--seconds", "1", "--plain"])
        .output()
        .unwrap();
    let shown = text(&demo.stdout);
    assert_eq!(demo.status.code(), Some(0), "{shown}");
    assert!(
        shown.starts_with(
            "12 workers contend for 1 lock on memory://demo\neach holds for up to 3 ms and rests for up to 3 ms\n"
        ),
        "{shown}"
    );
    let row = |label: &str| {
        let line = shown
            .lines()
            .find(|line| line.trim_start().starts_with(label));
        let value = line.and_then(|line| line.split_whitespace().last());
        value
            .unwrap_or_else(|| panic!("{label}: {shown}"))
            .to_owned()
    };
    assert_eq!(row("overlaps"), "0");
    assert_ne!(row("grants"), "0");
    assert!(row("commands per grant").parse::<f64>().unwrap() > 0.0);
    assert!(!shown.contains('\x1b'), "colour without a terminal");
}

#[test]
fn a_real_server_shows_no_overlap() {
    let server = RedisServer::start();
    let url = server.url();
    let args = [
        "demo",
        "--seconds",
        "1",
        "--workers",
        "7",
        "--names",
        "2",
        "--json",
        "--url",
        &url,
    ];
    let demo = stanchion(&args).output().unwrap();
    let line = json(&demo.stdout);
    assert_eq!(demo.status.code(), Some(0), "{line}");
    assert_eq!(
        (&line["workers"], &line["clients"], &line["names"]),
        (&7.into(), &3.into(), &2.into())
    );
    for never in ["overlaps", "stale_tokens", "lost_leases", "errors"] {
        assert_eq!(line[never], 0, "{never}: {line}");
    }
    let grants = line["grants"].as_u64().unwrap();
    let passed = ["grants_after_same_client", "grants_after_other_client"]
        .map(|k| line[k].as_u64().unwrap());
    assert!(grants > 0 && passed[1] > 0, "{line}");
    assert_eq!(
        grants,
        passed[0] + passed[1] + 2,
        "the first grant of each lock has none before it"
    );
    let left = server.keys();
    assert!(
        left.iter().all(|key| key.starts_with("stanchion_fence:")),
        "{left:?}"
    );
}

#[test]
fn no_member_of_the_family_shows_what_must_not_be() {
    let args = [
        "demo",
        "--primitive",
        "all",
        "--seconds",
        "21",
        "--json",
        "--workers",
        "9",
    ];
    let demo = stanchion(&args).output().unwrap();
    let shown = text(&demo.stdout);
    assert_eq!(demo.status.code(), Some(0), "{shown}");
    let lines: Vec<serde_json::Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let shown: Vec<_> = lines.iter().map(|line| line["primitive"].clone()).collect();
    let family = [
        "lock",
        "fair",
        "rwlock",
        "semaphore",
        "latch",
        "multilock",
        "redlock",
    ];
    assert_eq!(shown, family);
    for line in &lines {
        assert!(line["grants"].as_u64().unwrap() > 9, "{line}");
        for never in ["overlaps", "stale_tokens", "lost_leases", "errors"] {
            assert_eq!(line[never], 0, "{never}: {line}");
        }
    }
}

#[test]
fn the_demonstrations_leave_a_real_server_as_they_found_it() {
    let server = RedisServer::start();
    for primitive in ["rwlock", "semaphore", "latch"] {
        let url = server.url();
        let args = [
            "demo",
            "--primitive",
            primitive,
            "--seconds",
            "1",
            "--plain",
            "--url",
            &url,
        ];
        let demo = stanchion(&args).output().unwrap();
        let shown = text(&demo.stdout);
        assert_eq!(demo.status.code(), Some(0), "{shown}");
        assert!(shown.contains("overlaps"), "{shown}");
        let left: Vec<_> = server
            .keys()
            .into_iter()
            // The mark of an operation lasts for some seconds.
            .filter(|key| {
                !key.starts_with("stanchion_fence:") && !key.starts_with("stanchion_once:")
            })
            .collect();
        assert!(left.is_empty(), "{primitive}: {left:?}");
    }
}

#[test]
fn an_early_end_still_shows_the_table() {
    for signal in [Signal::Int, Signal::Term] {
        let mut demo = Process::spawn(&mut stanchion(&["demo", "--seconds", "60"]));
        demo.wait_for_line(|line| line.contains("grants/s"), SOON);
        demo.signal(signal);
        assert_eq!(demo.wait(SOON).code(), Some(0));
        demo.wait_for_line(|line| line.trim_start().starts_with("overlaps"), SOON);
    }
}

#[test]
fn an_unreachable_server_is_said_to_be_so() {
    let demo = stanchion(&["demo", "--url", "redis://127.0.0.1:1/"]).output();
    assert_eq!(demo.unwrap().status.code(), Some(69));
}

//! Elections, jobs, rate limiters and token buckets, as every command shows them.

use serde_json::Value;
use stanchion_testkit::{Process, RedisServer, eventually_blocking};

use super::{done, hold_as_java, lines};
use crate::support::{HOLD, IDLE, SOON, code, json, output, start_script, status, text, with};

/// A process that leads `indexer`, or stands for it.
fn campaign(server: &RedisServer, value: &str, priority: &str) -> Process {
    let script = format!("{IDLE}; echo ready; idle");
    let args = ["lead", "indexer", "--value", value, "--priority", priority];
    let command = [&args[..], &["--", "sh", "-c", &script]].concat();
    Process::spawn(&mut with(server, &command))
}

fn leads(server: &RedisServer, value: &str) -> Process {
    let mut leader = campaign(server, value, "0");
    leader.wait_for_line(|line| line == "ready", SOON);
    leader
}

/// A run of a job that goes on.
fn runs(server: &RedisServer) -> Process {
    start_script(server, &["nightly", "--every", "1d"], HOLD)
}

fn scanned(server: &RedisServer, name: &str) -> Value {
    let all = lines(&output(server, &["ls", "--scan", "--all", "--json"]));
    let found = all.into_iter().find(|line| line["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not listed"))
}

fn shown(server: &RedisServer, args: &[&str]) -> String {
    text(&output(server, args).stdout)
}

fn checks(server: &RedisServer) -> Vec<Value> {
    lines(&output(server, &["doctor", "--scan", "--json"]))
}

fn of_check<'a>(findings: &'a [Value], check: &str) -> Vec<&'a Value> {
    let of = findings.iter().filter(|finding| finding["check"] == check);
    of.collect()
}

#[test]
fn an_election_shows_its_leader_and_its_candidates() {
    let server = RedisServer::start();
    assert_eq!(
        shown(&server, &["status", "indexer", "--kind", "election"]),
        "indexer: vacant, there is no such key\n"
    );
    let _leader = leads(&server, "10.0.0.7:9000");
    let _other = campaign(&server, "10.0.0.8:9000", "3");
    eventually_blocking("it is a candidate", || {
        status(&server, "indexer")["waiting_processes"] == 1
    });
    let line = status(&server, "indexer");
    assert_eq!(
        (&line["kind"], &line["held"], &line["leader"]["value"]),
        (&"election".into(), &true.into(), &"10.0.0.7:9000".into())
    );
    assert!(line["last_token"].as_u64().is_some(), "{line}");
    assert_eq!(line["candidates"][0]["priority"], 3);
    let status = shown(&server, &["status", "indexer"]);
    assert!(
        status.starts_with("indexer: led\n  owner       "),
        "{status}"
    );
    assert!(status.contains("  value       10.0.0.7:9000\n"), "{status}");
    assert!(status.contains("  process     sh@"), "{status}");
    let inspected = shown(&server, &["inspect", "indexer"]);
    assert!(
        inspected.contains("priority 3, 10.0.0.8:9000"),
        "{inspected}"
    );
    let listed = scanned(&server, "indexer");
    assert_eq!(
        (&listed["kind"], &listed["waiting"], &listed["trouble"]),
        (&"election".into(), &1.into(), &Value::Array(Vec::new()))
    );
    assert!(listed["held_ms"].as_u64().is_some(), "{listed}");
    let forced = output(&server, &["force-release", "indexer", "--yes", "--json"]);
    assert_eq!(json(&forced.stdout)["released"], true);
}

#[test]
fn a_value_of_control_characters_moves_no_cursor() {
    let server = RedisServer::start();
    let _leader = leads(&server, &format!("\x1b[2J{}", "x".repeat(200)));
    let status = shown(&server, &["status", "indexer"]);
    assert!(!status.contains('\x1b'), "{status:?}");
    assert!(status.contains("(204 bytes)\n"), "{status}");
}

#[test]
fn a_job_shows_its_run_and_when_it_was() {
    let server = RedisServer::start();
    let mut run = runs(&server);
    let line = status(&server, "nightly");
    assert_eq!(
        (&line["kind"], &line["holder"]["activity"]),
        (&"job".into(), &"running".into())
    );
    let tick = line["last_tick"].as_str().unwrap().to_owned();
    let status_of = || shown(&server, &["status", "nightly"]);
    assert!(
        status_of().starts_with("nightly: runs\n"),
        "{}",
        status_of()
    );
    assert_eq!(scanned(&server, "nightly")["kind"], "job");
    assert_eq!(
        scanned(&server, "nightly")["trouble"],
        Value::Array(Vec::new())
    );
    run.close_stdin();
    assert_eq!(run.wait(SOON).code(), Some(0));
    let status = status_of();
    assert!(status.starts_with("nightly: free\n"), "{status}");
    assert!(
        status.contains(&format!("  last tick   {tick}\n")),
        "{status}"
    );
    assert!(status.contains(" ago, took "), "{status}");
    // At rest it is listed on request only.
    assert!(!shown(&server, &["ls", "--scan"]).contains("nightly"));
    assert_eq!(scanned(&server, "nightly")["held"], false);
}

#[test]
fn a_limiter_shows_what_is_free_and_what_is_booked() {
    let server = RedisServer::start();
    let take = ["limit", "api", "--rate", "2/h", "--wait", "0"];
    assert_eq!(code(&server, &take), Some(0));
    let listed = scanned(&server, "api");
    assert_eq!(
        (&listed["kind"], &listed["state"]),
        (&"rate-limiter".into(), &"1 of 2/h free".into())
    );
    assert_eq!(code(&server, &take), Some(0));
    let listed = shown(&server, &["ls", "--scan"]);
    assert!(listed.contains("0 of 2/h free, next in 59m"), "{listed}");
    let inspected = json(&output(&server, &["inspect", "api", "--json"]).stdout);
    assert_eq!(
        (&inspected["facts"]["quota"], &inspected["facts"]["free"]),
        (&"2/h".into(), &0.into())
    );
    let keys = inspected["keys"].as_array().unwrap();
    assert!(
        keys.iter().any(|key| key["key"] == "{api}:permits"),
        "{keys:?}"
    );
    for command in ["force-release", "ask"] {
        let more: &[&str] = if command == "ask" {
            &["--reason", "x"]
        } else {
            &["--yes"]
        };
        let args = [&[command, "api"], more].concat();
        assert_eq!(code(&server, &args), Some(78), "{command}");
    }
}

#[test]
fn a_booking_is_reported_as_a_wait() {
    let server = RedisServer::start();
    let take = ["limit", "api", "--rate", "1/9s"];
    assert_eq!(code(&server, &take), Some(0));
    let mut waiter = Process::spawn(&mut with(&server, &take));
    eventually_blocking("it waits", || {
        let told = lines(&output(&server, &["ls", "--json"]));
        told.iter().any(|line| {
            line["name"] == "api" && line["waiting"] == 1 && line["kind"] == "rate-limiter"
        })
    });
    assert_eq!(waiter.wait(SOON).code(), Some(0));
}

#[test]
fn a_bucket_shows_when_it_is_full_next_to_a_lock() {
    let server = RedisServer::start();
    let take = [
        "limit", "user", "--rate", "1/h", "--burst", "2", "--wait", "0",
    ];
    assert_eq!(code(&server, &take), Some(0));
    let line = status(&server, "user");
    assert_eq!(
        (&line["kind"], &line["limits"]),
        (&"token-bucket".into(), &1.into())
    );
    assert!((1..=3_600_000).contains(&line["full_again_ms"].as_u64().unwrap()));
    // A lock of that name is another thing.
    hold_as_java(&server, "user", "1", "20000");
    assert_eq!(status(&server, "user")["kind"], "lock");
    let listed = scanned(&server, "user");
    assert_eq!(
        (&listed["kind"], &listed["trouble"]),
        (&"lock".into(), &Value::Array(Vec::new()))
    );
}

#[test]
fn two_kinds_of_which_one_is_new_are_found() {
    let server = RedisServer::start();
    let _leader = leads(&server, "a");
    let _waiter = Process::spawn(&mut with(&server, &["run", "indexer", "--", "true"]));
    eventually_blocking("it stands in the line", || {
        server.cli(&["EXISTS", "stanchion_line:{indexer}"]).as_int() == 1
    });
    assert_eq!(code(&server, &["limit", "api", "--rate", "9/h"]), Some(0));
    done(&server, &["HSET", "stanchion_job_last:{api}", "tick", "1"]);
    done(&server, &["PEXPIRE", "stanchion_job_last:{api}", "60000"]);
    let findings = checks(&server);
    let found = of_check(&findings, "two-kinds");
    let all = format!("{found:?}");
    assert_eq!(found.len(), 2, "{all}");
    assert!(all.contains("indexer: used as lock and election"), "{all}");
    assert!(all.contains("api: used as job and limiter"), "{all}");
}

#[test]
fn keys_without_a_ttl_are_reported_with_the_reason() {
    let server = RedisServer::start();
    done(
        &server,
        &[
            "HSET", "java-api", "rate", "5", "interval", "1000", "type", "0",
        ],
    );
    done(&server, &["SET", "stanchion_fence:{@@@A}", "17"]);
    done(&server, &["HSET", "stanchion_candidates:{x}", "u:1", "0 v"]);
    // Somebody's data of the same fields is no limiter.
    done(
        &server,
        &[
            "HSET", "loan", "rate", "5%", "interval", "monthly", "type", "flat",
        ],
    );
    let findings = checks(&server);
    let found = of_check(&findings, "endless");
    let level = |part: &str| {
        let has = |it: &&&Value| it["what"].as_str().unwrap().contains(part);
        let finding = found.iter().find(has);
        finding.unwrap_or_else(|| panic!("{part}: {found:#?}"))["level"].clone()
    };
    assert_eq!(
        level(
            "1 rate limiters made without a keep-alive time, with what was taken of them: java-api"
        ),
        "ok"
    );
    assert_eq!(level("1 counters of fencing tokens"), "ok");
    assert_eq!(level("stanchion_candidates:{x}"), "warn");
    assert_eq!(found.len(), 3, "{found:#?}");
}

#[test]
fn a_limiter_that_java_uses_with_a_wrong_clock_is_found() {
    let server = RedisServer::start();
    assert_eq!(code(&server, &["limit", "api", "--rate", "9/h"]), Some(0));
    let check = || {
        let findings = checks(&server);
        of_check(&findings, "clock-ahead").len()
    };
    assert_eq!(check(), 0, "ours are dated by the server");
    // An entry as Redisson writes it, a minute ahead: 16 bytes of an id, and one permit.
    let script = "local t = redis.call('TIME') \
        return redis.call('ZADD', '{api}:permits', t[1] * 1000 + 60000, string.char(16) .. string.rep('j', 16) .. '\\1\\0\\0\\0')";
    done(&server, &["EVAL", script, "0"]);
    assert_eq!(check(), 1);
}

#[test]
fn tables_of_all_kinds_fit_the_terminal() {
    let server = RedisServer::start();
    let _leader = leads(&server, "10.0.0.7:9000");
    let _other = campaign(&server, &"long ".repeat(40), "3");
    let _run = runs(&server);
    hold_as_java(&server, "java", "88", "20000");
    let take = [
        "limit",
        "partner-api-with-a-long-name",
        "--rate",
        "2/h",
        "--permits",
        "2",
    ];
    assert_eq!(code(&server, &take), Some(0));
    eventually_blocking("it is a candidate", || {
        status(&server, "indexer")["waiting_processes"] == 1
    });
    for columns in [40, 80, 120] {
        for args in [
            &["ls", "--scan"][..],
            &["inspect", "indexer"],
            &["inspect", "nightly"],
            &["inspect", "partner-api-with-a-long-name"],
            &["doctor", "--scan"],
        ] {
            let shown = with(&server, args)
                .env("COLUMNS", columns.to_string())
                .output();
            let shown = text(&shown.unwrap().stdout);
            for line in shown.lines() {
                assert!(
                    line.chars().count() <= columns,
                    "{args:?} {columns}: {line:?}"
                );
            }
        }
    }
}

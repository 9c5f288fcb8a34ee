//! `ls`.

use std::collections::BTreeMap;

use serde_json::Value;
use stanchion_testkit::{Cluster, Process, RedisServer, SentinelSet};

use super::{JAVA, at, command_at, done, hold_as_java, lines, queue_as_java};
use crate::support::{HOLD, output, start_script, text, wait_for_waiters, with};

/// The names that `ls --json` lists, without its summary.
fn listed(lines: &[Value]) -> BTreeMap<String, Value> {
    let names = lines.iter().filter(|line| line["name"].is_string());
    names
        .map(|line| (line["name"].as_str().unwrap().to_owned(), line.clone()))
        .collect()
}

fn ls(server: &RedisServer, args: &[&str]) -> BTreeMap<String, Value> {
    let args = [&["ls", "--scan", "--json"], args].concat();
    listed(&lines(&output(server, &args)))
}

#[test]
fn every_kind_is_listed_with_its_holders_and_waiters() {
    let server = RedisServer::start();
    let _lock = start_script(&server, &["job"], HOLD);
    let _fair = start_script(&server, &["tick", "--fair"], HOLD);
    let _readers = [0, 1].map(|_| start_script(&server, &["catalog", "--read"], HOLD));
    let _permit = start_script(&server, &["thumbs", "--permits=3"], HOLD);
    hold_as_java(&server, "java", "88", "20000");
    let waiter = Process::spawn(&mut with(&server, &["run", "job", "--", "true"]));
    stanchion_testkit::eventually_blocking("the waiter stands in the line", || {
        server.cli(&["ZCARD", "stanchion_line:{job}"]).as_int() == 1
    });
    let seen = ls(&server, &[]);
    let kinds: BTreeMap<&str, &str> = seen
        .iter()
        .map(|(name, line)| (name.as_str(), line["kind"].as_str().unwrap()))
        .collect();
    let expected = [
        ("catalog", "rwlock"),
        ("java", "lock"),
        ("job", "lock"),
        ("thumbs", "leased-semaphore"),
        ("tick", "lock"),
    ];
    assert_eq!(kinds, expected.into_iter().collect());
    assert_eq!(
        (&seen["job"]["waiting"], &seen["catalog"]["holders"]),
        (&1.into(), &2.into())
    );
    assert_eq!(
        (&seen["thumbs"]["holders"], &seen["thumbs"]["permits"]),
        (&1.into(), &3.into())
    );
    assert_eq!(seen["java"]["holder"]["origin"], "redisson");
    assert_eq!(seen["java"]["holder"]["owner"], format!("{JAVA}:88"));
    assert!((1..=20_000).contains(&seen["java"]["lease_ms"].as_u64().unwrap()));
    drop(waiter);
}

#[test]
fn a_scan_reads_only_the_names_that_match() {
    let server = RedisServer::start();
    let fill = "for i = 1, 3000 do \
                redis.call('HSET', 'job:' .. i, '7c9e6679-7425-80de-944b-e07fc1f90ae7:' .. i, 1) \
                redis.call('PEXPIRE', 'job:' .. i, 60000) end";
    let _ = server.cli(&["EVAL", fill, "0"]);
    let _ = server.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(ls(&server, &["job:1??7"]).len(), 100);
    let stats = server.cli(&["INFO", "commandstats"]);
    let read = "cmdstat_hrandfield:calls=100,";
    assert!(stats.as_text().contains(read), "{stats:?}");
    assert_eq!(ls(&server, &[]).len(), 3000);
}

#[test]
fn waiters_of_a_fair_lock_and_of_redisson_are_counted() {
    let server = RedisServer::start();
    hold_as_java(&server, "tick", "1", "20000");
    queue_as_java(&server, "tick", &["2", "3"]);
    hold_as_java(&server, "plain", "1", "20000");
    let mut subscriber = std::process::Command::new("redis-cli");
    subscriber
        .args(["-p", &server.addr().port().to_string()])
        .args(["subscribe", "redisson_lock__channel:{plain}"]);
    let subscriber = Process::spawn(&mut subscriber);
    wait_for_waiters(&server, "plain", 1);
    let seen = ls(&server, &[]);
    drop(subscriber);
    assert_eq!(
        (&seen["tick"]["kind"], &seen["tick"]["waiting"]),
        (&"fair".into(), &2.into())
    );
    assert_eq!(seen["plain"]["waiting"], 1);
}

#[test]
fn patterns_and_prefixes_select() {
    let server = RedisServer::start();
    for name in ["p*:job:1", "p*:job:2", "p*:other", "pq:job:1"] {
        hold_as_java(&server, name, "1", "20000");
    }
    let names = |args: &[&str]| ls(&server, args).into_keys().collect::<Vec<_>>();
    assert_eq!(names(&["*:job:?"]), ["p*:job:1", "p*:job:2", "pq:job:1"]);
    assert_eq!(
        names(&["job:*", "--prefix", "p*:"]),
        ["p*:job:1", "p*:job:2"]
    );
    assert!(names(&["nothing*"]).is_empty());
}

#[test]
fn other_data_is_no_lock_and_odd_names_do_no_harm() {
    let server = RedisServer::start();
    done(&server, &["SET", "counter", "5"]);
    done(&server, &["HSET", "session:1", "user", "7", "mode", "dark"]);
    done(&server, &["ZADD", "board", "1", "a"]);
    done(&server, &["SET", "stanchion_fence:{@@@A}", "17"]);
    hold_as_java(&server, "a\nb\x1b[2J{x}", "1", "20000");
    let shown = text(&output(&server, &["ls", "--scan"]).stdout);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("a\\nb\\u{1b}[2J{x}"), "{shown}");
    assert_eq!(ls(&server, &[]).len(), 1);
}

#[test]
fn invalid_arguments_are_reported() {
    let server = RedisServer::start();
    done(&server, &["HSET", "old", &format!("{JAVA}:7"), "1"]);
    hold_as_java(&server, "both", "1", "20000");
    done(
        &server,
        &[
            "ZADD",
            "{both}:timeout",
            "1999999999999",
            "0123456789abcdef",
        ],
    );
    let seen = ls(&server, &[]);
    assert_eq!(seen["old"]["trouble"][0]["check"], "no-ttl");
    assert!(seen["old"]["lease_ms"].is_null());
    assert_eq!(seen["both"]["trouble"][0]["check"], "two-kinds");
}

#[test]
fn tables_fit_the_terminal() {
    let server = RedisServer::start();
    hold_as_java(&server, &"long-".repeat(30), "12345", "20000");
    done(&server, &["HSET", "old", &format!("{JAVA}:7"), "1"]);
    for columns in [40, 80, 120] {
        let shown = with(&server, &["ls", "--scan"])
            .env("COLUMNS", columns.to_string())
            .output();
        let shown = text(&shown.unwrap().stdout);
        assert!(shown.contains("no TTL"), "{shown}");
        for line in shown.lines() {
            assert!(line.chars().count() <= columns, "{columns}: {line:?}");
        }
        assert!(!shown.contains('\x1b'), "colours in a pipe");
    }
}

#[test]
fn twenty_thousand_names_are_all_listed() {
    let server = RedisServer::start();
    let fill = "for i = 1, 20000 do redis.call('HSET', 'n:' .. i, ARGV[1], 1) redis.call('PEXPIRE', 'n:' .. i, 60000) end";
    done(&server, &["EVAL", fill, "0", &format!("{JAVA}:1")]);
    let seen = lines(&output(
        &server,
        &["ls", "--scan", "--json", "--duty", "50"],
    ));
    let summary = seen.last().unwrap();
    assert_eq!(
        (&summary["complete"], &summary["names"]),
        (&true.into(), &20_000.into())
    );
    assert_eq!(listed(&seen).len(), 20_000);
    let stopped = output(&server, &["ls", "--scan", "--budget", "1ms"]);
    assert!(text(&stopped.stderr).contains("there may be more"));
}

#[test]
fn a_cluster_is_listed_as_a_whole() {
    let Some(cluster) = Cluster::or_skip("a_cluster_is_listed_as_a_whole") else {
        return;
    };
    for i in 0..30 {
        let name = format!("job:{i}");
        hold_as_java(
            cluster.node(cluster.master_of_key(&name)),
            &name,
            "1",
            "60000",
        );
    }
    let seen = lines(&at(&cluster.url(), &["ls", "--scan", "--json"]));
    assert_eq!(listed(&seen).len(), 30);
    let shown = text(&at(&cluster.url(), &["inspect", "job:7"]).stdout);
    assert!(shown.starts_with("job:7: lock, held\n"), "{shown}");
    let pings = lines(&at(&cluster.url(), &["ping", "--json"]));
    assert_eq!(pings.len(), 3);
    let checks = lines(&at(&cluster.url(), &["doctor", "--scan", "--json"]));
    let of = |check: &str| checks.iter().filter(|line| line["check"] == check).count();
    assert_eq!((of("version"), of("rights"), of("messages")), (3, 3, 1));
    assert!(
        checks.iter().all(|line| line["level"] != "fail"),
        "{checks:?}"
    );
}

#[test]
fn sentinels_lead_to_the_master() {
    let Some(set) = SentinelSet::or_skip("sentinels_lead_to_the_master") else {
        return;
    };
    hold_as_java(set.server(set.master()), "job", "1", "60000");
    assert_eq!(
        listed(&lines(&at(&set.url(), &["ls", "--scan", "--json"]))).len(),
        1
    );
    assert_eq!(at(&set.url(), &["ping"]).status.code(), Some(0));
    let checks = lines(&at(&set.url(), &["doctor", "--json"]));
    assert!(
        checks.iter().all(|line| line["level"] != "fail"),
        "{checks:?}"
    );
}

#[test]
fn a_user_with_few_rights_sees_its_own() {
    let server = RedisServer::start();
    let may = "on >pw ~app:* ~*{app:* resetchannels &*{app:* -@all +hello +auth +info +time +evalsha +scan +type +hrandfield +hlen +hget +pttl +ping";
    let rules: Vec<&str> = [
        &["ACL", "SETUSER", "app"],
        may.split(' ').collect::<Vec<_>>().as_slice(),
    ]
    .concat();
    done(&server, &rules);
    hold_as_java(&server, "app:job", "1", "20000");
    hold_as_java(&server, "other:job", "1", "20000");
    let url = server.url().replace("redis://", "redis://app:pw@");
    let seen = listed(&lines(&at(&url, &["ls", "--scan", "--json"])));
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["app:job"]);
    // Without SCAN there is nothing to see, and that is said.
    done(&server, &["ACL", "SETUSER", "app", "-scan"]);
    let refused = command_at(&url, &["ls", "--scan"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(78));
    assert!(
        text(&refused.stderr).contains("scan"),
        "{}",
        text(&refused.stderr)
    );
}

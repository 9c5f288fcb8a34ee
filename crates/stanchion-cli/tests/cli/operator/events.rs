//! `watch`, `bench`, `clients`.

use stanchion_testkit::{Cluster, Process, RedisServer, Signal, eventually_blocking};

use super::{JAVA, command_at, done, hold_as_java, lines};
use crate::home::Home;
use crate::support::{HOLD, SOON, output, start_script, text, with};

#[test]
fn watch_shows_events_as_they_happen() {
    let server = RedisServer::start();
    let args = ["watch", "job", "--every", "10ms", "--json"];
    let mut watch = Process::spawn(&mut with(&server, &args));
    let event = |word: &str| {
        let wanted = format!("\"event\":\"{word}\"");
        move |line: &str| line.contains(&wanted)
    };
    watch.wait_for_line(event("start"), SOON);
    hold_as_java(&server, "job", "1", "20000");
    let acquired = watch.wait_for_line(event("acquired"), SOON);
    assert!(
        acquired.contains(&format!("\"owner\":\"{JAVA}:1\"")),
        "{acquired}"
    );
    let waiter = Process::spawn(&mut with(&server, &["run", "job", "--", "true"]));
    watch.wait_for_line(event("waiting"), SOON);
    done(&server, &["DEL", "job"]);
    watch.wait_for_line(event("released"), SOON);
    drop(waiter);
    watch.signal(Signal::Int);
    assert_eq!(watch.wait(SOON).code(), Some(0));
}

/// The server tells of the writes: nothing here is found by looking again.
#[test]
fn watch_shows_reported_writes_at_once_and_is_no_waiter() {
    let server = RedisServer::start();
    let args = ["watch", "job", "--every", "1h", "--json"];
    let mut watch = Process::spawn(&mut with(&server, &args));
    watch.wait_for_line(|line| line.contains("start"), SOON);
    for thread in ["1", "2", "3"] {
        hold_as_java(&server, "job", thread, "600");
        let owner = format!("{JAVA}:{thread}");
        watch.wait_for_line(
            |line| line.contains("acquired") && line.contains(&owner),
            SOON,
        );
        // Its lease ends.
        watch.wait_for_line(
            |line| line.contains("released") && line.contains(&owner),
            SOON,
        );
    }
    assert_eq!(server.subscribers("redisson_lock__channel:{job}"), 0);
}

#[test]
fn watch_polls_a_server_that_reports_no_writes() {
    let server = RedisServer::start();
    let rules = "on >pw ~* &* +@all -client|tracking";
    let rules: Vec<&str> = ["ACL", "SETUSER", "app"]
        .into_iter()
        .chain(rules.split(' '))
        .collect();
    done(&server, &rules);
    let url = server.url().replace("redis://", "redis://app:pw@");
    let mut watch = Process::spawn(&mut command_at(&url, &["watch", "job", "--json"]));
    watch.wait_for_line(|line| line.contains("start"), SOON);
    hold_as_java(&server, "job", "1", "20000");
    watch.wait_for_line(|line| line.contains("acquired"), SOON);
    let home = Home::new();
    let _server = home.serve(&[]);
    let mut watch = Process::spawn(&mut home.stanchion(&["watch", "job", "--json"]));
    watch.wait_for_line(|line| line.contains("start"), SOON);
    let _holder = home.script(&["job"], HOLD);
    watch.wait_for_line(|line| line.contains("acquired"), SOON);
}

#[test]
fn watch_gets_events_in_a_cluster() {
    let Some(cluster) = Cluster::or_skip("watch_gets_events_in_a_cluster") else {
        return;
    };
    let args = ["watch", "job", "--every", "1h", "--json"];
    let mut watch = Process::spawn(&mut command_at(&cluster.url(), &args));
    watch.wait_for_line(|line| line.contains("start"), SOON);
    let node = cluster.node(cluster.master_of_key("job"));
    hold_as_java(node, "job", "1", "20000");
    watch.wait_for_line(|line| line.contains("acquired"), SOON);
}

#[test]
fn watch_lives_through_an_outage() {
    let mut server = RedisServer::start();
    let args = ["watch", "job", "--every", "10ms", "--json"];
    let mut watch = Process::spawn(&mut with(&server, &args));
    watch.wait_for_line(|line| line.contains("start"), SOON);
    server.kill();
    watch.wait_for_line(|line| line.contains("unreachable"), SOON);
    server.restart();
    watch.wait_for_line(|line| line.contains("\"reachable\""), SOON);
    watch.signal(Signal::Term);
    assert_eq!(watch.wait(SOON).code(), Some(0));
}

#[test]
fn bench_measures_every_part_and_leaves_nothing() {
    let server = RedisServer::start();
    let bench = output(&server, &["bench", "--seconds", "1", "--json"]);
    // Also no warning of the library about a task that waits for itself.
    assert_eq!(text(&bench.stderr), "");
    let parts = lines(&bench);
    let named: Vec<&str> = parts
        .iter()
        .map(|part| part["part"].as_str().unwrap())
        .collect();
    assert_eq!(
        named,
        ["round trip", "uncontended", "hand-off", "in process"]
    );
    for part in &parts {
        assert!(part["per_second"].as_f64().unwrap() > 0.0, "{part}");
        assert!(part["p50_us"].as_u64() <= part["p99_us"].as_u64(), "{part}");
    }
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn bench_that_is_interrupted_leaves_nothing() {
    let server = RedisServer::start();
    let mut bench = Process::spawn(&mut with(&server, &["bench", "--seconds", "8"]));
    eventually_blocking("it holds its lock", || {
        server
            .commands_processed()
            .get("evalsha")
            .is_some_and(|count| *count > 0)
    });
    bench.signal(Signal::Int);
    assert_eq!(bench.wait(SOON).code(), Some(130));
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn clients_are_the_processes_that_hold() {
    let server = RedisServer::start();
    let nobody = output(&server, &["clients"]);
    assert_eq!(
        (nobody.status.code(), text(&nobody.stdout)),
        (Some(0), String::new())
    );
    let _holder = start_script(&server, &["job"], HOLD);
    let seen = lines(&output(&server, &["clients", "--json"]));
    assert_eq!(seen.len(), 1, "{seen:?}");
    // That of the command, without its arguments.
    assert_eq!(seen[0]["app"], "sh");
    let holder = lines(&output(&server, &["ls", "--scan", "--json"]));
    let owner = holder[0]["holder"]["owner"].as_str().unwrap();
    assert!(owner.starts_with(seen[0]["client"].as_str().unwrap()));
    assert_eq!(holder[0]["holder"]["connected"], true);
    // A holder that has died, of a client that names its connections.
    let ended = "11111111-1111-8111-8111-111111111111:7";
    done(&server, &["HSET", "gone", ended, "1"]);
    done(&server, &["PEXPIRE", "gone", "20000"]);
    let seen = lines(&output(&server, &["ls", "--scan", "gone", "--json"]));
    assert_eq!(seen[0]["trouble"][0]["check"], "holder-gone");
}

//! `watch`, `bench`, `clients`.

use stanchion_testkit::{Cluster, Process, RedisServer, Signal, eventually_blocking};

use super::{command_at, done, hold_as_java, lines};
use crate::home::Home;
use crate::support::{HOLD, SOON, output, text, with};

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

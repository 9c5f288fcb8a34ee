//! `watch` in a cluster, and `bench`.

use stanchion_testkit::{Cluster, Process, RedisServer};

use super::{command_at, hold_as_java, lines};
use crate::support::{SOON, output, text};

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

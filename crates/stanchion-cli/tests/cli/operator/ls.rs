//! `ls`.

use std::collections::BTreeMap;

use serde_json::Value;
use stanchion_testkit::{Cluster, SentinelSet};

use super::{at, hold_as_java, lines};
use crate::support::text;

/// The names that `ls --json` lists, without its summary.
fn listed(lines: &[Value]) -> BTreeMap<String, Value> {
    let names = lines.iter().filter(|line| line["name"].is_string());
    names
        .map(|line| (line["name"].as_str().unwrap().to_owned(), line.clone()))
        .collect()
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

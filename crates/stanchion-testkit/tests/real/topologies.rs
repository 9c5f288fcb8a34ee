//! [`SentinelSet`] and [`Cluster`].

use stanchion_testkit::{Cluster, SentinelSet, eventually_blocking};

fn get(server: &stanchion_testkit::RedisServer, key: &str) -> String {
    let value = server.cli(&["GET", key]);
    if value.is_nil() {
        String::new()
    } else {
        value.as_text().to_owned()
    }
}

#[test]
fn sentinels_fail_over_with_and_without_lost_writes() {
    let Some(mut set) = SentinelSet::or_skip("sentinels_fail_over") else {
        return;
    };
    assert_eq!(set.master(), 0);
    assert_eq!(set.url().matches("127.0.0.1").count(), 3);
    assert!(set.url().ends_with(SentinelSet::SERVICE));
    let _ = set.server(0).cli(&["SET", "k", "kept"]);

    let second = set.fail_over();
    assert_ne!(second, 0);
    assert_eq!(get(set.server(second), "k"), "kept");
    set.settle();
    assert!(
        set.server(0).cli(&["SET", "k", "v"]).is_error(),
        "the old master is a replica"
    );

    set.hold_replication();
    let _ = set.server(second).cli(&["SET", "k", "lost"]);
    set.kill(second);
    set.resume_replicas(second);
    let third = set.another_master(second);
    assert_eq!(get(set.server(third), "k"), "kept", "the write is lost");
    set.restart(second);
    eventually_blocking("the killed master comes back as a replica", || {
        set.server(second).info("replication", "role").as_deref() == Some("slave")
    });
}

#[test]
fn a_master_that_sentinels_cannot_see_stays_one() {
    let Some(set) = SentinelSet::or_skip("a_master_that_sentinels_cannot_see") else {
        return;
    };
    set.hide_from_sentinels(0);
    let second = set.another_master(0);
    for number in [0, second] {
        assert!(!set.server(number).cli(&["SET", "k", "v"]).is_error());
    }
}

#[test]
fn a_cluster_moves_slots_step_by_step() {
    let Some(cluster) = Cluster::or_skip("a_cluster_moves_slots") else {
        return;
    };
    assert_eq!(cluster.slot("foo"), 12182);
    let (from, to) = (2, 0);
    assert_eq!(cluster.master_of_key("foo"), from);
    let _ = cluster.node(from).cli(&["SET", "foo", "here"]);
    let migration = cluster.migrate(12182, to);
    assert_eq!(migration.from(), from);
    assert_eq!(migration.keys_left(), ["foo"]);
    assert_eq!(get(cluster.node(from), "foo"), "here");
    let asked = cluster.node(from).cli(&["GET", "{foo}other"]);
    assert!(asked.as_text().starts_with("ASK 12182 "), "{asked}");
    migration.move_key("foo");
    let asked = cluster.node(from).cli(&["GET", "foo"]);
    assert!(asked.as_text().starts_with("ASK 12182 "), "{asked}");
    migration.finish();
    assert_eq!(cluster.master_of(12182), to);
    assert_eq!(get(cluster.node(to), "foo"), "here");
    let moved = cluster.node(from).cli(&["GET", "foo"]);
    assert!(moved.as_text().starts_with("MOVED 12182 "), "{moved}");
    assert_eq!(cluster.keys(), ["foo"]);
}

#[test]
fn a_cluster_fails_over_with_and_without_lost_writes() {
    let Some(mut cluster) = Cluster::or_skip("a_cluster_fails_over") else {
        return;
    };
    let _ = cluster.node(2).cli(&["SET", "foo", "kept"]);
    let second = cluster.fail_over(2);
    assert_eq!(cluster.master_of_key("foo"), second);
    assert_eq!(get(cluster.node(second), "foo"), "kept");
    cluster.settle();
    assert_eq!(cluster.replica_of(second), 2);

    let held = cluster.hold_replication(second);
    let _ = cluster.node(second).cli(&["SET", "foo", "lost"]);
    cluster.kill(second);
    cluster.node(held).cont();
    cluster.take_over(held);
    assert_eq!(cluster.master_of_key("foo"), held);
    assert_eq!(get(cluster.node(held), "foo"), "kept", "the write is lost");
    cluster.restart(second);
    cluster.settle();
    assert_eq!(cluster.replica_of(held), second);

    // The nodes do it by themselves, too.
    cluster.kill(held);
    assert_eq!(cluster.master_of_key("foo"), second);
}

//! Tests of jobs on real servers: Sentinel failovers, clusters and ACL rights. The claim of a tick must move with the lock.

use stanchion::jobs::{Begun, Outcome};
use stanchion::{Client, ClientConfig};
use stanchion_testkit::eventually_async;
use stanchion_tests::{cluster, lease, sentinels, server};

use super::*;

async fn connect(url: String) -> Client {
    let config = ClientConfig::new(url).response_timeout(ms(500));
    Client::connect_with(config).await.unwrap()
}

/// The minute of this machine's clock, on which the servers run.
fn this_minute() -> Tick {
    Tick::every(secs(60)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_with_all_data_does_not_run_a_tick_again() {
    let Some(set) = sentinels() else { return };
    let (one, other) = (connect(set.url()).await, connect(set.url()).await);
    let tick = this_minute();
    let job = nightly(&one).lease(lease(secs(12)));
    // One tick has run, and the next one runs during the failover.
    assert_eq!(
        job.run_tick(tick, |_| async {}).await.unwrap(),
        Outcome::Done(())
    );
    let next = after(tick, ms(1));
    let during = job.run_tick(next, async |_| {
        tokio::task::block_in_place(|| {
            set.settle();
            set.fail_over()
        })
    });
    assert!(matches!(during.await.unwrap(), Outcome::Done(_)));
    for tick in [tick, next] {
        let again = nightly(&other)
            .run_tick(tick, |_| async { panic!("twice") })
            .await
            .unwrap();
        assert!(matches!(again, Outcome::<()>::Already { .. }), "{again:?}");
    }
    let third = nightly(&other)
        .run_tick(after(next, ms(1)), |_| async {})
        .await
        .unwrap();
    assert_eq!(third, Outcome::Done(()));
}

/// As documented: the tick may run again, and the token of the second run is larger. The first run is notified of its loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_loses_the_claim_may_run_the_tick_again_with_a_larger_token() {
    let Some(mut set) = sentinels() else { return };
    let (one, other) = (connect(set.url()).await, connect(set.url()).await);
    let tick = this_minute();
    let lease = lease(secs(12));
    let Begun::Running(kept) = nightly(&one).begin_tick(tick).await.unwrap() else {
        panic!("the tick is claimed already")
    };
    kept.release().await.unwrap();
    tokio::task::block_in_place(|| {
        set.settle();
        set.hold_replication();
    });
    let next = after(tick, ms(1));
    let job = nightly(&one).lease(lease);
    let Begun::Running(first) = job.begin_tick(next).await.unwrap() else {
        panic!("the tick is claimed already")
    };
    set.kill(0);
    set.resume_replicas(0);
    let job = nightly(&other).lease(lease);
    let mut again = None;
    eventually_async("the new master grants the claim", async || {
        if let Ok(Begun::Running(guard)) = job.begin_tick(next).await {
            again = Some(guard);
        }
        again.is_some()
    })
    .await;
    let again = again.unwrap();
    assert!(again.fencing_token() > first.fencing_token(), "P2");
    tokio::time::timeout(secs(30), first.lost()).await.unwrap();
    // Both ticks have run: the first one was replicated, the second one ran on the new master.
    again.release().await.unwrap();
    for tick in [tick, next] {
        let begun = nightly(&one).begin_tick(tick).await.unwrap();
        assert!(matches!(begun, Begun::Already { .. }), "{begun:?}");
    }
}

#[tokio::test]
async fn a_cluster_keeps_a_job_in_one_slot() {
    let Some(cluster) = cluster() else { return };
    let client = connect(cluster.url()).await;
    let tick = this_minute();
    for name in ["nightly", "{t1}:nightly", "a", "b", "c"] {
        let job = Job::new(&client, name).unwrap().at_least(ms(700));
        assert_eq!(
            job.run_tick(tick, |_| async {}).await.unwrap(),
            Outcome::Done(()),
            "{name}"
        );
        assert!(matches!(
            job.begin_tick(after(tick, ms(1))).await.unwrap(),
            Begun::Skipped { .. }
        ));
        let again = job.begin_tick(tick).await.unwrap();
        assert!(matches!(again, Begun::Already { .. }), "{name}: {again:?}");
        eventually_async("the rest is over", async || {
            matches!(
                job.begin_tick(after(tick, ms(2))).await.unwrap(),
                Begun::Running(_)
            )
        })
        .await;
    }
}

/// During the migration the keys of a slot are on two nodes. A run ends when the migration has finished.
#[tokio::test]
async fn a_migrated_slot_keeps_its_ticks() {
    let Some(cluster) = cluster() else { return };
    let (one, other) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let tick = this_minute();
    let Begun::Running(run) = nightly(&one).begin_tick(tick).await.unwrap() else {
        panic!()
    };
    let slot = cluster.slot("nightly");
    let to = (0..3).find(|n| *n != cluster.master_of(slot)).unwrap();
    let moving = cluster.migrate(slot, to);
    moving.move_key("nightly");
    let ending = tokio::spawn(run.release());
    tokio::time::sleep(ms(300)).await;
    moving.move_keys();
    moving.finish();
    ending.await.unwrap().unwrap();
    let again = nightly(&other).begin_tick(tick).await.unwrap();
    assert!(matches!(again, Begun::Already { .. }), "{again:?}");
    let next = nightly(&other)
        .begin_tick(after(tick, ms(1)))
        .await
        .unwrap();
    assert!(matches!(next, Begun::Running(_)), "{next:?}");
}

/// The rights in docs/running/rights.md suffice. Without rights to the record no run begins, and no lock is left.
#[tokio::test]
async fn a_user_without_the_right_to_the_record_begins_nothing() {
    let Some(server) = server() else { return };
    let user = |keys: &[&str]| {
        let mut command = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw", "+@all", "&*"];
        command.extend(keys);
        assert!(!server.cli(&command).is_error());
    };
    let login = async || {
        let config = ClientConfig::new(server.url())
            .username("app".to_owned())
            .password(stanchion::Secret::new("pw"));
        Client::connect_with(config).await.unwrap()
    };
    let tick = this_minute();
    // No right to the record, then a right to read it only.
    for record in [&[][..], &["%R~stanchion_job_last*"]] {
        let mut keys = vec![
            "~nightly",
            "~stanchion_fence:*",
            "~stanchion_line*",
            "~stanchion_wake*",
        ];
        keys.extend(record);
        user(&keys);
        let refused = nightly(&login().await).begin_tick(tick).await.unwrap_err();
        assert!(refused.to_string().contains("not permitted"), "{refused}");
        assert!(
            server.cli(&["EXISTS", "nightly"]).as_int() == 0,
            "{record:?}"
        );
    }
    user(&["~nightly", "~stanchion_fence:*", "~*{nightly}*"]);
    let client = login().await;
    assert_eq!(
        nightly(&client).run_tick(tick, |_| async {}).await.unwrap(),
        Outcome::Done(())
    );
}

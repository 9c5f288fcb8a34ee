//! Tests of the least time: after a short run the job rests, and others skip it, until exactly that time has passed.

use stanchion::embedded::Switch;
use stanchion::jobs::{Activity, Begun, Outcome};
use stanchion::{AcquireOptions, Job};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;
use stanchion_tests::lease;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_rest_ends_exactly_after_the_least_time() {
    for (seconds, worked) in [(30, 0), (30, 9), (1, 9), (600, 3)] {
        let (_world, client) = World::engine().with_client().await;
        let lease = lease(secs(seconds));
        let job = nightly(&client).lease(lease).at_least(secs(10));
        let began = tokio::time::Instant::now();
        let work = async || tokio::time::sleep(secs(worked)).await;
        assert_eq!(job.run(|_| work()).await.unwrap(), Outcome::Done(()));
        while matches!(job.begin().await.unwrap(), Begun::Skipped { .. }) {
            tokio::time::sleep(ms(1)).await;
        }
        let rested = began.elapsed();
        assert!(
            rested >= secs(10) && rested <= ms(10_005),
            "{lease:?} {worked}: {rested:?}"
        );
    }
}

/// The first request reserves the job for the least time, before the process dies; for the first lease of the options if that is longer.
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_keeps_the_job_for_its_least_time() {
    for (least, first) in [(300, None), (100, Some(300)), (300, Some(100))] {
        dies(least, first).await;
    }
}

async fn dies(least: u64, first: Option<u64>) {
    let world = World::engine();
    let (dying, other) = (world.named("dying").await, world.client().await);
    let mut job = nightly(&dying).at_least(secs(least));
    if let Some(first) = first {
        job = job.options(AcquireOptions::new().first_lease(secs(first)));
    }
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    world.faults().freeze(Some("dying"));
    tokio::time::sleep(secs(295)).await;
    let held = nightly(&other).begin().await.unwrap();
    assert!(
        matches!(held, Begun::Skipped { .. }),
        "{least} {first:?}: {held:?}"
    );
    tokio::time::sleep(secs(6)).await;
    assert!(matches!(
        nightly(&other).begin().await.unwrap(),
        Begun::Running(_)
    ));
    assert!(!run.is_held());
}

/// A renewal that is in flight when the run ends must not lengthen the rest. The rest is held under another owner.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_lengthen_the_rest() {
    let (world, client) = World::engine().with_client().await;
    let job = nightly(&client).at_least(secs(5));
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    run.renew().await.unwrap(); // loads the script into the server
    world.faults().hold_requests("EVALSHA", 1);
    drop(tokio::time::timeout(ms(100), run.renew()).await);
    // The client closes the connection after 1 s, and ends the run on another one. The server rejects the renewal after 2 s.
    drop(run);
    eventually_async("the job rests", async || ttl(&world) <= 5_000).await;
    world.faults().deliver();
    tokio::time::sleep(ms(10)).await;
    assert!((1..=5_000).contains(&ttl(&world)), "{}", ttl(&world));
}

#[tokio::test(start_paused = true)]
async fn at_maxmemory_a_run_can_end_but_none_can_begin() {
    let (world, client) = World::engine().with_client().await;
    let job = nightly(&client).at_least(secs(60));
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    world.faults().out_of_memory(Switch::On);
    run.release().await.unwrap();
    assert_eq!(
        job.status().await.unwrap().holder.unwrap().activity,
        Activity::Resting
    );
    let refused = Job::new(&client, "other")
        .unwrap()
        .begin()
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("memory"), "{refused}");
    assert!(
        !world.keys().iter().any(|key| key.contains("other")),
        "{:?}",
        world.keys()
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_option_is_rejected_with_its_value_and_rule() {
    let (world, client) = World::engine().with_client().await;
    let owner = AcquireOptions::new().owner(&client.owner());
    for (job, rule) in [
        (
            nightly(&client).at_least(secs(31 * 86_400)),
            "at_least 1month",
        ),
        (nightly(&client).max_run(ms(1)), "max_hold 1ms"),
        (nightly(&client).options(owner), "an owner of its own"),
    ] {
        let error = job.begin().await.unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
    for time in [ms(10), secs(11 * 365 * 86_400)] {
        let odd = nightly(&client).remember(time);
        let error = odd.begin().await.unwrap_err().to_string();
        assert!(error.contains("remember 1"), "{error}");
        assert!(error.ends_with(": 1s to 10 years"), "{error}");
    }
    assert!(world.keys().is_empty());
}

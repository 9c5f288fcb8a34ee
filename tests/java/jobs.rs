//! A job and a Redisson `RLock` of the same name exclude each other.

use serde_json::json;
use stanchion::Job;
use stanchion::jobs::{Activity, Begun};
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;

/// The record of the last run, which stays.
const RECORD: &str = "stanchion_job_last:{nightly}";

#[tokio::test]
async fn a_job_and_a_java_lock_exclude_each_other() {
    let Some(fleet) = fleet().await else { return };
    let job = Job::new(&fleet.rust().await, "nightly").unwrap();
    let java = fleet.java("java", Kind::Lock, "nightly");
    java.done("lock").await;
    let held = fleet.holder("nightly").unwrap().0;
    let Begun::Skipped { holder, free_by } = job.begin().await.unwrap() else {
        panic!("expected Begun::Skipped");
    };
    assert_eq!((holder.owner, holder.activity), (held, Activity::Running));
    assert!(free_by > Some(LONG / 2) && free_by <= Some(LONG));
    java.done("unlock").await;

    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!("expected Begun::Running");
    };
    assert!(java.done("isLocked").await.bool());
    assert!(!java.done("try").await.bool());
    run.release().await.unwrap();
    assert!(java.done("try").await.bool());
    java.done("unlock").await;
    fleet.at_rest_with(&[RECORD]).await;
}

/// Redisson waits for the TTL that it read during the run, up to a whole lease. A message at the end of the run must wake it.
#[tokio::test]
async fn a_java_waiter_is_granted_after_the_run_and_after_the_rest() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    for least in [ms(0), ms(2_000)] {
        let job = Job::new(&client, "nightly").unwrap().at_least(least);
        let java = fleet.java("java", Kind::Lock, "nightly");
        let Begun::Running(run) = job.begin().await.unwrap() else {
            panic!("expected Begun::Running");
        };
        let waiter = java.start("lock", json!({}));
        fleet.waiting(&channel("nightly"), 1).await;
        run.release().await.unwrap();
        java_granted(waiter, SOON).await;
        java.done("unlock").await;
        fleet.at_rest_with(&[RECORD]).await;
    }
}

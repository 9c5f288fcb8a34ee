//! A Java thread and an owner of this library wait for each other on two fair locks.

use serde_json::json;
use stanchion::survey::{Certainty, InTheWay};
use stanchion::{AcquireError, AcquireOptions, Client, FairLock, FairLockGuard, OnDeadlock};
use stanchion_testkit::eventually;
use stanchion_tests::interop::*;
use stanchion_tests::java::{Kind, Pending};
use tokio::task::JoinHandle;

/// Our owner holds `y` and waits for `x`. The Java thread holds `x` and waits for `y`.
async fn entangled(
    fleet: &Fleet,
    client: &Client,
    options: AcquireOptions,
) -> (
    FairLockGuard,
    JoinHandle<Result<FairLockGuard, AcquireError>>,
    Pending,
) {
    let fair = |name| FairLock::new(client, name).unwrap();
    let owned = AcquireOptions::new().owner(&client.owner());
    let held = fair("y").acquire_with(owned).await.unwrap();
    fleet.java("thread", Kind::Fair, "x").done("lock").await;
    let options = options.owner(held.owner());
    let ours = tokio::spawn(fair("x").acquire_with(options));
    let queued = |name: &str| fleet.int(&["LLEN", &format!("redisson_lock_queue:{{{name}}}")]);
    eventually("our waiter is queued", || queued("x") == 1).await;
    let theirs = fleet
        .java("thread", Kind::Fair, "y")
        .start("lock", json!({}));
    eventually("Java is queued", || queued("y") == 1).await;
    (held, ours, theirs)
}

#[tokio::test]
async fn a_deadlock_with_java_is_found_and_java_is_not_affected() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let (held, ours, theirs) = entangled(&fleet, &client, AcquireOptions::new()).await;
    let java = fleet.holder("x");
    let deadlocks = within(secs(60), async {
        loop {
            let found = client.deadlocks().await.unwrap();
            if !found.is_empty() {
                return found;
            }
            tokio::time::sleep(ms(300)).await;
        }
    })
    .await;
    let [deadlock] = &deadlocks[..] else {
        panic!("{deadlocks:?}");
    };
    assert_eq!(deadlock.certainty, Certainty::Certain);
    assert_eq!(deadlock.edges.len(), 2);
    let (owner, _) = java.clone().unwrap();
    for edge in &deadlock.edges {
        assert_eq!(edge.way, InTheWay::Holds);
        let (java, ours) = match edge.name.as_bytes() {
            b"x" => (&edge.blocker, &edge.waiter),
            _ => (&edge.waiter, &edge.blocker),
        };
        assert_eq!((&java.owner, &java.app), (&owner, &None));
        assert_eq!(ours.client(), Some(client.id()));
    }
    assert_eq!(fleet.holder("x"), java);
    // Our release ends the deadlock.
    held.release().await.unwrap();
    java_granted(theirs, LONG).await;
    fleet.java("thread", Kind::Fair, "y").done("unlock").await;
    fleet.java("thread", Kind::Fair, "x").done("unlock").await;
    granted(ours, LONG).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_waiter_fails_in_a_deadlock_with_java() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let options = AcquireOptions::new().on_deadlock(OnDeadlock::Fail);
    let (held, ours, theirs) = entangled(&fleet, &client, options).await;
    let failed = within(secs(60), ours).await.unwrap();
    let error = failed.unwrap_err();
    assert!(matches!(error, AcquireError::Deadlock { .. }), "{error}");
    held.release().await.unwrap();
    java_granted(theirs, LONG).await;
    fleet.java("thread", Kind::Fair, "y").done("unlock").await;
    fleet.java("thread", Kind::Fair, "x").done("unlock").await;
    fleet.at_rest().await;
}

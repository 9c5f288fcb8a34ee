//! Ephemeral semaphores in a cluster whose slot moves.

use stanchion::{IdleExpiry, LeasedSemaphore, LostReason, Semaphore};
use stanchion_testkit::eventually;
use stanchion_tests::{cluster, lease};

use super::support::*;

/// A held ephemeral semaphore is kept. A lease that cannot be renewed ends before its semaphore.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migrating_slot_keeps_ephemeral_semaphores() {
    let Some(cluster) = cluster() else { return };
    let client = connect(cluster.url()).await;
    let slot = cluster.slot("{m}");
    let to = (cluster.master_of(slot) + 1) % 3;
    let idle = |n| IdleExpiry::after(ms(n)).unwrap();
    let leased = |name: &str, millis, n| {
        let leased = LeasedSemaphore::new(&client, name).unwrap();
        leased.lease(lease(ms(millis))).ephemeral(2, idle(n))
    };
    let long = leased("{m}long", 1500, 1_000_000);
    let brief = leased("{m}brief", 3000, 1000);
    let plain = Semaphore::new(&client, "{m}plain")
        .unwrap()
        .ephemeral(2, idle(1_000_000));
    let kept = long.acquire_many(2).await.unwrap();
    let lost = brief.acquire().await.unwrap();
    let permit = plain.acquire().await.unwrap();

    let migration = apart(|| cluster.migrate(slot, to));
    // The other keys, among them the idle keys, stay on the source node for now.
    for key in [
        "{m}long:timeout",
        "{m}brief:timeout",
        "{m}plain",
        "stanchion_permits:{m}plain",
    ] {
        migration.move_key(key);
    }
    let began = client.now();
    soon(ms(1000), permit.release()).await.unwrap();
    eventually("the hold is renewed for three leases", || {
        assert!(kept.is_held(), "P10: {:?}", kept.valid_until());
        kept.valid_until() > began + ms(1500) * 4
    })
    .await;
    // P1: this hold is not renewed while its keys are on two nodes, and ends before the semaphore does.
    assert_eq!(soon(ms(10_000), lost.lost()).await, LostReason::Expired);
    migration.move_keys();
    apart(|| migration.finish());
    kept.release().await.unwrap();
    assert_eq!(long.available().await.unwrap(), 2);
    let node = cluster.node(to);
    eventually("the released semaphore has a TTL again", || {
        let left = node.cli(&["PTTL", "{m}plain"]).as_int();
        left > 0 && left <= 1_000_000
    })
    .await;
    assert_eq!(plain.available().await.unwrap(), 2);
}

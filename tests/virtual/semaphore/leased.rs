//! Tests the leases of leased permits: leases that end during a request, loss, and renewal. `virtual/leases` has the cases of all kinds.

use stanchion::{AcquireOptions, Client, LeasedSemaphore, LostReason, Renewal};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{Kind, LEASES, NAME, at_rest, free};
use stanchion_tests::{World, lease, ms, secs, spawn_ok};

async fn warm(world: &World, permits: u32) -> (Client, LeasedSemaphore) {
    let client = world.named("ours").await;
    let semaphore = LeasedSemaphore::new(&client, NAME).unwrap();
    semaphore.init(permits).await.unwrap();
    let permit = semaphore.acquire_many(permits).await.unwrap();
    permit.renew().await.unwrap();
    permit.release().await.unwrap();
    (client, semaphore)
}

fn manual(millis: u64) -> AcquireOptions {
    AcquireOptions::new()
        .lease(lease(ms(millis)))
        .renewal(Renewal::Manual)
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_took_longer_than_the_lease_grants_nothing() {
    let world = World::engine();
    let (_client, semaphore) = warm(&world, 150).await;
    let other = LeasedSemaphore::new(&world.client().await, NAME).unwrap();
    world.faults().lose_replies_silently("EVALSHA", 1);
    let acquiring = spawn_ok(semaphore.acquire_with(150, manual(50)));
    eventually("the request has run", || free(&world) == 0).await;
    tokio::time::sleep(ms(60)).await;
    // All leases have ended. A request of another client takes one permit, and reaps some of the leases.
    let one = other.try_acquire().await.unwrap().unwrap();
    assert_eq!((free(&world), Kind::Leased.held(&world)), (100, 50));
    // The resent request finds the rest of its permits, releases them, and waits for all 150.
    eventually("the rest is released", || {
        (free(&world), Kind::Leased.held(&world)) == (149, 1)
    })
    .await;
    assert!(!acquiring.is_finished());
    one.release().await.unwrap();
    let all = acquiring.await.unwrap();
    assert!(all.is_held());
    all.release().await.unwrap();
    at_rest(&world, 150).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_permits_are_renewed_in_few_scripts() {
    let world = World::engine();
    let (_client, semaphore) = warm(&world, 100).await;
    let semaphore = semaphore.lease(lease(secs(3)));
    let mut permits = Vec::new();
    for n in [1, 1, 1, 7, 40, 50] {
        permits.push(semaphore.acquire_many(n).await.unwrap());
    }
    let before = world.scripts_run();
    tokio::time::sleep(ms(30_500)).await;
    // One script renews all permits every third of the lease.
    let scripts = world.scripts_run() - before;
    assert!(
        scripts <= 31,
        "{scripts} scripts for 30 rounds of 100 renewals"
    );
    assert!(permits.iter().all(stanchion::LeasedPermit::is_held));
    drop(permits);
    at_rest(&world, 100).await;
}

#[tokio::test(start_paused = true)]
async fn permits_that_were_deleted_on_the_server_are_reported_as_gone() {
    let world = World::engine();
    let (_client, semaphore) = warm(&world, 2).await;
    let permit = semaphore.acquire_many(2).await.unwrap();
    let _ = world.admin(&["DEL", LEASES, NAME]);
    assert_eq!(permit.lost().await, LostReason::Gone);
    assert!(permit.renew().await.is_err());
    drop(permit);
    world.quiet().await;
    assert!(
        world.admin(&["GET", NAME]).is_empty(),
        "no permit is returned"
    );
}

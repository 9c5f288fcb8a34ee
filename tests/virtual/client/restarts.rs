//! Tests of a server that is killed and comes back with an older snapshot. Releases that the snapshot lacks are sent again, and holds that it
//! lacks are lost before that.

use std::time::Duration;

use stanchion::{Lock, LostReason, RwLock, Semaphore};
use stanchion_tests::kinds::{Case, Target, kinds};
use stanchion_tests::{World, ms, spawn_ok};
use tokio::time::{sleep, timeout};

/// Longer than a reconnect and a few requests, much shorter than a third of a lease.
const SOON: Duration = ms(2000);

#[tokio::test(start_paused = true)]
async fn releases_that_an_older_snapshot_lacks_are_sent_again() {
    for kind in kinds() {
        let case = Case::new(kind, World::engine().ends_after(ms(120_000))).await;
        let held = case.ours().acquire().await.unwrap();
        let faults = case.world.faults();
        let saved = faults.save();
        held.release().await.unwrap();
        // Longer than a failover takes to be noticed.
        sleep(ms(15_000)).await;
        faults.restart_from(&saved);
        let next = timeout(SOON, case.theirs().acquire()).await;
        let next = next.unwrap_or_else(|_| panic!("P4: the {} is not free", case.label));
        next.unwrap().release().await.unwrap();
        case.soon_at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_permit_is_free_again_although_its_release_was_long_ago() {
    let world = World::engine().ends_after(ms(7_200_000));
    let seats = Semaphore::new(&world.client().await, "seats").unwrap();
    assert!(seats.init(1).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    let faults = world.faults();
    let saved = faults.save();
    permit.release().await.unwrap();
    sleep(ms(3_000_000)).await;
    faults.restart_from(&saved);
    let again = timeout(SOON, seats.acquire()).await.expect("P4").unwrap();
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_snapshot_lacks_is_lost_at_the_reconnect() {
    let world = World::engine().ends_after(ms(120_000));
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let faults = world.faults();
    let saved = faults.save();
    let held = lock.acquire().await.unwrap();
    faults.restart_from(&saved);
    assert_eq!(timeout(SOON, held.lost()).await, Ok(LostReason::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_hold_in_the_snapshot_survives() {
    let world = World::engine().ends_after(ms(120_000));
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let held = lock.acquire().await.unwrap();
    let faults = world.faults();
    let saved = faults.save();
    faults.restart_from(&saved);
    assert!(timeout(ms(60_000), held.lost()).await.is_err());
    held.release().await.unwrap();
}

/// P1, P4. Other tasks of the holder's process wait, and another client, too. The snapshot has the first holder only; after it the hold passes
/// from task to task. When the other client is granted, the last task must have lost its hold.
#[tokio::test(start_paused = true)]
async fn a_hand_off_that_the_snapshot_lacks_leaves_no_second_holder() {
    let handed_over = ["lock", "leased permit", "locks of one client"];
    for kind in kinds().into_iter().filter(|it| handed_over.contains(&it.0)) {
        for tasks in [1, 3] {
            let case = Case::new(kind, World::engine().ends_after(ms(300_000))).await;
            if let Target::Seats(permits, _) = case.theirs() {
                // One is left.
                permits.reduce(1).await.unwrap();
            }
            let mut held = case.ours().acquire().await.unwrap();
            let acquires = |target: Target| async move { target.acquire().await.unwrap() };
            let mut waiting = Vec::new();
            for _ in 0..tasks {
                waiting.push(tokio::spawn(acquires(case.ours())));
                sleep(ms(100)).await;
            }
            let theirs = tokio::spawn(acquires((kind.1)(&case.clients[1], &case.clients[1])));
            sleep(ms(300)).await;
            let faults = case.world.faults();
            let saved = faults.save();
            for task in waiting {
                held.release().await.unwrap();
                held = timeout(SOON, task).await.expect(case.label).unwrap();
            }
            faults.restart_from(&saved);
            let granted = timeout(SOON, theirs).await.expect("P4").unwrap();
            assert!(!held.is_held(), "P1: two hold: {}, {tasks}", case.label);
            assert!(granted.is_held(), "{}", case.label);
            granted.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_the_snapshot_lacks_leaves_no_second_holder() {
    let world = World::engine().ends_after(ms(120_000));
    let ours = RwLock::new(&world.named("a").await, "rwlock").unwrap();
    let theirs = RwLock::new(&world.named("b").await, "rwlock").unwrap();
    let held = ours.write().await.unwrap();
    let waiter = spawn_ok(theirs.write());
    sleep(ms(300)).await;
    let faults = world.faults();
    let saved = faults.save();
    let reads = held.downgrade().await.unwrap();
    faults.restart_from(&saved);
    let granted = timeout(SOON, waiter).await.expect("P4").unwrap();
    assert!(!reads.is_held(), "P1: a reader and a writer hold");
    granted.release().await.unwrap();
}

/// The client that detached the hold cannot know whether another one has adopted it. So it does not repeat the release.
#[tokio::test(start_paused = true)]
async fn a_detach_that_the_snapshot_lacks_leaves_no_second_holder() {
    let world = World::engine().ends_after(ms(120_000));
    let ours = Lock::new(&world.named("a").await, "job").unwrap();
    let theirs = Lock::new(&world.named("b").await, "job").unwrap();
    let third = Lock::new(&world.named("c").await, "job").unwrap();
    let held = ours.acquire().await.unwrap();
    let waiter = spawn_ok(theirs.acquire());
    sleep(ms(300)).await;
    let faults = world.faults();
    let saved = faults.save();
    let ticket = held.detach().await.unwrap();
    let adopted = third.adopt(&ticket).await.unwrap();
    world.faults().freeze(Some("c"));
    faults.restart_from(&saved);
    sleep(SOON).await;
    assert!(adopted.is_held() && !waiter.is_finished(), "P1: two hold");
    faults.thaw(Some("c"));
    let granted = timeout(ms(40_000), waiter).await.expect("P4").unwrap();
    assert!(!adopted.is_held(), "P1: two hold");
    granted.release().await.unwrap();
}

//! Tests `downgrade`: a write hold becomes a read hold, and no other writer acquires in between.

use stanchion::{AcquireOptions, Rejection, ReleaseError};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_is, kept};

use super::rwlock;

suite! {
    a_downgrade_keeps_writers_out_and_lets_readers_in,
    a_downgraded_hold_is_a_read_hold_like_any_other,
    a_re_entered_write_hold_is_not_downgraded,
    a_lost_write_hold_is_not_downgraded,
    the_owner_of_a_downgraded_hold_reads,
}

async fn a_downgrade_keeps_writers_out_and_lets_readers_in(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let writing = rwlock(&ours).write().await.unwrap();
    let before = world.scripts_run();
    let reading = writing.downgrade().await.unwrap();
    // One script: two commands if it must be loaded first.
    assert!(world.scripts_run() - before <= 2);
    assert!(rwlock(&theirs).try_write().await.unwrap().is_none());
    let other = rwlock(&theirs).try_read().await.unwrap().unwrap();
    other.release().await.unwrap();
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn a_downgraded_hold_is_a_read_hold_like_any_other(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client).lease(kept());
    let writing = lock.write().await.unwrap();
    let lease_end = writing.valid_until();
    let reading = writing.downgrade().await.unwrap();
    let again = reading.reenter().await.unwrap();
    reading.renew().await.unwrap();
    // P10: the watchdog renews the downgraded hold.
    eventually("the first lease is over", || client.now() > lease_end).await;
    assert!(reading.is_held());
    assert_eq!(lock.status().await.unwrap().readers[0].hold_count, 2);
    reading.release().await.unwrap();
    again.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn a_re_entered_write_hold_is_not_downgraded(world: &World) {
    let lock = rwlock(&world.client().await);
    let writing = lock.write().await.unwrap();
    let again = writing.reenter().await.unwrap();
    let error = again.downgrade().await.unwrap_err();
    assert_is!(
        error,
        ReleaseError::Rejected {
            rejection: Rejection::InvalidOption { .. },
            ..
        }
    );
    assert!(lock.try_read().await.unwrap().is_none());
    writing.renew().await.unwrap();
    drop(writing);
    world.at_rest().await;
}

async fn a_lost_write_hold_is_not_downgraded(world: &World) {
    let lock = rwlock(&world.client().await);
    let writing = lock.write().await.unwrap();
    assert!(lock.danger().force_release().await.unwrap());
    let error = writing.downgrade().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    world.at_rest().await;
}

async fn the_owner_of_a_downgraded_hold_reads(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let owner = client.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let writing = lock.write_with(options()).await.unwrap();
    let nested = lock.read_with(options()).await.unwrap();
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(reading.owner(), &owner);
    assert!(nested.is_held());
    let again = lock.read_with(options()).await.unwrap();
    let status = lock.status().await.unwrap();
    assert_eq!((status.writer, status.reader_count), (None, 2));
    assert!(lock.write_with(options()).await.is_err(), "the owner reads");
    drop((nested, reading, again));
    world.at_rest().await;
    let writing = lock.write_with(options()).await.unwrap();
    writing.release().await.unwrap();
}

//! Tests leases of readers and writers next to each other. `real/kinds/leases` has the cases of all kinds.

use std::time::Duration;

use stanchion::{AcquireOptions, Lease, LostReason, ReleaseError, Renewal};
use stanchion_testkit::eventually;
use stanchion_tests::{World, kept};

use super::{CHANNEL, rwlock};

suite! {
    the_release_of_a_nested_read_does_not_stop_the_renewal_of_the_writer,
    an_unrenewed_writer_is_lost_before_a_reader_is_granted,
    expired_readers_are_removed_while_others_read,
    a_reader_whose_field_was_deleted_is_lost_at_its_renewal,
    a_renewal_restores_the_deleted_hold_key_of_a_reader,
    other_readers_never_shorten_a_readers_lease,
    hundreds_of_readers_are_renewed_in_few_scripts,
    the_last_living_reader_frees_the_lock_despite_expired_readers,
    readers_after_expired_readers_do_not_starve_a_writer,
    a_writer_is_granted_when_the_lease_of_the_last_dead_reader_ends,
    expired_readers_do_not_accumulate_while_others_read,
}

fn short() -> Lease {
    Lease::new(Duration::from_millis(400)).unwrap()
}

/// Options for a hold that is not renewed, like that of a killed process.
fn unrenewed(lease: Lease) -> AcquireOptions {
    AcquireOptions::new().lease(lease).renewal(Renewal::Manual)
}

async fn the_release_of_a_nested_read_does_not_stop_the_renewal_of_the_writer(world: &World) {
    // In Redisson the release of a nested read stops the renewal of the write lock.
    let client = world.client().await;
    let lock = rwlock(&client).lease(kept());
    let writing = lock.write().await.unwrap();
    let options = AcquireOptions::new().owner(writing.owner());
    let reading = lock.read_with(options).await.unwrap();
    let end = reading.valid_until();
    eventually("the hold is renewed", || reading.valid_until() > end).await;
    reading.release().await.unwrap();
    let end = writing.valid_until() + kept().length();
    eventually("the hold is renewed", || writing.valid_until() > end).await;
    assert!(writing.is_held());
    writing.release().await.unwrap();
    world.at_rest().await;
}

async fn an_unrenewed_writer_is_lost_before_a_reader_is_granted(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let writing = rwlock(&ours).write_with(unrenewed(short())).await.unwrap();
    let end = writing.valid_until();
    let reading = rwlock(&theirs)
        .read_timeout(Duration::from_secs(4))
        .await
        .unwrap();
    assert!(theirs.now() > end && !writing.is_held());
    drop((writing, reading));
    world.at_rest().await;
}

async fn expired_readers_are_removed_while_others_read(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let dead: Vec<_> = {
        let lock = rwlock(&ours);
        let mut dead = Vec::new();
        for _ in 0..12 {
            dead.push(lock.read_with(unrenewed(short())).await.unwrap());
        }
        dead
    };
    // The guards are never dropped, as if the process had been killed.
    std::mem::forget(dead);
    let lock = rwlock(&theirs);
    let living = lock.read().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Each acquire and release removes some expired readers. The last release removes the rest.
    let mut releases = 0;
    while lock.status().await.unwrap().reader_count > 5 {
        lock.read().await.unwrap().release().await.unwrap();
        releases += 1;
        assert!(releases < 300, "{:?}", lock.status().await);
    }
    living.release().await.unwrap();
    let writing = lock.try_write().await.unwrap();
    assert!(writing.is_some(), "{:?}", lock.status().await);
    drop(writing);
    world.at_rest().await;
}

async fn a_reader_whose_field_was_deleted_is_lost_at_its_renewal(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = rwlock(&ours).lease(kept()).read().await.unwrap();
    let other = rwlock(&theirs).read().await.unwrap();
    let owner = reading.owner().to_string();
    let _ = world.admin(&["HDEL", "job", &owner]);
    assert_eq!(reading.lost().await, LostReason::Gone);
    assert!(matches!(
        reading.release().await,
        Err(ReleaseError::Lost(_))
    ));
    assert!(other.is_held());
    other.release().await.unwrap();
    world.at_rest().await;
}

async fn a_renewal_restores_the_deleted_hold_key_of_a_reader(world: &World) {
    let client = world.client().await;
    let reading = rwlock(&client).read().await.unwrap();
    let key = format!("{{job}}:{}:rwlock_timeout:1", reading.owner());
    assert_eq!(world.admin(&["DEL", &key]), "1");
    reading.renew().await.unwrap();
    let left: i64 = world.admin(&["PTTL", &key]).parse().unwrap();
    assert!(left > 20_000, "{left}");
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn other_readers_never_shorten_a_readers_lease(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let long = Lease::new(Duration::from_secs(300)).unwrap();
    let first = lock
        .read_with(AcquireOptions::new().lease(long))
        .await
        .unwrap();
    let second = lock.read().await.unwrap();
    second.renew().await.unwrap();
    let again = second.reenter().await.unwrap();
    drop(again);
    second.release().await.unwrap();
    let left: i64 = world.admin(&["PTTL", "job"]).parse().unwrap();
    assert!(left > 290_000, "{left}");
    let key = format!("{{job}}:{}:rwlock_timeout:1", first.owner());
    let left: i64 = world.admin(&["PTTL", &key]).parse().unwrap();
    assert!(left > 290_000, "{left}");
    // Without the long lease, the TTL of the lock is that of the remaining reader.
    let second = lock.read().await.unwrap();
    first.release().await.unwrap();
    let left: i64 = world.admin(&["PTTL", "job"]).parse().unwrap();
    assert!((1..=30_000).contains(&left), "{left}");
    second.release().await.unwrap();
    // The dropped guard is released in the background, possibly after the explicit release.
    world.at_rest().await;
}

async fn hundreds_of_readers_are_renewed_in_few_scripts(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client).lease(Lease::new(Duration::from_secs(3)).unwrap());
    let mut readers = Vec::new();
    for _ in 0..300 {
        readers.push(lock.read().await.unwrap());
    }
    let before = world.scripts_run();
    tokio::time::sleep(Duration::from_millis(3500)).await;
    let scripts = world.scripts_run() - before;
    assert!(
        scripts <= 100,
        "{scripts} scripts renewed 300 readers for 3.5 s"
    );
    assert!(readers.iter().all(stanchion::ReadGuard::is_held));
    drop(readers);
    world.at_rest().await;
}

/// Creates readers of a killed process: their holds are neither renewed nor released.
async fn dead_readers(world: &World, count: usize, lease: Duration) {
    let client = world.client().await;
    let lock = rwlock(&client);
    for _ in 0..count {
        let options = unrenewed(Lease::new(lease).unwrap());
        std::mem::forget(lock.read_with(options).await.unwrap());
    }
    std::mem::forget(client);
}

async fn fields(world: &World) -> usize {
    world.admin(&["HLEN", "job"]).parse().unwrap()
}

async fn the_last_living_reader_frees_the_lock_despite_expired_readers(world: &World) {
    for dead in [1, 5, 9, 80] {
        let client = world.client().await;
        let lock = rwlock(&client);
        let living = lock.read().await.unwrap();
        dead_readers(world, dead, Duration::from_millis(200)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(lock.status().await.unwrap().reader_count, 1, "{dead}");
        let writer = tokio::spawn({
            let lock = rwlock(&world.client().await);
            async move { lock.write().await.unwrap() }
        });
        world.subscribed(CHANNEL).await;
        world.quiet().await;
        let started = client.now();
        living.release().await.unwrap();
        drop(writer.await.unwrap());
        let waited = client.now().since(started);
        assert!(
            waited < world.limit(Duration::from_millis(50)),
            "{waited:?}"
        );
        world.at_rest().await;
    }
}

async fn readers_after_expired_readers_do_not_starve_a_writer(world: &World) {
    dead_readers(world, 7, Duration::from_millis(500)).await;
    let client = world.client().await;
    let started = client.now();
    let writer = tokio::spawn({
        let lock = rwlock(&world.client().await);
        async move { lock.write().await.unwrap() }
    });
    // These readers do not overlap, and each extends the TTL of the lock to its own lease.
    while !writer.is_finished() {
        let waited = client.now().since(started);
        assert!(waited < Duration::from_secs(10), "the writer starves");
        if let Some(reading) = rwlock(&client).try_read().await.unwrap() {
            reading.release().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(writer.await.unwrap());
    world.at_rest().await;
}

async fn a_writer_is_granted_when_the_lease_of_the_last_dead_reader_ends(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    // This reader extends the TTL of the lock to five minutes, and is released below.
    let long = Lease::new(Duration::from_secs(300)).unwrap();
    let options = AcquireOptions::new().lease(long);
    let first = lock.read_with(options).await.unwrap();
    dead_readers(world, 8, Duration::from_millis(1500)).await;
    first.release().await.unwrap();
    let started = client.now();
    let writing = lock.write().await.unwrap();
    let waited = client.now().since(started);
    assert!(waited > Duration::from_millis(500), "{waited:?}");
    assert!(
        waited < world.limit(Duration::from_millis(1600)),
        "{waited:?}"
    );
    writing.release().await.unwrap();
    world.at_rest().await;
}

async fn expired_readers_do_not_accumulate_while_others_read(world: &World) {
    let client = world.client().await;
    let living = rwlock(&client).read().await.unwrap();
    for round in 0..30 {
        dead_readers(world, 4, Duration::from_millis(50)).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(
            fields(world).await <= 16,
            "{} after {round}",
            fields(world).await
        );
    }
    let count = rwlock(&client).status().await.unwrap().reader_count;
    assert_eq!(count, 1);
    living.release().await.unwrap();
    world.at_rest().await;
}

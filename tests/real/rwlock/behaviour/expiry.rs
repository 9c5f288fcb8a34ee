//! Tests leases of readers and writers next to each other. `real/kinds/leases` has the cases of all kinds.

use stanchion::AcquireOptions;
use stanchion_testkit::eventually;
use stanchion_tests::{World, kept, lease, manual, ms, secs};

use super::rwlock;

suite! {
    the_release_of_a_nested_read_does_not_stop_the_renewal_of_the_writer,
    a_renewal_restores_the_deleted_hold_key_of_a_reader,
    hundreds_of_readers_are_renewed_in_few_scripts,
    a_writer_is_granted_when_the_lease_of_the_last_dead_reader_ends,
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

async fn hundreds_of_readers_are_renewed_in_few_scripts(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client).lease(lease(secs(3)));
    let mut readers = Vec::new();
    for _ in 0..300 {
        readers.push(lock.read().await.unwrap());
    }
    let before = world.scripts_run();
    tokio::time::sleep(ms(3500)).await;
    let scripts = world.scripts_run() - before;
    assert!(
        scripts <= 100,
        "{scripts} scripts renewed 300 readers for 3.5 s"
    );
    assert!(readers.iter().all(stanchion::ReadGuard::is_held));
    drop(readers);
    world.at_rest().await;
}

async fn a_writer_is_granted_when_the_lease_of_the_last_dead_reader_ends(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    // This reader extends the TTL of the lock to five minutes, and is released below.
    let long = lease(secs(300));
    let options = AcquireOptions::new().lease(long);
    let first = lock.read_with(options).await.unwrap();
    // Readers of a killed process are neither renewed nor released.
    let dead = rwlock(&world.client().await);
    for _ in 0..8 {
        let options = manual(ms(1500));
        std::mem::forget(dead.read_with(options).await.unwrap());
    }
    std::mem::forget(dead);
    first.release().await.unwrap();
    let started = client.now();
    let writing = lock.write().await.unwrap();
    let waited = client.now().since(started);
    assert!(waited > ms(500), "{waited:?}");
    assert!(waited < world.limit(ms(1600)), "{waited:?}");
    writing.release().await.unwrap();
    world.at_rest().await;
}

//! Tests the layout of the lock on the server and its messages, which are Redisson's.

use std::time::Duration;

use stanchion::{Client, ClientConfig, Lease, Lock, Rejection};
use stanchion_tests::World;

suite! {
    a_lock_is_redissons_hash,
    a_redisson_holder_excludes_and_is_shown,
    a_redisson_release_wakes_our_waiter,
    our_release_wakes_a_waiter_on_redissons_channel,
    the_key_prefix_is_part_of_the_name,
    a_lock_refuses_the_name_of_a_read_write_lock_with_a_clear_error,
}

async fn a_lock_is_redissons_hash(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job")
        .unwrap()
        .lease(Lease::new(Duration::from_secs(20)).unwrap());
    let guard = lock.acquire().await.unwrap();
    assert_eq!(world.admin(&["TYPE", "job"]), "hash");
    assert_eq!(world.admin(&["HLEN", "job"]), "1");
    let owner = guard.owner().to_string();
    assert!(owner.starts_with(&format!("{}:", client.id())), "{owner}");
    assert_eq!(world.admin(&["HGET", "job", &owner]), "1");
    let ttl: u64 = world.admin(&["PTTL", "job"]).parse().unwrap();
    assert!((19_000..=20_000).contains(&ttl), "{ttl}");
}

async fn a_redisson_holder_excludes_and_is_shown(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let java = "7c9e6679-7425-40de-944b-e07fc1f90ae7:42";
    let _ = world.admin(&["HINCRBY", "job", java, "2"]);
    let _ = world.admin(&["PEXPIRE", "job", "30000"]);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let holder = lock.status().await.unwrap().holder.unwrap();
    assert_eq!((holder.owner.as_str(), holder.hold_count), (java, 2));
    assert!(holder.remaining.unwrap() > Duration::from_secs(20));
}

async fn a_redisson_release_wakes_our_waiter(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let _ = world.admin(&["HINCRBY", "job", "java:1", "1"]);
    let _ = world.admin(&["PEXPIRE", "job", "600000"]);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    world.subscribed("redisson_lock__channel:{job}").await;
    world.quiet().await;
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["PUBLISH", "redisson_lock__channel:{job}", "0"]);
    waiting.await.unwrap().release().await.unwrap();
}

async fn our_release_wakes_a_waiter_on_redissons_channel(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let guard = Lock::new(&ours, "{t}:job")
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let lock = Lock::new(&theirs, "{t}:job").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    world.subscribed("redisson_lock__channel:{t}:job").await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

async fn the_key_prefix_is_part_of_the_name(world: &World) {
    let config: ClientConfig = world.config("prefixed").key_prefix("app:");
    let client = Client::connect_with(config).await.unwrap();
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(world.keys(), ["app:job"]);
    assert_eq!(guard.name().to_string(), "app:job");
    let unprefixed = Lock::new(&world.client().await, "app:job").unwrap();
    assert!(unprefixed.try_acquire().await.unwrap().is_none());
}

async fn a_lock_refuses_the_name_of_a_read_write_lock_with_a_clear_error(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let _ = world.admin(&["HSET", "job", "mode", "read", "java:1", "1"]);
    let _ = world.admin(&["PEXPIRE", "job", "30000"]);
    let wrong = |rejection: &Rejection| matches!(rejection, Rejection::WrongType { detail } if detail.contains("read-write lock"));
    for error in [
        lock.try_acquire().await.unwrap_err(),
        lock.acquire().await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, stanchion::AcquireError::Rejected { rejection, .. } if wrong(rejection)),
            "{error}"
        );
    }
    assert!(lock.status().await.is_err(), "a read-write lock is refused");
    let forced = lock.danger().force_release().await.unwrap_err();
    assert!(
        matches!(&forced, stanchion::QueryError::Rejected { rejection } if wrong(rejection)),
        "{forced}"
    );
    assert_eq!(world.admin(&["HGET", "job", "mode"]), "read");
}

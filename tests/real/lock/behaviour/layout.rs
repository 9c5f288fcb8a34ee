//! Tests the layout of the lock on the server and its messages, which are Redisson's, and names as keys.

use stanchion::error::NameRule;
use stanchion::{Client, Lock};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::{JAVA, World, lease, secs};

suite! {
    a_lock_is_redissons_hash,
    a_redisson_holder_excludes_until_its_release_wakes_a_waiter,
    a_release_is_published_on_redissons_channel,
    the_key_prefix_is_part_of_the_name,
    a_lock_refuses_the_name_of_a_read_write_lock_with_a_clear_error,
    odd_names_work_without_a_cluster,
}

async fn a_lock_is_redissons_hash(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let lock = lock.lease(lease(secs(20)));
    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner().to_string();
    assert!(owner.starts_with(&format!("{}:", client.id())), "{owner}");
    assert_eq!(world.admin(&["HLEN", "job"]), "1");
    assert_eq!(world.admin(&["HGET", "job", &owner]), "1");
    let ttl: u64 = world.admin(&["PTTL", "job"]).parse().unwrap();
    assert!((15_000..=20_000).contains(&ttl), "{ttl}");
}

async fn a_redisson_holder_excludes_until_its_release_wakes_a_waiter(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let _ = world.admin(&["HINCRBY", "job", JAVA, "2"]);
    let _ = world.admin(&["PEXPIRE", "job", "600000"]);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let holder = lock.status().await.unwrap().holder.unwrap();
    assert_eq!((holder.owner.as_str(), holder.hold_count), (JAVA, 2));
    assert!(holder.remaining.unwrap() > secs(500));
    let waiting = tokio::spawn(lock.acquire());
    world.subscribed("redisson_lock__channel:{job}").await;
    world.quiet().await;
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["PUBLISH", "redisson_lock__channel:{job}", "0"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

async fn a_release_is_published_on_redissons_channel(world: &World) {
    let lock = Lock::new(&world.client().await, "{t}:job").unwrap();
    let guard = lock.acquire().await.unwrap();
    let mut java = world.listen("redisson_lock__channel:{t}:job").await;
    guard.release().await.unwrap();
    assert_eq!(java.next().await, "0");
}

async fn the_key_prefix_is_part_of_the_name(world: &World) {
    let client = world
        .configured("prefixed", |it| it.key_prefix("app:"))
        .await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(world.keys(), ["app:job"]);
    assert_eq!(guard.name().to_string(), "app:job");
    let unprefixed = Lock::new(&world.client().await, "app:job").unwrap();
    assert!(unprefixed.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(unprefixed.acquire());
    world.subscribed("redisson_lock__channel:{app:job}").await;
    world.quiet().await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// `client/behaviour/one_name` has all primitives.
async fn a_lock_refuses_the_name_of_a_read_write_lock_with_a_clear_error(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let _ = world.admin(&["HSET", "job", "mode", "read", "java:1", "1"]);
    for text in [
        lock.acquire().await.unwrap_err().to_string(),
        lock.danger().force_release().await.unwrap_err().to_string(),
    ] {
        assert!(text.contains("read-write lock"), "{text}");
    }
}

async fn odd_names_work_without_a_cluster(world: &World) {
    let client = world.client().await;
    for name in [
        &b"a{b"[..],
        b"{}x",
        b"a}b",
        b"{",
        b"\0\r\n",
        b"\xff\xfe",
        "schlo\u{df} \u{1f512}".as_bytes(),
        &[b'x'; 512],
    ] {
        let lock = Lock::new(&client, name).unwrap();
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn(lock.acquire());
        eventually("the call waits", || client.waiters() == 1).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test]
async fn on_a_cluster_names_that_split_slots_are_refused() {
    if !RedisServer::available() {
        return drop(World::server("names that split slots"));
    }
    let server = RedisServer::builder().cluster_enabled().start();
    let client = Client::connect(server.url()).await.unwrap();
    for odd in ["a{b", "{}x", "a}b"] {
        let error = Lock::new(&client, odd).unwrap_err();
        assert_eq!(error.rule, NameRule::SplitsSlots);
        assert!(error.to_string().contains(&format!("{odd:?}")), "{error}");
    }
    let lock = Lock::new(&client, "{t}:job").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
}

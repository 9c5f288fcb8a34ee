//! Tests that keys and channels are those of Redisson. `virtual/rwlock/direct_redisson` runs the scripts of both.

use stanchion::RwLock;
use stanchion_tests::{World, lease, secs};

use super::{CHANNEL, rwlock};

suite! {
    a_hold_is_redissons_hash_and_a_reader_has_one_timeout_key,
    names_with_braces_are_wrapped_as_by_redisson,
    releases_publish_redissons_messages,
}

const READERS: &str = "stanchion_rwlock_readers:{job}";

/// Asserts that a hold has lasted for less than a second of its 20.
fn is_new(world: &World, key: &str) {
    let left: i64 = world.admin(&["PTTL", key]).parse().unwrap();
    assert!((19_000..=20_000).contains(&left), "{key}: {left}");
}

async fn a_hold_is_redissons_hash_and_a_reader_has_one_timeout_key(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client).lease(lease(secs(20)));
    let reading = lock.read().await.unwrap();
    let owner = reading.owner().to_string();
    assert!(owner.starts_with(&format!("{}:", client.id())));
    let again = reading.reenter().await.unwrap();
    let all = "return table.concat(redis.call('HGETALL', KEYS[1]), ' ')";
    let fields = || world.admin(&["EVAL", all, "1", "job"]);
    assert_eq!(fields(), format!("mode read {owner} 2"));
    let hold = format!("{{job}}:{owner}:rwlock_timeout:1");
    assert_eq!(world.admin(&["GET", &hold]), "1");
    // `READERS` is stanchion's own key, with the ends of the leases.
    assert_eq!(world.keys(), ["job", READERS, &hold]);
    for key in ["job", READERS, &hold] {
        is_new(world, key);
    }
    again.release().await.unwrap();
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
    let writing = lock.write().await.unwrap();
    let again = writing.reenter().await.unwrap();
    let owner = writing.owner().to_string();
    assert_eq!(fields(), format!("mode write {owner}:write 2"));
    assert_eq!(world.keys(), ["job"]);
    // Redisson adds the leases of re-entries up. With this lock a killed writer blocks for one lease.
    is_new(world, "job");
    drop((writing, again));
    world.at_rest().await;
}

async fn names_with_braces_are_wrapped_as_by_redisson(world: &World) {
    let client = world.client().await;
    let lock = RwLock::new(&client, "{t}:job").unwrap();
    let reading = lock.read().await.unwrap();
    let key = format!("{{t}}:job:{}:rwlock_timeout:1", reading.owner());
    assert_eq!(world.admin(&["EXISTS", &key]), "1");
    let mut messages = world.listen("redisson_rwlock:{t}:job").await;
    reading.release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(0));
    assert_eq!(world.admin(&["EXISTS", "{t}:job", &key]), "0");
}

async fn releases_publish_redissons_messages(world: &World) {
    let lock = rwlock(&world.client().await);
    let mut messages = world.listen(CHANNEL).await;
    // Redisson reads numbers, so the zero in front of some of them changes nothing.
    lock.read().await.unwrap().release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(0));
    lock.write().await.unwrap().release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(1));
    let reading = lock.write().await.unwrap().downgrade().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(1));
    reading.release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(0));
    let _forced = lock.write().await.unwrap();
    assert!(lock.danger().force_release().await.unwrap());
    assert_eq!(messages.next().await.parse(), Ok(1));
}

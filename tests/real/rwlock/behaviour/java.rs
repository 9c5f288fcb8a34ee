//! Tests the read-write lock together with Redisson: layout, messages and exclusion. Scripts have the effects of Redisson's.

use std::time::Duration;

use stanchion::{AcquireOptions, Lease, RwLock};
use stanchion_tests::World;

use super::{CHANNEL, rwlock};

suite! {
    a_reader_is_redissons_hash_and_one_timeout_key,
    a_writer_is_redissons_hash,
    a_writer_that_reads_has_two_fields,
    names_with_braces_are_wrapped_as_by_redisson,
    our_reader_survives_the_release_of_a_java_reader,
    a_java_reader_survives_the_release_of_ours,
    a_java_reader_with_several_holds_survives_ours,
    a_java_reader_that_died_does_not_keep_the_lock,
    a_java_release_wakes_our_waiters,
    our_releases_publish_redissons_messages,
    java_and_we_exclude_each_other,
    a_poll_detects_a_java_downgrade,
    our_re_entered_hold_is_counted_by_java,
}

const READERS: &str = "stanchion_rwlock_readers:{job}";

const JAVA: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7:42";

/// Redisson's read lock: returns `granted`, or else the TTL.
const JAVA_READ: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1) redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 'granted'
end
if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  local i = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':' .. i, 1) redis.call('pexpire', KEYS[2] .. ':' .. i, ARGV[1])
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
  return 'granted'
end
return redis.call('pttl', KEYS[1])";

const JAVA_UNREAD: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then redis.call('publish', KEYS[4], '0') return 'not owner' end
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 'not owner' end
local c = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if c == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
redis.call('del', KEYS[2] .. ':' .. (c + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local m = -3
  for _, f in ipairs(redis.call('hkeys', KEYS[1])) do
    local v = tonumber(redis.call('hget', KEYS[1], f))
    if type(v) == 'number' then
      for i = v, 1, -1 do m = math.max(m, redis.call('pttl', KEYS[3] .. ':' .. f .. ':rwlock_timeout:' .. i)) end
    end
  end
  if m > 0 then redis.call('pexpire', KEYS[1], m) return 'others read' end
  if mode == 'write' then return 'writes on' end
end
redis.call('del', KEYS[1]) redis.call('publish', KEYS[4], '0')
return 'freed'";

const JAVA_WRITE: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'write') redis.call('hset', KEYS[1], ARGV[2] .. ':write', 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 'granted'
end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2] .. ':write', 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
  return 'granted'
end
return redis.call('pttl', KEYS[1])";

const JAVA_UNWRITE: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then redis.call('publish', KEYS[2], '1') return 'not owner' end
if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[1] .. ':write') == 0 then return 'not owner' end
if redis.call('hincrby', KEYS[1], ARGV[1] .. ':write', -1) > 0 then redis.call('pexpire', KEYS[1], 30000) return 'writes on' end
redis.call('hdel', KEYS[1], ARGV[1] .. ':write')
if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '1') return 'freed' end
redis.call('hset', KEYS[1], 'mode', 'read')
return 'reads on'";

/// A thread of a Java process.
struct Java<'a> {
    world: &'a World,
    owner: &'a str,
}

impl<'a> Java<'a> {
    fn new(world: &'a World) -> Self {
        Self { world, owner: JAVA }
    }

    fn prefix(&self) -> String {
        format!("{{job}}:{}:rwlock_timeout", self.owner)
    }

    fn read(&self, lease_ms: u64) -> String {
        let lease = lease_ms.to_string();
        self.world.admin(&[
            "EVAL",
            JAVA_READ,
            "2",
            "job",
            &self.prefix(),
            &lease,
            self.owner,
        ])
    }

    fn unread(&self) -> String {
        self.world.admin(&[
            "EVAL",
            JAVA_UNREAD,
            "4",
            "job",
            &self.prefix(),
            "{job}",
            CHANNEL,
            self.owner,
        ])
    }

    fn write(&self, lease_ms: u64) -> String {
        let lease = lease_ms.to_string();
        self.world
            .admin(&["EVAL", JAVA_WRITE, "1", "job", &lease, self.owner])
    }

    fn unwrite(&self) -> String {
        self.world
            .admin(&["EVAL", JAVA_UNWRITE, "2", "job", CHANNEL, self.owner])
    }
}

/// Asserts that the TTL of a key in milliseconds is in the range.
fn assert_left(world: &World, key: &str, range: std::ops::RangeInclusive<i64>) {
    let left: i64 = world.admin(&["PTTL", key]).parse().unwrap();
    assert!(range.contains(&left), "{key}: {left}");
}

fn hold_key(owner: &str, index: u32) -> String {
    format!("{{job}}:{owner}:rwlock_timeout:{index}")
}

async fn a_reader_is_redissons_hash_and_one_timeout_key(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client).lease(Lease::new(Duration::from_secs(20)).unwrap());
    let reading = lock.read().await.unwrap();
    let owner = reading.owner().to_string();
    assert!(owner.starts_with(&format!("{}:", client.id())));
    let again = reading.reenter().await.unwrap();
    assert_eq!(world.admin(&["TYPE", "job"]), "hash");
    assert_eq!(world.admin(&["HLEN", "job"]), "2");
    assert_eq!(world.admin(&["HGET", "job", "mode"]), "read");
    assert_eq!(world.admin(&["HGET", "job", &owner]), "2");
    assert_left(world, "job", 19_000..=20_000);
    let key = hold_key(&owner, 1);
    assert_eq!(world.admin(&["GET", &key]), "1");
    assert_left(world, &key, 19_000..=20_000);
    // `READERS` is our own key, with the ends of the leases.
    let keys = ["job".to_owned(), READERS.to_owned(), key];
    assert_eq!(world.keys(), keys, "one timeout key for any count");
    assert_left(world, READERS, 19_000..=20_000);
    again.release().await.unwrap();
    assert_eq!(world.admin(&["HGET", "job", &owner]), "1");
    assert_eq!(world.keys(), keys);
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn a_writer_is_redissons_hash(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client).lease(Lease::new(Duration::from_secs(20)).unwrap());
    let writing = lock.write().await.unwrap();
    let field = format!("{}:write", writing.owner());
    let again = writing.reenter().await.unwrap();
    assert_eq!(world.admin(&["HLEN", "job"]), "2");
    assert_eq!(world.admin(&["HGET", "job", "mode"]), "write");
    assert_eq!(world.admin(&["HGET", "job", &field]), "2");
    // Redisson adds the leases of re-entries up. With our lock a killed writer blocks for one lease.
    assert_left(world, "job", 19_000..=20_000);
    assert_eq!(world.keys(), ["job"]);
    drop((writing, again));
    world.at_rest().await;
}

async fn a_writer_that_reads_has_two_fields(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let writing = lock.write().await.unwrap();
    let field = format!("{}:write", writing.owner());
    let options = AcquireOptions::new().owner(writing.owner());
    let reading = lock.read_with(options).await.unwrap();
    assert_eq!(world.admin(&["HGET", "job", "mode"]), "write");
    assert_eq!(world.admin(&["HGET", "job", &field]), "1");
    assert_eq!(world.admin(&["HLEN", "job"]), "3", "mode, writer, reader");
    writing.release().await.unwrap();
    assert_eq!(world.admin(&["HGET", "job", "mode"]), "read");
    assert_eq!(world.admin(&["HLEN", "job"]), "2");
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn names_with_braces_are_wrapped_as_by_redisson(world: &World) {
    let client = world.client().await;
    let lock = RwLock::new(&client, "{t}:job").unwrap();
    let reading = lock.read().await.unwrap();
    let key = format!("{{t}}:job:{}:rwlock_timeout:1", reading.owner());
    assert_eq!(world.admin(&["EXISTS", &key]), "1");
    let other = RwLock::new(&world.client().await, "{t}:job").unwrap();
    let writer = tokio::spawn(async move { other.write().await.unwrap() });
    world.subscribed("redisson_rwlock:{t}:job").await;
    reading.release().await.unwrap();
    drop(writer.await.unwrap());
    world.at_rest().await;
}

async fn our_reader_survives_the_release_of_a_java_reader(world: &World) {
    let client = world.client().await;
    let java = Java::new(world);
    assert_eq!(java.read(30_000), "granted");
    let lock = rwlock(&client).lease(Lease::new(Duration::from_secs(12)).unwrap());
    let reading = lock.read().await.unwrap();
    let again = reading.reenter().await.unwrap();
    // Without our timeout key Redisson's release would delete the lock.
    assert_eq!(java.unread(), "others read");
    assert_eq!(world.admin(&["HGET", "job", "mode"]), "read");
    assert_left(world, "job", 11_000..=12_000);
    reading.renew().await.unwrap();
    drop((reading, again));
    world.at_rest().await;
}

async fn a_java_reader_survives_the_release_of_ours(world: &World) {
    let client = world.client().await;
    let java = Java::new(world);
    let lock = rwlock(&client).lease(Lease::new(Duration::from_secs(60)).unwrap());
    let reading = lock.read().await.unwrap();
    assert_eq!(java.read(20_000), "granted");
    assert_left(world, "job", 59_000..=60_000);
    reading.release().await.unwrap();
    assert_eq!(world.admin(&["HGET", "job", JAVA]), "1");
    assert_left(world, "job", 19_000..=20_000);
    assert_eq!(java.unread(), "freed");
    assert!(world.keys().is_empty());
}

async fn a_java_reader_with_several_holds_survives_ours(world: &World) {
    let client = world.client().await;
    let java = Java::new(world);
    let lock = rwlock(&client);
    assert_eq!(java.read(40_000), "granted");
    assert_eq!(java.read(20_000), "granted");
    assert_eq!(java.read(10_000), "granted");
    let reading = lock.read().await.unwrap();
    // The first of Java's holds has expired, the others have not.
    let _ = world.admin(&["DEL", &hold_key(JAVA, 1)]);
    reading.release().await.unwrap();
    assert_eq!(world.admin(&["HGET", "job", JAVA]), "3");
    assert_left(world, "job", 19_000..=20_000);
    assert!(lock.try_write().await.unwrap().is_none());
    assert_eq!(java.unread(), "others read");
    assert_eq!(java.unread(), "freed");
    world.at_rest().await;
}

async fn a_java_reader_that_died_does_not_keep_the_lock(world: &World) {
    let client = world.client().await;
    let java = Java::new(world);
    let lock = rwlock(&client);
    assert_eq!(java.read(300), "granted");
    let reading = lock.read().await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(world.admin(&["HGET", "job", JAVA]), "1");
    reading.release().await.unwrap();
    assert!(
        world.keys().is_empty(),
        "as in Redisson: no timeout key is left"
    );
}

async fn a_java_release_wakes_our_waiters(world: &World) {
    let client = world.client().await;
    let java = Java::new(world);
    let lock = rwlock(&client);
    assert_eq!(java.write(600_000), "granted");
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await.unwrap() })
        })
        .collect();
    world.subscribed(CHANNEL).await;
    stanchion_testkit::eventually("the calls wait", || client.waiters() == 3).await;
    world.quiet().await;
    assert_eq!(java.unwrite(), "freed");
    let mut reading = Vec::new();
    for reader in readers {
        let woken = tokio::time::timeout(Duration::from_secs(2), reader).await;
        reading.push(woken.expect("woken, not polling").unwrap());
    }
    assert_eq!(java.read(600_000), "granted");
    drop(reading);
    let writer = tokio::spawn(async move { lock.write().await.unwrap() });
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    assert_eq!(java.unread(), "freed");
    let woken = tokio::time::timeout(Duration::from_secs(2), writer).await;
    drop(woken.expect("woken, not polling").unwrap());
    world.at_rest().await;
}

async fn our_releases_publish_redissons_messages(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let mut messages = world.listen(CHANNEL).await;
    // Redisson reads numbers, so the zero in front of some of them changes nothing.
    lock.read().await.unwrap().release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(0));
    lock.write().await.unwrap().release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(1));
    let reading = lock.write().await.unwrap().downgrade().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(1));
    let other = lock.read().await.unwrap();
    other.release().await.unwrap();
    reading.release().await.unwrap();
    // The release of the first of two readers publishes nothing.
    assert_eq!(messages.next().await.parse(), Ok(0));
    let writing = lock.write().await.unwrap();
    let options = AcquireOptions::new().owner(writing.owner());
    let nested = lock.read_with(options).await.unwrap();
    writing.release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(1));
    nested.release().await.unwrap();
    assert_eq!(messages.next().await.parse(), Ok(0));
    assert!(!lock.danger().force_release().await.unwrap());
    let _forced = lock.write().await.unwrap();
    assert!(lock.danger().force_release().await.unwrap());
    assert_eq!(messages.next().await.parse(), Ok(1));
}

async fn java_and_we_exclude_each_other(world: &World) {
    let client = world.client().await;
    let java = Java::new(world);
    let lock = rwlock(&client);
    assert_eq!(java.write(30_000), "granted");
    assert_eq!(java.read(30_000), "granted");
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.try_write().await.unwrap().is_none());
    let status = lock.status().await.unwrap();
    assert_eq!(status.writer.unwrap().owner, JAVA);
    assert_eq!(status.readers[0].owner, JAVA);
    assert_eq!(java.unread(), "writes on");
    assert_eq!(java.unwrite(), "freed");
    let writing = lock.write().await.unwrap();
    assert_ne!(java.read(30_000), "granted");
    assert_ne!(java.write(30_000), "granted");
    assert_eq!(java.unwrite(), "not owner");
    assert_eq!(java.unread(), "not owner");
    let reading = writing.downgrade().await.unwrap();
    assert_ne!(java.write(30_000), "granted");
    assert_eq!(java.read(30_000), "granted");
    reading.release().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    assert_eq!(java.unread(), "freed");
    assert!(world.keys().is_empty());
}

async fn a_poll_detects_a_java_downgrade(world: &World) {
    let client = stanchion::Client::connect_with(
        world
            .config("client")
            .poll_interval(Duration::from_millis(500)),
    )
    .await
    .unwrap();
    let java = Java::new(world);
    let lock = rwlock(&client);
    assert_eq!(java.write(600_000), "granted");
    assert_eq!(java.read(600_000), "granted");
    let reader = tokio::spawn(async move { lock.read().await.unwrap() });
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    // Redisson publishes nothing here.
    assert_eq!(java.unwrite(), "reads on");
    let reading = tokio::time::timeout(Duration::from_secs(3), reader).await;
    let reading = reading.expect("the reader polls").unwrap();
    assert_eq!(java.unread(), "others read");
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn our_re_entered_hold_is_counted_by_java(world: &World) {
    let client = world.client().await;
    let java = Java::new(world);
    let lock = rwlock(&client);
    let reading = lock.read().await.unwrap();
    let (second, third) = (
        reading.reenter().await.unwrap(),
        reading.reenter().await.unwrap(),
    );
    assert_eq!(java.read(5_000), "granted");
    // Redisson's release looks for the timeout keys 3, 2 and 1 of our reader, and finds key 1.
    assert_eq!(java.unread(), "others read");
    assert_left(world, "job", 25_000..=30_000);
    drop((reading, second, third));
    world.at_rest().await;
}

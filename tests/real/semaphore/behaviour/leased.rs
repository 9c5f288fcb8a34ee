//! Tests the semaphore with leased permits: leases, the return of expired permits, and Redisson's layout.
//!
//! Long: one suite with one set-up.

use std::time::Duration;

use stanchion::semaphore::PermitId;
use stanchion::{AcquireOptions, Client, LeasedPermit, LeasedSemaphore, LostReason, Renewal};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{CHANNEL, Kind, LEASES, NAME};
use stanchion_tests::{World, kept, lease, ms, secs, spawn_ok};

suite! {
    a_leased_semaphore_is_redissons_string_and_sorted_set,
    permits_acquired_together_are_lost_together,
    a_renewal_never_shortens_a_lease,
    status_counts_expired_permits_as_available,
    the_total_is_set_while_permits_are_held,
    ended_leases_are_reaped_a_few_at_a_time,
    a_redisson_process_releases_by_our_id,
    a_redisson_permit_is_reclaimed_by_its_id,
    a_redisson_lease_that_ends_wakes_our_waiter,
    a_redisson_permit_without_a_lease_never_ends,
}

fn of(client: &Client) -> LeasedSemaphore {
    LeasedSemaphore::new(client, NAME).unwrap()
}

async fn semaphore(client: &Client, permits: u32) -> LeasedSemaphore {
    let semaphore = of(client);
    assert!(semaphore.init(permits).await.unwrap());
    semaphore
}

async fn manual(semaphore: &LeasedSemaphore, permits: u32, millis: u64) -> LeasedPermit {
    let options = AcquireOptions::new()
        .lease(lease(ms(millis)))
        .renewal(Renewal::Manual);
    semaphore.acquire_with(permits, options).await.unwrap()
}

fn keys(world: &World) -> Vec<String> {
    Kind::Leased.keys(world)
}

async fn at_rest(world: &World, free: i64) {
    Kind::Leased.at_rest(world, free).await;
}

/// The ids on the server in order, each with the end of its lease in milliseconds.
fn leases(world: &World) -> Vec<(String, i64)> {
    let script = "local r = {} for i, t in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')) do \
        if i % 2 == 1 then t = string.gsub(t, '.', function(c) return string.format('%02x', string.byte(c)) end) end \
        r[i] = t end return table.concat(r, ' ')";
    let text = world.admin(&["EVAL", script, "1", LEASES]);
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .chunks(2)
        .map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap()))
        .collect()
}

fn shown(permit: &LeasedPermit) -> Vec<String> {
    permit.ids().iter().map(PermitId::to_string).collect()
}

fn server_time(world: &World) -> i64 {
    let script = "local t = redis.call('TIME') return math.floor(t[1] * 1000 + t[2] / 1000)";
    world.admin(&["EVAL", script, "0"]).parse().unwrap()
}

async fn a_leased_semaphore_is_redissons_string_and_sorted_set(world: &World) {
    let semaphore = semaphore(&world.client().await, 5)
        .await
        .lease(lease(ms(20_000)));
    assert_eq!(keys(world), [NAME]);
    let three = semaphore.acquire_many(3).await.unwrap();
    assert_eq!(three.count(), 3);
    assert_eq!(keys(world), [NAME, LEASES]);
    assert_eq!(world.admin(&["GET", NAME]), "2");
    assert_eq!(world.admin(&["TYPE", LEASES]), "zset");
    assert_eq!(world.admin(&["PTTL", LEASES]), "-1");
    let (mut ids, on_server) = (shown(&three), leases(world));
    ids.sort();
    assert_eq!(
        ids,
        on_server
            .iter()
            .map(|(id, _)| id.clone())
            .collect::<Vec<_>>()
    );
    assert!(
        ids.iter().all(|id| id.len() == 32),
        "16 bytes, shown in hex"
    );
    let now = server_time(world);
    for (id, end) in on_server {
        assert!(
            (now + 10_000..=now + 20_000).contains(&end),
            "{id} ends at {end}, now {now}"
        );
    }
    three.release().await.unwrap();
    assert_eq!(keys(world), [NAME]);
    assert_eq!(world.admin(&["GET", NAME]), "5");
}

async fn permits_acquired_together_are_lost_together(world: &World) {
    let semaphore = semaphore(&world.client().await, 3).await.lease(kept());
    let three = semaphore.acquire_many(3).await.unwrap();
    let id = three.ids()[1];
    assert!(semaphore.danger().reclaim(&id).await.unwrap());
    assert!(!semaphore.danger().reclaim(&id).await.unwrap());
    assert_eq!(three.lost().await, LostReason::Gone);
    drop(three);
    // The other permits return when their leases end, at the latest.
    eventually("all leases have ended", || {
        leases(world)
            .iter()
            .all(|(_, end)| *end <= server_time(world))
    })
    .await;
    let all = semaphore.acquire_many(3).await.unwrap();
    all.release().await.unwrap();
    at_rest(world, 3).await;
}

async fn a_renewal_never_shortens_a_lease(world: &World) {
    let semaphore = semaphore(&world.client().await, 1).await;
    let permit = manual(&semaphore, 1, 3000).await;
    let far = (server_time(world) + 60_000).to_string();
    let script =
        "return redis.call('ZADD', KEYS[1], ARGV[1], redis.call('ZRANGE', KEYS[1], 0, 0)[1])";
    let _ = world.admin(&["EVAL", script, "1", LEASES, &far]);
    permit.renew().await.unwrap();
    assert_eq!(leases(world)[0].1.to_string(), far, "R3");
    permit.release().await.unwrap();
    at_rest(world, 1).await;
}

async fn status_counts_expired_permits_as_available(world: &World) {
    let semaphore = semaphore(&world.client().await, 5).await;
    let two = semaphore.acquire_many(2).await.unwrap();
    let brief = manual(&semaphore, 1, 10).await;
    // Never released, as if its process had been killed.
    std::mem::forget(brief);
    eventually("the lease has ended on the server", || {
        let now = server_time(world);
        leases(world).iter().filter(|(_, end)| *end <= now).count() == 1
    })
    .await;
    let status = semaphore.status().await.unwrap();
    assert_eq!(
        (
            status.available,
            status.acquired,
            status.total,
            status.permits.len()
        ),
        (3, 2, 5, 3)
    );
    assert_eq!(status.permits[0].remaining, Some(Duration::ZERO));
    assert!(status.permits[1].remaining.unwrap() > secs(10));
    assert!(two.ids().contains(&status.permits[1].id));
    assert_eq!(semaphore.available().await.unwrap(), 3);
    assert_eq!(semaphore.acquired().await.unwrap(), 2);
    assert_eq!(semaphore.total().await.unwrap(), 5);
    assert_eq!(
        world.admin(&["GET", NAME]),
        "2",
        "a status request reaps nothing"
    );
    semaphore
        .acquire_many(3)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    two.release().await.unwrap();
    at_rest(world, 5).await;
}

async fn the_total_is_set_while_permits_are_held(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let semaphore = of(&ours);
    assert_eq!(semaphore.set_total(2).await.unwrap(), 0);
    let two = semaphore.acquire_many(2).await.unwrap();
    let waiting = spawn_ok(of(&theirs).acquire());
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    assert_eq!(semaphore.set_total(3).await.unwrap(), 2);
    let third = waiting.await.unwrap();
    assert_eq!(semaphore.set_total(1).await.unwrap(), 3);
    assert_eq!(semaphore.available().await.unwrap(), -2);
    two.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    third.release().await.unwrap();
    at_rest(world, 1).await;
}

/// Scripts with the effects of Redisson's acquire and release. Redisson passes the time of its own clock.
const JAVA_ACQUIRE: &str = "if redis.call('GET', KEYS[1]) + 0 < 1 then return 'busy' end \
    redis.call('DECRBY', KEYS[1], 1); redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1]); return 'OK'";
const JAVA_RELEASE: &str = "local id = string.gsub(ARGV[1], '..', function(h) return string.char(tonumber(h, 16)) end) \
    if redis.call('ZREM', KEYS[2], id) == 0 then return 0 end \
    redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], 1)); return 1";

const JAVA_ID: &str = "java-permit-0001";

fn java(world: &World, script: &str, args: &[&str]) -> String {
    let mut command = vec!["EVAL", script, "3", NAME, LEASES, CHANNEL];
    command.extend(args);
    world.admin(&command)
}

async fn ended_leases_are_reaped_a_few_at_a_time(world: &World) {
    let client = world.client().await;
    semaphore(&client, 0).await;
    // Expired permits, as of killed processes.
    let crash = "for i = 1, 10000 do redis.call('ZADD', KEYS[1], i, string.format('%016d', i)) end return 1";
    let _ = world.admin(&["EVAL", crash, "1", LEASES]);
    assert_eq!(of(&client).available().await.unwrap(), 10_000);
    let one = of(&client).try_acquire().await.unwrap().unwrap();
    // The request reaps 101 permits and takes one of them.
    assert_eq!(world.admin(&["ZCARD", LEASES]), "9900");
    assert_eq!(world.admin(&["GET", NAME]), "100");
    assert_eq!(of(&client).total().await.unwrap(), 10_000);
    one.release().await.unwrap();
    let some = of(&client).acquire_many(1000).await.unwrap();
    assert_eq!(of(&client).total().await.unwrap(), 10_000);
    some.release().await.unwrap();
    assert_eq!(of(&client).available().await.unwrap(), 10_000);
}

async fn a_redisson_process_releases_by_our_id(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let semaphore = semaphore(&ours, 1).await.lease(kept());
    let permit = semaphore.acquire().await.unwrap();
    let waiting = spawn_ok(of(&theirs).acquire());
    world.subscribed(CHANNEL).await;
    let id = permit.ids()[0].to_string();
    assert_eq!(java(world, JAVA_RELEASE, &[&id]), "1");
    assert_eq!(permit.lost().await, LostReason::Gone);
    waiting.await.unwrap().release().await.unwrap();
    drop(permit);
    at_rest(world, 1).await;
}

async fn a_redisson_permit_is_reclaimed_by_its_id(world: &World) {
    let semaphore = semaphore(&world.client().await, 1).await;
    let end = (server_time(world) + 60_000).to_string();
    assert_eq!(java(world, JAVA_ACQUIRE, &[JAVA_ID, &end]), "OK");
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let held = semaphore.status().await.unwrap().permits[0].clone();
    assert_eq!(held.id.as_bytes(), JAVA_ID.as_bytes());
    let parsed: PermitId = held.id.to_string().parse().unwrap();
    assert!(semaphore.danger().reclaim(&parsed).await.unwrap());
    at_rest(world, 1).await;
}

async fn a_redisson_lease_that_ends_wakes_our_waiter(world: &World) {
    let semaphore = semaphore(&world.client().await, 1).await;
    let end = (server_time(world) + 250).to_string();
    assert_eq!(java(world, JAVA_ACQUIRE, &[JAVA_ID, &end]), "OK");
    let permit = semaphore.acquire_timeout(secs(3)).await.unwrap();
    assert!(server_time(world) >= end.parse().unwrap());
    permit.release().await.unwrap();
    at_rest(world, 1).await;
}

async fn a_redisson_permit_without_a_lease_never_ends(world: &World) {
    let client = world.client().await;
    let semaphore = semaphore(&client, 1).await;
    assert_eq!(
        java(world, JAVA_ACQUIRE, &[JAVA_ID, "922337203685477"]),
        "OK"
    );
    let status = semaphore.status().await.unwrap();
    assert_eq!((status.acquired, status.permits[0].remaining), (1, None));
    let waiting = spawn_ok(semaphore.acquire());
    world.subscribed(CHANNEL).await;
    // Without an end of the lease there is nothing to poll for. `quiet` fails if the waiter polls.
    world.quiet().await;
    let id: String = JAVA_ID.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(java(world, JAVA_RELEASE, &[&id]), "1");
    waiting.await.unwrap().release().await.unwrap();
    at_rest(world, 1).await;
}

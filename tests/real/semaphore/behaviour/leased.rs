//! Tests the semaphore with leased permits: leases, the return of expired permits, and Redisson's layout.
//!
//! Long: one suite with one set-up.

use std::time::Duration;

use stanchion::semaphore::PermitId;
use stanchion::{
    AcquireError, AcquireOptions, Client, Lease, LeasedPermit, LeasedSemaphore, LostReason,
    QueryError, Rejection, ReleaseError, Renewal,
};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{CHANNEL, Kind, LEASES, NAME};
use stanchion_tests::{World, kept};

suite! {
    a_leased_semaphore_is_redissons_string_and_sorted_set,
    permits_acquired_together_are_lost_together,
    a_renewal_never_shortens_a_lease,
    status_counts_expired_permits_as_available,
    the_total_is_set_while_permits_are_held,
    ended_leases_are_reaped_a_few_at_a_time,
    a_request_reaps_all_the_expired_permits_that_it_needs,
    a_redisson_process_releases_by_our_id,
    a_redisson_permit_is_reclaimed_by_its_id,
    a_redisson_lease_that_ends_wakes_our_waiter,
    a_redisson_permit_without_a_lease_never_ends,
    a_permit_that_redisson_reaps_too_early_is_lost,
    the_key_of_the_leases_gets_the_ttl_of_the_semaphore,
    a_big_request_that_is_dropped_reserves_no_permits,
    a_foreign_key_is_left_untouched,
    a_release_that_is_refused_loses_no_permit,
    an_owner_is_refused_before_anything_is_sent,
    bad_numbers_are_refused_before_anything_is_sent,
}

fn of(client: &Client) -> LeasedSemaphore {
    LeasedSemaphore::new(client, NAME).unwrap()
}

async fn semaphore(client: &Client, permits: u32) -> LeasedSemaphore {
    let semaphore = of(client);
    assert!(semaphore.init(permits).await.unwrap());
    semaphore
}

fn millis(length: u64) -> Lease {
    Lease::new(Duration::from_millis(length)).unwrap()
}

async fn manual(semaphore: &LeasedSemaphore, permits: u32, lease: u64) -> LeasedPermit {
    let options = AcquireOptions::new()
        .lease(millis(lease))
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
        .lease(millis(20_000));
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
    assert!(status.permits[1].remaining.unwrap() > Duration::from_secs(10));
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
    let waiting = tokio::spawn({
        let semaphore = of(&theirs);
        async move { semaphore.acquire().await.unwrap() }
    });
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

/// Scripts with the effects of Redisson's acquire, release and reaping. Redisson passes the time of its own clock.
const JAVA_ACQUIRE: &str = "if redis.call('GET', KEYS[1]) + 0 < 1 then return 'busy' end \
    redis.call('DECRBY', KEYS[1], 1); redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1]); return 'OK'";
const JAVA_RELEASE: &str = "local id = string.gsub(ARGV[1], '..', function(h) return string.char(tonumber(h, 16)) end) \
    if redis.call('ZREM', KEYS[2], id) == 0 then return 0 end \
    redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], 1)); return 1";
const JAVA_REAP: &str = "local ids = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[1], 'LIMIT', 0, 1000) \
    if #ids > 0 then redis.call('ZREM', KEYS[2], unpack(ids)) \
    local v = redis.call('INCRBY', KEYS[1], #ids) if v > 0 then redis.call('PUBLISH', KEYS[3], v) end end return #ids";

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

async fn a_request_reaps_all_the_expired_permits_that_it_needs(world: &World) {
    let semaphore = semaphore(&world.client().await, 500).await;
    let dead = manual(&semaphore, 500, 10).await;
    eventually("the leases have ended on the server", || {
        world.admin(&["ZCOUNT", LEASES, "-inf", &server_time(world).to_string()]) == "500"
    })
    .await;
    let all = semaphore.try_acquire_many(500).await.unwrap().unwrap();
    assert!(!dead.is_held());
    drop((dead, all));
    at_rest(world, 500).await;
}

async fn a_redisson_process_releases_by_our_id(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let semaphore = semaphore(&ours, 1).await.lease(kept());
    let permit = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = of(&theirs);
        async move { semaphore.acquire().await.unwrap() }
    });
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
    let permit = semaphore
        .acquire_timeout(Duration::from_secs(3))
        .await
        .unwrap();
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
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    world.subscribed(CHANNEL).await;
    // Without an end of the lease there is nothing to poll for. `quiet` fails if the waiter polls.
    world.quiet().await;
    let id: String = JAVA_ID.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(java(world, JAVA_RELEASE, &[&id]), "1");
    waiting.await.unwrap().release().await.unwrap();
    at_rest(world, 1).await;
}

async fn a_permit_that_redisson_reaps_too_early_is_lost(world: &World) {
    let semaphore = semaphore(&world.client().await, 2).await.lease(kept());
    let permit = semaphore.acquire_many(2).await.unwrap();
    // Redisson's process has a clock that is an hour ahead.
    let now = (server_time(world) + 3_600_000).to_string();
    assert_eq!(java(world, JAVA_REAP, &[&now]), "2");
    assert_eq!(permit.lost().await, LostReason::Gone);
    let error = permit.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(
        world.admin(&["GET", NAME]),
        "2",
        "no permit is returned twice"
    );
    at_rest(world, 2).await;
}

async fn the_key_of_the_leases_gets_the_ttl_of_the_semaphore(world: &World) {
    let semaphore = semaphore(&world.client().await, 2).await;
    let _ = world.admin(&["PEXPIRE", NAME, "90000"]);
    let permit = semaphore.acquire().await.unwrap();
    for key in [NAME, LEASES] {
        let left: i64 = world.admin(&["PTTL", key]).parse().unwrap();
        assert!((60_000..=90_000).contains(&left), "{key}: {left}");
    }
    permit.release().await.unwrap();
}

async fn a_big_request_that_is_dropped_reserves_no_permits(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let semaphore = semaphore(&ours, 3).await;
    let held = semaphore.acquire_many(2).await.unwrap();
    let big = tokio::spawn({
        let semaphore = of(&theirs);
        async move { semaphore.acquire_many(3).await }
    });
    eventually("the request is queued", || Kind::Leased.queued(world) == 1).await;
    world.waiting(&theirs, 1, CHANNEL).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    big.abort();
    eventually("the queue entry is removed", || {
        Kind::Leased.queued(world) == 0
    })
    .await;
    semaphore
        .try_acquire()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    held.release().await.unwrap();
    at_rest(world, 3).await;
}

async fn a_foreign_key_is_left_untouched(world: &World) {
    let semaphore = of(&world.client().await);
    let foreign: [[&[&str]; 2]; 3] = [
        [
            &["HSET", NAME, "field", "precious"],
            &["HGET", NAME, "field"],
        ],
        [&["SET", NAME, "precious"], &["GET", NAME]],
        [&["SET", LEASES, "precious"], &["GET", LEASES]],
    ];
    for [make, read] in foreign {
        let _ = world.admin(make);
        let key = make[1];
        if key == LEASES {
            semaphore.init(1).await.unwrap();
        }
        let refused = |result: Result<(), QueryError>| match result.unwrap_err() {
            QueryError::Rejected {
                rejection: Rejection::WrongType { .. },
            } => {}
            other => panic!("{make:?}: {other}"),
        };
        match semaphore.acquire().await.unwrap_err() {
            AcquireError::Rejected {
                rejection: Rejection::WrongType { .. },
                ..
            } => {}
            other => panic!("{make:?}: {other}"),
        }
        assert!(semaphore.try_acquire_many(2).await.is_err());
        refused(semaphore.status().await.map(drop));
        refused(semaphore.set_total(3).await.map(drop));
        let id: PermitId = "00112233445566778899aabbccddeeff".parse().unwrap();
        refused(semaphore.danger().reclaim(&id).await.map(drop));
        if key == NAME {
            refused(semaphore.init(1).await.map(drop));
            refused(semaphore.add(1).await.map(drop));
            refused(semaphore.drain().await.map(drop));
            refused(semaphore.danger().delete().await.map(drop));
        }
        assert_eq!(world.admin(read), "precious");
        let _ = world.admin(&["DEL", NAME, LEASES]);
    }
}

async fn a_release_that_is_refused_loses_no_permit(world: &World) {
    let client = world.client().await;
    let semaphore = of(&client);
    semaphore.init(3).await.unwrap();
    let foreign: [&[&str]; 3] = [
        &["HSET", NAME, "field", "precious"],
        &["SET", NAME, "1.5"],
        &["SET", NAME, "precious"],
    ];
    for make in foreign {
        let two = semaphore.acquire_many(2).await.unwrap();
        let ids = two.ids();
        let _ = world.admin(&["DEL", NAME]);
        let _ = world.admin(make);
        assert!(two.release().await.is_err(), "{make:?}");
        assert!(semaphore.danger().reclaim(&ids[0]).await.is_err());
        world.quiet().await;
        assert_eq!(world.admin(&["ZCARD", LEASES]), "2", "{make:?}");
        let _ = world.admin(&["SET", NAME, "1"]);
        for id in ids {
            assert!(semaphore.danger().reclaim(&id).await.unwrap());
        }
        assert_eq!(semaphore.available().await.unwrap(), 3);
    }
}

async fn an_owner_is_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let semaphore = of(&client);
    let before = world.scripts_run();
    let options = AcquireOptions::new().owner(&client.owner());
    let error = semaphore
        .acquire_with(1, options.clone())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("owner: permits are not re-entered"),
        "{error}"
    );
    assert!(semaphore.try_acquire_with(1, options).await.is_err());
    assert_eq!(world.scripts_run(), before);
}

async fn bad_numbers_are_refused_before_anything_is_sent(world: &World) {
    let semaphore = of(&world.client().await);
    let before = world.scripts_run();
    for bad in [0, 1001, u32::MAX] {
        let text = semaphore.acquire_many(bad).await.unwrap_err().to_string();
        assert!(
            text.contains(&format!("{bad} permits: a request asks for 1 to 1000")),
            "{text}"
        );
        assert!(semaphore.try_acquire_many(bad).await.is_err());
    }
    for bad in [2_147_483_648, u32::MAX] {
        for result in [
            semaphore.init(bad).await.map(drop),
            semaphore.set_total(bad).await.map(drop),
            semaphore.add(bad).await.map(drop),
            semaphore.reduce(bad).await.map(drop),
        ] {
            assert!(
                result
                    .unwrap_err()
                    .to_string()
                    .contains("at most 2147483647")
            );
        }
    }
    assert_eq!(world.scripts_run(), before);
}

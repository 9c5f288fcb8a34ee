//! Tests of the limiter's keys: TTLs, repair of missing or wrong keys, foreign keys, and names.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::limiter::Usage;
use stanchion::{AcquireError, QueryError, RateLimiter, Rejection};
use stanchion_tests::{World, rejection_of};
use tokio::time::Instant;

use stanchion_tests::limiter::*;

fn ttls(world: &World) -> [String; 3] {
    [NAME, VALUE, LOG].map(|key| world.admin(&["PTTL", key]))
}

#[tokio::test(start_paused = true)]
async fn all_keys_have_the_same_ttl_or_none() {
    let (world, client) = World::engine().with_client().await;
    let api = limiter(&client, "10/s");
    let grant = granted(&api, 3).await;
    assert_eq!(ttls(&world), ["3600000"; 3], "an hour by default");
    tokio::time::sleep(ms(500)).await;
    grant.refund().await.unwrap();
    assert_eq!(ttls(&world), ["3599500", "3599500", "-2"]);
    let _ = granted(&api, 10).await;
    assert_eq!(ttls(&world), ["3600000"; 3]);
    api.status().await.unwrap();
    limited(api.try_acquire().await.unwrap());
    assert_eq!(ttls(&world), ["3600000"; 3]);
    assert!(api.danger().delete().await.unwrap());
    // A long interval lengthens the TTL.
    let _ = granted(&limiter(&client, "10/1d"), 1).await;
    assert_eq!(ttls(&world), ["864000000"; 3]);
    api.danger().delete().await.unwrap();
    // The shortest time is three intervals.
    let least = limiter(&client, "10/s").keep_alive(ms(3000));
    let _ = granted(&least, 1).await;
    assert_eq!(ttls(&world), ["3000"; 3]);
    api.danger().delete().await.unwrap();
    let endless = limiter(&client, "10/s").keep_alive(None);
    let _ = granted(&endless, 1).await;
    assert_eq!(ttls(&world), ["-1"; 3]);
    assert_eq!(endless.status().await.unwrap().keep_alive, None);
    // A TTL that another client sets on the limiter applies to all its keys, as with Redisson.
    let _ = world.admin(&["PEXPIRE", NAME, "50000"]);
    let _ = granted(&endless, 1).await;
    assert_eq!(ttls(&world), ["50000"; 3]);
    endless.set_quota(quota("10/s"), Usage::Keep).await.unwrap();
    assert_eq!(ttls(&world), ["50000"; 3]);
}

/// A time that the server refuses is rejected before anything is sent. A script that receives such a time uses the longest one.
#[tokio::test(start_paused = true)]
async fn a_keep_alive_time_has_a_bound() {
    let (world, client) = World::engine().with_client().await;
    let years = |n: u64| secs(n * 365 * 86_400);
    for time in [Duration::MAX, ms(u64::MAX), years(11), ms(2999)] {
        let odd = limiter(&client, "10/s").keep_alive(time);
        let error = odd.try_acquire().await.unwrap_err().to_string();
        let rule = "three intervals of the quota to 10 years";
        assert!(error.contains(rule), "{error}");
        let error = odd.set_quota(quota("9/s"), Usage::Keep).await.unwrap_err();
        assert!(error.to_string().contains(rule), "{error}");
    }
    let longest = "315360000000";
    let script = concat!(
        include_str!("../../../crates/stanchion-limiter/lua/limiter/log.lua"),
        include_str!("../../../crates/stanchion-limiter/lua/limiter/acquire.lua")
    );
    let most = u64::MAX.to_string();
    let entry = "\u{1}e\u{1}\0\0\0";
    let late = "9000000000000000";
    let command = [
        "EVAL",
        script,
        "7",
        NAME,
        VALUE,
        "own value",
        LOG,
        "own log",
        "written",
        "own written",
        entry,
        "1",
        late,
        "0",
        "0",
        "10",
        "1000",
        "0",
        &most,
        "0",
    ];
    drop(world.as_engine().execute(&command));
    assert_eq!(ttls(&world), [longest; 3]);
    // The next request reads the stored time.
    let _ = granted(&limiter(&client, "10/s").keep_alive(years(10)), 1).await;
    assert_eq!(ttls(&world), [longest; 3]);
}

/// After the loss of any keys no request fails. The interval of the loss has at most twice the quota.
#[tokio::test(start_paused = true)]
async fn missing_keys_are_created_again() {
    for missing in [
        &[VALUE][..],
        &[LOG],
        &[VALUE, LOG],
        &[NAME],
        &[NAME, VALUE, LOG],
    ] {
        let world = World::engine();
        let api = limiter(&world.client().await, "10/s");
        let (started, record) = (Instant::now(), Record::default());
        for n in 0..60 {
            if n == 25 {
                missing
                    .iter()
                    .for_each(|key| drop(world.admin(&["DEL", key])));
            }
            let permits = 1 + n % 3;
            api.acquire_many(permits).await.unwrap();
            record.note(started, permits);
        }
        record.check(20, ms(1000));
        tokio::time::sleep(ms(3000)).await;
        let _ = granted(&api, 10).await;
        assert_eq!(account(world.as_engine()), (0, 10), "{missing:?}");
    }
}

/// The counter drifts, for example, when Redisson resends a request: subtracted twice, logged once.
#[tokio::test(start_paused = true)]
async fn a_wrong_counter_is_corrected() {
    for (drift, text) in [("-3", "low"), ("4", "high")] {
        let world = World::engine();
        let api = limiter(&world.client().await, "10/s");
        for _ in 0..5 {
            let _ = granted(&api, 1).await;
        }
        let _ = world.admin(&["INCRBY", VALUE, drift]);
        if text == "low" {
            for _ in 0..5 {
                let _ = granted(&api, 1).await;
            }
            limited(api.try_acquire().await.unwrap());
            assert_eq!(account(world.as_engine()), (0, 10));
        } else {
            // Redisson's `release` also makes the counter too large, so the extra permits are granted.
            let _ = granted(&api, 9).await;
            limited(api.try_acquire().await.unwrap());
            tokio::time::sleep(ms(1_000)).await;
            let _ = granted(&api, 10).await;
            assert_eq!(account(world.as_engine()), (0, 10));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_keys_are_rejected_and_unchanged() {
    let foreign: [&[&str]; 6] = [
        &["SET", NAME, "text"],
        &["HSET", NAME, "7c9e6679-7425-40de-944b-e07fc1f90ae7:42", "1"],
        &["HSET", NAME, "rate", "many", "interval", "1", "type", "0"],
        &["SET", VALUE, "text"],
        &["RPUSH", VALUE, "item"],
        &["SET", LOG, "1"],
    ];
    for command in foreign {
        let world = World::engine();
        let api = limiter(&world.client().await, "10/s");
        let _ = world.admin(command);
        let before = world.dump();
        let wrong = |rejection: &Rejection| matches!(rejection, Rejection::WrongType { .. });
        match api.acquire().await {
            Err(AcquireError::Rejected { rejection, .. }) => {
                assert!(wrong(&rejection), "{rejection}");
            }
            other => panic!("{command:?}: {other:?}"),
        }
        if command[1] == NAME {
            let setting = api.set_quota(quota("1/s"), Usage::Reset).await;
            let all = [
                setting.unwrap_err(),
                api.status().await.unwrap_err(),
                api.danger().delete().await.unwrap_err(),
            ];
            for error in all {
                let rejected =
                    matches!(&error, QueryError::Rejected { rejection } if wrong(rejection));
                assert!(rejected, "{command:?}: {error}");
            }
        }
        assert_eq!(world.dump(), before, "{command:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_memory_rejects_requests_and_accepts_refunds() {
    let world = World::engine();
    let api = limiter(&world.client().await, "10/m");
    let grant = granted(&api, 4).await;
    world.faults().out_of_memory(Switch::On);
    let error = api.try_acquire().await.unwrap_err();
    assert!(
        matches!(rejection_of(&error), Rejection::OutOfMemory { .. }),
        "{error}"
    );
    assert_eq!(account(world.as_engine()), (6, 4));
    assert!(grant.refund().await.unwrap());
    untouched_with_value(&world);
}

fn untouched_with_value(world: &World) {
    untouched(world, 10);
}

#[tokio::test(start_paused = true)]
async fn names_of_any_bytes_have_separate_keys() {
    let (world, client) = World::engine().with_client().await;
    for name in [
        &b"a b\nc"[..],
        b"\xff\xfe",
        "ключ".as_bytes(),
        b"{tag}:x",
        b"a{b",
        b"}x{",
    ] {
        let api = RateLimiter::new(&client, name, quota("2/m")).unwrap();
        assert!(api.try_acquire_many(2).await.unwrap().granted().is_some());
        limited(api.try_acquire().await.unwrap());
        assert!(api.danger().delete().await.unwrap(), "{name:?}");
        assert_eq!(world.keys(), [""; 0], "{name:?}");
    }
    // `{api}` would share the counter of `api`, but not its quota.
    assert!(RateLimiter::new(&client, "{api}", quota("2/m")).is_err());
    assert!(RateLimiter::new(&client, "", quota("2/m")).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_refused_name_is_that_of_a_limiter() {
    let client = World::engine().client().await;
    let error = RateLimiter::new(&client, "{x}", quota("1/s")).unwrap_err();
    assert!(error.to_string().contains("rate limiter"), "{error}");
}

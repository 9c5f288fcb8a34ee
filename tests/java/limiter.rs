//! `RRateLimiter` and `RateLimiter`: one quota, one log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::json;
use stanchion::limiter::{Attempt, Usage, Waiting};
use stanchion::{Client, RateLimiter};
use stanchion_testkit::{Value, eventually};
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;

const VALUE: &str = "{api}:value";
const LOG: &str = "{api}:permits";

fn api(client: &Client, quota: &str) -> RateLimiter {
    RateLimiter::new(client, "api", quota.parse().unwrap()).unwrap()
}

fn is_granted(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Granted(_))
}

/// The entries of the log: bytes, score, permits.
fn log(fleet: &Fleet) -> Vec<(Vec<u8>, i64, u32)> {
    let entries = fleet.server.cli(&["ZRANGE", LOG, "0", "-1", "WITHSCORES"]);
    let entry = |pair: &[Value]| {
        let Value::Bulk(entry) = &pair[0] else {
            panic!("{pair:?}");
        };
        let permits = u32::from_le_bytes(entry[17..].try_into().unwrap());
        (entry.clone(), pair[1].as_text().parse().unwrap(), permits)
    };
    entries.as_array().chunks(2).map(entry).collect()
}

#[tokio::test]
async fn both_libraries_store_a_limiter_in_the_same_format() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("java", Kind::Limiter, "api");
    let config = || {
        let fields = fleet.server.cli(&["HGETALL", "api"]).as_texts();
        let pairs = fields
            .chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()));
        pairs.collect::<BTreeMap<_, _>>()
    };
    assert!(
        java.with("init", json!({"n": 70_000, "interval": 60_000}))
            .await
            .bool()
    );
    let theirs = config();
    fleet.server.flush();
    let ours = api(&fleet.rust().await, "70000/m").keep_alive(None);
    assert!(is_granted(&ours.try_acquire_many(65_543).await.unwrap()));
    assert_eq!(config(), theirs);
    assert!(java.with("try", json!({"n": 259})).await.bool());
    let log = log(&fleet);
    assert_eq!(log.len(), 2);
    for (entry, _, permits) in &log {
        assert_eq!((entry.len(), entry[0]), (21, 16));
        let own = entry[1..].starts_with(b"stn0");
        assert_eq!(*permits, if own { 65_543 } else { 259 });
    }
    // Each library reads the entries of both.
    assert_eq!(java.done("available").await.int(), 4198);
    assert_eq!(ours.status().await.unwrap().free, 4198);
    assert_eq!(java.done("rate").await.int(), 70_000);
}

#[tokio::test]
async fn permits_of_one_library_limit_the_other() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("java", Kind::Limiter, "api");
    let ours = api(&fleet.rust().await, "3/2s");
    java.with("init", json!({"n": 3, "interval": 2000}))
        .await
        .value();
    assert!(is_granted(&ours.try_acquire_many(2).await.unwrap()));
    assert!(java.done("try").await.bool());
    assert!(!java.done("try").await.bool());
    match ours.try_acquire().await.unwrap() {
        Attempt::Limited(limited) => {
            assert_eq!((limited.limit, limited.remaining), (3, 0));
            assert!(limited.retry_after <= ms(2000), "{limited}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!java.with("try", json!({"wait": 100})).await.bool());
    // Our permits return first, and Java acquires one of them.
    assert!(java.with("try", json!({"wait": 6000})).await.bool());
    let grant = ours.acquire().await.unwrap();
    // Java can use a refund at once.
    eventually("the permits of Java have returned", || {
        log(&fleet).len() <= 2
    })
    .await;
    let free = java.done("available").await.int();
    assert!(grant.refund().await.unwrap());
    assert!(java.done("available").await.int() > free);
}

#[tokio::test]
async fn java_counts_bookings_as_taken() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("java", Kind::Limiter, "api");
    java.with("init", json!({"n": 2, "interval": 3000}))
        .await
        .value();
    let ours = api(&fleet.rust().await, "2/3s");
    assert!(is_granted(&ours.try_acquire_many(2).await.unwrap()));
    let booked: Vec<_> = (0..2).map(|_| tokio::spawn(ours.acquire())).collect();
    eventually("both are booked", || log(&fleet).len() == 3).await;
    assert_eq!(java.done("available").await.int(), -2);
    assert!(!java.done("try").await.bool());
    for waiter in booked {
        waiter.await.unwrap().unwrap();
    }
    assert_eq!(java.done("available").await.int(), 0);
    // After the interval Java, too, counts no bookings.
    tokio::time::sleep(ms(3050)).await;
    assert_eq!(java.done("available").await.int(), 2);
    assert!(java.with("try", json!({"n": 2})).await.bool());
}

#[tokio::test]
async fn changes_of_rate_and_releases_by_java_take_effect() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("java", Kind::Limiter, "api");
    let ours = api(&fleet.rust().await, "4/m");
    java.with("init", json!({"n": 4, "interval": 60_000}))
        .await
        .value();
    assert!(is_granted(&ours.try_acquire_many(4).await.unwrap()));
    // Java's `release` raises the counter and does not change the log.
    java.with("release", json!({"n": 2})).await.value();
    assert!(is_granted(&ours.try_acquire_many(2).await.unwrap()));
    assert!(!is_granted(&ours.try_acquire().await.unwrap()));
    // Lowers and then raises the rate while permits are taken. In Java the number of free permits is never negative.
    assert!(
        java.with("update", json!({"n": 3, "interval": 60_000}))
            .await
            .bool()
    );
    assert!(!is_granted(&ours.try_acquire().await.unwrap()));
    assert!(
        java.with("update", json!({"n": 9, "interval": 60_000}))
            .await
            .bool()
    );
    assert_eq!(
        ours.status().await.unwrap().quota,
        Some("9/m".parse().unwrap())
    );
    assert!(is_granted(&ours.try_acquire_many(3).await.unwrap()));
    assert!(!is_granted(&ours.try_acquire().await.unwrap()));
    // `setRate` discards the permits that are taken.
    java.with("reset", json!({"n": 5, "interval": 60_000}))
        .await
        .value();
    assert!(is_granted(&ours.try_acquire_many(5).await.unwrap()));
    // A rate for each client instead of one for all.
    let own = json!({"n": 2, "interval": 60_000, "scope": "own"});
    java.with("reset", own).await.value();
    assert!(java.with("try", json!({"n": 2})).await.bool());
    assert!(is_granted(&ours.try_acquire_many(2).await.unwrap()));
    assert!(!java.done("try").await.bool());
    assert!(!is_granted(&ours.try_acquire().await.unwrap()));
    // Java uses a quota that this library sets.
    ours.set_quota("6/m".parse().unwrap(), Usage::Reset)
        .await
        .unwrap();
    assert!(java.with("try", json!({"n": 6})).await.bool());
    assert!(!java.done("try").await.bool());
    assert!(java.done("delete").await.bool());
    assert!(is_granted(&ours.try_acquire_many(4).await.unwrap()));
    // Our request creates the limiter, so Java does not need to set a rate.
    assert_eq!(java.done("available").await.int(), 0);
}

/// Parses a line of MONITOR that changes the log: `(time in ms, command, arguments after the key)`.
fn write(line: &str) -> Option<(i64, String, Vec<&str>)> {
    let (time, rest) = line.split_once(" [")?;
    let (_, rest) = rest.split_once("] \"")?;
    let mut words = rest.strip_suffix('"')?.split("\" \"");
    let command = words.next()?.to_uppercase();
    let writes = ["ZADD", "ZREM", "ZREMRANGEBYSCORE"].contains(&command.as_str());
    let at = time.replace('.', "").parse::<i64>().ok()? / 1000;
    (writes && words.next() == Some(LOG)).then(|| (at, command, words.collect()))
}

/// With `Waiting::Asked`, neither library starves, and no permit is granted before an earlier one has returned.
///
/// The writes are checked in the server's order, not in the order of scores. Java's scores are the times at which it *sent* the requests,
/// so a delayed request can have a score before that of the permit that returned for it.
#[tokio::test]
async fn waiters_share_a_limiter_with_java() {
    let Some(fleet) = fleet().await else { return };
    let (rate, interval) = (20_usize, 500_i64);
    let java: Vec<_> = (0..4)
        .map(|n| fleet.java(&format!("java-{n}"), Kind::Limiter, "api"))
        .collect();
    java[0]
        .with("init", json!({"n": rate, "interval": interval}))
        .await
        .value();
    let monitor = fleet.server.monitor();
    let over = Arc::new(AtomicBool::new(false));
    let (by_us, by_java) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for client in [fleet.rust().await, fleet.rust().await] {
        for _ in 0..2 {
            let ours = api(&client, "20/500ms").waiting(Waiting::Asked);
            let (over, count) = (Arc::clone(&over), Arc::clone(&by_us));
            tasks.push(tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    ours.acquire().await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    for actor in java {
        let (over, count) = (Arc::clone(&over), Arc::clone(&by_java));
        tasks.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                actor.start("acquire", json!({})).within(LONG).await.value();
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    tokio::time::sleep(secs(8)).await;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let (ours, theirs) = (
        by_us.load(Ordering::Relaxed),
        by_java.load(Ordering::Relaxed),
    );
    assert!(ours > 30 && theirs > 30, "ours {ours}, Java's {theirs}");
    let lines = monitor.lines();
    let (mut taken, mut grants) = (BTreeMap::new(), 0);
    for (at, command, words) in lines.iter().filter_map(|line| write(line)) {
        match (command.as_str(), words.as_slice()) {
            ("ZADD", [score, entry]) => {
                grants += 1;
                taken.insert(*entry, score.parse::<i64>().unwrap());
                assert!(taken.len() <= rate, "{} taken at {at}", taken.len());
            }
            ("ZREM", entries) => {
                let scores = entries.iter().filter_map(|entry| taken.remove(entry));
                let last = scores.max().unwrap();
                assert!(last + interval <= at, "{last} came back at {at}");
            }
            ("ZREMRANGEBYSCORE", ["0", last]) => {
                let last: i64 = last.parse().unwrap();
                assert!(last + interval <= at, "{last} came back at {at}");
                taken.retain(|_, score| *score > last);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(grants, ours + theirs);
    assert_eq!(fleet.server.cli(&["EXISTS", VALUE]).as_int(), 1);
}

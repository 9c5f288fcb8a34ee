//! `RPermitExpirableSemaphore` and `LeasedSemaphore`: permits with an id and a lease.

use serde_json::json;
use stanchion::{
    AcquireOptions, Client, IdleExpiry, LeasedPermit, LeasedSemaphore, LostReason, Renewal,
};
use stanchion_testkit::{Signal, machine_clock};
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;
use tokio::task::JoinHandle;

const CHANNEL: &str = "redisson_sc:{seats}";
const TTL: u64 = 1200;

fn seats(client: &Client) -> LeasedSemaphore {
    let seats = LeasedSemaphore::new(client, "seats").unwrap();
    seats.lease(lease(LONG))
}

fn acquiring(seats: &LeasedSemaphore) -> JoinHandle<Result<LeasedPermit, stanchion::AcquireError>> {
    let seats = seats.clone();
    tokio::spawn(async move { seats.acquire().await })
}

fn id(permit: &LeasedPermit) -> String {
    permit.ids()[0].to_string()
}

#[tokio::test]
async fn both_count_the_same_permits() {
    let Some(fleet) = fleet().await else { return };
    let (ours, java) = (
        seats(&fleet.rust().await),
        fleet.java("java", Kind::Leased, "seats"),
    );
    let both_see = async |available: i64, acquired: u32, total: i64| {
        let status = ours.status().await.unwrap();
        assert_eq!(
            (status.available, status.acquired, status.total),
            (available, acquired, total)
        );
        assert_eq!(java.done("available").await.int(), available);
        assert_eq!(java.done("acquired").await.int(), i64::from(acquired));
        assert_eq!(java.done("total").await.int(), total);
    };
    assert!(ours.init(3).await.unwrap());
    assert!(!java.with("init", json!({"n": 9})).await.bool());
    let pair = ours.acquire_many(2).await.unwrap();
    both_see(1, 2, 3).await;
    let theirs = java.with("acquire", json!({"lease": 30_000})).await;
    both_see(0, 3, 3).await;
    let listed: Vec<String> = ours
        .status()
        .await
        .unwrap()
        .permits
        .iter()
        .map(|held| held.id.to_string())
        .collect();
    assert!(listed.contains(&theirs.text().to_owned()), "{listed:?}");
    for id in pair.ids() {
        let left = java
            .with("leaseTime", json!({"permit": id.to_string()}))
            .await;
        assert!((20_000..=30_000).contains(&left.int()), "{left:?}");
    }
    java.with("setTotal", json!({"n": 5})).await.value();
    both_see(2, 3, 5).await;
    assert_eq!(ours.set_total(2).await.unwrap(), 5);
    both_see(-1, 3, 2).await;
    pair.release().await.unwrap();
    both_see(1, 1, 2).await;
    java.with("release", json!({"permit": theirs.text()}))
        .await
        .value();
    both_see(2, 0, 2).await;
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn releases_wake_the_other_side() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await);
    let java = fleet.java("java", Kind::Leased, "seats");
    assert!(ours.init(1).await.unwrap());
    let permit = ours.acquire().await.unwrap();
    let waiter = java.start("acquire", json!({}));
    fleet.waiting(CHANNEL, 1).await;
    permit.release().await.unwrap();
    let theirs = java_granted(waiter, SOON).await;
    // Java's permit has no lease, so our waiter waits for its release.
    let waiter = acquiring(&ours);
    fleet.waiting(CHANNEL, 1).await;
    assert!(!waiter.is_finished());
    java.with("release", json!({"permit": theirs.text()}))
        .await
        .value();
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn one_release_wakes_several_java_threads() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await);
    assert!(ours.init(2).await.unwrap());
    let pair = ours.acquire_many(2).await.unwrap();
    let threads = ["one", "two"].map(|actor| fleet.java(actor, Kind::Leased, "seats"));
    let waiters = threads
        .each_ref()
        .map(|java| java.start("acquire", json!({})));
    fleet.waiting(CHANNEL, 1).await;
    pair.release().await.unwrap();
    let mut ids = Vec::new();
    for waiter in waiters {
        ids.push(java_granted(waiter, SOON).await.text().to_owned());
    }
    for (java, id) in threads.iter().zip(&ids) {
        java.with("release", json!({"permit": id})).await.value();
    }
    fleet.at_rest_with(&["seats"]).await;
}

/// Any client that knows the id of a permit may release it.
#[tokio::test]
async fn our_permit_is_lost_when_java_releases_it_by_id() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await).lease(lease(ms(TTL)));
    let java = fleet.java("java", Kind::Leased, "seats");
    assert!(ours.init(1).await.unwrap());
    let permit = ours.acquire().await.unwrap();
    let by_id = json!({"permit": id(&permit)});
    assert!(java.with("tryRelease", by_id.clone()).await.bool());
    assert_eq!(within(SOON, permit.lost()).await, LostReason::Gone);
    drop(permit);
    fleet.quiet().await;
    assert_eq!(ours.available().await.unwrap(), 1, "given back once");
    assert!(!java.with("tryRelease", by_id).await.bool());

    // The reverse: an operator reclaims a permit of Java.
    let theirs = java.with("acquire", json!({})).await;
    let held = ours.status().await.unwrap().permits;
    assert_eq!(held[0].id.to_string(), theirs.text());
    assert!(ours.danger().reclaim(&held[0].id).await.unwrap());
    let late = java.with("release", json!({"permit": theirs.text()})).await;
    assert_eq!(late.error(), "IllegalArgumentException", "{late:?}");
    assert_eq!(ours.available().await.unwrap(), 1);
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn leases_expire_for_the_other_side() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await);
    let java = fleet.java("java", Kind::Leased, "seats");
    assert!(ours.init(1).await.unwrap());
    let options = AcquireOptions::new()
        .lease(lease(ms(700)))
        .renewal(Renewal::Manual);
    let permit = ours.acquire_with(1, options).await.unwrap();
    let theirs = java_granted(
        java.start("acquire", json!({"lease": 700})),
        ms(700) + SLACK,
    )
    .await;
    assert!(!permit.is_held(), "P5");
    assert!(permit.release().await.is_err());
    // The end of a lease sends no message, and this client polls every 60 s.
    let next = within(ms(700) + SLACK, ours.acquire()).await.unwrap();
    assert!(
        !java
            .with("tryRelease", json!({"permit": theirs.text()}))
            .await
            .bool()
    );
    assert_eq!(ours.available().await.unwrap(), 0);
    next.release().await.unwrap();
    fleet.at_rest_with(&["seats"]).await;
}

/// Redisson reclaims expired permits with every read, so our renewals must come first. They must not shorten a lease that Java extended.
#[tokio::test]
async fn our_watchdog_keeps_a_permit_from_java() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await).lease(lease(ms(TTL)));
    let java = fleet.java("java", Kind::Leased, "seats");
    assert!(ours.init(1).await.unwrap());
    let permit = ours.acquire().await.unwrap();
    let start = machine_clock();
    while machine_clock() - start < ms(2 * TTL) {
        assert_eq!(java.done("available").await.int(), 0);
        assert!(permit.is_held());
        tokio::time::sleep(ms(10)).await;
    }
    let longer = json!({"permit": id(&permit), "lease": 60_000});
    assert!(java.with("updateLease", longer).await.bool());
    permit.renew().await.unwrap();
    let left = java.with("leaseTime", json!({"permit": id(&permit)})).await;
    assert!(left.int() > 50_000, "a renewal never shortens");
    permit.release().await.unwrap();
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn the_permit_of_our_killed_process_returns_at_its_ttl() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("java", Kind::Leased, "seats");
    java.with("init", json!({"n": 1})).await.value();
    let holder = holding(&fleet, "leased", "seats", ms(TTL));
    let waiter = java.start("acquire", json!({}));
    fleet.waiting(CHANNEL, 1).await;
    holder.signal(Signal::Kill);
    let theirs = java_granted(waiter, ms(TTL) + SLACK).await;
    java.with("release", json!({"permit": theirs.text()}))
        .await
        .value();
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn a_killed_jvm_returns_its_leased_permits_and_keeps_the_others() {
    let Some(fleet) = own_jvm().await else { return };
    let ours = seats(&fleet.rust().await);
    let java = fleet.java("java", Kind::Leased, "seats");
    assert!(ours.init(2).await.unwrap());
    java.with("acquire", json!({"lease": TTL})).await.value();
    let endless = java.with("acquire", json!({})).await;
    let waiter = acquiring(&ours);
    fleet.waiting(CHANNEL, 1).await;
    fleet.jvm().kill();
    let first = granted(waiter, ms(TTL) + SLACK).await;
    // The other permit has no lease, and is held until an operator reclaims it.
    let waiter = acquiring(&ours);
    fleet.quiet().await;
    assert!(!waiter.is_finished());
    let held = ours.status().await.unwrap().permits;
    let dead = held
        .iter()
        .find(|held| held.id.to_string() == endless.text())
        .unwrap();
    assert!(ours.danger().reclaim(&dead.id).await.unwrap());
    let second = granted(waiter, SOON).await;
    first.release().await.unwrap();
    second.release().await.unwrap();
    fleet.at_rest_with(&["seats"]).await;
}

/// Redisson reclaims all expired permits in one script, and fails at 8000. This library reclaims a hundred at a time.
#[tokio::test]
async fn thousands_of_expired_leases_stop_redisson_but_not_this_library() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await);
    let java = fleet.java("java", Kind::Leased, "seats");
    assert!(ours.init(1).await.unwrap());
    let dead = "for i = 1, 9000 do
        redis.call('ZADD', '{seats}:timeout', 1000, string.format('%016d', i))
        redis.call('INCRBY', 'seats', -1)
    end";
    assert!(!fleet.server.cli(&["EVAL", dead, "0"]).is_error());
    assert_eq!(java.call("available").await.error(), "RedisException");
    assert_eq!(ours.available().await.unwrap(), 1);
    let permit = within(SOON, ours.acquire()).await.unwrap();
    permit.release().await.unwrap();
    fleet.quiet().await;
    assert_eq!(ours.available().await.unwrap(), 1);
}

/// Leases that Redisson holds keep an ephemeral semaphore once this library has seen them. If Redisson adds permits, the semaphore no
/// longer expires.
#[tokio::test]
async fn both_libraries_use_an_ephemeral_semaphore() {
    let Some(fleet) = fleet().await else { return };
    let hour = IdleExpiry::after(secs(3600)).unwrap();
    let ours = seats(&fleet.rust().await).ephemeral(3, hour);
    let java = fleet.java("java", Kind::Leased, "seats");
    let idle = "stanchion_semaphore_idle:{seats}";
    let left = |key: &str| fleet.int(&["PTTL", key]);
    let permit = ours.acquire().await.unwrap();
    let until = left("seats");
    assert!(until > 3_600_000, "the idle time and a lease: {until}");
    assert!(!java.with("init", json!({"n": 7})).await.bool());
    let theirs = java.with("acquire", json!({"lease": 7_200_000})).await;
    assert!(left("seats") <= until, "Redisson does not extend the TTL");
    permit.release().await.unwrap();
    let permit = ours.acquire().await.unwrap();
    for key in ["seats", idle, "{seats}:timeout"] {
        let ttl = left(key);
        assert!(
            ttl > 10_700_000 && ttl <= 10_800_000,
            "Java's lease and the idle hour: {key} {ttl}"
        );
    }
    let endless = java.with("acquire", json!({})).await;
    assert!(ours.try_acquire().await.unwrap().is_none());
    assert!(left("seats") > 3_600_000 * 24 * 365);
    for held in [theirs, endless] {
        java.with("release", json!({"permit": held.text()}))
            .await
            .value();
    }
    permit.release().await.unwrap();
    assert_eq!(java.done("available").await.int(), 3);
    // The effect of Redisson's operations on the TTL.
    for (operation, fields, keeps) in [
        ("available", json!({}), true),
        ("setTotal", json!({"n": 4}), true),
        ("add", json!({"n": 1}), false),
    ] {
        assert_eq!(fleet.int(&["PEXPIRE", "seats", "100000"]), 1);
        java.with(operation, fields).await.value();
        let ttl = left("seats");
        assert_eq!(ttl > 0 && ttl <= 100_000, keeps, "{operation}: {ttl}");
    }
    assert_eq!(fleet.int(&["EXISTS", idle]), 1);
    let all = ours.acquire_many(5).await.unwrap();
    all.release().await.unwrap();
    assert_eq!((left("seats"), fleet.int(&["EXISTS", idle])), (-1, 0));
    fleet.at_rest_with(&["seats"]).await;
}

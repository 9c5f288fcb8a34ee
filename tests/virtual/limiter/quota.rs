//! Tests of quota changes, lost bookings, scopes and deletion.

use stanchion::LimitError;
use stanchion::limiter::{QuotaScope, Usage, Waiting};
use stanchion_testkit::eventually;
use stanchion_tests::{LostReply, World, assert_is};
use tokio::time::Instant;

use stanchion_tests::limiter::*;

#[tokio::test(start_paused = true)]
async fn the_first_quota_applies_to_all_clients() {
    let (_world, clients) = World::engine().with_fleet(2).await;
    let (two, nine) = (limiter(&clients[0], "2/m"), limiter(&clients[1], "9/m"));
    let grant = granted(&two, 1).await;
    assert_eq!((grant.limit(), grant.remaining()), (2, 1));
    let _ = granted(&nine, 1).await;
    let refused = limited(nine.try_acquire().await.unwrap());
    assert_eq!((refused.limit, refused.remaining), (2, 0));
    // A request above the limit is an error, not contention.
    let error = nine.try_acquire_many(3).await.unwrap_err().to_string();
    assert!(
        error.contains("3 permits at once: the limit is 2"),
        "{error}"
    );
    assert_eq!(nine.status().await.unwrap().quota, Some(quota("2/m")));
}

#[tokio::test(start_paused = true)]
async fn set_quota_keeps_or_resets_the_usage() {
    let world = World::engine();
    let api = limiter(&world.client().await, "10/m");
    let _ = granted(&api, 8).await;
    api.set_quota(quota("5/m"), Usage::Keep).await.unwrap();
    assert_eq!(account(world.as_engine()), (-3, 8));
    limited(api.try_acquire().await.unwrap());
    api.set_quota(quota("20/m"), Usage::Keep).await.unwrap();
    assert_eq!(granted(&api, 12).await.remaining(), 0);
    api.set_quota(quota("20/m"), Usage::Reset).await.unwrap();
    assert_eq!(granted(&api, 20).await.remaining(), 0);
    // With a shorter interval the old grants have expired.
    tokio::time::sleep(ms(2_000)).await;
    api.set_quota(quota("20/s"), Usage::Keep).await.unwrap();
    assert_eq!(api.status().await.unwrap().free, 20);
}

#[tokio::test(start_paused = true)]
async fn a_resent_set_quota_keeps_grants_since_the_first_run() {
    for way in LostReply::WAYS {
        let (world, clients) = World::engine().with_fleet(2).await;
        let (api, other) = (limiter(&clients[0], "5/m"), limiter(&clients[1], "5/m"));
        api.set_quota(quota("5/m"), Usage::Reset).await.unwrap();
        world.lose_next_reply(way);
        let setter = api.clone();
        let setting =
            tokio::spawn(async move { setter.set_quota(quota("6/m"), Usage::Reset).await });
        world.until(&["HGET", NAME, "rate"], "6").await;
        let _ = granted(&other, 2).await;
        setting.await.unwrap().unwrap();
        assert_eq!(account(world.as_engine()), (4, 2), "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_faster_rate_wakes_waiters_beyond_the_horizon() {
    let (world, clients) = World::engine().with_fleet(2).await;
    let api = limiter(&clients[0], "1/h");
    let _ = granted(&api, 1).await;
    let waiter = tokio::spawn(api.acquire());
    world
        .waiting(&clients[0], 1, "stanchion_limiter:{api}")
        .await;
    let started = Instant::now();
    limiter(&clients[1], "1/h")
        .set_quota(quota("100/s"), Usage::Keep)
        .await
        .unwrap();
    waiter.await.unwrap().unwrap();
    assert!(started.elapsed() < ms(10), "{:?}", started.elapsed());
}

/// After a long wait a caller checks its booking before it uses the permit.
#[tokio::test(start_paused = true)]
async fn a_lost_booking_is_made_again() {
    let (world, clients) = World::engine().with_fleet(2).await;
    let api = limiter(&clients[0], "1/s").waiting(Waiting::Booked {
        horizon: ms(10_000),
    });
    let first = api.acquire().await.unwrap();
    let started = Instant::now();
    let _second = api.acquire().await.unwrap();
    let third = tokio::spawn({
        let api = api.clone();
        async move {
            let (a, b) = tokio::join!(api.acquire(), api.acquire());
            (a.unwrap(), b.unwrap(), started.elapsed())
        }
    });
    eventually("both are booked", || log(world.as_engine()).len() == 3).await;
    tokio::time::sleep(ms(500)).await;
    // Redisson deletes these keys without a message to waiters.
    let _ = world.admin(&["DEL", VALUE, LOG]);
    let other = limiter(&clients[1], "1/s");
    let _taken = granted(&other, 1).await;
    let booked = tokio::spawn(other.acquire());
    let (.., ended) = third.await.unwrap();
    booked.await.unwrap().unwrap();
    drop(first);
    // The grants of the other client count from 1.5 s and 2.5 s.
    assert!((3_500..3_520).contains(&ended.as_millis()), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn each_client_has_its_own_quota() {
    let (world, clients) = World::engine().with_fleet(2).await;
    let own = |n: usize| limiter(&clients[n], "2/m").scope(QuotaScope::PerClient);
    let _ = granted(&own(0), 2).await;
    limited(own(0).try_acquire().await.unwrap());
    let theirs = granted(&own(1), 2).await;
    assert!(theirs.refund().await.unwrap());
    let _ = granted(&own(1), 2).await;
    let keys = world.keys();
    for client in &clients {
        for key in ["value", "permits"] {
            let key = format!("{{api}}:{key}:{}", client.id());
            assert!(keys.contains(&key), "{key} of {keys:?}");
        }
    }
    // The stored scope applies to a handle with another scope, too.
    limited(limiter(&clients[0], "2/m").try_acquire().await.unwrap());
    // The change to a shared scope resets the usage of each client.
    limiter(&clients[0], "2/m")
        .set_quota(quota("2/m"), Usage::Keep)
        .await
        .unwrap();
    assert_eq!(
        granted(&limiter(&clients[1], "2/m"), 2).await.remaining(),
        0
    );
    limited(own(0).try_acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_limiter_starts_with_a_full_quota() {
    let world = World::engine();
    let api = limiter(&world.client().await, "2/m");
    assert!(!api.danger().delete().await.unwrap());
    let _ = granted(&api, 2).await;
    assert!(api.danger().delete().await.unwrap());
    assert_eq!(world.keys(), [""; 0]);
    assert_eq!(api.status().await.unwrap().quota, None);
    let _ = granted(&api, 2).await;
    let error = api.acquire_timeout(ms(10)).await.unwrap_err();
    assert_is!(
        error,
        LimitError::TimedOut {
            limited: Some(_),
            ..
        }
    );
}

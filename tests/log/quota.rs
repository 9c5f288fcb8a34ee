//! Tests the warning for a limiter whose stored quota is not that of the program, as after a deployment with another rate.

use stanchion::limiter::{QuotaScope, Usage};
use stanchion::{Quota, RateLimiter, TokenBucket};
use stanchion_tests::{World, secs};

use crate::outages::{count, listen};

fn quota(permits: u32, seconds: u64) -> Quota {
    Quota::new(permits, secs(seconds)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stored_quota_other_than_that_of_the_handle_is_logged_once() {
    let (log, _listening) = listen();
    let world = World::engine();
    let (old, new) = (world.client().await, world.client().await);
    let limiter = |client, quota| RateLimiter::new(client, "changed", quota).unwrap();
    let _ = limiter(&old, quota(2, 60)).acquire().await.unwrap();
    assert_eq!(count(&log, "WARN", "quota"), 0, "{}", log.text());
    // A grant, a refusal, and a handle for each request.
    for _ in 0..3 {
        let _ = limiter(&new, quota(100, 60)).try_acquire().await.unwrap();
    }
    assert_eq!(
        count(&log, "WARN", "keeps its stored quota, 2/m, and not 100/m"),
        1,
        "{}",
        log.text()
    );
    // The interval and the scope count, too.
    let _ = limiter(&new, quota(2, 1)).try_acquire().await.unwrap();
    assert_eq!(count(&log, "WARN", "and not 2/s"), 1, "{}", log.text());
    let each = limiter(&new, quota(2, 60)).scope(QuotaScope::PerClient);
    let _ = each.try_acquire().await.unwrap();
    assert_eq!(
        count(&log, "WARN", "and not 2/m for each client"),
        1,
        "{}",
        log.text()
    );
    let changed = limiter(&new, quota(100, 60));
    changed
        .set_quota(quota(100, 60), Usage::Keep)
        .await
        .unwrap();
    let lines = log.text().lines().count();
    let _ = changed.acquire().await.unwrap();
    assert_eq!(log.text().lines().count(), lines, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_bucket_has_no_stored_limit() {
    let (log, _listening) = listen();
    let world = World::engine();
    let client = world.client().await;
    for permits in [1, 100] {
        let limit = quota(permits, 60);
        let bucket = TokenBucket::new(&client, "changed", limit).unwrap();
        let _ = bucket.try_acquire().await.unwrap();
    }
    assert_eq!(log.text(), "");
}

//! Leases of every kind of hold: they end (P5), the watchdog renews them (P10), and no former holder affects the next one (P1, P8).

use std::time::Duration;

use stanchion::{AcquireOptions, Guard, LostReason, ReleaseError, RenewError, Renewal};
use stanchion_testkit::eventually;
use stanchion_tests::kinds::Case;
use stanchion_tests::{kept, lease, ms, secs};

super::table! {
    a_hold_that_is_not_renewed_is_lost_before_the_next_grant,
    the_watchdog_keeps_a_hold_beyond_its_lease,
    a_deleted_hold_is_lost_and_recreates_nothing,
}

/// What the client alone decides, on the engine.
#[tokio::test(start_paused = true)]
async fn a_hold_ends_by_the_clock_of_its_client() {
    super::on_engines(max_hold_ends_a_hold_that_would_be_renewed).await;
    super::on_engines(a_released_guard_is_never_lost).await;
    super::on_engines(work_is_dropped_when_the_hold_is_lost).await;
}

/// A lease that ends soon.
fn short() -> AcquireOptions {
    let lease = lease(ms(300));
    AcquireOptions::new().lease(lease).renewal(Renewal::Manual)
}

/// A hold, if the kind has leases and options.
async fn hold(case: &Case, options: AcquireOptions) -> Option<Guard> {
    Some(case.ours().acquire_with(options).await?.unwrap())
}

/// P1, P4, P5. No message announces the end of the lease.
async fn a_hold_that_is_not_renewed_is_lost_before_the_next_grant(case: &Case) {
    let Some(guard) = hold(case, short()).await else {
        return;
    };
    let lost = tokio::spawn(guard.lost());
    let soon = secs(4);
    let next = case.theirs().acquire_timeout(soon).await.unwrap();
    // Both clients are on one machine, so their clocks are comparable.
    assert!(case.clients[1].now() >= guard.valid_until());
    assert!(!guard.is_held());
    assert_eq!(lost.await.unwrap(), LostReason::Expired);
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
    assert!(next.is_held() && case.is_held().await);
    next.release().await.unwrap();
    case.soon_at_rest().await;
}

/// P10.
async fn the_watchdog_keeps_a_hold_beyond_its_lease(case: &Case) {
    let Some(guard) = hold(case, AcquireOptions::new().lease(kept())).await else {
        return;
    };
    let third_end = guard.valid_until() + 2 * kept().length();
    eventually("the hold is renewed beyond two leases", || {
        guard.valid_until() > third_end
    })
    .await;
    assert!(guard.is_held() && case.is_held().await);
    guard.release().await.unwrap();
    case.soon_at_rest().await;
}

/// P5.
async fn max_hold_ends_a_hold_that_would_be_renewed(case: &Case) {
    let options = AcquireOptions::new()
        .lease(kept())
        .max_hold(kept().length() * 3 / 2);
    let Some(guard) = hold(case, options).await else {
        return;
    };
    let next = case.theirs().acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert!(next.is_held());
    next.release().await.unwrap();
}

/// P5, P8: by a renewal of the caller, and by one of the watchdog.
async fn a_deleted_hold_is_lost_and_recreates_nothing(case: &Case) {
    for renews in [false, true] {
        let options = AcquireOptions::new().lease(kept());
        let Some(guard) = hold(case, options).await else {
            return;
        };
        for key in case.world.keys() {
            let _ = case.world.admin(&["DEL", &key]);
        }
        if renews {
            let error = guard.renew().await.unwrap_err();
            assert!(matches!(error, RenewError::Lost(_)), "{error}");
        }
        assert_eq!(guard.lost().await, LostReason::Gone);
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert!(guard.reenter().await.is_err());
        assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
        case.world.quiet().await;
        assert!(case.world.keys().is_empty(), "{:?}", case.world.keys());
        case.init().await;
    }
}

/// P5.
async fn a_released_guard_is_never_lost(case: &Case) {
    let options = AcquireOptions::new().lease(kept()).renewal(Renewal::Manual);
    let Some(guard) = hold(case, options).await else {
        return;
    };
    let mut lost = Box::pin(guard.lost());
    guard.release().await.unwrap();
    let past_the_lease = kept().length() + ms(200);
    let past_the_lease = tokio::time::timeout(past_the_lease, &mut lost).await;
    assert!(past_the_lease.is_err(), "{past_the_lease:?}");
}

/// P5.
async fn work_is_dropped_when_the_hold_is_lost(case: &Case) {
    let Some(guard) = hold(case, short()).await else {
        return;
    };
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.reason, LostReason::Expired);
    let Some(guard) = hold(case, AcquireOptions::new()).await else {
        return;
    };
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
}

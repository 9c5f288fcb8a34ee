//! P5 and P10 for every kind of hold with a lease, to the millisecond: outages, and the end of a hold.

use std::time::Duration;

use stanchion::{AcquireOptions, Guard, LostReason, Renewal};
use stanchion_tests::kinds::{Case, kinds};
use stanchion_tests::{ms, secs};
use tokio::time::{Instant, advance, sleep};

fn lease(seconds: u64) -> AcquireOptions {
    AcquireOptions::new().lease(stanchion_tests::lease(secs(seconds)))
}

/// Holds each kind that has a lease.
async fn each(options: AcquireOptions, check: impl AsyncFn(&Case, Guard)) {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        if let Some(guard) = case.ours().acquire_with(options.clone()).await {
            check(&case, guard.unwrap()).await;
            case.soon_at_rest().await;
        }
    }
}

/// P5: the lease from the time at which the request was sent, less a hundredth. Timers tick in milliseconds.
#[tokio::test(start_paused = true)]
async fn lost_resolves_at_the_conservative_end_and_not_before() {
    each(lease(3).renewal(Renewal::Manual), async |case, guard| {
        let began = Instant::now();
        assert_eq!(guard.lost().await, LostReason::Expired);
        let took = began.elapsed().as_millis();
        assert!((2969..=2971).contains(&took), "{}: {took}", case.label);
        assert!(case.is_held().await, "still held on the server");
    })
    .await;
}

/// P1: the validity counts from before the request was sent.
#[tokio::test(start_paused = true)]
async fn a_slow_link_shortens_the_validity_of_a_hold() {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        let slow = ms(160);
        case.world.faults().delay(None, slow);
        let began = Instant::now();
        if let Some(guard) = case.ours().acquire_with(lease(3)).await {
            let guard = guard.unwrap();
            let ends = began.elapsed() + guard.remaining();
            assert!(ends <= ms(2_971), "{}: {ends:?}", case.label);
            guard.release().await.unwrap();
        }
    }
}

/// P5. Time jumps, and no timer of the library runs between these lines: `is_held` reads the clock.
#[tokio::test(start_paused = true)]
async fn is_held_turns_false_by_the_clock_alone() {
    each(lease(3), async |case, guard| {
        case.world.faults().freeze(None);
        advance(ms(2969)).await;
        assert!(guard.is_held(), "{}", case.label);
        advance(ms(2)).await;
        assert!(!guard.is_held(), "{}", case.label);
        assert_eq!(guard.remaining(), Duration::ZERO);
        case.world.faults().thaw(None);
    })
    .await;
}

/// P5, P10.
#[tokio::test(start_paused = true)]
async fn a_hold_survives_an_outage_shorter_than_its_lease() {
    each(lease(6), async |case, guard| {
        let mut lost = Box::pin(guard.lost());
        for _ in 0..10 {
            case.world.faults().freeze(None);
            sleep(ms(2500)).await;
            case.world.faults().thaw(None);
            let pause = tokio::time::timeout(ms(3500), &mut lost).await;
            assert!(pause.is_err(), "{}: lost early: {pause:?}", case.label);
        }
        assert!(guard.is_held());
        guard.release().await.unwrap();
    })
    .await;
}

/// P1, P5. Late renewals and the late release of the old holder do not affect the next one.
#[tokio::test(start_paused = true)]
async fn a_hold_is_lost_before_another_client_acquires() {
    each(lease(3), async |case, guard| {
        if case.needs_both_clients() {
            return;
        }
        sleep(secs(10)).await;
        assert!(guard.is_held(), "{}: the watchdog renews", case.label);
        case.world.faults().freeze(Some("ours"));
        let target = case.theirs();
        let next = tokio::spawn(async move { (target.acquire().await.unwrap(), Instant::now()) });
        let (began, left) = (Instant::now(), guard.remaining());
        assert_eq!(guard.lost().await, LostReason::Expired, "{}", case.label);
        let lost = Instant::now();
        assert!(lost - began <= left, "{}", case.label);
        assert!(!guard.is_held());
        let (next, granted) = next.await.unwrap();
        assert!(granted > lost, "{}", case.label);
        assert!(granted - lost < secs(1), "{}", case.label);
        case.world.faults().thaw(Some("ours"));
        drop(guard);
        sleep(secs(30)).await;
        assert!(next.is_held() && case.is_held().await, "{}", case.label);
        next.release().await.unwrap();
    })
    .await;
}

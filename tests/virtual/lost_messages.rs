//! P4 for every kind of hold: a message wakes a waiter within a round trip, and a lost one costs a poll at most. What belongs to the client's
//! subscriptions is in `virtual/lock/lost_messages`, and the order of a queue in `virtual/fair/lost`.

use std::time::Duration;

use stanchion_tests::kinds::{Case, Held, SOON, Target, kinds};
use stanchion_tests::{World, ms, secs, spawn_ok, together};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The default poll interval.
const POLL: Duration = secs(5);

fn waiting(target: Target) -> JoinHandle<Held> {
    spawn_ok(target.acquire())
}

/// Runs `fault` after the other client has begun to wait, and returns the time from the release to the grant.
async fn grant(case: &Case, fault: impl FnOnce(&World)) -> Duration {
    let held = case.ours().acquire().await.unwrap();
    let waiter = waiting(case.theirs());
    sleep(SOON).await;
    case.world.quiet().await;
    fault(&case.world);
    let released = Instant::now();
    held.release().await.unwrap();
    let next = waiter.await.unwrap();
    let took = released.elapsed();
    case.world.faults().clear();
    next.release().await.unwrap();
    case.soon_at_rest().await;
    took
}

/// The time of a release and of the requests that follow its message, in replies and messages of 10 ms.
#[tokio::test(start_paused = true)]
async fn a_message_wakes_a_waiter_within_a_round_trip() {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        let took = grant(&case, |world| {
            world.faults().delay(None, ms(10));
        })
        .await;
        // Members of several clients are released and acquired one after the other.
        let limit = ms(if case.needs_both_clients() { 85 } else { 25 });
        assert!(took <= limit, "{}: {took:?}", case.label);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_costs_a_poll_at_most() {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        let took = grant(&case, |world| world.faults().lose_messages(100)).await;
        assert!(took <= POLL + ms(100), "{}: {took:?}", case.label);
        // Otherwise the message was not lost, and this shows nothing.
        assert!(took > ms(100), "{}: {took:?}", case.label);
    }
}

/// Waiters of one client need no more polls than one.
#[tokio::test(start_paused = true)]
async fn a_lost_message_delays_all_waiters_of_a_client_by_two_polls_at_most() {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        let held = case.ours().acquire().await.unwrap();
        let waiters = [(); 3].map(|()| stanchion_tests::kinds::served(case.theirs()));
        sleep(SOON).await;
        case.world.quiet().await;
        case.world.faults().lose_messages(100);
        let released = Instant::now();
        held.release().await.unwrap();
        together(waiters).await;
        let took = released.elapsed();
        assert!(took <= 2 * POLL + SOON, "{}: {took:?}", case.label);
        case.world.faults().clear();
        case.soon_at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_send_requests_when_their_lost_subscription_is_restored() {
    for kind in kinds() {
        let case = Case::warm(kind).await;
        let took = grant(&case, |world| world.faults().kill_subscribers()).await;
        assert!(took < ms(1100), "{}: {took:?}", case.label);
    }
}

/// Replies to the waiter take 20 ms, so the reply to its first request arrives before the subscription is confirmed. The message of the
/// release is lost, so only a later request finds it.
#[tokio::test(start_paused = true)]
async fn a_release_between_a_request_and_its_subscription_is_noticed() {
    for kind in kinds() {
        for after in [5, 15, 25, 35] {
            let case = Case::warm(kind).await;
            // The subscriptions of the warm-up end.
            sleep(secs(40)).await;
            let held = case.ours().acquire().await.unwrap();
            let faults = case.world.faults();
            faults.delay(Some("theirs"), ms(20));
            let began = Instant::now();
            let waiter = waiting(case.theirs());
            sleep(ms(after)).await;
            faults.lose_messages(100);
            held.release().await.unwrap();
            sleep(ms(10)).await;
            faults.lose_messages(0);
            let next = waiter.await.unwrap();
            let took = began.elapsed();
            // A fair lock was granted by a message, which the next poll finds.
            assert!(took < ms(400), "{} {after}: {took:?}", case.label);
            next.release().await.unwrap();
            faults.clear();
            case.soon_at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_subscription_waiters_poll() {
    let denied = "NOPERM this user has no permissions to access one of the channels";
    for kind in kinds() {
        let case = Case::warm(kind).await;
        sleep(secs(40)).await;
        let faults = case.world.faults();
        faults.fail_next("SUBSCRIBE", denied, 1000);
        let held = case.ours().acquire().await.unwrap();
        let waiter = waiting(case.theirs());
        sleep(secs(3)).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let next = waiter.await.unwrap();
        let took = released.elapsed();
        assert!(took <= ms(510), "{}: {took:?}", case.label);
        next.release().await.unwrap();
        faults.clear();
        case.soon_at_rest().await;
    }
}

//! Tests of the latch: lost replies and messages, futures dropped at every await point, and full memory.
//!
//! Long: one suite over one set-up.

mod idle;

use std::time::Duration;

use stanchion::embedded::{Faults, Switch};
use stanchion::{AcquireError, Client, CountDownLatch, QueryError, Rejection};
use stanchion_testkit::{cancel_after, for_each_await_point};
use stanchion_tests::{LostReply, World, assert_is, assert_within, ms, secs};
use tokio::time::Instant;

const CHANNEL: &str = "redisson_countdownlatch__channel__{job}";
/// The default poll interval.
const POLL: Duration = secs(5);

fn latch(client: &Client) -> CountDownLatch {
    CountDownLatch::new(client, "job").unwrap()
}

fn waiting(client: &Client) -> tokio::task::JoinHandle<Result<(), AcquireError>> {
    let latch = latch(client);
    tokio::spawn(async move { latch.wait().await })
}

async fn clients(world: &World) -> (Client, Client) {
    let ours = world.named("ours").await;
    let theirs = world.named("theirs").await;
    // The server knows the scripts, so that each request is one round trip and one EVALSHA.
    assert!(latch(&ours).arm(2).await.unwrap());
    latch(&ours).count_down().await.unwrap();
    latch(&ours).danger().delete().await.unwrap();
    latch(&ours).arm(1).await.unwrap();
    latch(&ours).count_down().await.unwrap();
    latch(&ours).wait().await.unwrap();
    (ours, theirs)
}

async fn armed_with_a_waiter(
    world: &World,
) -> (
    Client,
    Client,
    tokio::task::JoinHandle<Result<(), AcquireError>>,
) {
    let (ours, theirs) = clients(world).await;
    assert!(latch(&ours).arm(1).await.unwrap());
    let waiter = waiting(&theirs);
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    (ours, theirs, waiter)
}

async fn at_rest(world: &World) {
    // Marks of operations and of a delete last a minute at most.
    tokio::time::sleep(secs(61)).await;
    world.at_rest().await;
}

/// P4.
#[tokio::test(start_paused = true)]
async fn a_message_a_poll_or_a_new_subscription_wakes_a_waiter() {
    let arrives: fn(&Faults) = |faults| faults.delay(None, ms(10));
    for (fault, least, most) in [
        (arrives, ms(5), ms(25)),
        (|faults| faults.lose_messages(1), ms(100), POLL),
        (Faults::kill_subscribers, ms(0), secs(1)),
    ] {
        let world = World::engine();
        let (ours, _theirs, waiter) = armed_with_a_waiter(&world).await;
        fault(&world.faults());
        let started = Instant::now();
        latch(&ours).count_down().await.unwrap();
        waiter.await.unwrap().unwrap();
        let took = started.elapsed();
        assert!((least..=most).contains(&took), "{took:?}, at most {most:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_notices_a_count_down_between_its_check_and_its_subscription() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    assert!(latch(&ours).arm(1).await.unwrap());
    // Every reply to the waiter takes 20 ms, so the reply to its check arrives long before its subscription is confirmed.
    let faults = world.faults();
    faults.delay(Some("theirs"), ms(20));
    let started = Instant::now();
    let waiter = waiting(&theirs);
    world.subscribed(CHANNEL).await;
    faults.lose_messages(1);
    latch(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
    assert_within(started, ms(200), ());
}

#[tokio::test(start_paused = true)]
async fn a_delete_whose_message_is_lost_is_noticed_at_the_next_poll() {
    let world = World::engine();
    let (ours, _theirs, waiter) = armed_with_a_waiter(&world).await;
    world.faults().lose_messages(1);
    let started = Instant::now();
    assert!(latch(&ours).danger().delete().await.unwrap());
    assert!(is_deleted(&waiter.await.unwrap()));
    assert!(started.elapsed() <= POLL, "{:?}", started.elapsed());
    at_rest(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_redisson_opened_after_a_delete_is_open_to_new_waiters() {
    let world = World::engine();
    let (ours, theirs, waiter) = armed_with_a_waiter(&world).await;
    // The waiter gets no message before its poll.
    world.faults().lose_messages(1);
    assert!(latch(&ours).danger().delete().await.unwrap());
    // Redisson's `trySetCount` and `countDown`, without a message.
    let _ = world.admin(&["SET", "job", "1"]);
    let _ = world.admin(&["DEL", "job"]);
    tokio::time::sleep(ms(10)).await;
    latch(&theirs).wait().await.unwrap();
    assert!(is_deleted(&waiter.await.unwrap()), "its latch was deleted");
    at_rest(&world).await;
}

fn is_deleted(result: &Result<(), AcquireError>) -> bool {
    matches!(
        result,
        Err(AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        })
    )
}

#[tokio::test(start_paused = true)]
async fn a_resent_operation_counts_once_and_returns_the_same_result() {
    for way in LostReply::WAYS {
        let world = World::engine();
        let (ours, _theirs) = clients(&world).await;
        let latch = latch(&ours);
        world.lose_next_reply(way);
        assert!(latch.arm(3).await.unwrap(), "{way:?}");
        assert_eq!(latch.count().await.unwrap(), 3);
        world.lose_next_reply(way);
        assert_eq!(latch.count_down().await.unwrap(), 2, "{way:?}");
        assert_eq!(latch.count().await.unwrap(), 2, "{way:?}");
        world.lose_next_reply(way);
        assert!(latch.danger().delete().await.unwrap(), "{way:?}");
        assert!(latch.arm(1).await.unwrap());
        world.lose_next_reply(way);
        assert_eq!(latch.count_down().await.unwrap(), 0, "{way:?}");
        at_rest(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resent_operation_does_not_affect_later_operations() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    // The reply to an arm is lost. Another client counts down before the request is resent.
    world.lose_next_reply(LostReply::Silent);
    let of_ours = latch(&ours);
    let arming = tokio::spawn(async move { of_ours.arm(1).await });
    world.until(&["GET", "job"], "1").await;
    assert_eq!(latch(&theirs).count_down().await.unwrap(), 0);
    assert!(arming.await.unwrap().unwrap());
    assert_eq!(latch(&theirs).count().await.unwrap(), 0, "armed once");
    // The reply to the last count-down is lost. Another client arms the latch before the request is resent.
    latch(&theirs).arm(1).await.unwrap();
    world.lose_next_reply(LostReply::Silent);
    let of_ours = latch(&ours);
    let counting = tokio::spawn(async move { of_ours.count_down().await });
    world.until(&["EXISTS", "job"], "0").await;
    assert!(latch(&theirs).arm(5).await.unwrap());
    assert_eq!(counting.await.unwrap().unwrap(), 0);
    assert_eq!(latch(&theirs).count().await.unwrap(), 5, "counted once");
    // The reply to a delete is lost. Another client arms the latch before the request is resent.
    world.lose_next_reply(LostReply::Silent);
    let of_ours = latch(&ours);
    let deleting = tokio::spawn(async move { of_ours.danger().delete().await });
    world.until(&["EXISTS", "job"], "0").await;
    assert!(latch(&theirs).arm(4).await.unwrap());
    assert!(deleting.await.unwrap().unwrap());
    assert_eq!(latch(&theirs).count().await.unwrap(), 4, "deleted once");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_caller_gave_up_changes_nothing() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    assert!(latch(&theirs).arm(3).await.unwrap());
    let faults = world.faults();
    for _ in 0..2 {
        faults.freeze(Some("ours"));
        let error = latch(&ours).count_down().await.unwrap_err();
        assert_is!(
            error,
            QueryError::Unavailable { .. } | QueryError::Unanswered { .. }
        );
        assert!(latch(&ours).danger().delete().await.is_err());
        tokio::time::sleep(secs(30)).await;
        faults.thaw(Some("ours"));
        tokio::time::sleep(secs(1)).await;
        assert_eq!(latch(&theirs).count().await.unwrap(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_dropped_anywhere_leaves_nothing_and_wakes_the_others() {
    let world = World::slow_engine();
    let (ours, theirs) = clients(&world).await;
    let polls = for_each_await_point(async |polls| {
        assert!(latch(&ours).arm(1).await.unwrap());
        let doomed = tokio::spawn({
            let latch = latch(&theirs);
            async move { cancel_after(latch.wait(), polls).await.is_some() }
        });
        tokio::task::yield_now().await;
        let survivor = waiting(&theirs);
        tokio::time::sleep(ms(40)).await;
        let started = Instant::now();
        latch(&ours).count_down().await.unwrap();
        survivor.await.unwrap().unwrap();
        assert_within(started, secs(1), polls);
        let covered = doomed.await.unwrap();
        assert_eq!(theirs.waiters(), 0, "after {polls} polls");
        covered
    })
    .await;
    assert!(polls > 2);
    at_rest(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_count_down_dropped_anywhere_counts_once_or_not_at_all() {
    let world = World::slow_engine();
    let (ours, theirs) = clients(&world).await;
    let mut count = 1000;
    assert!(latch(&theirs).arm(count).await.unwrap());
    for_each_await_point(async |polls| {
        let done = cancel_after(latch(&ours).count_down(), polls).await;
        tokio::time::sleep(secs(30)).await;
        let left = latch(&theirs).count().await.unwrap();
        assert!(left == count || left == count - 1, "{left} after {count}");
        count = left;
        done.map(|answer| assert_eq!(answer.unwrap(), left))
            .is_some()
    })
    .await;
    latch(&theirs).count_down_by(count).await.unwrap();
    at_rest(&world).await;
}

#[tokio::test(start_paused = true)]
async fn at_maxmemory_a_latch_can_be_counted_down_and_deleted_but_not_armed() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    assert!(latch(&ours).arm(3).await.unwrap());
    let waiter = waiting(&theirs);
    world.subscribed(CHANNEL).await;
    world.faults().out_of_memory(Switch::On);
    assert_eq!(latch(&ours).count_down().await.unwrap(), 2);
    assert!(latch(&ours).danger().delete().await.unwrap());
    assert!(is_deleted(&waiter.await.unwrap()));
    let keys = world.keys();
    let error = latch(&ours).arm(1).await.unwrap_err();
    assert_is!(
        error,
        QueryError::Rejected {
            rejection: Rejection::OutOfMemory { .. }
        }
    );
    assert_eq!(world.keys(), keys, "nothing was written");
    at_rest(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_waits() {
    let world = World::engine();
    let (_ours, theirs, waiter) = armed_with_a_waiter(&world).await;
    let _ = theirs.shutdown(secs(1)).await;
    assert!(matches!(
        waiter.await.unwrap(),
        Err(AcquireError::Shutdown { .. })
    ));
}

/// P8: a reply is valid only for calls that began before its request.
#[tokio::test(start_paused = true)]
async fn an_open_reply_lets_no_later_waiter_through() {
    let world = World::engine();
    let client = world.named("ours").await;
    let latch = latch(&client);
    latch.wait().await.unwrap();
    // The latch is open, because it was never armed. This wait reads its reply only when it is polled again, below.
    let mut early = std::pin::pin!(latch.wait());
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(early.as_mut().poll(cx)));
    assert!(polled.await.is_pending());
    tokio::time::sleep(ms(50)).await;
    assert!(latch.arm(1).await.unwrap());
    let late = [waiting(&client), waiting(&client)];
    tokio::time::sleep(ms(200)).await;
    early.await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert!(
        late.iter().all(|late| !late.is_finished()),
        "the latch is closed during their whole wait"
    );
    let started = Instant::now();
    latch.count_down().await.unwrap();
    for late in late {
        late.await.unwrap().unwrap();
    }
    assert!(started.elapsed() < ms(50));
}

/// P6: a duplicate that arrives after the reply to its resend changes nothing, even if the resend had nothing to do.
#[tokio::test(start_paused = true)]
async fn a_late_duplicate_of_a_request_without_effect_has_no_effect() {
    for operation in ["arm", "count down", "delete"] {
        let world = World::engine();
        let (ours, theirs) = clients(&world).await;
        let (ours, theirs) = (latch(&ours), latch(&theirs));
        // Loads the scripts.
        for latch in [&ours, &theirs] {
            assert!(latch.arm(1).await.unwrap());
            assert!(latch.danger().delete().await.unwrap());
            assert!(latch.arm(1).await.unwrap());
            latch.count_down().await.unwrap();
        }
        if operation == "arm" {
            assert!(theirs.arm(1).await.unwrap());
        }
        world.faults().hold_requests("EVALSHA", 1);
        match operation {
            "arm" => assert!(!ours.arm(3).await.unwrap()),
            "count down" => assert_eq!(ours.count_down().await.unwrap(), 0),
            _ => assert!(!ours.danger().delete().await.unwrap()),
        }
        // Another client changes the latch before the duplicate arrives.
        let left = if operation == "arm" {
            theirs.count_down().await.unwrap();
            0
        } else {
            assert!(theirs.arm(2).await.unwrap());
            2
        };
        world.faults().deliver();
        tokio::time::sleep(ms(100)).await;
        assert_eq!(theirs.count().await.unwrap(), left, "{operation}");
    }
}

//! Tests of the latch: lost replies and messages, futures dropped at every await point, full memory, and a model.
//!
//! Long: one suite over one set-up.

mod idle;

use std::time::Duration;

use proptest::prelude::*;
use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, CountDownLatch, QueryError, Rejection};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::{LostReply, World};
use tokio::time::Instant;

const CHANNEL: &str = "redisson_countdownlatch__channel__{job}";
/// The default poll interval.
const POLL: Duration = Duration::from_secs(5);

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
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_wakes_a_waiter_within_a_round_trip() {
    let world = World::engine();
    world
        .as_engine()
        .faults()
        .delay(None, Duration::from_millis(10));
    let (ours, _theirs, waiter) = armed_with_a_waiter(&world).await;
    let started = Instant::now();
    latch(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
    assert!(
        started.elapsed() <= Duration::from_millis(25),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_notices_a_count_down_between_its_check_and_its_subscription() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    assert!(latch(&ours).arm(1).await.unwrap());
    // Every reply to the waiter takes 20 ms, so the reply to its check arrives long before its subscription is confirmed.
    let faults = world.as_engine().faults();
    faults.delay(Some("theirs"), Duration::from_millis(20));
    let started = Instant::now();
    let waiter = waiting(&theirs);
    world.subscribed(CHANNEL).await;
    faults.lose_messages(1);
    latch(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
    assert!(
        started.elapsed() < Duration::from_millis(200),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_costs_at_most_a_poll() {
    let world = World::engine();
    let (ours, _theirs, waiter) = armed_with_a_waiter(&world).await;
    world.as_engine().faults().lose_messages(1);
    let started = Instant::now();
    latch(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
    assert!(started.elapsed() <= POLL, "{:?}", started.elapsed());
    assert!(
        started.elapsed() > Duration::from_millis(100),
        "the message was not lost, so this shows nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_delete_whose_message_is_lost_is_noticed_at_the_next_poll() {
    let world = World::engine();
    let (ours, _theirs, waiter) = armed_with_a_waiter(&world).await;
    world.as_engine().faults().lose_messages(1);
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
    world.as_engine().faults().lose_messages(1);
    assert!(latch(&ours).danger().delete().await.unwrap());
    // Redisson's `trySetCount` and `countDown`, without a message.
    let _ = world.admin(&["SET", "job", "1"]);
    let _ = world.admin(&["DEL", "job"]);
    tokio::time::sleep(Duration::from_millis(10)).await;
    latch(&theirs).wait().await.unwrap();
    assert!(is_deleted(&waiter.await.unwrap()), "its latch was deleted");
    at_rest(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_polls_after_its_subscription_is_restored() {
    let world = World::engine();
    let (ours, _theirs, waiter) = armed_with_a_waiter(&world).await;
    world.as_engine().faults().kill_subscribers();
    let started = Instant::now();
    latch(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
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
    let arming = tokio::spawn({
        let latch = latch(&ours);
        async move { latch.arm(1).await }
    });
    eventually("it is armed", || world.admin(&["GET", "job"]) == "1").await;
    assert_eq!(latch(&theirs).count_down().await.unwrap(), 0);
    assert!(arming.await.unwrap().unwrap());
    assert_eq!(latch(&theirs).count().await.unwrap(), 0, "armed once");
    // The reply to the last count-down is lost. Another client arms the latch before the request is resent.
    latch(&theirs).arm(1).await.unwrap();
    world.lose_next_reply(LostReply::Silent);
    let counting = tokio::spawn({
        let latch = latch(&ours);
        async move { latch.count_down().await }
    });
    eventually("it is open", || world.admin(&["EXISTS", "job"]) == "0").await;
    assert!(latch(&theirs).arm(5).await.unwrap());
    assert_eq!(counting.await.unwrap().unwrap(), 0);
    assert_eq!(latch(&theirs).count().await.unwrap(), 5, "counted once");
    // The reply to a delete is lost. Another client arms the latch before the request is resent.
    world.lose_next_reply(LostReply::Silent);
    let deleting = tokio::spawn({
        let latch = latch(&ours);
        async move { latch.danger().delete().await }
    });
    eventually("it is deleted", || world.admin(&["EXISTS", "job"]) == "0").await;
    assert!(latch(&theirs).arm(4).await.unwrap());
    assert!(deleting.await.unwrap().unwrap());
    assert_eq!(latch(&theirs).count().await.unwrap(), 4, "deleted once");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_caller_gave_up_changes_nothing() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    assert!(latch(&theirs).arm(3).await.unwrap());
    let faults = world.as_engine().faults();
    for _ in 0..2 {
        faults.freeze(Some("ours"));
        let error = latch(&ours).count_down().await.unwrap_err();
        assert!(
            matches!(
                error,
                QueryError::Unavailable { .. } | QueryError::Unanswered { .. }
            ),
            "{error}"
        );
        assert!(latch(&ours).danger().delete().await.is_err());
        tokio::time::sleep(Duration::from_secs(30)).await;
        faults.thaw(Some("ours"));
        tokio::time::sleep(Duration::from_secs(1)).await;
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
        tokio::time::sleep(Duration::from_millis(40)).await;
        let started = Instant::now();
        latch(&ours).count_down().await.unwrap();
        survivor.await.unwrap().unwrap();
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "the survivor missed its wake-up after {polls} polls"
        );
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
        tokio::time::sleep(Duration::from_secs(30)).await;
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
    world.as_engine().faults().out_of_memory(Switch::On);
    assert_eq!(latch(&ours).count_down().await.unwrap(), 2);
    assert!(latch(&ours).danger().delete().await.unwrap());
    assert!(is_deleted(&waiter.await.unwrap()));
    let keys = world.keys();
    let error = latch(&ours).arm(1).await.unwrap_err();
    assert!(
        matches!(
            error,
            QueryError::Rejected {
                rejection: Rejection::OutOfMemory { .. }
            }
        ),
        "{error}"
    );
    assert_eq!(world.keys(), keys, "nothing was written");
    at_rest(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_waits() {
    let world = World::engine();
    let (_ours, theirs, waiter) = armed_with_a_waiter(&world).await;
    let _ = theirs.shutdown(Duration::from_secs(1)).await;
    assert!(matches!(
        waiter.await.unwrap(),
        Err(AcquireError::Shutdown { .. })
    ));
}

#[derive(Clone, Debug)]
enum Step {
    Arm(u64),
    CountDown(u64),
    Delete,
    Wait,
    RedissonArms(u64),
    RedissonCountsDown,
    RedissonDeletes,
    /// Milliseconds pass.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_u64..6).prop_map(Step::Arm),
        6 => (1_u64..4).prop_map(Step::CountDown),
        2 => Just(Step::Delete),
        4 => Just(Step::Wait),
        1 => (1_u64..4).prop_map(Step::RedissonArms),
        2 => Just(Step::RedissonCountsDown),
        1 => Just(Step::RedissonDeletes),
        2 => prop_oneof![Just(1_u64), Just(5_000), Just(61_000)].prop_map(Step::Pass),
    ]
}

/// The way in which the reply to a step is lost, or none.
fn loss() -> impl Strategy<Value = Option<LostReply>> {
    prop_oneof![
        6 => Just(None),
        1 => Just(Some(LostReply::Closed)),
        1 => Just(Some(LostReply::Silent)),
    ]
}

/// A plain model of a latch.
#[derive(Debug, Default)]
struct Model {
    count: u64,
    /// Until this time a wait may report a delete before it, because their order is known only to a round trip.
    deleted_until: Option<Instant>,
}

impl Model {
    fn arm(&mut self, n: u64) -> bool {
        let arms = self.count == 0;
        if arms {
            *self = Self {
                count: n,
                deleted_until: None,
            };
        }
        arms
    }

    fn just_deleted(&self) -> bool {
        self.deleted_until
            .is_some_and(|until| Instant::now() < until)
    }
}

async fn run(steps: Vec<(Step, Option<LostReply>)>) {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    // Wait until the marks of the preparation have expired.
    at_rest(&world).await;
    let mut model = Model::default();
    for (i, (step, loss)) in steps.into_iter().enumerate() {
        let latch = latch(if i % 2 == 0 { &ours } else { &theirs });
        if let (Some(way), Step::Arm(_) | Step::CountDown(_) | Step::Delete) = (loss, &step) {
            world.lose_next_reply(way);
        }
        match step {
            Step::Arm(n) => assert_eq!(latch.arm(n).await.unwrap(), model.arm(n)),
            Step::CountDown(by) => {
                model.count = model.count.saturating_sub(by);
                assert_eq!(latch.count_down_by(by).await.unwrap(), model.count);
            }
            Step::Delete => {
                let deleted = latch.danger().delete().await.unwrap();
                assert_eq!(deleted, model.count > 0);
                if deleted {
                    model.count = 0;
                    model.deleted_until = Some(Instant::now() + Duration::from_secs(2));
                }
            }
            Step::Wait => {
                let seen = latch.wait_timeout(Duration::ZERO).await;
                if model.count > 0 {
                    assert!(
                        matches!(seen, Err(AcquireError::TimedOut { .. })),
                        "{seen:?}"
                    );
                } else if !(model.just_deleted() && is_deleted(&seen)) {
                    seen.unwrap();
                }
            }
            Step::RedissonArms(n) => {
                let set = world.admin(&["SET", "job", &n.to_string(), "NX"]) == "OK";
                assert_eq!(set, model.count == 0);
                if set {
                    model.count = n;
                }
            }
            Step::RedissonCountsDown => {
                let left: i64 = world.admin(&["DECR", "job"]).parse().unwrap();
                if left <= 0 {
                    let _ = world.admin(&["DEL", "job"]);
                }
                model.count = model.count.saturating_sub(1);
            }
            Step::RedissonDeletes => {
                let _ = world.admin(&["DEL", "job"]);
                model.count = 0;
            }
            Step::Pass(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
        assert_eq!(latch.count().await.unwrap(), model.count, "after step {i}");
    }
    let _ = latch(&ours).danger().delete().await.unwrap();
    at_rest(&world).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_latch_agrees_with_its_model(steps in prop::collection::vec((step(), loss()), 1..40)) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(steps));
    }
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
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(latch.arm(1).await.unwrap());
    let late = [waiting(&client), waiting(&client)];
    tokio::time::sleep(Duration::from_millis(200)).await;
    early.await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        late.iter().all(|late| !late.is_finished()),
        "the latch is closed during their whole wait"
    );
    let started = Instant::now();
    latch.count_down().await.unwrap();
    for late in late {
        late.await.unwrap().unwrap();
    }
    assert!(started.elapsed() < Duration::from_millis(50));
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
        world.as_engine().faults().hold_requests("EVALSHA", 1);
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
        world.as_engine().faults().deliver();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(theirs.count().await.unwrap(), left, "{operation}");
    }
}

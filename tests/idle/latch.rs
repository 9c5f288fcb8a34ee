//! Latches that end when nobody uses them.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{
    AcquireError, Client, ClientConfig, CountDownLatch, Event, IdleExpiry, QueryError, Rejection,
};
use stanchion_testkit::eventually;
use stanchion_tests::{LostReply, World};
use tokio::task::JoinHandle;
use tokio::time::sleep;

suite! {
    a_latch_that_nobody_uses_ends_and_leaves_nothing,
    every_use_begins_its_time_anew,
    the_arm_that_closes_it_decides,
    a_question_of_a_waiter_keeps_it_and_shortens_nothing,
    who_waited_for_one_that_has_ended_does_not_take_it_for_opened,
    what_opens_it_leaves_nothing,
    a_latch_that_redisson_counts_down_opens,
    a_latch_that_redisson_arms_does_not_end,
    without_the_option_nothing_has_changed,
    listeners_are_told,
}

const CHANNEL: &str = "redisson_countdownlatch__channel__{job}";
const IDLE: &str = "stanchion_latch_idle:{job}";
/// Longer than any test on a real server takes.
const LONG: Duration = Duration::from_secs(1000);
/// For how long a waiter's question keeps a latch, by default.
const KEPT: i64 = 70_000;

fn plain(client: &Client) -> CountDownLatch {
    CountDownLatch::new(client, "job").unwrap()
}

fn ephemeral(client: &Client, idle: Duration) -> CountDownLatch {
    plain(client).ephemeral(IdleExpiry::after(idle).unwrap())
}

fn waiting(client: &Client) -> JoinHandle<Result<(), AcquireError>> {
    let latch = plain(client);
    tokio::spawn(async move { latch.wait().await })
}

fn ttl(world: &World, key: &str) -> i64 {
    world.admin(&["PTTL", key]).parse().unwrap()
}

/// Asserts that a key ends in `ms`, or up to 5 s before.
#[track_caller]
fn ends_in(world: &World, key: &str, ms: i64) {
    let left = ttl(world, key);
    assert!(left <= ms && left > ms - 5000, "{key}: {left}, not {ms}");
}

/// Shortens the TTL of the latch, as if time had passed.
fn age(world: &World, to: i64) {
    assert_eq!(world.admin(&["PEXPIRE", "job", &to.to_string()]), "1");
}

/// Nothing of the latch is left but the marks of operations, which end within seconds.
async fn is_gone(world: &World) {
    eventually("only marks of operations are left", || {
        world
            .keys()
            .iter()
            .all(|key| key.starts_with("stanchion_once:"))
    })
    .await;
}

async fn a_latch_that_nobody_uses_ends_and_leaves_nothing(world: &World) {
    let ours = world.client().await;
    let second = Duration::from_secs(1);
    assert!(ephemeral(&ours, second).arm(3).await.unwrap());
    ends_in(world, "job", 1000);
    ends_in(world, IDLE, 61_000);
    sleep(second + Duration::from_millis(20)).await;
    assert_eq!(plain(&ours).count().await.unwrap(), 0);
    // To who comes now it is one that nobody has armed.
    sleep(Duration::from_millis(20)).await;
    plain(&ours).wait().await.unwrap();
    assert_eq!(plain(&ours).count_down().await.unwrap(), 0);
    assert!(!plain(&ours).delete().await.unwrap());
    // The next one is another.
    assert!(plain(&ours).arm(1).await.unwrap());
    assert_eq!(ttl(world, "job"), -1);
    assert_eq!(ttl(world, IDLE), -2);
    plain(&ours).count_down().await.unwrap();
    is_gone(world).await;
}

async fn every_use_begins_its_time_anew(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    assert!(ephemeral(&ours, LONG).arm(3).await.unwrap());
    ends_in(world, "job", 1_000_000);
    age(world, 10_000);
    // By a handle that knows nothing of it.
    assert_eq!(plain(&theirs).count_down().await.unwrap(), 2);
    ends_in(world, "job", 1_000_000);
    ends_in(world, IDLE, 1_060_000);
    age(world, 10_000);
    assert!(!plain(&theirs).arm(7).await.unwrap());
    ends_in(world, "job", 1_000_000);
    age(world, 10_000);
    let waited = plain(&theirs).wait_timeout(Duration::ZERO).await;
    assert!(matches!(waited, Err(AcquireError::TimedOut { .. })));
    ends_in(world, "job", 1_000_000);
    age(world, 10_000);
    // To look is not to use.
    assert_eq!(plain(&theirs).count().await.unwrap(), 2);
    ends_in(world, "job", 10_000);
}

async fn the_arm_that_closes_it_decides(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(3).await.unwrap());
    assert!(!ephemeral(&ours, 2 * LONG).arm(3).await.unwrap());
    ends_in(world, "job", 1_000_000);
    assert!(plain(&ours).delete().await.unwrap());
    assert_eq!(ttl(world, IDLE), -2);
    assert!(plain(&ours).arm(3).await.unwrap());
    assert!(!ephemeral(&ours, LONG).arm(3).await.unwrap());
    assert_eq!((ttl(world, "job"), ttl(world, IDLE)), (-1, -2));
}

async fn a_question_of_a_waiter_keeps_it_and_shortens_nothing(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(1).await.unwrap());
    let ask = async || {
        let waited = plain(&ours).wait_timeout(Duration::ZERO).await;
        assert!(matches!(waited, Err(AcquireError::TimedOut { .. })));
    };
    ask().await;
    ends_in(world, "job", 1_000_000);
    plain(&ours).count_down().await.unwrap();
    let short = Duration::from_secs(1);
    assert!(ephemeral(&ours, short).arm(2).await.unwrap());
    ask().await;
    ends_in(world, "job", KEPT);
    ends_in(world, IDLE, KEPT + 60_000);
    plain(&ours).count_down().await.unwrap();
    ends_in(world, "job", KEPT);
}

async fn who_waited_for_one_that_has_ended_does_not_take_it_for_opened(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(1).await.unwrap());
    let waiter = waiting(&ours);
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    // Its time is over now, and the key has gone with it. In one step: a question in between would keep it.
    let end = "local time = redis.call('TIME')
        local ends = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
        redis.call('SET', KEYS[2], '1000000 ' .. ends)
        return redis.call('DEL', KEYS[1])";
    let _ = world.admin(&["EVAL", end, "2", "job", IDLE]);
    let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
    let told = waiter.await.unwrap();
    let deleted = matches!(
        &told,
        Err(AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        })
    );
    assert!(deleted, "{told:?}");
    sleep(Duration::from_millis(20)).await;
    plain(&ours).wait().await.unwrap();
}

async fn what_opens_it_leaves_nothing(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    assert!(ephemeral(&ours, LONG).arm(2).await.unwrap());
    let waiter = waiting(&theirs);
    world.subscribed(CHANNEL).await;
    assert_eq!(ephemeral(&ours, LONG).count_down_by(2).await.unwrap(), 0);
    waiter.await.unwrap().unwrap();
    is_gone(world).await;
}

async fn a_latch_that_redisson_counts_down_opens(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(2).await.unwrap());
    let waiter = waiting(&ours);
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    // Redisson's `countDown`: its DECR leaves the TTL alone.
    let _ = world.admin(&["DECR", "job"]);
    ends_in(world, "job", 1_000_000);
    assert_eq!(plain(&ours).count().await.unwrap(), 1);
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["PUBLISH", CHANNEL, "0"]);
    waiter.await.unwrap().unwrap();
    // It knows nothing of the key beside it, which ends by itself.
    assert!(ttl(world, IDLE) > 0);
    plain(&ours).wait().await.unwrap();
}

async fn a_latch_that_redisson_arms_does_not_end(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(2).await.unwrap());
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["SET", "job", "2"]);
    assert!(ttl(world, IDLE) > 0);
    assert_eq!(plain(&ours).count_down().await.unwrap(), 1);
    assert_eq!((ttl(world, "job"), ttl(world, IDLE)), (-1, -2));
}

async fn without_the_option_nothing_has_changed(world: &World) {
    let ours = world.client().await;
    assert!(plain(&ours).arm(2).await.unwrap());
    let waiter = waiting(&ours);
    world.subscribed(CHANNEL).await;
    assert_eq!(plain(&ours).count_down().await.unwrap(), 1);
    assert_eq!((ttl(world, "job"), ttl(world, IDLE)), (-1, -2));
    plain(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
    is_gone(world).await;
}

async fn listeners_are_told(world: &World) {
    let ours = world.client().await;
    let mut events = plain(&ours).events();
    assert!(matches!(events.next().await, Some(Event::Now(_))));
    let second = Duration::from_secs(1);
    assert!(ephemeral(&ours, second).arm(2).await.unwrap());
    assert_eq!(events.next().await, Some(Event::Armed(2)));
    assert_eq!(events.next().await, Some(Event::Deleted));
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_somebody_waits_for_does_not_end() {
    let world = World::engine();
    let (ours, theirs) = (world.client().await, world.client().await);
    let second = Duration::from_secs(1);
    assert!(ephemeral(&ours, second).arm(1).await.unwrap());
    let waiter = waiting(&theirs);
    sleep(Duration::from_secs(3600)).await;
    assert!(!waiter.is_finished());
    assert_eq!(ephemeral(&ours, second).count_down().await.unwrap(), 0);
    waiter.await.unwrap().unwrap();
}

/// The poll interval may be an hour: the question keeps the latch for longer.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_seldom_asks_keeps_it_too() {
    let world = World::engine();
    let ours = world.client().await;
    let config: ClientConfig = world
        .config("rare")
        .poll_interval(Duration::from_secs(3600));
    let rare = Client::connect_with(config).await.unwrap();
    let second = Duration::from_secs(1);
    assert!(ephemeral(&ours, second).arm(1).await.unwrap());
    let waiter = waiting(&rare);
    sleep(Duration::from_secs(5 * 3600)).await;
    assert!(!waiter.is_finished());
    assert_eq!(plain(&ours).count().await.unwrap(), 1);
    plain(&ours).count_down().await.unwrap();
    waiter.await.unwrap().unwrap();
}

/// Exactly: to the millisecond, and nothing is left a minute later.
#[tokio::test(start_paused = true)]
async fn it_ends_when_its_time_has_passed_and_not_before() {
    let world = World::engine();
    let ours = world.client().await;
    let hour = Duration::from_secs(3600);
    let tick = Duration::from_millis(1);
    assert!(ephemeral(&ours, hour).arm(3).await.unwrap());
    for left in [2, 1] {
        sleep(hour - tick).await;
        assert_eq!(plain(&ours).count_down().await.unwrap(), left);
    }
    sleep(hour - tick).await;
    assert_eq!(plain(&ours).count().await.unwrap(), 1);
    sleep(2 * tick).await;
    assert_eq!(plain(&ours).count().await.unwrap(), 0);
    sleep(Duration::from_secs(61)).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_that_nobody_opened_leave_nothing() {
    let world = World::engine();
    let ours = world.client().await;
    let day = IdleExpiry::after(Duration::from_secs(86_400)).unwrap();
    for n in 0..1000 {
        let latch = CountDownLatch::new(&ours, format!("import\n:{n}")).unwrap();
        assert!(latch.ephemeral(day).arm(3).await.unwrap());
    }
    sleep(Duration::from_secs(86_400 + 61)).await;
    world.at_rest().await;
}

/// P6: a repeated arm is one, and neither arms anew nor shortens.
#[tokio::test(start_paused = true)]
async fn an_arm_whose_reply_is_lost_counts_once() {
    for way in LostReply::WAYS {
        let world = World::engine();
        let ours = world.client().await;
        let hour = Duration::from_secs(3600);
        // The server knows the script.
        assert!(ephemeral(&ours, hour).arm(1).await.unwrap());
        plain(&ours).count_down().await.unwrap();
        world.lose_next_reply(way);
        assert!(ephemeral(&ours, hour).arm(2).await.unwrap());
        assert_eq!(plain(&ours).count().await.unwrap(), 2);
        ends_in(&world, "job", 3_600_000);
    }
}

/// R8: what is refused at maxmemory has written nothing, and what is in use goes on.
#[tokio::test(start_paused = true)]
async fn a_full_server_keeps_what_is_used() {
    let world = World::engine();
    let ours = world.client().await;
    let faults = world.as_engine().faults();
    faults.out_of_memory(Switch::On);
    let refused = ephemeral(&ours, LONG).arm(2).await;
    assert!(
        matches!(refused, Err(QueryError::Rejected { .. })),
        "{refused:?}"
    );
    assert!(world.keys().is_empty(), "{:?}", world.keys());
    faults.out_of_memory(Switch::Off);
    assert!(ephemeral(&ours, LONG).arm(2).await.unwrap());
    age(&world, 10_000);
    faults.out_of_memory(Switch::On);
    let waited = plain(&ours).wait_timeout(Duration::ZERO).await;
    assert!(
        matches!(waited, Err(AcquireError::TimedOut { .. })),
        "{waited:?}"
    );
    ends_in(&world, "job", 1_000_000);
    assert_eq!(plain(&ours).count_down().await.unwrap(), 1);
    assert_eq!(plain(&ours).count_down().await.unwrap(), 0);
}

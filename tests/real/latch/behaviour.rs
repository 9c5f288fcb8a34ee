//! Tests the count-down latch: counting, waiting, deletion, and Redisson's layout on the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stanchion::error::NameRule;
use stanchion::{
    AcquireError, AcquireOptions, Client, CountDownLatch, Lease, OnDeadlock, QueryError, Rejection,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, ms, secs};

suite! {
    the_last_count_down_wakes_the_waiters_of_every_client,
    a_latch_without_a_count_is_open,
    a_wait_that_times_out_leaves_nothing,
    a_thousand_waiters_cost_one_message_and_one_request,
    deleting_a_latch_fails_its_waiters,
    a_latch_is_redissons_string,
    redissons_count_downs_open_a_latch,
    redisson_can_arm_after_our_delete,
    a_latch_in_braces_has_redissons_channel,
    the_key_prefix_is_part_of_a_latchs_name,
    bad_counts_and_names_are_refused_before_anything_is_sent,
    options_of_a_wait_apply,
    options_of_a_hold_are_refused_for_a_wait,
    large_counts_are_exact,
}

const CHANNEL: &str = "redisson_countdownlatch__channel__{job}";

type Waiting = tokio::task::JoinHandle<Result<(), AcquireError>>;

fn latch(client: &Client) -> CountDownLatch {
    CountDownLatch::new(client, "job").unwrap()
}

fn waiting(client: &Client) -> Waiting {
    let latch = latch(client);
    tokio::spawn(async move { latch.wait().await })
}

/// Waits until only marks of operations are left, and checks that they have TTLs.
async fn at_rest(world: &World) {
    let is_mark =
        |key: &String| key.starts_with("stanchion_once:") || key.starts_with("stanchion_latch_");
    eventually("only marks are left", || world.keys().iter().all(is_mark)).await;
    for key in world.keys() {
        let ttl: i64 = world.admin(&["PTTL", &key]).parse().unwrap();
        assert!(ttl != -1 && ttl <= 60_000, "{key}: {ttl}");
    }
    if let World::Engine(_) = world {
        tokio::time::sleep(secs(61)).await;
        world.at_rest().await;
    }
}

async fn the_last_count_down_wakes_the_waiters_of_every_client(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    assert!(latch(&ours).arm(3).await.unwrap());
    let waiters = [waiting(&ours), waiting(&theirs), waiting(&theirs)];
    eventually("all calls wait", || ours.waiters() + theirs.waiters() == 3).await;
    assert_eq!(latch(&theirs).count_down().await.unwrap(), 2);
    assert_eq!(latch(&ours).count_down().await.unwrap(), 1);
    world.quiet().await;
    assert_eq!(latch(&ours).count().await.unwrap(), 1);
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert_eq!(latch(&ours).count_down().await.unwrap(), 0);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    assert_eq!(latch(&ours).count().await.unwrap(), 0);
    assert_eq!((ours.waiters(), theirs.waiters()), (0, 0));
    at_rest(world).await;
}

async fn a_latch_without_a_count_is_open(world: &World) {
    let client = world.client().await;
    latch(&client).wait().await.unwrap();
    latch(&client).wait_timeout(Duration::ZERO).await.unwrap();
    assert_eq!(latch(&client).count().await.unwrap(), 0);
    assert_eq!(latch(&client).count_down().await.unwrap(), 0);
    world.at_rest().await;
}

async fn a_wait_that_times_out_leaves_nothing(world: &World) {
    let client = world.client().await;
    let latch = latch(&client);
    assert!(latch.arm(1).await.unwrap());
    for timeout in [Duration::ZERO, ms(30)] {
        let error = latch.wait_timeout(timeout).await.unwrap_err();
        match error {
            AcquireError::TimedOut {
                waited, free_by, ..
            } => {
                assert!(waited <= world.limit(timeout + ms(50)), "{waited:?}");
                assert_eq!(free_by, None, "waiting leaves nothing on the server");
            }
            other => panic!("{other}"),
        }
        assert_eq!(client.waiters(), 0);
    }
    assert_eq!(latch.count_down().await.unwrap(), 0);
    latch.wait_timeout(Duration::ZERO).await.unwrap();
    at_rest(world).await;
}

async fn a_thousand_waiters_cost_one_message_and_one_request(world: &World) {
    // No polls: only requests that a message causes are counted.
    let ours = world
        .configured("ours", |it| it.poll_interval(secs(600)))
        .await;
    let theirs = world.client().await;
    assert!(latch(&theirs).arm(3).await.unwrap());
    // Loads the script, so that each count-down below is one request.
    assert_eq!(latch(&theirs).count_down().await.unwrap(), 2);
    let waiters: Vec<_> = (0..1000).map(|_| waiting(&ours)).collect();
    world.waiting(&ours, 1000, CHANNEL).await;
    assert_eq!(world.subscribers(CHANNEL), 1);
    let before = world.scripts_run();
    assert_eq!(latch(&theirs).count_down().await.unwrap(), 1);
    assert_eq!(latch(&theirs).count_down().await.unwrap(), 0);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    let scripts = world.scripts_run() - before;
    assert_eq!(scripts, 3, "two count-downs and one request of the waiters");
    at_rest(world).await;
}

fn assert_deleted(result: Result<(), AcquireError>) {
    match result.unwrap_err() {
        AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        } => {}
        other => panic!("{other}"),
    }
}

async fn deleting_a_latch_fails_its_waiters(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    assert!(latch(&ours).arm(2).await.unwrap());
    let waiters = [waiting(&ours), waiting(&ours), waiting(&theirs)];
    eventually("all calls wait", || ours.waiters() + theirs.waiters() == 3).await;
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    let started = tokio::time::Instant::now();
    assert!(latch(&ours).danger().delete().await.unwrap());
    for waiter in waiters {
        assert_deleted(waiter.await.unwrap());
    }
    assert!(
        started.elapsed() < world.limit(secs(1)),
        "by message, not by a poll: {:?}",
        started.elapsed()
    );
    opens_soon(world, &theirs).await;
    assert!(!latch(&ours).danger().delete().await.unwrap());
    assert_eq!(latch(&ours).count_down().await.unwrap(), 0);
    assert!(latch(&theirs).arm(1).await.unwrap());
    assert_eq!(latch(&ours).count_down().await.unwrap(), 0);
    latch(&theirs).wait().await.unwrap();
    at_rest(world).await;
}

async fn a_latch_is_redissons_string(world: &World) {
    let client = world.client().await;
    assert!(latch(&client).arm(3).await.unwrap());
    assert_eq!(world.admin(&["TYPE", "job"]), "string");
    assert_eq!(world.admin(&["GET", "job"]), "3");
    assert_eq!(world.admin(&["PTTL", "job"]), "-1");
    assert_eq!(latch(&client).count_down().await.unwrap(), 2);
    assert_eq!(world.admin(&["GET", "job"]), "2");
    assert_eq!(latch(&client).count_down_by(2).await.unwrap(), 0);
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    at_rest(world).await;
}

async fn redissons_count_downs_open_a_latch(world: &World) {
    let client = world.client().await;
    let _ = world.admin(&["SET", "job", "2"]);
    let waiter = waiting(&client);
    world.subscribed(CHANNEL).await;
    assert!(!latch(&client).arm(7).await.unwrap());
    assert_eq!(latch(&client).count_down().await.unwrap(), 1);
    world.quiet().await;
    let _ = world.admin(&["DECR", "job"]);
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["PUBLISH", CHANNEL, "0"]);
    waiter.await.unwrap().unwrap();
    at_rest(world).await;
}

async fn redisson_can_arm_after_our_delete(world: &World) {
    let client = world.client().await;
    assert!(latch(&client).arm(2).await.unwrap());
    assert!(latch(&client).danger().delete().await.unwrap());
    // Redisson's `trySetCount` does not remove the mark of the deletion.
    let _ = world.admin(&["SET", "job", "1"]);
    let waiter = waiting(&client);
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["PUBLISH", CHANNEL, "0"]);
    waiter.await.unwrap().unwrap();
    latch(&client).wait().await.unwrap();
    at_rest(world).await;
}

/// Waits until a new wait succeeds. For about a round trip after a delete, a wait may still fail as deleted.
async fn opens_soon(world: &World, client: &Client) {
    let started = tokio::time::Instant::now();
    while let Err(error) = latch(client).wait().await {
        assert!(started.elapsed() < world.limit(secs(1)), "{error}");
        tokio::time::sleep(ms(1)).await;
    }
}

async fn a_latch_in_braces_has_redissons_channel(world: &World) {
    let client = world.client().await;
    let latch = CountDownLatch::new(&client, "{t}:job").unwrap();
    assert!(latch.arm(1).await.unwrap());
    let waits = latch.clone();
    let waiter = tokio::spawn(async move { waits.wait().await });
    world
        .subscribed("redisson_countdownlatch__channel__{{t}:job}")
        .await;
    assert_eq!(latch.count_down().await.unwrap(), 0);
    waiter.await.unwrap().unwrap();
    at_rest(world).await;
}

async fn the_key_prefix_is_part_of_a_latchs_name(world: &World) {
    let client = world
        .configured("prefixed", |it| it.key_prefix("app:"))
        .await;
    assert!(latch(&client).arm(1).await.unwrap());
    assert_eq!(latch(&client).name().to_string(), "app:job");
    assert_eq!(world.admin(&["GET", "app:job"]), "1");
    let unprefixed = CountDownLatch::new(&world.client().await, "app:job").unwrap();
    assert_eq!(unprefixed.count_down().await.unwrap(), 0);
    at_rest(world).await;
}

async fn bad_counts_and_names_are_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let before = world.scripts_run();
    let latch = latch(&client);
    let refused = |error: QueryError, value: &str| {
        assert!(
            matches!(&error, QueryError::Rejected { rejection: Rejection::InvalidOption { rule } } if rule.contains(value)),
            "{error}"
        );
    };
    refused(latch.arm(0).await.unwrap_err(), "count 0");
    refused(latch.arm(1 << 53).await.unwrap_err(), "9007199254740992");
    refused(latch.count_down_by(0).await.unwrap_err(), "by 0");
    let error = CountDownLatch::new(&client, "").unwrap_err();
    assert_eq!(error.rule, NameRule::Empty);
    assert_eq!(world.scripts_run(), before);
}

async fn options_of_a_wait_apply(world: &World) {
    let client = world.client().await;
    let latch = latch(&client);
    assert!(latch.arm(1).await.unwrap());
    let queued = Arc::new(AtomicBool::new(false));
    let options = AcquireOptions::new().timeout(ms(300));
    let options = options.on_queued({
        let queued = Arc::clone(&queued);
        move || queued.store(true, Ordering::Relaxed)
    });
    let late = latch.wait_with(options.clone()).await;
    assert!(matches!(
        late,
        Err(AcquireError::TimedOut { free_by: None, .. })
    ));
    assert!(queued.load(Ordering::Relaxed), "the wait was reported");
    latch.count_down().await.unwrap();
    latch.wait_with(options).await.unwrap();
    at_rest(world).await;
}

async fn options_of_a_hold_are_refused_for_a_wait(world: &World) {
    let client = world.client().await;
    let latch = latch(&client);
    let before = world.scripts_run();
    let options = AcquireOptions::new;
    for (options, shown) in [
        (
            options().lease(Lease::default()),
            "lease 30s: a latch has no holds",
        ),
        (
            options().max_hold(secs(7)),
            "max_hold 7s: a latch has no holds",
        ),
        (
            options().owner(&client.owner()),
            "owner: a wait for a latch leaves no hold",
        ),
        (
            options().on_deadlock(OnDeadlock::Fail),
            "on_deadlock: Fail is for locks",
        ),
    ] {
        let error = latch.wait_with(options).await.unwrap_err().to_string();
        assert!(error.contains(shown), "{error}");
    }
    assert_eq!(world.scripts_run(), before);
}

async fn large_counts_are_exact(world: &World) {
    let client = world.client().await;
    let latch = latch(&client);
    let most = (1 << 53) - 1;
    assert!(latch.arm(most).await.unwrap());
    assert_eq!(latch.count().await.unwrap(), most);
    assert_eq!(latch.count_down().await.unwrap(), most - 1);
    assert_eq!(latch.count_down_by(most - 2).await.unwrap(), 1);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    at_rest(world).await;
}

#[tokio::test]
async fn on_a_cluster_a_latchs_name_has_no_braces() {
    if !stanchion_testkit::RedisServer::available() {
        return drop(World::server("on_a_cluster_a_latchs_name_has_no_braces"));
    }
    let server = stanchion_testkit::RedisServer::builder()
        .cluster_enabled()
        .start();
    let client = Client::connect(server.url()).await.unwrap();
    for braced in ["{t}:job", "a{b", "{}x", "a}b"] {
        let error = CountDownLatch::new(&client, braced).unwrap_err();
        assert!(
            matches!(error.rule, NameRule::Braces | NameRule::SplitsSlots),
            "{error}"
        );
        assert!(
            error.to_string().contains(&format!("{braced:?}")),
            "{error}"
        );
    }
    let latch = CountDownLatch::new(&client, "job").unwrap();
    assert!(latch.arm(1).await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), 0);
    latch.wait().await.unwrap();
}

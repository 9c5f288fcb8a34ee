//! The number of commands that event listeners send, and when they stop sending them.

use std::time::Duration;

use stanchion::Client;
use stanchion_tests::{World, ms, secs};
use tokio::time::{sleep, timeout};

use stanchion_tests::events::*;

/// The commands that the clients have sent so far.
fn commands(world: &World) -> u64 {
    let stats = world.as_engine().stats();
    stats.commands
}

#[tokio::test(start_paused = true)]
async fn a_client_without_listeners_sends_no_event_commands() {
    let (world, ours) = engine().with_client().await;
    sleep(LONG).await;
    let before = commands(&world);
    let events = lock(&ours).events();
    sleep(LONG).await;
    drop(events);
    let idle = commands(&world) - before;
    let mut events = lock(&ours).events();
    // A zero timeout polls the stream once.
    assert!(timeout(Duration::ZERO, events.next()).await.is_err());
    drop(events);
    sleep(secs(1)).await;
    let before = commands(&world);
    sleep(LONG).await;
    assert_eq!(
        commands(&world) - before,
        idle,
        "the same number as with a stream that was never polled"
    );
    let stats = world.as_engine().stats();
    assert!(stats.count("EXISTS") <= 1, "at most one EXISTS");
}

/// Checks the costs that `docs/events.md` states.
#[tokio::test(start_paused = true)]
async fn a_change_costs_two_commands_for_any_number_of_listeners() {
    let (world, [ours, theirs]) = engine().with_named(["ours", "theirs"]).await;
    // Loads the scripts into the server, so that no later call is sent twice.
    drop(lock(&theirs).acquire().await.unwrap().release().await);
    let mut all: Vec<_> = (0..50).map(|_| lock(&ours).events()).collect();
    for events in &mut all {
        now(events).await;
    }
    world.quiet().await;
    let stats = || world.as_engine().stats();
    let counts = |stats: stanchion::embedded::Stats| {
        (
            stats.count("EXISTS"),
            stats.count("EVALSHA") + stats.count("EVAL"),
        )
    };
    let before = counts(stats());
    let started = tokio::time::Instant::now();
    let guard = lock(&theirs).acquire().await.unwrap();
    for events in &mut all {
        assert_eq!(word(&next(events).await), "taken");
    }
    // The rate limit of 100 reads per second does not delay the first read after a quiet period.
    assert!(started.elapsed() <= ms(2));
    // One EXISTS and two scripts: the acquire and the read of the state.
    let after = counts(stats());
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 2));
    // Without changes, each poll costs one script.
    guard.release().await.unwrap();
    for events in &mut all {
        assert_eq!(words(events, "free").await, ["released", "free"]);
    }
    world.quiet().await;
    let before = counts(stats());
    sleep(10 * POLL).await;
    let after = counts(stats());
    assert!(
        (10..=12).contains(&(after.1 - before.1)),
        "{before:?} {after:?}"
    );
    assert!(after.0 - before.0 <= 1, "{before:?} {after:?}");
}

#[tokio::test(start_paused = true)]
async fn polling_stops_with_the_last_listener_and_restarts_with_the_next() {
    let (world, ours) = engine().with_client().await;
    let scripts = async || {
        let before = world.scripts_run();
        sleep(10 * POLL).await;
        world.scripts_run() - before
    };
    for _ in 0..3 {
        let (mut one, mut two) = (lock(&ours).events(), lock(&ours).events());
        now(&mut one).await;
        now(&mut two).await;
        drop(one);
        assert!(scripts().await >= 9, "one listener is left");
        let guard = lock(&ours).acquire().await.unwrap();
        assert_eq!(word(&next(&mut two).await), "taken");
        drop(two);
        guard.release().await.unwrap();
        assert_eq!(scripts().await, 0);
    }
}

/// The second listener triggers a read of its own and does not wait for the next poll.
#[tokio::test(start_paused = true)]
async fn a_second_listener_receives_the_state_at_once() {
    let (_world, ours) = engine().with_client().await;
    let mut one = lock(&ours).events();
    now(&mut one).await;
    sleep(secs(1)).await;
    let started = tokio::time::Instant::now();
    let mut two = lock(&ours).events();
    now(&mut two).await;
    assert!(started.elapsed() <= SOON, "{:?}", started.elapsed());
    quiet(&mut one, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_read_at_most_a_hundred_times_a_second() {
    let (world, [ours, theirs]) = engine().with_named(["ours", "theirs"]).await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let busy = tokio::spawn(async move {
        for _ in 0..2000 {
            let guard = lock(&theirs).acquire().await.unwrap();
            sleep(ms(3)).await;
            guard.release().await.unwrap();
            sleep(ms(4)).await;
        }
    });
    let before = world.as_engine().stats().count("EXISTS");
    let started = tokio::time::Instant::now();
    let mut received = 0;
    while !busy.is_finished() {
        if timeout(ms(20), events.next()).await.is_ok() {
            received += 1;
        }
    }
    let reads = world.as_engine().stats().count("EXISTS") - before;
    let most = started.elapsed().as_millis() / 10 + 2;
    assert!(u128::from(reads) <= most, "{reads} reads, {most} allowed");
    busy.await.unwrap();
    assert!(received > 100, "{received}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_listener_receives_only_the_difference() {
    let (_world, [ours, theirs]) = engine().with_named(["ours", "theirs"]).await;
    let mut slow = lock(&ours).events();
    let mut other = lock(&ours).events();
    now(&mut slow).await;
    now(&mut other).await;
    let first = lock(&theirs).acquire().await.unwrap();
    assert_eq!(word(&next(&mut slow).await), "taken");
    let watching = tokio::spawn(async move {
        while let Some(event) = other.next().await {
            drop(event);
        }
    });
    // The renewals outlast the lease that the slow listener has read. The listener must still report a release, not an expiry.
    sleep(LONG).await;
    first.release().await.unwrap();
    for _ in 0..500 {
        let guard = lock(&theirs).acquire().await.unwrap();
        sleep(ms(20)).await;
        guard.release().await.unwrap();
    }
    let last = lock(&theirs).acquire().await.unwrap();
    sleep(SOON).await;
    assert_eq!(words(&mut slow, "taken").await, ["released", "taken"]);
    quiet(&mut slow, SOON).await;
    drop(last);
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn a_slow_listener_receives_the_expiry_of_a_lease() {
    let (world, ours) = engine().with_client().await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    drop(world.admin(&["HSET", "orders", stanchion_tests::JAVA, "1"]));
    drop(world.admin(&["PEXPIRE", "orders", "600"]));
    assert_eq!(word(&next(&mut events).await), "taken");
    sleep(LONG).await;
    assert_eq!(words(&mut events, "free").await, ["expired", "free"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_one_of_a_thousand_names_wakes_only_its_listener() {
    let world = engine();
    let ours: Client = world.client().await;
    let named = |n: usize| stanchion::Lock::new(&ours, format!("order:{n}")).unwrap();
    let mut all: Vec<_> = (0..1000).map(|n| named(n).events()).collect();
    for events in &mut all {
        now(events).await;
    }
    let before = world.as_engine().stats().count("EXISTS");
    let _guard = named(500).acquire().await.unwrap();
    assert_eq!(word(&next(&mut all[500]).await), "taken");
    sleep(SOON).await;
    assert_eq!(world.as_engine().stats().count("EXISTS") - before, 1);
}

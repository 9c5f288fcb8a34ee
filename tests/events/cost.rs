//! The cost of listening, and its end.

use std::time::Duration;

use stanchion::Client;
use stanchion_tests::World;
use tokio::time::{sleep, timeout};

use crate::support::*;

/// The commands that the clients have sent so far.
fn commands(world: &World) -> u64 {
    let stats = world.as_engine().stats();
    stats.commands
}

#[tokio::test(start_paused = true)]
async fn nobody_listens_and_nothing_is_sent() {
    let world = engine();
    let ours = world.client().await;
    sleep(LONG).await;
    let before = commands(&world);
    let events = lock(&ours).events();
    sleep(LONG).await;
    drop(events);
    let idle = commands(&world) - before;
    let mut events = lock(&ours).events();
    // Polled once, and dropped.
    assert!(timeout(Duration::ZERO, events.next()).await.is_err());
    drop(events);
    sleep(Duration::from_secs(1)).await;
    let before = commands(&world);
    sleep(LONG).await;
    assert_eq!(
        commands(&world) - before,
        idle,
        "what the links send anyway"
    );
    let stats = world.as_engine().stats();
    assert!(stats.count("EXISTS") <= 1, "one look at most");
}

/// The figures of `docs/events.md`.
#[tokio::test(start_paused = true)]
async fn a_change_costs_two_commands_however_many_listen() {
    let world = engine();
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    // The server knows the scripts from here on.
    drop(lock(&theirs).acquire().await.unwrap().release().await);
    let mut all: Vec<_> = (0..50).map(|_| lock(&ours).events()).collect();
    for events in &mut all {
        now(events).await;
    }
    world.quiet().await;
    let stats = || world.as_engine().stats();
    let asked = |stats: stanchion::embedded::Stats| {
        (
            stats.count("EXISTS"),
            stats.count("EVALSHA") + stats.count("EVAL"),
        )
    };
    let before = asked(stats());
    let started = tokio::time::Instant::now();
    let guard = lock(&theirs).acquire().await.unwrap();
    for events in &mut all {
        assert_eq!(word(&next(events).await), "taken");
    }
    // After a quiet time nobody rests before the look.
    assert!(started.elapsed() <= Duration::from_millis(2));
    // The acquire, and the look.
    let after = asked(stats());
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 2));
    // Quiet: polls, each of one script.
    guard.release().await.unwrap();
    for events in &mut all {
        assert_eq!(words(events, "free").await, ["released", "free"]);
    }
    world.quiet().await;
    let before = asked(stats());
    sleep(10 * POLL).await;
    let after = asked(stats());
    assert!(
        (10..=12).contains(&(after.1 - before.1)),
        "{before:?} {after:?}"
    );
    assert!(after.0 - before.0 <= 1, "{before:?} {after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_looks_end_with_the_last_listener_and_begin_again() {
    let world = engine();
    let ours = world.client().await;
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
        assert!(scripts().await >= 9, "one listens still");
        let guard = lock(&ours).acquire().await.unwrap();
        assert_eq!(word(&next(&mut two).await), "taken");
        drop(two);
        guard.release().await.unwrap();
        assert_eq!(scripts().await, 0);
    }
}

/// A look for it, and not at the next poll.
#[tokio::test(start_paused = true)]
async fn a_second_listener_is_told_the_state_at_once() {
    let world = engine();
    let ours = world.client().await;
    let mut one = lock(&ours).events();
    now(&mut one).await;
    sleep(Duration::from_secs(1)).await;
    let started = tokio::time::Instant::now();
    let mut two = lock(&ours).events();
    now(&mut two).await;
    assert!(started.elapsed() <= SOON, "{:?}", started.elapsed());
    quiet(&mut one, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_taken_all_the_time_costs_at_most_a_hundred_looks_a_second() {
    let world = engine();
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let busy = tokio::spawn(async move {
        for _ in 0..2000 {
            let guard = lock(&theirs).acquire().await.unwrap();
            sleep(Duration::from_millis(3)).await;
            guard.release().await.unwrap();
            sleep(Duration::from_millis(4)).await;
        }
    });
    let before = world.as_engine().stats().count("EXISTS");
    let started = tokio::time::Instant::now();
    let mut told = 0;
    while !busy.is_finished() {
        if timeout(Duration::from_millis(20), events.next())
            .await
            .is_ok()
        {
            told += 1;
        }
    }
    let looks = world.as_engine().stats().count("EXISTS") - before;
    let most = started.elapsed().as_millis() / 10 + 2;
    assert!(u128::from(looks) <= most, "{looks} looks, {most} allowed");
    busy.await.unwrap();
    assert!(told > 100, "{told}");
}

/// A listener that lags gets what has changed, and no more.
#[tokio::test(start_paused = true)]
async fn a_listener_that_lags_is_told_the_difference() {
    let world = engine();
    let (ours, theirs) = (world.named("ours").await, world.named("theirs").await);
    let mut lags = lock(&ours).events();
    let mut other = lock(&ours).events();
    now(&mut lags).await;
    now(&mut other).await;
    let first = lock(&theirs).acquire().await.unwrap();
    assert_eq!(word(&next(&mut lags).await), "taken");
    let watching = tokio::spawn(async move {
        while let Some(event) = other.next().await {
            drop(event);
        }
    });
    // Renewed for longer than its lease, as the listener has read it.
    sleep(LONG).await;
    first.release().await.unwrap();
    for _ in 0..500 {
        let guard = lock(&theirs).acquire().await.unwrap();
        sleep(Duration::from_millis(20)).await;
        guard.release().await.unwrap();
    }
    let last = lock(&theirs).acquire().await.unwrap();
    sleep(SOON).await;
    assert_eq!(words(&mut lags, "taken").await, ["released", "taken"]);
    quiet(&mut lags, SOON).await;
    drop(last);
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_lags_is_told_of_the_end_of_a_lease() {
    let world = engine();
    let ours = world.client().await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    drop(world.admin(&["HSET", "orders", stanchion_tests::JAVA, "1"]));
    drop(world.admin(&["PEXPIRE", "orders", "600"]));
    assert_eq!(word(&next(&mut events).await), "taken");
    sleep(LONG).await;
    assert_eq!(words(&mut events, "free").await, ["expired", "free"]);
}

/// As many names as a process may know: each is told of its own.
#[tokio::test(start_paused = true)]
async fn a_thousand_names_do_not_wake_each_other() {
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

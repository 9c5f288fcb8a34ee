//! Event streams during outages, refusals, lost connections and shutdowns, in virtual time.

use stanchion::client::Wake;
use stanchion::embedded::{Data, Switch};
use stanchion::{Event, QueryError};
use tokio::time::{Instant, sleep, timeout};

use stanchion_tests::events::*;
use stanchion_tests::{ms, secs};

#[tokio::test(start_paused = true)]
async fn polls_find_changes_when_tracking_is_refused() {
    let world = engine();
    let theirs = world.named("theirs").await;
    let ours = world.named("ours").await;
    let refusal = "NOPERM this user has no permissions to run the 'client|tracking' command";
    world.faults().fail_next("CLIENT", refusal, 1);
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let started = Instant::now();
    let guard = lock(&theirs).acquire().await.unwrap();
    assert_eq!(word(&next(&mut events).await), "taken");
    let took = started.elapsed();
    assert!(took > SOON && took <= POLL + SOON, "{took:?}");
    sleep(LONG).await;
    assert_eq!(
        world.as_engine().stats().count("EXISTS"),
        0,
        "no EXISTS after the refusal"
    );
    // The listener finds the expiry of a lease without a message.
    world.faults().freeze(Some("theirs"));
    assert_eq!(words(&mut events, "free").await, ["expired", "free"]);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_wake_poll_uses_no_tracking() {
    let world = engine();
    let ours = world.configured("ours", |it| it.wake(Wake::Poll)).await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let started = Instant::now();
    let _guard = lock(&ours).acquire().await.unwrap();
    assert_eq!(word(&next(&mut events).await), "taken");
    assert!(started.elapsed() <= POLL + SOON);
    assert_eq!(world.as_engine().stats().count("EXISTS"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_and_then_the_new_state() {
    let (world, ours) = engine().with_client().await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let faults = world.faults();
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    let seen = next(&mut events).await;
    let unavailable = matches!(seen, Event::Unknown(QueryError::Unavailable { .. }));
    assert!(unavailable, "{seen:?}");
    quiet(&mut events, LONG).await;
    faults.refuse_connections(Switch::Off);
    assert!(now(&mut events).await.holders.is_empty());
    let guard = lock(&ours).acquire().await.unwrap();
    assert_eq!(word(&next(&mut events).await), "taken");
    faults.restart(Data::Lost);
    assert!(now(&mut events).await.holders.is_empty());
    drop(guard);
}

/// While the connection for messages is down, the server reports no writes to this client.
#[tokio::test(start_paused = true)]
async fn a_new_connection_for_messages_is_reported_as_a_gap() {
    let (world, [ours, theirs]) = engine().with_named(["ours", "theirs"]).await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let list = world.admin(&["CLIENT", "LIST"]);
    let line = list.lines().find(|line| line.contains(":ours:sub"));
    let id = line.and_then(|line| line[3..].split(' ').next());
    let id = id.unwrap_or_else(|| panic!("{list}"));
    drop(world.admin(&["CLIENT", "KILL", "ID", id]));
    // One state for the lost connection, one for the new connection.
    now(&mut events).await;
    now(&mut events).await;
    let started = Instant::now();
    let _guard = lock(&theirs).acquire().await.unwrap();
    assert_eq!(word(&next(&mut events).await), "taken");
    assert!(
        started.elapsed() <= SOON,
        "the new connection receives messages"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flush_is_reported_as_a_release() {
    let (world, ours) = engine().with_client().await;
    let guard = lock(&ours).acquire().await.unwrap();
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let started = Instant::now();
    drop(world.admin(&["FLUSHALL"]));
    assert_eq!(words(&mut events, "free").await, ["released", "free"]);
    assert!(started.elapsed() <= SOON, "{:?}", started.elapsed());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_type_ends_the_stream() {
    let (world, ours) = engine().with_client().await;
    drop(world.admin(&["SET", "orders", "x"]));
    let mut events = lock(&ours).events();
    let seen = next(&mut events).await;
    let refused = matches!(seen, Event::Unknown(QueryError::Rejected { .. }));
    assert!(refused, "{seen:?}");
    assert_eq!(events.next().await, None);
    assert_eq!(events.next().await, None);
    // A new listener works after the foreign key is deleted.
    drop(world.admin(&["DEL", "orders"]));
    now(&mut lock(&ours).events()).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_stream() {
    let (_world, ours) = engine().with_client().await;
    let (mut events, mut unpolled) = (lock(&ours).events(), lock(&ours).events());
    now(&mut events).await;
    let waiting = tokio::spawn(async move { events.next().await });
    tokio::task::yield_now().await;
    let started = Instant::now();
    let report = ours.shutdown(secs(5)).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(waiting.await.unwrap(), None);
    assert!(started.elapsed() <= SOON, "{:?}", started.elapsed());
    assert_eq!(unpolled.next().await, None);
}

/// The pauses drop the calls at every await point of a listener. The next call must return the event.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_loses_no_event() {
    let (_world, [ours, theirs]) = slow_engine().with_named(["ours", "theirs"]).await;
    let mut events = lock(&ours).events();
    let mut received = Vec::new();
    let mut receive = async |pause: u64, received: &mut Vec<String>| {
        let pause = ms(pause);
        if let Ok(event) = timeout(pause, events.next()).await {
            received.push(word(&event.unwrap()));
        }
    };
    for pause in 0..60 {
        receive(pause % 4, &mut received).await;
    }
    let guard = lock(&theirs).acquire().await.unwrap();
    for pause in 0..60 {
        receive(pause % 4, &mut received).await;
    }
    guard.release().await.unwrap();
    for pause in 0..60 {
        receive(pause % 4, &mut received).await;
    }
    assert_eq!(received, ["now", "taken", "released", "free"]);
}

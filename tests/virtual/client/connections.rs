//! Tests that links reconnect without a limit, and that holds and waits continue after a reconnect.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::poll;
use stanchion::client::{ByteStream, Connector};
use stanchion::embedded::{Data, Engine, Switch};
use stanchion::{Client, Lock, QueryError};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_is, assert_within, lease, ms, secs, spawn_ok};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_restart_that_keeps_the_data_keeps_holds_and_waiters() {
    let (world, [ours, theirs]) = World::engine().with_clients().await;
    let guard = Lock::new(&ours, "job")
        .unwrap()
        .lease(lease(secs(3)))
        .acquire()
        .await
        .unwrap();
    let waiting = spawn_ok(Lock::new(&theirs, "job").unwrap().acquire());
    for _ in 0..5 {
        world.faults().restart(Data::Kept);
        tokio::time::sleep(secs(2)).await;
        assert!(guard.is_held() && !waiting.is_finished());
    }
    guard.release().await.unwrap();
    let next = waiting.await.unwrap();
    next.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_console_sends_plain_commands_and_distinguishes_refusals_from_outages() {
    let (world, client) = World::engine().with_client().await;
    let [console] = &client.consoles()[..] else {
        panic!("one server")
    };
    let pong = console.command(&["PING"]).await.unwrap();
    assert_eq!(pong.as_text(), Some("PONG"));
    let nonsense = console.command(&["NONSENSE"]).await.unwrap_err();
    assert_is!(nonsense, QueryError::Rejected { .. });
    let none: [Vec<&str>; 0] = [];
    assert!(console.commands(&none).await.unwrap().is_empty());
    let three = [vec!["PING"], vec!["NONSENSE"], vec!["ECHO", "last"]];
    let replies = console.commands(&three).await.unwrap();
    let [Ok(pong), Err(QueryError::Rejected { .. }), Ok(last)] = &replies[..] else {
        panic!("each command has its own result: {replies:?}")
    };
    assert_eq!(
        (pong.as_text(), last.as_text()),
        (Some("PONG"), Some("last"))
    );
    let of_key = client.console_of(b"job").unwrap();
    assert_eq!(of_key.server(), console.server());
    world.faults().refuse_connections(Switch::On);
    world.faults().restart(Data::Kept);
    // Time for the links to notice.
    tokio::time::sleep(secs(1)).await;
    let away = console.command(&["PING"]).await.unwrap_err();
    assert!(matches!(away, QueryError::Unavailable { .. }), "{away}");
    let away = console.commands(&three).await.unwrap_err();
    assert!(matches!(away, QueryError::Unavailable { .. }), "{away}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_survives_an_outage_of_fifty_minutes() {
    let world = World::engine();
    let client = world
        .configured("client", |it| it.outage_tolerance(secs(3600)))
        .await;
    let lock = Lock::new(&client, "job").unwrap();
    let waiting = tokio::spawn({
        let faults = world.faults();
        faults.refuse_connections(Switch::On);
        faults.kill_connections();
        async move { lock.acquire().await.unwrap() }
    });
    tokio::time::sleep(secs(3000)).await;
    assert!(!client.is_connected() && !waiting.is_finished());
    world.faults().refuse_connections(Switch::Off);
    waiting.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_owes_a_reply_is_replaced() {
    let world = World::engine();
    let client = world.named("client").await;
    let lock = Lock::new(&client, "job").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    world.faults().freeze(Some("client"));
    let waiting = spawn_ok(lock.acquire());
    eventually("the frozen connections are given up", || {
        !client.is_connected()
    })
    .await;
    world.faults().thaw(Some("client"));
    waiting.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_died_silently_is_replaced_before_it_is_needed() {
    let world = World::engine();
    let client = world.named("client").await;
    world.faults().lose_replies_silently("TIME", 3);
    // The replies to the probes of all three links are lost. The application has sent no request.
    tokio::time::sleep(secs(10)).await;
    let started = Instant::now();
    Lock::new(&client, "job")
        .unwrap()
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_within(started, ms(100), ());
}

/// Opens streams to the engine that end after `life`, and records when it opened each.
#[derive(Debug)]
struct ShortLived {
    engine: Engine,
    life: Duration,
    dialled: Arc<Mutex<Vec<Instant>>>,
}

#[async_trait]
impl Connector for ShortLived {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        self.dialled.lock().unwrap().push(Instant::now());
        let stream = self.engine.connect()?;
        let life = self.life;
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let mut stream = stream;
            let carrying = tokio::io::copy_bidirectional(&mut stream, &mut far);
            drop(tokio::time::timeout(life, carrying).await);
        });
        Ok(Box::new(near))
    }
}

/// A client whose streams end after `life`, and the times at which it connected.
async fn observed(world: &World, life: Duration, seed: u64) -> (Client, Arc<Mutex<Vec<Instant>>>) {
    let dialled = Arc::default();
    let connector = ShortLived {
        engine: world.as_engine().clone(),
        life,
        dialled: Arc::clone(&dialled),
    };
    let client = world
        .configured("client", |it| it.connector(connector).seed(seed))
        .await;
    (client, dialled)
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_request_keeps_its_connection() {
    let world = World::engine();
    let (client, dialled) = observed(&world, Duration::MAX, 7).await;
    let lock = Lock::new(&client, "job").unwrap();
    let mut acquire = pin!(lock.acquire());
    // As in a `select!` whose other arm is busy: the request is sent, and its future is not polled when the reply arrives.
    assert!(poll!(acquire.as_mut()).is_pending());
    let before = dialled.lock().unwrap().len();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(
        dialled.lock().unwrap().len(),
        before,
        "a healthy connection was given up"
    );
    acquire.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_request_does_not_hide_a_dead_connection() {
    let world = World::engine();
    let client = world.named("client").await;
    let lock = Lock::new(&client, "job").unwrap();
    let mut answered = pin!(lock.acquire());
    assert!(poll!(answered.as_mut()).is_pending());
    tokio::time::sleep(secs(5)).await;
    world.faults().freeze(Some("client"));
    eventually("the frozen connections are given up", || {
        !client.is_connected()
    })
    .await;
    world.faults().thaw(Some("client"));
    drop(answered.await.unwrap());
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn reconnects_back_off_when_the_peer_closes_at_once() {
    let world = World::engine();
    let (_client, dialled) = observed(&world, ms(10), 7).await;
    tokio::time::sleep(secs(120)).await;
    let dialled = dialled.lock().unwrap();
    // Two links. Each connects about ten times while its pauses grow, and then at most once in 2 s.
    assert!(
        (60..=150).contains(&dialled.len()),
        "{} dials",
        dialled.len()
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_lived_connection_resets_the_backoff() {
    let world = World::engine();
    let (_client, dialled) = observed(&world, secs(30), 7).await;
    tokio::time::sleep(secs(600)).await;
    let dialled = dialled.lock().unwrap();
    let soon = ms(100);
    let late = dialled.windows(2).find(|two| {
        let pause = two[1] - two[0];
        pause > soon && !(secs(30)..secs(30) + soon).contains(&pause)
    });
    assert!(late.is_none() && dialled.len() >= 38, "{dialled:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_lose_one_server_spread_their_reconnects() {
    let world = World::engine();
    let mut clients = Vec::new();
    for seed in 1..=8 {
        clients.push(observed(&world, Duration::MAX, seed).await);
    }
    tokio::time::sleep(secs(5)).await;
    let before: Vec<usize> = clients
        .iter()
        .map(|(_, d)| d.lock().unwrap().len())
        .collect();
    world.faults().kill_connections();
    tokio::time::sleep(secs(5)).await;
    let mut first: Vec<Instant> = clients
        .iter()
        .zip(before)
        .map(|((_, d), n)| d.lock().unwrap()[n])
        .collect();
    first.sort_unstable();
    first.dedup();
    assert!(first.len() >= 6, "eight clients, {} instants", first.len());
    let spread = first[first.len() - 1] - first[0];
    assert!(spread <= ms(100), "{spread:?}");
}

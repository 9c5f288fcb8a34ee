//! Links come back for ever, and what was held or waited for goes on.

use std::time::Duration;

use stanchion::embedded::{Data, Switch};
use stanchion::{Client, Lease, Lock, LostReason};
use stanchion_testkit::eventually;
use stanchion_tests::World;

#[tokio::test(start_paused = true)]
async fn a_restart_with_its_data_keeps_what_is_held() {
    let world = World::engine();
    let (ours, theirs) = (world.client().await, world.client().await);
    let guard = Lock::new(&ours, "job")
        .unwrap()
        .with_lease(Lease::new(Duration::from_secs(3)).unwrap())
        .acquire()
        .await
        .unwrap();
    let lock = Lock::new(&theirs, "job").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    for _ in 0..5 {
        world.as_engine().faults().restart(Data::Kept);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(guard.is_held() && !waiting.is_finished());
    }
    guard.release().await.unwrap();
    let next = waiting.await.unwrap();
    next.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_data_is_noticed_at_the_next_renewal() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job")
        .unwrap()
        .with_lease(Lease::new(Duration::from_secs(3)).unwrap());
    let guard = lock.acquire().await.unwrap();
    world.as_engine().faults().restart(Data::Lost);
    assert_eq!(guard.lost().await, LostReason::Gone);
    let next = lock.acquire().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn a_server_away_for_an_hour_is_found_again() {
    let world = World::engine();
    let config = world
        .config("client")
        .outage_tolerance(Duration::from_secs(3600));
    let client = Client::connect_with(config).await.unwrap();
    let lock = Lock::new(&client, "job").unwrap();
    let waiting = tokio::spawn({
        let faults = world.as_engine().faults();
        faults.refuse_connections(Switch::On);
        faults.kill_connections();
        async move { lock.acquire().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert!(!client.is_connected() && !waiting.is_finished());
    world.as_engine().faults().refuse_connections(Switch::Off);
    waiting.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_owes_an_answer_is_replaced() {
    let world = World::engine();
    let client = Client::connect_with(world.config("client")).await.unwrap();
    let lock = Lock::new(&client, "job").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    world.as_engine().faults().freeze(Some("client"));
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    eventually("the frozen connections are given up", || {
        !client.is_connected()
    })
    .await;
    world.as_engine().faults().thaw(Some("client"));
    waiting.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_died_silently_is_replaced_before_it_is_needed() {
    let world = World::engine();
    let client = Client::connect_with(world.config("client")).await.unwrap();
    world.as_engine().faults().lose_replies_silently("TIME", 3);
    // The probes of all three links vanish; nobody has asked for anything.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let started = tokio::time::Instant::now();
    Lock::new(&client, "job")
        .unwrap()
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(
        started.elapsed() < Duration::from_millis(100),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn connections_cut_all_the_time_break_nothing() {
    let world = World::engine();
    let clients = [world.client().await, world.client().await];
    let faults = world.as_engine().faults();
    let cutting = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(37)).await;
            faults.kill_connections();
        }
    });
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|i| {
            let (lock, inside) = (
                Lock::new(&clients[i % 2], "job").unwrap(),
                std::sync::Arc::clone(&inside),
            );
            tokio::spawn(async move {
                for _ in 0..20 {
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    // Ambiguous at worst; the next holder proves that it is free.
                    drop(guard.release().await);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    cutting.abort();
    world.at_rest().await;
}

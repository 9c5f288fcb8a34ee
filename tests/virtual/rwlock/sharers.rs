//! Tests tasks of one process that may hold together: readers, and parties of a double barrier.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use stanchion::embedded::Engine;
use stanchion::{Client, ClientConfig, DoubleBarrier, RwLock};
use stanchion_tests::{World, ms, poll_once, secs};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// P4: a task may process the refusal of its request after the grant to another reader of its process, which ran later on the server.
/// Several threads do this by chance; here the second future is not polled in between.
#[tokio::test(start_paused = true)]
async fn a_reader_that_processes_an_old_refusal_joins_the_readers_of_its_process() {
    let (world, [elsewhere, here]) = World::engine().with_clients().await;
    let lock = RwLock::new(&here, "job").unwrap();
    // The server knows the script afterwards: one poll sends a request that it runs.
    lock.read().await.unwrap().release().await.unwrap();
    let held = RwLock::new(&elsewhere, "job").unwrap();
    let held = held.write().await.unwrap();
    let (mut first, mut second) = (pin!(lock.read()), pin!(lock.read()));
    // Both send a request, and both are refused. Only the first processes its refusal, and that of its next request, which it sends when
    // it is subscribed.
    assert!(poll_once(first.as_mut()).await.is_none());
    assert!(poll_once(second.as_mut()).await.is_none());
    for _ in 0..3 {
        world.quiet().await;
        assert!(poll_once(first.as_mut()).await.is_none());
    }
    held.release().await.unwrap();
    world.quiet().await;
    // The release has granted the lock to the first.
    let reading = poll_once(first.as_mut()).await;
    let reading = reading.expect("the lock is free").unwrap();
    let joined = tokio::time::timeout(ms(50), second).await;
    let joined = joined.expect("the second reader waits next to a reader of its process");
    joined.unwrap().release().await.unwrap();
    reading.release().await.unwrap();
    world.at_rest().await;
}

/// Longer than any grant takes on a busy machine, and shorter than many pauses between two polls.
const STALL: Duration = secs(3);

/// Clients of one engine, in real time.
async fn clients<const N: usize>() -> [Client; N] {
    let engine = Engine::new();
    let mut clients = Vec::new();
    for _ in 0..N {
        let config = ClientConfig::embedded(&engine);
        clients.push(Client::connect_with(config).await.unwrap());
    }
    clients.try_into().unwrap()
}

/// P4, on several threads: the replies to the readers of one process are processed in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_of_one_process_read_together_on_several_threads() {
    const READERS: usize = 3;
    let [elsewhere, here] = clients().await;
    let writing = RwLock::new(&elsewhere, "job").unwrap();
    let lock = RwLock::new(&here, "job").unwrap();
    for round in 0..1500_u64 {
        let held = writing.write().await.unwrap();
        let inside = Arc::new(Barrier::new(READERS));
        let mut readers = JoinSet::new();
        for reader in 0..READERS as u64 {
            let (lock, inside) = (lock.clone(), Arc::clone(&inside));
            readers.spawn(async move {
                // Requests and the release cross in every way.
                let pause = Duration::from_micros((round * 37 + reader * 211) % 600);
                let began = Instant::now();
                while began.elapsed() < pause {
                    tokio::task::yield_now().await;
                }
                let reading = lock.read().await.unwrap();
                inside.wait().await;
                reading.release().await.unwrap();
            });
        }
        let pause = Duration::from_micros(round * 53 % 600);
        let began = Instant::now();
        while began.elapsed() < pause {
            tokio::task::yield_now().await;
        }
        held.release().await.unwrap();
        let all = async { while readers.join_next().await.is_some() {} };
        let all = tokio::time::timeout(STALL, all).await;
        assert!(
            all.is_ok(),
            "round {round}: a reader waits next to other readers"
        );
    }
}

/// P4, on several threads: both parties of one process leave the barrier and enter the next round.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parties_of_one_process_enter_round_after_round_on_several_threads() {
    const ROUNDS: usize = 1500;
    let [here] = clients().await;
    let mut parties = JoinSet::new();
    for _ in 0..2 {
        let barrier = DoubleBarrier::new(&here, "phase", 2).unwrap();
        parties.spawn(async move {
            for round in 0..ROUNDS {
                let inside = tokio::time::timeout(STALL, barrier.enter()).await;
                let inside = inside.unwrap_or_else(|_| panic!("round {round}: no party enters"));
                drop(inside.unwrap());
            }
        });
    }
    while let Some(party) = parties.join_next().await {
        party.unwrap();
    }
}

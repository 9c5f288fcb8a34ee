//! Tests clients that poll, because they may not subscribe, next to clients that are subscribed. `virtual/fleets` has all kinds.

use std::time::Duration;

use stanchion::client::Wake;
use stanchion::{Client, Lock};
use stanchion_tests::{World, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The number of grants to a client, and its longest wait.
type Share = (usize, Duration);

fn taking_turns(client: Client, end: Instant) -> JoinHandle<Share> {
    tokio::spawn(async move {
        let lock = Lock::new(&client, "job").unwrap();
        let (mut grants, mut longest) = (0, Duration::ZERO);
        while Instant::now() < end {
            let began = Instant::now();
            let guard = lock.acquire().await.unwrap();
            longest = longest.max(began.elapsed());
            grants += 1;
            sleep(ms(20)).await;
            guard.release().await.unwrap();
        }
        (grants, longest)
    })
}

/// P4: a polling client has its place in the queue.
#[tokio::test(start_paused = true)]
async fn a_polling_client_gets_its_turns_next_to_the_queue() {
    for pollers in [1, 4] {
        let world = World::engine();
        let end = Instant::now() + secs(30);
        for subscribed in world.fleet(3).await {
            drop(taking_turns(subscribed, end));
        }
        let mut polling = Vec::new();
        for n in 0..pollers {
            let config = world.config("poller").seed(100 + n).wake(Wake::Poll);
            polling.push(taking_turns(
                Client::connect_with(config).await.unwrap(),
                end,
            ));
        }
        let mut longest = Duration::ZERO;
        for poller in polling {
            longest = longest.max(poller.await.unwrap().1);
        }
        // One turn of 20 ms for each of the others, and the longest pause between two polls of each polling client.
        let limit = ms(20 * (2 + pollers) + 128 * pollers + 60);
        assert!(
            longest <= limit,
            "{pollers} polling clients: one waited {longest:?}"
        );
    }
}

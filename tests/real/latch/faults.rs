//! Tests the latch on real servers: restarts, broken connections, and the messages to Redisson's clients.

use stanchion::{AcquireError, Client, CountDownLatch};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::faults::*;

const CHANNEL: &str = "redisson_countdownlatch__channel__{import}";

fn latch(client: &Client) -> CountDownLatch {
    CountDownLatch::new(client, "import").unwrap()
}

async fn latch_of(server: &RedisServer) -> CountDownLatch {
    latch(&connect(server.url()).await)
}

type Waiting = tokio::task::JoinHandle<Result<(), AcquireError>>;

async fn waiting_for(server: &RedisServer, latch: &CountDownLatch) -> Waiting {
    let latch = latch.clone();
    let waiter = tokio::spawn(async move { latch.wait().await });
    eventually("a client subscribes", || server.subscribers(CHANNEL) > 0).await;
    waiter
}

async fn opened(waiter: Waiting) {
    soon(LONG / 3, waiter).await.unwrap().unwrap();
}

/// Waits until only marks of operations are left, and checks that they have TTLs.
async fn only_marks_left(server: &RedisServer) {
    eventually("only marks are left", || {
        leftovers(server)
            .iter()
            .all(|key| key.starts_with("stanchion_once:"))
    })
    .await;
    for key in leftovers(server) {
        let ttl = server.cli(&["PTTL", &key]).as_int();
        assert!(ttl != -1 && ttl < 30_000, "{key}: {ttl}");
    }
}

#[tokio::test]
async fn a_latch_publishes_redissons_messages() {
    let Some(server) = server() else { return };
    let latch = latch_of(&server).await;
    let monitor = server.monitor();
    assert!(latch.arm(2).await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert!(latch.arm(1).await.unwrap());
    assert!(latch.danger().delete().await.unwrap());
    let published: Vec<String> = monitor
        .lines()
        .iter()
        .filter_map(|line| Some(line.split_once("lua] \"PUBLISH\" ")?.1.to_owned()))
        .collect();
    let message = |payload| format!("\"{CHANNEL}\" \"{payload}\"");
    // One message each: armed, opened, armed, deleted.
    let expected = [message("1"), message("0"), message("1"), message("1")];
    assert_eq!(published, expected);
}

#[tokio::test]
async fn a_waiter_outlives_a_restart_of_the_server() {
    let Some(mut server) = durable() else { return };
    let (ours, theirs) = (latch_of(&server).await, latch_of(&server).await);
    assert!(ours.arm(2).await.unwrap());
    let waiter = waiting_for(&server, &theirs).await;
    assert_eq!(ours.count_down().await.unwrap(), 1);
    server.restart();
    eventually("the client subscribes again", || {
        server.subscribers(CHANNEL) > 0
    })
    .await;
    assert!(!waiter.is_finished());
    assert_eq!(ours.count_down().await.unwrap(), 0);
    opened(waiter).await;
    only_marks_left(&server).await;
}

#[tokio::test]
async fn a_latch_is_open_when_the_server_has_lost_its_data() {
    let Some(mut server) = server() else { return };
    let latch = latch_of(&server).await;
    assert!(latch.arm(2).await.unwrap());
    let waiter = waiting_for(&server, &latch).await;
    server.restart();
    opened(waiter).await;
    assert_eq!(latch.count().await.unwrap(), 0);
}

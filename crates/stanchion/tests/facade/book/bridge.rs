//! The program of the page on migration: workers of the old version lock by hand with `SET NX`, those of the new one hold both locks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use stanchion::{Client, Lock};
use stanchion_testkit::RedisServer;

async fn take_by_hand(redis: &mut MultiplexedConnection, token: &str) -> redis::RedisResult<bool> {
    let mut set = redis::cmd("SET");
    set.arg("old:orders")
        .arg(token)
        .arg("NX")
        .arg("PX")
        .arg(30_000);
    let taken: Option<String> = set.query_async(redis).await?;
    Ok(taken.is_some())
}

async fn give_back_by_hand(
    redis: &mut MultiplexedConnection,
    token: &str,
) -> redis::RedisResult<()> {
    let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
    let mut eval = redis::cmd("EVAL");
    eval.arg(script).arg(1).arg("old:orders").arg(token);
    eval.query_async(redis).await
}

async fn settle_with_both(
    redis: &mut MultiplexedConnection,
    lock: &Lock,
    token: &str,
) -> anyhow::Result<()> {
    // The old lock first, as the workers of the old version take it. It ends after its 30 s, whatever the new lock does.
    while !take_by_hand(redis, token).await? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let outcome = async {
        let guard = lock.acquire_timeout(Duration::from_secs(5)).await?;
        guard.run(settle()).await?;
        anyhow::Ok(guard.release().await?)
    };
    let outcome = outcome.await;
    give_back_by_hand(redis, token).await?;
    outcome
}

/// How many workers are at work, and how many have been.
static AT_WORK: AtomicUsize = AtomicUsize::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);

async fn settle() {
    assert_eq!(
        AT_WORK.fetch_add(1, Ordering::SeqCst),
        0,
        "two work at once"
    );
    tokio::task::yield_now().await;
    AT_WORK.fetch_sub(1, Ordering::SeqCst);
    DONE.fetch_add(1, Ordering::SeqCst);
}

#[tokio::test]
async fn old_and_new_workers_exclude_each_other() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = Lock::new(&client, "orders").unwrap();
    let redis = redis::Client::open(server.url()).unwrap();
    let workers = (0..6).map(|number| {
        let (redis, lock) = (redis.clone(), lock.clone());
        tokio::spawn(async move {
            let mut redis = redis.get_multiplexed_async_connection().await.unwrap();
            for round in 0..10 {
                let token = format!("{number}:{round}");
                if number % 2 == 0 {
                    settle_with_both(&mut redis, &lock, &token).await.unwrap();
                    continue;
                }
                while !take_by_hand(&mut redis, &token).await.unwrap() {
                    tokio::task::yield_now().await;
                }
                settle().await;
                give_back_by_hand(&mut redis, &token).await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(DONE.load(Ordering::SeqCst), 60);
}

//! Tests the number of waiting processes: each counts once, Redisson's count, and processes that have left do not.

use std::time::Duration;

use stanchion::{
    Client, CountDownLatch, FairLock, LeasedSemaphore, Lock, QueryError, RwLock, Semaphore,
};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;
use tokio::task::JoinHandle;

suite! {
    a_lock_counts_waiting_processes,
    a_fair_lock_counts_waiting_processes,
    a_read_write_lock_counts_waiting_processes,
    a_semaphore_counts_waiting_processes,
    a_leased_semaphore_counts_waiting_processes,
    a_latch_counts_waiting_processes,
}

/// Checks the number that `status` returns. `wait` starts a waiter. `base` is Redisson's channel, or empty if waiters there do not count.
async fn check<W: Send + 'static>(
    world: &World,
    base: &str,
    status: impl AsyncFn(&Client) -> Result<Option<u64>, QueryError>,
    wait: impl Fn(&Client) -> JoinHandle<W>,
) {
    let (a, b, c) = (
        world.client().await,
        world.client().await,
        world.client().await,
    );
    let counts = async |wanted: u64| {
        eventually_async(&format!("{wanted} processes wait"), async || {
            status(&a).await.unwrap() == Some(wanted)
        })
        .await;
    };
    counts(0).await;
    let first = wait(&b);
    counts(1).await;
    // A second waiter of the same process does not count.
    let second = wait(&b);
    stanchion_testkit::eventually("both calls wait", || b.waiters() == 2).await;
    world.quiet().await;
    counts(1).await;
    let third = wait(&c);
    counts(2).await;
    if !base.is_empty() {
        let redisson = world.listen(base).await;
        counts(3).await;
        drop(redisson);
        counts(2).await;
    }
    third.abort();
    counts(1).await;
    first.abort();
    second.abort();
    counts(0).await;
}

async fn a_lock_counts_waiting_processes(world: &World) {
    let holder = world.client().await;
    let _held = Lock::new(&holder, "job").unwrap().acquire().await.unwrap();
    check(
        world,
        "redisson_lock__channel:{job}",
        async |client| {
            let status = Lock::new(client, "job").unwrap().status().await?;
            Ok(status.waiting_processes)
        },
        |client| tokio::spawn(Lock::new(client, "job").unwrap().acquire()),
    )
    .await;
}

async fn a_fair_lock_counts_waiting_processes(world: &World) {
    let holder = world.client().await;
    let _held = FairLock::new(&holder, "job")
        .unwrap()
        .acquire()
        .await
        .unwrap();
    check(
        world,
        "",
        async |client| {
            let status = FairLock::new(client, "job").unwrap().status().await?;
            Ok(status.waiting_processes)
        },
        |client| tokio::spawn(FairLock::new(client, "job").unwrap().acquire()),
    )
    .await;
}

async fn a_read_write_lock_counts_waiting_processes(world: &World) {
    let holder = world.client().await;
    let _held = RwLock::new(&holder, "job").unwrap().write().await.unwrap();
    let status = async |client: &Client| {
        let status = RwLock::new(client, "job").unwrap().status().await?;
        Ok(status.waiting_processes)
    };
    let base = "redisson_rwlock:{job}";
    check(world, base, status, |client| {
        tokio::spawn(RwLock::new(client, "job").unwrap().write())
    })
    .await;
    check(world, base, status, |client| {
        tokio::spawn(RwLock::new(client, "job").unwrap().read())
    })
    .await;
}

async fn a_semaphore_counts_waiting_processes(world: &World) {
    let holder = world.client().await;
    let semaphore = Semaphore::new(&holder, "job").unwrap();
    semaphore.init(1).await.unwrap();
    let _held = semaphore.acquire().await.unwrap();
    check(
        world,
        "redisson_sc:{job}",
        async |client| {
            let status = Semaphore::new(client, "job").unwrap().status().await?;
            Ok(status.waiting_processes)
        },
        |client| tokio::spawn(Semaphore::new(client, "job").unwrap().acquire()),
    )
    .await;
}

async fn a_leased_semaphore_counts_waiting_processes(world: &World) {
    let holder = world.client().await;
    let semaphore = LeasedSemaphore::new(&holder, "job").unwrap();
    semaphore.init(2).await.unwrap();
    let _held = semaphore.acquire().await.unwrap();
    check(
        world,
        "redisson_sc:{job}",
        async |client| {
            let status = LeasedSemaphore::new(client, "job")
                .unwrap()
                .status()
                .await?;
            Ok(status.waiting_processes)
        },
        // A request for several permits is in its own queue and in the wait set.
        |client| tokio::spawn(LeasedSemaphore::new(client, "job").unwrap().acquire_many(2)),
    )
    .await;
}

async fn a_latch_counts_waiting_processes(world: &World) {
    let holder = world.client().await;
    let latch = CountDownLatch::new(&holder, "job").unwrap();
    assert!(latch.arm(1).await.unwrap());
    check(
        world,
        "redisson_countdownlatch__channel__{job}",
        async |client| {
            let latch = CountDownLatch::new(client, "job").unwrap();
            Ok(latch.waiting_processes().await)
        },
        |client| {
            let latch = CountDownLatch::new(client, "job").unwrap();
            tokio::spawn(async move { latch.wait_timeout(Duration::from_secs(600)).await })
        },
    )
    .await;
}

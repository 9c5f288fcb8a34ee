//! The number of processes that wait: each once, Redisson's included, and none that has gone.

use std::time::Duration;

use stanchion::{
    Client, CountDownLatch, FairLock, LeasedSemaphore, Lock, QueryError, RwLock, Semaphore,
};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;
use tokio::task::JoinHandle;

suite! {
    of_a_lock,
    of_a_fair_lock,
    of_a_read_write_lock,
    of_a_semaphore,
    of_a_leased_semaphore,
    of_a_latch,
}

/// A name of which `status` tells how many wait, and `wait` waits.
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
    // A second waiter of a process makes it no second process.
    let second = wait(&b);
    stanchion_testkit::eventually("both wait", || b.waiters() == 2).await;
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

async fn of_a_lock(world: &World) {
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

async fn of_a_fair_lock(world: &World) {
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

async fn of_a_read_write_lock(world: &World) {
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

async fn of_a_semaphore(world: &World) {
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

async fn of_a_leased_semaphore(world: &World) {
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
        // Those that want several stand in a line of their own, and in the crowd.
        |client| tokio::spawn(LeasedSemaphore::new(client, "job").unwrap().acquire_many(2)),
    )
    .await;
}

async fn of_a_latch(world: &World) {
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

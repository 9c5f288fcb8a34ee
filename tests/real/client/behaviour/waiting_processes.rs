//! Tests the number of waiting processes: each counts once, Redisson's count, and processes that have left do not.

use stanchion::{
    Client, CountDownLatch, FairLock, LeasedSemaphore, Lock, QueryError, RwLock, Semaphore,
};
use stanchion_testkit::eventually_async;
use stanchion_tests::{World, secs};
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
    let [a, b, c] = world.clients().await;
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

/// As [`check`], with the status of `$kind`.
macro_rules! check {
    ($world:expr, $base:expr, $kind:ident, |$it:ident| $wait:expr) => {
        check(
            $world,
            $base,
            async |client| {
                let status = $kind::new(client, "job").unwrap().status().await?;
                Ok(status.waiting_processes)
            },
            |client| {
                let $it = $kind::new(client, "job").unwrap();
                tokio::spawn($wait)
            },
        )
        .await
    };
}

async fn a_lock_counts_waiting_processes(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let _held = lock.acquire().await.unwrap();
    let base = "redisson_lock__channel:{job}";
    check!(world, base, Lock, |it| it.acquire());
}

async fn a_fair_lock_counts_waiting_processes(world: &World) {
    let fair = FairLock::new(&world.client().await, "job").unwrap();
    let _held = fair.acquire().await.unwrap();
    check!(world, "", FairLock, |it| it.acquire());
}

async fn a_read_write_lock_counts_waiting_processes(world: &World) {
    let lock = RwLock::new(&world.client().await, "job").unwrap();
    let _held = lock.write().await.unwrap();
    let base = "redisson_rwlock:{job}";
    check!(world, base, RwLock, |it| it.write());
    check!(world, base, RwLock, |it| it.read());
}

async fn a_semaphore_counts_waiting_processes(world: &World) {
    let semaphore = Semaphore::new(&world.client().await, "job").unwrap();
    semaphore.init(1).await.unwrap();
    let _held = semaphore.acquire().await.unwrap();
    check!(world, "redisson_sc:{job}", Semaphore, |it| it.acquire());
}

/// A request for several permits is in its own queue and in the wait set.
async fn a_leased_semaphore_counts_waiting_processes(world: &World) {
    let semaphore = LeasedSemaphore::new(&world.client().await, "job").unwrap();
    semaphore.init(2).await.unwrap();
    let _held = semaphore.acquire().await.unwrap();
    let base = "redisson_sc:{job}";
    check!(world, base, LeasedSemaphore, |it| it.acquire_many(2));
}

async fn a_latch_counts_waiting_processes(world: &World) {
    let latch = CountDownLatch::new(&world.client().await, "job").unwrap();
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
            tokio::spawn(async move { latch.wait_timeout(secs(600)).await })
        },
    )
    .await;
}

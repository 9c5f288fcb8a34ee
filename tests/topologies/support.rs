//! What the modules share.

use std::time::Duration;

use stanchion::{
    AcquireError, Client, ClientConfig, Lease, Lock, LockGuard, LostReason, ServerUrl,
};
use stanchion_testkit::{RedisServer, eventually, machine_clock};
use tokio::task::JoinHandle;

/// A lease that outlives every failover here.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client that notices faults quickly, and whose waiters' own asking comes too late to be taken for a message.
pub(crate) fn config(url: impl Into<ServerUrl>) -> ClientConfig {
    ClientConfig::new(url)
        .response_timeout(ms(250))
        .poll_interval(LONG)
}

pub(crate) async fn connect(url: impl Into<ServerUrl>) -> Client {
    Client::connect_with(config(url)).await.unwrap()
}

pub(crate) fn lock(client: &Client, name: &str, lease: Duration) -> Lock {
    Lock::new(client, name)
        .unwrap()
        .with_lease(Lease::new(lease).unwrap())
}

pub(crate) fn token(guard: &LockGuard) -> u64 {
    guard.fencing_token().unwrap().get()
}

pub(crate) type Waiter = JoinHandle<Result<LockGuard, AcquireError>>;

/// An acquire in a task of its own.
pub(crate) fn waiting(lock: &Lock) -> Waiter {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await })
}

/// What `work` gives, which must come within `limit`.
pub(crate) async fn soon<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}"))
}

/// The guard of a waiter, which must get it within a third of a long lease.
pub(crate) async fn granted(waiter: Waiter) -> LockGuard {
    soon(LONG / 3, waiter).await.unwrap().unwrap()
}

/// Waits for the loss of a hold; it must come before the hold's last promise ends.
pub(crate) async fn lost_in_time(guard: &LockGuard, client: &Client) -> LostReason {
    let reason = soon(LONG / 3, guard.lost()).await;
    assert!(!guard.is_held());
    assert!(
        client.now() <= guard.valid_until() + ms(50),
        "P5: not later than promised"
    );
    reason
}

/// Waits until the watchdog has renewed a hold.
pub(crate) async fn renewed(guard: &LockGuard) {
    let before = guard.valid_until();
    eventually("the watchdog renews", || {
        assert!(guard.is_held(), "lost: {:?}", machine_clock());
        guard.valid_until() > before
    })
    .await;
}

pub(crate) fn channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}

/// The keys that are not fence counters.
pub(crate) fn leftovers(keys: Vec<String>) -> Vec<String> {
    let mut keys = keys;
    keys.retain(|key| !key.starts_with("stanchion_fence:"));
    keys
}

/// Runs what blocks where it does not stop the clients.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

pub(crate) fn exists(server: &RedisServer, key: &str) -> bool {
    server.cli(&["EXISTS", key]).as_int() == 1
}

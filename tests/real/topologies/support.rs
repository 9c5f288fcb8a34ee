//! Helpers that the modules share.

use std::time::Duration;

use stanchion::{
    AcquireError, Client, ClientConfig, ConnectError, Lease, Lock, LockGuard, LostReason, ServerUrl,
};
use stanchion_testkit::{RedisServer, eventually, machine_clock};
pub(crate) use stanchion_tests::{ms, secs};
use tokio::task::JoinHandle;

/// A lease that outlives every failover here.
pub(crate) const LONG: Duration = secs(30);

/// A lease that outlives a failover, and is renewed every four seconds.
pub(crate) const KEPT: Duration = secs(12);

/// A waiter that is granted within this time was woken by a message. Without a message it retries when the lease ends: a lease of [`KEPT`]
/// that was renewed less than four seconds ago.
pub(crate) const BY_MESSAGE: Duration = secs(6);

/// A client that detects faults quickly and polls so rarely that a poll cannot be mistaken for a message.
pub(crate) fn config(url: impl Into<ServerUrl>) -> ClientConfig {
    ClientConfig::new(url)
        .connect_timeout(LONG)
        .response_timeout(secs(1))
        .poll_interval(LONG)
}

pub(crate) async fn connect(url: impl Into<ServerUrl>) -> Client {
    Client::connect_with(config(url)).await.unwrap()
}

pub(crate) fn lock(client: &Client, name: &str, lease: Duration) -> Lock {
    Lock::new(client, name)
        .unwrap()
        .lease(Lease::new(lease).unwrap())
}

pub(crate) fn token(guard: &LockGuard) -> u64 {
    guard.fencing_token().unwrap().get()
}

pub(crate) type Waiter = JoinHandle<Result<LockGuard, AcquireError>>;

/// Spawns an acquire.
pub(crate) fn waiting(lock: &Lock) -> Waiter {
    let lock = lock.clone();
    tokio::spawn(lock.acquire())
}

/// Returns the result of `work`, which must come within `limit`.
pub(crate) async fn soon<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}"))
}

/// The guard of a waiter, which must be granted by message.
pub(crate) async fn granted(waiter: Waiter) -> LockGuard {
    soon(BY_MESSAGE, waiter).await.unwrap().unwrap()
}

/// Waits for the loss of a hold, which must be reported before its `valid_until`.
pub(crate) async fn lost_in_time(guard: &LockGuard, client: &Client) -> LostReason {
    let reason = soon(LONG / 3, guard.lost()).await;
    assert!(!guard.is_held());
    assert!(
        client.now() <= guard.valid_until() + ms(100),
        "P5: not later than promised"
    );
    reason
}

/// Waits until the watchdog has renewed a hold.
pub(crate) async fn renewed(guard: &LockGuard) {
    let before = guard.valid_until();
    eventually("the watchdog renews", || {
        assert!(guard.is_held(), "lost");
        guard.valid_until() > before
    })
    .await;
}

/// Returns the error of a connect that must fail within its connect timeout.
pub(crate) async fn refused(config: ClientConfig) -> ConnectError {
    let limit = config.connect_timeout.min(ms(2000));
    let (began, config) = (machine_clock(), config.connect_timeout(limit));
    let error = Client::connect_with(config).await.unwrap_err();
    let took = machine_clock() - began;
    assert!(took < limit + LONG / 3, "P9: {took:?}: {error}");
    error
}

pub(crate) fn channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}

/// Waits until a client is subscribed to the release channel of `name` on `server`.
pub(crate) async fn listening(server: &RedisServer, name: &str) {
    let channel = channel(name);
    eventually("a client is subscribed", || {
        server.subscribers(&channel) > 0
    })
    .await;
}

/// The keys that are not fence counters.
pub(crate) fn leftovers(mut keys: Vec<String>) -> Vec<String> {
    keys.retain(|key| !key.starts_with("stanchion_fence:") && !stanchion_tests::is_record(key));
    keys
}

/// Runs blocking `work` without blocking the clients.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

pub(crate) fn exists(server: &RedisServer, key: &str) -> bool {
    server.cli(&["EXISTS", key]).as_int() == 1
}

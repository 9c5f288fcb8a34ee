//! Helpers of the tests of faults: servers, clients with short timeouts, and direct reads of the server's keys.

pub use crate::{ms, secs, server};
use std::time::Duration;

use stanchion::{
    AcquireError, Client, ClientConfig, Lease, Lock, LockGuard, LostReason, Rejection, ServerUrl,
};
use stanchion_testkit::{RedisServer, RedisServerBuilder, eventually, eventually_async};

/// Runs an administrator's command, which must succeed.
pub fn admin(server: &RedisServer, command: &[&str]) {
    let reply = server.cli(command);
    assert!(!reply.is_error(), "{command:?}: {reply}");
}

/// The tolerance for limits in milliseconds, because the machine may be loaded. A third of [`LONG`], which the failure would take.
pub const SLACK: Duration = secs(10);

/// The lease of holds that must not expire: longer than any pause of the machine.
pub const LONG: Duration = secs(30);

/// Starts a server with these settings. Returns `None`, with a message, if no server is installed.
pub fn start(builder: RedisServerBuilder) -> Option<RedisServer> {
    if RedisServer::available() {
        return Some(builder.start());
    }
    RedisServer::or_skip(std::thread::current().name().unwrap_or("a test"))
}

/// Starts a server that speaks TLS.
pub fn with_tls() -> Option<RedisServer> {
    start(RedisServer::builder().tls())
}

/// Starts a server that keeps its data over a restart.
pub fn durable() -> Option<RedisServer> {
    start(RedisServer::builder().append_only())
}

/// A configuration with short timeouts, so that the client detects faults quickly. Shorter ones end connections on a busy machine.
pub fn config(url: impl Into<ServerUrl>) -> ClientConfig {
    ClientConfig::new(url)
        .connect_timeout(LONG)
        .response_timeout(ms(750))
        .poll_interval(ms(500))
}

/// A configuration whose connections last also on a machine that pauses for seconds.
pub fn patient(url: impl Into<ServerUrl>) -> ClientConfig {
    config(url).response_timeout(LONG)
}

pub async fn connect(url: impl Into<ServerUrl>) -> Client {
    Client::connect_with(config(url)).await.unwrap()
}

pub fn lock(client: &Client, name: &str, lease: Duration) -> Lock {
    Lock::new(client, name)
        .unwrap()
        .lease(Lease::new(lease).unwrap())
}

/// Returns a lock on a new client.
pub async fn lock_of(url: impl Into<ServerUrl>, name: &str, lease: Duration) -> Lock {
    lock(&connect(url).await, name, lease)
}

/// Acquires a lock on a new client.
pub async fn acquired(url: impl Into<ServerUrl>, name: &str, lease: Duration) -> LockGuard {
    lock_of(url, name, lease).await.acquire().await.unwrap()
}

pub fn token(guard: &LockGuard) -> u64 {
    guard.fencing_token().unwrap().get()
}

/// Starts an acquire in a new task.
pub fn waiting(lock: &Lock) -> tokio::task::JoinHandle<Result<LockGuard, AcquireError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await })
}

/// Returns the guard of a waiter, which must be granted within `limit`.
pub async fn granted(
    waiter: tokio::task::JoinHandle<Result<LockGuard, AcquireError>>,
    limit: Duration,
) -> LockGuard {
    soon(limit, waiter).await.unwrap().unwrap()
}

/// Waits for a waiter, which must be granted within `limit`, and releases its guard.
pub async fn served(
    waiter: tokio::task::JoinHandle<Result<LockGuard, AcquireError>>,
    limit: Duration,
) {
    granted(waiter, limit).await.release().await.unwrap();
}

/// Returns the result of `work`, which must come within `limit`.
pub async fn soon<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}"))
}

/// Waits for the loss of a hold, which the client must detect without a call.
pub async fn loss(guard: &LockGuard) -> LostReason {
    let reason = soon(secs(10), guard.lost()).await;
    assert!(!guard.is_held());
    reason
}

/// Waits until the watchdog has renewed a hold that began or was renewed before now.
pub async fn renewed(guard: &LockGuard) {
    let before = guard.valid_until();
    eventually("the watchdog renews", || {
        assert!(guard.is_held(), "lost");
        guard.valid_until() > before
    })
    .await;
}

/// Waits until a client is subscribed to the channel of `name`.
pub async fn subscribed(server: &RedisServer, name: &str) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually("a client subscribes", || server.subscribers(&channel) > 0).await;
}

/// The owner and the hold count on the server.
pub fn holder(server: &RedisServer, name: &str) -> Option<(String, i64)> {
    let fields = server.cli(&["HGETALL", name]);
    match fields.as_texts().as_slice() {
        [] => None,
        [owner, count] => Some((owner.clone(), count.parse().unwrap())),
        more => panic!("{name} has more than one holder: {more:?}"),
    }
}

pub fn hold_count(server: &RedisServer, name: &str) -> i64 {
    holder(server, name).map_or(0, |(_, count)| count)
}

/// All keys but fence counters, which stay on purpose, and clients' records.
pub fn leftovers(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| !key.starts_with("stanchion_fence:") && !crate::is_record(key));
    keys
}

/// Waits until only fence counters are left, long before a lease of [`LONG`] could end.
pub async fn nothing_left(server: &RedisServer) {
    eventually("only fence counters are left", || {
        leftovers(server).is_empty()
    })
    .await;
}

fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.commands_processed();
    stats.get("evalsha").unwrap_or(&0) + stats.get("eval").unwrap_or(&0)
}

/// Waits until no script is sent for 300 ms: clean-ups have ended.
pub async fn quiet(server: &RedisServer) {
    eventually_async("no more scripts are sent", async || {
        let before = scripts_run(server);
        tokio::time::sleep(ms(300)).await;
        scripts_run(server) == before
    })
    .await;
}

/// Returns whether another client can acquire the lock.
pub async fn is_free(server: &RedisServer, name: &str) -> bool {
    let other = lock_of(server.url(), name, LONG).await;
    let guard = other.try_acquire().await.unwrap();
    match guard {
        None => false,
        Some(guard) => {
            guard.release().await.unwrap();
            true
        }
    }
}

pub fn rejected<T: std::fmt::Debug>(result: Result<T, AcquireError>) -> Rejection {
    match result {
        Err(AcquireError::Rejected { rejection, .. }) => rejection,
        other => panic!("not rejected: {other:?}"),
    }
}

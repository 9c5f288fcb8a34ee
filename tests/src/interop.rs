//! Helpers of the tests with Redisson: a server that Redisson and this library use.

pub use crate::{lease, ms, secs, server};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stanchion::{AcquireError, Client, ClientConfig, Lock, LockGuard};
use stanchion_testkit::{Process, RedisServer, eventually, eventually_async};
use tokio::task::JoinHandle;

use crate::java::{Jvm, Kind, Object, Pending, Redisson, Reply};

/// The lease of holds that must not expire, Redisson's own default. A waiter that is granted within [`SOON`] was woken by a message.
pub const LONG: Duration = secs(30);

/// Far below [`LONG`], and far above the time that a loaded machine needs for a call that does not wait.
pub const SOON: Duration = secs(8);

/// The allowance for a loaded machine, added to limits in milliseconds.
pub const SLACK: Duration = secs(2);

/// A Redis server and a Redisson instance on it. Clients of this library are created as needed.
#[derive(Debug)]
pub struct Fleet {
    pub java: Redisson,
    pub server: RedisServer,
}

impl Fleet {
    /// The same as [`fleet`] in the JVM `jvm`.
    pub async fn start_in(jvm: Arc<Jvm>) -> Option<Self> {
        let server = server()?;
        let java = connect(&jvm, &server, json!({})).await;
        Some(Self { java, server })
    }

    /// The process of Redisson's clients.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        self.java.jvm()
    }

    /// A client of this library, as in another process, whose polls are too rare to wake a waiter within [`SOON`].
    pub async fn rust(&self) -> Client {
        self.rust_polling(LONG * 2).await
    }

    pub async fn rust_polling(&self, interval: Duration) -> Client {
        let config = ClientConfig::new(self.server.url()).poll_interval(interval);
        Client::connect_with(config).await.unwrap()
    }

    /// A Redisson object that is used by its own thread `actor`.
    pub fn java(&self, actor: &str, kind: Kind, name: &str) -> Object {
        self.java.object(actor, kind, name)
    }

    /// Waits until `count` processes are subscribed to `channel` or a channel below it, and no more scripts are sent. Behind a holder of
    /// Redisson a relay of this library is subscribed to both channels, so up to `2 * count` subscriptions are accepted.
    pub async fn waiting(&self, channel: &str, count: usize) {
        eventually("waiters subscribe", || {
            (count..=2 * count).contains(&self.server.subscribers(channel))
        })
        .await;
        self.quiet().await;
    }

    /// Waits until Redisson has unsubscribed from `channel`. The `ours` subscriptions of this library remain for a while.
    pub async fn left(&self, channel: &str, ours: usize) {
        eventually("Redisson unsubscribes", || {
            self.server.subscribers(channel) <= ours
        })
        .await;
    }

    /// Waits until no script is sent for 50 ms.
    pub async fn quiet(&self) {
        eventually_async("no more scripts are sent", async || {
            let before = self.scripts_run();
            tokio::time::sleep(ms(50)).await;
            self.scripts_run() == before
        })
        .await;
    }

    /// Waits until only polls are sent: one a second behind a client of Redisson's in a fair queue.
    pub async fn settled(&self) {
        eventually_async("only polls are sent", async || {
            let before = self.scripts_run();
            tokio::time::sleep(ms(100)).await;
            self.scripts_run() <= before + 1
        })
        .await;
    }

    /// Waits until a client is subscribed to `channel` and no more scripts are sent.
    pub async fn listening(&self, channel: &str) {
        eventually("a client subscribes", || {
            self.server.subscribers(channel) > 0
        })
        .await;
        self.quiet().await;
    }

    pub fn scripts_run(&self) -> u64 {
        let stats = self.server.commands_processed();
        stats.get("evalsha").unwrap_or(&0) + stats.get("eval").unwrap_or(&0)
    }

    /// Runs a command that returns a number.
    pub fn int(&self, command: &[&str]) -> i64 {
        self.server.cli(command).as_int()
    }

    /// The owner and the hold count on the server.
    pub fn holder(&self, name: &str) -> Option<(String, i64)> {
        let fields = self.server.cli(&["HGETALL", name]);
        match fields.as_texts().as_slice() {
            [] => None,
            [owner, count] => Some((owner.clone(), count.parse().unwrap())),
            more => panic!("{name} has more than one holder: {more:?}"),
        }
    }

    /// All keys except the fence counters, which stay on purpose, and keys that expire soon: marks of repeated requests and live clients.
    pub fn leftovers(&self) -> Vec<String> {
        const KNOWN: [&str; 8] = [
            "stanchion_client",
            "stanchion_fence:",
            "redisson_lock_token:",
            "redisson_unlock_latch:",
            "stanchion_once:",
            "stanchion_fair_wake:",
            "stanchion_semaphore_slow:",
            "stanchion_semaphore_total:",
        ];
        let mut keys = self.server.keys();
        keys.retain(|key| !KNOWN.iter().any(|prefix| key.starts_with(prefix)));
        keys
    }

    /// Waits until only fence counters are left, for a time far below the TTL [`LONG`].
    pub async fn at_rest(&self) {
        self.at_rest_with(&[]).await;
    }

    /// Waits until only fence counters and `keys` are left.
    pub async fn at_rest_with(&self, keys: &[&str]) {
        let what = format!("of keys only fence counters and {keys:?} are left");
        eventually(&what, || self.leftovers() == keys).await;
    }
}

/// A private server, and an instance of Redisson in the shared JVM. Returns `None` after a message if one of them is not available.
pub async fn fleet() -> Option<Fleet> {
    Fleet::start_in(Jvm::shared()?).await
}

/// The same as [`fleet`] in a JVM that the test pauses or kills.
pub async fn own_jvm() -> Option<Fleet> {
    Fleet::start_in(Jvm::start()?).await
}

/// An instance of Redisson on `server`, with more `settings` (fields of the driver's `Command`).
pub async fn connect(jvm: &Arc<Jvm>, server: &RedisServer, settings: Value) -> Redisson {
    let mut all = json!({"mode": "single", "addresses": [server.url()]});
    all.as_object_mut()
        .unwrap()
        .append(settings.clone().as_object_mut().unwrap());
    Redisson::connect(jvm, all).await
}

pub fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap().lease(lease(LONG))
}

/// The channel to which both libraries publish the release of a lock.
pub fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Spawns an acquire of this library.
pub fn acquiring(lock: &Lock) -> JoinHandle<Result<LockGuard, AcquireError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await })
}

/// Starts a process of this library that holds `name` and renews a lease of `ttl` until it is killed. Waits until it holds.
pub fn holding(fleet: &Fleet, kind: &str, name: &str, ttl: Duration) -> Process {
    let mut process = start_holder(fleet, kind, name, ttl);
    process.wait_for_line(|line| line == "HELD", SOON);
    process
}

/// Starts such a process, and does not wait.
pub fn start_holder(fleet: &Fleet, kind: &str, name: &str, ttl: Duration) -> Process {
    let lease_ms = ttl.as_millis().to_string();
    let args = [kind, &fleet.server.url(), name, &lease_ms];
    Process::start(&crate::program("stanchion-test-holder"), &args)
}

/// Returns the result of `work`, which must come within `limit`.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}"))
}

/// The guard of a waiter of this library, which must be granted within `limit`.
pub async fn granted<G, E: std::fmt::Debug>(
    waiter: JoinHandle<Result<G, E>>,
    limit: Duration,
) -> G {
    within(limit, waiter).await.unwrap().unwrap()
}

/// The reply to a Java waiter, which must be granted within `limit`.
pub async fn java_granted(waiter: Pending, limit: Duration) -> Reply {
    let reply = waiter.within(limit).await;
    reply.value();
    reply
}

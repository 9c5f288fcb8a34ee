//! Helpers that the test binaries share. A [`World`] is a server, the engine or a real one, and makes clients for it.
//!
//! The test binaries differ in what their tests need:
//!
//! | binary | its tests |
//! |---|---|
//! | `virtual` | need nothing: they run on the embedded engine, whose fault switches and virtual time reach every interleaving |
//! | `real` | need a redis-server, processes, signals, and time that passes |
//! | `java` | have Redisson on the other side; see [`java`] |
//! | `random` | compute: random programs |
//! | `threads`, `log` | need a process of their own: one for all processors, one for its log |
//! | `tidy` | read the sources |
//!
//! In each of them a primitive is a module, and `client` has the tests of what belongs to no primitive. A fault or a behaviour that all kinds of
//! hold have is a table over [`kinds`], and a new primitive is a row there: `virtual/{dropped,fleets,late,leases,lost_messages,lost_replies}`
//! and `virtual/refusals` in virtual time, and `real/kinds` on real servers, too. In `real` their parts are:
//!
//! | module | its tests |
//! |---|---|
//! | `behaviour` | run on the embedded engine, in virtual time, and on a real server |
//! | `faults` | cause one fault of a real server, socket, process or signal, and name the promise (P1 to P11) that must hold |
//! | `servers` | run a primitive on real servers and with real processes |
//! | `idle` | check the expiry of what is not used |
//!
//! Tests wait for events, not for fixed times. Tests that need an installed server are skipped without one, with a message.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a test helper fails by panicking"
)]

#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod barrier;
pub mod desk;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod election;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod events;
pub mod fair;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod faults;
pub mod holds;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod idle;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod interop;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod java;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod jobs;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
#[expect(
    clippy::missing_errors_doc,
    reason = "each method is the same on all kinds"
)]
pub mod kinds;
#[expect(missing_docs, reason = "the names of small helpers say what they do")]
pub mod limiter;
mod listener;
pub mod outside;
pub mod permits;
pub mod rights;
mod small;
pub mod transcript;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use stanchion::client::Wake;
use stanchion::embedded::{Engine, Faults, Reply, Switch};
use stanchion::{Client, ClientConfig, Lease};
use stanchion_testkit::{RedisServer, Value, eventually, eventually_async};

pub use listener::Listener;
pub use small::*;

/// Instantiates each test once for each world: as `engine::NAME`, in virtual time, and as `server::NAME`. `in PATH;` before the names sets
/// the function that makes the engine's world.
#[macro_export]
macro_rules! suite {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $crate::suite! { in $crate::World::engine; $($name),+ }
    };
    (in $engine:path; $($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        mod engine {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(&$engine()).await;
            })+
        }

        mod server {
            $(#[tokio::test]
            async fn $name() {
                if let Some(world) = $crate::World::server(stringify!($name)) {
                    super::$name(&world).await;
                }
            })+
        }
    };
}

/// A server and how to make clients for it.
#[derive(Debug)]
pub enum World {
    /// The embedded engine, in the virtual time of the test's runtime.
    Engine(Engine),
    /// A private redis-server.
    Server(Box<RedisServer>),
}

/// An owner id in the format of Redisson.
pub const JAVA: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7:42";

/// A way to lose a reply.
#[derive(Clone, Copy, Debug)]
pub enum LostReply {
    /// The connection closes.
    Closed,
    /// The connection goes silent.
    Silent,
}

impl LostReply {
    /// Both.
    pub const WAYS: [Self; 2] = [Self::Closed, Self::Silent];
}

/// The folder that cargo builds in: test binaries are in `debug/deps` below it.
pub(crate) fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

/// The path of a program of this package. Cargo gives it to test binaries only, so this library derives it from theirs.
pub(crate) fn program(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    folder.join(name).to_str().unwrap().to_owned()
}

/// A lease that a live process renews in time, even on a machine that stops for a second.
#[must_use]
pub fn kept() -> Lease {
    Lease::new(Duration::from_secs(2)).unwrap()
}

impl World {
    /// The engine, with virtual time.
    #[must_use]
    pub fn engine() -> Self {
        Self::Engine(Engine::in_virtual_time())
    }

    /// The engine, with replies that take 5 ms, so that requests are in flight when their futures are dropped.
    #[must_use]
    pub fn slow_engine() -> Self {
        let world = Self::engine();
        let faults = world.faults();
        faults.delay(None, Duration::from_millis(5));
        world
    }

    /// Limits a test, so that it fails if it waits for an event that never occurs. After `life` of virtual time all connections are cut,
    /// which ends every wait. If the test still runs after 100 s of real time, the process exits.
    #[must_use]
    pub fn ends_after(self, life: Duration) -> Self {
        if let Self::Engine(engine) = &self {
            let faults = engine.faults();
            let (running, watched) = mpsc::channel::<()>();
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            std::thread::spawn(move || {
                if watched.recv_timeout(Duration::from_secs(100)) != Err(RecvTimeoutError::Timeout)
                {
                    return;
                }
                // Not `eprintln!`: the test's captured output is not shown if the process exits.
                writeln!(std::io::stderr(), "{test} does not end").ok();
                std::process::exit(101);
            });
            tokio::spawn(async move {
                tokio::time::sleep(life).await;
                faults.refuse_connections(Switch::On);
                faults.kill_connections();
                std::future::pending::<()>().await;
                drop(running);
            });
        }
        self
    }

    /// A real server, or `None` with a printed message if none is installed.
    #[must_use]
    pub fn server(test: &str) -> Option<Self> {
        RedisServer::or_skip(test).map(|server| Self::Server(Box::new(server)))
    }

    /// A configuration for this world. Faults find the client by `name`.
    #[must_use]
    pub fn config(&self, name: &str) -> ClientConfig {
        match self {
            Self::Engine(engine) => ClientConfig::embedded(engine)
                .name(name)
                .virtual_time()
                .seed(7),
            Self::Server(server) => ClientConfig::new(server.url())
                .name(name)
                .connect_timeout(Duration::from_secs(30))
                .response_timeout(Duration::from_secs(3)),
        }
    }

    /// A new client, as another process would have.
    pub async fn client(&self) -> Client {
        self.named("client").await
    }

    /// Several clients.
    pub async fn clients<const N: usize>(&self) -> [Client; N] {
        let mut clients = Vec::new();
        for _ in 0..N {
            clients.push(self.client().await);
        }
        clients.try_into().unwrap()
    }

    /// A new client that faults find by `name`.
    pub async fn named(&self, name: &str) -> Client {
        Client::connect_with(self.config(name)).await.unwrap()
    }

    /// A new client with more settings.
    pub async fn configured(
        &self,
        name: &str,
        more: impl FnOnce(ClientConfig) -> ClientConfig,
    ) -> Client {
        Client::connect_with(more(self.config(name))).await.unwrap()
    }

    /// `size` clients with the names `p0`, `p1` and so on. Their seeds differ, so that they do not all poll at the same time.
    pub async fn fleet(&self, size: usize) -> Vec<Client> {
        let mut clients = Vec::new();
        for n in 0..size {
            let config = self.config(&format!("p{n}")).seed(n as u64 + 1);
            clients.push(Client::connect_with(config).await.unwrap());
        }
        clients
    }

    /// This world with a client.
    pub async fn with_client(self) -> (Self, Client) {
        let client = self.client().await;
        (self, client)
    }

    /// This world with [`World::clients`].
    pub async fn with_clients<const N: usize>(self) -> (Self, [Client; N]) {
        let clients = self.clients().await;
        (self, clients)
    }

    /// This world with clients of these names.
    pub async fn with_named(self, names: [&str; 2]) -> (Self, [Client; 2]) {
        let clients = [self.named(names[0]).await, self.named(names[1]).await];
        (self, clients)
    }

    /// This world with a [`World::fleet`].
    pub async fn with_fleet(self, size: usize) -> (Self, Vec<Client>) {
        let clients = self.fleet(size).await;
        (self, clients)
    }

    /// The engine of this world.
    #[must_use]
    pub fn as_engine(&self) -> &Engine {
        match self {
            Self::Engine(engine) => engine,
            Self::Server(_) => panic!("this test is about the engine"),
        }
    }

    /// The faults of the engine.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.as_engine().faults()
    }

    /// A new client that polls, because it may not subscribe. Faults find it as `polling`.
    pub async fn polling(&self) -> Client {
        let config = self.config("polling").wake(Wake::Poll);
        Client::connect_with(config).await.unwrap()
    }

    /// Loses the reply to the next script that is called by its hash.
    pub fn lose_next_reply(&self, way: LostReply) {
        let faults = self.faults();
        match way {
            LostReply::Closed => faults.lose_replies("EVALSHA", 1),
            LostReply::Silent => faults.lose_replies_silently("EVALSHA", 1),
        }
    }

    /// Runs an administrator's command. Returns texts and numbers as text, and nil as an empty text.
    #[must_use]
    pub fn admin(&self, command: &[&str]) -> String {
        match self {
            Self::Engine(engine) => match engine.execute(command) {
                Reply::Int(n) => n.to_string(),
                Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
                Reply::Status(text) | Reply::Text(text) => text,
                Reply::Nil => String::new(),
                other => panic!("{command:?}: {other:?}"),
            },
            Self::Server(server) => match server.cli(command) {
                Value::Int(n) => n.to_string(),
                Value::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
                Value::Status(text) => text,
                Value::Nil => String::new(),
                other => panic!("{command:?}: {other:?}"),
            },
        }
    }

    /// The number of connections that are subscribed to `channel`, or to one below it: `channel:<client>`. Not counted is
    /// `channel:stanchion`, which marks a subscriber of `channel` as a client of stanchion, not of Redisson.
    #[must_use]
    pub fn subscribers(&self, channel: &str) -> usize {
        match self {
            Self::Engine(engine) => {
                let below = format!("{channel}:*");
                let Reply::Array(names) = engine.execute(&["PUBSUB", "CHANNELS", &below]) else {
                    panic!("a list of channels");
                };
                let mut command = vec!["PUBSUB".to_owned(), "NUMSUB".into(), channel.into()];
                let names = names.iter().map(|name| match name {
                    Reply::Bulk(name) => String::from_utf8_lossy(name).into_owned(),
                    other => panic!("{other:?}"),
                });
                command.extend(names.filter(|name| !name.ends_with(":stanchion")));
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                let Reply::Array(items) = engine.execute(&command) else {
                    panic!("channels and numbers");
                };
                let count = |item: &Reply| match item {
                    Reply::Int(n) => usize::try_from(*n).unwrap(),
                    _ => 0,
                };
                items.iter().map(count).sum()
            }
            Self::Server(server) => server.subscribers(channel),
        }
    }

    /// Waits until `channel` has a subscriber. From then on a release reaches the waiters.
    pub async fn subscribed(&self, channel: &str) {
        eventually_async("the channel has a subscriber", async || {
            self.subscribers(channel) > 0
        })
        .await;
    }

    /// Waits until `count` calls of `client` wait, `channel` has a subscriber, and no more requests are sent.
    pub async fn waiting(&self, client: &Client, count: usize, channel: &str) {
        self.subscribed(channel).await;
        eventually(&format!("{count} wait"), || client.waiters() == count).await;
        self.quiet().await;
    }

    /// Subscribes to `channel` as another program would.
    pub async fn listen(&self, channel: &str) -> Listener {
        match self {
            Self::Engine(engine) => Listener::new(engine.connect().unwrap(), channel).await,
            Self::Server(server) => {
                let stream = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
                Listener::new(stream, channel).await
            }
        }
    }

    /// The number of scripts that clients have sent so far.
    #[must_use]
    pub fn scripts_run(&self) -> u64 {
        match self {
            Self::Engine(engine) => {
                let stats = engine.stats();
                stats.count("EVALSHA") + stats.count("EVAL")
            }
            Self::Server(server) => {
                let stats = server.commands_processed();
                stats.get("evalsha").unwrap_or(&0) + stats.get("eval").unwrap_or(&0)
            }
        }
    }

    /// Waits until a command has this reply.
    pub async fn until(&self, command: &[&str], reply: impl std::fmt::Display) {
        let what = format!("{command:?}: {reply}");
        eventually(&what, || self.admin(command) == reply.to_string()).await;
    }

    /// Waits until no script has been sent for 50 ms; on a real server for 300 ms, because a client's task may not have run yet.
    pub async fn quiet(&self) {
        let moment = Duration::from_millis(match self {
            Self::Engine(_) => 50,
            Self::Server(_) => 300,
        });
        eventually_async("no more scripts are sent", async || {
            let before = self.scripts_run();
            tokio::time::sleep(moment).await;
            self.scripts_run() == before
        })
        .await;
    }

    /// The limit for an operation that takes `exact` in virtual time: `exact` on the engine, and 3 s more on a real server, because the
    /// machine may be busy.
    #[must_use]
    pub fn limit(&self, exact: Duration) -> Duration {
        match self {
            Self::Engine(_) => exact,
            Self::Server(_) => exact + Duration::from_secs(3),
        }
    }

    /// All keys except those that stay on purpose: the fence counters, the numbers that identify keyspaces, and the records of clients,
    /// which belong to no name and expire (`virtual/client/presence` tests these).
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let all = match self {
            Self::Engine(engine) => engine
                .keys()
                .into_iter()
                .map(|key| String::from_utf8_lossy(&key).into_owned())
                .collect(),
            Self::Server(server) => server.keys(),
        };
        let mut keys: Vec<String> = all
            .into_iter()
            .filter(|key: &String| !is_fence(key) && !is_record(key))
            .collect();
        keys.sort();
        keys
    }

    /// The keys of [`World::keys`], each with its content.
    #[must_use]
    pub fn dump(&self) -> Vec<(String, String)> {
        let read = |key: &str| match self.admin(&["TYPE", key]).as_str() {
            "string" => self.admin(&["GET", key]),
            "hash" => self.listing(&["HGETALL", key]),
            "list" => self.listing(&["LRANGE", key, "0", "-1"]),
            "zset" => self.listing(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            other => panic!("{key}: {other}"),
        };
        self.keys()
            .into_iter()
            .map(|key| {
                let held = read(&key);
                (key, held)
            })
            .collect()
    }

    fn listing(&self, command: &[&str]) -> String {
        match self {
            Self::Engine(engine) => format!("{:?}", engine.execute(command)),
            Self::Server(server) => format!("{:?}", server.cli(command)),
        }
    }

    /// Waits until only the keys that stay on purpose are left.
    pub async fn at_rest(&self) {
        eventually_async("only fence counters are left", async || {
            self.keys().is_empty()
        })
        .await;
    }
}

/// Returns whether `key` is the record of a client, or the list of clients, with any prefix.
#[must_use]
pub fn is_record(key: &str) -> bool {
    key.contains("stanchion_client:{") || key.ends_with("stanchion_clients")
}

fn is_fence(key: &str) -> bool {
    [
        "stanchion_fence:",
        "stanchion_origin:",
        "redisson_lock_token:",
    ]
    .iter()
    .any(|kept| key.starts_with(kept))
}

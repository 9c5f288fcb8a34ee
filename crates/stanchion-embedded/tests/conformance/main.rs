//! The engine against a real server: the same commands have to give the same replies.
//!
//! The engine behaves as Redis 7.0, and with that every byte is compared. Later servers word their errors anew and print
//! numbers more briefly: there errors are compared by their code and numbers by their value, but for [`differences`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops where something is missing"
)]

mod commands;
mod corners;
mod differences;
mod replies;
mod tracking;
mod wire;

use std::fmt;

use stanchion_embedded::{Engine, EngineStream};
use stanchion_testkit::RedisServer;
use tokio::net::UnixStream;
use wire::{Wire, args};

/// The server to compare with; `None`, said loudly, where none is installed.
fn real() -> Option<RedisServer> {
    if RedisServer::available() {
        return Some(RedisServer::builder().unix_socket().start());
    }
    RedisServer::or_skip(std::thread::current().name().unwrap_or("a test"))
}

/// A connection to each of the two.
struct Pair {
    real: Wire<UnixStream>,
    engine: Wire<EngineStream>,
    /// True if the server is of the version that the engine behaves as.
    is_model: bool,
}

/// The answers of both to one command.
struct Answers {
    real: Vec<u8>,
    engine: Vec<u8>,
    agree: bool,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (real, engine) = (self.real.escape_ascii(), self.engine.escape_ascii());
        write!(f, "\n    server {real}\n    engine {engine}")
    }
}

impl Pair {
    async fn new(server: &RedisServer, engine: &Engine) -> Self {
        let is_valkey = server.info("server", "valkey_version").is_some();
        let version = server.info("server", "redis_version");
        Self {
            real: Wire::new(UnixStream::connect(server.unix_path()).await.unwrap()),
            engine: Wire::new(engine.connect().unwrap()),
            is_model: !is_valkey && version.is_some_and(|version| version.starts_with("7.0.")),
        }
    }

    async fn ask(&mut self, command: &[Vec<u8>]) -> Answers {
        if !self.is_model && differences::known(command) {
            // Not even sent: what it leaves would differ, too.
            return Answers {
                real: Vec::new(),
                engine: Vec::new(),
                agree: true,
            };
        }
        let real = self.real.ask(command).await;
        let engine = self.engine.ask(command).await;
        let agree = real == engine || !self.is_model && replies::alike(&real, &engine);
        Answers {
            real,
            engine,
            agree,
        }
    }

    async fn both(&mut self, words: &str) -> Answers {
        self.ask(&args(words)).await
    }

    /// One connection, one protocol, nothing stored.
    async fn fresh(&mut self, protocol: u8) {
        self.both("FLUSHALL").await;
        self.both(&format!("HELLO {protocol}")).await;
    }
}

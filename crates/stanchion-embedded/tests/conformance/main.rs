//! The engine against a real Redis 7.0: the same commands have to give the same bytes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops where something is missing"
)]

#[path = "../support/real.rs"]
mod real;

mod commands;
mod corners;
mod scripts;

use real::{RealServer, Wire, args};
use stanchion_embedded::{Engine, EngineStream};
use tokio::net::UnixStream;

/// A connection to each of the two.
struct Pair {
    real: Wire<UnixStream>,
    engine: Wire<EngineStream>,
}

impl Pair {
    async fn new(server: &RealServer, engine: &Engine) -> Self {
        Self {
            real: server.connect().await,
            engine: Wire::new(engine.connect().unwrap()),
        }
    }

    /// The replies of both as readable text: first Redis, then the engine.
    async fn ask(&mut self, command: &[Vec<u8>]) -> (String, String) {
        let text = |bytes: Vec<u8>| bytes.escape_ascii().to_string();
        (
            text(self.real.ask(command).await),
            text(self.engine.ask(command).await),
        )
    }

    async fn both(&mut self, words: &str) {
        self.ask(&args(words)).await;
    }

    /// One connection, one protocol, nothing stored.
    async fn fresh(&mut self, protocol: u8) {
        self.both("FLUSHALL").await;
        self.both(&format!("HELLO {protocol}")).await;
    }
}

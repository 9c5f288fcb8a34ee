//! A Redis server inside the process, for `memory://` URLs: the same commands, the same Lua scripts, the
//! same bytes on the wire as Redis 7.0, without a server to install.
//!
//! An [`Engine`] is a server; [`Engine::connect`] returns a byte stream over which an unmodified Redis client
//! speaks RESP2 or RESP3. Nothing is spawned: a command runs when its bytes are written, on the writer's thread.
//! [`Engine::with_clock`] puts the server into virtual time, and [`Engine::faults`] makes the server, or the
//! network in front of it, misbehave.
//!
//! ```
//! use stanchion_embedded::{Engine, Reply};
//!
//! let engine = Engine::new();
//! engine.execute(&["SET", "greeting", "hello"]);
//! assert_eq!(engine.execute(&["GET", "greeting"]), Reply::Bulk(b"hello".to_vec()));
//! ```
//!
//! Supported is the part of Redis that locks, semaphores and latches need: strings, hashes, lists, sorted sets,
//! expiry, publish and subscribe, scripts. There are no transactions, no persistence, no replication.

// docs.rs builds with nightly and this cfg: the pages then show the feature of each item.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod commands;
mod connection;
mod engine;
#[cfg(feature = "explore")]
pub mod explore;
mod faults;
mod keyspace;
mod lua;
mod outcome;
mod reply;
mod resp;
mod server;
mod serving;
mod stats;
mod stream;
mod switches;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use engine::Engine;
pub use faults::{Data, Faults, Saved, Switch};
pub use reply::Reply;
pub use stats::Stats;
pub use stream::EngineStream;

/// Locks `mutex`, also after a panic in another thread: a panic in one caller's clock must not stop the server for all.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the program of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

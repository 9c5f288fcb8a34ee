//! Tools for testing distributed locks against real servers.
//!
//! * [`RedisServer`]: a private server per test, with TLS, a unix socket, a steppable clock, kill and restart.
//! * [`Proxy`]: a TCP proxy that delays, freezes, resets, swallows one reply or holds one request back.
//! * [`Process`]: a child process whose output a test can wait for.
//! * [`cancel_after`] and [`for_each_await_point`]: drop a future at its n-th await, and at every one.
//! * [`eventually`]: wait for a condition.
//!
//! All tools fail by panicking, with a message that names the unmet condition.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test helper fails by panicking"
)]

mod admin;
mod builder;
mod cancel;
mod clock;
mod clock_shim;
mod cluster;
mod eventually;
mod monitor;
mod process;
mod proxy;
pub mod redisson;
mod resp;
mod sentinel;
mod servers;
mod tls;

pub use admin::Value;
pub use builder::RedisServerBuilder;
pub use cancel::{cancel_after, for_each_await_point};
pub use clock::machine_clock;
pub use cluster::{Cluster, Migration};
pub use eventually::{eventually, eventually_async, eventually_blocking};
pub use monitor::Monitor;
pub use process::{Process, Signal, send as send_signal};
pub use proxy::{Held, Matcher, Proxy, Switch, Then};
pub use sentinel::SentinelSet;
pub use servers::RedisServer;
pub use tls::Certificate;

//! The engine alone: an unmodified redis-rs client on it, the switches that make it misbehave, strangers' clients, patterns, and the server for
//! state exploration.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops where something is missing"
)]

mod client;
#[cfg(feature = "explore")]
mod explore;
mod faults;
mod patterns;
mod serving;
mod support;

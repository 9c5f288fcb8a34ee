//! Tests of the event streams of `docs/events.md`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

#[macro_use]
extern crate stanchion_tests;

mod cost;
mod faults;
mod kinds;
mod servers;
mod support;

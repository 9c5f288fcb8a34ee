//! Redisson and this library on one server: they exclude each other, wake each other and read each other's state.
//!
//! `redisson/` is a Maven project whose program runs commands from its standard input with Redisson. [`java`] builds and drives it. Without
//! a JDK and Maven the tests are skipped with a message; with `STANCHION_REQUIRE_REDISSON=1` they fail.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod java;
mod support;

mod clocks;
mod crashes;
mod deadlocks;
mod election;
mod expiry;
mod fair;
mod fenced;
mod force;
mod jobs;
mod latch;
mod latency;
mod leased;
mod limiter;
mod multilock;
mod names;
mod reentry;
mod rwlock;
mod semaphore;
mod topologies;
mod waiting;

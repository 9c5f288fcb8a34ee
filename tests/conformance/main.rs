//! The conformance suite: every test runs on the embedded engine, in virtual time, and on a real server.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests fail by panicking"
)]

#[macro_use]
extern crate stanchion_tests;

mod exclusion;
mod expiry;
mod fair;
mod forced;
mod input;
mod latch;
mod layout;
mod leased;
mod multilock;
mod one_name;
mod permits;
mod polling;
mod processes;
mod redlock;
mod reentry;
mod rwlock;
mod semaphore;
mod small_verbs;
mod tokens;
mod waiting;
mod waiting_processes;

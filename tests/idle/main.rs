//! Tests idle expiry: latches and semaphores that are deleted after a time without use.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[macro_use]
extern crate stanchion_tests;

mod latch;
mod semaphore;
mod semaphore_time;
mod support;

//! Names that end when nobody uses them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[macro_use]
extern crate stanchion_tests;

mod latch;
mod semaphore;
mod semaphore_time;
mod support;

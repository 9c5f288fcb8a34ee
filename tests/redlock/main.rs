//! Tests of RedLock. The modules are described in `stanchion_tests`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[macro_use]
extern crate stanchion_tests;

mod behaviour;
mod faults;
mod time;

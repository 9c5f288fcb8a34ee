//! Tests of the count-down latch. The modules are described in `stanchion_tests`.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[macro_use]
extern crate stanchion_tests;

mod behaviour;
mod faults;
mod idle;
mod interop;
mod time;

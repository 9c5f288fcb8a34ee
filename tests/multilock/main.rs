//! Tests of the multi-lock. The modules are described in `stanchion_tests`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[macro_use]
extern crate stanchion_tests;

mod behaviour;
mod faults;
mod interop;
mod time {
    mod direct;
    mod direct_acquire;
    mod direct_hand_off;
    mod direct_release;
    mod hand_off;
    mod members;
    mod moves;
    mod operations;
    mod turns;
}

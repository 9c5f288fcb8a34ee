//! Tests of semaphores, plain and leased. The modules are described in `stanchion_tests`.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[macro_use]
extern crate stanchion_tests;

mod behaviour {
    mod leased;
    mod permits;
    mod plain;
}
mod faults;
mod idle {
    mod both;
    mod support;
    mod time;
}
mod interop {
    mod leased;
    mod plain;
}
mod time {
    mod big_requests;
    mod direct;
    mod direct_of_ends;
    mod direct_of_line;
    mod direct_of_refusals;
    mod direct_of_turns;
    mod leased;
    mod operations;
    mod permit_model;
    mod permit_storm;
    mod queue;
}

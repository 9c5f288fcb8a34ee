//! Tests of the lock. The modules are described in `stanchion_tests`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[macro_use]
extern crate stanchion_tests;

mod behaviour {
    mod exclusion;
    mod expiry;
    mod forced;
    mod input;
    mod layout;
    mod reentry;
    mod small_verbs;
    mod waiting;
}
mod faults {
    mod clocks;
    mod counter;
    mod deadlines;
    mod memory;
    mod messages;
    mod processes;
    mod replies;
    mod servers;
    mod values;
}
mod interop {
    mod clocks;
    mod crashes;
    mod expiry;
    mod fenced;
    mod force;
    mod latency;
    mod reentry;
    mod waiting;
}
mod time {
    mod cancellation;
    mod ends;
    mod forced;
    mod holds;
    mod leases;
    mod line;
    mod local_queue;
    mod lost_messages;
    mod lost_replies;
    mod refusals;
    mod scripts;
    mod scripts_of_line;
    mod scripts_of_turns;
    mod unfinished;
}

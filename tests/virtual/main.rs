//! Tests on the embedded engine in virtual time, whose fault switches reach every interleaving. They need nothing.
//!
//! `stanchion_tests` describes all binaries.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking, as tests do, and print what they measured"
)]

mod barrier;
mod client {
    mod any;
    mod connections;
    mod far;
    mod identity;
    mod leaving;
    mod lost_queues;
    mod migration;
    mod observer;
    mod options;
    mod pollers;
    mod presence;
    mod repeated;
    mod restarts;
    mod short_leases;
    mod shutdown;
}
mod dropped;
mod late;
mod leases;
mod lost_messages;
mod lost_replies;
mod deadlocks {
    mod found;
    mod give_up;
    mod own;
}
mod election {
    mod clients;
    mod lead;
    mod observers;
    mod order;
    mod terms;
    mod values;
}
mod events {
    mod cost;
    mod faults;
}
mod fair;
mod fleets;
mod jobs;
mod latch;
mod limiter;
mod lock {
    mod cancellation;
    mod ends;
    mod forced;
    mod holds;
    mod input;
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
mod multilock {
    mod direct;
    mod direct_release;
    mod hand_off;
    mod members;
    mod moves;
    mod operations;
    mod turns;
}
mod redlock;
mod refusals;
mod rwlock;
mod semaphore {
    mod big_requests;
    mod direct;
    mod direct_of_ends;
    mod direct_of_line;
    mod direct_of_numbers;
    mod direct_of_refusals;
    mod direct_of_turns;
    mod idle;
    mod leased;
    mod operations;
    mod queue;
}
mod toy;

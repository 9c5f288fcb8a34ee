//! Tests of what belongs to no primitive: connections, names, rights, runtimes, transports, shutdown, surveys. The modules are described in `stanchion_tests`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[macro_use]
extern crate stanchion_tests;

mod behaviour {
    mod one_name;
    mod polling;
    mod processes;
    mod tokens;
    mod waiting_processes;
}
mod faults {
    mod connecting;
    mod cost;
    mod credentials;
    mod network;
    mod rights;
    mod roles;
    mod runtimes;
    mod shutdown;
    mod survey;
    mod transports;
}
mod interop {
    mod deadlocks;
    mod names;
    mod topologies;
}
mod time {
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

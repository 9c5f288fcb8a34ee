//! Tests on real servers: behaviour, compared with the engine; faults of servers, sockets and processes; sets of servers.
//!
//! They need a redis-server, and wait most of the time. `stanchion_tests` describes the modules.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking, as tests do; workers report to their parents"
)]

#[macro_use]
extern crate stanchion_tests;

mod barrier;
mod client {
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
}
mod deadlocks;
mod election {
    mod servers;
}
mod events {
    mod behaviour;
    mod servers;
}
mod fair {
    mod behaviour;
    mod faults;
}
mod jobs;
mod kinds;
mod latch {
    mod behaviour;
    mod faults;
    mod idle;
}
mod limiter {
    mod servers;
}
mod lock {
    mod behaviour {
        mod forced;
        mod layout;
        mod reentry;
        mod small_verbs;
    }
    mod faults {
        mod clocks;
        mod counter;
        mod messages;
        mod processes;
        mod servers;
    }
}
mod multilock {
    mod behaviour;
    mod faults;
}
mod redlock {
    mod behaviour;
    mod faults;
}
mod rwlock {
    mod behaviour;
    mod faults;
}
mod semaphore {
    mod behaviour {
        mod leased;
        mod permits;
        mod plain;
    }
    mod faults;
    mod idle;
}
mod topologies;

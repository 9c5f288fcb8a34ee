//! Tests with Redisson on the other side. They need a JDK and Maven.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod client {
    mod deadlocks;
    mod names;
    mod topologies;
}
mod election;
mod fair;
mod holds;
mod jobs;
mod latch;
mod limiter;
mod lock {
    mod clocks;
    mod expiry;
    mod fenced;
    mod latency;
    mod waiting;
}
mod multilock;
mod rwlock;
mod semaphore {
    mod leased;
    mod plain;
}

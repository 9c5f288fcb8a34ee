//! Tests faults of real servers, sockets, processes and signals.
//!
//! Each test causes one fault and names the promise (P1 to P11) that must hold. Tests wait for events, not for fixed times. Without an
//! installed server they are skipped, with a message.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod clocks;
mod connecting;
mod cost;
mod counter;
mod credentials;
mod deadlines;
mod fair;
mod latch;
mod memory;
mod messages;
mod multilock;
mod network;
mod processes;
mod redlock;
mod replies;
mod rights;
mod roles;
mod runtimes;
mod rwlock;
mod semaphore;
mod servers;
mod shutdown;
mod support;
mod survey;
mod transports;
mod values;

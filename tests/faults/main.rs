//! Faults of the real world: real servers, real sockets, real processes and signals.
//!
//! Each test breaks one thing and names the promise (P1 to P11) that must survive it. Tests wait for events, never for
//! a guess, and are skipped loudly where there is no server.
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

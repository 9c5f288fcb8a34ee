//! Sentinel and Cluster: real sets of servers, real failovers, slots that really move.
//!
//! Each test names the promise (P1 to P11) that must survive. Tests wait for events, never for a guess, and are skipped
//! loudly where there is no server.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod cluster;
mod deadlocks;
mod family;
mod figures;
mod idle;
mod lost_writes;
mod rights;
mod sentinel;
mod support;
mod tls;

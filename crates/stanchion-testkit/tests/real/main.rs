//! The tools against a real server and real processes. Tests skip loudly where there is no server.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod client;
mod process;
mod proxy_faults;
mod proxy_replies;
mod proxy_requests;
mod servers;
mod tls;
mod topologies;

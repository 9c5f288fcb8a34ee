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

use stanchion_testkit::{Proxy, RedisServer};

/// A server, or nothing to test with.
fn real() -> Option<RedisServer> {
    RedisServer::or_skip(std::thread::current().name().unwrap_or("a test"))
}

/// A server and a proxy before it.
fn pair() -> Option<(RedisServer, Proxy)> {
    let server = real()?;
    let proxy = Proxy::start(server.addr());
    Some((server, proxy))
}

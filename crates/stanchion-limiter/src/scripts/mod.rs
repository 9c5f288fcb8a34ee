//! The scripts, and the descriptions of requests that call them.

pub(crate) mod bucket;
pub(crate) mod limiter;

use std::time::Duration;

use stanchion_core::primitive::{Request, whole_millis};

/// A moment that never comes, in µs: Lua's numbers are exact up to here.
const NEVER: u64 = (1 << 53) - 1;

/// The furthest that anything is booked ahead. The scripts know it, too.
pub(crate) const FURTHEST: Duration = Duration::from_secs(60);

/// The server time in µs at which a request must be granted at the latest; 0: at once.
fn until(request: &Request<'_>, patience: Option<Duration>) -> u64 {
    match patience {
        _ if !request.waits => 0,
        Some(patience) => {
            let micros = whole_millis(patience).saturating_mul(1000);
            request.since.saturating_add(micros).min(NEVER)
        }
        None => NEVER,
    }
}

/// The time for which a process that dies may keep others waiting: an interval, but a second at least and ten at most.
pub(crate) fn horizon_of(interval: Duration) -> Duration {
    interval.clamp(Duration::from_secs(1), Duration::from_secs(10))
}

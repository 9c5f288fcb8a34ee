//! The scripts, and the descriptions of requests that call them.

pub(crate) mod bucket;
pub(crate) mod limiter;

use std::time::Duration;

use stanchion_client::InvalidDuration;
use stanchion_client::primitive::{Request, bounded, whole_millis};

/// A moment that never comes, in µs. Lua's numbers are exact up to this one.
const NEVER: u64 = (1 << 53) - 1;

/// The furthest that a request is booked ahead. The scripts have the same number.
const FURTHEST: Duration = Duration::from_secs(60);

/// Checks a horizon.
pub(crate) fn near(horizon: Duration) -> Result<Duration, InvalidDuration> {
    bounded("horizon", horizon, Duration::ZERO..=FURTHEST, "at most 60s")
}

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

/// The time for which a dead process may delay others: an interval, but at least 1 s and at most 10 s.
pub(crate) fn horizon_of(interval: Duration) -> Duration {
    interval.clamp(Duration::from_secs(1), Duration::from_secs(10))
}

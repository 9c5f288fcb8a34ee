//! The only reader of real time in this crate.
//!
//! Servers and child processes live in real time, so the tools that watch them must too.

use std::time::{Duration, Instant};

/// Returns the time since boot on the clock that all processes of this machine share (`CLOCK_MONOTONIC`).
///
/// Events that several processes stamp with it can be compared directly: there is no skew.
#[must_use]
pub fn machine_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let secs = u64::try_from(now.tv_sec).expect("a monotonic clock is never negative");
    let nanos = u32::try_from(now.tv_nsec).expect("nanoseconds are below 10^9");
    Duration::new(secs, nanos)
}

/// Returns the microseconds since 1970 on this machine's wall clock.
pub(crate) fn wall_micros() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

/// An instant in real time from which [`Deadline::passed`] counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(
        clippy::disallowed_methods,
        reason = "servers live in real time, whatever the test's clock says"
    )]
    pub(crate) fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    pub(crate) fn left(self) -> Duration {
        let now = Self::after(Duration::ZERO).0;
        self.0.saturating_duration_since(now)
    }

    pub(crate) fn passed(self) -> bool {
        self.left().is_zero()
    }
}

/// Blocks the thread between two looks at a condition.
#[expect(
    clippy::disallowed_methods,
    reason = "only blocking helpers poll with this"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

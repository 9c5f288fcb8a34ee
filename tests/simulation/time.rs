//! Simulated time: one true clock, which the server follows, and clients' clocks that start elsewhere and drift.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::{Clock, Moment};

/// The beginning of simulated time: zero is nobody's time.
const ORIGIN: Duration = Duration::from_secs(1_000);

/// The server's date at the origin. Any will do; this one has 16 digits in microseconds, as those of our time.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);

/// The true time of one simulation. Goes on when hosts crash and restart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Time {
    /// Nanoseconds at the beginning of the current step, for readers outside of any host.
    step: Arc<AtomicU64>,
}

impl Time {
    /// The beginning of a step.
    pub(crate) fn step_to(&self, elapsed: Duration) {
        self.step.store(nanos(elapsed), Ordering::Relaxed);
    }

    /// Now.
    pub(crate) fn now(&self) -> Duration {
        let elapsed = turmoil::sim_elapsed()
            .unwrap_or_else(|| Duration::from_nanos(self.step.load(Ordering::Relaxed)));
        ORIGIN + elapsed
    }

    /// A time of the simulation, as shown by [`Time::now`].
    pub(crate) fn at(elapsed: Duration) -> Duration {
        ORIGIN + elapsed
    }

    /// The server's date.
    pub(crate) fn date(&self) -> Duration {
        EPOCH + self.now()
    }

    /// The time at which the server shows `date`.
    pub(crate) fn of_date(date: Duration) -> Duration {
        date.saturating_sub(EPOCH)
    }

    /// The fencing token that a grant at `now` gets, when nothing pushes it up.
    pub(crate) fn as_token(now: Duration) -> u64 {
        u64::try_from((EPOCH + now).as_micros()).unwrap_or(u64::MAX)
    }
}

/// The clock of one client: shifted, and up to 0.4 % fast or slow. Promises hold for rates within 1 %.
#[derive(Clone, Debug)]
pub(crate) struct SkewedClock {
    time: Time,
    ahead: Duration,
    drift_ppm: i64,
}

impl SkewedClock {
    /// The clock of client `host` in the simulation of `seed`.
    pub(crate) fn new(time: &Time, seed: u64, host: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(u64::from(host)));
        Self {
            time: time.clone(),
            ahead: Duration::from_millis(rng.u64(0..1_000_000)),
            drift_ppm: rng.i64(-4_000..=4_000),
        }
    }

    /// The true time at which this clock shows `moment`.
    pub(crate) fn true_time(&self, moment: Moment) -> Duration {
        let shown = i128::from(nanos(moment.since_origin().saturating_sub(self.ahead)));
        from_nanos(shown * 1_000_000 / i128::from(1_000_000 + self.drift_ppm))
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        let now = i128::from(nanos(self.time.now()));
        Moment::from_origin(
            self.ahead + from_nanos(now + now * i128::from(self.drift_ppm) / 1_000_000),
        )
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn from_nanos(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

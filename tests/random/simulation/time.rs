//! Simulated time: one true clock, which the server follows, and client clocks with an offset and a drift.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::Moment;
use stanchion::client::Clock;

/// The beginning of simulated time. Not zero, so that no event has the time zero.
const ORIGIN: Duration = Duration::from_secs(1_000);

/// The server's date at time zero. In microseconds it has 16 digits, as real dates do.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);

/// The true time of one simulation. Crashes and restarts of hosts do not reset it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Time {
    /// Nanoseconds at the beginning of the current step, for code outside of any host.
    step: Arc<AtomicU64>,
}

impl Time {
    /// Sets the beginning of the current step.
    pub(crate) fn step_to(&self, elapsed: Duration) {
        self.step.store(nanos(elapsed), Ordering::Relaxed);
    }

    /// Returns the true time.
    pub(crate) fn now(&self) -> Duration {
        let elapsed = turmoil::sim_elapsed()
            .unwrap_or_else(|| Duration::from_nanos(self.step.load(Ordering::Relaxed)));
        ORIGIN + elapsed
    }

    /// Converts a time since the start of the simulation to a time as returned by [`Time::now`].
    pub(crate) fn at(elapsed: Duration) -> Duration {
        ORIGIN + elapsed
    }

    /// Returns the server's date.
    pub(crate) fn date(&self) -> Duration {
        EPOCH + self.now()
    }

    /// Returns the time at which the server's date is `date`.
    pub(crate) fn of_date(date: Duration) -> Duration {
        date.saturating_sub(EPOCH)
    }

    /// Returns the fencing token of a grant at `now`, unless an earlier token is larger.
    pub(crate) fn as_token(now: Duration) -> u64 {
        u64::try_from((EPOCH + now).as_micros()).unwrap_or(u64::MAX)
    }
}

/// The clock of one client, with an offset and up to 0.4 % fast or slow. The promises hold for rates within 1 %.
#[derive(Clone, Debug)]
pub(crate) struct SkewedClock {
    time: Time,
    ahead: Duration,
    drift_ppm: i64,
}

impl SkewedClock {
    /// Creates the clock of client `host` in the simulation of `seed`.
    pub(crate) fn new(time: &Time, seed: u64, host: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(u64::from(host)));
        Self {
            time: time.clone(),
            ahead: Duration::from_millis(rng.u64(0..1_000_000)),
            drift_ppm: rng.i64(-4_000..=4_000),
        }
    }

    /// Returns the true time at which this clock shows `moment`.
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

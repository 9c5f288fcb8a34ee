//! The client's clock, by which leases are measured.
//!
//! Decisions ("is the lock still mine?") compare this clock. Timers only wake a task to compare again. If possible, the default clock counts while
//! the machine is suspended, which `std::time::Instant` does not do everywhere (rust-lang/rust#87906).

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

/// A point on a [`Clock`]: nanoseconds since an origin that only that clock knows.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than any other moment: never.
    pub const FAR: Self = Self(u64::MAX);

    /// The moment `since_origin` after the clock's origin.
    #[must_use]
    pub fn from_origin(since_origin: Duration) -> Self {
        // A `u64` holds 584 years of nanoseconds. A later time saturates.
        Self(u64::try_from(since_origin.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the time since the clock's origin. With the default clock of Linux and Android the time is comparable between
    /// processes on one machine. Elsewhere each process has its own origin.
    #[must_use]
    pub fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the time from `earlier` to this moment, or zero if this moment is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        // Saturates, because tasks on two threads may read the clock in one order and compare in the other.
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Whole microseconds since the clock's origin.
    #[must_use]
    pub const fn micros(self) -> u64 {
        // Rounded down. For the moment before a request, rounding down can only raise the server's computed offset
        // (`ServerClock`).
        self.0 / 1_000
    }
}

/// The length in whole microseconds.
pub fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        // Saturates at `FAR`: an end that is `Duration::MAX` away means never.
        Self(
            self.0
                .saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.since_origin())
    }
}

/// A monotonic clock. The default is [`BootClock`]; tests inject [`TokioClock`] or their own.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current moment. Never returns an earlier moment than before.
    ///
    /// Must not block or call the client, because the core reads the clock while it holds the lock of a local queue.
    fn now(&self) -> Moment;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Moment {
        (**self).now()
    }
}

/// The time since boot. On Linux and Android (`CLOCK_BOOTTIME`) and on Windows (`std::time::Instant`) it counts while the
/// machine is suspended. Elsewhere, for example on macOS, it is an `Instant` that stops during the suspend. A hold that
/// ended in that time still counts as held afterwards (P1 and P5 are not kept there).
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // The time since boot is never negative, although the types allow it.
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Moment(secs * 1_000_000_000 + nanos)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock the rule points to"
    )]
    fn now(&self) -> Moment {
        use std::sync::OnceLock;
        use std::time::Instant;
        // An `Instant` has no absolute value, so the first reading in this process is the origin. Moments of two processes
        // cannot be compared here.
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Moment::from_origin(ORIGIN.get_or_init(Instant::now).elapsed())
    }
}

/// The clock of tokio, which `tokio::time::pause` turns into virtual time. Read it only inside that runtime.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// Returns a clock that starts now. One day is added, so that the origin is never a special value.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::from_origin(self.origin.elapsed() + Duration::from_secs(86_400))
    }
}

//! Leases: the time that a hold lasts without renewal, and the part of it that its holder may count on.

use std::fmt;
use std::time::Duration;

use crate::millis::whole_millis;
use stanchion_transport::Moment;

/// The length of a lease: 10 ms to 30 days, whole milliseconds. The default is 30 s, as Redisson's watchdog timeout.
///
/// Methods that set a lease take any `impl Into<Duration>`: a [`Duration`], which the acquire checks, or a `Lease`, which is checked already.
///
/// ```
/// # use std::time::Duration;
/// # use stanchion_core::{AcquireOptions, Lease};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = AcquireOptions::new().lease(Duration::from_secs(5));
/// let checked: Lease = Duration::from_secs(5).try_into()?; // of a configuration file, refused there
/// let same = AcquireOptions::new().lease(checked);
/// # let _ = (options, same);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(Duration);

/// The rule for the length of a lease.
pub(crate) const RULE: &str =
    "a lease is 10ms to 30days; a hold that must last longer is renewed, not leased for longer";

/// A lease outside 10 ms to 30 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid lease {}: {RULE}", humantime::format_duration(*.lease))]
#[non_exhaustive]
pub struct InvalidLease {
    /// The length as given.
    pub lease: Duration,
}

impl Lease {
    /// The shortest lease. Below it the safety margin would use up the lease.
    pub const MIN: Self = Self(Duration::from_millis(10));
    /// The longest lease.
    pub const MAX: Self = Self(Duration::from_secs(30 * 86_400));

    /// A lease of `length`, cut to whole milliseconds.
    ///
    /// # Errors
    /// [`InvalidLease`] outside [`Lease::MIN`]..=[`Lease::MAX`].
    pub const fn new(length: Duration) -> Result<Self, InvalidLease> {
        let millis = length.as_millis();
        // The upper limit is compared with the uncut length: otherwise 30 days and a part of a millisecond would pass.
        if millis < Self::MIN.0.as_millis() || length.as_nanos() > Self::MAX.0.as_nanos() {
            return Err(InvalidLease { lease: length });
        }
        // A lease has at most `MAX`, so its milliseconds fit.
        #[expect(clippy::cast_possible_truncation, reason = "at most 30 days")]
        Ok(Self(Duration::from_millis(millis as u64)))
    }

    /// The lease's length.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }

    /// The length in milliseconds, as sent to the server.
    #[must_use]
    pub fn millis(self) -> u64 {
        whole_millis(self.0)
    }

    /// The end a holder may count on: sent + L − m, with m = max(2 ms, L/100) against clock rates and rounding.
    ///
    /// P1, P5: counted from *before* the request was sent, so the server's end is never earlier.
    pub(crate) fn valid_until(self, sent: Moment) -> Moment {
        let margin = (self.0 / 100).max(Duration::from_millis(2));
        sent + (self.0 - margin)
    }

    /// This lease plus `more`, at most the longest lease.
    pub(crate) fn and(self, more: Duration) -> Self {
        Self((self.0.saturating_add(more)).min(Self::MAX.0))
    }

    /// This lease, cut for a hold that ends at `end`: a lease requested at `sent` lasts until that end, and not much longer.
    pub(crate) fn within(self, sent: Moment, end: Moment) -> Self {
        let left = end.since(sent);
        // The margin of `valid_until`, and one millisecond because a lease is whole milliseconds.
        let margin = (left / 99).max(Duration::from_millis(2)) + Duration::from_millis(1);
        let least = Duration::from_millis(whole_millis(left.saturating_add(margin)));
        Self(self.0.min(least).max(Self::MIN.0))
    }

    /// The interval between the watchdog's renewals (P10): a third of the lease.
    pub(crate) fn renewal_interval(self) -> Duration {
        // A failed renewal is retried during the remaining two thirds of the lease.
        self.0 / 3
    }

    /// The pause after a failed renewal. It is short, so that several tries fit before the lease ends.
    pub(crate) fn retry_interval(self) -> Duration {
        // Bounded for long leases: a server that returns is found soon, whatever the lease.
        (self.0 / 10).min(Duration::from_millis(200))
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self(Duration::from_secs(30))
    }
}

impl TryFrom<Duration> for Lease {
    type Error = InvalidLease;

    fn try_from(length: Duration) -> Result<Self, InvalidLease> {
        Self::new(length)
    }
}

impl From<Lease> for Duration {
    fn from(lease: Lease) -> Self {
        lease.0
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_a_year_are_refused_by_name() {
        for bad in [
            Duration::ZERO,
            Duration::from_millis(9),
            Duration::from_secs(365 * 86_400),
            Duration::MAX,
        ] {
            assert_eq!(Lease::new(bad).unwrap_err().lease, bad);
        }
        let text = Lease::new(Duration::ZERO).unwrap_err().to_string();
        assert!(
            text.starts_with("invalid lease 0s: a lease is 10ms to 30days"),
            "{text}"
        );
    }

    #[test]
    fn the_margin_is_two_milliseconds_or_a_hundredth() {
        let valid = |ms| {
            Lease::new(Duration::from_millis(ms))
                .unwrap()
                .valid_until(Moment::ZERO)
                .since(Moment::ZERO)
        };
        assert_eq!(valid(10), Duration::from_millis(8));
        assert_eq!(valid(30_000), Duration::from_millis(29_700));
    }

    #[test]
    fn a_cut_lease_lasts_until_the_end_and_not_much_longer() {
        let sent = Moment::from_origin(Duration::from_secs(7));
        for left in [
            10, 11, 99, 250, 999, 9_900, 29_000, 29_699, 40_000, 86_400_000,
        ] {
            let end = sent + Duration::from_millis(left);
            let cut = Lease::default().within(sent, end);
            let counted = cut.valid_until(sent);
            assert!(
                counted >= end || cut == Lease::default(),
                "{left} ms: {cut}"
            );
            let longest = Duration::from_millis(left + left / 99 + 4);
            assert!(cut.length() <= longest, "{left} ms: {cut}");
        }
        assert_eq!(Lease::default().within(sent, sent), Lease::MIN);
        assert_eq!(Lease::MAX.within(sent, Moment::FAR), Lease::MAX);
    }
}

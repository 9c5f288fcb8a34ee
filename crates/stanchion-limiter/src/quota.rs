//! Quotas.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};
use stanchion_client::Error;
use stanchion_client::primitive::whole_millis;

/// The shortest and the longest interval.
const INTERVALS: (Duration, Duration) = (
    Duration::from_millis(1),
    Duration::from_secs(30 * 24 * 3_600),
);

/// The longest time in which a bucket fills, in µs: 200 years. The script stores the moment at which a bucket is full, in µs since 2024. Lua's
/// numbers are exact up to 2^53 µs, which is 285 years, so this moment is exact until 2109.
const FILLS: u128 = 200 * 365 * 86_400 * 1_000_000;

/// The rule for the fastest rate of a bucket.
pub(crate) const MOST_PERMITS: &str = "a bucket gets at most 100 permits per millisecond";

/// A number of permits in an interval.
///
/// ```
/// # use std::time::Duration;
/// # use stanchion_limiter::Quota;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let quota = Quota::new(100, Duration::from_secs(1))?;
/// assert_eq!(quota, "100/s".parse()?);
/// assert_eq!("1000/5m".parse::<Quota>()?.interval(), Duration::from_secs(300));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    permits: u32,
    interval: Duration,
}

/// An invalid quota or limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("invalid quota {quota}: {rule}")]
pub struct InvalidQuota {
    /// The quota as given.
    pub quota: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl From<InvalidQuota> for Error {
    fn from(invalid: InvalidQuota) -> Self {
        Self::primitive(invalid)
    }
}

impl Quota {
    /// `permits` in every second: [`Quota::new`] for a constant rate.
    ///
    /// ```
    /// # use stanchion_limiter::Quota;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// assert_eq!(Quota::per_second(100)?, "100/s".parse()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidQuota`] for 0 permits.
    pub fn per_second(permits: u32) -> Result<Self, InvalidQuota> {
        Self::new(permits, Duration::from_secs(1))
    }

    /// `permits` in every minute, as [`per_second`](Self::per_second).
    ///
    /// # Errors
    /// [`InvalidQuota`] for 0 permits.
    pub fn per_minute(permits: u32) -> Result<Self, InvalidQuota> {
        Self::new(permits, Duration::from_secs(60))
    }

    /// `permits` in every hour, as [`per_second`](Self::per_second).
    ///
    /// # Errors
    /// [`InvalidQuota`] for 0 permits.
    pub fn per_hour(permits: u32) -> Result<Self, InvalidQuota> {
        Self::new(permits, Duration::from_secs(3_600))
    }

    /// `permits` (1 to 2³² − 1) in every `interval` (1 ms to 30 days, whole milliseconds).
    ///
    /// # Errors
    /// [`InvalidQuota`].
    pub fn new(permits: u32, interval: Duration) -> Result<Self, InvalidQuota> {
        let quota = Self { permits, interval };
        let rule = if permits == 0 {
            "a quota has 1 permit or more"
        } else if interval < INTERVALS.0 || interval > INTERVALS.1 {
            "an interval lasts 1ms to 30days"
        } else if !interval.subsec_nanos().is_multiple_of(1_000_000) {
            "an interval has whole milliseconds"
        } else {
            return Ok(quota);
        };
        let quota = format!("{permits}/{interval:?}");
        Err(InvalidQuota { quota, rule })
    }

    /// Returns the number of permits.
    #[must_use]
    pub const fn permits(&self) -> u32 {
        self.permits
    }

    /// Returns the interval.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns whether a bucket can refill at this rate.
    pub(crate) fn fits_a_bucket(&self) -> bool {
        u64::from(self.permits) <= 100 * self.millis()
    }

    pub(crate) fn millis(&self) -> u64 {
        whole_millis(self.interval)
    }

    /// Reads the stored quota. It may be invalid, because Redisson does not check its arguments.
    pub(crate) fn stored(permits: i64, millis: i64) -> Self {
        Self {
            permits: permits.clamp(0, u32::MAX.into()).try_into().unwrap_or(0),
            interval: Duration::from_millis(millis.max(0).unsigned_abs()),
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = humantime::format_duration(self.interval).to_string();
        let unit = interval.strip_prefix('1').filter(|unit| {
            // `1s` is a unit, `10s` and `1m 30s` are not.
            unit.chars().all(char::is_alphabetic)
        });
        write!(f, "{}/{}", self.permits, unit.unwrap_or(&interval))
    }
}

impl FromStr for Quota {
    type Err = InvalidQuota;

    fn from_str(text: &str) -> Result<Self, InvalidQuota> {
        let invalid = || InvalidQuota {
            quota: text.to_owned(),
            rule: "write permits and interval, as 10/s, 1000/5m or 1/250ms",
        };
        let (permits, interval) = text.split_once('/').ok_or_else(invalid)?;
        let permits = permits.trim().parse().map_err(|_| invalid())?;
        let interval = interval.trim();
        let counted = if interval.starts_with(|c: char| c.is_ascii_digit()) {
            humantime::parse_duration(interval)
        } else {
            humantime::parse_duration(&format!("1{interval}"))
        };
        Self::new(permits, counted.map_err(|_| invalid())?)
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One limit of a [`TokenBucket`](crate::TokenBucket): a long-term rate, and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    pub(crate) quota: Quota,
    pub(crate) burst: u32,
}

impl Limit {
    /// A bucket that `quota` refills evenly, and that holds `burst` permits (1 or more). At most 100 permits per millisecond. It must
    /// be full again after at most 200 years.
    ///
    /// ```
    /// # use stanchion_limiter::Limit;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Limit::new("600/m".parse()?, 20)?; // 10 in a second, or 20 at once after a pause
    /// assert!(Limit::new("600/m".parse()?, 0).is_err());
    /// # let _ = api;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidQuota`].
    pub fn new(quota: Quota, burst: u32) -> Result<Self, InvalidQuota> {
        let invalid = |rule| InvalidQuota {
            quota: format!("{quota} with a burst of {burst}"),
            rule,
        };
        if burst == 0 {
            return Err(invalid("a bucket holds 1 permit or more"));
        }
        if !quota.fits_a_bucket() {
            return Err(invalid(MOST_PERMITS));
        }
        let micros = u128::from(quota.millis()) * 1000;
        if u128::from(burst) * micros > FILLS * u128::from(quota.permits) {
            return Err(invalid("an empty bucket is full after at most 200 years"));
        }
        Ok(Self { quota, burst })
    }

    /// The limit, in the format of the script.
    pub(crate) fn text(&self) -> String {
        let micros = self.quota.millis() * 1000;
        format!("{micros}/{}/{}", self.quota.permits, self.burst)
    }
}

impl From<Quota> for Limit {
    /// A bucket that holds the permits of one interval. More than 100 permits per millisecond are rejected by each request
    /// ([`Rejection::InvalidOption`](stanchion_client::Rejection::InvalidOption)), or here by [`Limit::new`].
    fn from(quota: Quota) -> Self {
        Self {
            quota,
            burst: quota.permits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_written_and_read() {
        for (text, permits, millis) in [
            ("10/s", 10, 1_000),
            ("1/250ms", 1, 250),
            ("1000/5m", 1000, 300_000),
            ("7/h", 7, 3_600_000),
            ("1/day", 1, 86_400_000),
        ] {
            let quota: Quota = text.parse().unwrap();
            assert_eq!(
                (quota.permits(), quota.millis()),
                (permits, millis),
                "{text}"
            );
            assert_eq!(quota.to_string(), text);
        }
        for bad in [
            "",
            "10",
            "/s",
            "0/s",
            "10/",
            "-1/s",
            "10/fortnight",
            "1/100us",
            "1/1year",
        ] {
            assert!(bad.parse::<Quota>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_quota_that_cannot_be_kept_is_refused() {
        assert!(Quota::new(0, Duration::from_secs(1)).is_err());
        assert!(Quota::new(1, Duration::from_micros(1500)).is_err());
        assert!(Quota::new(1, Duration::ZERO).is_err());
        assert!(Quota::new(u32::MAX, INTERVALS.1).is_ok());
        let fast = Quota::new(101, Duration::from_millis(1)).unwrap();
        assert!(Limit::new(fast, 1).is_err());
        let slow = Quota::new(1, INTERVALS.1).unwrap();
        assert!(Limit::new(slow, 2_433).is_ok());
        let error = Limit::new(slow, u32::MAX).unwrap_err().to_string();
        assert!(error.contains("4294967295: an empty bucket"), "{error}");
        // Exact in Lua: the moment at which the slowest bucket is full, as late as 2109.
        let full = FILLS + 85 * 365 * 86_400 * 1_000_000;
        assert!(full < 1 << 53, "{full}");
    }
}

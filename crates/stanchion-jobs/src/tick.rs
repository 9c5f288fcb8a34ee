//! The moments of a schedule.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// A moment of a schedule: the time at which a run is *due*. It is the same on every machine, unlike the time at which a run starts.
///
/// Stored as whole milliseconds since 1970. [`Job::run_tick`](crate::Job::run_tick) runs each tick once.
///
/// ```
/// # fn main() -> Result<(), stanchion_jobs::InvalidTick> {
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
/// use stanchion_jobs::Tick;
///
/// let three: Tick = "2026-11-23T03:00:00Z".parse()?;
/// assert_eq!("2026-11-23T04:00:00+01:00".parse::<Tick>()?, three);
/// assert_eq!("1795402800".parse::<Tick>()?, three); // seconds since 1970
/// assert_eq!(three.to_string(), "2026-11-23T03:00:00Z");
///
/// // Two machines whose clocks differ by a second, and that start a little late:
/// let quarter = Duration::from_secs(15 * 60);
/// let (one, other) = (three.time() + Duration::from_millis(40), three.time() + Duration::from_millis(1_700));
/// assert_eq!(Tick::rounded_down(one, quarter)?, Tick::rounded_down(other, quarter)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Tick(u64);

/// A time that is not a valid tick, and the rule that it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid tick {}: {rule}", stanchion_client::Printable::new(given))]
#[non_exhaustive]
pub struct InvalidTick {
    /// The value as given.
    pub given: String,
    /// The rule.
    pub rule: &'static str,
}

/// The end of the year 9999, the last one that RFC 3339 can represent.
const END: u64 = 253_402_300_800_000;

const FORMAT: &str = "a date and time with its offset, as 2026-11-23T03:00:00Z (RFC 3339), or the seconds since 1970";
const RANGE: &str = "a tick lies between the years 1970 and 9999";
const PERIOD: &str = "a period is at least 1ms";

impl Tick {
    /// The tick at `time`, cut to whole milliseconds.
    ///
    /// # Errors
    /// [`InvalidTick`] before 1970 and after 9999.
    pub fn at(time: SystemTime) -> Result<Self, InvalidTick> {
        let invalid = || InvalidTick {
            given: format!("{time:?}"),
            rule: RANGE,
        };
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| invalid())?;
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        (millis < END).then_some(Self(millis)).ok_or_else(invalid)
    }

    /// The last multiple of `period` since 1970 (UTC) that is not after `time`.
    ///
    /// For schedules that are such multiples: every 15 minutes, every hour, every day at midnight. A timer at 03:00 with a period
    /// of a day gives the tick 00:00 of that day. This is good enough, because all machines get the same tick.
    ///
    /// # Errors
    /// [`InvalidTick`]: as [`Tick::at`], and for a period below 1 ms.
    pub fn rounded_down(time: SystemTime, period: Duration) -> Result<Self, InvalidTick> {
        let Self(millis) = Self::at(time)?;
        match u64::try_from(period.as_millis()) {
            Ok(0) => Err(InvalidTick {
                given: humantime::format_duration(period).to_string(),
                rule: PERIOD,
            }),
            Ok(period) => Ok(Self(millis - millis % period)),
            Err(_) => Ok(Self(0)),
        }
    }

    /// [`Tick::rounded_down`] of this machine's clock: for programs that a timer starts.
    ///
    /// This machine's clock may be wrong by less than a period. A timer that fires *before* its time by this clock gives the previous
    /// tick, which has run: this machine skips, and the others do not. In virtual time use [`Job::tick`](crate::Job::tick).
    ///
    /// # Errors
    /// As [`Tick::rounded_down`].
    pub fn every(period: Duration) -> Result<Self, InvalidTick> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the machine's own clock is what its timers fire by: the tick is what that clock calls this moment, not a measure of time"
        )]
        Self::rounded_down(SystemTime::now(), period)
    }

    /// The tick that is `millis` milliseconds after 1970.
    ///
    /// # Errors
    /// [`InvalidTick`] after 9999.
    pub fn from_unix_millis(millis: u64) -> Result<Self, InvalidTick> {
        (millis < END)
            .then_some(Self(millis))
            .ok_or_else(|| InvalidTick {
                given: format!("{millis} ms"),
                rule: RANGE,
            })
    }

    /// The milliseconds since 1970.
    #[must_use]
    pub const fn unix_millis(self) -> u64 {
        self.0
    }

    /// The time of the tick.
    #[must_use]
    pub fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.0)
    }
}

impl TryFrom<SystemTime> for Tick {
    type Error = InvalidTick;

    fn try_from(time: SystemTime) -> Result<Self, InvalidTick> {
        Self::at(time)
    }
}

/// RFC 3339, with an offset or `Z`, or a number of seconds since 1970.
impl FromStr for Tick {
    type Err = InvalidTick;

    fn from_str(text: &str) -> Result<Self, InvalidTick> {
        let invalid = |rule| InvalidTick {
            // A wrong variable of a script may be long, so the message shows its first 64 characters.
            given: format!("{:?}", text.chars().take(64).collect::<String>()),
            rule,
        };
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            let seconds = text.parse().unwrap_or(u64::MAX);
            return Self::from_unix_millis(seconds.saturating_mul(1_000))
                .map_err(|_| invalid(RANGE));
        }
        let (local, ahead) = offset(text).ok_or_else(|| invalid(FORMAT))?;
        let time = humantime::parse_rfc3339(&format!("{local}Z")).map_err(|_| invalid(FORMAT))?;
        let time = match ahead {
            Offset::East(ahead) => time.checked_sub(ahead),
            Offset::West(behind) => time.checked_add(behind),
        };
        Self::at(time.ok_or_else(|| invalid(RANGE))?).map_err(|_| invalid(RANGE))
    }
}

/// The distance of a local time from UTC.
enum Offset {
    East(Duration),
    West(Duration),
}

/// Splits off the `Z` or `±hh:mm` at the end.
fn offset(text: &str) -> Option<(&str, Offset)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, Offset::East(Duration::ZERO)));
    }
    let (local, end) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (sign, rest) = end.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, below: u64| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|n: &u64| digits && *n < below)
    };
    let length = Duration::from_secs(number(hours, 24)? * 3_600 + number(minutes, 60)? * 60);
    match sign {
        "+" => Some((local, Offset::East(length))),
        "-" => Some((local, Offset::West(length))),
        _ => None,
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1_000) {
            humantime::format_rfc3339_seconds(self.time()).fmt(f)
        } else {
            humantime::format_rfc3339_millis(self.time()).fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tick(text: &str) -> u64 {
        text.parse::<Tick>().unwrap().unix_millis()
    }

    #[test]
    fn a_time_is_read_with_its_offset() {
        let noon = 1_795_435_200_000;
        for text in [
            "2026-11-23T12:00:00Z",
            "2026-11-23T12:00:00.000Z",
            "2026-11-23T13:00:00+01:00",
            "2026-11-23T06:30:00-05:30",
            "1795435200",
        ] {
            assert_eq!(tick(text), noon, "{text}");
        }
        assert_eq!(tick("2026-11-23T12:00:00.250Z"), noon + 250);
        assert_eq!(tick("0"), 0);
    }

    #[test]
    fn what_is_no_time_is_refused_by_its_value_and_a_rule() {
        for text in [
            "",
            " ",
            "now",
            "-1",
            "1.5",
            "+5",
            "2026-11-23",
            "2026-11-23T12:00:00",
            "2026-11-23T12:00:00+1:00",
            "2026-11-23T12:00:00+25:00",
            "2026-11-23T12:00:00+01:60",
            "2026-13-23T12:00:00Z",
            "2026-11-23T12:00:00+0é:0",
            "é",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:30:00+01:00",
            "99999999999999999999999",
            "253402300800",
        ] {
            let error = text.parse::<Tick>().unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("invalid tick {text:?}: ")),
                "{error}"
            );
        }
        let long = "x".repeat(10_000).parse::<Tick>().unwrap_err().to_string();
        assert!(long.len() < 250, "{long}");
        assert!(Tick::at(UNIX_EPOCH - Duration::from_millis(1)).is_err());
        assert!(Tick::from_unix_millis(u64::MAX).is_err());
        let never = Tick::rounded_down(UNIX_EPOCH, Duration::from_micros(999)).unwrap_err();
        assert!(never.to_string().contains("at least 1ms"), "{never}");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read(millis in 0..END) {
            let tick = Tick::from_unix_millis(millis).unwrap();
            prop_assert_eq!(tick.to_string().parse::<Tick>().unwrap(), tick);
        }

        #[test]
        fn late_starts_within_a_period_share_its_tick(
            n in 0..1_000_000_u64, period in 1..100_000_000_u64, late in 0.0..1.0_f64,
        ) {
            let length = Duration::from_millis(period);
            let due = UNIX_EPOCH + length * u32::try_from(n).unwrap();
            let tick = Tick::rounded_down(due + length.mul_f64(late * 0.999), length).unwrap();
            prop_assert_eq!(tick.unix_millis(), n * period);
        }
    }
}

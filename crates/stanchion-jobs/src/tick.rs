//! The moments of a schedule.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use stanchion_client::Error;

#[cfg(feature = "cron")]
use crate::due::Schedule;

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

impl From<InvalidTick> for Error {
    fn from(invalid: InvalidTick) -> Self {
        Self::primitive(invalid)
    }
}

/// The end of the year 9999, the last one that RFC 3339 can represent.
const END: u64 = 253_402_300_800_000;

const FORMAT: &str = "a date and time with its offset, as 2026-11-23T03:00:00Z (RFC 3339), or the seconds since 1970";
const RANGE: &str = "a tick lies between the years 1970 and 9999";
const PERIOD: &str = "a period is 1ms to 28days, in UTC; for months, weekdays and local times use a cron expression, as `Tick::cron`";

/// The longest period. A month is not a period: months differ in length, so the periods and the timer drift apart.
const LONGEST: u64 = 28 * 86_400_000;

const HOUR: u64 = 3_600_000;
const MINUTE: u64 = 60_000;

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
    /// The tick is the beginning of the period, not the time at which a timer is due. Machines agree on it while their timers fire
    /// within the same period: a timer that is due 30 s before the end of a period may be up to 30 s late. For a schedule at a time of
    /// the day use [`Tick::daily`] or [`Tick::cron`].
    ///
    /// # Errors
    /// [`InvalidTick`]: as [`Tick::at`], and for a period below 1 ms or above 28 days.
    pub fn rounded_down(time: SystemTime, period: Duration) -> Result<Self, InvalidTick> {
        let Self(millis) = Self::at(time)?;
        let since = millis % in_millis(period)?;
        Ok(Self(millis - since))
    }

    /// [`Tick::rounded_down`] of this machine's clock: for a timer with a period and no time of the day, such as an interval, or
    /// `*/15 * * * *`.
    ///
    /// Each timer must fire once in each period. A late timer, and one in local time after a change of the clocks, fires in another
    /// period, if it fires near the edge of two: its run is skipped, or done twice. So a call near an edge logs a warning: for periods above an hour
    /// within an hour of an edge, for periods from a minute in their last tenth. [`Tick::daily`] and [`Tick::cron`] have no such edges. In
    /// virtual time use [`Job::tick`](crate::Job::tick).
    ///
    /// # Errors
    /// As [`Tick::rounded_down`].
    pub fn every(period: Duration) -> Result<Self, InvalidTick> {
        let (now, millis) = (now(), in_millis(period)?);
        if let Some(distance) = near_edge(Self::at(now)?.0, millis) {
            let distance = humantime::format_duration(Duration::from_secs(distance / 1_000));
            let period = humantime::format_duration(period);
            tracing::warn!(
                "this timer fires {distance} from the edge of two periods of {period} in UTC: if it is late, or its clocks change, a run \
                 is skipped or repeated; name its due time and its zone (`Tick::cron`, or `stanchion run --at` and `--zone`)"
            );
        }
        Self::rounded_down(now, period)
    }

    /// The due time of a schedule, for a timer that fires now by this machine's clock: `expression` as in a crontab, `zone` as
    /// `Europe/London` or `UTC`. Needs the feature `cron`.
    ///
    /// Give the expression and the zone of the timer. Then each firing has a tick of its own, and all machines agree on it, also over
    /// changes of the clocks. The expression has five fields: minute, hour, day of the month, month, day of the week.
    ///
    /// # Guarantees
    /// The tick is the last due time, or the next one if the timer fires at most a minute, and at most a tenth of the distance between the
    /// two, before it. So a timer may be early by that much, and late by the rest of the distance.
    ///
    /// When the clocks go forward, the skipped times are due at that moment. When they go back, the repeated times are due once, at first.
    /// If the hours begin with `*`, skipped times are not due; if the minutes or the hours do, repeated times are due twice.
    ///
    /// ```
    /// # fn main() -> Result<(), stanchion_jobs::InvalidTick> {
    /// use stanchion_jobs::Tick;
    ///
    /// let tick = Tick::cron("0 3 1 * *", "Europe/Berlin")?; // a timer on the first of each month, at 3 o'clock
    /// # drop(tick);
    /// let unknown = Tick::cron("0 3 1 * *", "Berlin").unwrap_err();
    /// assert!(unknown.to_string().starts_with("invalid tick \"Berlin\": not in the time zone database"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidTick`]: an invalid expression, one without a due time in four years, or an unknown time zone. The zone comes from the
    /// machine's time zone database. If the machine has none, it comes from the one of this build.
    #[cfg(feature = "cron")]
    pub fn cron(expression: &str, zone: &str) -> Result<Self, InvalidTick> {
        Self::cron_at(now(), expression, zone)
    }

    /// As [`Tick::cron`], for a timer that fires at `time`. Needs the feature `cron`.
    ///
    /// ```
    /// # fn main() -> Result<(), stanchion_jobs::InvalidTick> {
    /// use stanchion_jobs::Tick;
    ///
    /// // A timer in London. It fires a little late, before and after the clocks go forward on 29 March 2026.
    /// let late = |text: &str| Ok::<_, stanchion_jobs::InvalidTick>(text.parse::<Tick>()?.time());
    /// let saturday = Tick::cron_at(late("2026-03-28T00:05:07Z")?, "5 0 * * *", "Europe/London")?;
    /// let monday = Tick::cron_at(late("2026-03-29T23:05:07Z")?, "5 0 * * *", "Europe/London")?;
    /// assert_eq!(saturday, "2026-03-28T00:05:00Z".parse()?);
    /// assert_eq!(monday, "2026-03-30T00:05:00+01:00".parse()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tick::cron`].
    #[cfg(feature = "cron")]
    pub fn cron_at(time: SystemTime, expression: &str, zone: &str) -> Result<Self, InvalidTick> {
        let schedule = Schedule::cron(expression, zone)?;
        schedule.of(Self::at(time)?.0).map(Self)
    }

    /// [`Tick::cron`] of each day at `time`, as `00:05`. Needs the feature `cron`.
    ///
    /// ```
    /// # fn main() -> Result<(), stanchion_jobs::InvalidTick> {
    /// use stanchion_jobs::Tick;
    ///
    /// let tick = Tick::daily("00:05", "Europe/London")?;
    /// assert_eq!(tick, Tick::cron("5 0 * * *", "Europe/London")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidTick`]: an invalid time, or an unknown time zone.
    #[cfg(feature = "cron")]
    pub fn daily(time: &str, zone: &str) -> Result<Self, InvalidTick> {
        let schedule = Schedule::daily(time, zone)?;
        schedule.of(Self::at(now())?.0).map(Self)
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

fn now() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "the machine's own clock is what its timers fire by: the tick is what that clock calls this moment, not a measure of time"
    )]
    SystemTime::now()
}

/// Returns a period in milliseconds.
fn in_millis(period: Duration) -> Result<u64, InvalidTick> {
    let millis = u64::try_from(period.as_millis()).ok();
    let valid = millis.filter(|millis| (1..=LONGEST).contains(millis));
    valid.ok_or_else(|| InvalidTick {
        given: humantime::format_duration(period).to_string(),
        rule: PERIOD,
    })
}

/// The distance of a time from the nearest edge of two periods, if a late timer or a change of the clocks may cross that edge.
fn near_edge(millis: u64, period: u64) -> Option<u64> {
    let after = millis % period;
    let before = period - after;
    match period {
        // Clocks change by an hour, and local times before and after the edge are those of summer and winter.
        _ if period > HOUR => Some(after.min(before)).filter(|distance| *distance <= HOUR),
        _ if period >= MINUTE => Some(before).filter(|distance| *distance <= period / 10),
        _ => None,
    }
}

/// The error for a text. A wrong variable of a script may be long, so the message shows its first 64 characters.
pub(crate) fn invalid(text: &str, rule: &'static str) -> InvalidTick {
    InvalidTick {
        given: format!("{:?}", text.chars().take(64).collect::<String>()),
        rule,
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
        let invalid = |rule| invalid(text, rule);
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
        assert!(never.to_string().contains("1ms to 28days"), "{never}");
    }

    #[test]
    fn a_month_and_a_year_are_no_periods() {
        for text in ["1month", "29days", "1year", "10000years"] {
            let period = humantime::parse_duration(text).unwrap();
            let refused = Tick::every(period).unwrap_err();
            assert!(refused.to_string().contains("Tick::cron"), "{refused}");
        }
        assert!(Tick::every(Duration::from_millis(LONGEST)).is_ok());
    }

    #[test]
    fn a_timer_near_an_edge_of_two_periods_is_found() {
        let minutes = |n: u64| n * MINUTE;
        let day = 24 * HOUR;
        for (period, since, near) in [
            // Due at 23:59:30 UTC.
            (day, day - 30_000, Some(30_000)),
            // London at 00:05, in winter and in summer. Berlin at 01:30 and New York at 19:30, in winter.
            (day, minutes(5), Some(minutes(5))),
            (day, minutes(23 * 60 + 5), Some(minutes(55))),
            (day, minutes(30), Some(minutes(30))),
            (day, minutes(3 * 60), None),
            (7 * day, 3 * day, None),
            (6 * HOUR, minutes(59), Some(minutes(59))),
            (6 * HOUR, minutes(61), None),
            (minutes(15), 0, None),
            (minutes(15), 2_000, None),
            (minutes(15), minutes(14), Some(minutes(1))),
            (minutes(1), 50_000, None),
            (minutes(1), 55_000, Some(5_000)),
            (1_000, 999, None),
        ] {
            assert_eq!(
                near_edge(20_000 * day / period * period + since, period),
                near,
                "{period} {since}"
            );
        }
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

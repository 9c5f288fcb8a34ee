//! The due times of a cron expression in a time zone.
//!
//! The cron library knows no gaps and no repetitions here: it searches local times as if they were UTC. This module maps local times to
//! moments, by the rules of cron for a change of the clocks.

use cronexpr::{Crontab, MakeTimestamp};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::tick::{InvalidTick, invalid};

const CRON: &str = "a cron expression has five fields: minute, hour, day of the month, month, day of the week, as 5 0 * * *";
const CLOCK: &str = "a time of the day, as 00:05";
const ZONE: &str = "not in the time zone database, which has names such as Europe/London, and UTC";
const NEVER: &str = "it has no due time in the four years before or after this moment";

/// The time that the cron library searches at most, and so the longest distance of two due times: the 29th of February.
const SEARCHED: i64 = (4 * 365 + 1) * 86_400;

/// The end of the year 9980. The cron library adds years to a time without a check, which panics after 9995.
const END: i64 = 252_770_371_200;

/// The most by which a timer may be early. More than a clock is set back by, and than two machines' clocks differ by.
const EARLY: u64 = 60_000;

/// A cron expression and a time zone.
#[derive(Debug)]
pub(crate) struct Schedule {
    crontab: Crontab,
    zone: TimeZone,
    /// Local times that come twice are due twice: the minutes or the hours begin with `*`, so the schedule is an interval.
    repeats: bool,
    /// Local times that are skipped are due when the clocks have gone forward: the hours do not begin with `*`.
    moves: bool,
    given: String,
}

impl Schedule {
    pub(crate) fn cron(expression: &str, zone: &str) -> Result<Self, InvalidTick> {
        let fields: Vec<_> = expression.split_whitespace().collect();
        let [minute, hour, _, _, _] = *fields else {
            return Err(invalid(expression, CRON));
        };
        let in_utc = format!("{} UTC", fields.join(" "));
        let crontab = cronexpr::parse_crontab(&in_utc).map_err(|_| invalid(expression, CRON))?;
        Ok(Self {
            crontab,
            zone: TimeZone::get(zone).map_err(|_| invalid(zone, ZONE))?,
            repeats: minute.starts_with('*') || hour.starts_with('*'),
            moves: !hour.starts_with('*'),
            given: expression.into(),
        })
    }

    pub(crate) fn daily(time: &str, zone: &str) -> Result<Self, InvalidTick> {
        let number = |text: &str, below: u8| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|n: &u8| digits && *n < below)
        };
        let parsed = time
            .split_once(':')
            .and_then(|(hour, minute)| number(hour, 24).zip(number(minute, 60)));
        let (hour, minute) = parsed.ok_or_else(|| invalid(time, CLOCK))?;
        Self::cron(&format!("{minute} {hour} * * *"), zone)
    }

    /// The due time of a timer that fires at `millis` after 1970: the last one, or the next one if it is nearer than a tenth of the
    /// distance between the two, and than a minute.
    pub(crate) fn of(&self, millis: u64) -> Result<u64, InvalidTick> {
        let never = || invalid(&self.given, NEVER);
        let now = i64::try_from(millis / 1_000).unwrap_or(i64::MAX);
        let due = (now < END).then(|| self.last(now).zip(self.next(now)));
        let (last, next) = due.flatten().ok_or_else(never)?;
        let in_millis = |seconds: i64| u64::try_from(seconds).map(|s| s * 1_000);
        let (last, next) = in_millis(last)
            .and_then(|last| Ok((last, in_millis(next)?)))
            .map_err(|_| never())?;
        let early = EARLY.min((next - last) / 10);
        Ok(if next - millis <= early { next } else { last })
    }

    /// The last due time that is not after `moment`. All times are in seconds since 1970; a local time is what a clock shows, read as UTC.
    fn last(&self, moment: i64) -> Option<i64> {
        let mut at = moment;
        while at > moment - SEARCHED {
            let (offset, local) = self.local(at)?;
            let change = self.change_before(at);
            let Some(change) = change else {
                return Some(self.last_local(local - SEARCHED, local)? - offset);
            };
            let before = self.offset(change - 1)?;
            let once = if self.repeats {
                offset
            } else {
                offset.max(before)
            };
            let from = (change + once).max(local - SEARCHED);
            if let Some(found) = self.last_local(from, local) {
                return Some(found - offset);
            }
            let skipped = || self.last_local(change + before, change + offset - 1);
            if self.moves && skipped().is_some() {
                return Some(change);
            }
            at = change - 1;
        }
        None
    }

    /// The first due time after `moment`.
    fn next(&self, moment: i64) -> Option<i64> {
        let mut at = moment;
        while at < moment + SEARCHED {
            let (offset, local) = self.local(at)?;
            let mut from = local;
            if let Some(change) = self.change_before(at).filter(|_| !self.repeats) {
                // The last repeated second.
                from = from.max(change + self.offset(change - 1)? - 1);
            }
            let found = self.next_local(from).map(|found| found - offset);
            let Some(change) = self.change_after(at) else {
                return found;
            };
            if found.is_some_and(|found| found < change) {
                return found;
            }
            if self.last(change) == Some(change) {
                return Some(change);
            }
            at = change;
        }
        None
    }

    /// The first local time of the schedule after `local`.
    fn next_local(&self, local: i64) -> Option<i64> {
        let from = MakeTimestamp::from_second(local).ok()?;
        Some(self.crontab.find_next(from).ok()?.timestamp().as_second())
    }

    /// The last local time of the schedule from `from` to `to`. The library searches forwards only, hence a bisection.
    fn last_local(&self, from: i64, to: i64) -> Option<i64> {
        let within = |found: &i64, to: i64| *found <= to;
        let mut last = self.next_local(from - 1).filter(|it| within(it, to))?;
        // The schedule has nothing after `end`.
        let mut end = to;
        while last < end {
            let middle = last + (end - last) / 2;
            match self.next_local(middle).filter(|it| within(it, end)) {
                Some(later) => last = later,
                None => end = middle,
            }
        }
        Some(last)
    }

    /// The distance from UTC at a moment, and the local time.
    fn local(&self, at: i64) -> Option<(i64, i64)> {
        let offset = self.offset(at)?;
        Some((offset, at + offset))
    }

    fn offset(&self, at: i64) -> Option<i64> {
        let at = Timestamp::from_second(at).ok()?;
        Some(self.zone.to_offset(at).seconds().into())
    }

    /// The last change of the clocks that is not after a moment.
    fn change_before(&self, at: i64) -> Option<i64> {
        let after = Timestamp::from_second(at + 1).ok()?;
        let change = self.zone.preceding(after).next()?;
        Some(change.timestamp().as_second())
    }

    /// The first change of the clocks after a moment.
    fn change_after(&self, at: i64) -> Option<i64> {
        let at = Timestamp::from_second(at).ok()?;
        let change = self.zone.following(at).next()?;
        Some(change.timestamp().as_second())
    }
}

#[cfg(test)]
mod tests;

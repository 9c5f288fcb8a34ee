//! Tests of due times: over both changes of the clocks, late and early timers, and random schedules.

use super::*;
use jiff::civil::DateTime;
use proptest::prelude::*;

const DAY: u64 = 86_400_000;

/// The moment of a local time that comes once.
fn at(zone: &str, local: &str) -> u64 {
    let local: DateTime = local.parse().unwrap();
    let moments = TimeZone::get(zone).unwrap().to_ambiguous_zoned(local);
    millis(moments.unambiguous().unwrap().timestamp())
}

fn utc(text: &str) -> u64 {
    millis(text.parse().unwrap())
}

fn millis(moment: Timestamp) -> u64 {
    moment.as_millisecond().try_into().unwrap()
}

fn shown(millis: u64) -> String {
    Timestamp::from_millisecond(millis.try_into().unwrap())
        .unwrap()
        .to_string()
}

/// The due time of a timer that fires at `millis`, as text.
fn due(schedule: &Schedule, millis: u64) -> String {
    shown(schedule.of(millis).unwrap())
}

fn cron(expression: &str, zone: &str) -> Schedule {
    Schedule::cron(expression, zone).unwrap()
}

/// A timer on two machines fires each day at `time`: on the first up to a second late, on the second up to 40 s.
fn each_day_has_its_tick(zone: &str, time: &str, days: [&str; 4]) {
    let schedule = Schedule::daily(time, zone).unwrap();
    for day in days {
        let due = at(zone, &format!("{day}T{time}"));
        for late in [0, 1, 999, 40_000] {
            let tick = schedule.of(due + late).unwrap();
            assert_eq!(
                shown(tick),
                shown(due),
                "{zone} {day} {time}, {late} ms late"
            );
        }
    }
}

#[test]
fn a_day_has_one_tick_when_the_clocks_go_forward() {
    let spring = ["2026-03-28", "2026-03-29", "2026-03-30", "2026-03-31"];
    each_day_has_its_tick("Europe/London", "00:05", spring);
    each_day_has_its_tick("Europe/Berlin", "01:30", spring);
    each_day_has_its_tick("Europe/Berlin", "03:00", spring);
    let march = ["2026-03-07", "2026-03-08", "2026-03-09", "2026-03-10"];
    each_day_has_its_tick("America/New_York", "19:30", march);
    let october = ["2026-10-03", "2026-10-04", "2026-10-05", "2026-10-06"];
    each_day_has_its_tick("Australia/Lord_Howe", "02:30", october);
}

#[test]
fn a_day_has_one_tick_when_the_clocks_go_back() {
    let autumn = ["2026-10-24", "2026-10-25", "2026-10-26", "2026-10-27"];
    each_day_has_its_tick("Europe/London", "00:05", autumn);
    each_day_has_its_tick("Europe/Berlin", "01:30", autumn);
    each_day_has_its_tick("Europe/Berlin", "03:00", autumn);
    let november = ["2026-10-31", "2026-11-01", "2026-11-02", "2026-11-03"];
    each_day_has_its_tick("America/New_York", "19:30", november);
    let april = ["2026-04-04", "2026-04-05", "2026-04-06", "2026-04-07"];
    each_day_has_its_tick("Australia/Lord_Howe", "02:30", april);
}

/// A late timer at the end of a UTC day.
#[test]
fn a_late_timer_has_the_tick_of_its_due_time() {
    let schedule = Schedule::daily("23:59", "UTC").unwrap();
    for late in [0, 40_000, 70_000, DAY - 60_001] {
        let tick = due(&schedule, utc("2026-05-01T23:59:00Z") + late);
        assert_eq!(tick, "2026-05-01T23:59:00Z", "{late} ms late");
    }
    assert_eq!(
        due(&schedule, utc("2026-05-02T23:59:00Z")),
        "2026-05-02T23:59:00Z"
    );
}

/// The clock of the machine is behind that of its timer.
#[test]
fn an_early_timer_has_the_tick_of_its_due_time() {
    for (expression, early) in [
        ("5 0 * * *", 60_000),
        ("0 * * * *", 60_000),
        ("*/5 * * * *", 30_000),
        ("* * * * *", 6_000),
    ] {
        let schedule = cron(expression, "UTC");
        let moment = utc("2026-05-02T09:03:07Z") / 1_000;
        let next = schedule.next(moment.try_into().unwrap()).unwrap();
        let next = u64::try_from(next).unwrap() * 1_000;
        assert_eq!(schedule.of(next - early).unwrap(), next, "{expression}");
        let last = schedule.of(next - early - 1).unwrap();
        assert!(last < next - early, "{expression}: {}", shown(last));
        assert_eq!(schedule.of(last).unwrap(), last);
    }
}

/// Cron runs a skipped job when the clocks have gone forward, other timers at the time by the old offset, others not at all.
#[test]
fn a_skipped_time_is_due_when_the_clocks_have_gone_forward() {
    let schedule = cron("30 2 * * *", "Europe/Berlin");
    for fires in [
        "2026-03-29T03:00:00",
        "2026-03-29T03:00:40",
        "2026-03-29T03:30:00",
    ] {
        let tick = due(&schedule, at("Europe/Berlin", fires));
        assert_eq!(tick, "2026-03-29T01:00:00Z", "{fires}");
    }
    assert_eq!(
        due(&schedule, at("Europe/Berlin", "2026-03-28T02:30:00")),
        "2026-03-28T01:30:00Z"
    );
    assert_eq!(
        due(&schedule, at("Europe/Berlin", "2026-03-30T02:30:00")),
        "2026-03-30T00:30:00Z"
    );
    let half = cron("15 2 * * *", "Australia/Lord_Howe");
    assert_eq!(
        due(&half, utc("2026-10-03T15:30:00Z")),
        "2026-10-03T15:30:00Z"
    );
    // An interval has no run in the gap, so none is moved.
    let hourly = cron("30 * * * *", "Europe/Berlin");
    assert_eq!(
        due(&hourly, at("Europe/Berlin", "2026-03-29T03:05:00")),
        "2026-03-29T00:30:00Z"
    );
}

#[test]
fn a_repeated_time_is_due_once_and_an_interval_twice() {
    let (first, second) = (utc("2026-10-25T00:30:00Z"), utc("2026-10-25T01:30:00Z"));
    let daily = cron("30 2 * * *", "Europe/Berlin");
    for fires in [first, first + 40_000, second, second + 40_000] {
        assert_eq!(due(&daily, fires), "2026-10-25T00:30:00Z");
    }
    assert_eq!(
        due(&daily, at("Europe/Berlin", "2026-10-26T02:30:00")),
        "2026-10-26T01:30:00Z"
    );
    for interval in ["*/15 * * * *", "30 * * * *", "*/30 2 * * *"] {
        let interval = cron(interval, "Europe/Berlin");
        assert_eq!(due(&interval, first), "2026-10-25T00:30:00Z");
        assert_eq!(due(&interval, second), "2026-10-25T01:30:00Z");
    }
    let half = cron("45 1 * * *", "Australia/Lord_Howe");
    for fires in ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"] {
        assert_eq!(due(&half, utc(fires)), "2026-04-04T14:45:00Z", "{fires}");
    }
}

#[test]
fn months_weekdays_and_leap_days_are_found() {
    for (expression, fires, tick) in [
        ("0 12 3 * *", "2026-03-03T12:00:05Z", "2026-03-03T12:00:00Z"),
        ("0 12 3 * *", "2026-04-03T11:00:00Z", "2026-03-03T12:00:00Z"),
        (
            "0 9 * * 1-5",
            "2026-05-04T09:00:01Z",
            "2026-05-04T09:00:00Z",
        ),
        (
            "0 9 * * MON-FRI",
            "2026-05-04T08:00:00Z",
            "2026-05-01T09:00:00Z",
        ),
        ("0 9 * * 7", "2026-05-03T09:30:00Z", "2026-05-03T09:00:00Z"),
        ("0 0 29 2 *", "2027-06-01T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("0 0 L * *", "2026-02-28T00:01:00Z", "2026-02-28T00:00:00Z"),
        (
            "  5  0\t* * * ",
            "2026-05-04T09:00:00Z",
            "2026-05-04T00:05:00Z",
        ),
    ] {
        assert_eq!(
            due(&cron(expression, "UTC"), utc(fires)),
            tick,
            "{expression}"
        );
    }
}

#[test]
fn a_schedule_that_is_none_is_refused_by_its_value_and_a_rule() {
    let refused = |refused: InvalidTick, given: &str, rule: &str| {
        let text = refused.to_string();
        assert!(
            text.starts_with(&format!("invalid tick {given:?}: ")),
            "{text}"
        );
        assert!(text.contains(rule) && !text.contains('\n'), "{text}");
    };
    for odd in [
        "",
        "daily",
        "@daily",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "5 0 * * * UTC",
        "a b c d e",
        "5 0 * * é",
    ] {
        refused(Schedule::cron(odd, "UTC").unwrap_err(), odd, "five fields");
    }
    for odd in [
        "",
        "Berlin",
        "Europe/Lodnon",
        "+01:00",
        "../../etc/passwd",
        "CET-1CEST",
        "é",
    ] {
        refused(
            Schedule::cron("5 0 * * *", odd).unwrap_err(),
            odd,
            "time zone database",
        );
    }
    for odd in [
        "", "5", "0:05", "00:05:00", "24:00", "00:60", "00:5", "-1:05", "+1:05", "0é:0",
    ] {
        refused(
            Schedule::daily(odd, "UTC").unwrap_err(),
            odd,
            "time of the day",
        );
    }
    let never = Schedule::cron("0 0 30 2 *", "UTC").unwrap();
    refused(
        never.of(utc("2026-05-04T09:00:00Z")).unwrap_err(),
        "0 0 30 2 *",
        "no due time",
    );
    let yearly = cron("0 0 1 1 *", "Europe/London");
    assert!(yearly.of(utc("1972-01-01T00:00:00Z")).is_ok());
    for far in ["1970-01-01T00:00:00Z", "9995-01-01T00:00:00Z"] {
        assert!(yearly.of(utc(far)).is_err(), "{far}");
    }
    assert!(yearly.of(u64::MAX).is_err());
}

proptest! {
    #[test]
    fn ticks_are_due_times_in_order(
        zone in prop::sample::select(vec!["UTC", "Europe/London", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "America/Sao_Paulo"]),
        expression in prop::sample::select(vec!["5 0 * * *", "30 1 * * *", "30 2 * * *", "0 */6 * * *", "*/15 * * * *", "15 2 * * 0", "0 3 1 * *", "59 23 31 12 *", "* * * * *"]),
        // From 1990 to 2040.
        one in 631_152_000_000..2_208_988_800_000_u64, step in 0..200_000_000_u64,
    ) {
        let schedule = cron(expression, zone);
        let (first, second) = (schedule.of(one).unwrap(), schedule.of(one + step).unwrap());
        prop_assert!(first <= second, "{} {}", shown(first), shown(second));
        prop_assert!(first <= one + EARLY);
        prop_assert_eq!(schedule.of(first).unwrap(), first, "a due time is its own tick");
        let seconds = i64::try_from(first / 1_000).unwrap();
        let next = schedule.next(seconds).unwrap();
        prop_assert!(next > seconds);
        prop_assert_eq!(schedule.last(next), Some(next));
        prop_assert_eq!(schedule.last(next - 1), Some(seconds), "nothing is between two due times");
    }

    #[test]
    fn a_daily_tick_comes_once_on_each_day(
        zone in prop::sample::select(vec!["Europe/London", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]),
        minute in 0..1_440_u32, from in 631_152_000_i64..2_208_988_800,
    ) {
        let schedule = cron(&format!("{} {} * * *", minute % 60, minute / 60), zone);
        let first = schedule.next(from).unwrap();
        let next = schedule.next(first).unwrap();
        prop_assert!((79_200..=93_600).contains(&(next - first)), "{} s apart", next - first);
    }
}

//! Jobs: a lock that is never waited for, and a command that runs once for each moment of a schedule.

use std::time::{Duration, SystemTime};

use stanchion::jobs::{Activity, Begun};
use stanchion::{Client, Job, Lease, Tick};
use tokio::time::Instant;

use super::RunArgs;
use super::acquire::{Again, Answer, may_pass, people, refused};
use super::report::Report;
use super::target::Held;
use crate::duration;
use crate::exit::{self, Failure, Library};
use crate::messages;

/// The least time for which the server remembers the moments that have been run.
const REMEMBER: Duration = Duration::from_secs(7 * 86_400);

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn parse_period(text: &str) -> Result<Duration, String> {
    if text.starts_with('@') || text.contains('*') || text.split_whitespace().count() == 5 {
        return Err("this is a cron expression, not a period: use --cron and --zone".into());
    }
    let unit = |word: &str| matches!(word, "month" | "months" | "M" | "year" | "years" | "y");
    if text
        .split(|letter: char| !letter.is_ascii_alphabetic())
        .any(unit)
    {
        return Err("months and years differ in length: use --cron '0 3 1 * *' and --zone".into());
    }
    let period = duration::parse(text)?;
    let range = Duration::from_secs(1)..=28 * DAY;
    match range.contains(&period) {
        true => Ok(period),
        false => Err("a period is 1s to 28d".into()),
    }
}

/// Returns the tick of --every, --at and --cron.
pub(super) fn tick(args: &RunArgs) -> Result<Option<Tick>, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::new(exit::USAGE, error);
    let tick = match (args.every, &args.at, &args.cron, &args.zone) {
        (Some(DAY), Some(time), _, Some(zone)) => Tick::daily(time, zone),
        (Some(_), Some(_), ..) => {
            let rule = "--at is for --every 1d; for other schedules use --cron and --zone";
            return Err(usage(&rule));
        }
        (.., Some(expression), Some(zone)) => Tick::cron(expression, zone),
        (.., Some(_)) => {
            let rule = "--zone is for --cron, and for --every 1d with --at; other periods are those of UTC";
            return Err(usage(&rule));
        }
        (Some(period), ..) => {
            return Tick::every(period)
                .map(Some)
                .map_err(|error| Failure::new(exit::CONFIG, error));
        }
        _ => return Ok(None),
    };
    tick.map(Some).map_err(|error| usage(&error))
}

fn job(args: &RunArgs, client: &Client) -> Result<Job, Failure> {
    let period = args.every.unwrap_or_default();
    let job = Job::new(client, &args.name).map_err(Library)?;
    Ok(job
        .lease(args.lease)
        .at_least(args.at_least.map(Lease::length).unwrap_or_default())
        .remember(REMEMBER.max(period * 3)))
}

/// Begins a run, or reports that another owner has the job. Retries an unreachable server for the time of `--wait`.
pub(super) async fn begin(
    args: &RunArgs,
    client: &Client,
    asked: Instant,
    report: &Report,
) -> Result<Answer, Failure> {
    let (name, job) = (&args.name, job(args, client)?);
    let mut again = Again::new();
    loop {
        let begun = match args.tick {
            Some(tick) => job.begin_tick(tick).await,
            None => job.begin().await,
        };
        let error = match begun {
            Ok(Begun::Running(guard)) => return Ok(Answer::Acquired(Held::Job(guard))),
            Ok(Begun::Skipped { holder, free_by }) => {
                let people = people(client, report).await;
                return Ok(Answer::Conflict(match (holder.activity, free_by) {
                    (Activity::Resting, Some(left)) => messages::job_rests(name, left),
                    _ => {
                        let who = people.who(&holder.owner);
                        messages::is(name, &messages::held_by(&who, free_by))
                    }
                }));
            }
            Ok(Begun::Already { tick, at }) => {
                return Ok(Answer::Ran(has_run(name, args.tick, tick, at)));
            }
            Ok(_) => return Ok(Answer::Conflict(messages::taken(name))),
            Err(error) => error,
        };
        match args.wait.left(asked) {
            Some(left) if may_pass(&error) => {
                again.wait(&error, left, report).await;
            }
            _ => return Err(refused(args, client, error).await),
        }
    }
}

fn has_run(name: &str, asked: Option<Tick>, last: Tick, at: SystemTime) -> String {
    let at = humantime::format_rfc3339_seconds(at);
    match asked {
        Some(tick) if tick != last => messages::job_has_run_later(name, &tick, &last, &at),
        _ => messages::job_has_run(name, &last, &at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_second_to_four_weeks() {
        assert_eq!(parse_period("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(parse_period("15"), Ok(Duration::from_secs(15)));
        assert_eq!(parse_period("4weeks"), Ok(28 * DAY));
        for odd in ["0s", "0", "999ms", "29days", "x", ""] {
            assert!(parse_period(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_month_and_a_cron_expression_are_refused_with_the_option_to_use() {
        for odd in [
            "1month",
            "3months",
            "1M",
            "1year",
            "2years 1day",
            "1y",
            "1d 1month",
            "*/5 * * * *",
            "0 3 1 1 1",
            "@daily",
        ] {
            let error = parse_period(odd).unwrap_err();
            assert!(
                error.contains("--cron") && error.contains("--zone"),
                "{odd}: {error}"
            );
        }
        assert_eq!(parse_period("1m"), Ok(Duration::from_secs(60)));
    }
}

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

pub(super) fn parse_period(text: &str) -> Result<Duration, String> {
    let period = duration::parse(text)?;
    // Ticks are counted from 1970, so a longer period has too few of them to be useful.
    let range = Duration::from_secs(1)..=Duration::from_secs(365 * 86_400);
    match range.contains(&period) {
        true => Ok(period),
        false => Err("a period is 1s to 365d".into()),
    }
}

fn job(args: &RunArgs, client: &Client) -> Result<Job, Failure> {
    let period = args.every.unwrap_or_default();
    Job::new(client, &args.name)
        .map_err(Library)?
        .lease(args.lease)
        .at_least(args.at_least.map(Lease::length).unwrap_or_default())
        .remember(REMEMBER.max(period * 3))
        .map_err(|error| Failure::new(exit::USAGE, error))
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
    fn a_period_is_a_second_to_a_year() {
        assert_eq!(parse_period("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(parse_period("15"), Ok(Duration::from_secs(15)));
        for odd in ["0s", "0", "999ms", "366days", "x", ""] {
            assert!(parse_period(odd).is_err(), "{odd}");
        }
    }
}

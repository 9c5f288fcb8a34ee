//! `stanchion limit`: takes permits of a rate limiter, and becomes a command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use serde::Serialize;
use stanchion::limiter::{Attempt, Grant, Limit, Limited, Usage};
use stanchion::{Client, LimitError, Quota, RateLimiter, TokenBucket};

use crate::connect::{SHUTDOWN, ServerArgs};
use crate::exit::{self, Failure, Library};
use crate::output;
use crate::run::acquire::{Wait, parse_wait};
use crate::run::launch::cannot_start;
use crate::wording::{in_json, printable};

/// Run a command at a limited rate, over all machines.
///
/// Waits until a permit counts, and then becomes COMMAND, or ends without one. Never more than the rate in any interval; or, with --burst,
/// the rate in the long run.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     granted; with a command its own code
  2     the command line is wrong
  69    the server cannot be reached
  75    limited: the permits cannot be had within --wait
  78    the server or the rules refuse (rights, a name that belongs to something else, …)
  126   the command cannot be executed
  127   the command was not found

Examples:
  stanchion limit partner-api --rate 10/s -- curl https://…    ten a second, from all machines
  stanchion limit mail --rate 1000/h --wait 0 || exit          only if there is room now
  stanchion limit thumbs --rate 600/m --burst 20 -- ./t.sh     evenly, after a pause 20 at once
  stanchion limit partner-api --rate 20/s --set                another rate from now on, for all
  stanchion status partner-api                                 what is free")]
pub(crate) struct LimitArgs {
    /// The limiter's name.
    name: String,
    /// Permits and interval, as 10/s or 1000/5m. The first caller sets the rate of a limiter for all, and a caller with another rate gets a
    /// warning. With --burst each caller brings its own.
    #[arg(long, value_name = "RATE")]
    rate: Quota,
    /// Set the rate of the limiter to --rate, for all, and take no permit. The permits in use count against the new rate.
    #[arg(long, conflicts_with_all = ["burst", "permits", "wait", "command"])]
    set: bool,
    /// Permits that a bucket holds, instead of a limit for every interval.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    burst: Option<u32>,
    /// Permits to take.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    permits: u32,
    /// The time to wait: a duration, `forever`, or 0 to ask once. If it is too short, that is told at once.
    #[arg(long, short, value_name = "DURATION", default_value = "forever", value_parser = parse_wait)]
    wait: Wait,
    /// Print one line of JSON, before the command begins.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// The command and its arguments; see `stanchion run`.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The JSON of an outcome.
#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'a str,
    granted: bool,
    limit: u32,
    remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
}

/// The JSON of `--set`.
#[derive(Debug, Serialize)]
struct Set<'a> {
    name: &'a str,
    rate: String,
    before: Option<String>,
}

async fn set_rate(client: &Client, args: &LimitArgs) -> Result<u8, Failure> {
    let api = RateLimiter::new(client, &args.name, args.rate).map_err(Library)?;
    let status = api.status().await.map_err(Library)?;
    // Scope and keep-alive time stay: another scope would forget the permits in use.
    let api = match status.quota {
        Some(_) => api.scope(status.scope).keep_alive(
            status
                .keep_alive
                .map(|time| time.max(3 * args.rate.interval())),
        ),
        None => api,
    };
    api.set_quota(args.rate, Usage::Keep)
        .await
        .map_err(Library)?;
    let (name, rate) = (in_json(api.name()), args.rate.to_string());
    let before = status.quota.map(|quota| quota.to_string());
    if args.json {
        output::json_line(&Set {
            name: &name,
            rate,
            before,
        })?;
    } else {
        let was = before.map_or_else(String::new, |before| format!("; it was {before}"));
        output::line(&format!("{}: {rate}{was}", printable(&name)))?;
    }
    Ok(exit::SUCCESS)
}

pub(crate) async fn limit(args: LimitArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    if args.set {
        return set_rate(&client, &args).await;
    }
    let outcome = ask(&client, &args).await?;
    let name = in_json(&client.name(&args.name).map_err(Library)?);
    // Shut down before the command starts, because the command may run for a long time.
    client.shutdown(SHUTDOWN).await;
    let limited = match outcome {
        Ok(grant) => {
            if args.json {
                output::json_line(&granted(&name, &grant))?;
            }
            return match args.command.split_first() {
                Some((command, words)) => Err(become_command(command, words, [])),
                None => Ok(exit::SUCCESS),
            };
        }
        Err(limited) => limited,
    };
    if args.json {
        output::json_line(&refused(&name, &limited))?;
        return Ok(exit::NOT_ACQUIRED);
    }
    Err(Failure::new(
        exit::NOT_ACQUIRED,
        format_args!("{name}: {limited}"),
    ))
}

async fn ask(client: &Client, args: &LimitArgs) -> Result<Result<Grant, Limited>, Failure> {
    let (name, permits) = (&args.name, args.permits);
    let asked: Result<Attempt, LimitError> = match args.burst {
        None => {
            let api = RateLimiter::new(client, name, args.rate).map_err(Library)?;
            match args.wait {
                Wait::No => api.try_acquire_many(permits).await.map_err(Into::into),
                Wait::AtMost(most) => api
                    .acquire_many_timeout(permits, most)
                    .await
                    .map(Attempt::Granted),
                Wait::Forever => api
                    .acquire_many(permits)
                    .await
                    .map(Attempt::Granted)
                    .map_err(Into::into),
            }
        }
        Some(burst) => {
            let limit = Limit::new(args.rate, burst);
            let limit = limit.map_err(|error| Failure::new(exit::USAGE, error))?;
            let bucket = TokenBucket::new(client, name, limit).map_err(Library)?;
            match args.wait {
                Wait::No => bucket.try_acquire_many(permits).await.map_err(Into::into),
                Wait::AtMost(most) => bucket
                    .acquire_many_timeout(permits, most)
                    .await
                    .map(Attempt::Granted),
                Wait::Forever => bucket
                    .acquire_many(permits)
                    .await
                    .map(Attempt::Granted)
                    .map_err(Into::into),
            }
        }
    };
    match asked {
        Ok(Attempt::Granted(grant)) => Ok(Ok(grant)),
        Ok(Attempt::Limited(limited))
        | Err(LimitError::TimedOut {
            limited: Some(limited),
            ..
        }) => Ok(Err(limited)),
        Err(error) => Err(Library(stanchion::AcquireError::from(error)).into()),
    }
}

/// Replaces this program by the command, with additional variables: signals, terminal and exit code are the command's own.
pub(crate) fn become_command<const N: usize>(
    command: &OsString,
    words: &[OsString],
    told: [(&str, String); N],
) -> Failure {
    cannot_start(
        command,
        &Command::new(command).args(words).envs(told).exec(),
    )
}

fn granted<'a>(name: &'a str, grant: &Grant) -> Line<'a> {
    Line {
        name,
        granted: true,
        limit: grant.limit(),
        remaining: grant.remaining(),
        retry_after_ms: None,
        reset_after_ms: output::whole_millis(grant.reset_after()),
    }
}

fn refused<'a>(name: &'a str, limited: &Limited) -> Line<'a> {
    Line {
        name,
        granted: false,
        limit: limited.limit,
        remaining: limited.remaining,
        retry_after_ms: Some(output::whole_millis(limited.retry_after)),
        reset_after_ms: output::whole_millis(limited.reset_after),
    }
}

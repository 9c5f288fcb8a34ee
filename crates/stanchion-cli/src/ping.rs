//! `stanchion ping`: checks whether the server answers.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::console::Console;
use stanchion::{Client, QueryError};
use tokio::time::Instant;

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::output;
use crate::wording::printable;

/// Check that the server answers and runs scripts.
///
/// Connects and logs in as `run` does, and sends requests and a script to each server that has keys (a cluster: to each master). For probes:
/// let a readiness probe use it if the service cannot work without locks, a liveness probe never.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     every server has answered, and runs scripts
  2     the command line is wrong
  69    a server cannot be reached, does not answer, or runs no scripts for now
  78    the server or the configuration refuses (a right, a certificate, …)

Examples:
  stanchion ping
  stanchion ping --json | jq .round_trip_ms")]
pub(crate) struct PingArgs {
    /// Print one line of JSON for each server.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct Pong<'a> {
    server: &'a str,
    version: &'a str,
    /// The median of a few.
    round_trip_ms: f64,
}

/// The number of requests from which the median is computed.
const TIMES: usize = 5;

pub(crate) async fn ping(args: PingArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let version = client.server().version.clone();
    let mut failed = None;
    for console in client.consoles() {
        match round_trip(&console).await {
            Ok(round_trip_ms) => tell(&args, console.server(), &version, round_trip_ms)?,
            // The others are asked, too.
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    // Without a known server, the loop above has reported no failure.
    if client.consoles().is_empty() {
        return Err(no_server(&client));
    }
    Ok(exit::SUCCESS)
}

async fn round_trip(console: &Console) -> Result<f64, Failure> {
    let trip = round_trips(console, TIMES).await.map_err(Library)?.median;
    runs_scripts(console).await?;
    Ok(milliseconds(trip))
}

fn tell(args: &PingArgs, server: &str, version: &str, round_trip_ms: f64) -> Result<(), Failure> {
    if args.json {
        output::json_line(&Pong {
            server,
            version,
            round_trip_ms,
        })?;
    } else {
        output::line(&printable(&format!(
            "{server}: {version}, {round_trip_ms:.2} ms"
        )))?;
    }
    Ok(())
}

fn no_server(client: &Client) -> Failure {
    Failure::new(
        exit::UNAVAILABLE,
        format_args!("no server of {client:?} owns any slot"),
    )
}

/// The times of requests that cost the server nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrips {
    pub(crate) median: Duration,
    pub(crate) longest: Duration,
}

/// Measures round trips.
pub(crate) async fn round_trips(console: &Console, times: usize) -> Result<RoundTrips, QueryError> {
    let mut trips = Vec::with_capacity(times);
    for _ in 0..times.max(1) {
        let sent = Instant::now();
        // Every client has the right to `TIME`, and not to `PING`.
        console.command(&["TIME"]).await?;
        trips.push(sent.elapsed());
    }
    trips.sort_unstable();
    Ok(RoundTrips {
        median: trips[trips.len() / 2],
        longest: trips[trips.len() - 1],
    })
}

/// Runs a script as locks do: a server that runs no scripts is useless for locks.
pub(crate) async fn runs_scripts(console: &Console) -> Result<(), Failure> {
    let server = console.server();
    let no_scripts = |code, why: &dyn std::fmt::Display| {
        Failure::new(
            code,
            format_args!("{server} answers, but runs no scripts: {why}"),
        )
    };
    // The time and some memory, as a script that acquires needs.
    let script = "redis.call('TIME') return #string.rep('x', 100000)";
    match console.command(&["EVAL", script, "0"]).await {
        Ok(reply) if reply.as_int() == Some(100_000) => Ok(()),
        Ok(reply) => Err(no_scripts(
            exit::CONFIG,
            &format_args!("it returned {reply:?}"),
        )),
        Err(error @ (QueryError::Unavailable { .. } | QueryError::Unanswered { .. })) => {
            Err(no_scripts(exit::UNAVAILABLE, &error))
        }
        Err(error) => Err(no_scripts(exit::CONFIG, &error)),
    }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}

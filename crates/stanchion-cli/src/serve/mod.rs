//! `stanchion serve`: the engine behind a socket, for the processes of one machine.

mod host;
mod place;
pub(crate) mod start;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::host::{Ended, Host};
use self::place::{Place, default_socket};
pub(crate) use self::place::{trusted_socket, url};
use crate::duration;
use crate::exit::{self, Failure};
use crate::output;

/// The default of `--idle`.
pub(crate) const IDLE: Duration = Duration::from_secs(10 * 60);

/// Serve locks to the processes of this machine, with nothing installed.
///
/// The engine of `memory://` URLs behind a socket: a Redis for locks, semaphores and latches, in memory. Without a URL
/// `stanchion run` finds it, and starts it when it is missing. It is for one machine, and keeps nothing on disk.
#[derive(Debug, Args)]
#[command(after_help = DETAILS)]
pub(crate) struct ServeArgs {
    /// Listen on this unix socket, which only this user can open. [default: /tmp/stanchion-<uid>/serve.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port", "bind"])]
    socket: Option<PathBuf>,
    /// Listen on this TCP port of the loopback address instead; 0 lets the system choose one. Every user of this machine can
    /// connect to it.
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The loopback address for --port.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), requires = "port")]
    bind: IpAddr,
    /// Stop after this time without a connection and without anything stored but fencing tokens; or `never`.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_idle)]
    idle: Idle,
    /// The memory for keys: a number of bytes, or of kb, mb, gb. Beyond it requests that need memory are refused (OOM), and what is
    /// held can still be released; 0: no limit.
    #[arg(long, value_name = "SIZE", default_value = "256mb", value_parser = parse_size)]
    maxmemory: u64,
    /// Print one line of JSON instead.
    #[arg(long)]
    json: bool,
}

/// The default of `--maxmemory`.
pub(crate) const MAX_MEMORY: u64 = 256 * 1024 * 1024;

/// Reads a size as Redis does: `1000`, `100mb`, `1gb`.
fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let end = lower
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(lower.len());
    let unit = match &lower[end..] {
        "" | "b" => Some(1),
        "kb" => Some(1024),
        "mb" => Some(1024 * 1024),
        "gb" => Some(1024 * 1024 * 1024),
        _ => None,
    };
    let size = lower[..end].parse::<u64>().ok().zip(unit);
    let bytes = size.and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| "a number, and b, kb, mb or gb, such as 256mb".into())
}

const DETAILS: &str = "\
Prints one line for the shell when it is ready:
  export STANCHION_URL=unix:///tmp/stanchion-1000/serve.sock  # pid 4711, …

Exit codes:
  0     stopped by INT or TERM, or idle; or another one serves this socket already
  2     the command line is wrong
  74    the system refused something, such as a port that is in use
  78    the rules refuse: an address that is not loopback, a directory or a file of
        another user, …

When it ends, also when it is killed, all locks are free: holders learn of it at
their next renewal. Fencing tokens go on growing, as they begin at the clock.

Examples:
  stanchion serve
  stanchion serve --port 6400 --idle never    for tests, in any language
  stanchion serve --socket /run/app/lock.sock";

/// `--idle`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Idle {
    After(Duration),
    Never,
}

fn parse_idle(text: &str) -> Result<Idle, String> {
    if text == "never" {
        return Ok(Idle::Never);
    }
    let after = duration::parse(text).map_err(|error| format!("{error}; or `never`"))?;
    Ok(Idle::After(after))
}

/// The line of JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    url: &'a str,
    /// The process id of the server.
    pid: Option<u32>,
    /// True if that is this process; false if the server was already running.
    started: bool,
}

pub(crate) async fn serve(args: ServeArgs) -> Result<u8, Failure> {
    let (host, url) = match args.port {
        Some(port) => Host::on_port(args.bind, port, args.idle).await?,
        None => {
            let socket = match &args.socket {
                Some(socket) => place::explicit(socket)?,
                None => default_socket()?,
            };
            let url = url(&socket)?;
            match Place::take_or_find(&socket).await? {
                Ok(place) => (Host::on_socket(place, args.idle)?, url),
                Err(taken) => {
                    tell(&args, &url, taken.pid, false)?;
                    return Ok(exit::SUCCESS);
                }
            }
        }
    };
    tell(&args, &url, Some(std::process::id()), true)?;
    match host.with_memory(args.maxmemory).serve().await? {
        Ended::Signal => {}
        Ended::Idle => tracing::info!("idle: stopped"),
    }
    Ok(exit::SUCCESS)
}

fn tell(args: &ServeArgs, url: &str, pid: Option<u32>, started: bool) -> Result<(), Failure> {
    if args.json {
        return Ok(output::json_line(&Line { url, pid, started })?);
    }
    let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
    let note = match (started, args.idle) {
        (false, _) => "was already there".to_owned(),
        (true, Idle::Never) => "until it is stopped".to_owned(),
        (true, Idle::After(idle)) => {
            format!("stops when idle for {}", humantime::format_duration(idle))
        }
    };
    // Quoted where the shell needs it: a path may hold anything.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:.-_%[]".contains(c);
    let quote = if url.chars().all(plain) { "" } else { "'" };
    let line = format!("export STANCHION_URL={quote}{url}{quote}  # pid {pid}, {note}");
    Ok(output::line(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(parse_size("256mb"), Ok(MAX_MEMORY));
        assert_eq!(parse_size("1000"), Ok(1000));
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("2GB"), Ok(2 << 30));
        for odd in ["", "mb", "-1", "1.5gb", "1tb", "99999999999999gb"] {
            assert!(parse_size(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn idle_is_a_duration_or_never() {
        assert!(matches!(parse_idle("never"), Ok(Idle::Never)));
        assert!(matches!(parse_idle("10m"), Ok(Idle::After(idle)) if idle == IDLE));
        assert!(parse_idle("soon").unwrap_err().contains("never"));
    }
}

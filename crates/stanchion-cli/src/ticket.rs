//! `stanchion hold` and `stanchion release`: a lock held between two commands, by a ticket.

use std::io::{self, Read as _};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::{AcquireOptions, AdoptError, Client, FairLock, Guard, HoldTicket, Lease, Lock};

use crate::connect::{SHUTDOWN, ServerArgs};
use crate::exit::{self, Failure, Library};
use crate::output;
use crate::run::signals::Signals;
use crate::run::{Wait, parse_lease, parse_wait};
use crate::wording::printable;

/// Take a lock and leave it held, for a time: prints its ticket, with which `stanchion release` frees it.
///
/// For work that no single process does: a deployment in steps, a maintenance window, a hand-over to a program of yours
/// (`Lock::adopt`). Nobody renews it: choose --for longer than the work, or use `stanchion run`, which watches its command.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     held; the ticket is on standard output
  69    the server cannot be reached
  75    somebody else held it for the whole of --wait
  78    the server or the rules refuse (rights, a name that belongs to something else, …)
  130   interrupted while waiting (128 + n for signal n): it has left the queue

Examples:
  ticket=$(stanchion hold deploy --for 30m)
  ./step-one && ./step-two
  stanchion release \"$ticket\"")]
pub(crate) struct HoldArgs {
    /// The lock's name.
    name: String,
    /// The time for which it is held, if it is not released before.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_lease)]
    lease: Lease,
    /// In line: in order of arrival, across machines.
    #[arg(long)]
    fair: bool,
    /// The time to wait for the lock: a duration, `forever`, or 0 to ask once.
    #[arg(long, short, value_name = "DURATION", default_value = "forever", value_parser = parse_wait)]
    wait: Wait,
    /// Print one line of JSON: ticket, fencing_token, lease_ms.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Free the lock of a ticket that `stanchion hold` or a program printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     released
  1     its hold had ended, and somebody else may hold: nothing was done
  69    the server cannot be reached; if the answer was lost, it may have been done
  78    this is no ticket, or the server refuses

Examples:
  stanchion release \"$ticket\"
  stanchion hold deploy --for 1h > ticket; stanchion release - < ticket")]
pub(crate) struct ReleaseArgs {
    /// The ticket; - reads it from standard input.
    ticket: String,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct HeldLine<'a> {
    ticket: &'a HoldTicket,
    fencing_token: Option<u64>,
    lease_ms: u64,
}

#[derive(Debug, Serialize)]
struct ReleasedLine<'a> {
    name: &'a str,
    released: bool,
}

pub(crate) async fn hold(args: HoldArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let client = tokio::select! {
        biased;
        signal = signals.next() => return Ok(exit::of_signal(signal.as_raw())),
        connected = args.server.connect() => connected?,
    };
    // Dropping the acquire gives up the place in the queue; the shutdown waits for that.
    let held = tokio::select! {
        biased;
        signal = signals.next() => Err(signal),
        held = take(&client, &args) => Ok(held),
    };
    let _ = client.shutdown(SHUTDOWN).await;
    let ticket = match held {
        Ok(held) => held?,
        Err(signal) => return Ok(exit::of_signal(signal.as_raw())),
    };
    if args.json {
        output::json_line(&HeldLine {
            fencing_token: ticket.fencing_token().map(|token| token.get()),
            lease_ms: ticket.lease().millis(),
            ticket: &ticket,
        })?;
    } else {
        output::line(&ticket.to_string())?;
    }
    Ok(exit::SUCCESS)
}

async fn take(client: &Client, args: &HoldArgs) -> Result<HoldTicket, Failure> {
    let options = AcquireOptions::new().on_queued({
        let name = printable(&args.name);
        move || eprintln!("stanchion: waiting for {name}")
    });
    let options = match args.wait {
        Wait::AtMost(most) => options.timeout(most),
        Wait::No => options.timeout(Duration::ZERO),
        Wait::Forever => options,
    };
    // Not for all of --for: if the program is killed before it has printed the ticket, the hold lasts for 30 s.
    if args.fair {
        let lock = FairLock::new(client, &args.name).map_err(Library)?;
        let guard = lock.acquire_with(options).await.map_err(Library)?;
        Ok(guard.detach_for(args.lease).await.map_err(Library)?)
    } else {
        let lock = Lock::new(client, &args.name).map_err(Library)?;
        let guard = lock.acquire_with(options).await.map_err(Library)?;
        Ok(guard.detach_for(args.lease).await.map_err(Library)?)
    }
}

pub(crate) async fn release(args: ReleaseArgs) -> Result<u8, Failure> {
    let mut text = args.ticket.clone();
    if text == "-" {
        text.clear();
        io::stdin().read_to_string(&mut text)?;
    }
    let ticket: HoldTicket = text.parse().map_err(Library)?;
    // The name of a ticket has its prefix.
    let prefix = args.server.prefix().as_bytes();
    let name = ticket.name().strip_prefix(prefix).ok_or_else(|| {
        let name = printable(ticket.name());
        Failure::new(
            exit::CONFIG,
            format_args!("{name} does not begin with --prefix"),
        )
    })?;
    let client = args.server.connect().await?;
    let released = free(&client, name, &ticket).await;
    let _ = client.shutdown(SHUTDOWN).await;
    let released = released?;
    let name = String::from_utf8_lossy(ticket.name());
    if args.json {
        output::json_line(&ReleasedLine {
            name: &name,
            released,
        })?;
    } else if released {
        output::line(&format!("{}: released", printable(ticket.name())))?;
    } else {
        output::line(&format!(
            "{}: this hold had ended",
            printable(ticket.name())
        ))?;
    }
    Ok(if released { exit::SUCCESS } else { exit::NO })
}

/// Returns whether it was released; it was not if its hold had ended.
async fn free(client: &Client, name: &[u8], ticket: &HoldTicket) -> Result<bool, Failure> {
    let adopted = match ticket.kind() {
        "fair_lock" => {
            let lock = FairLock::new(client, name).map_err(Library)?;
            lock.adopt(ticket).await.map(Guard::from)
        }
        _ => {
            let lock = Lock::new(client, name).map_err(Library)?;
            lock.adopt(ticket).await.map(Guard::from)
        }
    };
    match adopted {
        Ok(guard) => {
            guard.release().await.map_err(Library)?;
            Ok(true)
        }
        Err(AdoptError::Gone { .. }) => Ok(false),
        Err(error) => Err(Library(error).into()),
    }
}

//! `stanchion hold` and `stanchion release`: a lock held between two commands, by a ticket.

use std::io::{self, Read as _};
use std::pin::pin;

use clap::Args;
use serde::Serialize;
use stanchion::{
    AcquireError, AcquireOptions, AdoptError, Client, Error, FairLock, FairLockGuard, Guard,
    HoldTicket, Lease, Lock, LockGuard,
};
use tokio::time::Instant;

use crate::connect::{SHUTDOWN, ServerArgs};
use crate::exit::{self, Failure, Library};
use crate::look::{Seen, look};
use crate::messages;
use crate::output;
use crate::people::People;
use crate::run::acquire::PATIENCE;
use crate::run::signals::Signals;
use crate::run::{Wait, parse_lease, parse_wait};
use crate::wording::printable;

/// Take a lock, print its ticket, and leave it held for a time.
///
/// `stanchion release TICKET` frees it, from any machine.
///
/// For work that no single process does: a deployment in steps, a maintenance window, a hand-over to a program of yours
/// (`Lock::adopt`). Nobody renews it: choose --for longer than the work, or use `stanchion run`, which watches its command.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     held; the ticket is on standard output
  2     the command line is wrong
  69    the server cannot be reached
  75    another owner held it for the whole of --wait
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
    /// A fair lock: in order of arrival, across machines.
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

/// Free the lock of a ticket.
///
/// `stanchion hold` prints tickets, and programs make them (`LockGuard::detach_for`).
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     released
  1     its hold had ended, and another owner may hold: nothing was done
  2     this is no ticket
  69    the server cannot be reached; if the answer was lost, it may have been done
  78    the server or the rules refuse

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
    let asked = Instant::now();
    let acquired = {
        let mut acquired = pin!(acquire(client, args));
        tokio::select! {
            biased;
            acquired = &mut acquired => acquired,
            () = say_what_for(client, args) => acquired.await,
        }
    };
    // Not for all of --for: if the program is killed before it has printed the ticket, the hold lasts for 30 s.
    let taken = messages::taken(&printable(&args.name));
    match acquired {
        Ok(Some(Taken::Lock(guard))) => Ok(guard.detach_for(args.lease).await.map_err(Library)?),
        Ok(Some(Taken::Fair(guard))) => Ok(guard.detach_for(args.lease).await.map_err(Library)?),
        Ok(None) => Err(Failure::new(exit::NOT_ACQUIRED, taken)),
        Err(Error::Acquire(AcquireError::TimedOut { free_by, .. }))
            if client.is_connected() && (free_by.is_none() || args.fair) =>
        {
            let gave_up = messages::gave_up(&taken, asked.elapsed());
            Err(Failure::new(exit::NOT_ACQUIRED, gave_up))
        }
        Err(error) => Err(Library(error).into()),
    }
}

enum Taken {
    Lock(LockGuard),
    Fair(FairLockGuard),
}

/// Acquires within `--wait`. `None`: with `--wait 0`, another owner holds.
async fn acquire(client: &Client, args: &HoldArgs) -> Result<Option<Taken>, Error> {
    let options = match args.wait {
        Wait::AtMost(most) => AcquireOptions::new().timeout(most),
        Wait::No | Wait::Forever => AcquireOptions::new(),
    };
    Ok(match (args.fair, args.wait) {
        (true, Wait::No) => {
            let lock = FairLock::new(client, &args.name)?;
            lock.try_acquire_with(options).await?.map(Taken::Fair)
        }
        (true, _) => {
            let lock = FairLock::new(client, &args.name)?;
            Some(Taken::Fair(lock.acquire_with(options).await?))
        }
        (false, Wait::No) => {
            let lock = Lock::new(client, &args.name)?;
            lock.try_acquire_with(options).await?.map(Taken::Lock)
        }
        (false, _) => {
            let lock = Lock::new(client, &args.name)?;
            Some(Taken::Lock(lock.acquire_with(options).await?))
        }
    })
}

/// Shows the user what the command waits for.
async fn say_what_for(client: &Client, args: &HoldArgs) {
    tokio::time::sleep(PATIENCE).await;
    let people = People::ask(client).await.unwrap_or_default();
    let seen = look(client, args.name.as_bytes(), None).await;
    let holder = seen.as_ref().ok().and_then(Seen::holder);
    let who = holder.map(|it| messages::held_by(&people.who(&it.owner), it.remaining));
    let text = messages::waiting_for(&printable(&args.name), who.as_deref());
    eprintln!("stanchion: {text}");
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
            exit::USAGE,
            format_args!("the name in this ticket, {name}, does not begin with --prefix"),
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
        output::line(&messages::released(&printable(ticket.name())))?;
    } else {
        output::line(&messages::hold_had_ended(&printable(ticket.name())))?;
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

//! `stanchion force-release`: takes a lock away from its holder.

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::{Client, FairHolder, FairLock, Lock, RwLock, RwLockStatus};

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::look::{Kind, Seen, look};
use crate::output;
use crate::status::{HolderLine, lease_left};

/// Free a lock or read-write lock whoever holds it.
///
/// A fair lock goes to the first in line.
///
/// The holder learns of it at its next renewal, up to a third of its lease later. Until then it believes that it
/// holds, and so will the next one: only fencing tokens protect what they write to.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     released
  1     it was free
  2     not confirmed: nothing was done
  69    the server cannot be reached; if the answer was lost, it may have been done
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion force-release nightly-report
  stanchion force-release nightly-report --yes --json")]
pub(crate) struct ForceReleaseArgs {
    /// The lock's name.
    name: String,
    /// What it is; detected if not given. Semaphores and latches are not held as a whole, and are refused.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Do not ask. Needed where there is no terminal to ask on.
    #[arg(long, short)]
    yes: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct ReleaseLine<'a> {
    name: &'a str,
    released: bool,
    /// Who held it just before.
    holder: Option<HolderLine<'a>>,
}

pub(crate) async fn force_release(args: ForceReleaseArgs) -> Result<u8, Failure> {
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !args.yes && !can_ask {
        let message = "there is no terminal to ask on: confirm with --yes. Nothing was done";
        return Err(Failure::new(exit::USAGE, message));
    }
    let client = args.server.connect().await?;
    let name = client.name(&args.name).map_err(Library)?.to_string();
    let mut holders = holders(&client, &args).await?;
    while holders.is_held() && !args.yes {
        if !confirmed(&name, &holders)? {
            return Err(Failure::new(exit::USAGE, "not confirmed. Nothing was done"));
        }
        // The answer is about these holders only: they may have gone while the user was thinking.
        let now = self::holders(&client, &args).await?;
        let same = !now.is_held() || now.owners() == holders.owners();
        holders = now;
        if same {
            break;
        }
        eprintln!("The holder has changed meanwhile.");
    }
    let held = holders.is_held() || args.yes;
    let released = held && release(&client, &args.name, &holders).await?;
    if args.json {
        let holder = holders.one().map(HolderLine::new);
        output::json_line(&ReleaseLine {
            name: &name,
            released,
            holder,
        })?;
    } else if released {
        let owners = holders.owners();
        let from = match owners.as_slice() {
            [] => String::new(),
            [owner] => format!(" from {owner}"),
            many => format!(" from {} holders", many.len()),
        };
        output::line(&format!("{name}: released{from}"))?;
        if let Some(left) = holders.remaining() {
            eprintln!("{}", hears_of_it(left));
        }
    } else {
        output::line(&format!("{name}: was free"))?;
    }
    Ok(if released { exit::SUCCESS } else { exit::NO })
}

/// Who holds, and so which kind it is.
enum Holders {
    Lock(Option<FairHolder>),
    Fair(Option<FairHolder>),
    Rwlock(RwLockStatus),
}

async fn holders(client: &Client, args: &ForceReleaseArgs) -> Result<Holders, Failure> {
    match look(client, &args.name, args.kind).await? {
        Seen::Lock(status) => Ok(Holders::Lock(status.holder)),
        Seen::Fair(status) => Ok(Holders::Fair(status.holder)),
        Seen::Rwlock(status) => Ok(Holders::Rwlock(status)),
        Seen::Semaphore(_) | Seen::Leased(_) | Seen::Latch(_) | Seen::Number(_) => {
            let message = "a semaphore or a latch is not held as a whole. Nothing was done";
            Err(Failure::new(exit::CONFIG, message))
        }
    }
}

async fn release(client: &Client, name: &str, holders: &Holders) -> Result<bool, Failure> {
    Ok(match holders {
        Holders::Lock(_) => {
            let lock = Lock::new(client, name).map_err(Library)?;
            lock.danger().force_release().await.map_err(Library)?
        }
        Holders::Fair(_) => {
            let lock = FairLock::new(client, name).map_err(Library)?;
            lock.danger().force_release().await.map_err(Library)?
        }
        Holders::Rwlock(_) => {
            let lock = RwLock::new(client, name).map_err(Library)?;
            lock.danger().force_release().await.map_err(Library)?
        }
    })
}

impl Holders {
    fn one(&self) -> Option<&FairHolder> {
        match self {
            Self::Lock(holder) | Self::Fair(holder) => holder.as_ref(),
            Self::Rwlock(_) => None,
        }
    }

    /// What was left of the lease.
    fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Lock(holder) | Self::Fair(holder) => holder.as_ref()?.remaining,
            Self::Rwlock(status) if status.is_held() => status.remaining,
            Self::Rwlock(_) => None,
        }
    }

    fn is_held(&self) -> bool {
        match self {
            Self::Lock(holder) | Self::Fair(holder) => holder.is_some(),
            Self::Rwlock(status) => status.is_held(),
        }
    }

    fn owners(&self) -> Vec<&str> {
        match self {
            Self::Lock(holder) | Self::Fair(holder) => {
                holder.iter().map(|holder| holder.owner.as_str()).collect()
            }
            Self::Rwlock(status) => {
                let all = status.writer.iter().chain(&status.readers);
                let mut owners: Vec<_> = all.map(|holder| holder.owner.as_str()).collect();
                owners.sort_unstable();
                owners
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Lock(holder) | Self::Fair(holder) => {
                holder.as_ref().map_or_else(String::new, |holder| {
                    format!("{} ({})", holder.owner, lease_left(holder.remaining))
                })
            }
            Self::Rwlock(status) => match &status.writer {
                Some(writer) => format!(
                    "the writer {} ({})",
                    writer.owner,
                    lease_left(status.remaining)
                ),
                None => format!(
                    "{} readers ({})",
                    status.reader_count,
                    lease_left(status.remaining)
                ),
            },
        }
    }
}

/// A lease is renewed when a third of it has passed, so what is left of it bounds the time to the next renewal.
fn hears_of_it(left: Duration) -> String {
    let (soon, late) = (output::rough(left / 3), output::rough(left));
    format!(
        "Nobody has told the holder: if it is alive, it finds out at its next renewal, within {soon}, or if that fails \
         when its lease has ended, within {late}. Until then it works on, next to whoever holds now."
    )
}

fn confirmed(name: &str, holders: &Holders) -> io::Result<bool> {
    eprintln!("{name} is held by {}.", holders.describe());
    let soon = holders.remaining().map_or_else(String::new, |left| {
        format!(" (within {})", output::rough(left / 3))
    });
    eprintln!("If that holder is alive, it works on until its next renewal{soon}, next to whoever");
    eprintln!("holds then. Only what checks fencing tokens is protected from the two.");
    eprint!("Release {name}? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

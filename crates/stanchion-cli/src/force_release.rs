//! `stanchion force-release`: takes a lock away from its holder.

use std::io::{self, IsTerminal, Write as _};

use clap::Args;
use serde::Serialize;
use stanchion::{Client, Election, FairLock, Lock, RwLock};

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::look::{Kind, Seen, look};
use crate::messages;
use crate::output;
use crate::people::People;
use crate::status::HolderLine;
use crate::wording::{in_json, printable};

/// Free a lock or read-write lock, no matter who holds it.
///
/// A fair lock goes to the first in line.
///
/// The holder is told and stops at once, if it can be reached; otherwise it learns of it at its next renewal, up to a
/// third of its lease later. Until then it believes that it holds, and so does the next one: only fencing tokens
/// protect the data that both write.
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
    /// The lock's kind; detected if not given. Semaphores and latches are not held as a whole, and are refused.
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
    /// The holder just before the release.
    holder: Option<HolderLine<'a>>,
}

pub(crate) async fn force_release(args: ForceReleaseArgs) -> Result<u8, Failure> {
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !args.yes && !can_ask {
        return Err(Failure::new(exit::USAGE, messages::no_terminal()));
    }
    let client = args.server.connect().await?;
    let name = in_json(&client.name(&args.name).map_err(Library)?);
    let given = args.name.as_bytes();
    let mut holders = holders(&client, given, args.kind).await?;
    let mut people = People::ask(&client).await.unwrap_or_default();
    while holders.is_held() && !args.yes {
        if !confirmed(&name, &holders, &people)? {
            return Err(Failure::new(exit::USAGE, "not confirmed. Nothing was done"));
        }
        // The user has confirmed only for these holders, and they may have changed since then.
        let now = self::holders(&client, given, args.kind).await?;
        let same = !now.is_held() || now.owners() == holders.owners();
        holders = now;
        if same {
            break;
        }
        people = People::ask(&client).await.unwrap_or_default();
        eprintln!("{}", messages::holder_changed());
    }
    let held = holders.is_held() || args.yes;
    let released = held && release(&client, given, &holders).await?;
    if args.json {
        let holder = match holders.facts() {
            Some(facts) => facts.holders.first().map(HolderLine::of),
            None => holders.holder().map(HolderLine::new),
        };
        output::json_line(&ReleaseLine {
            name: &name,
            released,
            holder,
        })?;
    } else if released {
        match &*describe(&holders, &people) {
            "" => output::line(&messages::released(&name))?,
            who => output::line(&messages::released_from(&name, who))?,
        }
        if let Some(left) = holders.remaining() {
            eprintln!("{}", messages::holder_learns(left));
        }
    } else {
        output::line(&messages::was_free(&name))?;
    }
    Ok(if released { exit::SUCCESS } else { exit::NO })
}

/// Outcome of a release that was confirmed for certain holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    Released,
    /// The lock had no holder.
    Free,
    /// Other owners hold it by now. Nothing was done.
    Changed,
}

/// Releases a name, if its holders are still the ones that the user has confirmed. They may change between that read
/// and the release.
pub(crate) async fn release_from(
    client: &Client,
    name: &[u8],
    kind: Option<Kind>,
    confirmed: &[String],
) -> Result<Forced, Failure> {
    let now = holders(client, name, kind).await?;
    if !now.is_held() {
        return Ok(Forced::Free);
    }
    if now.owners() != confirmed {
        return Ok(Forced::Changed);
    }
    Ok(match release(client, name, &now).await? {
        true => Forced::Released,
        false => Forced::Free,
    })
}

/// Reads the status of a name that can be held as a whole.
async fn holders(client: &Client, name: &[u8], kind: Option<Kind>) -> Result<Seen, Failure> {
    match look(client, name, kind).await? {
        Seen::Semaphore(_) | Seen::Leased(_) | Seen::Latch(_) | Seen::Number(_) => {
            let message = "a semaphore or a latch is not held as a whole. Nothing was done";
            Err(Failure::new(exit::CONFIG, message))
        }
        Seen::Told(facts) if facts.kind.is_shared_out() => {
            let message = "a limiter is not held as a whole. Nothing was done";
            Err(Failure::new(exit::CONFIG, message))
        }
        seen => Ok(seen),
    }
}

async fn release(client: &Client, name: &[u8], holders: &Seen) -> Result<bool, Failure> {
    Ok(match holders {
        Seen::Fair(_) => {
            let lock = FairLock::new(client, name).map_err(Library)?;
            lock.danger().force_release().await.map_err(Library)?
        }
        Seen::Rwlock(_) => {
            let lock = RwLock::new(client, name).map_err(Library)?;
            lock.danger().force_release().await.map_err(Library)?
        }
        Seen::Told(facts) if facts.kind == Kind::Election => {
            let election = Election::new(client, name).map_err(Library)?;
            election.danger().depose().await.map_err(Library)?
        }
        // Only locks reach this arm: see `holders`.
        _ => {
            let lock = Lock::new(client, name).map_err(Library)?;
            lock.danger().force_release().await.map_err(Library)?
        }
    })
}

/// The holders, for the question and the outcome.
fn describe(holders: &Seen, people: &People) -> String {
    match holders {
        Seen::Rwlock(status) => match (&status.writer, &*status.readers) {
            (Some(writer), _) => format!("the writer {}", people.who(&writer.owner)),
            (None, [reader]) => format!("the reader {}", people.who(&reader.owner)),
            (None, _) => format!("{} readers", status.reader_count),
        },
        _ => {
            let owners = holders.owners();
            let all: Vec<String> = owners.iter().map(|owner| people.who(owner)).collect();
            all.join(" and ")
        }
    }
}

fn confirmed(name: &str, holders: &Seen, people: &People) -> io::Result<bool> {
    let left = holders.remaining();
    let who = format!(
        "{} ({})",
        describe(holders, people),
        messages::lease_left(left)
    );
    eprintln!("{}", messages::is_held_by(name, &who));
    eprintln!("{}", messages::force_means(left));
    eprint!("Release {}? [y/N] ", printable(name));
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

//! `stanchion force-release`: takes a lock away from its holder.

use std::io::{self, IsTerminal, Write as _};

use clap::Args;
use serde::Serialize;
use stanchion::{Holder, Lock};

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::output;
use crate::status::{HolderLine, lease_left};

/// Free a lock whoever holds it.
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
    let lock = Lock::new(&client, &args.name).map_err(Library)?;
    let name = lock.name().to_string();
    let mut holder = lock.status().await.map_err(Library)?.holder;
    while let Some(asked_about) = holder.as_ref().filter(|_| !args.yes) {
        if !confirmed(&name, asked_about)? {
            return Err(Failure::new(exit::USAGE, "not confirmed. Nothing was done"));
        }
        // The answer is about this holder only: it may have gone while the user was thinking.
        let now = lock.status().await.map_err(Library)?.holder;
        let same = now
            .as_ref()
            .is_none_or(|now| now.owner == asked_about.owner);
        holder = now;
        if same {
            break;
        }
        eprintln!("The holder has changed meanwhile.");
    }
    let held = holder.is_some() || args.yes;
    let released = held && lock.danger().force_release().await.map_err(Library)?;
    if args.json {
        let holder = holder.as_ref().map(HolderLine::new);
        output::json_line(&ReleaseLine {
            name: &name,
            released,
            holder,
        })?;
    } else if released {
        let from = holder.map_or_else(String::new, |holder| format!(" from {}", holder.owner));
        output::line(&format!("{name}: released{from}"))?;
    } else {
        output::line(&format!("{name}: was free"))?;
    }
    Ok(if released { exit::SUCCESS } else { exit::NO })
}

fn confirmed(name: &str, holder: &Holder) -> io::Result<bool> {
    eprintln!(
        "{name} is held by {} ({}).",
        holder.owner,
        lease_left(holder)
    );
    eprintln!("If that holder is alive, it works on until its next renewal, next to whoever");
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

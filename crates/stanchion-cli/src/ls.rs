//! `stanchion ls`: the names there are, who holds them, and how many wait.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::Client;

use crate::connect::ServerArgs;
use crate::entry::{self, Entry};
use crate::exit::{self, Failure, Library};
use crate::glob;
use crate::output;
use crate::people::People;
use crate::scan::{self, Limits};
use crate::table;

/// List names: their kind, who holds them, how long, and how many wait.
///
/// Looks at every key of the server (SCAN), in small steps with rests between them, so that other users do not notice. Ctrl-C ends
/// that early and shows what was found.
///
/// Semaphores that nobody holds and latches are plain numbers on the server, and are not listed unless more is known of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     listed, also if there is nothing
  69    the server cannot be reached
  78    the server or the rules refuse (a right is missing, …)

Examples:
  stanchion ls
  stanchion ls 'billing:*'
  stanchion ls --json | jq 'select(.waiting > 10) .name'")]
pub(crate) struct LsArgs {
    /// Which names: * for anything, ? for one character, [a-z]. With --prefix, what follows the prefix.
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,
    #[command(flatten)]
    scan: ScanArgs,
    /// Also list names that nobody holds and nobody waits for, where the server has traces of them.
    #[arg(long, short)]
    all: bool,
    /// Print a line of JSON for each name, and one at the end that tells whether all keys were looked at.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The limits of a scan, for every command that makes one.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ScanArgs {
    /// Stop scanning after this time.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    budget: Duration,
    /// The share of the server's time that a scan may take, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    duty: u32,
}

impl ScanArgs {
    pub(crate) const fn limits(self) -> Limits {
        Limits {
            budget: self.budget,
            duty: self.duty,
        }
    }
}

/// The last line of the JSON.
#[derive(Debug, Serialize)]
struct Summary {
    names: usize,
    keys_seen: u64,
    complete: bool,
}

pub(crate) async fn ls(args: LsArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let prefix = args.server.prefix();
    let people = People::ask(&client).await.map_err(Library)?;
    let found = scan::scan(&client, args.scan.limits()).await?;
    let pattern = glob::literal(prefix) + &args.pattern;
    let mut entries = entries_of(&client, &found, &pattern, prefix, &people).await?;
    entries.retain(|entry| args.all || !entry.is_idle());
    show(&entries, found.keys, found.complete, args.json)?;
    Ok(exit::SUCCESS)
}

/// Makes entries of what a scan has found, of the names that match.
pub(crate) async fn entries_of(
    client: &Client,
    found: &scan::Found,
    pattern: &str,
    prefix: &str,
    people: &People,
) -> Result<Vec<Entry>, Failure> {
    let names = found.names.iter();
    let matching = names.filter(|(name, _)| glob::matches(pattern.as_bytes(), name));
    let mut entries: Vec<Entry> = matching
        .map(|(name, traces)| Entry::of_traces(name, traces, people))
        .collect();
    for entry in &mut entries {
        entry.ask_permits(client, prefix).await?;
    }
    entry::add_subscribers(client, &mut entries).await;
    Ok(entries)
}

fn show(entries: &[Entry], keys: u64, complete: bool, json: bool) -> Result<(), Failure> {
    if json {
        for entry in entries {
            output::json_line(entry)?;
        }
        let names = entries.len();
        output::json_line(&Summary {
            names,
            keys_seen: keys,
            complete,
        })?;
        return Ok(());
    }
    if entries.is_empty() {
        eprintln!("No names among {keys} keys.");
    } else {
        let colour = output::may_colour(&std::io::stdout());
        let lines = entry::table(entries).lines(table::width_of_output(), colour);
        output::line(&lines.join("\n"))?;
    }
    if !complete {
        eprintln!("Stopped after {keys} keys: there may be more. --budget sets the time.");
    }
    Ok(())
}

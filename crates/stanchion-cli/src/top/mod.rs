//! `stanchion top`: `ls`, live, with keys to look closer and to help.

mod live;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::connect::ServerArgs;
use crate::entry::Entry;
use crate::exit::{self, Failure, Library};
use crate::ls::Names;
use crate::people::People;
use crate::watch::LEAST_PAUSE;
use crate::{glob, ls, output};

/// Show names live, with keys to inspect one or to take it from a holder that hangs.
///
/// Shows what `ls` shows without --scan, and refreshes it every second. Without a terminal it prints what `ls` prints, once.
///
/// Keys: arrows, j and k select, Enter inspects, f force-releases after a question, s sorts (waiting, longest wait, hold age, name),
/// / filters, ? lists all keys, q ends.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     ended by a key, a signal or --count
  2     the command line is wrong
  69    the server cannot be reached, when it starts; later it is waited for
  75    with --once: partial, a server of the cluster does not answer
  78    the server or the rules refuse (a right is missing, …)

Examples:
  stanchion top
  stanchion top 'billing:*' --every 5s
  stanchion top --json --count 60 | jq -c '[.at_ms, .waiting]'")]
pub(crate) struct TopArgs {
    /// Names to show: * for anything, ? for one character, [a-z]. With --prefix, what follows the prefix.
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,
    /// The pause between two refreshes. A refresh costs a request for each process that publishes a record, and one or two for each name.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::duration::at_least(LEAST_PAUSE))]
    every: Duration,
    /// Print the list once.
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for each refresh, until Ctrl-C.
    #[arg(long)]
    json: bool,
    /// With --json, end after this many refreshes.
    #[arg(long, value_name = "N", requires = "json", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

impl TopArgs {
    /// Returns whether to show the live display.
    pub(crate) fn is_live(&self) -> bool {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        terminal && !dumb && !self.once && !self.json
    }
}

/// Server to look at, and names to look for.
#[derive(Clone, Debug)]
struct Looker {
    client: Client,
    pattern: String,
    prefix: String,
}

impl Looker {
    async fn look(&self) -> Result<Names, Failure> {
        let people = People::ask(&self.client).await.map_err(Library)?;
        ls::told_of(&self.client, &self.pattern, &self.prefix, people).await
    }

    /// The name as the user gives it, without the prefix.
    fn given<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        key.strip_prefix(self.prefix.as_bytes()).unwrap_or(key)
    }
}

/// The sums of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    names: usize,
    holders: u64,
    waiting: u64,
}

impl Sums {
    fn of(entries: &[Entry]) -> Self {
        Self {
            names: entries.len(),
            holders: entries.iter().map(|entry| entry.holders).sum(),
            waiting: entries.iter().filter_map(|entry| entry.waiting).sum(),
        }
    }
}

/// A poll, as JSON.
#[derive(Debug, Serialize)]
struct LookLine<'a> {
    /// Since the first poll began.
    at_ms: u64,
    names: usize,
    holders: u64,
    waiting: u64,
    entries: &'a [Entry],
    /// The servers of a cluster that did not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreached: Vec<&'a str>,
    /// Reason that there is nothing to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable: Option<String>,
}

pub(crate) async fn top(args: TopArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let prefix = args.server.prefix().to_owned();
    let looker = Looker {
        client,
        pattern: glob::literal(&prefix) + &args.pattern,
        prefix,
    };
    // Before the display starts, so that the error of a server that refuses is shown as by every other command.
    let first = looker.look().await?;
    if !args.is_live() && !args.json {
        return ls::show_told(&first, false);
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shown = async {
        if args.json {
            lines(&args, &looker, first).await
        } else {
            Box::pin(live::show(&looker, args.every, first)).await
        }
    };
    // Ctrl-C is a key of the display; `kill -INT` comes here. The terminal is restored as `shown` is dropped.
    tokio::select! {
        ended = shown => ended?,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(exit::SUCCESS)
}

async fn lines(args: &TopArgs, looker: &Looker, first: Names) -> Result<(), Failure> {
    let most = if args.once { Some(1) } else { args.count };
    let started = Instant::now();
    let mut looked: Result<_, Failure> = Ok(first);
    for count in 1.. {
        let (Names { entries, gaps }, unreachable) = match looked {
            Ok(names) => (names, None),
            Err(failure) if failure.code() == exit::UNAVAILABLE => {
                (Names::default(), Some(failure.to_string()))
            }
            Err(failure) => return Err(failure),
        };
        let sums = Sums::of(&entries);
        output::json_line(&LookLine {
            at_ms: output::whole_millis(started.elapsed()),
            names: sums.names,
            holders: sums.holders,
            waiting: sums.waiting,
            entries: &entries,
            unreached: gaps.servers(),
            unreachable,
        })?;
        if most == Some(count) {
            break;
        }
        tokio::time::sleep(args.every).await;
        looked = looker.look().await;
    }
    Ok(())
}

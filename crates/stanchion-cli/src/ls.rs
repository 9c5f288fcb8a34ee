//! `stanchion ls`: lists the existing names, their holders, and the number of waiters.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::Client;
use stanchion::survey::Survey;

use crate::beside;
use crate::connect::ServerArgs;
use crate::entry::{self, Entry};
use crate::exit::{self, Failure, Library};
use crate::gaps::Gaps;
use crate::glob;
use crate::look::{Kind, ask_all, is_wait, look_by_itself};
use crate::messages;
use crate::output;
use crate::people::People;
use crate::scan::{self, Limits, Progress};
use crate::table;

/// List names: their kind, holder, and number of waiters.
///
/// Lists the names that clients publish: names that have been held for 5 s or waited for for a second. With --scan it lists every
/// key of the server instead, reads those whose names match, and also finds Redisson's names, names that no client publishes, and what is left of dead ones. A scan
/// goes in small steps with pauses between them, so that other users do not notice. Ctrl-C ends it early and shows the names found.
///
/// Semaphores that nobody holds and latches are plain numbers on the server, and are not listed unless more is known of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     listed, also if there is nothing
  2     the command line is wrong
  69    the server cannot be reached
  75    partial: a server of the cluster does not answer, the names of the others are listed
  78    the server or the rules refuse (a right is missing, …)

Examples:
  stanchion ls
  stanchion ls --scan 'billing:*'
  stanchion ls --json | jq 'select(.waiting > 10) .name'")]
pub(crate) struct LsArgs {
    /// Names to show: * for anything, ? for one character, [a-z]. With --prefix, what follows the prefix.
    #[arg(default_value = "*", hide_default_value = true)]
    pattern: String,
    /// Search every key of the server.
    #[arg(long)]
    scan: bool,
    #[command(flatten)]
    limits: ScanArgs,
    /// With --scan, also list names that nobody holds and nobody waits for, where the server has traces of them.
    #[arg(long, short)]
    all: bool,
    /// Print a line of JSON for each name, and one at the end with their number; of a scan also whether all keys were looked at.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The limits of a scan, for every command that makes one.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ScanArgs {
    /// Stop scanning after this time.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::duration::parse)]
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
struct Summary<'a> {
    names: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys_seen: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
    /// The servers that did not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreached: Vec<&'a str>,
}

pub(crate) async fn ls(args: LsArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let prefix = args.server.prefix();
    let people = People::ask(&client).await.map_err(Library)?;
    let pattern = glob::literal(prefix) + &args.pattern;
    if !args.scan {
        return show_told(
            &told_of(&client, &pattern, prefix, people).await?,
            args.json,
        );
    }
    // Names are selected before their keys are read.
    let wanted = |key: &[u8]| {
        let matches = |name: &[u8]| glob::matches(pattern.as_bytes(), name);
        matches(key) || beside::owner_of(key).is_some_and(|its| matches(&its.name))
    };
    let found = scan::scan(&client, args.limits.limits(), &mut Progress::new(), wanted).await?;
    let mut names = entries_of(&client, &found, &pattern, prefix, &people).await?;
    names.entries.retain(|entry| args.all || !entry.is_idle());
    show(&names, Some((found.keys, found.complete)), args.json)
}

/// Names, and the servers whose names may be missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) entries: Vec<Entry>,
    pub(crate) gaps: Gaps,
}

/// Of two kinds that processes publish for one name, the more exact one: a waiter for the lock of a job's name does not know of the job.
fn more_of(one: Option<Kind>, other: Option<Kind>) -> Option<Kind> {
    match (one, other) {
        (Some(Kind::Lock), Some(kind)) if kind.is_a_lock() => Some(kind),
        _ => one.or(other),
    }
}

/// Facts known of a name before its status is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) kind: Option<Kind>,
    waiting: u64,
    pub(crate) longest: Option<Duration>,
    /// The published owners.
    owners: Vec<String>,
}

/// Makes entries from the names that processes have published, with the present status of each name.
pub(crate) async fn told_of(
    client: &Client,
    pattern: &str,
    prefix: &str,
    people: People,
) -> Result<Names, Failure> {
    let Some(told) = &people.survey else {
        return Err(Failure::new(
            exit::CONFIG,
            messages::may_not_read_published(),
        ));
    };
    let heard = heard_of(told, pattern);
    look_at(client, heard, prefix, people).await
}

/// Collects the names that processes have published.
pub(crate) fn heard_of(told: &Survey, pattern: &str) -> BTreeMap<Vec<u8>, Heard> {
    let mut names: BTreeMap<Vec<u8>, Heard> = BTreeMap::new();
    for it in &told.clients {
        let holds = it.holds.iter();
        let holds = holds.map(|hold| (&hold.name, &hold.kind, None, Some(&hold.owner)));
        let waits = it.waits.iter();
        let waits = waits.map(|wait| (&wait.name, &wait.kind, Some(wait.waiting), None));
        for (name, kind, waited, owner) in holds.chain(waits) {
            let name = name.as_bytes();
            if glob::matches(pattern.as_bytes(), name) {
                let heard = names.entry(name.to_vec()).or_default();
                heard.kind = more_of(heard.kind, Kind::of_word(kind));
                heard.owners.extend(owner.cloned());
                if is_wait(kind) {
                    heard.waiting += u64::from(waited.is_some());
                    heard.longest = heard.longest.max(waited);
                }
            }
        }
    }
    names
}

/// Makes entries of names that begin with the prefix, with the present status of each. If the server of a name does not answer, the entry
/// has what processes have published.
async fn look_at(
    client: &Client,
    names: BTreeMap<Vec<u8>, Heard>,
    prefix: &str,
    mut people: People,
) -> Result<Names, Failure> {
    let names = names.into_iter().filter_map(|(name, heard)| {
        let given = name.strip_prefix(prefix.as_bytes())?.to_vec();
        Some((name, given, heard))
    });
    let (dark, names): (Vec<_>, Vec<_>) =
        names.partition(|(name, ..)| people.gaps.of_key(client, name).is_some());
    let looks: Vec<_> = names
        .iter()
        .map(|(_, given, heard)| look_by_itself(client, given, heard.kind))
        .collect();
    let seen = ask_all(looks).await.into_iter().map(Some);
    let mut entries = Vec::with_capacity(names.len() + dark.len());
    for ((name, _, heard), seen) in
        (names.iter().chain(&dark)).zip(seen.chain(dark.iter().map(|_| None)))
    {
        let mut entry = match seen {
            Some(Ok(seen)) => Entry::of_seen(name, heard.kind, &seen, heard.waiting, &people),
            // The name has another kind by now, or a process published a wrong kind.
            Some(Err(failure)) if failure.code() == exit::CONFIG => {
                Entry::at_rest(name, heard.kind)
            }
            Some(Err(failure)) if failure.code() == exit::UNAVAILABLE => {
                people.gaps.add(&server_of(client, name), &failure);
                Entry::published(name, heard.kind, &heard.owners, heard.waiting, &people)
            }
            Some(Err(failure)) => return Err(failure),
            None => Entry::published(name, heard.kind, &heard.owners, heard.waiting, &people),
        };
        entry.longest_wait_ms = heard.longest.map(output::whole_millis);
        entries.push(entry);
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Names {
        entries,
        gaps: people.gaps,
    })
}

fn server_of(client: &Client, key: &[u8]) -> String {
    let console = client.console_of(key);
    console.map_or_else(String::new, |console| console.server().to_owned())
}

/// Makes entries from the findings of a scan, for the names that match.
pub(crate) async fn entries_of(
    client: &Client,
    found: &scan::Found,
    pattern: &str,
    prefix: &str,
    people: &People,
) -> Result<Names, Failure> {
    let mut gaps = people.gaps.clone();
    gaps.merge(&found.gaps);
    let names = found.names.iter();
    let matching = names.filter(|(name, _)| glob::matches(pattern.as_bytes(), name));
    let mut entries: Vec<Entry> = matching
        .map(|(name, traces)| Entry::of_traces(name, traces, people))
        .collect();
    // A scan does not show the permits of a semaphore, nor the moment at which a leader was elected.
    let asked = entries.iter_mut().enumerate();
    let asked: Vec<_> = asked
        .filter_map(|(at, entry)| Some((at, entry.kind, entry.question(client, prefix)?)))
        .collect();
    let looks: Vec<_> = asked
        .iter()
        .map(|(_, kind, given)| look_by_itself(client, given, *kind))
        .collect();
    for ((at, ..), seen) in asked.iter().zip(ask_all(looks).await) {
        let entry = &mut entries[*at];
        match seen {
            Ok(seen) => entry.add(&seen, people),
            // The name has another kind by now, or has two kinds: the findings of the scan stay.
            Err(failure) if failure.code() == exit::CONFIG && entry.is_told() => {}
            // The server ended after the scan.
            Err(failure) if failure.code() == exit::UNAVAILABLE => {
                gaps.add(&server_of(client, &entry.key), &failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    entry::add_subscribers(client, &mut entries).await;
    Ok(Names { entries, gaps })
}

/// Shows the names that processes have published. Returns the exit code.
pub(crate) fn show_told(names: &Names, json: bool) -> Result<u8, Failure> {
    if names.entries.is_empty() && !json {
        eprintln!("{}", messages::nothing_published());
        return Ok(names.gaps.tell());
    }
    show(names, None, json)
}

/// Shows entries. `scanned`: the number of keys that were read, and whether the scan was complete. Returns the exit code.
fn show(names: &Names, scanned: Option<(u64, bool)>, json: bool) -> Result<u8, Failure> {
    let Names { entries, gaps } = names;
    if json {
        for entry in entries {
            output::json_line(entry)?;
        }
        let (keys_seen, complete) = scanned.unzip();
        output::json_line(&Summary {
            names: entries.len(),
            keys_seen,
            complete: complete.map(|all| all && gaps.is_empty()),
            unreached: gaps.servers(),
        })?;
        return Ok(gaps.tell());
    }
    if entries.is_empty() {
        let keys = scanned.map_or(0, |(keys, _)| keys);
        eprintln!("{}", messages::nothing_found(keys));
    } else {
        let colour = output::may_colour(&std::io::stdout());
        let lines = entry::table(entries).lines(table::width_of_output(), colour);
        output::line(&lines.join("\n"))?;
    }
    if let Some((keys, false)) = scanned {
        eprintln!("{}", messages::scan_stopped(keys));
    }
    Ok(gaps.tell())
}

//! `stanchion status`: shows the holder of a name, and the rest of its lease.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stanchion::fair::{FairHolder, FairLockStatus};
use stanchion::rwlock::{RwLockHolder, RwLockStatus};
use stanchion::semaphore::{HeldPermit, LeasedStatus, PermitHolder, SemaphoreStatus};
use stanchion::{Client, FencingToken};

use crate::connect::ServerArgs;
use crate::exit::{self, Failure};
use crate::holder::HolderSeen;
use crate::kinds::{Facts, Held};
use crate::look::{Kind, Seen, look};
use crate::messages::lease_left;
use crate::output;
use crate::people::People;
use crate::similar::{self, Missing};
use crate::wording::{in_json, printable};

/// Show whether a name is held, by whom, and for how long.
///
/// This is the server's state when asked; by the time you read it, it may have changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     held or free; with --check: free
  1     with --check: held, no permit is free, or the latch is closed
  2     the command line is wrong
  69    the server cannot be reached
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion status nightly-report
  stanchion status nightly-report --json | jq .holder.remaining_ms
  stanchion status nightly-report --check >/dev/null && echo free")]
pub(crate) struct StatusArgs {
    /// The name.
    name: String,
    /// The name's kind. Detected if not given, but semaphores and latches that nobody holds look alike.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Exit with 1 when it is held.
    #[arg(long)]
    check: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn status(args: StatusArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let seen = look(&client, args.name.as_bytes(), args.kind).await?;
    let full = client.name(&args.name).map_err(exit::Library)?;
    let missing = match seen.is_at_rest() {
        true => similar::look(&client, &full, &args.name).await,
        false => None,
    };
    let name = in_json(&full);
    if let Some(missing) = missing.as_ref().filter(|it| it.is_of_pattern) {
        if args.check {
            let rule = format!(
                "--check is for one name, and {} is a pattern",
                printable(&name)
            );
            return Err(Failure::new(exit::USAGE, rule));
        }
        if !args.json {
            output::line(&matching(&name, missing))?;
            return Ok(exit::SUCCESS);
        }
    }
    let processes = processes(&client, &seen).await;
    if args.json {
        let mut line = StatusLine::new(&name, &seen, missing.as_ref());
        line.processes = processes
            .iter()
            .filter_map(|(owner, it)| Some((&**owner, it.process.as_deref()?)))
            .collect();
        line.not_seen = processes
            .iter()
            .filter(|(_, it)| it.is_gone())
            .map(|(owner, _)| &**owner)
            .collect();
        output::json_line(&line)?;
    } else {
        output::line(&describe(&name, &seen, missing.as_ref(), &processes))?;
    }
    Ok(if args.check && seen.is_held() {
        exit::NO
    } else {
        exit::SUCCESS
    })
}

/// The names that match a pattern.
fn matching(pattern: &str, missing: &Missing) -> String {
    let pattern = printable(pattern);
    match &*missing.similar {
        [] => format!("{pattern}: a pattern that no name matches"),
        names => format!(
            "{pattern}: a pattern. There is: {}",
            printable(&names.join(", "))
        ),
    }
}

/// The holders whose processes are known, or are known to have no connection, by owner. Without the rights, the map is empty.
async fn processes(client: &Client, seen: &Seen) -> BTreeMap<String, HolderSeen> {
    let owners = seen.owners();
    if owners.is_empty() {
        return BTreeMap::new();
    }
    let people = People::ask(client).await.unwrap_or_default();
    let holders = owners.into_iter().map(|owner| {
        let holder = HolderSeen::new(&owner, 1, &people);
        (owner, holder)
    });
    holders
        .filter(|(_, it)| it.process.is_some() || it.is_gone())
        .collect()
}

impl Seen {
    /// True if the key may not exist.
    fn is_at_rest(&self) -> bool {
        match self {
            Self::Lock(_) | Self::Fair(_) | Self::Rwlock(_) => !self.is_held(),
            Self::Semaphore(status) => status.available == 0,
            Self::Leased(status) => status.available == 0,
            Self::Latch(count) => *count == 0,
            Self::Told(facts) => !facts.exists,
            Self::Number(_) => false,
        }
    }
}

/// The JSON of a status.
#[derive(Debug, Serialize)]
struct StatusLine<'a> {
    name: &'a str,
    /// `None`: unknown.
    kind: Option<Kind>,
    held: bool,
    /// True if the server has the key. A lock without a holder has none.
    exists: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    similar: &'a [String],
    /// The processes of the holders that are known, by owner.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    processes: BTreeMap<&'a str, &'a str>,
    /// The owners whose clients have no connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_seen: Vec<&'a str>,
    #[serde(flatten)]
    detail: Detail<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Detail<'a> {
    Lock {
        holder: Option<HolderLine<'a>>,
        last_token: Option<FencingToken>,
        queue_len: u64,
        waiting_processes: Option<u64>,
    },
    Rwlock {
        writer: Option<&'a RwLockHolder>,
        readers: &'a [RwLockHolder],
        reader_count: u64,
        remaining_ms: Option<u64>,
        readers_held_off: bool,
        last_token: Option<FencingToken>,
        waiting_processes: Option<u64>,
    },
    Semaphore {
        available: i64,
        holders: &'a [PermitHolder],
        waiting_processes: Option<u64>,
    },
    Leased {
        available: i64,
        acquired: u32,
        total: i64,
        permits: Vec<PermitLine<'a>>,
        waiting_processes: Option<u64>,
    },
    Latch {
        count: u64,
    },
    Number {
        number: i64,
    },
    Told {
        #[serde(flatten)]
        facts: &'a serde_json::Map<String, serde_json::Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_token: Option<FencingToken>,
        #[serde(skip_serializing_if = "Option::is_none")]
        waiting_processes: Option<u64>,
    },
}

/// The JSON of a holder.
#[derive(Debug, Serialize)]
pub(crate) struct HolderLine<'a> {
    owner: &'a str,
    hold_count: u32,
    remaining_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct PermitLine<'a> {
    id: &'a stanchion::semaphore::PermitId,
    remaining_ms: Option<u64>,
}

impl<'a> StatusLine<'a> {
    fn new(name: &'a str, seen: &'a Seen, missing: Option<&'a Missing>) -> Self {
        let millis = |left: Option<Duration>| left.map(output::whole_millis);
        let (kind, detail) = match seen {
            Seen::Lock(status) | Seen::Fair(status) => {
                let kind = match seen {
                    Seen::Fair(_) => Some(Kind::Fair),
                    // A free name has no kind yet.
                    _ => status.is_held().then_some(Kind::Lock),
                };
                let detail = Detail::Lock {
                    holder: status.holder.as_ref().map(HolderLine::new),
                    last_token: status.last_token,
                    queue_len: status.queue_len,
                    waiting_processes: status.waiting_processes,
                };
                (kind, detail)
            }
            Seen::Rwlock(status) => {
                let detail = Detail::Rwlock {
                    writer: status.writer.as_ref(),
                    readers: &status.readers,
                    reader_count: status.reader_count,
                    remaining_ms: millis(status.remaining),
                    readers_held_off: status.readers_held_off,
                    last_token: status.last_token,
                    waiting_processes: status.waiting_processes,
                };
                (Some(Kind::Rwlock), detail)
            }
            Seen::Semaphore(status) => {
                let detail = Detail::Semaphore {
                    available: status.available,
                    holders: &status.holders,
                    waiting_processes: status.waiting_processes,
                };
                (Some(Kind::Semaphore), detail)
            }
            Seen::Leased(status) => {
                let line = |permit: &'a HeldPermit| PermitLine {
                    id: &permit.id,
                    remaining_ms: millis(permit.remaining),
                };
                let detail = Detail::Leased {
                    available: status.available,
                    acquired: status.acquired,
                    total: status.total,
                    permits: status.permits.iter().map(line).collect(),
                    waiting_processes: status.waiting_processes,
                };
                (Some(Kind::LeasedSemaphore), detail)
            }
            Seen::Latch(count) => (Some(Kind::Latch), Detail::Latch { count: *count }),
            Seen::Number(number) => (None, Detail::Number { number: *number }),
            Seen::Told(facts) => {
                let detail = Detail::Told {
                    facts: &facts.json,
                    last_token: facts.last_token,
                    waiting_processes: facts.waiting,
                };
                (Some(facts.kind), detail)
            }
        };
        Self {
            name,
            kind,
            held: seen.is_held(),
            exists: missing.is_none(),
            similar: missing.map_or(&[], |missing| &missing.similar),
            processes: BTreeMap::new(),
            not_seen: Vec::new(),
            detail,
        }
    }
}

impl<'a> HolderLine<'a> {
    pub(crate) fn of(held: &'a Held) -> Self {
        Self {
            owner: &held.owner,
            hold_count: held.count,
            remaining_ms: held.left.map(output::whole_millis),
        }
    }

    pub(crate) fn new(holder: &'a FairHolder) -> Self {
        Self {
            owner: &holder.owner,
            hold_count: holder.hold_count,
            remaining_ms: holder.remaining.map(output::whole_millis),
        }
    }
}

fn describe(
    name: &str,
    seen: &Seen,
    missing: Option<&Missing>,
    processes: &BTreeMap<String, HolderSeen>,
) -> String {
    let name = &*printable(name);
    let mut lines = match seen {
        Seen::Lock(status) | Seen::Fair(status) => lock_lines(name, status),
        Seen::Rwlock(status) => rwlock_lines(name, status),
        Seen::Semaphore(status) => semaphore_lines(name, status),
        Seen::Leased(status) => leased_lines(name, status),
        Seen::Latch(0) => vec![format!("{name}: open")],
        Seen::Latch(count) => vec![format!("{name}: closed, {count} to go")],
        Seen::Told(facts) => told_lines(name, facts),
        Seen::Number(number) => vec![
            format!("{name}: {number}"),
            "  The free permits of a semaphore that nobody holds, or the count of a latch: \
             say with --kind which."
                .into(),
        ],
    };
    lines.extend(processes.iter().map(|(owner, holder)| {
        let (owner, process) = (printable(owner), holder.brief_process());
        match seen {
            Seen::Rwlock(_) => format!("  process     {process}: {owner}"),
            _ => format!("  process     {process}"),
        }
    }));
    if let Some(waiting) = seen.waiting().filter(|waiting| *waiting > 0) {
        let processes = if waiting == 1 { "process" } else { "processes" };
        lines.push(format!("  waiting     {waiting} {processes}"));
    }
    if let Some(missing) = missing
        && let Some(first) = lines.first_mut()
    {
        first.push_str(", there is no such key");
        if !missing.similar.is_empty() {
            let similar = printable(&missing.similar.join(", "));
            lines.push(format!("  There is: {similar}"));
        }
    }
    lines.join("\n")
}

fn lock_lines(name: &str, status: &FairLockStatus) -> Vec<String> {
    let mut lines = match &status.holder {
        None => vec![format!("{name}: free")],
        Some(holder) if holder.hold_count == 0 => vec![
            format!("{name}: at rest after a run of a job: nobody holds it"),
            format!("  rest        {}", lease_left(holder.remaining)),
        ],
        Some(holder) => vec![
            format!("{name}: held"),
            format!("  owner       {}", printable(&holder.owner)),
            format!("  hold count  {}", holder.hold_count),
            format!("  lease       {}", lease_left(holder.remaining)),
        ],
    };
    if status.queue_len > 0 {
        lines.push(format!("  queue       {} wait in line", status.queue_len));
    }
    last_token(&mut lines, status.last_token);
    lines
}

fn told_lines(name: &str, facts: &Facts) -> Vec<String> {
    let mut lines = vec![format!("{name}: {}", printable(&facts.state))];
    for held in &facts.holders {
        if held.count == 0 {
            lines.push(format!("  rest        {}", lease_left(held.left)));
        } else {
            lines.push(format!("  owner       {}", printable(&held.owner)));
            lines.push(format!("  lease       {}", lease_left(held.left)));
        }
    }
    let more = facts.more.iter();
    lines.extend(more.map(|(what, text)| format!("  {what:<10}  {}", printable(text))));
    last_token(&mut lines, facts.last_token);
    lines
}

fn last_token(lines: &mut Vec<String>, token: Option<FencingToken>) {
    if let Some(token) = token {
        lines.push(format!("  last token  {token}"));
    }
}

fn rwlock_lines(name: &str, status: &RwLockStatus) -> Vec<String> {
    let head = match (&status.writer, status.reader_count) {
        (Some(_), _) => format!("{name}: held by a writer"),
        (None, 0) => format!("{name}: free"),
        (None, 1) => format!("{name}: held by 1 reader"),
        (None, readers) => format!("{name}: held by {readers} readers"),
    };
    let holder = |what: &str, holder: &RwLockHolder| {
        let owner = printable(&holder.owner);
        match holder.hold_count {
            1 => format!("  {what:<10}  {owner}"),
            count => format!("  {what:<10}  {owner} ({count} times)"),
        }
    };
    let mut lines = vec![head];
    lines.extend(status.writer.iter().map(|writer| holder("writer", writer)));
    lines.extend(status.readers.iter().map(|reader| holder("reader", reader)));
    if status.is_held() {
        lines.push(format!("  lease       {}", lease_left(status.remaining)));
    }
    if status.readers_held_off {
        lines.push("  a writer waits, and new readers with it".into());
    }
    last_token(&mut lines, status.last_token);
    lines
}

fn semaphore_lines(name: &str, status: &SemaphoreStatus) -> Vec<String> {
    let mut lines = vec![format!("{name}: {} permits free", status.available)];
    let holders = status.holders.iter();
    lines.extend(
        holders.map(|holder| format!("  {} held by {}", holder.permits, printable(&holder.owner))),
    );
    lines
}

fn leased_lines(name: &str, status: &LeasedStatus) -> Vec<String> {
    let (free, total) = (status.available, status.total);
    let mut lines = vec![format!("{name}: {free} of {total} permits free")];
    let permit = |permit: &HeldPermit| format!("  {}  {}", permit.id, lease_left(permit.remaining));
    lines.extend(status.permits.iter().map(permit));
    lines
}

//! `stanchion inspect`: everything that the server has about one name.
//!
//! Long: each kind, and each section, has its part of the page.

use clap::Args;
use serde::Serialize;
use stanchion::console::{Console, Reply};
use stanchion::{Client, Name};

use crate::beside::{self, Part};
use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::holder::HolderSeen;
use crate::kinds::Facts;
use crate::look::{Kind, Seen, ask_all, look};
use crate::output;
use crate::people::People;
use crate::table::{self, Cell, Column, Row, Table};
use crate::wording::{Owner, age, in_json, lease, not_seen, of_ttl, printable};

/// Show everything about one name.
///
/// Its holders and their processes, its waiters in order, and every key that it has on the server.
///
/// Several requests read the server's state, which may change in between.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     shown, also if there is no such name
  2     the command line is wrong
  69    the server cannot be reached
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion inspect nightly-report
  stanchion inspect nightly-report --json | jq '.queue | length'")]
pub(crate) struct InspectArgs {
    /// The name.
    name: String,
    /// The name's kind. Detected if not given.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Facts known of a name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Inspected {
    name: String,
    kind: Option<Kind>,
    server: String,
    state: String,
    /// More facts about an election, a job or a limiter.
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(skip)]
    more: Vec<(&'static str, String)>,
    holders: Vec<HolderLine>,
    /// The fair lock's queue, in order.
    queue: Vec<Place>,
    /// The candidates of an election, in the order of their last requests, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    standing: Vec<HolderLine>,
    /// The processes that have published that they wait for the name.
    waiters: Vec<WaiterLine>,
    /// `null`: not known.
    waiting_processes: Option<u64>,
    last_token: Option<stanchion::FencingToken>,
    keys: Vec<KeyLine>,
}

#[derive(Clone, Debug, Serialize)]
struct HolderLine {
    #[serde(flatten)]
    holder: HolderSeen,
    /// The kind of its hold: `writer`, `reader`, or a number of permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    lease_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
struct Place {
    position: usize,
    #[serde(flatten)]
    waiter: HolderSeen,
}

#[derive(Clone, Debug, Serialize)]
struct WaiterLine {
    client: String,
    process: Option<String>,
    /// False: the server shows no connection of this client. `null`: not known.
    connected: Option<bool>,
    /// The number of its calls that wait.
    calls: usize,
    longest_ms: u64,
}

#[derive(Clone, Debug, Serialize)]
struct KeyLine {
    key: String,
    #[serde(rename = "type")]
    kind: String,
    ttl_ms: Option<u64>,
    members: u64,
}

/// The largest number of places of a queue that are shown.
const MOST: usize = 1000;

pub(crate) async fn inspect(args: InspectArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let inspected = ask(&client, args.name.as_bytes(), args.kind).await?;
    if args.json {
        output::json_line(&inspected)?;
    } else {
        let colour = output::may_colour(&std::io::stdout());
        let lines = inspected.lines(table::width_of_output(), colour);
        output::line(&lines.join("\n"))?;
    }
    Ok(exit::SUCCESS)
}

/// Reads everything about one name.
pub(crate) async fn ask(
    client: &Client,
    name: &[u8],
    kind: Option<Kind>,
) -> Result<Inspected, Failure> {
    let seen = look(client, name, kind).await?;
    let people = People::ask(client).await.map_err(Library)?;
    let name = client.name(name).map_err(Library)?;
    gather(client, &name, &seen, &people).await
}

async fn gather(
    client: &Client,
    name: &Name,
    seen: &Seen,
    people: &People,
) -> Result<Inspected, Failure> {
    let console = client
        .console_of(name.as_bytes())
        .ok_or_else(|| Failure::new(exit::UNAVAILABLE, "no server is known to own this name"))?;
    let keys = keys(&console, name).await?;
    let kind = kind_of(seen, &keys);
    let queue = match kind {
        Some(Kind::Fair) => queue(&console, name, people).await?,
        _ => Vec::new(),
    };
    let last_token = match seen {
        Seen::Lock(status) | Seen::Fair(status) => status.last_token,
        Seen::Rwlock(status) => status.last_token,
        Seen::Told(facts) => facts.last_token,
        _ => None,
    };
    let facts = seen.facts();
    Ok(Inspected {
        name: in_json(name),
        kind,
        server: console.server().to_owned(),
        state: state(seen),
        facts: facts.map(|facts| facts.json.clone()),
        more: facts.map_or_else(Vec::new, |facts| facts.more.clone()),
        standing: facts.map_or_else(Vec::new, |facts| standing(facts, people)),
        holders: holders(seen, people),
        queue,
        waiters: waiters(name, people),
        waiting_processes: seen.waiting(),
        last_token,
        keys,
    })
}

fn kind_of(seen: &Seen, keys: &[KeyLine]) -> Option<Kind> {
    match seen {
        Seen::Fair(_) => Some(Kind::Fair),
        Seen::Lock(status) => (status.is_held() || !keys.is_empty()).then_some(Kind::Lock),
        Seen::Rwlock(_) => Some(Kind::Rwlock),
        Seen::Semaphore(_) => Some(Kind::Semaphore),
        Seen::Leased(_) => Some(Kind::LeasedSemaphore),
        Seen::Latch(_) => Some(Kind::Latch),
        Seen::Told(facts) => Some(facts.kind),
        Seen::Number(_) => None,
    }
}

/// Calls that have waited for at least a second, as their processes have published. The longest wait comes first.
fn waiters(name: &Name, people: &People) -> Vec<WaiterLine> {
    let clients = people.survey.iter().flat_map(|told| &told.clients);
    let mut waiters: Vec<WaiterLine> = clients
        .filter_map(|it| {
            let of_name =
                |wait: &&stanchion::survey::SurveyedWait| wait.name.as_bytes() == name.as_bytes();
            let mine = it.waits.iter().filter(of_name);
            let longest = mine.clone().map(|wait| wait.waiting).max()?;
            let client = it.client.to_string();
            let owner = format!("{client}:");
            Some(WaiterLine {
                process: people.of(&Owner::of(&owner)),
                connected: people.is_connected(&Owner::of(&owner)),
                client,
                calls: mine.count(),
                longest_ms: output::whole_millis(longest),
            })
        })
        .collect();
    waiters.sort_by_key(|line| std::cmp::Reverse(line.longest_ms));
    waiters
}

fn state(seen: &Seen) -> String {
    let held = |held: bool| if held { "held" } else { "free" }.to_owned();
    match seen {
        Seen::Lock(status) | Seen::Fair(status) => held(status.is_held()),
        Seen::Rwlock(status) => match (&status.writer, status.reader_count) {
            (Some(_), _) => "held by a writer".into(),
            (None, 0) => "free".into(),
            (None, readers) => format!("held by readers: {readers}"),
        },
        Seen::Semaphore(status) => format!("{} permits free", status.available),
        Seen::Leased(status) => format!("{} of {} permits free", status.available, status.total),
        Seen::Told(facts) => facts.state.clone(),
        Seen::Latch(0) => "open".into(),
        Seen::Latch(count) => format!("closed, {count} to go"),
        Seen::Number(number) => format!("the number {number}: permits of a semaphore, or a latch"),
    }
}

fn holders(seen: &Seen, people: &People) -> Vec<HolderLine> {
    let line = |owner: &str, count: u64, what: Option<&str>, left: Option<std::time::Duration>| {
        HolderLine {
            holder: HolderSeen::new(owner, count, people),
            what: what.map(str::to_owned),
            lease_ms: left.map(output::whole_millis),
        }
    };
    match seen {
        Seen::Lock(status) | Seen::Fair(status) => {
            let holders = status.holder.iter();
            let of = |holder: &stanchion::fair::FairHolder| {
                line(
                    &holder.owner,
                    holder.hold_count.into(),
                    None,
                    holder.remaining,
                )
            };
            holders.map(of).collect()
        }
        Seen::Rwlock(status) => {
            let writers = status.writer.iter().map(|holder| (holder, "writer"));
            let readers = status.readers.iter().map(|holder| (holder, "reader"));
            let all = writers.chain(readers);
            all.map(|(holder, what)| {
                line(
                    &holder.owner,
                    holder.hold_count.into(),
                    Some(what),
                    status.remaining,
                )
            })
            .collect()
        }
        Seen::Semaphore(status) => {
            let holders = status.holders.iter();
            let of = |holder: &stanchion::semaphore::PermitHolder| {
                let what = format!("{} permits", holder.permits);
                line(&holder.owner, 1, Some(&what), None)
            };
            holders.map(of).collect()
        }
        Seen::Leased(status) => {
            let permits = status.permits.iter();
            let of = |permit: &stanchion::semaphore::HeldPermit| {
                let id = permit.id.to_string();
                let mut line = line(&id, 1, Some("permit"), permit.remaining);
                line.holder.process = people.of_permit(&permit.id);
                line
            };
            permits.map(of).collect()
        }
        Seen::Told(facts) => {
            let holders = facts.holders.iter();
            let of = |held: &crate::kinds::Held| {
                line(&held.owner, held.count.into(), Some(held.what), held.left)
            };
            holders.map(of).collect()
        }
        Seen::Latch(_) | Seen::Number(_) => Vec::new(),
    }
}

fn standing(facts: &Facts, people: &People) -> Vec<HolderLine> {
    let line = |standing: &crate::kinds::Standing| HolderLine {
        holder: HolderSeen::new(&standing.owner, 1, people),
        what: Some(standing.what.clone()),
        lease_ms: standing.left.map(output::whole_millis),
    };
    facts.standing.iter().map(line).collect()
}

/// The keys of a name that exist, with their sizes.
async fn keys(console: &Console, name: &Name) -> Result<Vec<KeyLine>, Failure> {
    let all = std::iter::once(name.as_bytes().to_vec()).chain(beside::keys_of(name));
    let asked: Vec<_> = all.map(|key| key_line(console.clone(), key)).collect();
    let found: Result<Vec<_>, Failure> = ask_all(asked).await.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

async fn key_line(console: Console, key: Vec<u8>) -> Result<Option<KeyLine>, Failure> {
    let ask = async |command: &str| {
        let reply = console.command(&[command.as_bytes(), &key]).await;
        reply.map_err(|error| Failure::from(Library(error)))
    };
    let kind = ask("TYPE").await?.as_text().unwrap_or_default().to_owned();
    let count = match &*kind {
        "none" | "" => return Ok(None),
        "hash" => "HLEN",
        "zset" => "ZCARD",
        "list" => "LLEN",
        _ => "STRLEN",
    };
    let ttl = ask("PTTL").await?.as_int().unwrap_or(-2);
    let members = ask(count).await?.as_int().unwrap_or(0);
    Ok(Some(KeyLine {
        key: printable(&key),
        kind,
        ttl_ms: of_ttl(ttl).map(output::whole_millis),
        members: u64::try_from(members).unwrap_or(0),
    }))
}

async fn queue(console: &Console, name: &Name, people: &People) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::new();
    let keys = beside::keys_of(name);
    let is_queue =
        |key: &&Vec<u8>| beside::owner_of(key).is_some_and(|key| key.part == Part::Queue);
    let Some(key) = keys.iter().find(is_queue) else {
        return Ok(places);
    };
    let last = MOST.to_string();
    let asked = [b"LRANGE".as_slice(), key, b"0", last.as_bytes()];
    let reply = console.command(&asked).await.map_err(Library)?;
    let owners = reply.as_array().unwrap_or_default().iter();
    for (at, owner) in owners.filter_map(Reply::as_text).enumerate() {
        places.push(Place {
            position: at + 1,
            waiter: HolderSeen::new(owner, 1, people),
        });
    }
    Ok(places)
}

impl Inspected {
    #[cfg(test)]
    pub(crate) fn nothing_of(name: &str) -> Self {
        Self {
            name: name.into(),
            kind: None,
            server: String::new(),
            state: "free".into(),
            facts: None,
            more: Vec::new(),
            standing: Vec::new(),
            holders: Vec::new(),
            queue: Vec::new(),
            waiters: Vec::new(),
            waiting_processes: None,
            last_token: None,
            keys: Vec::new(),
        }
    }

    pub(crate) fn lines(&self, width: Option<usize>, colour: bool) -> Vec<String> {
        let kind = self.kind.map_or("of no known kind", Kind::word);
        let head = format!(
            "{}: {kind}, {}",
            printable(self.name.as_bytes()),
            self.state
        );
        let mut lines = table::wrapped(&head, width.unwrap_or(usize::MAX));
        for (what, text) in &self.more {
            let room = width.map_or(usize::MAX, |width| width.saturating_sub(2).max(1));
            let told = table::wrapped(&format!("{what:<10}  {text}"), room);
            lines.extend(told.iter().map(|line| format!("  {line}")));
        }
        let mut section = |title: &str, table: Table| {
            if !table.rows.is_empty() {
                lines.push(String::new());
                lines.push(title.to_owned());
                lines.extend(table.lines(width, colour));
            }
        };
        section("Holders", self.holder_table());
        section("Queue", self.queue_table());
        section("Candidates", self.standing_table());
        section("Waiting", self.waiter_table());
        section("Keys", self.key_table());
        if self.waiting_processes.is_some_and(|many| many > 0) || self.last_token.is_some() {
            lines.push(String::new());
        }
        if let Some(many @ 1..) = self.waiting_processes {
            let who = if many == 1 {
                "process waits"
            } else {
                "processes wait"
            };
            lines.push(format!("{many} {who}"));
        }
        if let Some(token) = self.last_token {
            lines.push(format!("last token {token}"));
        }
        lines
    }

    fn holder_table(&self) -> Table {
        let row = |line: &HolderLine| {
            let left = line.lease_ms.map(std::time::Duration::from_millis);
            let ledger = line
                .what
                .as_deref()
                .is_some_and(|what| what.ends_with("permits"));
            Row {
                cells: vec![
                    line.holder.owner.clone().into(),
                    line.holder.brief_process().into(),
                    line.what.as_deref().unwrap_or("-").into(),
                    line.holder.hold_count.to_string().into(),
                    if ledger {
                        "-".into()
                    } else {
                        lease(left).into()
                    },
                ],
                note: Cell::default(),
            }
        };
        Table {
            columns: columns(&[
                ("OWNER", 14),
                ("PROCESS", 12),
                ("HOLDS", 0),
                ("COUNT", 0),
                ("LEASE", 0),
            ]),
            rows: self.holders.iter().map(row).collect(),
        }
    }

    fn queue_table(&self) -> Table {
        let row = |place: &Place| Row {
            cells: vec![
                place.position.to_string().into(),
                place.waiter.owner.clone().into(),
                place.waiter.brief_process().into(),
            ],
            note: Cell::default(),
        };
        Table {
            columns: columns(&[("PLACE", 0), ("OWNER", 14), ("PROCESS", 12)]),
            rows: self.queue.iter().map(row).collect(),
        }
    }

    fn standing_table(&self) -> Table {
        let row = |line: &HolderLine| Row {
            cells: vec![
                line.holder.owner.clone().into(),
                line.holder.brief_process().into(),
                line.what.clone().unwrap_or_default().into(),
            ],
            note: Cell::default(),
        };
        Table {
            columns: columns(&[("OWNER", 14), ("PROCESS", 12), ("STANDS WITH", 12)]),
            rows: self.standing.iter().map(row).collect(),
        }
    }

    fn waiter_table(&self) -> Table {
        let process = |line: &WaiterLine| {
            let process = line.process.as_deref().unwrap_or(&line.client);
            match line.connected {
                Some(false) => not_seen(process),
                _ => printable(process.as_bytes()),
            }
        };
        let row = |line: &WaiterLine| Row {
            cells: vec![
                process(line).into(),
                line.calls.to_string().into(),
                age(std::time::Duration::from_millis(line.longest_ms)).into(),
            ],
            note: Cell::default(),
        };
        Table {
            columns: columns(&[("PROCESS", 12), ("CALLS", 0), ("LONGEST", 0)]),
            rows: self.waiters.iter().map(row).collect(),
        }
    }

    fn key_table(&self) -> Table {
        let row = |line: &KeyLine| Row {
            cells: vec![
                line.key.clone().into(),
                line.kind.clone().into(),
                line.members.to_string().into(),
                line.ttl_ms
                    .map_or_else(
                        || "none".into(),
                        |left| age(std::time::Duration::from_millis(left)),
                    )
                    .into(),
            ],
            note: Cell::default(),
        };
        Table {
            columns: columns(&[("KEY", 16), ("TYPE", 0), ("SIZE", 0), ("TTL", 0)]),
            rows: self.keys.iter().map(row).collect(),
        }
    }
}

fn columns(titles: &[(&'static str, usize)]) -> Vec<Column> {
    let column = |(title, least): &(&'static str, usize)| Column {
        title,
        least: *least,
    };
    titles.iter().map(column).collect()
}

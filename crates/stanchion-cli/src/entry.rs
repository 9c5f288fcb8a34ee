//! A name, as lists of names show it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use stanchion::Client;
use stanchion::client::Placement;
use stanchion::semaphore::{LeasedStatus, SemaphoreStatus};

use crate::beside::{self, Part};
use crate::holder::HolderSeen;
use crate::look::{Kind, Seen};
use crate::output;
use crate::people::People;
use crate::scan::Traces;
use crate::table::{Blocks, Cell, Column, Row, Table, Tone};
use crate::trouble::Trouble;
use crate::wording;

/// A name, its holders and its waiters.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    /// The name as text; if it is not valid text, see `bytes`.
    pub(crate) name: String,
    /// The name in hexadecimal digits, if it is not valid text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<String>,
    #[serde(skip)]
    pub(crate) key: Vec<u8>,
    pub(crate) kind: Option<Kind>,
    pub(crate) held: bool,
    /// A holder. With several holders, any of them.
    pub(crate) holder: Option<HolderSeen>,
    /// The number of holders, or of permits taken.
    pub(crate) holders: u64,
    /// The number of permits, free and taken, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<i64>,
    /// A short text about the state of the name, for a kind without holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    pub(crate) held_ms: Option<u64>,
    /// The rest of the lease; `null`: not held, or a hold without an end.
    pub(crate) lease_ms: Option<u64>,
    /// `null`: not known.
    pub(crate) waiting: Option<u64>,
    /// The longest wait among the calls that processes have published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) longest_wait_ms: Option<u64>,
    /// All owners of a lock or a read-write lock, if its status was read.
    #[serde(skip)]
    pub(crate) owners: Vec<String>,
    pub(crate) trouble: Vec<Trouble>,
}

impl Entry {
    /// An entry of `key` without holders or waiters.
    pub(crate) fn at_rest(key: &[u8], kind: Option<Kind>) -> Self {
        let text = std::str::from_utf8(key);
        let hex = |byte: &u8| format!("{byte:02x}");
        Self {
            name: String::from_utf8_lossy(key).into_owned(),
            bytes: text.is_err().then(|| key.iter().map(hex).collect()),
            key: key.to_vec(),
            kind,
            held: false,
            holder: None,
            holders: 0,
            permits: None,
            state: None,
            held_ms: None,
            lease_ms: None,
            waiting: None,
            longest_wait_ms: None,
            owners: Vec::new(),
            trouble: Vec::new(),
        }
    }

    /// Reads the traces that a scan has found.
    pub(crate) fn of_traces(key: &[u8], traces: &Traces, people: &People) -> Self {
        let mut kinds: BTreeSet<Kind> = traces.beside.iter().filter_map(|b| b.kind).collect();
        if traces.limiter {
            kinds.insert(Kind::RateLimiter);
        }
        if let Some(hold) = &traces.hold {
            if hold.mode.is_empty() {
                // A fair lock, an election, a job and a lock are one hash.
                if !kinds.iter().any(|kind| kind.is_a_lock()) {
                    kinds.insert(Kind::Lock);
                }
            } else {
                kinds.insert(Kind::Rwlock);
            }
        }
        // The queues of the other kinds show their kind.
        let is_of_lock = |b: &crate::scan::Beside| b.part == Part::Line && b.kind.is_none();
        let in_line = traces.beside.iter().any(is_of_lock);
        // A resignation does not wake the waiters for a lock. The end of a job's run does.
        if in_line && kinds.contains(&Kind::Election) {
            kinds.insert(Kind::Lock);
        }
        let kind = match kinds.first() {
            Some(kind) => Some(*kind),
            None => in_line.then_some(Kind::Lock),
        };
        let mut entry = Self::at_rest(key, kind);
        let members = |part| {
            let of = traces.beside.iter().filter(move |b| b.part == part);
            of.map(|b| b.members).sum::<u64>()
        };
        let queue = members(Part::Queue);
        entry.waiting = Some(queue + members(Part::Line));
        if let Some(hold) = &traces.hold {
            let owner = hold.owner.strip_suffix(":write").unwrap_or(&hold.owner);
            let holder = HolderSeen::new(owner, hold.count, people);
            entry.held = true;
            entry.held_ms = people
                .held(&hold.owner)
                .or_else(|| people.held(owner))
                .map(output::whole_millis);
            entry.holders = match hold.mode.is_empty() {
                true => 1,
                false => hold.fields.saturating_sub(1),
            };
            entry.lease_ms = wording::of_ttl(hold.ttl).map(output::whole_millis);
            if hold.ttl == -1 {
                entry.trouble.push(Trouble::NoTtl);
            }
            if holder.is_gone() && entry.holders == 1 {
                entry.trouble.push(Trouble::HolderGone);
            }
            if hold.mode.is_empty() && hold.fields > 1 {
                entry.trouble.push(Trouble::ManyFields(hold.fields));
            }
            entry.holder = Some(holder);
        } else if queue > 0 && members(Part::Live) == 0 {
            entry.trouble.push(Trouble::OrphanQueue(queue));
        }
        // These kinds share no key with another kind.
        for kind in [Kind::TokenBucket, Kind::Barrier, Kind::DoubleBarrier] {
            kinds.remove(&kind);
        }
        if kinds.len() > 1 {
            entry
                .trouble
                .push(Trouble::TwoKinds(kinds.into_iter().collect()));
        }
        entry
    }

    /// Builds the entry of a published name from its status. `waiting`: the number of published waiters, used if the status has no number.
    pub(crate) fn of_seen(
        key: &[u8],
        kind: Option<Kind>,
        seen: &Seen,
        waiting: u64,
        people: &People,
    ) -> Self {
        let mut entry = Self::at_rest(key, kind);
        if let Seen::Told(facts) = seen {
            entry.add_facts(facts, people);
            entry.waiting = entry.waiting.or(Some(waiting));
            return entry;
        }
        entry.owners = seen.owners();
        entry.waiting = seen.waiting();
        let (holder, left) = match seen {
            Seen::Lock(status) | Seen::Fair(status) => {
                if kind == Some(Kind::Fair) {
                    entry.waiting = Some(status.queue_len);
                }
                entry.holders = u64::from(status.holder.is_some());
                let holder = status.holder.as_ref();
                let left = holder.and_then(|holder| holder.remaining);
                (
                    holder.map(|holder| (&holder.owner, u64::from(holder.hold_count))),
                    left,
                )
            }
            Seen::Rwlock(status) => {
                entry.holders = status.reader_count + u64::from(status.writer.is_some());
                let any = status.writer.iter().chain(&status.readers).next();
                (
                    any.map(|holder| (&holder.owner, u64::from(holder.hold_count))),
                    status.remaining,
                )
            }
            Seen::Semaphore(status) => {
                entry.taken(status);
                (None, None)
            }
            Seen::Leased(status) => {
                entry.leased(status);
                (None, entry.lease_ms.map(Duration::from_millis))
            }
            Seen::Latch(_) | Seen::Number(_) | Seen::Told(_) => (None, None),
        };
        entry.waiting = entry.waiting.or(Some(waiting));
        entry.lease_ms = left.map(output::whole_millis);
        entry.held = entry.holders > 0;
        if let Some((owner, count)) = holder {
            entry.held_ms = people.held(owner).map(output::whole_millis);
            let holder = HolderSeen::new(owner, count, people);
            if left.is_none() {
                entry.trouble.push(Trouble::NoTtl);
            }
            if holder.is_gone() && entry.holders == 1 {
                entry.trouble.push(Trouble::HolderGone);
            }
            entry.holder = Some(holder);
        }
        entry
    }

    /// Builds the entry of a published name whose server does not answer.
    pub(crate) fn published(
        key: &[u8],
        kind: Option<Kind>,
        owners: &[String],
        waiting: u64,
        people: &People,
    ) -> Self {
        let mut entry = Self::at_rest(key, kind);
        entry.waiting = Some(waiting);
        entry.held = !owners.is_empty();
        entry.holders = u64::try_from(owners.len()).unwrap_or(u64::MAX);
        if let Some(owner) = owners.first() {
            entry.held_ms = people.held(owner).map(output::whole_millis);
            entry.holder = Some(HolderSeen::new(owner, 1, people));
        }
        entry.trouble.push(Trouble::NoAnswer);
        entry
    }

    fn leased(&mut self, status: &LeasedStatus) {
        self.holders = status.acquired.into();
        self.permits = Some(status.total);
        let next = status.permits.iter().filter_map(|permit| permit.remaining);
        self.lease_ms = next
            .filter(|left| !left.is_zero())
            .min()
            .map(output::whole_millis);
    }

    fn taken(&mut self, status: &SemaphoreStatus) {
        let taken: u64 = status
            .holders
            .iter()
            .map(|holder| u64::from(holder.permits))
            .sum();
        self.holders = taken;
        let taken = i64::try_from(taken).unwrap_or(i64::MAX);
        self.permits = Some(status.available.saturating_add(taken));
    }

    /// Adds facts that a scan does not show.
    pub(crate) fn add(&mut self, seen: &Seen, people: &People) {
        match seen {
            Seen::Leased(status) => self.leased(status),
            Seen::Semaphore(status) => self.taken(status),
            Seen::Told(facts) => {
                let (held_ms, waiting) = (self.held_ms, self.waiting);
                self.add_facts(facts, people);
                self.held_ms = self.held_ms.or(held_ms);
                self.waiting = self.waiting.or(waiting);
                return;
            }
            _ => {}
        }
        self.held = self.holders > 0;
    }

    /// Returns whether the entry has nothing to show.
    pub(crate) fn is_idle(&self) -> bool {
        !self.held
            && self.waiting.unwrap_or(0) == 0
            && self.trouble.is_empty()
            && self.permits.is_none()
            && self.state.is_none()
    }

    /// A short text about the holders.
    pub(crate) fn held_by(&self) -> String {
        match (&self.holder, self.permits) {
            (_, Some(all)) => format!("{}/{all} taken", self.holders),
            (Some(_), None) if self.holders > 1 => format!("{} readers", self.holders),
            (Some(holder), None) => holder.brief(),
            (None, None) => self.state.clone().unwrap_or_else(|| "-".into()),
        }
    }

    fn row(&self) -> Row {
        let duration = |millis: u64| wording::age(Duration::from_millis(millis));
        let no_end = self.trouble.contains(&Trouble::NoTtl);
        let lease = match self.lease_ms {
            Some(left) => duration(left).into(),
            None if no_end => Cell {
                text: "none".into(),
                tone: Tone::Bad,
            },
            None => "-".into(),
        };
        let waiting = match self.waiting {
            None => "?".to_owned(),
            Some(0) => "-".to_owned(),
            Some(many) => many.to_string(),
        };
        let worst = self.trouble.iter().map(Trouble::tone);
        let tone = worst
            .max_by_key(|tone| *tone == Tone::Bad)
            .unwrap_or_default();
        let notes: Vec<String> = self.trouble.iter().map(Trouble::brief).collect();
        Row {
            cells: vec![
                wording::printable(&self.key).into(),
                self.kind.map_or("?", Kind::word).into(),
                self.held_by().into(),
                self.held_ms.map_or_else(|| "-".into(), duration).into(),
                lease,
                waiting.into(),
            ],
            note: Cell {
                text: notes.join(", "),
                tone,
            },
        }
    }
}

/// The table of entries. The column of ages is left out where none is known.
pub(crate) fn table<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Table {
    let mut table = whole(entries);
    let held = 3;
    if table.rows.iter().all(|row| row.cells[held].text == "-") {
        table.leave_out("HELD");
    }
    table
}

fn whole<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Table {
    let column = |title, least| Column { title, least };
    Table {
        columns: vec![
            column("NAME", 12),
            column("KIND", 0),
            column("HOLDER", 12),
            column("HELD", 0),
            column("LEASE", 0),
            column("WAITING", 0),
        ],
        rows: entries.into_iter().map(Entry::row).collect(),
    }
}

const LONGEST: &str = "LONGEST";

/// The rows of a live table: the columns of `ls` and the longest wait, with the layout of each row. A narrow terminal gets fewer columns,
/// because cards would leave room for three names. `first` is left out after kind and lease and before `last`.
pub(crate) fn live<'a>(
    entries: impl IntoIterator<Item = &'a Entry> + Clone,
    [first, last]: [&str; 2],
    width: usize,
) -> (Blocks, Vec<Tone>) {
    // Always with every column: columns must not appear and disappear as holders do.
    let mut table = whole(entries.clone());
    table.columns.push(Column {
        title: LONGEST,
        least: 0,
    });
    for (row, entry) in table.rows.iter_mut().zip(entries) {
        let longest = entry.longest_wait_ms.map(Duration::from_millis);
        row.cells
            .push(longest.map_or_else(|| "-".into(), wording::age).into());
    }
    let tones = table.rows.iter().map(|row| row.note.tone).collect();
    for title in ["KIND", "LEASE", first, last] {
        if table.fits(width) {
            break;
        }
        table.leave_out(title);
    }
    (table.blocks(Some(width), false), tones)
}

/// The number of channels in one request.
const AT_ONCE: usize = 256;

/// Adds Redisson's waiting processes, which only their subscriptions show. Without the right to the command, nothing is added.
pub(crate) async fn add_subscribers(client: &Client, entries: &mut [Entry]) {
    let ask = match client.server().placement {
        Placement::Slots => ["PUBSUB", "SHARDNUMSUB"],
        _ => ["PUBSUB", "NUMSUB"],
    };
    let mut by_server: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Some(console) = client.console_of(&entry.key) {
            by_server
                .entry(console.server().to_owned())
                .or_default()
                .push(at);
        }
    }
    for at in by_server.values().flat_map(|all| all.chunks(AT_ONCE)) {
        let Some(console) = at
            .first()
            .and_then(|at| client.console_of(&entries[*at].key))
        else {
            continue;
        };
        let mut command: Vec<Vec<u8>> = ask.iter().map(|word| word.as_bytes().to_vec()).collect();
        command.extend(at.iter().map(|at| channel(&entries[*at])));
        let Ok(reply) = console.command(&command).await else {
            continue;
        };
        let pairs = reply.as_array().unwrap_or_default().chunks_exact(2);
        for (at, pair) in at.iter().zip(pairs) {
            let heard = pair[1].as_int().and_then(|n| u64::try_from(n).ok());
            entries[*at].add_listeners(heard.unwrap_or(0));
        }
    }
}

fn channel(entry: &Entry) -> Vec<u8> {
    // The key is the whole name, and a name that could not be checked has no channel of its own.
    let name = stanchion::Name::new("", &entry.key, Placement::Anywhere);
    let kind = entry.kind.unwrap_or(Kind::Lock);
    name.map_or_else(|_| Vec::new(), |name| beside::channel_of(&name, kind))
}

impl Entry {
    /// Counts the subscribers of Redisson's channel: its waiting processes, and the relay of the stanchion clients.
    fn add_listeners(&mut self, heard: u64) {
        let waiting = self.waiting.unwrap_or(0);
        let more = match self.kind {
            // The queue lists all waiters, each once.
            Some(Kind::Fair) => 0,
            // Waiters of these kinds do not subscribe.
            Some(Kind::RateLimiter | Kind::TokenBucket) => 0,
            // Each party has a place, by which it is counted.
            Some(Kind::Barrier | Kind::DoubleBarrier) => 0,
            // Each stanchion candidate is subscribed, too.
            Some(Kind::Election) => heard.saturating_sub(waiting),
            Some(Kind::Latch) => heard,
            _ if waiting > 0 => heard.saturating_sub(1),
            _ => heard,
        };
        self.waiting = Some(waiting + more);
    }
}

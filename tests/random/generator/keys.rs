//! Reads the contents of the servers as an administrator, without an effect on clients.

use stanchion::embedded::{Engine, Reply};

use crate::generator::resource::{Family, Resource};

pub(crate) fn ledger_of(name: &str) -> String {
    if name.contains('{') {
        format!("stanchion_permits_braced:{name}")
    } else {
        format!("stanchion_permits:{{{name}}}")
    }
}

/// The key of the leases of a leased semaphore.
pub(crate) fn leases_of(name: &str) -> String {
    if name.contains('{') {
        format!("{name}:timeout")
    } else {
        format!("{{{name}}}:timeout")
    }
}

pub(crate) fn run(engine: &Engine, database: u8, command: &[&str]) -> Reply {
    engine.execute(&["SELECT", &database.to_string()]);
    engine.execute(command)
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Int(n) => n.to_string(),
        other => format!("{other:?}"),
    }
}

fn pairs(reply: Reply) -> Vec<(String, String)> {
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(k, v)| (text(k), text(v))).collect(),
        Reply::Array(items) => items
            .chunks(2)
            .filter_map(|pair| Some((text(pair.first()?), text(pair.get(1)?))))
            .collect(),
        _ => Vec::new(),
    }
}

/// The state of one resource on its server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) exists: bool,
    /// For a lock the holders with their counts; for a semaphore the ledger.
    pub(crate) holders: Vec<(String, i64)>,
    /// For a semaphore the free permits; for a latch the count.
    pub(crate) number: i64,
    /// The number of leases of a leased semaphore, including ended ones.
    pub(crate) leases: i64,
    /// The value has another type than the family's.
    pub(crate) foreign: bool,
}

impl Snapshot {
    pub(crate) fn counted(&self) -> i64 {
        self.holders.iter().map(|(_, count)| count).sum()
    }

    /// Returns whether the name of a holder begins with `prefix`.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.holders
            .iter()
            .any(|(owner, _)| owner.starts_with(prefix))
    }
}

pub(crate) fn snapshot(engine: &Engine, resource: Resource) -> Snapshot {
    if resource.family.is_barrier() {
        return Snapshot::default();
    }
    let query = |command: &[&str]| run(engine, resource.database, command);
    let kind = match query(&["TYPE", resource.name]) {
        Reply::Status(kind) => kind,
        other => text(&other),
    };
    let mut seen = Snapshot {
        exists: kind != "none" && !resource.family.has_separate_keys(),
        ..Snapshot::default()
    };
    let wanted = match resource.family {
        Family::Hash | Family::Rate => "hash",
        _ => "string",
    };
    if seen.exists && kind != wanted {
        seen.foreign = true;
        return seen;
    }
    let counts = |reply| {
        pairs(reply)
            .into_iter()
            .filter(|(field, _)| field != "mode")
            .filter_map(|(field, count)| Some((field, count.parse().ok()?)))
            .collect()
    };
    match resource.family {
        Family::Hash if seen.exists => seen.holders = counts(query(&["HGETALL", resource.name])),
        Family::Hash | Family::Rate | Family::Bucket | Family::Barrier | Family::Double => {}
        Family::Permits | Family::Leased | Family::Latch => {
            if seen.exists {
                seen.number = text(&query(&["GET", resource.name]))
                    .parse()
                    .unwrap_or(i64::MIN);
            }
            if resource.family == Family::Permits {
                seen.holders = counts(query(&["HGETALL", &ledger_of(resource.name)]));
            }
            if resource.family == Family::Leased
                && let Reply::Int(n) = query(&["ZCARD", &leases_of(resource.name)])
            {
                seen.leases = n;
            }
        }
    }
    seen
}

/// The state of a barrier on its server.
#[derive(Clone, Debug)]
pub(crate) struct BarrierState {
    pub(crate) parties: u32,
    /// The number of the present round. A double barrier counts half rounds.
    pub(crate) present: u64,
    pub(crate) breaks: bool,
    /// Owners, with the remaining milliseconds of their places. A negative number is a place that has ended.
    pub(crate) places: Vec<(String, i64)>,
}

impl BarrierState {
    /// The number of valid places of this process.
    pub(crate) fn of(&self, process: &str) -> usize {
        let own = |(owner, left): &&(String, i64)| *left >= 0 && owner.starts_with(process);
        self.places.iter().filter(own).count()
    }
}

/// The keys of a barrier: its fields and its places.
pub(crate) fn barrier_keys(resource: Resource) -> [String; 2] {
    let kind = match resource.family {
        Family::Double => "double",
        _ => "barrier",
    };
    let keys = [format!("stanchion_{kind}"), format!("stanchion_{kind}_in")];
    keys.map(|key| key_for(&key, resource.name))
}

pub(crate) fn barrier_state(engine: &Engine, resource: Resource) -> Option<BarrierState> {
    let [barrier, places] = barrier_keys(resource);
    let list = |reply: Reply| match reply {
        Reply::Array(items) => Some(items),
        _ => None,
    };
    let fields = run(
        engine,
        resource.database,
        &["HMGET", &barrier, "n", "gen", "policy"],
    );
    let fields = list(fields)?;
    let field = |at: usize| fields.get(at).map(text).unwrap_or_default();
    let (parties, present) = (field(0).parse().ok()?, field(1).parse().ok()?);
    let time = list(engine.execute(&["TIME"]))?;
    let part = |at: usize| text(&time[at]).parse::<i64>().unwrap_or_default();
    let now = part(0) * 1_000 + part(1) / 1_000;
    let scores = list(engine.execute(&["ZRANGE", &places, "0", "-1", "WITHSCORES"]))?;
    let left = |entry: Reply| match list(entry)?.as_slice() {
        // Whole milliseconds, far below 2⁵³.
        [owner, Reply::Double(ends)] => {
            Some((text(owner), format!("{ends:.0}").parse::<i64>().ok()? - now))
        }
        _ => None,
    };
    Some(BarrierState {
        parties,
        present,
        breaks: field(2) == "b",
        places: scores.into_iter().filter_map(left).collect(),
    })
}

/// All keys of a database.
pub(crate) fn all(engine: &Engine, database: u8) -> Vec<String> {
    let mut keys: Vec<String> = match run(engine, database, &["KEYS", "*"]) {
        Reply::Array(keys) => keys.iter().map(text).collect(),
        _ => Vec::new(),
    };
    keys.sort();
    keys
}

/// The contents of all keys of a database, for a report.
pub(crate) fn dump(engine: &Engine, database: u8) -> Vec<String> {
    all(engine, database)
        .into_iter()
        .map(|key| {
            let query = |command: &[&str]| run(engine, database, command);
            let held = match query(&["TYPE", &key]) {
                Reply::Status(kind) => match kind.as_str() {
                    "string" => text(&query(&["GET", &key])),
                    "hash" => format!("{:?}", pairs(query(&["HGETALL", &key]))),
                    "list" => format!("{:?}", query(&["LRANGE", &key, "0", "-1"])),
                    "zset" => format!(
                        "{:?}",
                        pairs(query(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]))
                    ),
                    other => other.to_owned(),
                },
                other => text(&other),
            };
            let ttl = text(&query(&["PTTL", &key]));
            format!("{key} = {held}, {ttl} ms left")
        })
        .collect()
}

/// The keys of the counter and the log of a rate limiter.
pub(crate) fn limiter_keys(name: &str) -> [String; 2] {
    ["value", "permits"].map(|suffix| {
        if name.contains('{') {
            format!("{name}:{suffix}")
        } else {
            format!("{{{name}}}:{suffix}")
        }
    })
}

/// The key with this prefix in the hash slot of `name`.
pub(crate) fn key_for(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}_braced:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

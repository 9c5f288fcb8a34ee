//! The contents of the servers: read as an administrator, without disturbing anybody.

use stanchion::embedded::{Engine, Reply};

use crate::spot::{Family, Spot};

pub(crate) fn ledger_of(name: &str) -> String {
    if name.contains('{') {
        format!("stanchion_permits_braced:{name}")
    } else {
        format!("stanchion_permits:{{{name}}}")
    }
}

/// The leases of a leased semaphore.
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

/// The state of one spot on its server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) exists: bool,
    /// Of a lock: the holders with their counts. Of a semaphore: the ledger.
    pub(crate) holders: Vec<(String, i64)>,
    /// Of a semaphore or latch.
    pub(crate) number: i64,
    /// Of leased permits: how many leases there are, ended ones included.
    pub(crate) leases: i64,
    /// True for a value of another kind than the family's.
    pub(crate) foreign: bool,
}

impl Seen {
    pub(crate) fn counted(&self) -> i64 {
        self.holders.iter().map(|(_, count)| count).sum()
    }

    /// The same without the holders called so.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.holders.iter().any(|(who, _)| who.starts_with(prefix))
    }
}

pub(crate) fn look(engine: &Engine, spot: Spot) -> Seen {
    if spot.family.is_barrier() {
        return Seen::default();
    }
    let ask = |command: &[&str]| run(engine, spot.database, command);
    let kind = match ask(&["TYPE", spot.name]) {
        Reply::Status(kind) => kind,
        other => text(&other),
    };
    let mut seen = Seen {
        exists: kind != "none" && !spot.family.is_apart(),
        ..Seen::default()
    };
    let wanted = match spot.family {
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
    match spot.family {
        Family::Hash if seen.exists => seen.holders = counts(ask(&["HGETALL", spot.name])),
        Family::Hash | Family::Rate | Family::Bucket | Family::Barrier | Family::Double => {}
        Family::Permits | Family::Leased | Family::Latch => {
            if seen.exists {
                seen.number = text(&ask(&["GET", spot.name])).parse().unwrap_or(i64::MIN);
            }
            if spot.family == Family::Permits {
                seen.holders = counts(ask(&["HGETALL", &ledger_of(spot.name)]));
            }
            if spot.family == Family::Leased
                && let Reply::Int(n) = ask(&["ZCARD", &leases_of(spot.name)])
            {
                seen.leases = n;
            }
        }
    }
    seen
}

/// A barrier as its server has it.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) parties: u32,
    /// Of a double barrier: the half round.
    pub(crate) present: u64,
    pub(crate) breaks: bool,
    /// Owners, and for how many milliseconds their places are good.
    pub(crate) places: Vec<(String, i64)>,
}

impl Standing {
    /// The places of this process that are good.
    pub(crate) fn of(&self, process: &str) -> usize {
        let own = |(who, left): &&(String, i64)| *left >= 0 && who.starts_with(process);
        self.places.iter().filter(own).count()
    }
}

/// The keys of a barrier: it, and its places.
pub(crate) fn barrier_keys(spot: Spot) -> [String; 2] {
    let kind = match spot.family {
        Family::Double => "double",
        _ => "barrier",
    };
    let keys = [format!("stanchion_{kind}"), format!("stanchion_{kind}_in")];
    keys.map(|key| beside(&key, spot.name))
}

pub(crate) fn standing(engine: &Engine, spot: Spot) -> Option<Standing> {
    let [barrier, places] = barrier_keys(spot);
    let list = |reply: Reply| match reply {
        Reply::Array(items) => Some(items),
        _ => None,
    };
    let fields = run(
        engine,
        spot.database,
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
    Some(Standing {
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
            let ask = |command: &[&str]| run(engine, database, command);
            let held = match ask(&["TYPE", &key]) {
                Reply::Status(kind) => match kind.as_str() {
                    "string" => text(&ask(&["GET", &key])),
                    "hash" => format!("{:?}", pairs(ask(&["HGETALL", &key]))),
                    "list" => format!("{:?}", ask(&["LRANGE", &key, "0", "-1"])),
                    "zset" => format!(
                        "{:?}",
                        pairs(ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]))
                    ),
                    other => other.to_owned(),
                },
                other => text(&other),
            };
            let ttl = text(&ask(&["PTTL", &key]));
            format!("{key} = {held}, {ttl} ms left")
        })
        .collect()
}

/// The counter and the log of a rate limiter.
pub(crate) fn limiter_keys(name: &str) -> [String; 2] {
    ["value", "permits"].map(|what| {
        if name.contains('{') {
            format!("{name}:{what}")
        } else {
            format!("{{{name}}}:{what}")
        }
    })
}

/// A key of an election beside its leader's.
pub(crate) fn beside(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}_braced:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

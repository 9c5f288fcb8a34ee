//! Finding names by `SCAN` without disturbing the server: at most a twentieth of its time, no call longer than a millisecond.

mod pace;
mod progress;

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::console::{Console, Reply};
use stanchion::{Client, QueryError, Rejection};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use self::pace::Pace;
use self::progress::Progress;
use crate::beside::{self, Part};
use crate::exit::{self, Failure, Library};
use crate::look::Kind;
use crate::ping::round_trips;

const SCRIPT: &str = include_str!("../../lua/scan.lua");

/// The traces of one name.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    pub(crate) hold: Option<HashSeen>,
    /// The name is the hash of a rate limiter.
    pub(crate) limiter: bool,
    /// The derived keys of the name: the kind that each shows, its role, the number of its members.
    pub(crate) beside: Vec<Beside>,
}

/// A key that is derived from a name.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    pub(crate) kind: Option<Kind>,
    pub(crate) part: Part,
    pub(crate) members: u64,
}

/// A hash that looks like a hold.
#[derive(Clone, Debug)]
pub(crate) struct HashSeen {
    pub(crate) ttl: i64,
    pub(crate) fields: u64,
    /// The field `mode` of a read-write lock; empty if there is none.
    pub(crate) mode: String,
    /// An owner, as stored, and its hold count.
    pub(crate) owner: String,
    pub(crate) count: u64,
}

/// Finds of a scan.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Names, each once, with the server that has them.
    pub(crate) names: BTreeMap<Vec<u8>, Traces>,
    /// Keys without a TTL, by the reason for that; the empty text: without a reason.
    pub(crate) endless: BTreeMap<&'static str, Endless>,
    /// The number of keys looked at.
    pub(crate) keys: u64,
    /// False if the budget or the user ended it early.
    pub(crate) complete: bool,
}

/// Keys without a TTL.
#[derive(Debug, Default)]
pub(crate) struct Endless {
    pub(crate) count: u64,
    /// Examples of such keys.
    pub(crate) some: Vec<Vec<u8>>,
}

impl Endless {
    /// The largest number of examples.
    const MOST: usize = 3;

    fn add(&mut self, key: &[u8]) {
        self.count += 1;
        if self.some.len() < Self::MOST {
            self.some.push(key.to_vec());
        }
    }
}

/// The limits of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The longest time for all servers together.
    pub(crate) budget: Duration,
    /// The share of the server's time, in percent.
    pub(crate) duty: u32,
}

/// Reads every key of every server, within the limits. Ctrl-C ends the scan, which then returns its findings so far.
pub(crate) async fn scan(client: &Client, limits: Limits) -> Result<Found, Failure> {
    let until = Instant::now() + limits.budget;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut found = Found {
        complete: true,
        ..Found::default()
    };
    let mut progress = Progress::new();
    for console in client.consoles() {
        progress.of(total(&console).await);
        let done = one(
            &console,
            limits,
            until,
            &mut found,
            &mut progress,
            &mut interrupt,
        )
        .await;
        if done.is_err() {
            progress.end();
        }
        found.complete &= done.map_err(refused)?;
    }
    progress.end();
    Ok(found)
}

/// A right that is missing in a script is reported without its name.
fn refused(error: QueryError) -> Failure {
    match error {
        QueryError::Rejected { rejection } => Failure::new(
            exit::CONFIG,
            format_args!(
                "the scan was refused ({rejection}): it needs +scan +type +hrandfield +hlen +hget +pttl +eval"
            ),
        ),
        error => Library(error).into(),
    }
}

async fn total(console: &Console) -> u64 {
    let asked = console.command(&["DBSIZE"]).await;
    let size = asked.ok().and_then(|reply| reply.as_int());
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
}

async fn one(
    console: &Console,
    limits: Limits,
    until: Instant,
    found: &mut Found,
    progress: &mut Progress,
    interrupt: &mut Signal,
) -> Result<bool, QueryError> {
    let mut pace = Pace::new(limits.duty, round_trips(console, 5).await?.least);
    let mut cursor = b"0".to_vec();
    loop {
        let count = pace.count().to_string();
        let sent = Instant::now();
        let asked = [SCRIPT.as_bytes(), b"0", &cursor, count.as_bytes()];
        let reply = console
            .command(&[&[b"EVAL".as_slice()], asked.as_slice()].concat())
            .await?;
        let pause = pace.took(sent.elapsed());
        cursor = found.read(&reply).ok_or_else(|| unexpected(&reply))?;
        if cursor == b"0" {
            return Ok(true);
        }
        progress.show(found.keys, found.names.len());
        if Instant::now() + pause >= until {
            return Ok(false);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = interrupt.recv() => return Ok(false),
        }
    }
}

fn unexpected(reply: &Reply) -> QueryError {
    QueryError::Rejected {
        rejection: Rejection::Other {
            detail: format!("an unknown reply: {reply:?}"),
        },
    }
}

impl Found {
    /// Reads a page. Returns the next cursor; `None` if the reply is something else.
    fn read(&mut self, reply: &Reply) -> Option<Vec<u8>> {
        let [Reply::Bulk(cursor), seen, found @ ..] = reply.as_array()? else {
            return None;
        };
        self.keys += u64::try_from(seen.as_int()?).ok()?;
        for entry in found {
            let [kind, Reply::Bulk(key), ttl, size, rest @ ..] = entry.as_array()? else {
                return None;
            };
            let (ttl, size) = (ttl.as_int()?, u64::try_from(size.as_int()?).ok()?);
            match kind.as_text()? {
                "hold" => {
                    let hold = HashSeen::read(ttl, size, rest)?;
                    self.names.entry(key.clone()).or_default().hold = Some(hold);
                }
                "limiter" => {
                    self.names.entry(key.clone()).or_default().limiter = true;
                    if ttl == -1 {
                        self.endless.entry(beside::LIMITER).or_default().add(key);
                    }
                }
                _ => {
                    if ttl == -1 {
                        let reason = beside::stays(key);
                        self.endless.entry(reason).or_default().add(key);
                    }
                    self.beside(key, size);
                }
            }
        }
        Some(cursor.clone())
    }

    fn beside(&mut self, key: &[u8], members: u64) {
        // Keys that stay when a name is at rest do not prove that the name is in use.
        let Some(owner) = beside::owner_of(key).filter(|owner| owner.part != Part::Rest) else {
            return;
        };
        let traces = self.names.entry(owner.name).or_default();
        let beside = Beside {
            kind: owner.kind,
            part: owner.part,
            members,
        };
        // SCAN may list a key twice.
        traces
            .beside
            .retain(|other| (other.kind, other.part) != (beside.kind, beside.part));
        traces.beside.push(beside);
    }
}

impl HashSeen {
    fn read(ttl: i64, fields: u64, rest: &[Reply]) -> Option<Self> {
        let [mode, fields_seen @ ..] = rest else {
            return None;
        };
        let text = |reply: &Reply| match reply {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        let mut pairs = fields_seen.chunks_exact(2);
        let pair = pairs.find(|pair| pair[0].as_text() != Some("mode"))?;
        Some(Self {
            ttl,
            fields,
            mode: text(mode),
            owner: text(&pair[0]),
            count: pair[1]
                .as_int()
                .and_then(|n| u64::try_from(n).ok())
                .unwrap_or(0),
        })
    }
}

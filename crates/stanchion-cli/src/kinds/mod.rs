//! The kinds that are shown by what one function reads of a name: elections, jobs, rate limiters, token buckets, barriers.
//!
//! To add one:
//! * here: a file with a `read`, as `job.rs` has, and its arm in [`read`].
//! * `look.rs`: its [`Kind`], with the words for people and of processes.
//! * `beside.rs`: a row for each key that is derived from its names, the kind in `signs_of`, and its channel.
//!
//! Every command then shows it: `status`, `inspect`, `ls`, `top`, `doctor`, `watch`. `listed.rs` lists the kinds that a scan reads again.

mod barrier;
mod bucket;
mod election;
mod job;
pub(crate) mod limiter;
mod listed;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use stanchion::console::Console;
use stanchion::{Client, FencingToken, Name};

use crate::beside;
use crate::exit::{Failure, Library};
use crate::look::{Kind, Seen, ask_all};

/// Everything that commands show of a name.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    /// An acquire would have to wait now.
    pub(crate) held: bool,
    /// The server has a key of it.
    pub(crate) exists: bool,
    /// Its state in few words: `vacant`, `37 of 100/s free`.
    pub(crate) state: String,
    /// Tables show this text instead of a holder, for kinds without holders.
    pub(crate) brief: Option<String>,
    pub(crate) holders: Vec<Held>,
    /// The waiters, if the server has a list of them.
    pub(crate) standing: Vec<Standing>,
    /// The number of processes that wait. `None`: not known.
    pub(crate) waiting: Option<u64>,
    pub(crate) last_token: Option<FencingToken>,
    /// The number of free permits; `watch` reports its changes.
    pub(crate) number: Option<i64>,
    /// More facts for people: a label and a text.
    pub(crate) more: Vec<(&'static str, String)>,
    /// More for programs.
    pub(crate) json: Map<String, Value>,
}

/// A holder.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) owner: String,
    /// 0 for a job at rest.
    pub(crate) count: u32,
    /// A verb for people: `leads`, `runs`.
    pub(crate) what: &'static str,
    /// `None`: without an end.
    pub(crate) left: Option<Duration>,
    /// Since the beginning, where the server knows it.
    pub(crate) since: Option<Duration>,
}

/// A waiter.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) owner: String,
    /// A few words about it: `priority 3, 10.0.0.7:9000`.
    pub(crate) what: String,
    /// The time after which the waiter is removed unless it sends another request.
    pub(crate) left: Option<Duration>,
}

impl Facts {
    /// The facts of a name that has no key.
    fn nothing(kind: Kind, state: &str) -> Self {
        Self {
            kind,
            held: false,
            exists: false,
            state: state.into(),
            brief: None,
            holders: Vec::new(),
            standing: Vec::new(),
            waiting: Some(0),
            last_token: None,
            number: None,
            more: Vec::new(),
            json: Map::new(),
        }
    }

    /// Adds a value of the library to the JSON.
    fn tell(&mut self, what: &str, value: &impl Serialize) -> Result<(), Failure> {
        self.json.insert(what.into(), serde_json::to_value(value)?);
        Ok(())
    }
}

/// Reads what there is of `name`, as `kind`. `None`: it is shown by its own part of `look.rs`.
pub(crate) async fn read(
    client: &Client,
    name: &[u8],
    kind: Kind,
) -> Result<Option<Facts>, Failure> {
    let facts = match kind {
        Kind::Election => election::read(client, name).await?,
        Kind::Job => job::read(client, name).await?,
        Kind::RateLimiter => limiter::read(client, name).await?,
        Kind::TokenBucket => bucket::read(client, name).await?,
        Kind::Barrier => barrier::read(client, name).await?,
        Kind::DoubleBarrier => barrier::read_double(client, name).await?,
        _ => return Ok(None),
    };
    Ok(Some(facts))
}

/// Detects the kind of a name from its derived keys, if its own key looks like a lock, held or free.
pub(crate) async fn beside_a_lock(
    client: &Client,
    name: &[u8],
    is_held: bool,
) -> Result<Option<Kind>, Failure> {
    let name = client.name(name).map_err(Library)?;
    let signs: Vec<(Kind, Vec<u8>)> = beside::signs_of(&name)
        .into_iter()
        // A bucket or a barrier has nothing in common with a lock of its name.
        .filter(|(kind, _)| kind.is_a_lock() || !is_held)
        .collect();
    let asked = signs.iter().map(|(_, key)| exists(client, key.clone()));
    let found = ask_all(asked.collect::<Vec<_>>()).await;
    let mut kinds = signs.into_iter().zip(found).filter(|(_, found)| *found);
    Ok(kinds.next().map(|((kind, _), _)| kind))
}

/// Returns whether a key exists; false if the user may not read it.
fn exists(client: &Client, key: Vec<u8>) -> impl Future<Output = bool> + Send + use<> {
    let console = client.console_of(&key);
    async move {
        let Some(console) = console else { return false };
        let asked = console.command(&[b"EXISTS".as_slice(), &key]).await;
        asked.is_ok_and(|reply| reply.as_int() == Some(1))
    }
}

/// The time of the server that owns `name`.
async fn time_at(client: &Client, name: &Name) -> Option<u64> {
    server_micros(&client.console_of(name.as_bytes())?).await
}

/// The server's time in µs, for the ages of stored moments. `None`: the server does not answer, or the user lacks the right.
pub(crate) async fn server_micros(console: &Console) -> Option<u64> {
    let reply = console.command(&["TIME"]).await.ok()?;
    let part = |at: usize| reply.as_array()?.get(at)?.as_text()?.parse::<u64>().ok();
    Some(part(0)? * 1_000_000 + part(1)?)
}

impl Seen {
    /// The facts of a kind of this folder.
    pub(crate) const fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Told(facts) => Some(facts),
            _ => None,
        }
    }
}

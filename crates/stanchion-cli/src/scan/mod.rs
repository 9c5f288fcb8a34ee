//! Finding names by `SCAN` without disturbing the server: at most a twentieth of its time, no call longer than a millisecond.
//!
//! The server lists its keys, and this program selects those that it wants by their names, and reads these. Listing a key costs the
//! server a fraction of what reading it costs.

mod pace;
mod progress;
mod read;

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::console::{Console, Reply};
use stanchion::{Client, QueryError, Rejection};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use self::pace::Pace;
pub(crate) use self::progress::Progress;
use crate::beside::{self, Part};
use crate::exit::{self, Failure, Library};
use crate::gaps::Gaps;
use crate::look::Kind;

/// A command and its arguments.
type Command<'a> = Vec<&'a [u8]>;

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
    /// The servers that did not answer, whose names are missing.
    pub(crate) gaps: Gaps,
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

/// Lists every key of every server, within the limits, and reads those that are `wanted`. Ctrl-C ends the scan, which then returns its
/// findings so far. Fails only if no server answers, or one refuses.
pub(crate) async fn scan(
    client: &Client,
    limits: Limits,
    progress: &mut Progress,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Found, Failure> {
    let until = Instant::now() + limits.budget;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut found = Found {
        complete: true,
        ..Found::default()
    };
    let consoles = client.consoles();
    let several = consoles.len() > 1;
    let mut outage = None;
    for console in &consoles {
        progress.of(total(console).await);
        let server = Server {
            console,
            limits,
            until,
        };
        let done = server
            .scan(&wanted, &mut found, progress, &mut interrupt)
            .await;
        match done {
            Ok(complete) => found.complete &= complete,
            Err(error @ (QueryError::Unavailable { .. } | QueryError::Unanswered { .. }))
                if several =>
            {
                found.gaps.add(console.server(), &error);
                outage = Some(error);
            }
            Err(error) => {
                progress.end();
                return Err(refused(error));
            }
        }
    }
    progress.end();
    match outage {
        Some(error) if found.gaps.servers().len() == consoles.len() => Err(refused(error)),
        _ => Ok(found),
    }
}

fn refused(error: QueryError) -> Failure {
    match error {
        QueryError::Rejected { rejection } => Failure::new(
            exit::CONFIG,
            format_args!(
                "the scan was refused ({rejection}): it needs +scan +type +hrandfield +hlen +hget +pttl"
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

/// One server of a scan.
struct Server<'a> {
    console: &'a Console,
    limits: Limits,
    until: Instant,
}

impl Server<'_> {
    /// Returns whether all keys were seen.
    async fn scan(
        &self,
        wanted: &impl Fn(&[u8]) -> bool,
        found: &mut Found,
        progress: &mut Progress,
        interrupt: &mut Signal,
    ) -> Result<bool, QueryError> {
        let mut lists = Pace::of_lists(self.limits.duty);
        let mut reads = Pace::of_reads(self.limits.duty);
        let mut cursor = b"0".to_vec();
        // Keys that are read next, as many at a time as the pace permits.
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let count = lists.count().to_string();
            let command = vec![b"SCAN".as_slice(), &cursor, b"COUNT", count.as_bytes()];
            let (mut replies, took) = self.timed(vec![command]).await?;
            let reply = replies.pop().unwrap_or(Ok(Reply::Nil))?;
            let pause = lists.took(took, lists.count());
            let [Reply::Bulk(next), listed] = reply.as_array().unwrap_or_default() else {
                return Err(unexpected(&reply));
            };
            for key in listed.as_array().unwrap_or_default() {
                if let Reply::Bulk(key) = key {
                    found.keys += 1;
                    keys.extend(wanted(key).then(|| key.clone()));
                }
            }
            cursor.clone_from(next);
            let ended = cursor == b"0";
            let mut goes_on = self.rests(pause, interrupt).await;
            while goes_on && keys.len() >= reads.count() as usize {
                let pause = self.read(&mut keys, &mut reads, found).await?;
                goes_on = self.rests(pause, interrupt).await;
            }
            progress.show(found.keys, found.names.len());
            if ended || !goes_on {
                // What is listed is read in any case: it is little.
                while !keys.is_empty() {
                    tokio::time::sleep(self.read(&mut keys, &mut reads, found).await?).await;
                }
                return Ok(ended);
            }
        }
    }

    /// Reads the first of `keys`, and removes them. Returns the pause after that.
    async fn read(
        &self,
        keys: &mut Vec<Vec<u8>>,
        pace: &mut Pace,
        found: &mut Found,
    ) -> Result<Duration, QueryError> {
        let many = keys.len().min(pace.count() as usize);
        let some: Vec<Vec<u8>> = keys.drain(..many).collect();
        let took = read::read(self, &some, found).await?;
        Ok(pace.took(took, u32::try_from(many).unwrap_or(u32::MAX)))
    }

    /// Sends commands in one write. Returns their replies, and the time that they took the server, by the server's clock. The time of this
    /// program and of the network does not count.
    async fn timed(
        &self,
        mut commands: Vec<Command<'_>>,
    ) -> Result<(Vec<Result<Reply, QueryError>>, Duration), QueryError> {
        if commands.is_empty() {
            return Ok((Vec::new(), Duration::ZERO));
        }
        let time = || vec![b"TIME".as_slice()];
        commands.insert(0, time());
        commands.push(time());
        let sent = Instant::now();
        let mut replies = self.console.commands(&commands).await?;
        let most = sent.elapsed();
        // A refusal leaves out what its command reads. A server that answers nothing now (LOADING, BUSY) ends the scan, which would otherwise
        // call itself complete.
        let is_outage = |reply: &Result<Reply, QueryError>| matches!(reply, Err(error) if !matches!(error, QueryError::Rejected { .. }));
        if let Some(at) = replies.iter().position(is_outage) {
            replies.swap_remove(at)?;
        }
        let clock = |reply: Option<Result<Reply, QueryError>>| micros(&reply?.ok()?);
        let after = clock(replies.pop());
        let before = clock((!replies.is_empty()).then(|| replies.remove(0)));
        let between = after.zip(before).map(|(after, before)| after - before);
        let took = between.and_then(|it| u64::try_from(it).ok());
        Ok((replies, took.map_or(most, Duration::from_micros).min(most)))
    }

    /// Pauses. False: the scan ends here.
    async fn rests(&self, pause: Duration, interrupt: &mut Signal) -> bool {
        if Instant::now() + pause >= self.until {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            _ = interrupt.recv() => false,
        }
    }
}

/// The reply to `TIME`, in microseconds.
fn micros(time: &Reply) -> Option<i64> {
    let [seconds, micros] = time.as_array()? else {
        return None;
    };
    Some(seconds.as_int()? * 1_000_000 + micros.as_int()?)
}

fn unexpected(reply: &Reply) -> QueryError {
    QueryError::Rejected {
        rejection: Rejection::Other {
            detail: format!("an unknown reply: {reply:?}"),
        },
    }
}

impl Found {
    fn hold(&mut self, key: &[u8], hold: HashSeen) {
        self.names.entry(key.to_vec()).or_default().hold = Some(hold);
    }

    fn limiter(&mut self, key: &[u8], ttl: i64) {
        self.names.entry(key.to_vec()).or_default().limiter = true;
        if ttl == -1 {
            self.endless.entry(beside::LIMITER).or_default().add(key);
        }
    }

    fn derived(&mut self, key: &[u8], ttl: i64, members: u64) {
        if ttl == -1 {
            let reason = beside::stays(key);
            self.endless.entry(reason).or_default().add(key);
        }
        self.beside(key, members);
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

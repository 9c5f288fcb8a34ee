//! Deadlocks across names and processes: found in the records of processes and in the locks, and confirmed by a second read.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use stanchion_transport::Printable;
use uuid::Uuid;

use super::holders::Held;
use super::scene::Scene;
use super::tangle::{Graph, client_of, is_foreign};
use super::{Survey, SurveyedClient, SurveyedHold, SurveyedName, SurveyedWait};
use crate::client::Client;
use crate::error::QueryError;
use crate::millis::{Brief, as_millis};
use crate::token::FencingToken;

/// The time between two reads. Each running process writes its record at least once within this time.
pub(super) const APART: Duration = Duration::from_millis(11_500);

/// The certainty that the calls of a deadlock wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Certainty {
    /// Every actor is a scope ([`Actor`](crate::Actor)), an explicit owner, or a thread of Redisson. Every name is a lock whose holders are
    /// known.
    Certain,
    /// A task counts as an actor, although its guards may have moved or the task does several things at once. Or a call waits for permits,
    /// of which other actors may hold some.
    Suspected,
}

/// A deadlock: no call in it continues unless one of its calls gives up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Deadlock {
    /// Certainty.
    pub certainty: Certainty,
    /// The time after which the deadlock ends, because a call gives up or a lease without renewal ends. `None`: never.
    #[serde(rename = "until_ms", serialize_with = "as_millis")]
    pub until: Option<Duration>,
    /// The waits that form the deadlock.
    pub edges: Vec<DeadlockEdge>,
}

/// A waiter, and a party that blocks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadlockEdge {
    /// The name that is waited for.
    pub name: SurveyedName,
    /// The party that waits.
    pub waiter: DeadlockParty,
    /// The party that blocks the waiter.
    pub blocker: DeadlockParty,
    /// The reason why the blocker blocks the waiter.
    pub way: InTheWay,
}

/// The reason why a party blocks another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InTheWay {
    /// The blocker holds the name.
    Holds,
    /// The blocker waits for the name, too, and comes first: ahead in a fair lock's queue, or as a writer before waiting readers.
    Ahead,
}

/// A party of a deadlock. A field is `None` if the process does not report it; Redisson's processes report nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadlockParty {
    /// The owner as the server stores it; for Redisson, the instance and the thread.
    pub owner: String,
    /// The name of the application.
    pub app: Option<String>,
    /// The name of its machine.
    pub host: Option<String>,
    /// The number of its process on that machine.
    pub pid: Option<u32>,
    /// The kind of synchronizer, as the metrics call it.
    pub kind: Option<String>,
    /// The label of its [`Actor`](crate::Actor).
    pub label: Option<String>,
    /// The time for which it has held or waited.
    #[serde(rename = "since_ms", serialize_with = "as_millis")]
    pub since: Option<Duration>,
    /// The fencing token of its hold.
    pub token: Option<FencingToken>,
    /// Identifies a wait within its process.
    #[serde(skip)]
    pub(super) began: Option<u64>,
}

impl DeadlockParty {
    pub(super) fn holds(client: &SurveyedClient, hold: &SurveyedHold) -> Self {
        Self {
            kind: Some(hold.kind.clone()),
            label: hold.label.clone(),
            since: Some(hold.held),
            token: hold.token,
            ..Self::of(client, &hold.owner)
        }
    }

    pub(super) fn waits(client: &SurveyedClient, wait: &SurveyedWait) -> Self {
        Self {
            kind: Some(wait.kind.clone()),
            label: wait.label.clone(),
            since: Some(wait.waiting),
            began: Some(wait.began),
            ..Self::of(client, &wait.owner)
        }
    }

    pub(super) fn silent(owner: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            app: None,
            host: None,
            pid: None,
            kind: None,
            label: None,
            since: None,
            token: None,
            began: None,
        }
    }

    fn of(client: &SurveyedClient, owner: &str) -> Self {
        Self {
            app: Some(client.app.clone()),
            host: client.host.clone(),
            pid: Some(client.pid),
            ..Self::silent(owner)
        }
    }

    /// Returns the client: the first part of the owner.
    #[must_use]
    pub fn client(&self) -> Option<Uuid> {
        client_of(&self.owner)
    }

    /// Returns whether this is the same party at another time. A wait may use another owner after an outage.
    fn is_still(&self, before: &Self) -> bool {
        match (self.began, before.began) {
            (Some(began), Some(other)) => began == other && self.client() == before.client(),
            _ => (&self.owner, self.token) == (&before.owner, before.token),
        }
    }
}

/// The process and the owner: `orders-api (pid 4711, transfer 12) as 0197…:42`.
impl fmt::Display for DeadlockParty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(app) = &self.app else {
            return write!(f, "{}", Printable::new(&self.owner));
        };
        write!(f, "{} (", Printable::new(app))?;
        if let Some(pid) = self.pid {
            write!(f, "pid {pid}")?;
        }
        if let Some(label) = &self.label {
            write!(f, ", {}", Printable::new(label))?;
        }
        write!(f, ") as {}", Printable::new(&self.owner))
    }
}

/// One sentence: the waiter, how long it has waited, the name, and the blocker.
impl fmt::Display for DeadlockEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits", self.waiter)?;
        if let Some(since) = self.waiter.since {
            write!(f, " {}", Brief(since))?;
        }
        let way = match self.way {
            InTheWay::Holds => "holds",
            InTheWay::Ahead => "waits for first",
        };
        write!(f, " for {}, which {} {way}", self.name, self.blocker)
    }
}

impl Client {
    /// Finds deadlocks: calls in one or several processes that wait for each other indefinitely.
    ///
    /// Takes two [surveys](Client::survey), some 12 s apart, and each time reads the holders of the awaited names from the names themselves.
    /// Returns the deadlocks that are in both: the same calls wait for the same holds, and every process has written its record in between.
    /// Therefore each of them existed at the time of the first survey. No call is made to give up: see [`OnDeadlock`](crate::OnDeadlock).
    ///
    /// Redisson's holders are found, and Redisson's waiters in the queues of fair locks.
    ///
    /// Not found: waits of less than a second, and deadlocks through a lock outside of this library (a row in a database), through Redisson's
    /// waiters for anything else than fair locks, or through clients that report nothing. For names that this user may not read, the holders
    /// are the reported ones.
    ///
    /// On the wire: a survey, and one script for each awaited name and each held fair lock. All of this twice, if the first pass finds
    /// a deadlock.
    ///
    /// # Errors
    /// [`QueryError`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn deadlocks(&self) -> Result<Vec<Deadlock>, QueryError> {
        let before = Scene::of_all(self.core(), self.survey().await?).await;
        let before = before.deadlocks();
        if before.is_empty() {
            return Ok(Vec::new());
        }
        let began = self.now();
        self.core().runner.sleep(APART).await;
        let after = Scene::of_all(self.core(), self.survey().await?).await;
        let between = self.now().since(began);
        let old: Vec<&DeadlockEdge> = before.iter().flat_map(|it| &it.edges).collect();
        let mut found = after.deadlocks();
        found.retain(|it| is_confirmed(&it.edges, &old, &after, between));
        Ok(found)
    }
}

impl Survey {
    /// Returns the deadlocks in this survey. Its reports were written within some 10 s of each other and not at one moment, so a deadlock may
    /// have ended or may never have existed. The holders are the reported ones. [`Client::deadlocks`] reads twice, and reads the names
    /// themselves.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        Graph::of(&self.clients, &Held::default()).deadlocks()
    }
}

/// Returns whether `edges` were in the first read, and all of their processes have written their records again in the time `between`.
pub(super) fn is_confirmed(
    edges: &[DeadlockEdge],
    before: &[&DeadlockEdge],
    scene: &Scene,
    between: Duration,
) -> bool {
    let told_anew = |party: &DeadlockParty| {
        // A party that reports nothing was read from the server, both times.
        is_foreign(&party.owner)
            || scene
                .clients
                .iter()
                .any(|it| Some(it.client) == party.client() && it.age < between)
    };
    let is_old = |edge: &DeadlockEdge| {
        before.iter().any(|old| {
            (&edge.name, edge.way) == (&old.name, old.way)
                && edge.waiter.is_still(&old.waiter)
                && edge.blocker.is_still(&old.blocker)
        })
    };
    edges
        .iter()
        .all(|edge| is_old(edge) && told_anew(&edge.waiter) && told_anew(&edge.blocker))
}

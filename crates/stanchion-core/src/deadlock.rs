//! The report of a deadlock: which party waits for which, and why. The search is the survey's.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::millis::{Brief, as_millis};
use crate::token::FencingToken;
use stanchion_transport::Printable;

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
    /// The label of its `Actor`.
    pub label: Option<String>,
    /// The time for which it has held or waited.
    #[serde(rename = "since_ms", serialize_with = "as_millis")]
    pub since: Option<Duration>,
    /// The fencing token of its hold.
    pub token: Option<FencingToken>,
    /// The start of its wait, in µs of its client's clock: identifies the wait within its process.
    #[serde(skip)]
    pub began: Option<u64>,
}

impl DeadlockEdge {
    /// Makes an edge, for the survey.
    #[must_use]
    pub const fn new(
        name: SurveyedName,
        waiter: DeadlockParty,
        blocker: DeadlockParty,
        way: InTheWay,
    ) -> Self {
        Self {
            name,
            waiter,
            blocker,
            way,
        }
    }
}

impl DeadlockParty {
    /// Makes a party of which only the owner is known.
    #[must_use]
    pub fn new(owner: &str) -> Self {
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

    /// Returns the client: the first part of the owner.
    #[must_use]
    pub fn client(&self) -> Option<Uuid> {
        client_of(&self.owner)
    }

    /// Returns whether this is the same party at another time. A wait may use another owner after an outage.
    #[must_use]
    pub fn is_still(&self, before: &Self) -> bool {
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

/// Returns the client in an owner, Redisson's included: the first part.
#[must_use]
pub fn client_of(owner: &str) -> Option<Uuid> {
    owner.split_once(':')?.0.parse().ok()
}

/// A name as a process reports it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SurveyedName(Vec<u8>);

impl SurveyedName {
    /// Makes a name of its bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns its bytes, key prefix included. For a client that hides its names, `#` and the 8 hex digits that stand for the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows the name as [`Printable`] does.
impl fmt::Display for SurveyedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable::new(&self.0).fmt(f)
    }
}

impl fmt::Debug for SurveyedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Printable::new(&self.0), f)
    }
}

/// Serializes the name itself; bytes that are not UTF-8 become `�`.
impl Serialize for SurveyedName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(&self.0))
    }
}

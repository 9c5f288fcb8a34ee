//! Surveys of holders and waiters: in this process, and in all processes that share the servers.
//!
//! * [`local`]: the holds and waits of this process, without network requests.
//! * [`record`]: the same as text, short enough for the server.
//! * [`announcer`]: a background task that keeps this text on the server while there is something to report.
//! * [`remote`]: reads the texts of all processes.
//! * [`holders`]: reads the holders of a name from the keys of the name.
//! * [`scene`]: the records and holders that deadlock detection needs: those of all processes, or those reached from one wait.
//! * [`graph`]: finds the actors that wait for each other. Pure.
//! * [`tangle`]: makes the graph of a scene. Pure.
//! * [`deadlocks`]: reports the deadlocks that are found twice, for people.
//! * [`own`]: warns of a wait for a hold of the waiting task itself.
//! * [`watch`]: searches for a deadlock on behalf of one wait, which then gives up.
//!
//! A survey informs people. No renewal or release depends on it, and no acquire except those with [`OnDeadlock::Fail`](crate::OnDeadlock::Fail).

mod announcer;
mod deadlocks;
mod graph;
mod holders;
mod local;
pub(crate) mod own;
mod record;
mod remote;
mod scene;
mod tangle;
mod watch;

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use stanchion_transport::Printable;
use uuid::Uuid;

use crate::holders::Holders;
use crate::millis::as_millis;
use crate::token::FencingToken;

pub(crate) use announcer::{Announcer, run};
pub use deadlocks::{Certainty, Deadlock, DeadlockEdge, DeadlockParty, InTheWay};
pub(crate) use own::OwnHolds;
pub(crate) use scene::Looks;
pub(crate) use watch::{Watch, watch};

/// The holds and waits of all processes that report them. Short ones may be missing: see
/// [`Client::survey`](crate::Client::survey).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Survey {
    /// The processes, by their ids.
    pub clients: Vec<SurveyedClient>,
}

/// One client, with its holds and waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SurveyedClient {
    /// Its id: the first part of its owners.
    #[serde(serialize_with = "text")]
    pub client: Uuid,
    /// The name of the application: [`ClientConfig::name`](crate::ClientConfig#structfield.name).
    pub app: String,
    /// The name of its machine, if it is known (Linux).
    pub host: Option<String>,
    /// The number of its process on that machine.
    pub pid: u32,
    /// The version of this library that it uses.
    pub version: String,
    /// The time since it connected.
    #[serde(rename = "connected_ms", serialize_with = "millis")]
    pub connected: Duration,
    /// The time since its last report. At most some 10 s while the client runs; after 30 s the report expires.
    #[serde(rename = "age_ms", serialize_with = "millis")]
    pub age: Duration,
    /// Its holds, oldest first. A hold of several names is listed with each of them.
    pub holds: Vec<SurveyedHold>,
    /// Its waits, oldest first.
    pub waits: Vec<SurveyedWait>,
    /// The number of holds that did not fit into its report.
    pub more_holds: usize,
    /// The number of waits that did not fit into its report.
    pub more_waits: usize,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SurveyedHold {
    /// Name that is held.
    pub name: SurveyedName,
    /// The kind of synchronizer, as the metrics call it: `lock`, `fair lock`, `rwlock_read`, …
    pub kind: String,
    /// The owner, as the server stores it.
    pub owner: String,
    /// The number of its guards, or of its permits.
    pub count: u32,
    /// The fencing token, where there is one.
    pub token: Option<FencingToken>,
    /// The time since it was acquired.
    #[serde(rename = "held_ms", serialize_with = "millis")]
    pub held: Duration,
    /// The time for which the holder can rely on the hold without another renewal. `None` for permits without a lease, and for other
    /// processes, which do not report it.
    #[serde(rename = "lease_left_ms", serialize_with = "as_millis")]
    pub lease_left: Option<Duration>,
    /// The time until the hold ends without a release, because its lease is not renewed for longer. `None`: the hold is renewed, or has no lease.
    #[serde(rename = "ends_in_ms", serialize_with = "as_millis")]
    pub ends_in: Option<Duration>,
    /// The number of waiters for the name in the holder's own process.
    pub waiters: usize,
    /// The longest of their waits.
    #[serde(rename = "longest_wait_ms", serialize_with = "as_millis")]
    pub longest_wait: Option<Duration>,
    /// The actor that acquired it: a scope ([`Actor`](crate::Actor), `s` and a number), an explicit owner (`o` and a number), or a task of its
    /// process (`t` and its number). `None` outside of all three.
    pub actor: Option<String>,
    /// The label of the actor, if it is a scope.
    pub label: Option<String>,
    /// Describes how to read the holders from the server.
    #[serde(skip)]
    pub(crate) holders: Holders,
}

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SurveyedWait {
    /// Name that it waits for.
    pub name: SurveyedName,
    /// The kind of synchronizer, as the metrics call it.
    pub kind: String,
    /// The owner for which it requests the hold.
    pub owner: String,
    /// The number of permits that it needs; 1 for a lock.
    pub wanted: u32,
    /// The time since the call began.
    #[serde(rename = "waiting_ms", serialize_with = "millis")]
    pub waiting: Duration,
    /// The time after which it gives up. `None`: never.
    #[serde(rename = "gives_up_in_ms", serialize_with = "as_millis")]
    pub gives_up_in: Option<Duration>,
    /// The actor that waits, as [`SurveyedHold::actor`].
    pub actor: Option<String>,
    /// The label of the actor, if it is a scope.
    pub label: Option<String>,
    /// Set if it gives up in a deadlock: [`OnDeadlock::Fail`](crate::OnDeadlock::Fail).
    pub fails_on_deadlock: bool,
    #[serde(skip)]
    pub(crate) holders: Holders,
    /// Identifies the wait within its process, as long as the wait lasts.
    #[serde(skip)]
    pub(crate) began: u64,
}

/// A name as a process reports it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SurveyedName(Vec<u8>);

impl SurveyedName {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
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

fn text<S: serde::Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn millis<S: serde::Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    as_millis(&Some(*length), serializer)
}

//! Surveys of holders and waiters: in this process, and in all processes that share the servers.
//!
//! * [`local`]: what this process knows of itself, without the network.
//! * [`record`]: the same as text, short enough for the server.
//! * [`announcer`]: keeps that text on the server while there is something to tell, from the background.
//! * [`remote`]: reads the texts of all processes.
//! * [`holders`]: reads who holds a name, from the name itself.
//! * [`scene`]: the records and the holders that a question needs: of all processes, or what one wait leads to.
//! * [`graph`]: which of those who wait, wait for each other. Pure.
//! * [`tangle`]: makes the graph of a scene. Pure.
//! * [`deadlocks`]: what is found twice, for people.
//! * [`own`]: a wait for what the waiting task itself holds.
//! * [`watch`]: the same for one wait, which gives up.
//!
//! It informs people; no renewal or release depends on it, and no acquire but those that ask for [`OnDeadlock::Fail`](crate::OnDeadlock::Fail).

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

/// The holds and the waits of all processes that tell of themselves, as far as they last: see
/// [`Client::survey`](crate::Client::survey).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Survey {
    /// The processes, by their ids.
    pub clients: Vec<SurveyedClient>,
}

/// One client, with what it holds and waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SurveyedClient {
    /// Its id: the first part of its owners.
    #[serde(serialize_with = "text")]
    pub client: Uuid,
    /// The name of the application: [`ClientConfig::name`](crate::ClientConfig#structfield.name).
    pub app: String,
    /// The name of its machine, where it is known (Linux).
    pub host: Option<String>,
    /// The number of its process on that machine.
    pub pid: u32,
    /// The version of this library that it uses.
    pub version: String,
    /// The time since it connected.
    #[serde(rename = "connected_ms", serialize_with = "millis")]
    pub connected: Duration,
    /// The time since it told this. At most some 10 s while it lives; after 30 s it is forgotten.
    #[serde(rename = "age_ms", serialize_with = "millis")]
    pub age: Duration,
    /// Its holds, oldest first. A hold of several names stands here with each of them.
    pub holds: Vec<SurveyedHold>,
    /// Its waits, oldest first.
    pub waits: Vec<SurveyedWait>,
    /// The number of holds that did not fit into what it told.
    pub more_holds: usize,
    /// The number of waits that did not fit into what it told.
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
    /// The time for which its holder may still count on it, renewals aside. `None` of permits without a lease, and of another
    /// process, which does not tell it.
    #[serde(rename = "lease_left_ms", serialize_with = "as_millis")]
    pub lease_left: Option<Duration>,
    /// The time after which it ends though nobody releases it, because nobody renews it for longer. `None`: it is renewed.
    #[serde(rename = "ends_in_ms", serialize_with = "as_millis")]
    pub ends_in: Option<Duration>,
    /// The number of waiters for the name in the holder's own process.
    pub waiters: usize,
    /// The longest of their waits.
    #[serde(rename = "longest_wait_ms", serialize_with = "as_millis")]
    pub longest_wait: Option<Duration>,
    /// Actor that acquired it: a scope ([`Actor`](crate::Actor), `s` and a number), an explicit owner (`o` and a number), or within its process a
    /// task (`t` and its number). `None` outside of all three.
    pub actor: Option<String>,
    /// The label of the actor, if it is a scope.
    pub label: Option<String>,
    /// Where the server keeps who holds it.
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
    /// The owner that it asks for.
    pub owner: String,
    /// The number of permits that it wants; 1 of a lock.
    pub wanted: u32,
    /// The time since the call began.
    #[serde(rename = "waiting_ms", serialize_with = "millis")]
    pub waiting: Duration,
    /// The time after which it gives up. `None`: never.
    #[serde(rename = "gives_up_in_ms", serialize_with = "as_millis")]
    pub gives_up_in: Option<Duration>,
    /// Actor that waits, as [`SurveyedHold::actor`].
    pub actor: Option<String>,
    /// The label of the actor, if it is a scope.
    pub label: Option<String>,
    /// True if it gives up in a deadlock: [`OnDeadlock::Fail`](crate::OnDeadlock::Fail).
    pub fails_on_deadlock: bool,
    #[serde(skip)]
    pub(crate) holders: Holders,
    /// Tells it from other waits of its process, as long as it lasts.
    #[serde(skip)]
    pub(crate) began: u64,
}

/// A name as a process tells it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SurveyedName(Vec<u8>);

impl SurveyedName {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Returns its bytes, key prefix included. Of a client that tells no names, `#` and the 8 hex digits that stand for it.
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

/// Serializes the name itself; what is not UTF-8 becomes `�`.
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

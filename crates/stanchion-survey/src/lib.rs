//! Surveys of holders and waiters: in this process, and in all processes that share the servers.
//!
//! * `local`: the holds and waits of this process, without network requests.
//! * `record`: the same as text, short enough for the server.
//! * `announcer`: a background task that keeps this text on the server while there is something to report.
//! * `remote`: reads the texts of all processes.
//! * `holders`: reads the holders of a name from the keys of the name.
//! * `actor`: a tie between the holds and the waits of one piece of work.
//! * `scene`: the records and holders that deadlock detection needs: those of all processes, or those reached from one wait.
//! * `graph`: finds the actors that wait for each other. Pure.
//! * `tangle`: makes the graph of a scene. Pure.
//! * `deadlocks`: reports the deadlocks that are found twice, for people.
//! * `own`: warns of a wait for a hold of the waiting task itself.
//! * `search`: searches for a deadlock on behalf of one wait, which then gives up.
//! * `console`: plain commands to each server. `processes`: the processes that are connected.
//!
//! A survey informs people. No renewal or release depends on it, and no acquire except those with
//! [`OnDeadlock::Fail`](stanchion_core::OnDeadlock::Fail). Users reach all of it through the client of `stanchion-client`.

mod actor;
mod announcer;
mod console;
mod deadlocks;
mod graph;
mod holders;
mod local;
mod own;
mod processes;
mod record;
mod remote;
mod scene;
mod search;
mod tangle;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use stanchion_core::primitive::{
    ActorId, Boxed, Extension, GiveUp, Handle, Holders, Patient, Queued, WeakHandle, as_millis,
};
use stanchion_core::{FencingToken, QueryError, SurveyedName};
use stanchion_transport::{ClientConfig, Moment};
use tokio::sync::watch;
use uuid::Uuid;

use crate::actor::Labels;
use crate::announcer::Announcer;
use crate::own::OwnHolds;
use crate::scene::Looks;

pub use crate::actor::{Actor, actor};
pub use crate::console::{Console, Tracked, console_of, consoles};
pub use crate::deadlocks::{Certainty, Deadlock, deadlocks};
pub use crate::local::local_survey;
pub use crate::processes::{Process, Processes, processes};
pub use crate::remote::survey;

/// The part of a client that reports its holds and waits, and searches for deadlocks.
pub struct Surveys {
    /// The record of this process for other processes.
    announcer: Announcer,
    /// The labels of actors.
    labels: Arc<Labels>,
    /// The data that waits have read to find deadlocks. Its asynchronous mutex is held across requests, by background tasks.
    looks: Looks,
    /// The names for which a warning was logged because their holder waits for them.
    own: OwnHolds,
    /// Counts the writes to the keys that an operator's tool watches.
    writes: watch::Sender<u64>,
    /// The client itself, once it has started.
    client: OnceLock<WeakHandle>,
}

impl Surveys {
    /// Makes the surveys of a client with `config`.
    #[must_use]
    pub fn new(config: &ClientConfig) -> Self {
        Self {
            announcer: Announcer::new(config),
            labels: Arc::default(),
            looks: Looks::default(),
            own: OwnHolds::default(),
            writes: watch::Sender::new(0),
            client: OnceLock::new(),
        }
    }

    /// Starts to report the client's holds and waits. Called once.
    pub fn start(self: &Arc<Self>, handle: &Handle) {
        self.client.get_or_init(|| handle.downgrade());
        self.announcer.begin(handle.now());
        if self.announcer.is_on() {
            let reporting =
                announcer::run(self.weak(), self.announcer.bell(), handle.closed().clone());
            handle.runner().serve(reporting);
        }
    }

    fn weak(&self) -> WeakSite {
        WeakSite(self.client.get().cloned())
    }
}

impl Extension for Surveys {
    fn actor(&self) -> Option<ActorId> {
        Actor::current_id()
    }

    fn queued(&self, call: &Queued<'_>) {
        self.announcer.waits();
        own::at_once(&self.own, call);
    }

    fn give_up(&self, wait: &Patient<'_>) -> Option<Result<GiveUp, &'static str>> {
        Some(search::give_up(self.weak(), wait))
    }

    fn written(&self, _key: &[u8]) {
        self.writes.send_modify(|count| *count += 1);
    }

    fn end(&self, until: Moment) -> Boxed<'_, bool> {
        Box::pin(async move {
            match self.weak().upgrade() {
                Some(site) => self.announcer.leave(&site, until).await,
                // The client has not started, or was dropped.
                None => true,
            }
        })
    }
}

impl fmt::Debug for Surveys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surveys")
            .field("announcer", &self.announcer)
            .finish_non_exhaustive()
    }
}

/// A client with its surveys.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    handle: Handle,
    surveys: Arc<Surveys>,
}

/// A [`Site`] that does not keep its client alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakSite(Option<WeakHandle>);

impl Site {
    fn new(handle: &Handle, surveys: Arc<Surveys>) -> Self {
        Self {
            handle: handle.clone(),
            surveys,
        }
    }

    /// Returns the site of a client. A client without this extension has an empty one.
    fn of(handle: &Handle) -> Self {
        let surveys = handle.extension();
        let surveys = surveys.unwrap_or_else(|| Arc::new(Surveys::new(handle.config())));
        Self::new(handle, surveys)
    }

    fn downgrade(&self) -> WeakSite {
        WeakSite(Some(self.handle.downgrade()))
    }
}

impl WeakSite {
    fn upgrade(&self) -> Option<Site> {
        let handle = self.0.as_ref()?.upgrade()?;
        Some(Site::of(&handle))
    }
}

impl Deref for Site {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

/// The holds and waits of all processes that report them. Short ones may be missing: see
/// `Client::survey`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Survey {
    /// The processes, by their ids.
    pub clients: Vec<SurveyedClient>,
    /// The servers that did not answer. Processes whose records are there are missing. If such a server has the list of all records,
    /// processes that are not connected to another server are missing, too.
    pub unreached: Vec<Unreached>,
}

/// A server that did not answer, of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unreached {
    /// Its address without credentials; empty if no server is known to own a key.
    pub server: String,
    /// The error, in a line.
    pub why: String,
}

impl Unreached {
    /// Adds a server to `all`, once.
    fn add(all: &mut Vec<Self>, server: String, error: &QueryError) {
        if all.iter().all(|it| it.server != server) {
            let why = error.to_string();
            all.push(Self { server, why });
        }
    }
}

/// One client, with its holds and waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SurveyedClient {
    /// Its id: the first part of its owners.
    #[serde(serialize_with = "text")]
    pub client: Uuid,
    /// The name of the application: `ClientConfig::name`.
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
    /// The actor that acquired it: a scope ([`Actor`], `s` and a number), an explicit owner (`o` and a number), or a task of its
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
    /// Set if it gives up in a deadlock: [`OnDeadlock::Fail`](stanchion_core::OnDeadlock::Fail).
    pub fails_on_deadlock: bool,
    #[serde(skip)]
    pub(crate) holders: Holders,
    /// Identifies the wait within its process, as long as the wait lasts.
    #[serde(skip)]
    pub(crate) began: u64,
}

fn text<S: serde::Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn millis<S: serde::Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    as_millis(&Some(*length), serializer)
}

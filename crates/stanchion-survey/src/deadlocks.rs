//! Deadlocks across names and processes: found in the records of processes and in the locks, and confirmed by a second read.

use std::time::Duration;

use serde::Serialize;
use stanchion_core::primitive::{Handle, as_millis};
use stanchion_core::{DeadlockEdge, DeadlockParty, QueryError};

use crate::holders::Held;
use crate::remote::survey;
use crate::scene::Scene;
use crate::tangle::{Graph, is_foreign};
use crate::{Survey, SurveyedClient, SurveyedHold, SurveyedWait};

/// The time between two reads. Each running process writes its record at least once within this time.
pub(crate) const APART: Duration = Duration::from_millis(11_500);

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

/// Finds deadlocks: see `Client::deadlocks`.
///
/// # Errors
/// [`QueryError`].
pub async fn deadlocks(handle: &Handle) -> Result<Vec<Deadlock>, QueryError> {
    let before = Scene::of_all(handle, survey(handle).await?).await;
    let before = before.deadlocks();
    if before.is_empty() {
        return Ok(Vec::new());
    }
    let began = handle.now();
    handle.runner().sleep(APART).await;
    let after = Scene::of_all(handle, survey(handle).await?).await;
    let between = handle.now().since(began);
    let old: Vec<&DeadlockEdge> = before.iter().flat_map(|it| &it.edges).collect();
    let mut found = after.deadlocks();
    found.retain(|it| is_confirmed(&it.edges, &old, &after, between));
    Ok(found)
}

/// Returns the party that has `hold`.
pub(crate) fn holds(client: &SurveyedClient, hold: &SurveyedHold) -> DeadlockParty {
    let mut party = party(client, &hold.owner);
    party.kind = Some(hold.kind.clone());
    party.label.clone_from(&hold.label);
    party.since = Some(hold.held);
    party.token = hold.token;
    party
}

/// Returns the party that has `wait`.
pub(crate) fn waits(client: &SurveyedClient, wait: &SurveyedWait) -> DeadlockParty {
    let mut party = party(client, &wait.owner);
    party.kind = Some(wait.kind.clone());
    party.label.clone_from(&wait.label);
    party.since = Some(wait.waiting);
    party.began = Some(wait.began);
    party
}

fn party(client: &SurveyedClient, owner: &str) -> DeadlockParty {
    let mut party = DeadlockParty::new(owner);
    party.app = Some(client.app.clone());
    party.host.clone_from(&client.host);
    party.pid = Some(client.pid);
    party
}

impl Survey {
    /// Returns the deadlocks in this survey. Its reports were written within some 10 s of each other and not at one moment, so a deadlock may
    /// have ended or may never have existed. The holders are the reported ones. `Client::deadlocks` reads twice, and reads the names
    /// themselves.
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        Graph::of(&self.clients, &Held::default()).deadlocks()
    }
}

/// Returns whether `edges` were in the first read, and all of their processes have written their records again in the time `between`.
pub(crate) fn is_confirmed(
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

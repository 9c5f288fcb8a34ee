//! A wait that gives up in a deadlock: [`OnDeadlock::Fail`](stanchion_core::OnDeadlock::Fail).
//!
//! A background task searches, so nothing depends on how often the caller is polled. All waits of one deadlock read the same records,
//! their own included, and compute the same order. The first wait gives up. The second one waits for three more reads, and gives up if the
//! first has not. Nothing makes these two agree: a late first wait decides on data that is up to one record old, so both may give up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use stanchion_core::DeadlockEdge;
use stanchion_core::primitive::{GiveUp, Holders, Patient};
use stanchion_transport::{Failure, Moment, Presence, ServerRejection};

use crate::deadlocks::{APART, is_confirmed};
use crate::scene::Scene;
use crate::tangle::Graph;
use crate::{Site, SurveyedClient, SurveyedWait, WeakSite};

/// The time that a wait lasts before the first read.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// The number of further reads that a wait makes for each wait that is to give up before it.
const LOOKS_FOR_OTHERS: u32 = 3;

/// The age from which a decision is discarded, because the deadlock may have ended.
const OLD: Duration = Duration::from_secs(2);

/// The search for deadlocks on behalf of one wait. Dropping it ends the search.
#[derive(Debug)]
struct Watch {
    core: WeakSite,
    wait: Arc<WaitedFor>,
    found: oneshot::Receiver<Found>,
    _end: DropGuard,
}

/// The wait that may give up.
#[derive(Debug)]
struct WaitedFor {
    actor: String,
    /// Its names: a multi-lock waits for one of several.
    names: Vec<Vec<u8>>,
    /// Its start on the clock of the process, in µs.
    began: u64,
}

#[derive(Debug)]
struct Found {
    at: Moment,
    edges: Vec<DeadlockEdge>,
}

/// Returns the search for deadlocks of `wait`. It begins when it is first polled.
///
/// # Errors
/// The reason why the search could never have an effect.
pub(crate) fn give_up(weak: WeakSite, wait: &Patient<'_>) -> Result<GiveUp, &'static str> {
    if matches!(wait.sync.holders(), Holders::Untold | Holders::Permits) {
        return Err("on_deadlock: Fail is for locks, whose holders are known; not for permits");
    }
    let presence = weak.upgrade().map(|site| site.config().presence);
    if presence.is_some_and(|it| it != Presence::On) {
        return Err(
            "on_deadlock: Fail needs Presence::On: the others must see what this client holds",
        );
    }
    let Some(actor) = wait.actor.filter(|actor| actor.is_certain()) else {
        return Err(
            "on_deadlock: Fail needs an actor: a scope of Client::actor, or an explicit owner",
        );
    };
    let names = wait.sync.names();
    let first = wait.began + FIRST_LOOK;
    let wait = Arc::new(WaitedFor {
        actor: actor.to_string(),
        names: names.iter().map(|it| it.as_bytes().to_vec()).collect(),
        began: wait.began.micros(),
    });
    Ok(Box::pin(async move {
        match weak.upgrade() {
            Some(site) => Watch::begin(&site, wait, first).must_give_up().await,
            None => std::future::pending().await,
        }
    }))
}

impl Watch {
    fn begin(core: &Site, wait: Arc<WaitedFor>, first: Moment) -> Self {
        let (give, found) = oneshot::channel();
        let end = CancellationToken::new();
        let looking = look(core.downgrade(), Arc::clone(&wait), first, give);
        let (ended, closed) = (end.clone(), core.closed().clone());
        core.runner().serve(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = closed.cancelled() => {}
                () = looking => {}
            }
        });
        Self {
            core: core.downgrade(),
            wait,
            found,
            _end: end.drop_guard(),
        }
    }

    /// Resolves when the wait must give up. Cancel safe.
    async fn must_give_up(&mut self) -> Vec<DeadlockEdge> {
        loop {
            let found = (&mut self.found).await;
            let (Ok(found), Some(core)) = (found, self.core.upgrade()) else {
                // The search has ended, so no deadlock will be found.
                return std::future::pending().await;
            };
            let now = core.now();
            if now.since(found.at) < OLD {
                return found.edges;
            }
            // The caller was not polled in time. The deadlock may have ended, so search again.
            *self = Self::begin(&core, Arc::clone(&self.wait), now);
        }
    }
}

/// Searches until the wait must give up.
async fn look(core: WeakSite, wait: Arc<WaitedFor>, first: Moment, give: oneshot::Sender<Found>) {
    let mine = |client: &SurveyedClient, it: &SurveyedWait| {
        it.began == wait.began
            && it.actor.as_ref() == Some(&wait.actor)
            && wait.names.iter().any(|name| name == it.name.as_bytes())
            && client.age < APART
    };
    let mut next = first;
    let mut before: Option<(Moment, Vec<DeadlockEdge>)> = None;
    // The number of times in a row that the same deadlock was found again.
    let mut confirmed = 0;
    loop {
        let Some(strong) = core.upgrade() else { return };
        let pause = next.since(strong.now());
        drop(strong);
        tokio::time::sleep(pause).await;
        let Some(strong) = core.upgrade() else { return };
        let now = strong.now();
        next = now + APART;
        let own = strong.id();
        let mine =
            |client: &SurveyedClient, it: &SurveyedWait| client.client == own && mine(client, it);
        let Some(scene) = surroundings(&strong, &wait.actor).await else {
            (before, confirmed) = (None, 0);
            continue;
        };
        let Some((rank, edges)) = Graph::of(&scene.clients, &scene.held).to_give_up(mine) else {
            (before, confirmed) = (None, 0);
            continue;
        };
        let same = before.take().is_some_and(|(at, before)| {
            let before: Vec<&DeadlockEdge> = before.iter().collect();
            is_confirmed(&edges, &before, &scene, now.since(at))
        });
        confirmed = if same { confirmed + 1 } else { 0 };
        if confirmed > rank.saturating_mul(LOOKS_FOR_OTHERS) {
            // The receiver is closed if the caller has left.
            let at = strong.now();
            give.send(Found { at, edges }).ok();
            return;
        }
        before = Some((now, edges));
    }
}

/// Reads everything that the waits of `actor` lead to. `None`: nothing is known now.
async fn surroundings(core: &Site, actor: &str) -> Option<Scene> {
    let limit = core.config().operation_timeout;
    match tokio::time::timeout(limit, Scene::around(core, actor)).await {
        Ok(Ok(scene)) => scene,
        Ok(Err(Failure::Rejected(ServerRejection::NotPermitted { detail }))) => {
            if core.surveys.looks.first_refusal() {
                tracing::warn!(
                    detail,
                    "not permitted to search for deadlocks, so calls with OnDeadlock::Fail continue to wait; grant ~stanchion_client*"
                );
            }
            None
        }
        Ok(Err(failure)) => {
            tracing::debug!(?failure, "did not look for deadlocks");
            None
        }
        Err(_) => None,
    }
}

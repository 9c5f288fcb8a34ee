//! The releases of the last seconds, which are sent again when another server has become the master.
//!
//! Replication is asynchronous, and a replaced master accepts writes until its clients learn of the change. The new master lacks the last
//! writes: it still has holds that were released, and places of waiters that were served. A lease would end such a hold late, and a permit
//! without a lease would never end (P4). So the client records its releases, each with the server that received it. When another server
//! takes over the slot, the client sends the releases there, the last one first. In this order no place of a served waiter gets a grant.
//!
//! A wire owner is used for one hold only (rule R1). So a repeated release does nothing if the first one was not lost (P6).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::sweep::{LONGEST_OUTAGE, persist, served};
use crate::description::{Synchronizer, Tenure};
use crate::hold::holds::{Base, Holds};
use crate::lease::Lease;
use crate::wire_owner::WireOwner;
use stanchion_transport::{ClientConfig, Moment, Path, Servers};

/// The longest time until a sentinel notices that a replica has become the master: a sentinel polls replicas once a second.
const PROMOTION: Duration = Duration::from_secs(1);

/// The maximum number of recorded releases: about 1 MB, and a burst that a server handles in less than half a second.
const MOST: usize = 8192;

/// The number of releases that are sent at once. Renewals of the same connection wait for at most this many.
const AT_ONCE: usize = 64;

/// The releases of the last seconds. Any task adds one; [`run`] takes them.
#[derive(Debug)]
pub(crate) struct Releases {
    /// The time for which a release is kept; `None` if no other server can become the master.
    kept_for: Option<Duration>,
    /// In order of time. Locked for one access; only the slot map of the cluster is read under this lock.
    recent: Mutex<VecDeque<Released>>,
    /// Fires when a release is recorded whose master was replaced while the release was in flight.
    overtaken: Notify,
}

/// A release, or the end of a wait.
#[derive(Clone, Debug)]
struct Released {
    at: Moment,
    /// The number of the master that last received the release.
    master: u64,
    sync: Arc<dyn Synchronizer>,
    owner: WireOwner,
    lease: Lease,
}

impl Releases {
    pub(crate) fn new(config: &ClientConfig, servers: &Servers) -> Self {
        // A client writes to a replaced master until a sentinel reports the change. Before that the sentinel notices
        // the change, the client notices that its link to the sentinel is dead, and the client connects again.
        let kept_for = PROMOTION + config.silence_limit() + config.connect_timeout;
        Self {
            kept_for: servers.fails_over().then_some(kept_for),
            recent: Mutex::default(),
            overtaken: Notify::new(),
        }
    }

    /// Records that `owner` has given up its hold or its wait. `master`: the master before the request was sent, so
    /// never newer than the server that received the request.
    pub(crate) fn note(
        &self,
        core: &Holds,
        master: u64,
        sync: &Arc<dyn Synchronizer>,
        owner: &WireOwner,
        lease: Lease,
    ) {
        let Some(kept_for) = self.kept_for else {
            return;
        };
        // A completed arrival cannot be taken back: a release would break the round of the other participants.
        if sync.tenure() == Tenure::Nothing || sync.keeps_late_grants() {
            return;
        }
        let released = Released {
            at: core.clock.now(),
            master,
            sync: Arc::clone(sync),
            owner: owner.clone(),
            lease,
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(first) = recent.front()
            && (recent.len() >= MOST || released.at.since(first.at) > kept_for)
        {
            recent.pop_front();
        }
        recent.push_back(released);
        drop(recent);
        // The change of the master may have been handled before this release was recorded.
        if core.servers.master(core.slot_of(sync.name())) != master {
            self.overtaken.notify_one();
        }
    }

    /// Returns the releases that were sent to a former master, the last one first, and assigns them to the present
    /// master. The flag is true if the master of any release is out of reach.
    fn due(&self, core: &Holds) -> (Vec<Released>, bool) {
        let now = core.clock.now();
        let (mut due, mut out_of_reach) = (Vec::new(), false);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for released in recent.iter_mut().rev() {
            if released.ends().is_some_and(|ends| ends <= now) {
                continue;
            }
            let slot = core.slot_of(released.sync.name());
            out_of_reach |= !core.servers.reaches(slot);
            let master = core.servers.master(slot);
            if std::mem::replace(&mut released.master, master) != master {
                due.push(released.clone());
            }
        }
        (due, out_of_reach)
    }
}

impl Released {
    /// The moment at which the lease has ended the hold on every server; `None` without a lease.
    fn ends(&self) -> Option<Moment> {
        (self.sync.tenure() == Tenure::Leased).then(|| self.at + self.lease.length())
    }

    /// Sends the release to the present master until the master has answered.
    async fn repeat(&self, core: &Holds) {
        let Some(call) = self.sync.abandon(&self.owner, self.lease) else {
            return;
        };
        let until = self.ends();
        let until = until.unwrap_or_else(|| core.clock.now() + LONGEST_OUTAGE);
        let done = persist(core, &*self.sync, Path::Background, &call, until, false).await;
        if let Ok((reply, _)) = done {
            served(core, &*self.sync, &reply);
        }
    }
}

/// Sends releases again after each change of a master, until the client is closed. `changes` fires on every change of a connection and
/// of the masters.
pub(crate) async fn run(
    core: Weak<dyn Base>,
    releases: Arc<Releases>,
    mut changes: watch::Receiver<u64>,
    closed: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
            () = releases.overtaken.notified() => {}
        }
        let Some(core) = core.upgrade() else { return };
        let (due, out_of_reach) = releases.due(&core);
        if out_of_reach {
            // An idle client has no call that would find the new master. Each attempt to reconnect leads here.
            core.servers.doubt();
        }
        if due.is_empty() {
            continue;
        }
        tracing::debug!(
            releases = due.len(),
            "another master: releases are sent again"
        );
        let runner = Arc::clone(&core.runner);
        // A shutdown waits for the repetition, as for the first release.
        runner.finish(async move {
            for part in due.chunks(AT_ONCE) {
                join_all(part.iter().map(|released| released.repeat(&core))).await;
            }
        });
    }
}

//! The releases of the last seconds, which are sent again when another server has become the master.
//!
//! Replication is asynchronous, and a replaced master accepts writes until its clients learn of the change. The new master lacks the last
//! writes: holds that were released are still there, and so are the places of waiters that were served. A lease would end such a hold
//! late, and nothing else ends a permit without a lease (P4). So the client remembers its releases, and the server that each was sent
//! to. When another server serves their slot they are sent there, the last one first: then no place of a served waiter is granted to.
//!
//! A wire owner is used for one hold only (rule R1). A release that was not lost therefore does nothing the second time (P6).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::sweep::{LONGEST_OUTAGE, persist, served};
use crate::description::{Synchronizer, Tenure};
use crate::lease::Lease;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::{ClientConfig, Moment, Path, Servers};

/// The longest time after which a sentinel notices that a replica has become the master: a sentinel polls replicas once a second.
const PROMOTION: Duration = Duration::from_secs(1);

/// The number of releases that are remembered at most: about 1 MB, and a burst that a server works off in less than half a second.
const MOST: usize = 8192;

/// The number of releases that are sent at once. Renewals of the same connection wait for no more than these.
const AT_ONCE: usize = 64;

/// The releases of the last seconds. Any task adds one; [`run`] takes them.
#[derive(Debug)]
pub(crate) struct Releases {
    /// The time for which a release is remembered; `None` if no other server can become the master.
    kept_for: Option<Duration>,
    /// In order of time. Locked for one access; only the map of the cluster is read under it.
    recent: Mutex<VecDeque<Released>>,
    /// Fires when a release is recorded whose master was replaced while it was under way.
    overtaken: Notify,
}

/// A release, or the end of a wait.
#[derive(Clone, Debug)]
struct Released {
    at: Moment,
    /// The number of the master that it was last sent to.
    master: u64,
    sync: Arc<dyn Synchronizer>,
    owner: WireOwner,
    lease: Lease,
}

impl Releases {
    pub(crate) fn new(config: &ClientConfig, servers: &Servers) -> Self {
        // A client goes on writing to a replaced master until a sentinel says so: after the sentinel has noticed it, and the client
        // has noticed that its link to the sentinel was dead, and has connected again.
        let kept_for = PROMOTION + config.silence_limit() + config.connect_timeout;
        Self {
            kept_for: servers.fails_over().then_some(kept_for),
            recent: Mutex::default(),
            overtaken: Notify::new(),
        }
    }

    /// Records that `owner` has given up what it held or waited for. `master`: the one that served before the request was sent, so
    /// never newer than the server that the request reached.
    pub(crate) fn note(
        &self,
        core: &Core,
        master: u64,
        sync: &Arc<dyn Synchronizer>,
        owner: &WireOwner,
        lease: Lease,
    ) {
        let Some(kept_for) = self.kept_for else {
            return;
        };
        // What an arrival has completed cannot be taken back: a release would break the round of others.
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
        // The change may have been handled before this was recorded.
        if core.servers.master(core.slot_of(sync.name())) != master {
            self.overtaken.notify_one();
        }
    }

    /// Returns those that were sent to a former master, the last one first, and records that they are sent to the present one. The
    /// flag is true if the master of any is out of reach.
    fn due(&self, core: &Core) -> (Vec<Released>, bool) {
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
    /// The moment at which its lease has ended the hold on every server; `None` without a lease.
    fn ends(&self) -> Option<Moment> {
        (self.sync.tenure() == Tenure::Leased).then(|| self.at + self.lease.length())
    }

    /// Sends it to the present master until that has answered.
    async fn repeat(&self, core: &Arc<Core>) {
        let Some(call) = self.sync.abandon(&self.owner, self.lease) else {
            return;
        };
        let until = self.ends();
        let until = until.unwrap_or_else(|| core.clock.now() + LONGEST_OUTAGE);
        let done = persist(core, &*self.sync, Path::Background, &call, until, false).await;
        if let Ok((reply, _)) = done {
            served(core, &self.sync, &reply);
        }
    }
}

/// Sends releases again after each change of a master, until the client is closed. `changes` fires on every change of a connection and
/// of the masters.
pub(crate) async fn run(
    core: Weak<Core>,
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
        // A shutdown waits for it, as for the first time.
        runner.finish(async move {
            for part in due.chunks(AT_ONCE) {
                join_all(part.iter().map(|released| released.repeat(&core))).await;
            }
        });
    }
}

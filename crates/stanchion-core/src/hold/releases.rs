//! The last releases, which are sent again when a server may have lost them.
//!
//! * **Another master.** Replication is asynchronous, and a replaced master accepts writes until its clients learn of the change. The new
//!   master lacks the writes of the last seconds.
//! * **A restart.** A server that was killed loads its last snapshot, which is up to an hour old by default.
//!
//! The server then still has holds that were released, and places of waiters that were served. A lease would end such a hold late, and a
//! permit without a lease would never end (P4). So the client records its releases, each with the server that received it. When another
//! server takes over the slot, or the server has restarted, the client sends the releases again, the last one first. In this order no place
//! of a served waiter gets a grant.
//!
//! A wire owner is used for one hold only (rule R1), so a repeated release does nothing if the first one was not lost (P6). If it was lost,
//! the release frees the name, although the server may have lost a later grant, too: a hand-off inside this process, for example. P1: before
//! the releases, the client therefore checks its own holds. A hold that the server lacks is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::sweep::{LONGEST_OUTAGE, persist, served};
use crate::about::Tenure;
use crate::description::Synchronizer;
use crate::hold::holds::{Base, Holds};
use crate::hold::state::HoldState;
use crate::lease::Lease;
use crate::name::Name;
use crate::watchdog;
use crate::wire_owner::WireOwner;
use stanchion_transport::{ClientConfig, Moment, Path};

/// The longest time until a sentinel notices that a replica has become the master: a sentinel polls replicas once a second.
const PROMOTION: Duration = Duration::from_secs(1);

/// The longest time between two snapshots of a server with Redis's default `save`, if anything was written.
const SNAPSHOTS: Duration = Duration::from_secs(3600);

/// The maximum number of recorded releases: about 1 MB, and a burst that a server handles in less than half a second. By Redis's default, 10000
/// writes cause a snapshot after a minute.
const MOST: usize = 8192;

/// The number of releases that are sent at once. Renewals of the same connection wait for at most this many.
const AT_ONCE: usize = 64;

/// The last releases. Any task adds one; [`run`] takes them.
#[derive(Debug)]
pub(crate) struct Releases {
    /// The age of the oldest release that a failover may lose.
    unreplicated: Duration,
    /// In order of time. Locked for one access; only the slot map of the cluster is read under this lock.
    recent: Mutex<VecDeque<Released>>,
    /// Fires when a release is recorded whose server was replaced or restarted while the release was in flight.
    overtaken: Notify,
}

/// The server process that requests for a name reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    master: u64,
    restarts: u64,
}

impl Process {
    fn of(core: &Holds, slot: u16) -> Self {
        Self {
            master: core.servers.master(slot),
            restarts: core.servers.restarts(),
        }
    }

    /// The process that the next request for `name` reaches, or an earlier one.
    pub(crate) fn now(core: &Holds, name: &Name) -> Self {
        Self::of(core, core.slot_of(name))
    }
}

/// A release, or the end of a wait.
#[derive(Clone, Debug)]
struct Released {
    at: Moment,
    /// The process that last received the release.
    by: Process,
    sync: Arc<dyn Synchronizer>,
    owner: WireOwner,
    lease: Lease,
}

impl Releases {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        Self {
            // A client writes to a replaced master until a sentinel reports the change. Before that the sentinel notices
            // the change, the client notices that its link to the sentinel is dead, and the client connects again.
            unreplicated: PROMOTION + config.silence_limit() + config.connect_timeout,
            recent: Mutex::default(),
            overtaken: Notify::new(),
        }
    }

    /// Records that `owner` has given up its hold or its wait. `by`: the process before the request was sent, so
    /// never newer than the one that received the request.
    pub(crate) fn note(
        &self,
        core: &Holds,
        by: Process,
        sync: &Arc<dyn Synchronizer>,
        owner: &WireOwner,
        lease: Lease,
    ) {
        // A completed arrival cannot be taken back: a release would break the round of the other participants.
        if sync.hold().is_none() || sync.about().keeps_late_grants {
            return;
        }
        let released = Released {
            at: core.clock.now(),
            by,
            sync: Arc::clone(sync),
            owner: owner.clone(),
            lease,
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(first) = recent.front()
            && (recent.len() >= MOST || first.ends() <= released.at)
        {
            recent.pop_front();
        }
        recent.push_back(released);
        drop(recent);
        // The change of the process may have been handled before this release was recorded.
        if Process::now(core, sync.name()) != by {
            self.overtaken.notify_one();
        }
    }

    /// Returns the releases that the server may have lost, the last one first, and assigns all of them to the present
    /// processes. The flag is true if the master of any release is out of reach.
    fn due(&self, core: &Holds) -> (Vec<Released>, bool) {
        let now = core.clock.now();
        let (mut due, mut out_of_reach) = (Vec::new(), false);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for released in recent.iter_mut().rev() {
            if released.ends() <= now {
                continue;
            }
            let slot = core.slot_of(released.sync.name());
            out_of_reach |= !core.servers.reaches(slot);
            let by = Process::of(core, slot);
            let before = std::mem::replace(&mut released.by, by);
            let unreplicated =
                before.master != by.master && now.since(released.at) <= self.unreplicated;
            if unreplicated || before.restarts != by.restarts {
                due.push(released.clone());
            }
        }
        (due, out_of_reach)
    }
}

impl Released {
    /// The moment from which no server has the hold: its lease has ended, or the server has a later snapshot.
    fn ends(&self) -> Moment {
        self.at
            + match self.sync.tenure() {
                Tenure::Leased => SNAPSHOTS.min(self.lease.length()),
                _ => SNAPSHOTS,
            }
    }

    /// Sends the release to the present master until the master has answered.
    async fn repeat(&self, core: &Holds) {
        let Some(hold) = self.sync.hold() else {
            return;
        };
        let call = hold.abandon(&self.owner, self.lease);
        let until = match self.sync.tenure() {
            Tenure::Leased => self.at + self.lease.length(),
            _ => core.clock.now() + LONGEST_OUTAGE,
        };
        let done = persist(core, &*self.sync, Path::Background, &call, until, false).await;
        if let Ok((reply, _)) = done {
            served(core, &*self.sync, &reply);
        }
    }
}

/// Sends releases again after each change of a server's process, until the client is closed. `changed` fires on every change of a connection
/// and of the masters.
pub(crate) async fn run(
    core: Weak<dyn Base>,
    releases: Arc<Releases>,
    changed: Arc<Notify>,
    closed: CancellationToken,
) {
    let mut known = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = changed.notified() => {}
            () = releases.overtaken.notified() => {}
        }
        let Some(core) = core.upgrade() else { return };
        let (due, out_of_reach) = releases.due(&core);
        if out_of_reach {
            // An idle client has no call that would find the new master. Each attempt to reconnect leads here.
            core.servers.doubt();
        }
        let doubtful = doubtful(&core, &mut known, &due);
        if due.is_empty() && doubtful.is_empty() {
            continue;
        }
        tracing::debug!(
            releases = due.len(),
            holds = doubtful.len(),
            "another process serves: holds are checked, and releases are sent again"
        );
        let runner = Arc::clone(&core.runner);
        // A shutdown waits for the repetition, as for the first release.
        runner.finish(async move {
            for part in doubtful.chunks(AT_ONCE) {
                join_all(part.iter().map(|hold| watchdog::confirm(&core, hold))).await;
            }
            for part in due.chunks(AT_ONCE) {
                join_all(part.iter().map(|released| released.repeat(&core))).await;
            }
        });
    }
}

/// Returns the live holds that the server may have lost: those of slots with another process than at the last call, and of slots with releases
/// that are due. `known` has the processes.
fn doubtful(
    core: &Holds,
    known: &mut BTreeMap<u16, Process>,
    due: &[Released],
) -> Vec<Arc<HoldState>> {
    let slot = |hold: &Arc<HoldState>| core.slot_of(hold.sync.name());
    for released in due {
        known.remove(&core.slot_of(released.sync.name()));
    }
    let mut holds = core.live_holds();
    let now: BTreeMap<_, _> = holds
        .iter()
        .map(|hold| (slot(hold), Process::of(core, slot(hold))))
        .collect();
    holds.retain(|hold| known.get(&slot(hold)) != now.get(&slot(hold)));
    *known = now;
    holds
}

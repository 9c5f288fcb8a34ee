//! The claim of an owner with what cleans up after it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use crate::description::Synchronizer;
use crate::free_by::FreeBy;
use crate::hold::claim::Claim;
use crate::hold::holds::Base;
use crate::hold::releases::Process;
use crate::hold::sweep::sweep;
use crate::lease::Lease;
use crate::wire_owner::WireOwner;
use stanchion_transport::Moment;

/// The time after which the server grants no more to an entry in a queue: the TTL of a queue without requests plus the length of a grant by
/// message (1.5 s), see `line.lua`.
const STANDS: Duration = Duration::from_millis(151_500);

/// All that one owner may have on the server: a hold, a place in a queue, a request that may still run.
///
/// The caller, its request in flight and its hold share the debt. The drop of the last reference sweeps (P3), so a sweep follows the requests
/// that it undoes. While the owner holds, the end of the hold cleans up.
#[derive(Debug)]
pub(crate) struct Debt {
    pub(crate) core: Arc<dyn Base>,
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) owner: WireOwner,
    /// Locked for one access; no other mutex is taken under it.
    claim: Mutex<Claim>,
}

impl Debt {
    /// Creates the debt of an owner that was never used. `lease`: the longest lease that its requests contain.
    pub(crate) fn new(core: Arc<dyn Base>, sync: &Arc<dyn Synchronizer>, lease: Lease) -> Self {
        Self::of(core.next_wire_owner(), core, sync, lease)
    }

    /// As [`Debt::new`], for `owner`.
    pub(crate) fn of(
        owner: WireOwner,
        core: Arc<dyn Base>,
        sync: &Arc<dyn Synchronizer>,
        lease: Lease,
    ) -> Self {
        Self {
            core,
            sync: Arc::clone(sync),
            owner,
            claim: Mutex::new(Claim::new(lease)),
        }
    }

    /// Passes the queue entry of this owner, which has nothing else on the server, to the acquire of `own`.
    pub(crate) fn pass_to(&self, own: &Self) -> Arc<Self> {
        let lease = own.claim().lease();
        let next = Self::of(self.owner.clone(), Arc::clone(&own.core), &own.sync, lease);
        let claim = self.record(Claim::take).with_lease(lease);
        next.record(|it| *it = claim);
        Arc::new(next)
    }

    /// Changes the claim.
    pub(crate) fn record<R>(&self, change: impl FnOnce(&mut Claim) -> R) -> R {
        change(&mut self.claim.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The present claim.
    pub(crate) fn claim(&self) -> Claim {
        self.record(|it| *it)
    }

    /// Returns whether a request that runs late may leave something on the server, which has to be cleaned up.
    fn leaves(&self) -> bool {
        self.sync.hold().is_some()
    }

    /// Records that a request is in flight, which may run until `ends_by`.
    pub(crate) fn sends(&self, ends_by: Moment) {
        if self.leaves() {
            self.record(|it| it.sends(ends_by));
        }
    }

    /// Records a request without an answer, which may run until `ends_by`.
    pub(crate) fn unanswered(&self, ends_by: Moment) {
        if self.leaves() {
            self.record(|it| it.unanswered(ends_by));
        }
    }

    /// The longest life of a hold that the server may have, or that a request in flight may still get.
    pub(crate) fn free_by(&self) -> FreeBy {
        self.core.free_by(self.sync.tenure(), self.claim().lease())
    }

    /// The longest life of a leftover of the requests so far; `None` if there can be no leftover.
    pub(crate) fn leftover(&self) -> Option<FreeBy> {
        let claim = self.claim();
        if claim.until() > Moment::ZERO {
            return Some(self.free_by());
        }
        // P8: the server may grant to a place in its queue until that place is given up.
        (claim.arrived() > 0).then(|| (STANDS + self.core.config.response_timeout).into())
    }

    /// Removes the hold, and all else of this owner, in the background: at once, and again when no request can run any more.
    pub(crate) fn sweep(&self) {
        let left = self.record(Claim::take);
        self.sweep_recorded(left, None);
    }

    /// As [`Debt::sweep`], without a record that a server which loses the release gets it again.
    pub(super) fn sweep_unrecorded(&self) {
        let left = self.record(Claim::take);
        sweep(&self.core, &self.sync, &self.owner, left, None);
    }

    fn sweep_recorded(&self, left: Claim, done: Option<oneshot::Sender<()>>) {
        let to = Process::now(&self.core, self.sync.name());
        self.core
            .releases
            .note(&self.core, to, &self.sync, &self.owner, left.lease());
        sweep(&self.core, &self.sync, &self.owner, left, done);
    }

    /// Sweeps now. The future resolves to `true` once the first release is confirmed and no earlier request can run
    /// any more, or if there is nothing to sweep. Dropping the future does not stop the sweep.
    pub(crate) fn give_up(&self) -> impl Future<Output = bool> + Send + Unpin + use<> {
        let (done, confirmed) = oneshot::channel();
        match self.record(Claim::take_leftover) {
            Some(left) => self.sweep_recorded(left, Some(done)),
            None => done.send(()).unwrap_or_default(),
        }
        confirmed.map(|confirmed| confirmed.is_ok())
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        // P3, rule R2.
        if let Some(left) = self.record(Claim::take_leftover) {
            self.sweep_recorded(left, None);
        }
    }
}

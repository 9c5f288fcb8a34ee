//! The record of an owner: all that it may have on the server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use crate::description::{Synchronizer, Tenure};
use crate::free_by::FreeBy;
use crate::hold::holds::Base;
use crate::hold::sweep::Leftover;
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
    owed: Mutex<Owed>,
}

/// The part of a [`Debt`] that changes. Locked for one access; no other mutex is taken under it.
#[derive(Clone, Copy, Debug)]
struct Owed {
    /// The longest lease that a request contained: it bounds how long the server keeps a hold. Raised before each request.
    lease: Lease,
    /// True from the grant until a release was answered or given up.
    held: bool,
    /// The end of the time in which an unanswered request may still run.
    unanswered_until: Moment,
    /// The same of the request in flight; zero without one.
    asks_until: Moment,
    /// True once the server knows that the owner waits.
    queued: bool,
    /// The arrival time of the owner's place in a line, server time in µs; 0 without a place.
    arrived: u64,
}

impl Owed {
    /// The end of the time in which any request may still run; zero if none can.
    fn until(&self) -> Moment {
        self.unanswered_until.max(self.asks_until)
    }

    /// Takes all but the lease: from then on nothing is owed.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::of(self.lease))
    }

    const fn of(lease: Lease) -> Self {
        Self {
            lease,
            held: false,
            unanswered_until: Moment::ZERO,
            asks_until: Moment::ZERO,
            queued: false,
            arrived: 0,
        }
    }
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
            owed: Mutex::new(Owed::of(lease)),
        }
    }

    /// Passes the queue entry of this owner, which has nothing else on the server, to the acquire of `own`.
    pub(crate) fn pass_to(&self, own: &Self) -> Arc<Self> {
        let (owner, lease) = (self.owner.clone(), own.longest_lease());
        let next = Self::of(owner, Arc::clone(&own.core), &own.sync, lease);
        let owed = self.owed().take();
        *next.owed() = Owed { lease, ..owed };
        Arc::new(next)
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request is in flight, which may run until `ends_by`.
    pub(crate) fn asks(&self, ends_by: Moment) {
        if self.sync.tenure() != Tenure::Nothing {
            self.owed().asks_until = ends_by;
        }
    }

    /// Records that no request is in flight any more.
    pub(crate) fn answered(&self) {
        self.owed().asks_until = Moment::ZERO;
    }

    /// Records a request without an answer, which may run until `ends_by`.
    pub(crate) fn unanswered(&self, ends_by: Moment) {
        // A late run that leaves nothing on the server needs no clean-up.
        if self.sync.tenure() != Tenure::Nothing {
            let mut owed = self.owed();
            owed.unanswered_until = owed.unanswered_until.max(ends_by);
        }
    }

    /// Records that the server knows that the owner waits.
    pub(crate) fn queued(&self) {
        let mut owed = self.owed();
        owed.queued = !owed.held;
    }

    /// Records that the owner has a place in a line, since `arrived`. A grant by message may have come before this reply, and has ended the place.
    pub(crate) fn placed(&self, arrived: u64) {
        let mut owed = self.owed();
        if !owed.held {
            (owed.queued, owed.arrived) = (true, arrived);
        }
    }

    /// Records that the owner holds. The grant has ended its place on the server.
    pub(crate) fn granted(&self) {
        let mut owed = self.owed();
        (owed.held, owed.queued, owed.arrived) = (true, false, 0);
    }

    /// Records that a release that was sent at `sent` was answered, or given up. Rule R2: only a release after all requests is final.
    pub(super) fn released(&self, sent: Moment) {
        let mut owed = self.owed();
        owed.held = false;
        if owed.until() <= sent {
            owed.take();
        }
    }

    /// Records that a request for `lease` is about to be sent.
    pub(super) fn asks_for(&self, lease: Lease) {
        let mut owed = self.owed();
        owed.lease = owed.lease.max(lease);
    }

    /// The longest lease that was requested from the server.
    pub(crate) fn longest_lease(&self) -> Lease {
        self.owed().lease
    }

    /// The end of the time in which any request of this owner may still run; zero if none can.
    pub(crate) fn until(&self) -> Moment {
        self.owed().until()
    }

    /// The arrival time of the owner's place in a line; 0 without a place.
    pub(crate) fn arrived(&self) -> u64 {
        self.owed().arrived
    }

    /// Returns whether the server knows that the owner waits.
    pub(crate) fn is_queued(&self) -> bool {
        self.owed().queued
    }

    /// Returns whether a request was not answered.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.owed().unanswered_until > Moment::ZERO
    }

    /// Clears the debt: another client has it now.
    pub(super) fn settle(&self) {
        self.owed().take();
    }

    /// The longest life of a hold that the server may have, or that a request in flight may still get.
    pub(crate) fn free_by(&self) -> FreeBy {
        self.core.free_by(self.sync.tenure(), self.longest_lease())
    }

    /// The longest life of a leftover of the requests so far; `None` if there can be no leftover.
    pub(crate) fn leftover(&self) -> Option<FreeBy> {
        let (until, arrived) = {
            let owed = self.owed();
            (owed.until(), owed.arrived)
        };
        if until > Moment::ZERO {
            return Some(self.free_by());
        }
        // P8: the server may grant to a place in its queue or line until that place is given up.
        (arrived > 0).then(|| (STANDS + self.core.config.response_timeout).into())
    }
}

impl Debt {
    /// Clears the debt and returns its leftover, which the caller must sweep. `None`: there is no leftover, or a hold cleans up.
    fn take_leftover(&self) -> Option<Leftover> {
        let mut owed = self.owed();
        let owes = !owed.held && (owed.until() > Moment::ZERO || owed.queued);
        owes.then(|| self.leftover_of(&owed.take()))
    }

    fn leftover_of(&self, owed: &Owed) -> Leftover {
        Leftover {
            owner: self.owner.clone(),
            lease: owed.lease,
            unanswered_until: owed.until(),
            queued: owed.queued,
        }
    }

    /// Removes the hold, and all else of this owner, in the background: at once, and again when no request can run any more.
    pub(crate) fn sweep(&self) {
        let owed = self.owed().take();
        self.leftover_of(&owed).sweep(&self.core, &self.sync);
    }

    /// As [`Debt::sweep`], without a record that a server which loses the release gets it again.
    pub(super) fn sweep_unrecorded(&self) {
        let owed = self.owed().take();
        let leftover = self.leftover_of(&owed);
        leftover.sweep_and_tell(&self.core, &self.sync, None);
    }

    /// Sweeps now. The future resolves to `true` once the first release is confirmed and no earlier request can run
    /// any more, or if there is nothing to sweep. Dropping the future does not stop the sweep.
    pub(crate) fn give_up(&self) -> impl Future<Output = bool> + Send + Unpin + use<> {
        let (done, told) = oneshot::channel();
        match self.take_leftover() {
            Some(leftover) => {
                leftover.note(&self.core, &self.sync);
                leftover.sweep_and_tell(&self.core, &self.sync, Some(done));
            }
            None => done.send(()).unwrap_or_default(),
        }
        told.map(|told| told.is_ok())
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        // P3, rule R2.
        if let Some(leftover) = self.take_leftover() {
            leftover.sweep(&self.core, &self.sync);
        }
    }
}

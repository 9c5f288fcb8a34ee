//! The claim of an owner as plain data: all that it may have on the server, from its first request until the server has confirmed that nothing is left.
//!
//! `Debt` (`debt.rs`) has it under a mutex and cleans up after it. It reads no clock and does no I/O, so the explorer runs it, too.

use std::fmt;

use crate::lease::Lease;
use stanchion_transport::Moment;

/// The hold of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldStage {
    /// It has none, as far as this client knows.
    Free,
    /// From the grant to the end here.
    Held,
    /// From the end here until a release was answered or given up.
    Ended,
}

/// All that one owner may have on the server.
#[derive(Clone, Copy)]
pub struct Claim {
    /// The longest lease that a request contained: it bounds how long the server keeps a hold.
    lease: Lease,
    stage: HoldStage,
    /// The end of the time in which an unanswered request may still run.
    unanswered_until: Moment,
    /// The same of the request in flight; zero without one.
    in_flight_until: Moment,
    /// True once the server knows that the owner waits.
    queued: bool,
    /// The arrival time of the owner's place in a queue, server time in µs; 0 without a place.
    arrived: u64,
}

impl Claim {
    /// The claim of an owner whose requests will contain `lease`, and which has sent none.
    #[must_use]
    pub const fn new(lease: Lease) -> Self {
        Self {
            lease,
            stage: HoldStage::Free,
            unanswered_until: Moment::ZERO,
            in_flight_until: Moment::ZERO,
            queued: false,
            arrived: 0,
        }
    }

    /// Takes all but the lease: from then on the owner has nothing.
    #[must_use]
    pub const fn take(&mut self) -> Self {
        let rest = Self::new(self.lease);
        std::mem::replace(self, rest)
    }

    /// Takes what the owner may have left, which has to be swept. `None`: it has left nothing, or a hold cleans up.
    #[must_use]
    pub fn take_leftover(&mut self) -> Option<Self> {
        let leaves = self.until() > Moment::ZERO || self.queued;
        let leaves = leaves && self.stage == HoldStage::Free;
        leaves.then(|| self.take())
    }

    /// The same claim with another lease, for the acquire that the entry of its owner is passed to.
    #[must_use]
    pub const fn with_lease(self, lease: Lease) -> Self {
        Self { lease, ..self }
    }

    /// Records that a request for `lease` is about to be sent.
    pub fn requests(&mut self, lease: Lease) {
        self.lease = self.lease.max(lease);
    }

    /// Records that a request is in flight, which may run until `until`.
    pub const fn sends(&mut self, until: Moment) {
        self.in_flight_until = until;
    }

    /// Records that no request is in flight any more.
    pub const fn answered(&mut self) {
        self.in_flight_until = Moment::ZERO;
    }

    /// Records a request without an answer, which may run until `until`.
    pub fn unanswered(&mut self, until: Moment) {
        self.unanswered_until = self.unanswered_until.max(until);
    }

    /// Records that the server knows that the owner waits.
    pub fn queued(&mut self) {
        self.placed(self.arrived);
    }

    /// Records that a reply reports a place in a queue, since `arrived`. While the owner holds, the place is older than the hold: a grant by message
    /// has ended it, and was faster than this reply. Once the hold has ended, the request may have run after the release.
    pub fn placed(&mut self, arrived: u64) {
        if self.stage != HoldStage::Held {
            (self.queued, self.arrived) = (true, arrived);
        }
    }

    /// Records that the owner holds. The grant has ended its place on the server.
    pub const fn granted(&mut self) {
        (self.stage, self.queued, self.arrived) = (HoldStage::Held, false, 0);
    }

    /// Records that the hold has ended here, and that its release is about to be sent.
    pub const fn ends(&mut self) {
        self.stage = HoldStage::Ended;
    }

    /// Records that a release that was sent at `sent` was answered, or given up. Rule R2: only a release after all requests is final.
    pub fn released(&mut self, sent: Moment) {
        self.stage = HoldStage::Free;
        // P3: a place was reported after the release had been sent.
        if self.until() <= sent && !self.queued {
            *self = Self::new(self.lease);
        }
    }

    /// The longest lease that was requested from the server.
    #[must_use]
    pub const fn lease(&self) -> Lease {
        self.lease
    }

    /// The end of the time in which any request of this owner may still run; zero if none can.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.unanswered_until.max(self.in_flight_until)
    }

    /// Returns whether a request is in flight.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.in_flight_until > Moment::ZERO
    }

    /// The arrival time of the owner's place in a queue; 0 without a place.
    #[must_use]
    pub const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns whether the server knows that the owner waits.
    #[must_use]
    pub const fn is_queued(&self) -> bool {
        self.queued
    }

    /// Returns whether a request was not answered.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.unanswered_until > Moment::ZERO
    }
}

/// Without the lease: two claims that go on alike have the same text.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = (
            self.unanswered_until.micros(),
            self.in_flight_until.micros(),
        );
        (self.stage, until, self.queued, self.arrived).fmt(f)
    }
}

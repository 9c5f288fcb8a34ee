//! The options of one acquire.

use std::time::Duration;

use crate::actor::Actor;
use crate::lease::Lease;
use crate::owner::Owner;

/// The party that renews the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The client renews every third of the lease until release, loss or `max_hold` (P10).
    #[default]
    Watchdog,
    /// Only the caller renews, with `guard.renew()`.
    Manual,
}

/// The effect of an acquire whose owner holds already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reentry {
    /// The owner holds once more.
    #[default]
    Allowed,
    /// The acquire is refused with [`Rejection::AlreadyHeld`](crate::Rejection::AlreadyHeld), as by Redisson's non-reentrant
    /// locks: for code where holding twice is a bug.
    Refused,
}

/// Options of one acquire. The defaults: a new owner, wait for ever, the synchronizer's lease (30 s), watchdog on.
#[derive(Clone, Debug, Default)]
pub struct AcquireOptions {
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Option<Lease>,
    pub(crate) first_lease: Option<Lease>,
    pub(crate) renewal: Renewal,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) reentry: Reentry,
}

impl AcquireOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Acquires as `owner`, and so re-enters what it holds already.
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Sets whether [`AcquireOptions::owner`] may hold more than once.
    #[must_use]
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
        self
    }

    /// Returns whether these options name an owner, for primitives that support none.
    #[must_use]
    pub fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// The timeout of these options, for primitives that acquire in several steps.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.timeout
    }

    /// Sets the lease of this hold.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the first lease, if it is longer than the others: for this time the server keeps the hold even if this process dies
    /// at once, or its guard is [left](crate::primitive::Hold::leave). Renewals never shorten it. On a fair lock that was waited
    /// for it begins with the first renewal, at most a second later.
    #[must_use]
    pub fn first_lease(mut self, lease: Lease) -> Self {
        self.first_lease = Some(lease);
        self
    }

    /// Sets the party that renews the lease.
    #[must_use]
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// Sets the time after which the acquire gives up. Zero asks the server once.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the longest hold: after it the watchdog stops and the guard is lost, so a leaked guard cannot block for ever.
    /// Default: none.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }
}

/// The options that outlive the acquire: the watchdog and the guard follow them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldTerms {
    pub(crate) lease: Lease,
    /// The lease that the acquire asks for; never shorter than `lease`.
    pub(crate) first_lease: Lease,
    pub(crate) renewal: Renewal,
    pub(crate) max_hold: Option<Duration>,
    /// Actor that acquires, for those who look for deadlocks. Nothing is decided by it.
    pub(crate) actor: Option<Actor>,
}

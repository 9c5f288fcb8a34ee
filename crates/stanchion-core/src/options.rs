//! What a caller may choose about one acquire.

use std::time::Duration;

use crate::lease::Lease;
use crate::owner::Owner;

/// Who keeps the lease alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The client renews every third of the lease until release, loss or `max_hold` (P10).
    #[default]
    Watchdog,
    /// Nobody but the caller, with `guard.renew()`.
    Manual,
}

/// What happens when the owner of an acquire holds already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reentry {
    /// It holds once more.
    #[default]
    Allowed,
    /// The acquire is refused with [`Rejection::AlreadyHeld`](crate::Rejection::AlreadyHeld), as Redisson's non-reentrant
    /// locks do: for code where holding twice is a bug.
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

    /// Acquire as `owner`: re-enter what it holds already.
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Whether [`AcquireOptions::owner`] may hold more than once.
    #[must_use]
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
        self
    }

    /// The owner these options name, for primitives that know no owners.
    #[must_use]
    pub fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// The timeout these options give, for primitives that acquire in several steps.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.timeout
    }

    /// The lease of this hold.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The lease to begin with, if it is longer than the others: for so long the server keeps the hold even if this process
    /// dies at once, or its guard is [left](crate::primitive::Hold::leave). Renewals never shorten it. On a fair lock that
    /// was waited for it begins with the first renewal, at most a second later.
    #[must_use]
    pub fn first_lease(mut self, lease: Lease) -> Self {
        self.first_lease = Some(lease);
        self
    }

    /// Who renews.
    #[must_use]
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// Give up after `timeout`. Zero asks the server once.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The watchdog stops here, and the guard is lost: a bound on what a leaked guard can block. Default: none.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }
}

/// How the watchdog and the guard treat one hold: the options that outlive the acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldTerms {
    pub(crate) lease: Lease,
    /// What the server is asked for at the beginning; never shorter than `lease`.
    pub(crate) first_lease: Lease,
    pub(crate) renewal: Renewal,
    pub(crate) max_hold: Option<Duration>,
}

//! The options of one acquire.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::owner::Owner;
use crate::terms::{OnDeadlock, Renewal};

/// The effect of an acquire by an owner that already holds the name.
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

/// Options of one acquire. The defaults: a new owner, no timeout, the synchronizer's lease (30 s), watchdog on.
///
/// An option that could have no effect is rejected ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)). Examples are a lease for the
/// permits of a plain semaphore, an owner for the wait for a latch, and `on_queued` for a try.
#[derive(Clone, Debug, Default)]
pub struct AcquireOptions {
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Option<Duration>,
    pub(crate) first_lease: Option<Duration>,
    pub(crate) renewal: Renewal,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) reentry: Reentry,
    pub(crate) rest_after_crash: Duration,
    pub(crate) on_queued: Option<OnQueued>,
    pub(crate) on_deadlock: OnDeadlock,
}

/// Reads options. For primitives that check an option, or acquire in several steps.
pub trait ReadOptions {
    /// Returns whether these options name an owner.
    fn has_owner(&self) -> bool;

    /// The lease of these options, or `default`. Not checked.
    fn lease_or(&self, default: Duration) -> Duration;

    /// The first lease of these options, or `default`. Not checked.
    fn first_lease_or(&self, default: Duration) -> Duration;

    /// The timeout of these options.
    fn patience(&self) -> Option<Duration>;

    /// Returns the first of these options that only a wait for one name gives an effect.
    fn of_a_wait(&self) -> Option<&'static str>;
}

impl ReadOptions for AcquireOptions {
    fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    fn lease_or(&self, default: Duration) -> Duration {
        self.lease.unwrap_or(default)
    }

    fn first_lease_or(&self, default: Duration) -> Duration {
        self.first_lease.unwrap_or(default)
    }

    fn patience(&self) -> Option<Duration> {
        self.timeout
    }

    fn of_a_wait(&self) -> Option<&'static str> {
        if self.on_queued.is_some() {
            return Some("on_queued");
        }
        (self.on_deadlock == OnDeadlock::Fail).then_some("on_deadlock: Fail")
    }
}

/// The function to call when an acquire has to wait.
#[derive(Clone)]
pub(crate) struct OnQueued(Arc<dyn Fn() + Send + Sync>);

impl OnQueued {
    pub(crate) fn call(&self) {
        (self.0)();
    }
}

impl fmt::Debug for OnQueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnQueued")
    }
}

impl AcquireOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The defaults, by reference.
    #[doc(hidden)]
    #[must_use]
    pub fn none() -> &'static Self {
        static NONE: LazyLock<AcquireOptions> = LazyLock::new(AcquireOptions::default);
        &NONE
    }

    /// Acquires as `owner`, and so re-enters a hold that this owner already has.
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Sets whether [`AcquireOptions::owner`] may hold more than once. Without an owner, [`Reentry::Refused`] could have no effect, so the acquire
    /// is rejected ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)).
    #[must_use]
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
        self
    }

    /// Sets the lease of this hold: 10 ms to 30 days, in whole milliseconds. Another one is rejected at the acquire
    /// ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)). Default: the lease of the synchronizer.
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = Some(lease.into());
        self
    }

    /// Sets a first lease that is longer than the later ones: for this time the server keeps the hold even if this process dies at once, or its
    /// guard is [left](crate::primitive::Hold::leave). Neither renewals nor `max_hold` shorten it. On a fair lock, after a wait, the first lease
    /// begins with the first renewal, at most a second later.
    ///
    /// A first lease that is shorter than the lease would have no effect, so the acquire is rejected
    /// ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)). For a hold that ends sooner, set a shorter lease.
    #[must_use]
    pub fn first_lease(mut self, lease: impl Into<Duration>) -> Self {
        self.first_lease = Some(lease.into());
        self
    }

    /// Sets the party that renews the lease.
    #[must_use]
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// Sets the time after which the acquire gives up. Zero sends one request.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Keeps the name taken for `rest` after the lease when this process dies or is cut off. Its last writes then have time to land, or to be
    /// noticed, before the next holder begins (Consul calls it a lock delay). A hold ends at once if it is released, or if its process has noticed
    /// the loss. Default: none.
    ///
    /// The server's TTL is the lease plus `rest`; the holder relies on the lease alone. The acquire is rejected
    /// ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)) if both exceed 30 days together; a longer first lease counts in place of the
    /// lease. The option delays other owners, but does not exclude them for certain: for that, use the fencing token. A fair lock, or a lock that was
    /// acquired after a wait, has the rest from its first renewal on, at most a second after the grant.
    #[must_use]
    pub fn rest_after_crash(mut self, rest: Duration) -> Self {
        self.rest_after_crash = rest;
        self
    }

    /// Calls `told` when the acquire has to wait: once, at its first refusal or when it joins other waiters of this process. Use it
    /// to inform a user, or to start reading the position in a fair lock's queue. A multi-lock that acquires its members one by one calls it for
    /// each member. A try and a RedLock, which do not wait in a queue, are rejected with it
    /// ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)).
    ///
    /// The waiting task makes the call, so `told` must not block.
    #[must_use]
    pub fn on_queued(mut self, told: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_queued = Some(OnQueued(Arc::new(told)));
        self
    }

    /// Sets the effect of a deadlock across names on the call. Default: the call continues to wait.
    #[must_use]
    pub fn on_deadlock(mut self, on_deadlock: OnDeadlock) -> Self {
        self.on_deadlock = on_deadlock;
        self
    }

    /// Returns the first of these options, with its value, that only a lease gives an effect.
    pub(crate) fn of_a_lease(&self) -> Option<String> {
        let rest = Some(self.rest_after_crash).filter(|rest| !rest.is_zero());
        let lengths = [
            ("lease", self.lease),
            ("first_lease", self.first_lease),
            ("max_hold", self.max_hold),
            ("rest_after_crash", rest),
        ];
        let mut set = lengths.into_iter().filter_map(|(option, length)| {
            Some(format!("{option} {}", humantime::format_duration(length?)))
        });
        let manual = || (self.renewal == Renewal::Manual).then(|| "renewal Manual".to_owned());
        set.next().or_else(manual)
    }

    /// Sets the longest hold: after it the watchdog stops and the guard is lost, so a leaked guard cannot block indefinitely.
    /// Default: none.
    ///
    /// The limit counts from the grant for the whole life of the hold: `renew_for`, re-entry and a downgrade do not restart it, and a ticket carries
    /// the end to the client that adopts it. No renewal keeps the name taken on the server for longer, except for the safety margin of a lease (1 %,
    /// at least 2 ms).
    ///
    /// At least 10 ms: a shorter one is rejected at the acquire ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)), because 10 ms is the
    /// shortest lease.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }
}

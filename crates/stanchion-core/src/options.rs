//! The options of one acquire.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::actor::ActorId;
use crate::lease::Lease;
use crate::owner::Owner;
use stanchion_transport::Moment;

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

/// The effect of a deadlock on a call that waits in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDeadlock {
    /// The call continues to wait. Observers can find the deadlock: `Client::deadlocks`, `stanchion doctor`.
    #[default]
    Wait,
    /// The call gives up with [`AcquireError::Deadlock`](crate::AcquireError::Deadlock), if it is the victim. Among the calls with this option, the
    /// victim is the one with the youngest wait whose end lets another call of the deadlock continue. The call takes no hold away: its caller has to
    /// release its own holds.
    ///
    /// # Guarantees
    /// In the first 46 s of a deadlock at most one call gives up. After that a second call may, if the victim has not given up for 35 s because its
    /// call was not polled, or because its reads failed. The server does not coordinate the two calls, so both may give up then. A program must be
    /// ready for the error in each of its calls.
    ///
    /// # Requirements
    /// * An actor (`Client::actor`) that is certain: a scope or an explicit owner, for this call and all others in the deadlock. A call without one is
    ///   rejected ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)), as is a call for permits, on a `RedLock`, or with a
    ///   [`Presence`](crate::Presence) other than `On`.
    /// * One client for the holds and the waits of an actor. If an owner uses several clients, the waiters for its holds do not see its waits at the
    ///   other clients.
    /// * The right to read `stanchion_client*`. Without this right the client logs one warning, and the call continues to wait.
    ///
    /// # When
    /// The client checks for the first time after 5 s of waiting, then every 11.5 s, and accepts a deadlock that it sees twice. The call therefore
    /// gives up after 17 s at the earliest, usually within 30 s. If the victim's process lives and does not give up, the next call in the order does
    /// so 35 s later.
    ///
    /// # On the wire
    /// A check reads the name that is waited for (one script), the record of its holder's process (`GET`, `PTTL`), the names that this holder waits
    /// for, and so on: it reads this chain, not all waiters. The checks of one client share their reads.
    ///
    /// # Trust
    /// Holders are read from the locks. Waits, and the actors of holds and waits, are reported by the processes: a client that may write their
    /// records can make such a call give up.
    Fail,
}

/// Options of one acquire. The defaults: a new owner, no timeout, the synchronizer's lease (30 s), watchdog on.
///
/// An option that could have no effect is rejected ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)). Examples are a lease for the
/// permits of a plain semaphore, and an owner for the wait for a latch.
#[derive(Clone, Debug, Default)]
pub struct AcquireOptions {
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Option<Lease>,
    pub(crate) first_lease: Option<Lease>,
    pub(crate) renewal: Renewal,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) reentry: Reentry,
    pub(crate) rest_after_crash: Duration,
    pub(crate) on_queued: Option<OnQueued>,
    pub(crate) on_deadlock: OnDeadlock,
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

    /// Sets whether [`AcquireOptions::owner`] may hold more than once.
    #[must_use]
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
        self
    }

    /// The lease of these options, or `default`, for primitives that need to know the lease.
    #[must_use]
    pub fn lease_or(&self, default: Lease) -> Lease {
        self.lease.unwrap_or(default)
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

    /// Sets a first lease that is longer than the later ones: for this time the server keeps the hold even if this process dies at once, or its
    /// guard is [left](crate::primitive::Hold::leave). Neither renewals nor `max_hold` shorten it. On a fair lock, after a wait, the first lease
    /// begins with the first renewal, at most a second later.
    ///
    /// A first lease that is shorter than the lease would have no effect, so the acquire is rejected
    /// ([`Rejection::InvalidOption`](crate::Rejection::InvalidOption)). For a hold that ends sooner, set a shorter lease.
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

    /// Calls `told` when the acquire has to wait: once, at its first refusal or when it joins other waiters of this process; not for a try. Use it
    /// to inform a user, or to start reading the position in a fair lock's queue. A multi-lock that acquires its members one by one calls it for
    /// each member, a RedLock for none.
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

    /// Returns whether these options select [`OnDeadlock::Fail`], for primitives that do not support it.
    #[must_use]
    pub fn fails_on_deadlock(&self) -> bool {
        self.on_deadlock == OnDeadlock::Fail
    }

    /// Returns the first of these options, with its value, that only a lease gives an effect.
    pub(crate) fn of_a_lease(&self) -> Option<String> {
        let rest = Some(self.rest_after_crash).filter(|rest| !rest.is_zero());
        let lengths = [
            ("lease", self.lease.map(Lease::length)),
            ("first_lease", self.first_lease.map(Lease::length)),
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

/// The options that outlive the acquire: the watchdog and the guard follow them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldTerms {
    pub(crate) lease: Lease,
    /// The lease that the acquire requests; never shorter than `lease`.
    pub(crate) first_lease: Lease,
    pub(crate) renewal: Renewal,
    pub(crate) max_hold: Option<Duration>,
    /// The end of the hold that was set before its grant: by a ticket, or by the hold that was downgraded. Otherwise never.
    pub(crate) until: Moment,
    /// The time in ms for which the server keeps the hold longer than its holder relies on it. Small: every waiter carries these terms.
    pub(crate) rest_ms: u32,
    /// The actor that acquires, for deadlock detection.
    pub(crate) actor: Option<ActorId>,
    pub(crate) on_deadlock: OnDeadlock,
}

impl HoldTerms {
    /// The lease to request from the server, so that the holder may rely on `lease`.
    pub(crate) fn asked_for(&self, lease: Lease) -> Lease {
        lease.and(Duration::from_millis(self.rest_ms.into()))
    }

    /// The end of a hold that is granted to a request sent at `sent` (P10).
    pub(crate) fn ends(&self, sent: Moment) -> Moment {
        let longest = self.max_hold.map_or(Moment::FAR, |max| sent + max);
        longest.min(self.until)
    }

    /// The lease that an acquire at `sent` requests: no longer than the hold may last, unless a longer first lease is set.
    pub(crate) fn first_asked(&self, sent: Moment) -> Lease {
        if self.has_first_lease() {
            return self.asked_for(self.first_lease);
        }
        self.asked(sent)
    }

    /// Returns whether the first lease is longer than the others.
    pub(crate) fn has_first_lease(&self) -> bool {
        self.first_lease > self.lease
    }

    /// The lease that the other requests for a hold contain, when they are sent at `sent`.
    pub(crate) fn asked(&self, sent: Moment) -> Lease {
        self.asked_for(self.lease.within(sent, self.ends(sent)))
    }
}

//! The options that outlive their acquire.

use std::time::Duration;

use crate::actor::ActorId;
use crate::lease::Lease;
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

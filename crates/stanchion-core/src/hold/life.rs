//! The life of a hold as plain data: the time that its holder may count on, its renewals, and its end.
//!
//! `HoldState` (`state.rs`) has it under a mutex and carries out its decisions. It reads no clock and does no I/O, so the explorer
//! runs it, too.

use std::fmt;
use std::time::Duration;

use crate::about::Tenure;
use crate::error::LostReason;
use crate::hold::ended::Ended;
use crate::lease::Lease;
use stanchion_transport::Moment;

/// The time after which a hold moves on that was given to a waiter, and that its task has not taken: a task that is not polled must not keep others
/// waiting. Shorter than the lease of a grant by message.
const UNTAKEN: Duration = Duration::from_secs(1);

/// The terms of a grant.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The present moment.
    pub now: Moment,
    /// The moment before the request was sent, or the moment of a grant by message on the server.
    pub sent: Moment,
    /// The effect of the grant on the server.
    pub tenure: Tenure,
    /// The usual lease, and that of the request.
    pub leases: [Lease; 2],
    /// The lease of a grant by message, which is shorter.
    pub short: Option<Duration>,
    /// True if the client renews the hold by itself.
    pub is_watched: bool,
    /// The latest end of the hold.
    pub ends: Moment,
    /// True if the hold is given to a waiter, which has to take it.
    pub is_given: bool,
    /// True if that waiter may take it at any time.
    pub keeps: bool,
}

/// The next renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextRenewal {
    At(Moment),
    /// Was due while no caller had the hold.
    Skipped,
    /// In flight, or not needed.
    Off,
}

/// The actions of the watchdog that are due for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// True if the task of its waiter has not taken it in time.
    pub is_left: bool,
    /// True if it has lasted for a third of its lease since the last renewal.
    pub lasts: bool,
    /// True if a renewal is to be sent.
    pub renews: bool,
}

/// The life of a hold. It ends once, and does not change after that.
#[derive(Clone, Copy)]
pub struct Life {
    tenure: Tenure,
    is_watched: bool,
    /// The latest end: set by `max_hold`, or taken over from the hold that this one continues.
    ends: Moment,
    /// The end that the holder may count on (P5). Renewals raise it, counted from the send time of a successful request. The end is
    /// never lowered, so a late answer cannot shorten the hold.
    valid_until: Moment,
    renewal: NextRenewal,
    /// True until the first renewal if the server granted for less than the lease.
    provisional: bool,
    /// The number of counts that were given to a caller which has not taken them yet: to a waiter, or to a re-entry
    /// that finished in the background. While all counts are untaken the hold is not renewed, so a future that is
    /// not polled cannot hold indefinitely (P10).
    untaken: u32,
    /// The moment until which its waiter has to take it.
    taken_by: Moment,
    end: Option<Ended>,
}

impl Life {
    /// Begins with a grant. The hold may have expired already.
    #[must_use]
    pub fn begin(start: Start) -> Self {
        let Start {
            now,
            sent,
            tenure,
            leases: [usual, first],
            short,
            ends,
            ..
        } = start;
        // A wait without a hold has nothing to take.
        let is_given = start.is_given && tenure != Tenure::Nothing;
        let leased = tenure == Tenure::Leased;
        // A grant that is too short for a lease has expired at once.
        let lease = short.map_or(Some(first), |short| Lease::new(short).ok());
        let lease = lease.map(|lease| lease.min(first));
        let valid_until = match lease {
            // A permit that was granted by message is taken back by the server after that time, if it is not confirmed.
            _ if !leased => short.map_or(Moment::FAR, |short| sent + short),
            Some(lease) => lease.valid_until(sent).min(ends),
            None => sent,
        };
        // A long first lease does not change the interval of renewals, because a renewal also detects a loss.
        let pause = lease.map_or(Duration::ZERO, |lease| lease.min(usual).renewal_interval());
        Self {
            tenure,
            is_watched: start.is_watched,
            ends,
            valid_until,
            renewal: match leased {
                true => NextRenewal::At(sent + pause),
                false => NextRenewal::Off,
            },
            provisional: leased && short.is_some(),
            untaken: is_given.into(),
            taken_by: match is_given && !start.keeps {
                true => now + UNTAKEN,
                false => Moment::FAR,
            },
            end: None,
        }
    }

    /// The end that the holder may count on.
    #[must_use]
    pub const fn valid_until(&self) -> Moment {
        self.valid_until
    }

    /// The moment until which the hold is held: zero once it has ended.
    #[must_use]
    pub const fn held_until(&self) -> Moment {
        match self.end {
            None => self.valid_until,
            Some(_) => Moment::ZERO,
        }
    }

    /// The end that was recorded.
    #[must_use]
    pub const fn ended(&self) -> Option<Ended> {
        self.end
    }

    /// The end at `now`: the recorded one, or that by the clock, which is to be recorded. `None`: it is held.
    #[must_use]
    pub fn end_at(&self, now: Moment) -> Option<Ended> {
        let by_clock = match self.valid_until >= self.ends {
            true => LostReason::MaxHold,
            false => LostReason::Expired,
        };
        self.end
            .or_else(|| (now >= self.valid_until).then_some(Ended::Lost(by_clock)))
    }

    /// Records the end. The first one stays, and is returned.
    ///
    /// # Errors
    /// The end that was recorded before.
    pub fn end(&mut self, end: Ended) -> Result<(), Ended> {
        match self.end {
            None => self.end = Some(end),
            Some(before) => return Err(before),
        }
        Ok(())
    }

    /// Returns whether the server has granted for less than the lease, and no renewal has succeeded since.
    #[must_use]
    pub const fn is_provisional(&self) -> bool {
        self.provisional
    }

    /// Returns whether a caller was given a count and has not taken it yet.
    #[must_use]
    pub const fn is_untaken(&self) -> bool {
        self.untaken > 0
    }

    /// Returns whether any caller has taken a count. `guards`: their number; `None` while an operation on the hold is in flight, during which it counts as
    /// taken.
    #[must_use]
    pub fn is_taken(&self, guards: Option<u32>) -> bool {
        self.untaken == 0 || guards.is_none_or(|guards| self.untaken < guards)
    }

    /// Records that a count was given to a caller that has not taken it yet.
    pub const fn give(&mut self) {
        self.untaken += 1;
    }

    /// Records at `now` that the caller has taken one untaken count. From then on the hold is renewed.
    pub fn take(&mut self, now: Moment) {
        let Some(fewer) = self.untaken.checked_sub(1) else {
            return;
        };
        self.untaken = fewer;
        if now >= self.held_until() {
            return;
        }
        if self.tenure == Tenure::Unleased {
            self.raise(Moment::FAR);
        }
        if self.renewal == NextRenewal::Skipped {
            self.renewal = NextRenewal::At(now);
        }
    }

    /// Decides at `now` what is due. Renewals that are due within `window` are sent, too. `guards`: as in [`Life::is_taken`].
    pub fn due(&mut self, now: Moment, window: Duration, guards: Option<u32>) -> Due {
        let is_taken = self.is_taken(guards);
        let is_left = now >= self.taken_by && !is_taken;
        if now >= self.taken_by {
            self.taken_by = now + UNTAKEN;
        }
        let lasts = matches!(self.renewal, NextRenewal::At(at) if at <= now + window);
        // A provisional hold is always renewed once: a grant by message lasts for less than the requested lease (F4).
        let wanted = self.provisional || self.is_watched && is_taken;
        if lasts {
            self.renewal = match self.is_watched && !wanted {
                true => NextRenewal::Skipped,
                false => NextRenewal::Off,
            };
        }
        Due {
            is_left,
            lasts,
            // A renewal cannot extend a hold that lasts until the end set by `max_hold`.
            renews: lasts && wanted && self.valid_until < self.ends,
        }
    }

    /// Plans the next renewal.
    pub const fn renew_at(&mut self, at: Moment) {
        self.renewal = NextRenewal::At(at);
    }

    /// Extends the hold by `lease` after a successful renewal for that lease, sent at `sent`.
    pub fn renewed(&mut self, lease: Lease, sent: Moment) {
        self.raise(lease.valid_until(sent).min(self.ends));
        self.provisional = false;
    }

    fn raise(&mut self, until: Moment) {
        self.valid_until = self.valid_until.max(until);
    }

    /// The moment at which [`Life::due`] is to be called next. `None`: the hold has ended, or never has anything due.
    #[must_use]
    pub fn next(&self) -> Option<Moment> {
        if self.end.is_some() || self.tenure == Tenure::Nothing {
            return None;
        }
        // An expiry must be noticed even if the server does not answer a renewal.
        let mut next = self.valid_until;
        if let NextRenewal::At(at) = self.renewal {
            next = next.min(at);
        }
        if self.untaken > 0 {
            next = next.min(self.taken_by);
        }
        Some(next)
    }
}

/// Without what never changes: two lives that go on alike have the same text.
impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renewal = match self.renewal {
            NextRenewal::At(at) => Ok(at.micros()),
            other => Err(other),
        };
        let untaken = (self.untaken > 0).then(|| (self.untaken, self.taken_by.micros()));
        let (until, end) = (self.valid_until.micros(), self.end);
        (until, renewal, self.provisional, untaken, end).fmt(f)
    }
}

//! Events of a name, as a typed stream for listeners.
//!
//! * this file: the visible state of a name ([`NameState`]), and the events between two states ([`Event`]). Pure.
//! * `told`: has the server send messages about writes.
//! * `lookout`: reads the state of each name that has listeners, in a background task that all listeners of the process share.
//! * `stream`: the events that one listener has not received yet.
//!
//! Events are computed from states that scripts have read, never from messages. A message is only a hint to read the state (P4).

mod lookout;
mod stream;
mod told;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use stanchion_core::primitive::{Call, Kind, Reply, as_millis};
use stanchion_core::{Name, QueryError};

pub use lookout::Lookouts;
pub use stream::Events;

/// Something that happened to a name. See [`Events`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The state of the name. Sent as the first event, and again after a period in which events may have been missed: after
    /// [`Event::Unknown`], and after a loss of the connection on which the server reports writes.
    Now(NameState),
    /// A holder has acquired the name, or permits of it.
    Taken(NameHolder),
    /// The holder no longer has the name, after a release, a hand-off or a forced release. The server's state does not show which.
    Released(NameHolder),
    /// The holder no longer has the name, and its lease, as last read, had ended: the holder died, or was out of reach.
    Expired(NameHolder),
    /// The name has no holder now. Follows the [`Event::Released`] or [`Event::Expired`] of the last holder. Not sent for a semaphore.
    Free,
    /// The number of free permits has changed to this; negative while more permits are held than exist.
    Available(i64),
    /// An open latch was armed with this count.
    Armed(u64),
    /// The count of a closed latch has changed to this.
    Counted(u64),
    /// The count of the latch has reached zero.
    Opened,
    /// A new round of the barrier has begun: the one before is complete, or broken.
    Round(u64),
    /// The number of parties that wait at the barrier has changed to this; for a double barrier, of those that wait or are inside.
    Parties(u32),
    /// A latch was deleted while it was closed, a semaphore was deleted, or a barrier ended because it was not used.
    Deleted,
    /// The state is unknown: the server cannot be reached, or refuses. [`Event::Now`] follows an outage; no event follows a refusal.
    Unknown(QueryError),
}

/// The state of a name at the time of a read, as far as events cover it. The state may have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NameState {
    /// The holders, sorted by [`NameHolder::holder`].
    pub holders: Vec<NameHolder>,
    /// The number of holders that are not listed: a read lists 1000. While this is above 0, events report numbers and name no holder.
    pub unlisted: u64,
    /// The number of free permits of a semaphore that exists.
    pub available: Option<i64>,
    /// The count of a latch; 0 when it is open.
    pub count: Option<u64>,
    /// The present round of a barrier that exists.
    pub round: Option<u64>,
    /// The number of places that are taken in this round.
    pub parties: Option<u32>,
    /// The time until one of these places ends, unless its lease is renewed.
    #[serde(skip)]
    first_lease: Option<Duration>,
    /// The time of the last deletion, where the server keeps it. The time distinguishes a deleted latch from one that was counted down.
    #[serde(skip)]
    deleted: Option<u64>,
}

/// A holder of a name, or of permits of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct NameHolder {
    /// The owner as stored: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`, for a leased permit its id. Every hold has
    /// its own owner, so a process that takes a lock twice appears as two holders.
    pub holder: String,
    /// The mode of the hold.
    pub mode: HoldMode,
    /// The number of its holds, or of its permits.
    pub count: u32,
    /// The remaining time of its lease; `None` without a lease.
    #[serde(rename = "remaining_ms", serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

/// The mode in which a holder has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HoldMode {
    /// Exclusive: a lock, or a hold to write.
    Exclusive,
    /// Shared with others: a hold to read.
    Shared,
    /// Permits of a semaphore.
    Permits,
}

/// Describes how to read the state of a name for its listeners: see [`Events::of`].
pub trait Visible: fmt::Debug + Send + Sync + 'static {
    /// The kind of synchronizer, and the name. All synchronizers of one family and name show the same state.
    fn subject(&self) -> (Kind, &Name);

    /// The keys of the state: each change writes at least one of them. In a cluster all of them are in the slot of the name.
    fn keys(&self) -> Vec<Vec<u8>>;

    /// The script that reads the state, and writes nothing.
    fn look(&self) -> Call;

    /// Reads the state from the reply of that script.
    ///
    /// # Errors
    /// [`QueryError`]: the reply is not one of that script, or says that the name belongs to something else.
    fn see(&self, reply: &Reply) -> Result<NameState, QueryError>;
}

impl NameHolder {
    /// Makes the holder `holder` of `count` holds or permits.
    #[must_use]
    pub const fn new(holder: String, mode: HoldMode, count: u32) -> Self {
        Self {
            holder,
            mode,
            count,
            remaining: None,
        }
    }

    /// Sets the remaining time of the lease.
    #[must_use]
    pub const fn remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }

    fn is(&self, other: &Self) -> bool {
        (&self.holder, self.mode) == (&other.holder, other.mode)
    }
}

impl NameState {
    /// Makes the state of a name with these holders, and `unlisted` more.
    #[must_use]
    pub fn held(mut holders: Vec<NameHolder>, unlisted: u64) -> Self {
        holders.sort();
        Self {
            holders,
            unlisted,
            ..Self::default()
        }
    }

    /// Sets the number of free permits; `None` for a semaphore that does not exist.
    #[must_use]
    pub const fn permits(mut self, available: Option<i64>) -> Self {
        self.available = available;
        self
    }

    /// Makes the state of a latch. `deleted`: a value that changes with each deletion.
    #[must_use]
    pub fn latch(count: u64, deleted: Option<u64>) -> Self {
        Self {
            count: Some(count),
            deleted,
            ..Self::default()
        }
    }

    /// Makes the state of a barrier in round `round` with `parties` places taken, of which the first ends after `first_lease`.
    #[must_use]
    pub fn barrier(round: u64, parties: u32, first_lease: Option<Duration>) -> Self {
        Self {
            round: Some(round),
            parties: Some(parties),
            first_lease,
            ..Self::default()
        }
    }

    /// Returns the remaining time of the lease that ends first.
    fn soonest(&self) -> Option<Duration> {
        let leases = self.holders.iter().map(|holder| holder.remaining);
        leases.chain([self.first_lease]).flatten().min()
    }

    fn is_complete(&self) -> bool {
        self.unlisted == 0
    }

    /// Returns the holders of `before` that are gone now, if both lists of holders are complete.
    fn gone_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a NameHolder> {
        let known = self.is_complete() && before.is_complete();
        let old = before.holders.iter().filter(move |_| known);
        old.filter(|old| !self.holders.iter().any(|new| new.is(old)))
    }

    /// Returns the holders of `before` that are gone now after the end of their leases. `before` was read at most `passed` ago.
    fn ended_since<'a>(
        &'a self,
        before: &'a Self,
        passed: Duration,
    ) -> impl Iterator<Item = String> + 'a {
        let ended = move |old: &&NameHolder| old.remaining.is_some_and(|left| left <= passed);
        let gone = self.gone_since(before).filter(ended);
        gone.map(|old| old.holder.clone())
    }

    /// Returns the events since `before`, in the order in which they must have happened. `lapsed`: the holders with ended leases.
    fn since(&self, before: &Self, lapsed: &VecDeque<String>) -> Vec<Event> {
        let mut events = Vec::new();
        for old in self.gone_since(before).cloned() {
            events.push(match lapsed.contains(&old.holder) {
                true => Event::Expired(old),
                false => Event::Released(old),
            });
        }
        if self.is_complete() && before.is_complete() {
            let new = |new: &&NameHolder| !before.holders.iter().any(|old| old.is(new));
            events.extend(self.holders.iter().filter(new).cloned().map(Event::Taken));
        }
        let is_held = |state: &Self| !state.holders.is_empty() || !state.is_complete();
        let is_semaphore = before.available.or(self.available).is_some();
        if is_held(before) && !is_held(self) && !is_semaphore {
            events.push(Event::Free);
        }
        match (before.available, self.available) {
            (old, Some(new)) if old != Some(new) => events.push(Event::Available(new)),
            (Some(_), None) => events.push(Event::Deleted),
            _ => {}
        }
        match (before.count.unwrap_or(0), self.count.unwrap_or(0)) {
            (old, new) if old == new => {}
            (0, new) => events.push(Event::Armed(new)),
            (_, 0) if self.deleted.is_some() && self.deleted != before.deleted => {
                events.push(Event::Deleted);
            }
            (_, 0) => events.push(Event::Opened),
            (_, new) => events.push(Event::Counted(new)),
        }
        match (before.round, self.round) {
            (old, Some(new)) if old != Some(new) => events.push(Event::Round(new)),
            (Some(_), None) => events.push(Event::Deleted),
            _ => {}
        }
        if let Some(parties) = self.parties
            && parties != before.parties.unwrap_or(0)
        {
            events.push(Event::Parties(parties));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn holder(name: &str) -> NameHolder {
        NameHolder::new(name.into(), HoldMode::Exclusive, 1).remaining(Some(LEASE))
    }

    fn by(names: &[&str]) -> NameState {
        NameState::held(names.iter().map(|name| holder(name)).collect(), 0)
    }

    #[track_caller]
    fn check(before: &NameState, after: &NameState, passed: Duration, expected: &[Event]) {
        let lapsed = after.ended_since(before, passed).collect();
        assert_eq!(after.since(before, &lapsed), expected);
    }

    #[test]
    fn a_hand_off_is_a_release_and_then_a_taking() {
        let events = [Event::Released(holder("a")), Event::Taken(holder("b"))];
        check(&by(&["a"]), &by(&["b"]), Duration::ZERO, &events);
        check(&by(&["a"]), &by(&["a"]), LEASE, &[]);
    }

    #[test]
    fn a_lease_that_has_run_out_is_no_release() {
        let events = |first| [first, Event::Free];
        let expired = events(Event::Expired(holder("a")));
        check(&by(&["a"]), &by(&[]), LEASE, &expired);
        let released = events(Event::Released(holder("a")));
        let before = LEASE - Duration::from_millis(1);
        check(&by(&["a"]), &by(&[]), before, &released);
    }

    #[test]
    fn a_writer_that_becomes_a_reader_is_both_events() {
        let reader = NameHolder::new("a".into(), HoldMode::Shared, 1);
        let events = [Event::Released(holder("a")), Event::Taken(reader.clone())];
        let read = NameState::held(vec![reader], 0);
        check(&by(&["a"]), &read, Duration::ZERO, &events);
    }

    #[test]
    fn permits_report_their_number_and_no_free_event() {
        let held = |free| {
            let permit = NameHolder::new("a".into(), HoldMode::Permits, 2);
            NameState::held(vec![permit], 0).permits(Some(free))
        };
        let free = |free| NameState::default().permits(free);
        let permit = NameHolder::new("a".into(), HoldMode::Permits, 2);
        let events = [Event::Released(permit), Event::Available(3)];
        check(&held(1), &free(Some(3)), LEASE, &events);
        check(&free(Some(3)), &free(None), LEASE, &[Event::Deleted]);
        check(&free(None), &free(Some(3)), LEASE, &[Event::Available(3)]);
    }

    #[test]
    fn unlisted_holders_cause_no_events() {
        let many = |names: &[&str]| NameState {
            unlisted: 1,
            ..by(names)
        };
        check(&many(&["a"]), &many(&["b"]), LEASE, &[]);
        check(&many(&["a"]), &by(&["b"]), LEASE, &[]);
        check(&many(&["a"]), &by(&[]), LEASE, &[Event::Free]);
    }

    #[test]
    fn a_barrier_reports_its_rounds_and_the_parties_that_wait() {
        let barrier = |round, parties| NameState::barrier(round, parties, None);
        let none = Duration::ZERO;
        let first = [Event::Round(1), Event::Parties(1)];
        check(&NameState::default(), &barrier(1, 1), none, &first);
        let came = [Event::Parties(2)];
        check(&barrier(1, 1), &barrier(1, 2), none, &came);
        let complete = [Event::Round(2), Event::Parties(0)];
        check(&barrier(1, 2), &barrier(2, 0), none, &complete);
        check(&barrier(1, 2), &barrier(2, 2), none, &[Event::Round(2)]);
        let ended = [Event::Deleted];
        check(&barrier(2, 0), &NameState::default(), none, &ended);
    }

    #[test]
    fn a_latch_opens_or_is_deleted() {
        let latch = NameState::latch;
        let none = Duration::ZERO;
        check(&latch(0, None), &latch(3, None), none, &[Event::Armed(3)]);
        check(&latch(3, None), &latch(1, None), none, &[Event::Counted(1)]);
        check(&latch(3, None), &latch(0, None), none, &[Event::Opened]);
        check(&latch(3, None), &latch(0, Some(7)), none, &[Event::Deleted]);
        let later = [Event::Opened];
        check(&latch(3, Some(7)), &latch(0, Some(7)), none, &later);
        check(&latch(0, None), &latch(0, Some(7)), none, &[]);
    }
}

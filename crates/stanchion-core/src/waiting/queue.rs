//! The decisions of one local queue: which of its waiters send requests, and when.
//!
//! A waiter is *parked* (no turn, no request), *woken* (it has a [`Turn`] that it has not taken yet) or *requesting* (it took
//! [`Turn::Try`] and awaits the reply). A refusal parks it again; a grant, a hand-off or a failure removes it. A woken or requesting
//! waiter that leaves passes its wake-up on (invariant 2 of [`super::lock_entry`]).
//!
//! Nothing here sends, waits or calls a waker. All of it runs under the mutex `LockEntry::queue`, so the fields need no lock of
//! their own; [`Wakers`] carries the wakers out of it.
//!
//! Long: the rules of one queue, which hold only together.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::grants::Grants;
use super::piggyback::Piggyback;
use super::ticket::Stay;
use crate::description::{Sharing, Synchronizer};
use crate::hint::Hint;
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::hold::sweep::Debt;
use crate::line::Reason;
use crate::options::HoldTerms;
use crate::timetable::Slot;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Moment, Outage};

/// The next step of a waiter.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Send a request, for this reason.
    Try(Reason),
    /// Take the hold, which a local holder handed over or the server granted by message.
    Take(Hold),
    /// Finish: the event that it waits for has happened.
    Seen,
    /// Start again: it was given a hold and did not take it before the lease ended.
    Missed,
    /// Fail: the server has been unreachable for too long.
    OutOfReach(Outage),
}

impl Turn {
    pub(super) fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Take(hold) => Some(hold),
            Self::Try(_) | Self::Seen | Self::Missed | Self::OutOfReach(_) => None,
        }
    }
}

/// The entry of this process in the queue on the server.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The debt of its owner. The drop of the debt gives the entry up (P3).
    pub(super) debt: Arc<Debt>,
    /// True once a message has let this process try: the server may have removed it.
    pub(super) off: bool,
}

/// The uses that keep a queue in the table of queues.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// True once the queue is about to leave the table: no waiter may join. Never reset.
    pub(super) retired: bool,
    /// True while the queue is in `LockEntries::warm`.
    pub(super) warm: bool,
    /// True while a channel is subscribed for this queue, waiters or not.
    pub(super) subscribed: bool,
    /// The number of attempts under way without a place in the queue.
    pub(super) visitors: u32,
}

/// The part of a queue of which the server keeps every waiter.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The places of the waiters, to find the one that a grant names.
    pub(super) by_owner: HashMap<WireOwner, u64>,
    /// The first request of a waiter, which a release may make. Here for one turn of the tasks.
    pub(super) piggyback: Option<Piggyback>,
    /// The time at which all waiters send their requests again.
    pub(super) restamp: Moment,
    /// True while a heartbeat is under way. At most one is, so a slow server does not collect them.
    pub(super) attending: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) uses: Uses,
    /// The waiters by place, that is by order of arrival. Each is removed by its own [`Ticket`](super::Ticket), or by
    /// [`Queue::forsake`] when it did not take its hold in time.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    /// The number of places that were assigned. Never falls, so no place is assigned twice.
    next: u64,
    /// The number of parked waiters, kept so that a new waiter need not count them.
    pub(super) parked: usize,
    /// The number of requesting waiters, with a request of their own or with a hand-off of permits in flight.
    pub(super) asking: usize,
    /// The place of the waiter that an exclusive holder is handing its hold to. Set by `LockEntry::successor`, cleared by `hand_over` or
    /// `not_handed`; while it is set, wakes are only remembered in `due`.
    pub(super) handing: Option<u64>,
    /// The one holder, if it is of this process. Weak: the queue must not keep a hold alive. Waiters send no requests while it
    /// holds, unless the server keeps the queue; its end calls `LockEntry::freed`.
    pub(super) holder: Weak<HoldState>,
    /// The number of hand-offs since the last release or grant.
    pub(super) handed: u32,
    /// The entry of this process in the queue on the server, while no request for it is under way.
    pub(super) entry: Option<Entry>,
    /// The time and reason of the first waiter's next request, if they were received during a request or a hand-off (invariant 2).
    pub(super) due: Option<(Moment, Reason)>,
    /// The planned poll, and its reason. Replaced only under this mutex, so the timetable has at most one for a queue.
    pub(super) poll: Option<(Slot, Reason)>,
    /// The grants by message of the last seconds.
    pub(super) grants: Grants,
    /// The number of refusals in a row, for the pauses of [`Wake::Poll`](crate::Wake::Poll).
    pub(super) refused: u32,
    /// The moment since which no request of this queue was answered.
    pub(super) outage_since: Option<Moment>,
    /// True once the queue has had a waiter for facts.
    pub(super) facts: bool,
    pub(super) kept: Kept,
}

/// The requests that a waiter has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Never,
    /// None as the first waiter of this process: it has no entry on the server.
    Behind,
    First,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) sync: Arc<dyn Synchronizer>,
    /// The owner of its request that is under way, or of its last one.
    pub(super) owner: WireOwner,
    pub(super) terms: HoldTerms,
    /// Its call, which may have had other places before.
    pub(super) stay: Stay,
    /// Its turn, given by the queue; its ticket takes it.
    pub(super) turn: Option<Turn>,
    /// True from the moment its ticket takes [`Turn::Try`] until the attempt has ended.
    pub(super) asking: bool,
    pub(super) asked: Asked,
    /// The next free place at its last request: the waiters below that place had joined by then.
    pub(super) asked_before: u64,
    /// The waker of the task that polls its ticket. Taken when it gets its turn, called after the queue is unlocked.
    pub(super) waker: Option<Waker>,
}

impl Waiter {
    pub(super) fn is_parked(&self) -> bool {
        self.turn.is_none() && !self.asking
    }

    pub(super) fn has_hold(&self) -> bool {
        self.turn.as_ref().and_then(Turn::hold).is_some()
    }
}

/// Wakers to call once the queue is unlocked (invariant 4).
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Wakers(pub(super) Vec<Waker>);

impl Wakers {
    pub(super) fn call(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

/// The rest of a hand-off, to finish once the queue is unlocked (invariant 4).
#[derive(Debug)]
#[must_use]
pub(super) struct Handed {
    /// The hold, if its waiter has left: its release serves the next one.
    hold: Option<Hold>,
    pub(super) wakers: Wakers,
}

impl Handed {
    pub(super) fn finish(self) {
        self.wakers.call();
        drop(self.hold);
    }
}

impl Queue {
    /// The first waiter that has not been given a hold. One that was may take long to take it.
    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        let mut waiters = self.waiters.iter();
        let (place, waiter) = waiters.find(|(_, waiter)| !waiter.has_hold())?;
        Some((*place, waiter))
    }

    /// The place that the next new waiter will get.
    pub(super) const fn next_place(&self) -> u64 {
        self.next
    }

    /// Assigns a place behind all that were assigned so far.
    pub(super) fn last_place(&mut self) -> u64 {
        let place = self.next;
        self.next += 1;
        place
    }

    /// Counts waiters that are parked from now on, or are not any more.
    pub(super) const fn count_parked(&mut self, by: isize) {
        // Saturating: a miscount only delays a new waiter until the next poll, an overflow would panic in the middle of a change.
        self.parked = self.parked.saturating_add_signed(by);
    }

    pub(super) fn first_sharing(&self) -> Option<Sharing> {
        self.first().map(|(_, waiter)| waiter.sync.sharing())
    }

    /// Returns whether a new waiter for `sync` sends a request at once, because it overtakes no waiter of this process.
    pub(super) fn admits(&self, sync: &dyn Synchronizer) -> bool {
        let sharing = sync.sharing();
        let asks = match sharing {
            Sharing::Queued => return true,
            // A waiter for facts sends no request at first, because it joins before the event can occur.
            Sharing::Event if sync.facts().is_some() => false,
            // A parked waiter was refused, or sends its request first. Waiters that may hold together send requests concurrently.
            _ => {
                let beside =
                    |first: Sharing| sharing != Sharing::Exclusive && first != Sharing::Exclusive;
                self.parked == 0 && self.first_sharing().is_none_or(beside)
            }
        };
        // During a local hold or a hand-off a request would only be refused: `freed` or `not_handed` gives the turn.
        asks && self.handing.is_none() && !self.has_live_holder()
    }

    /// Returns whether this process has an entry in the queue on the server.
    pub(super) fn stands(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| !entry.off)
    }

    /// Returns whether a message about the entry of `owner` is for this queue: for its entry, or for that of a request in flight.
    pub(super) fn is_about(&self, owner: &str) -> bool {
        let entry = self.entry.as_ref();
        let asks = |it: &Waiter| it.asking && it.owner.as_str() == owner;
        entry.is_some_and(|entry| entry.debt.owner.as_str() == owner)
            || self.asking > 0 && self.waiters.values().any(asks)
    }

    /// Records that the server may have removed the entry of `owner` with its message to try.
    pub(super) fn taken_off(&mut self, owner: &str) {
        if let Some(entry) = &mut self.entry
            && entry.debt.owner.as_str() == owner
        {
            entry.off = true;
        }
    }

    /// Returns whether the end of a local hold is served by the entry of this process, not by a hand-off.
    pub(super) fn needs_its_entry(&self) -> bool {
        let hands_off = |(_, first): (u64, &Waiter)| first.sync.hand_off().is_some();
        self.stands() && !self.first().is_some_and(hands_off)
    }

    pub(super) fn has_live_holder(&self) -> bool {
        // By the clock, too: a hold with an ended lease excludes no other, even if the end has not been recorded yet.
        self.holder.upgrade().is_some_and(|hold| hold.is_held())
    }

    /// Gives the waiter at `place` its turn, and collects its waker.
    pub(super) fn tell(&mut self, place: u64, turn: Turn, wakers: &mut Wakers) {
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return;
        };
        let parked = waiter.is_parked();
        // No caller replaces a `Take`: its hold would be dropped here, under the mutex (invariant 4).
        waiter.turn = Some(turn);
        // Taken, not cloned: a clone may run foreign code (invariant 4). The task registers again with its next poll.
        wakers.0.extend(waiter.waker.take());
        if parked {
            self.count_parked(-1);
        }
    }

    /// Lets the first waiter send a request for `reason`.
    pub(super) fn admit(&mut self, reason: Reason) -> Wakers {
        let mut wakers = Wakers::default();
        let Some((first, waiter)) = self.first() else {
            return wakers;
        };
        // A first waiter that has not taken its `Try` yet needs nothing: its request will be sent after this wake.
        if self.handing.is_none() && waiter.is_parked() {
            self.tell(first, Turn::Try(reason), &mut wakers);
        } else if self.asking > 0 || self.handing.is_some() {
            self.remember(Moment::ZERO, reason);
        }
        wakers
    }

    /// Remembers when and why the first waiter sends its next request, until the request or the hand-off in flight has ended (invariant 2).
    pub(super) fn remember(&mut self, at: Moment, reason: Reason) {
        let is_better = |(known, for_reason): (Moment, Reason)| {
            at < known || at == known && for_reason != Reason::Told
        };
        if self.due.is_none_or(is_better) {
            self.due = Some((at, reason));
        }
    }

    pub(super) fn first_is_parked(&self) -> bool {
        self.first().is_some_and(|(_, first)| first.is_parked())
    }

    /// Returns whether the first waiter is woken.
    pub(super) fn is_told(&self) -> bool {
        self.first().is_some_and(|(_, first)| first.turn.is_some())
    }

    /// Lets the first waiter send a request if it has sent none as the first, and this process has no entry on the server.
    pub(super) fn make_known(&mut self) -> Wakers {
        let is_unknown = |first: &Waiter| {
            first.is_parked() && first.asked != Asked::First && first.sync.line().is_some()
        };
        let unknown = self.first().is_some_and(|(_, first)| is_unknown(first));
        if unknown && !self.stands() && self.handing.is_none() && !self.has_live_holder() {
            return self.admit(Reason::Turn);
        }
        Wakers::default()
    }

    /// Lets all parked waiters send requests.
    pub(super) fn admit_all(&mut self) -> Wakers {
        let mut wakers = Wakers::default();
        let parked: Vec<u64> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.is_parked())
            .map(|(place, _)| *place)
            .collect();
        for place in parked {
            self.tell(place, Turn::Try(Reason::Turn), &mut wakers);
        }
        wakers
    }

    /// Records a grant, which ends the refusals in a row and an outage.
    pub(super) fn answered(&mut self) {
        self.refused = 0;
        self.outage_since = None;
    }

    /// Wakes waiters after a grant to one of them, as the sharing allows. Waiters below `asked_before` had joined before its request.
    pub(super) fn granted(&mut self, sharing: Sharing, asked_before: u64) -> Wakers {
        let mut wakers = Wakers::default();
        self.answered();
        match sharing {
            // The others are called when the hold ends.
            Sharing::Exclusive => {
                // A wake-up during the attempt announced this grant. The server has selected this process, so it has its
                // whole turn of hand-offs again.
                self.due = None;
                self.handed = 0;
            }
            Sharing::Together => {
                // Parked waiters that may share get their turn now. Those with a request in flight may be refused by a reply that is older
                // than this grant: the refusal retries (invariant 2).
                self.due = (self.asking > 0).then_some((Moment::ZERO, Reason::Turn));
                let mut group = Vec::new();
                for (place, waiter) in &self.waiters {
                    let together = waiter.sync.sharing() == Sharing::Together;
                    // A writer must send one request, so that it has an entry on the server.
                    let newcomer =
                        waiter.asked == Asked::Never && self.asking == 0 && group.is_empty();
                    if waiter.is_parked() && (together || newcomer) {
                        group.push(*place);
                    }
                    // Readers behind a waiting writer must not overtake it.
                    if !together {
                        break;
                    }
                }
                for place in group {
                    self.tell(place, Turn::Try(Reason::Turn), &mut wakers);
                }
            }
            // More permits may be free. The first may have a request in flight, and never take its reply (invariant 3).
            Sharing::Permits(_) => wakers = self.admit_another(Reason::Turn),
            Sharing::Event => {
                // P8: the answer is as old as its request. A waiter that joined later may wait for a later event.
                let seen = self.waiters.range(..asked_before);
                let seen: Vec<u64> = seen.map(|(place, _)| *place).collect();
                for place in seen {
                    self.tell(place, Turn::Seen, &mut wakers);
                }
                // Invariant 3: no waiter before them is left to send requests.
                let later = self.waiters.range(asked_before..).next();
                if let Some((&place, _)) = later.filter(|(_, waiter)| waiter.is_parked()) {
                    self.tell(place, Turn::Try(Reason::Turn), &mut wakers);
                }
            }
            // The server selects the next holder.
            Sharing::Queued => {}
        }
        wakers
    }

    /// Removes a waiter, with its untaken turn and its waker. The caller drops it after the queue is unlocked (invariant 4).
    pub(super) fn remove(&mut self, place: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&place)?;
        if waiter.is_parked() {
            self.count_parked(-1);
        }
        if waiter.asking {
            self.asking -= 1;
        }
        Some(waiter)
    }

    /// Ends the hand-off to `place`, which gets `hold` if there is one.
    pub(super) fn end_handing(&mut self, place: u64, hold: Option<Hold>) -> Handed {
        let mut wakers = Wakers::default();
        if self.handing == Some(place) {
            self.handing = None;
            let hold = hold.and_then(|hold| self.give(place, hold, &mut wakers));
            return Handed { hold, wakers };
        }
        self.came_back(place);
        let hold = hold.and_then(|hold| self.give(place, hold, &mut wakers));
        // Invariant 2: a wake during the hand-off was for others.
        if let Some((_, reason)) = self.due.take() {
            wakers.0.extend(self.admit(reason).0);
        }
        wakers.0.extend(self.make_known().0);
        Handed { hold, wakers }
    }

    /// Gives `hold` to the waiter at `place`; returns it if that one has left, or has a hold.
    fn give(&mut self, place: u64, hold: Hold, wakers: &mut Wakers) -> Option<Hold> {
        if self.waiters.get(&place).is_none_or(Waiter::has_hold) {
            return Some(hold);
        }
        self.tell(place, Turn::Take(hold.unclaimed()), wakers);
        None
    }

    /// Counts a parked waiter as requesting: a holder is handing its permits over to this waiter.
    pub(super) fn asks(&mut self, place: u64) {
        if let Some(waiter) = self.waiters.get_mut(&place) {
            waiter.asking = true;
            // The waiter has no request. Another waiter may use the owner of its last one now.
            waiter.asked = Asked::Behind;
            self.asking += 1;
            self.count_parked(-1);
        }
    }

    /// Parks a waiter after an attempt without a grant.
    pub(super) fn came_back(&mut self, place: u64) {
        if let Some(waiter) = self.waiters.get_mut(&place)
            && waiter.asking
        {
            waiter.asking = false;
            let parked = waiter.turn.is_none();
            self.asking -= 1;
            // A grant by message, or a nudge, may have come during the attempt: then the waiter is woken, not parked.
            if parked {
                self.count_parked(1);
            }
        }
    }

    /// Lets the first parked waiter send a request.
    pub(super) fn admit_another(&mut self, reason: Reason) -> Wakers {
        let mut wakers = Wakers::default();
        let parked = self.waiters.iter().find(|(_, waiter)| waiter.is_parked());
        if let Some((&place, _)) = parked {
            self.tell(place, Turn::Try(reason), &mut wakers);
        }
        wakers
    }

    /// Removes the waiter that was given `hold` and did not take it (invariant 5).
    pub(super) fn forsake(&mut self, hold: &HoldState) -> Option<Waiter> {
        // A hold granted by message is found by its owner. A search finds one that was handed over and is not taken.
        let (place, waiter) = match self.kept.by_owner.get(&hold.owner) {
            Some(place) => (*place, self.waiters.get(place)?),
            None if hold.is_unclaimed() => {
                let given = |waiter: &Waiter| {
                    waiter
                        .turn
                        .as_ref()
                        .and_then(Turn::hold)
                        .is_some_and(|it| it.is(hold))
                };
                let (place, waiter) = self.waiters.iter().find(|(_, waiter)| given(waiter))?;
                (*place, waiter)
            }
            None => return None,
        };
        let given = waiter.turn.as_ref().and_then(Turn::hold)?;
        // P5: a request in flight may be granted to the same owner. A drop of the given hold would release that one, too.
        if waiter.asking || !given.is(hold) {
            return None;
        }
        self.remove(place)
    }

    /// Records that a request of `place` was not answered. Waiters that have waited for `tolerance` since replies stopped get the
    /// turn to give up. Returns whether `place` must give up, too.
    pub(super) fn unanswered(
        &mut self,
        place: u64,
        now: Moment,
        tolerance: Duration,
        outage: &Outage,
    ) -> (bool, Wakers) {
        let mut wakers = Wakers::default();
        // One start for the whole queue. When each waiter counted from its own first failure, they gave up one tolerance after
        // the other.
        let since = *self.outage_since.get_or_insert(now);
        // In the order of arrival the first that still has patience ends the search: ten thousand may wait.
        let mut is_over = false;
        let mut others = Vec::new();
        for (&other, waiter) in &self.waiters {
            if now.since(since.max(waiter.stay.began)) < tolerance {
                break;
            } else if other == place {
                is_over = true;
            } else if !waiter.asking && matches!(waiter.turn, None | Some(Turn::Try(_))) {
                others.push(other);
            }
        }
        for other in others {
            self.tell(other, Turn::OutOfReach(outage.clone()), &mut wakers);
        }
        (is_over, wakers)
    }

    /// Resets an idle queue. The numbers of places go on, and the memory for waiters is kept.
    pub(super) fn reset(&mut self) {
        *self = Self {
            uses: Uses {
                warm: true,
                ..Uses::default()
            },
            next: self.next,
            waiters: std::mem::take(&mut self.waiters),
            // A second copy may still arrive.
            grants: std::mem::take(&mut self.grants),
            ..Self::default()
        };
    }

    /// Returns whether nothing refers to this queue, so that its entry may leave the table.
    pub(super) fn is_idle(&self) -> bool {
        // A holder keeps the entry: a waiter in a new queue would not know of the hold, and would be refused. A hand-off and a
        // visitor return to the entry.
        self.waiters.is_empty()
            && self.uses.visitors == 0
            && !self.uses.subscribed
            && self.handing.is_none()
            && self.holder.strong_count() == 0
    }

    /// Wakes the waiters that an answer about a server-side queue concerns.
    pub(super) fn heed(&mut self, hint: &Hint) -> Wakers {
        let granted = match hint {
            // With the queue all places are gone, and each request restores one.
            Hint::Forgotten => return self.admit_all(),
            Hint::Queue { granted, .. } => granted.as_deref(),
            _ => None,
        };
        match granted.and_then(|owner| self.kept.by_owner.get(owner).copied()) {
            // The message of this grant may be lost. Its own request finds the grant: the script answers a holder as a replay.
            Some(place) => self.nudge(place),
            None => Wakers::default(),
        }
    }

    /// Lets one waiter send a request. If it has one in flight, it sends another after the reply.
    pub(super) fn nudge(&mut self, place: u64) -> Wakers {
        let mut wakers = Wakers::default();
        let untold = |waiter: &Waiter| waiter.turn.is_none();
        if self.waiters.get(&place).is_some_and(untold) {
            self.tell(place, Turn::Try(Reason::Turn), &mut wakers);
        }
        wakers
    }
}

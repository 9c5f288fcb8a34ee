//! The decisions of one local queue: which of its waiters ask the server, and when.
//!
//! A waiter is *parked* (no turn, not asking), *told* (it has a [`Turn`] that it has not taken yet) or *asking* (it took
//! [`Turn::Try`] and awaits the answer). A refusal parks it again; a grant, a hand-off or a failure removes it. A told or asking
//! waiter that leaves passes its wake on (invariant 2 of [`super::lock_entry`]).
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
use super::permits::PASSED;
use super::piggyback::Piggyback;
use super::ticket::Stay;
use crate::description::{Sharing, Synchronizer};
use crate::hint::Hint;
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::hold::sweep::{Debt, Gathered};
use crate::line::Reason;
use crate::options::HoldTerms;
use crate::timetable::Slot;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Moment, Outage};

/// The next step of a waiter.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Ask the server.
    Try,
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
            Self::Try | Self::Seen | Self::Missed | Self::OutOfReach(_) => None,
        }
    }
}

/// The number of permits that a wake announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    For(u32),
    Unknown,
}

/// The first place that a newcomer gets. Lower ones are for waiters that return to the front.
pub(super) const FIRST: u64 = 1 << 62;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// True once the entry is to leave the table of entries: nobody may join. Never reset.
    pub(super) retired: bool,
    /// True while it is among the queues that are kept though idle, or that were when they came there.
    pub(super) warm: bool,
    /// The waiters by place, that is by order of arrival. Each is removed by its own [`Ticket`](super::Ticket), or by
    /// [`Queue::forsake`] when it did not take its hold in time.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    /// The number of places that were assigned. Never falls, so no place is assigned twice.
    next: u64,
    /// The number of parked waiters, kept so that a newcomer need not count them.
    pub(super) parked: usize,
    /// The number of parked waiters that were passed over.
    pub(super) aside: usize,
    /// The number of exclusive waiters, so that a newcomer need not look for a writer among them.
    pub(super) exclusives: usize,
    /// The number of waiters that ask the server.
    pub(super) asking: usize,
    /// The place of the waiter that an exclusive holder is handing its hold to. Set by `LockEntry::successor`, cleared by `hand_over` or
    /// `not_handed`; while it is set, wakes are only remembered in `again`. Who is to get a permit counts as asking instead.
    pub(super) handing: Option<u64>,
    /// True once a waiter has come that messages tell facts.
    pub(super) facts: bool,
    /// True while a channel is subscribed for this queue, waiters or not.
    pub(super) subscribed: bool,
    /// The number of attempts under way without a place in the queue. They keep the entry from being retired.
    pub(super) visitors: u32,
    /// The most permits (1 for locks) that a wake announced while nobody could be told, because a waiter was asking or being
    /// handed a hold (invariant 2). The next refusal takes it and wakes for it.
    pub(super) again: u32,
    /// The one holder, if it is of this process. Weak: the queue must not keep a hold alive. Waiters do not ask while it
    /// holds, unless the server keeps the queue; its end calls `LockEntry::freed`.
    pub(super) holder: Weak<HoldState>,
    /// The number of hand-offs since the last release or grant.
    pub(super) handed: u32,
    /// The planned poll. Replaced only under this mutex, so the timetable has at most one for a queue.
    pub(super) poll: Option<Slot>,
    /// The place of this process in the server's line, while no request is under way in its name: the debt of its owner, whose
    /// drop gives it up (P3).
    pub(super) standing: Option<Arc<Debt>>,
    /// The reason of the request that the planned poll lets the first waiter send.
    pub(super) poll_reason: Reason,
    /// For permits: the place of this process in the crowd on the server, as far as is known.
    pub(super) gathered: Option<Gathered>,
    /// For permits: one that waited for a permit here, by which a grant is given back that comes when nobody waits any more.
    pub(super) waited: Option<Arc<dyn Synchronizer>>,
    /// For permits: how many of those that messages told this process of are nobody's here. A waiter that comes back refused asks for
    /// them, because its request may be older than the message; the next that was told says how many the others have no use for.
    pub(super) surplus: u32,
    /// For permits: the number of grants and messages that may have removed this process from the wait set on the server.
    pub(super) parted: u64,
    /// For permits: set after such a grant or message, until a reply shows that this process is in the wait set.
    pub(super) unknown: bool,
    /// The reason of the next request of the first waiter.
    pub(super) reason: Reason,
    /// The moment at which this process may ask as one that was told to, if it was told so while it asked.
    pub(super) told_at: Option<Moment>,
    /// The moment at which this process must look as the head of the line.
    pub(super) head_look: Option<Moment>,
    /// The number of refusals in a row, for the pauses of [`Wake::Poll`](crate::Wake::Poll).
    pub(super) refused: u32,
    /// The places of waiters in a queue that the server keeps, to find the one that a grant names.
    pub(super) by_owner: HashMap<WireOwner, u64>,
    /// The first request of a waiter in a queue that the server keeps, which a release may make. Here for one turn of the tasks.
    pub(super) piggyback: Option<Piggyback>,
    /// The grants by message of the last seconds.
    pub(super) grants: Grants,
    /// The time at which all waiters of a queue that the server keeps ask again.
    pub(super) restamp: Moment,
    /// True while a heartbeat is under way. At most one is, so a slow server does not collect them.
    pub(super) attending: bool,
    /// The moment since which no request of this queue was answered.
    pub(super) outage_since: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) sync: Arc<dyn Synchronizer>,
    pub(super) owner: WireOwner,
    pub(super) terms: HoldTerms,
    /// The start of its patience with an outage.
    pub(super) joined: Moment,
    /// Its call, which may have had other places before.
    pub(super) stay: Stay,
    /// Its turn, given by the queue; its ticket takes it.
    pub(super) turn: Option<Turn>,
    /// True from the moment its ticket takes [`Turn::Try`] until the attempt has ended.
    pub(super) asking: bool,
    /// For permits: true while a holder asks for it, by handing over its hold.
    pub(super) handed: bool,
    /// True once it has asked.
    pub(super) asked: bool,
    /// For permits: the reason of its next request.
    pub(super) reason: Reason,
    /// True when its last request said that others of this process wait, too.
    pub(super) asked_with_others: bool,
    /// The next free place when it asked last: waiters below it had joined by then.
    pub(super) asked_before: u64,
    /// `Queue::parted` when it asked last.
    pub(super) parted: u64,
    /// True once it has asked and was not granted.
    pub(super) refused: bool,
    /// True once it has asked as the first waiter of this process.
    pub(super) asked_first: bool,
    /// The waker of the task that polls its ticket. Taken when it gets its turn, called after the queue is unlocked.
    pub(super) waker: Option<Waker>,
}

impl Waiter {
    pub(super) fn is_parked(&self) -> bool {
        self.turn.is_none() && !self.asking
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

/// What is to be done after a hand-off, once the queue is unlocked (invariant 4).
#[derive(Debug)]
#[must_use]
pub(super) struct Handed {
    /// The hold, if its waiter has left: its release serves the next one.
    hold: Option<Hold>,
    /// The place in the crowd that the hand-off has ended.
    gathered: Option<Gathered>,
    pub(super) wakers: Wakers,
}

impl Handed {
    pub(super) fn finish(self) {
        self.wakers.call();
        if let Some(gathered) = self.gathered {
            gathered.ended();
        }
        drop(self.hold);
    }
}

impl Queue {
    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        self.waiters
            .first_key_value()
            .map(|(place, waiter)| (*place, waiter))
    }

    /// The place that the next newcomer will get.
    pub(super) const fn next_place(&self) -> u64 {
        FIRST + self.next
    }

    /// Assigns a place behind all that were assigned so far.
    pub(super) fn last_place(&mut self) -> u64 {
        let place = self.next_place();
        self.next += 1;
        place
    }

    pub(super) fn count_parked(&mut self, place: u64, by: isize) {
        // Saturating: a miscount only delays a newcomer until the next poll, an overflow would panic in the middle of a change.
        self.parked = self.parked.saturating_add_signed(by);
        if place >= PASSED {
            self.aside = self.aside.saturating_add_signed(by);
        }
    }

    pub(super) fn first_sharing(&self) -> Option<Sharing> {
        self.first().map(|(_, waiter)| waiter.sync.sharing())
    }

    /// Returns whether the end of a local hold is served by this process's place on the server, not by a hand-off.
    pub(super) fn needs_its_place(&self) -> bool {
        let hands_off = |(_, first): (u64, &Waiter)| first.sync.hand_off().is_some();
        self.standing.is_some() && !self.first().is_some_and(hands_off)
    }

    pub(super) fn has_live_holder(&self) -> bool {
        // By the clock, too: a holder whose lease has ended excludes nobody, even if nobody has noticed it yet.
        self.holder.upgrade().is_some_and(|hold| hold.is_held())
    }

    /// Gives the waiter at `place` its turn, and collects its waker.
    pub(super) fn tell(&mut self, place: u64, turn: Turn, wakers: &mut Wakers) {
        self.tell_for(place, turn, Reason::Anew, wakers);
    }

    pub(super) fn tell_for(&mut self, place: u64, turn: Turn, reason: Reason, wakers: &mut Wakers) {
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return;
        };
        let parked = waiter.is_parked();
        waiter.reason = reason;
        // No caller replaces a `Take`: its hold would be dropped here, under the mutex (invariant 4).
        waiter.turn = Some(turn);
        // Taken, not cloned: a clone may run foreign code (invariant 4). The task registers again with its next poll.
        wakers.0.extend(waiter.waker.take());
        if parked {
            self.count_parked(place, -1);
        }
    }

    /// Tells the waiters at the front to ask, as many as `room` may suffice for.
    pub(super) fn admit(&mut self, room: Room) -> Wakers {
        let mut wakers = Wakers::default();
        let Some((first, waiter)) = self.first() else {
            return wakers;
        };
        if let Sharing::Permits(wanted) = waiter.sync.sharing() {
            let room = match room {
                Room::For(n) => n,
                // Enough for the first: something must make it ask even if nothing is known of the room (invariant 3).
                Room::Unknown => wanted,
            };
            let parked = self.parked;
            let wakers = self.admit_permits(room, Reason::Anew);
            if self.parked == parked && self.asking > 0 {
                // Invariant 2: nobody was told, and the requests under way may be older than this wake. Otherwise the answers
                // to those told now say how many permits are left.
                self.again = self.again.max(room);
            }
            return wakers;
        }
        // A first waiter that has not taken its `Try` yet needs nothing: its request will be sent after this wake.
        if self.handing.is_none() && waiter.is_parked() {
            self.tell(first, Turn::Try, &mut wakers);
        } else if self.asking > 0 || self.handing.is_some() {
            // Invariant 2.
            self.again = self.again.max(1);
        }
        wakers
    }

    /// Tells all parked waiters to ask.
    pub(super) fn admit_all(&mut self) -> Wakers {
        let mut wakers = Wakers::default();
        let parked: Vec<u64> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.is_parked())
            .map(|(place, _)| *place)
            .collect();
        for place in parked {
            self.tell(place, Turn::Try, &mut wakers);
        }
        wakers
    }

    /// Draws the consequences of a grant to one waiter for those behind it, with `left` permits still free. Waiters below
    /// `asked_before` had joined when its request was sent.
    pub(super) fn granted(&mut self, sharing: Sharing, left: u32, asked_before: u64) -> Wakers {
        let mut wakers = Wakers::default();
        // A grant is an answer: an outage is over.
        self.refused = 0;
        self.outage_since = None;
        match sharing {
            // The others are called when the hold ends.
            Sharing::Exclusive => {
                // The wake during the attempt announced what was granted. The grant was won on the server, so this process has its
                // whole turn of hand-offs again.
                self.again = 0;
                self.handed = 0;
            }
            Sharing::Together => {
                // Parked waiters that may share get their turn now. Those with a request in flight may be refused by a reply that is older
                // than this grant: the refusal retries (invariant 2).
                self.again = u32::from(self.asking > 0);
                let mut group = Vec::new();
                for (place, waiter) in &self.waiters {
                    let together = waiter.sync.sharing() == Sharing::Together;
                    // A writer that has not asked yet must ask once, so that the server knows that it waits.
                    let newcomer = !waiter.asked && self.asking == 0 && group.is_empty();
                    if waiter.is_parked() && (together || newcomer) {
                        group.push(*place);
                    }
                    // Readers behind a waiting writer must not overtake it.
                    if !together {
                        break;
                    }
                }
                for place in group {
                    // Those that waited with it have its turn.
                    self.tell_for(place, Turn::Try, Reason::Reply, &mut wakers);
                }
            }
            Sharing::Permits(_) => {
                let (parked, heard) = (self.parked, std::mem::take(&mut self.again));
                wakers = self.admit_permits(left, Reason::Reply);
                // Invariant 2: no room is left by this grant, but the wake during the attempt may be newer than its answer.
                if self.parked == parked && heard > 0 {
                    wakers.0.extend(self.admit(Room::For(heard)).0);
                }
                // What others were told of is not in `left`.
                wakers.0.extend(self.share_out().0);
            }
            Sharing::Event => {
                // P8: the answer is as old as its request. A waiter that joined later may wait for a later event.
                let seen = self.waiters.range(..asked_before);
                let seen: Vec<u64> = seen.map(|(place, _)| *place).collect();
                for place in seen {
                    self.tell(place, Turn::Seen, &mut wakers);
                }
                // Invariant 3: nobody before them is left to ask.
                let later = self.waiters.range(asked_before..).next();
                if let Some((&place, _)) = later.filter(|(_, waiter)| waiter.is_parked()) {
                    self.tell(place, Turn::Try, &mut wakers);
                }
            }
            // The server decides who is next.
            Sharing::Queued => {}
        }
        wakers
    }

    /// Removes a waiter, with its untaken turn and its waker. The caller drops it after the queue is unlocked (invariant 4).
    pub(super) fn remove(&mut self, place: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&place)?;
        if waiter.is_parked() {
            self.count_parked(place, -1);
        }
        if waiter.asking {
            self.asking -= 1;
        }
        if waiter.sync.sharing() == Sharing::Exclusive {
            self.exclusives -= 1;
        }
        Some(waiter)
    }

    /// Ends the hand-off to `place`, which gets `hold` if there is one. `parted`: the server was told that after this grant nobody of this
    /// process waits for permits.
    pub(super) fn end_handing(&mut self, place: u64, hold: Option<Hold>, parted: bool) -> Handed {
        let mut wakers = Wakers::default();
        if self.handing == Some(place) {
            self.handing = None;
            let hold = hold.and_then(|hold| self.give(place, hold, &mut wakers));
            return Handed {
                hold,
                gathered: None,
                wakers,
            };
        }
        let asked = self.waiters.get(&place).map_or(0, |waiter| waiter.parted);
        self.came_back(place);
        let parted = parted && hold.is_some();
        if hold.is_some() {
            self.note_crowd(parted, asked);
        }
        let hold = hold.and_then(|hold| self.give(place, hold, &mut wakers));
        let gathered = parted.then(|| self.gathered.take()).flatten();
        // Invariant 2: a wake during the hand-off was for others.
        let again = std::mem::take(&mut self.again);
        let mut told = self.admit_again(again);
        self.make_known(Reason::Anew, &mut told);
        wakers.0.extend(told.0);
        Handed {
            hold,
            gathered,
            wakers,
        }
    }

    /// Gives `hold` to the waiter at `place`; returns it if that one has left.
    fn give(&mut self, place: u64, hold: Hold, wakers: &mut Wakers) -> Option<Hold> {
        if !self.waiters.contains_key(&place) {
            return Some(hold);
        }
        self.tell(place, Turn::Take(hold.unclaimed()), wakers);
        None
    }

    /// Parks a waiter whose attempt was not granted.
    pub(super) fn came_back(&mut self, place: u64) {
        if let Some(waiter) = self.waiters.get_mut(&place)
            && waiter.asking
        {
            waiter.asking = false;
            waiter.handed = false;
            waiter.refused = true;
            self.asking -= 1;
            // A grant by message, or a nudge, may have come during the attempt: then it is told, not parked.
            if waiter.turn.is_none() {
                self.count_parked(place, 1);
            }
        }
    }

    /// Removes the waiter that was given `hold` and did not take it (invariant 5).
    pub(super) fn forsake(&mut self, hold: &HoldState) -> Option<Waiter> {
        // A hold granted by message is found by its owner. One that was handed over is looked for while nobody has taken it.
        let (place, waiter) = match self.by_owner.get(&hold.owner) {
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
        // P5: while it asks, the answer may be a hold of the same owner. Dropping the given hold would release that one, too.
        if waiter.asking || !given.is(hold) {
            return None;
        }
        self.remove(place)
    }

    /// Records that a request of `place` was not answered, and tells all that have waited for `tolerance` since answers stopped
    /// to give up. Returns whether `place` must give up, too.
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
        // In the order of arrival the first that still has patience ends the search: ten thousand may wait. Waiters for permits
        // move, and few of them ask at a time.
        let in_order = !matches!(self.first_sharing(), Some(Sharing::Permits(_)));
        let mut is_over = false;
        let mut others = Vec::new();
        for (&other, waiter) in &self.waiters {
            if now.since(since.max(waiter.joined)) < tolerance {
                if in_order {
                    break;
                }
            } else if other == place {
                is_over = true;
            } else if !waiter.asking && matches!(waiter.turn, None | Some(Turn::Try)) {
                others.push(other);
            }
        }
        for other in others {
            self.tell(other, Turn::OutOfReach(outage.clone()), &mut wakers);
        }
        (is_over, wakers)
    }

    /// Makes an idle queue as good as new. Places go on, and the memory for waiters is kept.
    pub(super) fn reset(&mut self) {
        *self = Self {
            warm: true,
            next: self.next,
            waiters: std::mem::take(&mut self.waiters),
            // A second copy may still arrive.
            grants: std::mem::take(&mut self.grants),
            ..Self::default()
        };
    }

    /// Returns whether nothing refers to this queue, so that its entry may leave the table.
    pub(super) fn is_idle(&self) -> bool {
        // A holder keeps the entry: a newcomer with a new queue would not know of it, and would ask in vain. A hand-off and a
        // visitor will still come back to it.
        self.waiters.is_empty()
            && self.visitors == 0
            && !self.subscribed
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
        match granted.and_then(|owner| self.by_owner.get(owner).copied()) {
            // The message of this grant may be lost. Its own request finds the grant: the script answers a holder as a replay.
            Some(place) => self.nudge(place),
            None => Wakers::default(),
        }
    }

    /// Lets one waiter ask. If it is asking now, it asks again afterwards.
    pub(super) fn nudge(&mut self, place: u64) -> Wakers {
        self.nudge_for(place, Reason::Anew)
    }

    pub(super) fn nudge_for(&mut self, place: u64, reason: Reason) -> Wakers {
        let mut wakers = Wakers::default();
        if self
            .waiters
            .get(&place)
            .is_some_and(|waiter| waiter.turn.is_none())
        {
            self.tell_for(place, Turn::Try, reason, &mut wakers);
        }
        wakers
    }
}

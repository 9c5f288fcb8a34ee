//! Who of the waiters of one name may ask the server. Decisions only: nothing here sends, waits or calls a waker.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use crate::hold::{Hold, HoldState};
use crate::options::HoldTerms;
use crate::owner::WireOwner;
use crate::primitive::{Hint, Sharing, Synchronizer};
use crate::timetable::Slot;
use stanchion_transport::Moment;
use stanchion_transport::Outage;

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Ask the server.
    Try,
    /// The hold was passed on to it.
    Handed(Hold),
    /// What it waits for has happened.
    Seen,
    /// The server has granted to it, by message.
    Granted(Hold),
    /// It was granted and did not come for it before the lease was over.
    Missed,
    /// The server has been out of reach for too long.
    OutOfReach(Outage),
}

impl Turn {
    pub(super) fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Handed(hold) | Self::Granted(hold) => Some(hold),
            Self::Try | Self::Seen | Self::Missed | Self::OutOfReach(_) => None,
        }
    }
}

/// For how much a wake announces room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    For(u32),
    Unknown,
}

/// Places from here on are of waiters for permits that the server has passed over. They come after all others.
const PASSED: u64 = 1 << 63;

/// The first place that is given. Those before it are for waiters that come back to the front.
const FIRST: u64 = 1 << 62;

/// Of the waiters passed over, a message is offered to so many.
const OFFERED: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// No longer in the table of entries: nobody may join.
    pub(super) retired: bool,
    /// By order of arrival.
    pub(super) waiters: BTreeMap<u64, Waiter>,
    next: u64,
    /// Waiters that neither ask nor have been told anything.
    pub(super) parked: usize,
    /// Those of them that were passed over.
    aside: usize,
    pub(super) exclusives: usize,
    /// Waiters that ask the server.
    pub(super) asking: usize,
    /// The holder passes its hold to the waiter at this place.
    pub(super) handing: Option<u64>,
    /// Attempts under way that have no place in the queue.
    pub(super) visitors: u32,
    /// For so much a wake announced room while others asked.
    pub(super) again: u32,
    /// The exclusive holder, if it is of this process.
    pub(super) holder: Weak<HoldState>,
    /// Hand-offs since the last public release.
    pub(super) handed: u32,
    pub(super) rivals: bool,
    /// Wakes before this moment are our own echo, or meant for others first.
    pub(super) deaf_until: Option<Moment>,
    /// Messages that are for others first: answered after a head start.
    pub(super) owed: u32,
    pub(super) poll: Option<Slot>,
    /// Refusals in a row, for [`Wake::Poll`].
    pub(super) refused: u32,
    /// Waiters of a queue that the server keeps.
    pub(super) by_owner: HashMap<WireOwner, u64>,
    pub(super) restamp: Moment,
    /// A sign of life is under way.
    pub(super) attending: bool,
    /// Requests from this queue have not been answered since.
    pub(super) outage_since: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) sync: Arc<dyn Synchronizer>,
    pub(super) owner: WireOwner,
    pub(super) terms: HoldTerms,
    pub(super) joined: Moment,
    pub(super) turn: Option<Turn>,
    pub(super) asking: bool,
    /// It has asked at least once.
    pub(super) asked: bool,
    /// Places below this one had been taken when it asked.
    pub(super) asked_before: u64,
    /// And was not granted.
    pub(super) refused: bool,
    /// It has asked as the first of this process.
    pub(super) asked_first: bool,
    pub(super) waker: Option<Waker>,
}

impl Waiter {
    pub(super) fn is_parked(&self) -> bool {
        self.turn.is_none() && !self.asking
    }

    /// Whether it is to ask as soon as it is the first, whatever is free: it would be overtaken for ever without a place in line.
    fn wants_a_place(&self) -> bool {
        matches!(self.sync.sharing(), Sharing::Permits(2..)) && !self.asked_first
    }
}

/// Wakers to be called when the queue is unlocked.
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

impl Queue {
    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        self.waiters
            .first_key_value()
            .map(|(place, waiter)| (*place, waiter))
    }

    /// The place that the next newcomer gets.
    pub(super) const fn next_place(&self) -> u64 {
        FIRST + self.next
    }

    /// The place of a newcomer.
    pub(super) fn last_place(&mut self) -> u64 {
        let place = self.next_place();
        self.next += 1;
        place
    }

    /// Whether a newcomer that wants permits has somebody to wait for here.
    pub(super) fn permits_wanted(&self) -> bool {
        let refused = |(place, first): (u64, &Waiter)| place < PASSED && first.refused;
        // Behind one that was refused it waits for its turn, also while that one asks again.
        self.parked > self.aside || self.first().is_some_and(refused)
    }

    fn count_parked(&mut self, place: u64, by: isize) {
        self.parked = self.parked.saturating_add_signed(by);
        if place >= PASSED {
            self.aside = self.aside.saturating_add_signed(by);
        }
    }

    pub(super) fn first_sharing(&self) -> Option<Sharing> {
        self.first().map(|(_, waiter)| waiter.sync.sharing())
    }

    pub(super) fn has_live_holder(&self) -> bool {
        self.holder.upgrade().is_some_and(|hold| hold.is_held())
    }

    /// Tells a waiter that has nothing to do yet.
    pub(super) fn tell(&mut self, place: u64, turn: Turn, wakers: &mut Wakers) {
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return;
        };
        let parked = waiter.is_parked();
        waiter.turn = Some(turn);
        wakers.0.extend(waiter.waker.take());
        if parked {
            self.count_parked(place, -1);
        }
    }

    /// Tells those at the front for whom there may be room to ask.
    pub(super) fn admit(&mut self, room: Room) -> Wakers {
        let mut wakers = Wakers::default();
        let Some((first, waiter)) = self.first() else {
            return wakers;
        };
        if let Sharing::Permits(wanted) = waiter.sync.sharing() {
            let room = match room {
                Room::For(n) => n,
                Room::Unknown => wanted,
            };
            let parked = self.parked;
            let wakers = self.admit_permits(room);
            if self.parked == parked && self.asking > 0 {
                // Invariant 2: they may be asking since before. Otherwise those who are told now learn what is left.
                self.again = self.again.max(room);
            }
            return wakers;
        }
        if self.handing.is_none() && waiter.is_parked() {
            self.tell(first, Turn::Try, &mut wakers);
        } else if self.asking > 0 || self.handing.is_some() {
            // Invariant 2.
            self.again = self.again.max(1);
        }
        wakers
    }

    /// Tells those to ask for whom `room` permits are enough. Whoever asks or is about to has a claim on what it wants, and
    /// first come, first served: those behind one that does not fit wait for it.
    fn admit_permits(&mut self, room: u32) -> Wakers {
        let mut wakers = Wakers::default();
        let mut left = room;
        let mut told = Vec::new();
        let mut aside = 0;
        for (place, waiter) in &self.waiters {
            let Sharing::Permits(wanted) = waiter.sync.sharing() else {
                break;
            };
            if *place >= PASSED {
                aside += 1;
                if aside > OFFERED {
                    break;
                }
                if wanted > left {
                    continue;
                }
            } else if wanted > left {
                break;
            }
            left -= wanted;
            if waiter.is_parked() {
                told.push(*place);
            }
        }
        if let Some((first, waiter)) = self.first()
            && waiter.is_parked()
            && waiter.wants_a_place()
            && !told.contains(&first)
        {
            // Invariant 6.
            told.push(first);
        }
        for place in told {
            self.tell(place, Turn::Try, &mut wakers);
        }
        wakers
    }

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

    /// What a grant to one waiter, with so many permits left, means for those behind it. Places below `asked_before` had been
    /// taken when it was asked for.
    pub(super) fn granted(&mut self, sharing: Sharing, left: u32, asked_before: u64) -> Wakers {
        let mut wakers = Wakers::default();
        self.refused = 0;
        self.outage_since = None;
        match sharing {
            // They are called when the hold ends.
            Sharing::Exclusive => {
                self.again = 0;
                self.handed = 0;
                self.owed = 0;
            }
            Sharing::Together => {
                self.again = 0;
                let mut group = Vec::new();
                for (place, waiter) in &self.waiters {
                    let together = waiter.sync.sharing() == Sharing::Together;
                    // An exclusive one that has not asked yet must, for the server to know of it.
                    let newcomer = !waiter.asked && self.asking == 0 && group.is_empty();
                    if waiter.is_parked() && (together || newcomer) {
                        group.push(*place);
                    }
                    if !together {
                        break;
                    }
                }
                for place in group {
                    self.tell(place, Turn::Try, &mut wakers);
                }
            }
            Sharing::Permits(_) => {
                let (parked, heard) = (self.parked, std::mem::take(&mut self.again));
                wakers = self.admit_permits(left);
                if self.parked == parked && heard > 0 {
                    wakers = self.admit(Room::For(heard));
                }
            }
            Sharing::Event => {
                // P8: the answer is as old as its request. Whoever came later waits for something that happens later.
                let seen = self.waiters.range(..asked_before);
                let seen: Vec<u64> = seen.map(|(place, _)| *place).collect();
                for place in seen {
                    self.tell(place, Turn::Seen, &mut wakers);
                }
                let later = self.waiters.range(asked_before..).next();
                if let Some((&place, _)) = later.filter(|(_, waiter)| waiter.is_parked()) {
                    self.tell(place, Turn::Try, &mut wakers);
                }
            }
            Sharing::Queued => {}
        }
        wakers
    }

    /// Takes a waiter out, with what it was told.
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

    /// An attempt brought no grant.
    pub(super) fn came_back(&mut self, place: u64) {
        if let Some(waiter) = self.waiters.get_mut(&place)
            && waiter.asking
        {
            waiter.asking = false;
            waiter.refused = true;
            self.asking -= 1;
            if waiter.turn.is_none() {
                self.count_parked(place, 1);
            }
        }
    }

    /// Takes out the waiter that was given `hold` and has not come for it.
    pub(super) fn forsake(&mut self, hold: &HoldState) -> Option<Waiter> {
        // Whoever is handed a hold is the first; whoever is granted one is known by its owner.
        let (place, waiter) = match self.by_owner.get(&hold.owner) {
            Some(place) => (*place, self.waiters.get(place)?),
            None => self.first()?,
        };
        let given = waiter.turn.as_ref().and_then(Turn::hold)?;
        // P5: while it asks, the answer may be a hold of the same owner. What is dropped here would be released under it.
        if waiter.asking || !given.is(hold) {
            return None;
        }
        self.remove(place)
    }

    /// A request was not answered. Whoever has waited for `tolerance` since answers stopped is told to give up; returns
    /// whether `place` is to.
    pub(super) fn unanswered(
        &mut self,
        place: u64,
        now: Moment,
        tolerance: Duration,
        outage: &Outage,
    ) -> (bool, Wakers) {
        let mut wakers = Wakers::default();
        let since = *self.outage_since.get_or_insert(now);
        // In the order of their coming, so also in that of their patience.
        let impatient = self
            .waiters
            .iter()
            .take_while(|(_, waiter)| now.since(since.max(waiter.joined)) >= tolerance);
        let mut is_over = false;
        let mut others = Vec::new();
        for (&other, waiter) in impatient {
            if other == place {
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

    /// A waiter for permits was refused. Returns the place that it has from now on, and tells whoever comes before it then.
    pub(super) fn refused_permits(&mut self, place: u64, hint: &Hint) -> (u64, Wakers) {
        // One that was passed over before has kept nobody.
        let kept_others =
            hint.passed && place < PASSED && self.first().is_some_and(|(first, _)| first == place);
        let to = match (place >= PASSED, hint) {
            (_, Hint { passed: true, .. }) => PASSED | self.last_place(),
            (false, _) => place,
            // It stands in line, before whoever has come here meanwhile.
            (true, Hint { queued: true, .. }) => {
                self.first().map_or(FIRST, |(first, _)| first.min(FIRST)) - 1
            }
            // It can be served again, in its turn.
            (true, _) => self.last_place(),
        };
        if to != place
            && let Some(mut waiter) = self.remove(place)
        {
            let parked = waiter.is_parked();
            waiter.asked_first = hint.queued || hint.passed;
            self.waiters.insert(to, waiter);
            if parked {
                self.count_parked(to, 1);
            }
        }
        let wakers = match self.first() {
            // Those behind it go on; or invariant 6.
            Some((first, waiter))
                if waiter.is_parked() && (kept_others && first != to || waiter.wants_a_place()) =>
            {
                self.nudge(first)
            }
            _ => Wakers::default(),
        };
        (to, wakers)
    }

    /// Lets one of those passed over ask; each in its turn, because whoever is passed over again goes behind the others.
    pub(super) fn offer_passed(&mut self) -> Wakers {
        match self.waiters.range(PASSED..).next() {
            Some((place, waiter)) if waiter.is_parked() => self.nudge(*place),
            _ => Wakers::default(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty()
            && self.visitors == 0
            && self.handing.is_none()
            && self.holder.strong_count() == 0
    }

    /// What an answer about a queue that the server keeps means for the waiters.
    pub(super) fn heed(&mut self, hint: &Hint) -> Wakers {
        if hint.forgotten {
            return self.admit_all();
        }
        let granted = hint.granted.as_deref();
        match granted.and_then(|owner| self.by_owner.get(owner).copied()) {
            Some(place) => self.nudge(place),
            None => Wakers::default(),
        }
    }

    /// Lets one waiter ask, or ask again when it is asking.
    pub(super) fn nudge(&mut self, place: u64) -> Wakers {
        let mut wakers = Wakers::default();
        if self
            .waiters
            .get(&place)
            .is_some_and(|waiter| waiter.turn.is_none())
        {
            self.tell(place, Turn::Try, &mut wakers);
        }
        wakers
    }
}

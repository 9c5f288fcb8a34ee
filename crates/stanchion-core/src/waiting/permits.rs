//! Waiters for permits in a local queue: which of them ask, for what a message, a reply or a release announces.
//!
//! A message tells this process of so many permits, which are kept for it on the server for a moment: they are for waiters that ask because of
//! it, not for those who asked before it (invariant 2 of [`super::lock_entry`]).

use std::sync::{Arc, MutexGuard};

use super::grants::KEPT;
use super::lock_entry::LockEntry;
use super::queue::{FIRST, Queue, Room, Turn, Waiter, Wakers};
use crate::description::{Granted, Sharing, Synchronizer};
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::state::Grant;
use crate::hold::sweep::Leftover;
use crate::lease::Lease;
use crate::line::{Reason, Sign};
use crate::name::Name;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::Moment;

/// The first place of waiters for permits that the server has passed over. They come after all others.
pub(super) const PASSED: u64 = 1 << 63;

/// The number of passed-over waiters that a message is offered to.
const OFFERED: usize = 16;

impl Waiter {
    /// Returns whether it asks, or is about to, for permits that this process was told of.
    fn was_told(&self) -> bool {
        self.reason == Reason::Told && !self.is_parked()
    }

    /// Returns whether its next request can be for permits that this process is told of now.
    fn can_be_told(&self) -> bool {
        self.is_parked()
            || matches!(self.turn, Some(Turn::Try)) && !self.asking && self.reason == Reason::Anew
    }

    /// Returns whether it sends a request for the place in line that it may have on the server: only the first of a process has one.
    fn is_first_in_line(&self) -> bool {
        self.asking && self.asked_first && self.wanted() > 1
    }

    pub(super) fn has_hold(&self) -> bool {
        self.turn.as_ref().and_then(Turn::hold).is_some()
    }

    fn wanted(&self) -> u32 {
        match self.sync.sharing() {
            Sharing::Permits(wanted) => wanted,
            _ => 0,
        }
    }

    /// Returns whether it must ask as soon as it is the first, however few permits are free: without a place in line on the
    /// server it would be overtaken for ever.
    fn wants_a_place(&self) -> bool {
        matches!(self.sync.sharing(), Sharing::Permits(2..)) && !self.asked_first
    }
}

impl Queue {
    /// Returns whether a newcomer that wants permits must wait behind another waiter of this process.
    pub(super) fn permits_wanted(&self) -> bool {
        // Waiters that were passed over are no reason to wait: they come after every newcomer (decision 0017). Nor are those that were
        // handed their permits: they ask no more, and nothing would make who waits behind them ask (invariant 3).
        let mut others = self.waiters.range(..PASSED);
        let first = others.find(|(_, waiter)| !waiter.has_hold());
        // A newcomer must not overtake a waiter that was refused, also while that one asks again and so is not parked.
        self.is_known()
            && (self.parked > self.aside || first.is_some_and(|(_, first)| first.refused))
    }

    /// As [`Queue::admit`], after a message to this process alone. The message has removed the process from the wait set on the server, so a
    /// waiter sends a request even if `room` is too small for it (invariant 3). A request that is under way shows the removal with its
    /// reply ([`Queue::overtaken`]).
    pub(super) fn admit_told(&mut self, room: u32) -> Wakers {
        if !matches!(self.first_sharing(), Some(Sharing::Permits(_))) {
            return self.admit(Room::For(room));
        }
        self.note_crowd(true, self.parted);
        self.surplus = self.surplus.saturating_add(room);
        let mut wakers = self.share_out();
        if self.asking == 0 {
            self.make_known(Reason::Told, &mut wakers);
        }
        wakers
    }

    /// Tells the waiters to ask for which `room` permits are enough. A waiter that asks, or is about to, counts as having what
    /// it wants; not if they were told of `room` by message, which is for nobody else. Waiters behind one that does not fit wait for it,
    /// so that a large request is not starved by small ones.
    pub(super) fn admit_permits(&mut self, room: u32, reason: Reason) -> Wakers {
        let mut wakers = Wakers::default();
        let mut left = room;
        let mut called = Vec::new();
        let mut aside = 0;
        let mut wants_more = false;
        let mut kept = 0;
        let told = reason == Reason::Told;
        for (place, waiter) in &self.waiters {
            let Sharing::Permits(wanted) = waiter.sync.sharing() else {
                break;
            };
            // One that was handed its permits wants none of these.
            if waiter.has_hold() {
                continue;
            }
            if told && !waiter.can_be_told() {
                // The message may be for the first in line, whose request in flight may be older: then a refusal follows, and the waiter
                // claims these permits (invariant 2).
                if *place < PASSED && waiter.is_first_in_line() && wanted <= left {
                    left -= wanted;
                    kept = wanted;
                }
                continue;
            }
            if *place >= PASSED {
                aside += 1;
                if aside > OFFERED {
                    wants_more = true;
                    break;
                }
                // The server passed it over, so it delays nobody here either.
                if wanted > left {
                    continue;
                }
            } else if wanted > left {
                wants_more = true;
                break;
            }
            left -= wanted;
            if waiter.is_parked() || told {
                called.push(*place);
            }
        }
        if let Some((first, waiter)) = self.first()
            && waiter.is_parked()
            && waiter.wants_a_place()
            && !called.contains(&first)
        {
            // Invariant 6.
            called.push(first);
        }
        if told {
            // Those that wait for more ask for it themselves.
            self.surplus = if wants_more && self.asking == 0 {
                0
            } else {
                left + kept
            };
        }
        for place in called {
            self.tell_for(place, Turn::Try, reason, &mut wakers);
        }
        wakers
    }

    /// Tells waiters to ask for the permits that are nobody's here.
    pub(super) fn share_out(&mut self) -> Wakers {
        if self.surplus == 0 {
            return Wakers::default();
        }
        let wakers = self.admit_permits(self.surplus, Reason::Told);
        if self.asking == 0 && !self.waiters.values().any(Waiter::was_told) {
            // Nobody will say it: the server lets others have them in a moment.
            self.surplus = 0;
        }
        wakers
    }

    /// Lets others ask for what `waiter`, which has left, was told of and did not ask for.
    pub(super) fn told_in_vain(&mut self, waiter: &Waiter) -> Wakers {
        if waiter.was_told() && !waiter.asking {
            self.surplus = self.surplus.saturating_add(waiter.wanted());
        }
        self.share_out()
    }

    /// Takes the number of permits that this process was told of and has no use for, whatever the requests under way are answered.
    pub(super) fn useless(&mut self) -> u32 {
        if self.surplus == 0 {
            return 0;
        }
        // These may be older than the message, and come back.
        let anew = |it: &&Waiter| it.asking && (!it.was_told() || it.is_first_in_line());
        let waiting = self.waiters.values().filter(anew).map(Waiter::wanted);
        let kept = waiting.fold(0, u32::saturating_add);
        let useless = self.surplus.saturating_sub(kept);
        self.surplus -= useless;
        useless
    }

    /// Lets waiters ask for what was announced while one of them asked, whose answer may be older (invariant 2).
    pub(super) fn admit_again(&mut self, again: u32) -> Wakers {
        if !matches!(self.first_sharing(), Some(Sharing::Permits(_))) {
            return if again > 0 {
                self.admit(Room::For(again))
            } else {
                Wakers::default()
            };
        }
        let mut wakers = self.share_out();
        if wakers.0.is_empty() && again > 0 {
            wakers = self.admit(Room::For(again));
        }
        wakers
    }

    /// Moves a refused waiter for permits to the place that the server's hint implies. Returns that place, and tells the first
    /// waiter to ask if it may go on now.
    pub(super) fn refused_permits(&mut self, place: u64, sign: Sign) -> (u64, Wakers) {
        // A waiter that was passed over before delayed nobody.
        let passed = sign == Sign::Passed;
        // Only one in front of the others, and not yet passed over, was waited for.
        let kept_others =
            passed && place < PASSED && self.first().is_some_and(|(first, _)| first == place);
        let to = match (place >= PASSED, sign) {
            // Behind those that were passed over before, so that each of them is offered its turn.
            (_, Sign::Passed) => PASSED | self.last_place(),
            (false, _) => place,
            // It has a place in line on the server, ahead of all that joined here since.
            (true, Sign::InLine) => self.first().map_or(FIRST, |(first, _)| first.min(FIRST)) - 1,
            // It can be served again, behind the others.
            (true, _) => self.last_place(),
        };
        if to != place
            && let Some(mut waiter) = self.remove(place)
        {
            let parked = waiter.is_parked();
            // Invariant 6: with a place in line, or with none to be had, it need not ask again when it becomes the first.
            waiter.asked_first = passed || sign == Sign::InLine;
            self.waiters.insert(to, waiter);
            if parked {
                self.count_parked(to, 1);
            }
        }
        let wakers = match self.first() {
            // Those that it delayed go on; or the new first one takes its place in line (invariant 6).
            Some((first, waiter))
                if waiter.is_parked() && (kept_others && first != to || waiter.wants_a_place()) =>
            {
                self.nudge(first)
            }
            _ => Wakers::default(),
        };
        (to, wakers)
    }

    /// Lets the first passed-over waiter ask. Each gets its turn, because one that is passed over again moves behind the others.
    fn offer_passed(&mut self) -> Wakers {
        match self.waiters.range(PASSED..).next() {
            Some((place, waiter)) if waiter.is_parked() => self.nudge(*place),
            _ => Wakers::default(),
        }
    }

    /// Returns whether a grant or a message may have removed this process from the wait set on the server since the waiter at `place` sent
    /// its request.
    pub(super) fn overtaken(&self, place: u64) -> bool {
        let waiter = self.waiters.get(&place);
        waiter.is_some_and(|it| it.wanted() > 0 && it.parted != self.parted)
    }

    /// Notes what a grant to one that asked tells of the crowd: `out`, that it has taken this process out of it, or else that it has kept it
    /// there. `asked`: `Queue::parted` when it asked.
    pub(super) fn note_crowd(&mut self, out: bool, asked: u64) {
        if out {
            self.parted += 1;
            self.unknown = true;
        } else if asked == self.parted {
            self.unknown = false;
        }
    }

    /// Returns whether the server knows that this process waits, or learns it from a request that follows the grant after which it did not.
    /// Not from an earlier one, of which nobody may ever take the answer.
    fn is_known(&self) -> bool {
        let asks = |it: &Waiter| {
            it.asking && it.parted == self.parted || matches!(it.turn, Some(Turn::Try))
        };
        !self.unknown || self.waiters.values().any(asks)
    }

    /// Lets a waiter send a request for `reason` if this process may be missing in the wait set on the server (invariant 3). `told`: the
    /// waiters that send a request anyway.
    pub(super) fn make_known(&mut self, reason: Reason, told: &mut Wakers) {
        if told.0.is_empty()
            && !self.is_known()
            // Also one that was passed over: the server tells it as the others.
            && let Some((&first, _)) = self.waiters.iter().find(|(_, it)| it.is_parked())
        {
            told.0.extend(self.nudge_for(first, reason).0);
        }
    }

    /// Lets waiters ask because the poll timer has fired: the first, also while others ask, and one that was passed over.
    pub(super) fn admit_by_poll(&mut self) -> Wakers {
        let parked = self.parked;
        let mut wakers = self.admit(Room::Unknown);
        if self.parked == parked
            && let Some((first, _)) = self.first_parked()
        {
            // Nobody may ever take the answer to the request under way.
            wakers.0.extend(self.nudge(first).0);
        }
        wakers.0.extend(self.offer_passed().0);
        wakers
    }

    /// The first waiter for permits that does not ask, among those that were not passed over.
    pub(super) fn first_parked(&self) -> Option<(u64, &Waiter)> {
        let mut waiters = self.waiters.range(..PASSED);
        let (place, waiter) = waiters.find(|(_, waiter)| waiter.is_parked())?;
        Some((*place, waiter))
    }

    /// The waiter for a permit that the server has granted to this process: the first that is not being handed one, nor was promised one. One that
    /// asks only if no other waits: it asked before the grant, as with a hint, and nobody may ever take its answer. `None` where it wants more:
    /// those behind it wait for it.
    fn first_for_grant(&self) -> Option<u64> {
        let free =
            |it: &Waiter| matches!(it.turn, None | Some(Turn::Try)) && !it.was_told() && !it.handed;
        let free = || self.waiters.range(..PASSED).filter(|(_, it)| free(it));
        let (place, waiter) = free()
            .find(|(_, it)| !it.asking)
            .or_else(|| free().next())?;
        (waiter.wanted() == 1).then_some(*place)
    }

    /// Counts a parked waiter as asking: a holder asks for it, by handing over its hold.
    pub(super) fn asks(&mut self, place: u64) {
        if let Some(waiter) = self.waiters.get_mut(&place) {
            waiter.asking = true;
            waiter.handed = true;
            waiter.reason = Reason::Anew;
            waiter.parted = self.parted;
            self.asking += 1;
            self.count_parked(place, -1);
        }
    }
}

/// Returns whether a grant by message is of a permit of this name. P1: names that differ by braces share the channel.
pub(super) fn is_of(granted: &Granted<'_>, name: &Name) -> bool {
    granted.fence.map(str::as_bytes) == Some(name.as_bytes())
}

impl LockEntry {
    /// Handles a grant of one permit by message. The server has made its owner, for whoever waits here first; it has taken this process out
    /// of the crowd.
    ///
    /// A grant that no waiter can take is given back (P3). A grant without a receiver ends with its lease.
    pub(super) fn granted_permit(&self, mut queue: MutexGuard<'_, Queue>, granted: &Granted<'_>) {
        let (Some(core), Some(entry)) = (self.core.upgrade(), self.this.upgrade()) else {
            return;
        };
        // P1: the first copy has made a hold, or has been given back.
        let now = core.clock.now();
        if queue.grants.is_copy(granted, now) {
            return;
        }
        let owner = WireOwner::stored(granted.owner);
        if now.since(core.when(self.name(), granted.now)) >= KEPT {
            let waited = queue.waited.clone();
            drop(queue);
            give_back_old(&core, waited, owner);
            return;
        }
        let mut wakers = Wakers::default();
        let gathered = queue.gathered.take();
        let parted = queue.parted;
        queue.note_crowd(true, parted);
        queue.refused = 0;
        // Won on the server, so this process has its whole turn of hand-offs again.
        queue.handed = 0;
        let place = queue.first_for_grant();
        let waiter = place.and_then(|place| queue.waiters.get(&place));
        let (mut late, mut spare) = (None, None);
        if let (Some(place), Some(waiter)) = (place, waiter) {
            let grant = Grant {
                owner,
                token: None,
                terms: waiter.terms,
                // P1: the lease runs since the server's decision. `when` errs to the early side.
                sent: core.when(waiter.sync.name(), granted.now),
                first: Some(granted.lease),
                unanswered_until: Moment::ZERO,
                due: Moment::ZERO,
                next: None,
            };
            let hold = Hold::begin(&core, &waiter.sync, &entry, grant);
            if hold.is_held() {
                queue.tell(place, Turn::Take(hold.unclaimed()), &mut wakers);
            } else {
                late = Some(hold);
            }
        } else if let Some(sync) = queue.waited.clone() {
            spare = Some((sync, owner));
        }
        // Invariant 3: the server does not know of the others.
        let mut others = Wakers::default();
        queue.make_known(Reason::Anew, &mut others);
        wakers.0.extend(others.0);
        drop(queue);
        wakers.call();
        if let Some(gathered) = gathered {
            gathered.ended();
        }
        drop(late);
        if let Some((sync, owner)) = spare {
            give_back(&core, &sync, owner);
        }
    }
}

/// Releases a permit that was granted by message, and that no waiter takes (P3).
fn give_back(core: &Arc<Core>, sync: &Arc<dyn Synchronizer>, owner: WireOwner) {
    let leftover = Leftover {
        owner,
        lease: Lease::default(),
        unanswered_until: Moment::ZERO,
        queued: false,
    };
    leftover.sweep(core, sync);
}

/// Releases a permit whose grant arrived when its lease was long over (P3). The message may be a second copy of a grant that is
/// no longer remembered: then this client may have the hold, and keeps it (P1).
fn give_back_old(core: &Arc<Core>, waited: Option<Arc<dyn Synchronizer>>, owner: WireOwner) {
    let holds = core.timetable.holds();
    if let Some(sync) = waited.filter(|_| holds.iter().all(|hold| hold.owner != owner)) {
        give_back(core, &sync, owner);
    }
}

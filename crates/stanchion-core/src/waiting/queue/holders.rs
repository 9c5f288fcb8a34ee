//! The effect of holds of this process on its waiters: a grant to one of them, the end of a hold, and a hand-off.
//!
//! The hold of one name goes to the first waiter for that name. The hold of several names goes to the first waiter for the same names, once
//! also past others. A permit goes to the first parked waiter. Until the script's reply that waiter counts as one with a request in flight.

use std::time::Duration;

use super::{
    Context, Doing, Effect, EndedHold as _, Entry, Held as _, Holder as _, Outcome, Parts, Queue,
    Requested, Waiter, Want as _,
};
use crate::about::Sharing;
use crate::description::End;
use crate::line::{Placed, Reason, TURN};
use stanchion_transport::Moment;

/// The number of waiters that are searched for one that wants the same locks.
const LOOKED_AT: usize = 16;

impl<P: Parts> Queue<P> {
    /// Records a grant, which ends the refusals in a row and an outage.
    pub(super) fn answered(&mut self) {
        self.refused = 0;
        self.outage = None;
    }

    /// Records a hold that was acquired without a place in the queue.
    pub fn acquired_without_place(&mut self, cx: &dyn Context<P>, hold: &P::Hold) {
        let sharing = hold.sharing();
        // A reader or a permit may leave room for others, so these do not stop requests.
        if sharing.has_one_holder() {
            self.holder = hold.holder();
        }
        // P8: 0, because the caller does not record which waiters had joined before its request. No waiter gets its result.
        self.admit_others(cx, sharing, 0);
    }

    /// Lets waiters send requests after a grant to one of them, as the sharing allows. Waiters below `asked_before` had joined before its request.
    pub(super) fn admit_others(
        &mut self,
        cx: &dyn Context<P>,
        sharing: Sharing,
        asked_before: u64,
    ) {
        self.answered();
        match sharing {
            // The others are called when the hold ends. The server has selected this process, so it has its whole turn of hand-offs again.
            Sharing::Exclusive => self.handed = 0,
            Sharing::Together => {
                // Parked waiters that may share send requests now. Those with a request in flight may be refused by a reply that is older
                // than this grant: the refusal retries (invariant 2).
                self.due = (self.asking > 0).then_some((Moment::ZERO, Reason::Turn));
                let mut group = Vec::new();
                for (place, waiter) in &self.waiters {
                    let together = waiter.want.sharing() == Sharing::Together;
                    // A writer must send one request, so that it has an entry on the server.
                    let newcomer =
                        waiter.asked == Requested::Never && self.asking == 0 && group.is_empty();
                    if waiter.is_parked() && (together || newcomer) {
                        group.push(*place);
                    }
                    // Readers behind a waiting writer must not overtake it.
                    if !together {
                        break;
                    }
                }
                for place in group {
                    self.send(cx, place, Reason::Turn);
                }
            }
            // More permits may be free.
            Sharing::Permits(_) => self.admit_another(cx, Reason::Turn),
            Sharing::Event => {
                // P8: the answer is as old as its request. A waiter that joined later may wait for a later event.
                let seen = self.waiters.range(..asked_before);
                let seen: Vec<u64> = seen.map(|(place, _)| *place).collect();
                for place in seen {
                    self.settle(cx, place, Outcome::Seen);
                }
                // Invariant 3: no waiter before them is left to send requests.
                if self.first_is_parked() {
                    self.admit(cx, Reason::Turn);
                }
            }
            // The server selects the next holder. A wake-up during the attempt is for another waiter, too.
            Sharing::Queued => {
                if let Some((_, reason)) = self.due.take() {
                    self.admit(cx, reason);
                }
            }
        }
    }

    /// Takes a hold from the waiter that was given it and has not taken it. The waiter starts again.
    pub fn untaken(&mut self, hold: &P::Ended) {
        let is_it = |(_, it): &mut (u64, Outcome<P>)| match it {
            Outcome::Granted(given) => given.is(hold),
            _ => false,
        };
        let untaken = self.outcomes.extract_if(.., is_it);
        self.out.extend(untaken.map(|(_, it)| Effect::Untaken(it)));
    }

    /// Records that a hold has ended. The next waiter sends a request, unless the release has notified it.
    pub fn freed(&mut self, cx: &dyn Context<P>, hold: &P::Ended, end: End) {
        // Invariant 5.
        if hold.is_untaken() {
            self.untaken(hold);
        }
        // By identity: a late end of an old hold must not free the queue of its successor.
        if self.holder.is(hold) {
            self.holder = P::Holder::default();
        }
        let released = end == End::Released;
        // A request in flight may have put the entry into the queue.
        let stands = self.has_entry() || self.asking > 0;
        let in_line = hold.want().is_in_line();
        match hold.want().sharing() {
            Sharing::Exclusive if self.holder.is_held(cx.now()) => {}
            // An answered release has granted to the next waiter. A lost reply may have contained a grant to a waiter here (P4).
            Sharing::Queued if released => {}
            // An event has no holder.
            Sharing::Event => {}
            // The message of the release wakes the waiters.
            Sharing::Together | Sharing::Permits(_) if !in_line && released => {}
            // The release has granted to the head of the queue, where this process has its entry. A poll follows (invariant 3). A client
            // that polls learns of a grant by its next request only, which must not be late.
            _ if in_line && stands && released && !cx.polls() => {
                self.handed = 0;
                if !self.is_empty() {
                    self.poll_by(cx.now() + cx.poll_interval(), Reason::Look);
                }
            }
            _ => {
                self.handed = 0;
                self.admit(cx, Reason::Turn);
            }
        }
    }

    /// The number of hand-offs in a row, and whether a hand-off past it would put the successor into the queue on the server.
    pub fn hand_offs(&self) -> (u32, bool) {
        (self.handed, self.has_entry())
    }

    /// The waiter that gets a hold for `held`: the first, or with `past` a later one that wants the same.
    fn first_for(&self, held: &P::Want, past: bool) -> Option<(u64, &Waiter<P>)> {
        let (place, first) = self.first_place()?;
        if let Sharing::Permits(_) = held.sharing() {
            // Other waiters may be requesting.
            let (place, waiter) = self.waiters.iter().find(|(_, it)| it.is_parked())?;
            let same = waiter.want.is_handed(held) && waiter.want.sharing() == held.sharing();
            return same.then_some((*place, waiter));
        }
        if first.want.is_handed(held) {
            return Some((place, first));
        }
        let fits = |it: &Waiter<P>| it.is_parked() && it.want.is_handed(held);
        let mut others = self.waiters.iter().take(LOOKED_AT).skip(1);
        let (place, waiter) =
            (past && first.is_parked()).then(|| others.find(|(_, it)| fits(it)))??;
        Some((*place, waiter))
    }

    /// Reserves the waiter that gets a hold for `held`. That waiter sends no request until [`Queue::hand_over`], [`Queue::end_hand_off`] or
    /// [`Queue::passed_on`]. `past`: it may be behind others.
    pub fn reserve(&mut self, cx: &dyn Context<P>, held: &P::Want, past: bool) -> Option<u64> {
        let permits = matches!(held.sharing(), Sharing::Permits(_));
        // Invariant 1: the server may grant a request in flight at any moment, and its waiter can take one hold only.
        if !permits && (self.is_under_way() || self.holder.is_held(cx.now())) {
            return None;
        }
        let (place, _) = self.first_for(held, past)?;
        let waiter = self.waiters.get_mut(&place)?;
        if permits {
            // It has no request, and another waiter may use the owner of its last one now.
            (waiter.doing, waiter.asked) = (Doing::Receiving, Requested::Behind);
            // One hand-off after a turn yields. Those that follow at once begin the next turn.
            self.handed = if self.handed < TURN {
                self.handed + 1
            } else {
                0
            };
            self.asking += 1;
            return Some(place);
        }
        // Until the script's reply no waiter of this queue may send a request (invariant 1).
        self.handing = Some(place);
        Some(place)
    }

    /// Hands `hold` to the waiter at `place`. If it has left, the hold is dropped, and its release serves the next one. `handed`: the
    /// hand-offs in a row, with this one.
    pub fn hand_over(&mut self, cx: &dyn Context<P>, place: u64, hold: P::Hold, handed: u32) {
        // The server has answered.
        self.outage = None;
        if hold.sharing() == Sharing::Exclusive {
            // Wake-ups during the hand-off were for a lock that is held again.
            self.due = None;
            self.handed = handed;
            // Also when the waiter has left: new waiters send no requests until the release of the dropped hold calls `freed`.
            self.holder = hold.holder();
        }
        self.end_hand_off(cx, place, Some(hold));
    }

    /// Ends the hand-off to `place`, which gets `hold` if there is one.
    pub fn end_hand_off(&mut self, cx: &dyn Context<P>, place: u64, hold: Option<P::Hold>) {
        let exclusive = self.handing == Some(place);
        if exclusive {
            self.handing = None;
        } else {
            self.came_back(cx, place);
        }
        if let Some(hold) = hold {
            self.settle(cx, place, Outcome::Granted(hold));
        }
        if !exclusive {
            // Invariant 2: a wake during the hand-off was for others.
            if let Some((_, reason)) = self.due.take() {
                self.admit(cx, reason);
            }
            self.make_known(cx);
        }
    }

    /// Ends a hand-off in which another process was ahead: `debt`, that of the reserved waiter, becomes the entry of this process.
    pub fn passed_on(
        &mut self,
        cx: &dyn Context<P>,
        debt: P::Debt,
        ttl: Option<Duration>,
        placed: Placed,
    ) {
        self.handing = None;
        let due = self.due.take();
        if self.waiters.is_empty() {
            self.give_up(Some(debt));
            return;
        }
        let called = due.filter(|(at, _)| *at <= cx.now());
        let off = called.is_some();
        self.entry = Some(Entry { debt, off });
        // A message may have overtaken the reply: the grant to this entry, or a hint for it.
        match called {
            Some((_, reason)) => self.admit(cx, reason),
            _ => self.plan_poll(cx, ttl, placed, true, due),
        }
    }
}

//! The entry of this process in the queue that the server keeps for a name.
//!
//! One entry for all waiters of a local queue: [`Queue`] has it while no request is under way in its name, otherwise that request
//! has. Each message names the entry that it is about; one about another entry is ignored. A grant goes to the first waiter. The last
//! waiter that leaves gives the entry up.

use std::borrow::Borrow as _;
use std::time::Duration;

use super::waiters::{POLL_UNSUBSCRIBED, after_expiry, spin};
use super::{
    Context, Effect, Entry, Held as _, Owed as _, Parts, Queue, Requested, Waiter, Want as _,
};
use crate::about::Sharing;
use crate::description::{Granted, Heard};
use crate::line::{Placed, Reason};
use stanchion_transport::Moment;

/// The interval at which a queue on the server polls as a whole, if no shorter one is configured: see `line.lua`.
const POLL: Duration = Duration::from_secs(5);

/// The longest time to a poll at a random moment: see `line.lua`.
const LONGEST_POLL: Duration = Duration::from_secs(120);

/// A refusal of a request.
#[derive(Debug)]
pub struct Refused {
    /// The time after which the holder's lease ends, if it is known.
    pub ttl: Option<Duration>,
    /// The entry that the request has got or kept.
    pub placed: Option<Placed>,
    /// True if the server has an entry by now, from this request or an earlier one.
    pub has_entry: bool,
    /// If each waiter has an entry on the server: the one that holds, by the reply. The message of its grant may be lost.
    pub granted: Option<String>,
    /// True if the server had removed the entry of this waiter.
    pub forgotten: bool,
    /// True if the subscription to messages is confirmed.
    pub subscribed: bool,
}

/// A grant by message, for the waiter that takes it.
#[derive(Debug)]
pub struct Begin<'a, P: Parts> {
    /// The waiter.
    pub waiter: &'a Waiter<P>,
    /// The right of the owner that was granted.
    pub debt: P::Debt,
}

impl<P: Parts> Queue<P> {
    /// Returns whether the server notifies this process when it is the turn of its entry. An entry that may be gone does not count.
    pub(crate) fn has_entry(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| !entry.off)
    }

    /// Takes the entry, to give it up.
    pub fn take_entry(&mut self) -> Option<P::Debt> {
        self.entry.take().map(|entry| entry.debt)
    }

    /// Returns whether this queue has the right to what `owner` may have on the server, as its entry or as that of a waiter.
    pub fn has_debt_of(&self, owner: &str) -> bool {
        let entry = self.entry.as_ref().map(|entry| &entry.debt);
        let waiters = self.waiters.values().filter_map(|it| it.debt.as_ref());
        let mut debts = entry.into_iter().chain(waiters);
        debts.any(|debt| debt.owner().borrow() == owner)
    }

    /// Returns whether a message about the entry of `owner` is for this queue: for its entry, or for that of a request in flight.
    fn is_about(&self, owner: &str) -> bool {
        let entry = self.entry.as_ref();
        let asks = |it: &Waiter<P>| it.is_asking() && it.owner.borrow() == owner;
        entry.is_some_and(|entry| entry.debt.owner().borrow() == owner)
            || self.asking > 0 && self.waiters.values().any(asks)
    }

    /// Lets this queue keep the entry that the new waiter at `place` brings from another queue, if that waiter does not use it at once. The entry is given
    /// up if the first waiter cannot use it.
    pub fn bring(&mut self, cx: &dyn Context<P>, place: u64) {
        let parked = self.waiters.get_mut(&place).filter(|it| it.is_parked());
        let Some(debt) = parked.and_then(|it| it.debt.take()) else {
            return;
        };
        let first = self.first();
        if self.entry.is_none() && first.is_some_and(|it| serves::<P>(&debt, &it.want)) {
            // P4: a message about this entry that was faster than the reply was ignored here (`is_about`), and the server may have
            // removed the entry with it. Therefore the end of a local hold, or of a request, lets the first waiter send a request.
            self.entry = Some(Entry { debt, off: true });
        } else {
            self.give_up(Some(debt));
        }
        self.make_known(cx);
    }

    /// Takes the entry of this process, if the first waiter cannot take a grant to it, or there is none.
    pub(super) fn forsaken_entry(&mut self) -> Option<P::Debt> {
        let first = self.waiters.first_key_value().map(|(_, first)| first);
        let forsaken = self
            .entry
            .take_if(|entry| first.is_none_or(|first| !serves::<P>(&entry.debt, &first.want)));
        forsaken.map(|entry| entry.debt)
    }

    /// Finds the waiter that takes a grant to `owner`: the one with a request of that owner, or the first that can use the entry.
    fn taker(&self, owner: &str) -> Option<u64> {
        if let Some(place) = self.kept.by_owner.get(owner) {
            return Some(*place)
                .filter(|place| self.waiters.get(place).is_some_and(|it| it.given.is_none()));
        }
        let entry = self.entry.as_ref().map(|entry| &entry.debt);
        let entry = entry.filter(|debt| debt.owner().borrow() == owner);
        let takes = |it: &Waiter<P>| {
            // Another waiter may have used this owner before, and is parked now.
            let asks = it.is_asking() && it.asked == Requested::First && it.owner.borrow() == owner;
            let waits = it.is_parked() && entry.is_some_and(|debt| serves::<P>(debt, &it.want));
            it.given.is_none() && (asks || waits)
        };
        let (place, _) = self.waiters.iter().find(|(_, waiter)| takes(waiter))?;
        Some(*place)
    }

    /// Parks the waiter at `place` after a refusal. A message or a poll lets it retry: after `ttl`, or the poll interval if that is
    /// shorter.
    pub fn refused(&mut self, cx: &dyn Context<P>, place: u64, refused: Refused) {
        let Refused {
            ttl,
            placed,
            has_entry,
            granted,
            forgotten,
            subscribed,
        } = refused;
        // A refusal is an answer, too.
        self.outage = None;
        let due = self.due.take();
        // A grant by message finds the request until now, and the entry from here on. If it came during the request, this waiter has the
        // hold, which takes the debt over.
        let mut again = false;
        if self.came_back(cx, place)
            && let Some(waiter) = self.waiters.get_mut(&place)
        {
            waiter.waits = true;
            again = std::mem::take(&mut waiter.again);
            if !waiter.told {
                self.out.extend(waiter.waker.take().map(Effect::Wake));
            }
            if has_entry && let Some(debt) = waiter.debt.take() {
                // An entry that this one replaces is given up. The message of a wake-up during the request may have removed this one.
                let off = due.is_some_and(|(at, _)| at <= cx.now());
                let replaced = self.entry.replace(Entry { debt, off });
                self.give_up(replaced.map(|entry| entry.debt));
            }
        }
        let asking = self.asking;
        if again {
            self.send(cx, place, Reason::Turn);
        }
        let heeded = self.heed(cx, place, granted.as_deref(), forgotten);
        // Invariant 2: a wake came during the attempt, and the answer may be older than it.
        match due {
            _ if heeded => {}
            Some((at, reason)) if at <= cx.now() => self.admit(cx, reason),
            _ => self.make_known(cx),
        }
        self.refused = self.refused.saturating_add(1);
        let Some(waiter) = self.waiters.get(&place) else {
            return;
        };
        let (sharing, in_line) = (waiter.want.sharing(), waiter.want.is_in_line());
        // A waiter sends a request now, and its reply plans the next poll.
        if self.asking > asking && !sharing.keeps_each_waiter() {
            return;
        }
        let several = sharing.keeps_each_waiter()
            || sharing.permits().is_some()
            || sharing.is_read() && in_line;
        let Some(placed) = placed else {
            let at = cx.now() + self.pause(cx, ttl, subscribed);
            // If several waiters send requests, one with a long pause must not delay the poll of another.
            match several {
                true => self.poll_by(at, Reason::Turn),
                false => self.poll_at(at, Reason::Turn),
            }
            return;
        };
        // A request that was due by now has its turn, or is remembered again.
        let due = due.filter(|(at, _)| *at > cx.now());
        self.plan_poll(cx, ttl, placed, subscribed, due);
    }

    /// Plans the next poll, after a reply that gave this process its entry. `due`: the poll that a message demanded during the request.
    pub(super) fn plan_poll(
        &mut self,
        cx: &dyn Context<P>,
        ttl: Option<Duration>,
        placed: Placed,
        subscribed: bool,
        due: Option<(Moment, Reason)>,
    ) {
        let interval = cx.poll_interval();
        let several = self.first_sharing().is_some_and(Sharing::keeps_each_waiter);
        let ttl = if several && placed.spread {
            self.kept.pause = ttl.unwrap_or_default();
            Some(self.spread())
        } else {
            ttl
        };
        let pause = match ttl {
            // After a refusal of a free name, the pause is the one that the server replied.
            _ if cx.polls() && placed.asks => {
                let pause = spin(cx, self.refused);
                ttl.map_or(pause, |ttl| after_expiry(cx, ttl).min(pause))
            }
            _ if !subscribed => ttl.map_or(POLL_UNSUBSCRIBED, |ttl| {
                after_expiry(cx, ttl).min(POLL_UNSUBSCRIBED)
            }),
            // At a random moment: the queue as a whole polls once in an interval.
            Some(ttl) if placed.spread => {
                let shortened = ttl.mul_f64((interval.as_secs_f64() / POLL.as_secs_f64()).min(1.0));
                // While a client of Redisson's holds, the head gets its own pause, which is not that of the whole queue.
                cx.jitter(shortened.max(ttl.min(interval)))
            }
            Some(ttl) => after_expiry(cx, ttl).min(interval),
            None => interval,
        };
        let reason = match placed.asks {
            true => Reason::Told,
            // A stopgap, which the next reply replaces.
            false if several && !subscribed => Reason::Turn,
            false => Reason::Look,
        };
        let planned = (cx.now() + pause, reason);
        let (at, reason) = due.filter(|(at, _)| *at <= planned.0).unwrap_or(planned);
        // If each waiter has an entry, the reply to one of them must not delay the poll that another has planned, nor add one.
        let is_planned = self.poll.is_some_and(|(_, reason)| reason != Reason::Turn);
        match several && (is_planned || !subscribed) {
            true if placed.spread && subscribed => {}
            true => self.poll_by(at, reason),
            false => self.poll_at(at, reason),
        }
    }

    /// The longest time to a poll at a random moment, if each waiter has an entry on the server: together they poll at a constant rate.
    fn spread(&self) -> Duration {
        let waiters = u32::try_from(self.waiters.len()).unwrap_or(u32::MAX);
        (self.kept.pause / waiters.max(1)).min(LONGEST_POLL)
    }

    /// Lets other waiters send requests after the reply to the one at `place`, if each has an entry on the server. Returns whether one does.
    fn heed(
        &mut self,
        cx: &dyn Context<P>,
        place: u64,
        granted: Option<&str>,
        forgotten: bool,
    ) -> bool {
        // P3: the message of this grant may be lost. The request of that waiter finds the grant.
        if let Some(place) = granted.and_then(|owner| self.kept.by_owner.get(owner).copied()) {
            self.nudge(cx, place);
            return true;
        }
        // The server may have removed the entries of the others, too.
        if forgotten && self.is_first(place) {
            self.admit_all_but(cx, Some(place));
            return true;
        }
        false
    }

    /// Handles a message for the queue, or for the waiter with the owner `to`. `begin` makes the hold of a grant.
    pub fn message(
        &mut self,
        cx: &dyn Context<P>,
        to: Option<&str>,
        subscribed: bool,
        heard: Heard<'_>,
        begin: impl FnOnce(Begin<'_, P>) -> Option<P::Hold>,
    ) {
        match (heard, to) {
            (Heard::Granted(granted), _) => {
                self.granted_by_message(cx, &granted, subscribed, begin);
            }
            (Heard::Head(owner, pause), _) => {
                // P4: the head polls at least once in this interval.
                let pause = (pause + Duration::from_millis(1)).min(cx.poll_interval());
                self.notified(cx, owner, cx.now() + pause, Reason::Look);
            }
            (Heard::Try(owner, pause), _) if !pause.is_zero() => {
                self.notified(cx, owner, cx.now() + pause, Reason::Told);
            }
            (Heard::Try(owner, _), _) => {
                // The server may have removed the entry with this message.
                if let Some(entry) = &mut self.entry
                    && entry.debt.owner().borrow() == owner
                {
                    entry.off = true;
                }
                self.notified(cx, owner, Moment::ZERO, Reason::Told);
            }
            // Redisson's release on a waiter's own channel is for that waiter, at any place in this queue.
            (Heard::Free, Some(owner)) => self.nudge_owner(cx, owner),
            (Heard::Free, None) => {
                self.refused = 0;
                self.admit(cx, Reason::Told);
            }
        }
    }

    /// Lets the waiter with the owner `owner` send a request, where the server keeps all waiters.
    pub(crate) fn nudge_owner(&mut self, cx: &dyn Context<P>, owner: &str) {
        if let Some(place) = self.kept.by_owner.get(owner).copied() {
            self.nudge(cx, place);
        }
    }

    /// Handles a grant by message. The hold begins here, not when its waiter is polled, so that the watchdog extends the short
    /// lease of a grant at once.
    ///
    /// A grant to an owner that has left is given back by the sweep of its debt (P3, F6). P1: a second copy finds neither the entry nor the request
    /// of its owner, because an owner has one hold only.
    fn granted_by_message(
        &mut self,
        cx: &dyn Context<P>,
        granted: &Granted<'_>,
        subscribed: bool,
        begin: impl FnOnce(Begin<'_, P>) -> Option<P::Hold>,
    ) {
        let place = self.taker(granted.owner);
        let is_entry = |entry: &mut Entry<P>| entry.debt.owner().borrow() == granted.owner;
        let debt = self.entry.take_if(is_entry).map(|entry| entry.debt);
        let Some((place, waiter)) = place.and_then(|it| Some((it, self.waiters.get(&it)?))) else {
            if self.handing.is_some() {
                // The entry may be that of a hand-off whose reply is in flight: see `passed_on`.
                self.remember(Moment::ZERO, Reason::Turn);
            }
            // No waiter here takes the grant: the sweep of its debt passes it on.
            self.give_up(debt);
            return;
        };
        // P2: a user of another counter, or of none, may have minted. Then the waiter's own request finds the grant, and mints.
        if granted.fence.as_bytes() != waiter.want.fence() {
            if self.kept.by_owner.contains_key(granted.owner) {
                return self.nudge(cx, place);
            }
            // The first waiter's request finds the grant, or gives it back.
            self.entry = debt.map(|debt| Entry { debt, off: true });
            self.admit(cx, Reason::Turn);
            return;
        }
        let right = debt.as_ref().or(waiter.debt.as_ref()).cloned();
        let hold = right.and_then(|debt| begin(Begin { waiter, debt }));
        let Some(hold) = hold else {
            return self.give_up(debt);
        };
        let sharing = hold.sharing();
        if sharing.has_one_holder() {
            self.holder = hold.holder();
            self.due = None;
        }
        // Won on the server, so this process has its whole turn of hand-offs again.
        self.handed = 0;
        self.answered();
        self.give(cx, place, hold);
        if !sharing.has_one_holder() {
            // Other waiters may hold concurrently, and the grant has used up the entry of this process.
            self.admit_others(cx, sharing, 0);
        }
        // The poll that was planned may have been that of the head of the queue on the server.
        if sharing.keeps_each_waiter() && subscribed && self.first().is_some() {
            let longest = self.spread().max(cx.poll_interval());
            self.poll_at(cx.now() + cx.jitter(longest), Reason::Look);
        }
    }

    /// Lets the first waiter send a request at `at` for `reason`, after a message about the entry of `owner`. Another entry has
    /// been given up already.
    fn notified(&mut self, cx: &dyn Context<P>, owner: &str, at: Moment, reason: Reason) {
        let kept = self.kept.by_owner.get(owner).copied();
        if kept.is_none() && !self.is_about(owner) && self.handing.is_none() {
            return;
        }
        self.refused = 0;
        if let Some(place) = kept {
            match at == Moment::ZERO {
                true => self.nudge(cx, place),
                false => self.poll_at(at, reason),
            }
        } else if self.handing.is_some() || !self.first_is_parked() {
            self.remember(at, reason);
        } else if at == Moment::ZERO {
            self.admit(cx, reason);
        } else {
            self.poll_at(at, reason);
        }
    }
}

/// Returns whether a waiter for `want` can use the entry of `debt`, that is, take a grant to it.
pub(super) fn serves<P: Parts>(debt: &P::Debt, want: &P::Want) -> bool {
    want.shares_entry(debt.want()) || !debt.is_unanswered() && want.continues_entry(debt.want())
}

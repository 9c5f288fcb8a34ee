//! The outcomes of the requests of waiters: no decision, an error, an outage, a grant. `entry` has the refusals.

use std::time::Duration;

use super::{Context, Doing, Effect, Held as _, Outcome, Parts, Queue, Want as _};
use crate::about::Sharing;
use crate::line::Reason;
use stanchion_transport::Moment;

impl<P: Parts> Queue<P> {
    /// Gives `hold` to the waiter at `place`. One with a request in flight gets it at the end of the request, which may be granted to the same owner.
    pub(super) fn give(&mut self, cx: &dyn Context<P>, place: u64, hold: P::Hold) {
        match self.waiters.get_mut(&place) {
            Some(waiter) if waiter.is_asking() => {
                let before = waiter.given.replace(hold);
                let untaken = before.map(|hold| Effect::Untaken(Outcome::Granted(hold)));
                self.out.extend(untaken);
            }
            _ => self.settle(cx, place, Outcome::Granted(hold)),
        }
    }

    /// Parks the waiter at `place`, whose request in flight, or hand-off, has ended. A hold that it was given during that time ends its wait.
    /// Returns whether the waiter goes on to wait.
    pub(super) fn came_back(&mut self, cx: &dyn Context<P>, place: u64) -> bool {
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return false;
        };
        if waiter.is_busy() {
            waiter.doing = Doing::Nothing;
            self.asking -= 1;
        }
        match waiter.given.take() {
            Some(hold) => {
                self.settle(cx, place, Outcome::Granted(hold));
                false
            }
            None => true,
        }
    }

    /// Returns the owner with which the waiter at `place` sends its request again after an attempt without a decision. `None` once it has left, or was
    /// given a hold.
    pub fn undecided(&mut self, cx: &dyn Context<P>, place: u64) -> Option<P::Debt> {
        let waiter = self.waiters.get(&place)?;
        if waiter.given.is_some() {
            self.came_back(cx, place);
            return None;
        }
        waiter.debt.clone()
    }

    /// Ends the wait of `place` with the outcome of its request.
    pub fn answer(&mut self, cx: &dyn Context<P>, place: u64, answer: P::Answer) {
        let sharing = self.waiters.get(&place).map(|it| it.want.sharing());
        if !self.came_back(cx, place) {
            // The waiter has a hold, or has left.
            self.out.push(Effect::Untaken(Outcome::Answered(answer)));
            return;
        }
        self.settle(cx, place, Outcome::Answered(answer));
        self.call_next(cx, sharing);
    }

    /// Records that a request of `place` was not answered. Waiters that have waited for `tolerance` since replies stopped give up. Returns whether
    /// `place` must give up, too.
    pub fn unanswered(
        &mut self,
        cx: &dyn Context<P>,
        place: u64,
        tolerance: Duration,
        outage: &P::Outage,
    ) -> bool {
        // One start for the whole queue. When each waiter counted from its own first failure, they gave up one tolerance after
        // the other.
        let since = self.outage.as_ref().map_or_else(|| cx.now(), |it| it.0);
        if !self.waiters.contains_key(&place) {
            return false;
        }
        self.outage = Some((since, outage.clone()));
        // In the order of arrival the first that still has patience ends the search: ten thousand may wait.
        let mut is_over = false;
        let mut others = Vec::new();
        for (&other, waiter) in &self.waiters {
            if cx.now().since(since.max(waiter.stay.began)) < tolerance {
                break;
            } else if other == place {
                is_over = true;
            } else if waiter.is_parked() {
                others.push(other);
            }
        }
        for other in others {
            let debt = self.waiters.get_mut(&other).and_then(|it| it.debt.take());
            self.settle(cx, other, Outcome::OutOfReach(outage.clone(), debt));
        }
        is_over
    }

    /// Returns the failure of the last request, if no reply has arrived since.
    pub fn outage(&self) -> Option<&P::Outage> {
        self.outage.as_ref().map(|(_, outage)| outage)
    }

    /// Gives `hold`, which its request got, to the waiter at `place`, and lets those send requests that may hold concurrently. `next`: the moment
    /// at which the next waiter can be granted, if the reply contained it. Returns a hold that a message gave to the waiter at the same time.
    pub fn granted(
        &mut self,
        cx: &dyn Context<P>,
        place: u64,
        hold: P::Hold,
        next: Option<Moment>,
    ) -> Option<P::Hold> {
        let Some(waiter) = self.waiters.get_mut(&place) else {
            self.out.push(Effect::Untaken(Outcome::Granted(hold)));
            return None;
        };
        let sharing = hold.sharing();
        if sharing.has_one_holder() {
            self.holder = hold.holder();
        }
        let (asked_before, waited) = (waiter.asked_before, waiter.waits);
        let other = waiter.given.take();
        self.conclude(place, Outcome::Granted(hold));
        // A wake-up during the attempt announced this grant. If others may hold concurrently, `admit_others` keeps the wake-up.
        if sharing == Sharing::Exclusive {
            self.due = None;
        }
        match next.filter(|_| !self.waiters.is_empty()) {
            Some(next) => {
                self.answered();
                self.poll_by(next, Reason::Turn);
            }
            None => self.admit_others(cx, sharing, asked_before),
        }
        self.keep_polling(cx, Some(sharing));
        if other.is_none() && waited && sharing == Sharing::Queued {
            // No message has granted. If it was lost, or sent while this process was cut off, entries of others may be gone, too.
            self.admit(cx, Reason::Turn);
        }
        other
    }
}

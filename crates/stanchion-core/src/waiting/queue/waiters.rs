//! The life of a waiter: it joins, sends requests, and leaves.

use std::borrow::Borrow as _;
use std::task::Poll;
use std::time::Duration;

use super::entry::serves;
use super::{
    Ask, Context, Doing, Effect, Held as _, Holder as _, News, Outcome, Owed as _, Parts, Queue,
    Requested, Stay, Waiter, Want as _,
};
use crate::about::Sharing;
use crate::line::Reason;
use stanchion_transport::Moment;

/// The poll interval without a confirmed subscription, when no message can wake a waiter.
pub(super) const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(250);

/// The first and the longest pause between polls of a client that receives no messages.
const SPIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(128));

/// The interval at which every waiter sends its request again if the server keeps the queue. With the longest pause until the next poll (120 s),
/// it is shorter than the time after which Redisson takes a waiter for dead (its `fairLockWaitTimeout`, 300 s).
const RESTAMP: Duration = Duration::from_secs(150);

/// The longest time between two polls of a queue with an entry on the server. A client that polls counts as dead there after a second.
pub(super) fn interval<P: Parts>(cx: &dyn Context<P>) -> Duration {
    if cx.polls() {
        POLL_UNSUBSCRIBED
    } else {
        cx.poll_interval()
    }
}

/// The pause until a key with `ttl` left has expired: an expiry sends no message. One millisecond more, because a key still
/// exists during its last one; and a jitter, so that processes do not send requests at the same instant.
pub(crate) fn after_expiry<P: Parts>(cx: &dyn Context<P>, ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1) + cx.jitter(Duration::from_millis(2))
}

/// The pause of a client that polls, after so many refusals in a row.
pub(super) fn spin<P: Parts>(cx: &dyn Context<P>, refused: u32) -> Duration {
    let doublings = refused.saturating_sub(1).min(7);
    let longest = (SPIN.0 * (1 << doublings)).min(SPIN.1);
    // Half of it at random: processes that were refused together must not retry together.
    longest / 2 + cx.jitter(longest / 2)
}

impl<P: Parts> Queue<P> {
    /// Adds a waiter behind all others, which sends its requests in the name of the owner of `debt`, for as long as the queue leaves `debt` to it.
    /// Returns its place. With a request, the caller sends it: no other waiter has to be passed. A waiter for a fact sends none before
    /// [`Queue::attend`]: it joins before the event can occur.
    pub fn join(
        &mut self,
        cx: &dyn Context<P>,
        debt: P::Debt,
        terms: P::Terms,
        stay: Stay,
    ) -> (u64, Option<Ask<P>>) {
        let place = self.next;
        self.next += 1;
        let (want, owner) = (debt.want().clone(), debt.owner().clone());
        let asks = self.admits(cx, &want);
        let doing = match want.is_fact() {
            true => Doing::StandingBy,
            false => Doing::Nothing,
        };
        self.facts |= want.is_fact();
        if want.sharing() == Sharing::Queued {
            // Each waiter's own first request sets its deadline on the server (F7), so the interval begins with the first of
            // them.
            if self.waiters.is_empty() {
                self.kept.restamp = cx.now() + RESTAMP;
            }
            self.kept.by_owner.insert(owner.clone(), place);
        }
        self.waiters.insert(
            place,
            Waiter {
                want,
                owner,
                terms,
                stay,
                debt: Some(debt),
                doing,
                given: None,
                again: false,
                asked: Requested::Never,
                asked_before: 0,
                waits: !asks,
                told: false,
                waker: None,
            },
        );
        let ask = asks.then(|| self.ask(cx, place, Reason::Turn)).flatten();
        (place, ask)
    }

    /// Returns whether a new waiter sends a request at once, because it overtakes no waiter of this process.
    fn admits(&self, cx: &dyn Context<P>, want: &P::Want) -> bool {
        let sharing = want.sharing();
        let asks = match sharing {
            Sharing::Queued => return true,
            // A waiter for facts sends no request at first, because it joins before the event can occur.
            Sharing::Event if want.is_fact() => false,
            // A parked waiter was refused, or sends its request first. Waiters that may hold together send requests concurrently.
            _ => {
                let together =
                    |first: Sharing| sharing != Sharing::Exclusive && first != Sharing::Exclusive;
                let parked = self.waiters.len() > self.asking;
                !parked && self.first_sharing().is_none_or(together)
            }
        };
        // During a local hold or a hand-off a request would only be refused: `freed` or the end of the hand-off lets the waiter send one.
        asks && self.handing.is_none() && !self.holder.is_held(cx.now())
    }

    /// Lets the parked waiter at `place` send a request in the background.
    pub(super) fn send(&mut self, cx: &dyn Context<P>, place: u64, reason: Reason) {
        let ask = self.ask(cx, place, reason);
        self.out.extend(ask.map(Effect::Send));
    }

    /// Begins a request of the parked waiter at `place`. Only the first waiter may get an entry, and only it uses that of this process.
    fn ask(&mut self, cx: &dyn Context<P>, place: u64, reason: Reason) -> Option<Ask<P>> {
        let first = self.is_first(place);
        let waiter = self.waiters.get_mut(&place)?;
        let entry = self
            .entry
            .take_if(|_| first && waiter.want.is_in_line())
            .map(|entry| entry.debt);
        let own = waiter.debt.take();
        let fresh = || cx.owe(&waiter.want, &waiter.terms);
        let (debt, unused) = match entry {
            Some(debt) if waiter.want.shares_entry(debt.want()) => (debt, own),
            Some(debt) if serves::<P>(&debt, &waiter.want) => {
                let own = own.unwrap_or_else(fresh);
                (debt.pass_to(&own), Some(own))
            }
            // An entry for another kind of waiter is given up.
            unfit => (own.unwrap_or_else(fresh), unfit),
        };
        self.out.extend(unused.map(Effect::GiveUp));
        // A message that crosses the request finds the waiter by this owner.
        waiter.owner = debt.owner().clone();
        waiter.debt = Some(debt.clone());
        waiter.asked = if first {
            Requested::First
        } else {
            Requested::Behind
        };
        waiter.doing = Doing::Asking;
        // P8: fixed before the request is sent. A waiter that joins later may wait for a later event.
        waiter.asked_before = self.next;
        self.asking += 1;
        Some(Ask {
            place,
            debt,
            terms: waiter.terms.clone(),
            stay: waiter.stay,
            first,
            reason,
            waited: waiter.waits,
        })
    }

    /// Takes the news for the task of the waiter at `place`, or stores the waker of that task.
    pub fn poll(&mut self, cx: &dyn Context<P>, place: u64, waker: P::Waker) -> Poll<News<P>> {
        if let Some(at) = self.outcomes.iter().position(|(it, _)| *it == place) {
            let (_, outcome) = self.outcomes.swap_remove(at);
            // The hold ended before it was taken, and no other waiter was called.
            if let Outcome::Granted(hold) = &outcome
                && !hold.is_held(cx.now())
            {
                self.admit(cx, Reason::Turn);
            }
            return Poll::Ready(News::Over(outcome));
        }
        // Removed by `freed` (invariant 5).
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return Poll::Ready(News::Over(Outcome::Missed));
        };
        if waiter.waits && !waiter.told {
            waiter.told = true;
            return Poll::Ready(News::Waits);
        }
        // The future may have moved to another task since the last poll.
        let replaced = waiter.waker.replace(waker);
        self.out.extend(replaced.map(Effect::Forget));
        Poll::Pending
    }

    /// Takes the stored waker of the task of the waiter at `place`: that task runs now, and needs no wake for what it does.
    pub fn runs(&mut self, place: u64) -> Option<P::Waker> {
        self.waiters.get_mut(&place)?.waker.take()
    }

    /// Ends the wait of the waiter at `place`, which leaves the order. Its task gets `outcome`.
    pub(super) fn settle(&mut self, cx: &dyn Context<P>, place: u64, outcome: Outcome<P>) {
        let sharing = self.conclude(place, outcome);
        self.keep_polling(cx, sharing);
    }

    /// As [`Queue::settle`], without a poll for those that are left. Returns the sharing that it waited for; `None` if it has left before.
    pub(super) fn conclude(&mut self, place: u64, outcome: Outcome<P>) -> Option<Sharing> {
        let Some((sharing, waker)) = self.remove(place) else {
            self.out.push(Effect::Untaken(outcome));
            return None;
        };
        self.outcomes.push((place, outcome));
        self.out.extend(waker.map(Effect::Wake));
        Some(sharing)
    }

    /// Removes a waiter that does not wait any more, and cleans up after its requests. Returns the sharing that the waiter waited for, and its
    /// waker; `None` if it has left before.
    fn remove(&mut self, place: u64) -> Option<(Sharing, Option<P::Waker>)> {
        let mut waiter = self.waiters.remove(&place)?;
        let sharing = waiter.want.sharing();
        self.asking -= usize::from(waiter.is_busy());
        self.kept.by_owner.remove(waiter.owner.borrow());
        let debt = waiter.debt.take();
        self.give_up(debt);
        if let Some(hold) = waiter.given.take() {
            self.out.push(Effect::Untaken(Outcome::Granted(hold)));
        }
        let waker = waiter.waker.take();
        self.out.push(Effect::Left(waiter));
        // P8: a later waiter must not report the outage of these.
        if self.waiters.is_empty() {
            self.outage = None;
        }
        Some((sharing, waker))
    }

    /// The call of the waiter at `place`, which waits for a fact, begins to wait. With `look`, or if it is due, it sends a request.
    pub fn attend(&mut self, cx: &dyn Context<P>, place: u64, look: bool) {
        if let Some(waiter) = self.waiters.get_mut(&place)
            && waiter.doing == Doing::StandingBy
        {
            waiter.doing = Doing::Nothing;
            if std::mem::take(&mut waiter.again) || look {
                self.send(cx, place, Reason::Turn);
            }
        }
    }

    /// Removes the waiter at `place`, which gives up. Returns what its own requests may have left, and the entry of this process, if no waiter is
    /// left that can take a grant to it.
    pub fn leave(&mut self, cx: &dyn Context<P>, place: u64) -> (Option<P::Debt>, Option<P::Debt>) {
        if let Some(at) = self.outcomes.iter().position(|(it, _)| *it == place) {
            let (_, outcome) = self.outcomes.swap_remove(at);
            self.out.push(Effect::Untaken(outcome));
            return (None, None);
        }
        // Removed by `freed`: the others were called when it was removed.
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return (None, None);
        };
        let (asks, sharing) = (waiter.is_busy(), waiter.want.sharing());
        let own = waiter.debt.take();
        let waker = self.remove(place).and_then(|(_, waker)| waker);
        self.out.extend(waker.map(Effect::Forget));
        self.keep_polling(cx, Some(sharing));
        let forsaken = self.forsaken_entry();
        match asks {
            true => self.call_next(cx, Some(sharing)),
            // A parked waiter has taken no wake, and the poll that its refusal planned stays.
            false => self.make_known(cx),
        }
        (own, forsaken)
    }

    /// Invariant 2: calls the next waiter in the place of one that has left with a request in flight, whose wake-ups it may have taken. The
    /// request may go on in the background, and the next one follows it on the same connection.
    pub(super) fn call_next(&mut self, cx: &dyn Context<P>, sharing: Option<Sharing>) {
        match sharing {
            // The server calls the next one, when the sweep of this waiter's debt gives its place up (P3, F6).
            None | Some(Sharing::Queued) => {}
            // A local holder calls the next one at its end (invariant 3).
            _ if self.holder.is_held(cx.now()) => {}
            _ => {
                if !matches!(sharing, Some(Sharing::Permits(_))) {
                    // The attempt that follows is newer than every wake so far.
                    self.due = None;
                }
                self.admit(cx, Reason::Turn);
            }
        }
    }

    /// Plans a poll if the waiter that has left may have planned the one that served all (invariant 3), and no local holder's end calls
    /// the next waiter.
    pub(super) fn keep_polling(&mut self, cx: &dyn Context<P>, left: Option<Sharing>) {
        let shared = left.is_some_and(|it| it != Sharing::Exclusive);
        if shared && self.poll.is_none() && !self.waiters.is_empty() {
            self.poll_at(cx.now() + interval(cx), Reason::Look);
        }
    }

    /// Lets waiters send requests because the poll timer has fired.
    pub fn timer(&mut self, cx: &dyn Context<P>) {
        let Some((_, reason)) = self.poll.take() else {
            return;
        };
        let Some(sharing) = self.first_sharing() else {
            return self.admit(cx, reason);
        };
        match sharing {
            Sharing::Queued => {
                // Invariant 3: the reply to one of several requests in flight plans no poll.
                self.poll_at(cx.now() + interval(cx), Reason::Turn);
                if cx.now() >= self.kept.restamp {
                    self.kept.restamp = cx.now() + RESTAMP;
                    self.admit_all_but(cx, None);
                } else {
                    self.admit_another(cx, reason);
                }
            }
            // A live local holder will call `freed` (invariant 3), so a request now would only be refused. But the release may serve the queue
            // on the server, where an entry of this process expires without requests.
            _ if self.is_under_way() || self.holder.is_held(cx.now()) && !self.has_entry() => {
                // A wake-up is remembered for the next request. A due poll is not, because it would come at another time.
                if self.is_under_way() && reason == Reason::Told {
                    self.remember(Moment::ZERO, reason);
                } else if self.has_entry() {
                    self.poll_at(cx.now() + interval(cx), Reason::Look);
                }
            }
            _ => self.admit(cx, reason),
        }
    }

    /// The pause until the next poll, where the server keeps no entry for this process.
    pub(crate) fn pause(
        &self,
        cx: &dyn Context<P>,
        ttl: Option<Duration>,
        subscribed: bool,
    ) -> Duration {
        let pause = if cx.polls() {
            spin(cx, self.refused)
        } else if subscribed {
            cx.poll_interval()
        } else {
            POLL_UNSUBSCRIBED
        };
        ttl.map_or(pause, |ttl| pause.min(after_expiry(cx, ttl)))
    }

    /// Ends the wait of an empty queue: its poll, and its entry on the server.
    pub fn rest(&mut self) {
        // A wake-up is kept for waiters only: a waiter that joins an empty queue sends a request at once, or waits for a local holder.
        (self.due, self.poll) = (None, None);
        // P3: the last waiter has left, so the entry on the server is given up.
        let entry = self.take_entry();
        self.give_up(entry);
    }

    /// Returns whether nothing of this queue is in use.
    pub fn is_idle(&self) -> bool {
        // A holder keeps the queue: a waiter in a new queue would not know of the hold, and would be refused. A hand-off returns to it, and so does
        // the task of an outcome.
        let used = self.handing.is_some() || self.holder.exists() || !self.outcomes.is_empty();
        self.waiters.is_empty() && !used
    }

    /// Resets an idle queue. The numbers of places go on, and the memory for waiters is kept.
    pub fn reset(&mut self) {
        *self = Self {
            next: self.next,
            waiters: std::mem::take(&mut self.waiters),
            outcomes: std::mem::take(&mut self.outcomes),
            ..Self::default()
        };
    }
}

impl<P: Parts> Queue<P> {
    /// Takes the holds that were given to waiters which have not been polled since.
    pub fn take_untaken(&mut self) -> Vec<P::Hold> {
        let given = |waiter: &mut Waiter<P>| waiter.given.take();
        let mut holds: Vec<_> = self.waiters.values_mut().filter_map(given).collect();
        let granted = |(_, it): &mut (u64, Outcome<P>)| matches!(it, Outcome::Granted(_));
        for (_, outcome) in self.outcomes.extract_if(.., granted) {
            if let Outcome::Granted(hold) = outcome {
                holds.push(hold);
            }
        }
        holds
    }

    /// Passes a fact to all waiters. `news_in` returns the meaning of the fact for a waiter: true if its event has happened, false if it has to send a request.
    pub fn pass_fact(&mut self, cx: &dyn Context<P>, news_in: impl Fn(&P::Want) -> Option<bool>) {
        let news = |(&place, waiter): (&u64, &Waiter<P>)| Some((place, news_in(&waiter.want)?));
        let news: Vec<_> = self.waiters.iter().filter_map(news).collect();
        // A client that polls lengthens its pauses until an event occurs. Every reply is a fact, but most report no event.
        if !news.is_empty() {
            self.refused = 0;
        }
        for (place, is_over) in news {
            match is_over {
                true => self.settle(cx, place, Outcome::Seen),
                false => self.nudge(cx, place),
            }
        }
        // A fact counts as a reply.
        self.outage = None;
    }
}

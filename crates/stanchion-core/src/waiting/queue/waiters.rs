//! The life of a waiter: it joins, takes its turns, reports the outcome of its requests, and leaves.

use std::borrow::Borrow as _;
use std::task::Poll;
use std::time::Duration;

use super::{Asked, Context, Held as _, Holder as _, Parts, Queue, Stay, Turn, Waiter, Want as _};
use crate::description::Sharing;
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
pub(super) fn interval(cx: &dyn Context) -> Duration {
    if cx.polls() {
        POLL_UNSUBSCRIBED
    } else {
        cx.poll_interval()
    }
}

/// The pause until a key with `ttl` left has expired: an expiry sends no message. One millisecond more, because a key still
/// exists during its last one; and a jitter, so that processes do not send requests at the same instant.
pub(crate) fn after_expiry(cx: &dyn Context, ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1) + cx.jitter(Duration::from_millis(2))
}

/// The pause of a client that polls, after so many refusals in a row.
pub(super) fn spin(cx: &dyn Context, refused: u32) -> Duration {
    let doublings = refused.saturating_sub(1).min(7);
    let longest = (SPIN.0 * (1 << doublings)).min(SPIN.1);
    // Half of it at random: processes that were refused together must not retry together.
    longest / 2 + cx.jitter(longest / 2)
}

impl<P: Parts> Queue<P> {
    /// Adds a waiter behind all others, and returns its place.
    pub fn join(
        &mut self,
        cx: &dyn Context,
        want: P::Want,
        owner: P::Owner,
        terms: P::Terms,
        stay: Stay,
    ) -> u64 {
        let place = self.next;
        self.next += 1;
        let asks = self.admits(cx, &want);
        self.facts |= want.is_fact();
        if want.sharing() == Sharing::Queued {
            // Each waiter's own first request sets its deadline on the server (F7), so the interval begins with the first of
            // them.
            if self.waiters.is_empty() {
                self.kept.restamp = cx.now() + RESTAMP;
            }
            self.kept.by_owner.insert(owner.clone(), place);
        }
        if !asks {
            self.count_parked(1);
        }
        self.waiters.insert(
            place,
            Waiter {
                want,
                owner,
                terms,
                stay,
                turn: asks.then_some(Turn::Try(Reason::Turn)),
                asking: false,
                asked: Asked::Never,
                asked_before: 0,
                waker: None,
            },
        );
        place
    }

    /// Returns whether a new waiter sends a request at once, because it overtakes no waiter of this process.
    fn admits(&self, cx: &dyn Context, want: &P::Want) -> bool {
        let sharing = want.sharing();
        let asks = match sharing {
            Sharing::Queued => return true,
            // A waiter for facts sends no request at first, because it joins before the event can occur.
            Sharing::Event if want.is_fact() => false,
            // A parked waiter was refused, or sends its request first. Waiters that may hold together send requests concurrently.
            _ => {
                let together =
                    |first: Sharing| sharing != Sharing::Exclusive && first != Sharing::Exclusive;
                self.parked == 0 && self.first_sharing().is_none_or(together)
            }
        };
        // During a local hold or a hand-off a request would only be refused: `freed` or the end of the hand-off gives the turn.
        asks && self.handing.is_none() && !self.holder.is_held(cx.now())
    }

    /// Returns whether the turn of the waiter at `place` has not come yet.
    pub fn must_wait(&self, place: u64) -> bool {
        self.waiters.get(&place).is_some_and(|it| it.turn.is_none())
    }

    /// Takes the turn of the waiter at `place`, or stores the waker of its task. A turn other than [`Turn::Try`] ends its wait.
    pub fn take_turn(&mut self, cx: &dyn Context, place: u64, waker: P::Waker) -> Poll<Turn<P>> {
        let next = self.next;
        // Removed by `freed` (invariant 5).
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return Poll::Ready(Turn::Missed);
        };
        match waiter.turn.take() {
            Some(Turn::Try(reason)) => {
                waiter.asking = true;
                // P8: fixed before the request is sent. A waiter that joins later may wait for a later event.
                waiter.asked_before = next;
                self.asking += 1;
                Poll::Ready(Turn::Try(reason))
            }
            Some(turn) => {
                // Without its turn the waiter counts as parked, unless it is requesting, and `remove` subtracts it.
                if !waiter.asking {
                    self.count_parked(1);
                }
                self.remove(place);
                self.keep_polling(cx);
                match &turn {
                    // Invariant 2: waiters that joined later have time left, and one of them must send a request.
                    Turn::OutOfReach(_) => self.admit(Reason::Turn),
                    // The hold ended before it was taken, and no other waiter was woken.
                    Turn::Take(hold) if !hold.is_held(cx.now()) => {
                        self.admit(Reason::Turn);
                    }
                    _ => {}
                }
                Poll::Ready(turn)
            }
            None => {
                // The future may have moved to another task since the last poll.
                self.out.replaced = waiter.waker.replace(waker);
                Poll::Pending
            }
        }
    }

    /// Lets the waiter at `place` retry after an attempt without a decision.
    pub fn undecided(&mut self, place: u64) {
        self.came_back(place);
        // At once: no other waiter gets the turn in between.
        self.nudge(place);
    }

    /// Records that a request of `place` was not answered. Waiters that have waited for `tolerance` since replies stopped get the
    /// turn to give up. Returns whether `place` must give up, too.
    pub fn unanswered(
        &mut self,
        cx: &dyn Context,
        place: u64,
        tolerance: Duration,
        outage: &P::Outage,
    ) -> bool {
        // One start for the whole queue. When each waiter counted from its own first failure, they gave up one tolerance after
        // the other.
        let since = self.outage.as_ref().map_or_else(|| cx.now(), |it| it.0);
        self.outage = Some((since, outage.clone()));
        // In the order of arrival the first that still has patience ends the search: ten thousand may wait.
        let mut is_over = false;
        let mut others = Vec::new();
        for (&other, waiter) in &self.waiters {
            if cx.now().since(since.max(waiter.stay.began)) < tolerance {
                break;
            } else if other == place {
                is_over = true;
            } else if !waiter.asking && matches!(waiter.turn, None | Some(Turn::Try(_))) {
                others.push(other);
            }
        }
        for other in others {
            self.give_turn(other, Turn::OutOfReach(outage.clone()));
        }
        is_over
    }

    /// Returns the failure of the last request, if no reply has arrived since.
    pub fn outage(&self) -> Option<&P::Outage> {
        self.outage.as_ref().map(|(_, outage)| outage)
    }

    /// Removes the waiter at `place`, which has got `hold` in a reply, and wakes the waiters that may hold concurrently. `next`: the moment
    /// at which the next waiter can be granted, if the reply contained it. `waited`: the waiter has waited before. Returns a hold that a message
    /// gave to the waiter at the same time.
    pub fn acquired(
        &mut self,
        cx: &dyn Context,
        place: u64,
        hold: &P::Hold,
        next: Option<Moment>,
        waited: bool,
    ) -> Option<P::Hold> {
        let sharing = hold.sharing();
        if sharing.has_one_holder() {
            self.holder = hold.holder();
        }
        let asked_before = self.waiters.get(&place).map_or(0, |it| it.asked_before);
        self.remove(place);
        // A wake-up during the attempt announced this grant. If others may hold concurrently, `granted` keeps the wake-up.
        if sharing == Sharing::Exclusive {
            self.due = None;
        }
        match next.filter(|_| !self.waiters.is_empty()) {
            Some(next) => {
                self.answered();
                self.poll_by(next, Reason::Turn);
            }
            None => self.granted(sharing, asked_before),
        }
        self.keep_polling(cx);
        let turn = self.out.removed.as_mut().and_then(|it| it.turn.take());
        if let Some(Turn::Take(other)) = turn {
            return Some(other);
        }
        if waited && sharing == Sharing::Queued {
            // No message has granted. If it was lost, or sent while this process was cut off, entries of others may be gone, too.
            self.admit(Reason::Turn);
        }
        None
    }

    /// Removes the waiter at `place`, which gives up. Returns the entry of this process, if no waiter is left that can take a grant to it.
    pub fn leave(&mut self, cx: &dyn Context, place: u64) -> Option<P::Debt> {
        let was_first = self.first_place().is_some_and(|(first, _)| first == place);
        // Removed by `freed`: the others were called when it was removed.
        let waiter = self.waiters.get(&place)?;
        let (parked, asking, sharing) = (waiter.is_parked(), waiter.asking, waiter.want.sharing());
        let reason = match waiter.turn {
            Some(Turn::Try(reason)) => reason,
            _ => Reason::Turn,
        };
        self.remove(place);
        self.keep_polling(cx);
        let forsaken = self.forsaken_entry();
        // Invariant 2: this waiter may have taken a wake, or delayed those behind it. Its attempt, if one is under way, ends in
        // the background and a grant is released there; the next attempt follows it on the same connection.
        let mattered = was_first || !parked || forsaken.is_some();
        match sharing {
            // The server calls the next one, when the sweep of this waiter's debt gives its place up (P3, F6).
            Sharing::Queued => {}
            // A waiter behind the first delayed no other, and a local holder calls the next one at its end (invariant 3).
            _ if !mattered || self.holder.is_held(cx.now()) => {}
            // The entry stays, and its message goes to the first waiter of that time.
            _ if parked && self.has_entry() => {}
            _ => {
                if asking && !matches!(sharing, Sharing::Permits(_)) {
                    // The attempt that follows is newer than every wake so far.
                    self.due = None;
                }
                self.admit(reason);
            }
        }
        forsaken
    }

    /// Removes a waiter, with its untaken turn and its waker.
    pub(super) fn remove(&mut self, place: u64) {
        let Some(waiter) = self.waiters.remove(&place) else {
            return;
        };
        if waiter.is_parked() {
            self.count_parked(-1);
        }
        if waiter.asking {
            self.asking -= 1;
        }
        self.kept.by_owner.remove(waiter.owner.borrow());
        self.out.removed = Some(waiter);
        // P8: a later waiter must not report the outage of these.
        if self.waiters.is_empty() {
            self.outage = None;
        }
    }

    /// Plans a poll if the waiter that was removed may have planned the one that served all (invariant 3), and no local holder's end calls
    /// the next waiter.
    pub(super) fn keep_polling(&mut self, cx: &dyn Context) {
        let removed = self.out.removed.as_ref().map(|waiter| &waiter.want);
        if removed.is_some_and(|want| want.sharing() != Sharing::Exclusive)
            && !self.waiters.is_empty()
            && self.poll.is_none()
        {
            self.poll_at(cx.now() + interval(cx), Reason::Look);
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

    /// Lets waiters send requests because the poll timer has fired.
    pub fn timer(&mut self, cx: &dyn Context) {
        let (Some((_, reason)), Some(sharing)) = (self.poll.take(), self.first_sharing()) else {
            return;
        };
        match sharing {
            Sharing::Queued => {
                // Invariant 3: the reply plans the next poll, but its waiter may never take it.
                self.poll_at(cx.now() + interval(cx), Reason::Turn);
                if cx.now() >= self.kept.restamp {
                    self.kept.restamp = cx.now() + RESTAMP;
                    self.admit_all_but(None);
                } else {
                    self.admit_another(reason);
                }
            }
            // The requesting waiters may never take their replies (invariant 3), so another sends a request, too.
            Sharing::Permits(_) if self.is_under_way() => {
                self.poll_at(cx.now() + interval(cx), reason);
                self.admit_another(Reason::Look);
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
            _ => self.admit(reason),
        }
    }

    /// The pause until the next poll, where the server keeps no entry for this process.
    pub(crate) fn pause(
        &self,
        cx: &dyn Context,
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
        // A holder keeps the queue: a waiter in a new queue would not know of the hold, and would be refused. A hand-off returns to it.
        self.waiters.is_empty() && self.handing.is_none() && !self.holder.exists()
    }

    /// Resets an idle queue. The numbers of places go on, and the memory for waiters is kept.
    pub fn reset(&mut self) {
        *self = Self {
            next: self.next,
            waiters: std::mem::take(&mut self.waiters),
            ..Self::default()
        };
    }
}

impl<P: Parts> Queue<P> {
    /// Takes the holds that were given to waiters which have not been polled since.
    pub fn take_unclaimed(&mut self) -> Vec<P::Hold> {
        let mut holds = Vec::new();
        let mut parked = 0;
        for waiter in self.waiters.values_mut() {
            match waiter.turn.take() {
                Some(Turn::Take(hold)) => {
                    holds.push(hold);
                    // A grant by message may cross the request of its waiter, which then still counts as requesting.
                    parked += isize::from(!waiter.asking);
                }
                turn => waiter.turn = turn,
            }
        }
        self.count_parked(parked);
        holds
    }

    /// Passes a fact to all waiters. `turn_for` returns the turn that the fact gives to a waiter.
    pub(crate) fn pass_fact(&mut self, turn_for: impl Fn(&P::Want) -> Option<Turn<P>>) {
        let mut turns = Vec::new();
        for (&place, waiter) in &self.waiters {
            match (turn_for(&waiter.want), &waiter.turn) {
                // Also during its request: the waiter takes this turn after the reply.
                (Some(Turn::Seen), None | Some(Turn::Try(_))) => turns.push((place, Turn::Seen)),
                (Some(turn), None) => turns.push((place, turn)),
                _ => {}
            }
        }
        // A client that polls lengthens its pauses until an event occurs. Every reply is a fact, but most report no event.
        if !turns.is_empty() {
            self.refused = 0;
        }
        for (place, turn) in turns {
            self.give_turn(place, turn);
        }
        // A fact counts as a reply.
        self.outage = None;
    }
}

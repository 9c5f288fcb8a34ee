//! The decisions of one local queue, as a state machine: which of its waiters send requests, and when.
//!
//! A waiter is *parked* (no turn, no request), *woken* (it has a [`Turn`] that it has not taken yet) or *requesting* (it took
//! [`Turn::Try`] and awaits the reply). A refusal parks it again; a grant, a hand-off or a failure removes it. A woken or requesting
//! waiter that leaves passes its wake-up on (invariant 2 of `waiting/lock_entry.rs`).
//!
//! Each method handles one event and collects its [`Effects`]. Nothing here sends, waits, locks or calls a waker, and the clock is an argument: the shell
//! (`waiting/lock_entry.rs`) does, and the explorer runs the same machine over a model of the network. [`Parts`] names the things that
//! a queue stores and does not look into.
//!
//! `waiters` is the life of a waiter, `entry` the entry of this process in the queue on the server, `holders` the effect of holds of this
//! process, `messages` reads messages.

mod clone;
mod entry;
mod holders;
mod messages;
mod parts;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use crate::description::Sharing;
use crate::line::Reason;
use stanchion_transport::Moment;

pub use crate::description::End;
pub use clone::Copied;
pub use entry::{Begin, Refused};
pub use messages::hear;
pub use parts::{Context, Ended, Held, Holder, Owed, Parts, Want};
pub(crate) use waiters::after_expiry;

/// The next step of a waiter.
#[derive(Debug)]
pub enum Turn<P: Parts> {
    /// Send a request, for this reason.
    Try(Reason),
    /// Take the hold, which a local holder handed over or the server granted by message.
    Take(P::Hold),
    /// Finish: the event that it waits for has happened.
    Seen,
    /// Start again: it was given a hold and did not take it before the lease ended.
    Missed,
    /// Fail: the server has been unreachable for too long.
    OutOfReach(P::Outage),
}

impl<P: Parts> Turn<P> {
    pub(crate) fn hold(&self) -> Option<&P::Hold> {
        match self {
            Self::Take(hold) => Some(hold),
            Self::Try(_) | Self::Seen | Self::Missed | Self::OutOfReach(_) => None,
        }
    }
}

/// The call that a waiter is queued for: its start, and its end at the latest.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    /// The start of the call.
    pub began: Moment,
    /// The moment at which it gives up.
    pub deadline: Moment,
}

/// The requests that a waiter has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Never,
    /// None as the first waiter of this process: it has no entry on the server.
    Behind,
    First,
}

/// A waiter.
#[derive(Debug)]
pub struct Waiter<P: Parts> {
    pub(crate) want: P::Want,
    /// The owner of its request that is under way, or of its last one.
    pub(crate) owner: P::Owner,
    pub(crate) terms: P::Terms,
    /// Its call, which may have had other places before.
    pub(crate) stay: Stay,
    /// Its turn, given by the queue; the waiter takes it.
    pub(crate) turn: Option<Turn<P>>,
    /// True from the moment it takes [`Turn::Try`] until the attempt has ended.
    pub(crate) asking: bool,
    pub(crate) asked: Asked,
    /// The next free place at its last request: the waiters below that place had joined by then.
    asked_before: u64,
    /// The waker of the task that polls it. Taken when it gets its turn.
    waker: Option<P::Waker>,
}

impl<P: Parts> Waiter<P> {
    fn is_parked(&self) -> bool {
        self.turn.is_none() && !self.asking
    }

    /// The owner of its request that is under way, or of its last one.
    pub const fn owner(&self) -> &P::Owner {
        &self.owner
    }

    /// The turn that it has not taken.
    pub fn into_turn(self) -> Option<Turn<P>> {
        self.turn
    }

    fn has_hold(&self) -> bool {
        self.turn.as_ref().and_then(Turn::hold).is_some()
    }
}

/// The entry of this process in the queue on the server.
#[derive(Debug)]
struct Entry<P: Parts> {
    /// The right of its owner. The drop gives the entry up (P3).
    debt: P::Debt,
    /// True if the server may have removed it: a message has let this process try, or may have while another queue had the entry.
    off: bool,
}

/// The actions of the shell after an event, once the queue is unlocked: wakers and dropped values may own anything (invariant 4). One event removes
/// at most one waiter, and ends at most one entry and one hold.
#[derive(Debug)]
#[must_use]
pub struct Effects<P: Parts> {
    /// To call.
    pub wakers: Vec<P::Waker>,
    /// To clean up after, and to drop: a waiter that has left, with its untaken turn.
    pub removed: Option<Waiter<P>>,
    /// To drop: an older waker of the same waiter.
    pub replaced: Option<P::Waker>,
    /// To drop, which gives the entry on the server up.
    pub entry: Option<P::Debt>,
    /// To drop, which releases it: a hold whose waiter has left.
    pub hold: Option<P::Hold>,
}

impl<P: Parts> Default for Effects<P> {
    fn default() -> Self {
        Self {
            wakers: Vec::new(),
            removed: None,
            replaced: None,
            entry: None,
            hold: None,
        }
    }
}

/// The part of a queue of which the server keeps every waiter.
#[derive(Debug)]
struct Kept<P: Parts> {
    /// The places of the waiters, to find the one that a grant names.
    by_owner: HashMap<P::Owner, u64>,
    /// The time at which all waiters send their requests again.
    restamp: Moment,
    /// The longest time to a poll at a random moment, by the last reply.
    pause: Duration,
}

/// The queue of one subject in one process.
pub struct Queue<P: Parts> {
    /// The waiters by place, that is by order of arrival. Each leaves by itself, or by [`Queue::freed`] when it did not take its hold in time.
    waiters: BTreeMap<u64, Waiter<P>>,
    /// The number of places that were assigned. Never falls, so no place is assigned twice.
    next: u64,
    /// The number of parked waiters, kept so that a new waiter need not count them.
    parked: usize,
    /// The number of requesting waiters, with a request of their own or with a hand-off of permits in flight.
    asking: usize,
    /// The place of the waiter that an exclusive holder is handing its hold to. While it is set, wakes are only remembered in `due`.
    handing: Option<u64>,
    /// The one holder, if it is of this process. Waiters send no requests while it holds, unless the server keeps the queue; its end calls
    /// [`Queue::freed`].
    holder: P::Holder,
    /// The number of hand-offs since the last release or grant.
    handed: u32,
    /// The entry of this process in the queue on the server, while no request for it is under way.
    entry: Option<Entry<P>>,
    /// The time and reason of the first waiter's next request, if they were received during a request or a hand-off (invariant 2).
    due: Option<(Moment, Reason)>,
    /// The planned poll, and its reason.
    poll: Option<(Moment, Reason)>,
    /// The number of refusals in a row, for the pauses of a client that polls.
    refused: u32,
    /// The moment since which no request of this queue was answered, and the last failure.
    outage: Option<(Moment, P::Outage)>,
    /// True once the queue has had a waiter for facts.
    facts: bool,
    kept: Kept<P>,
    /// The effects of the events since the last [`Queue::take_effects`].
    out: Effects<P>,
}

impl<P: Parts> Default for Queue<P> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            next: 0,
            parked: 0,
            asking: 0,
            handing: None,
            holder: P::Holder::default(),
            handed: 0,
            entry: None,
            due: None,
            poll: None,
            refused: 0,
            outage: None,
            facts: false,
            kept: Kept {
                by_owner: HashMap::new(),
                restamp: Moment::ZERO,
                pause: Duration::ZERO,
            },
            out: Effects::default(),
        }
    }
}

/// The state without the counters that only grow: two queues that behave alike have the same text.
impl<P: Parts> fmt::Debug for Queue<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = |place: u64| self.waiters.range(..place).count();
        let waiters: Vec<_> = self
            .waiters
            .values()
            .map(|it| {
                let asked_before = it.asking.then(|| index(it.asked_before));
                (
                    &it.want,
                    &it.owner,
                    &it.turn,
                    it.asking,
                    it.asked,
                    asked_before,
                )
            })
            .collect();
        let moment = |(at, reason): &(Moment, Reason)| (at.micros(), *reason);
        let kept =
            (!self.kept.by_owner.is_empty()).then(|| (self.kept.restamp.micros(), self.kept.pause));
        let mut text = f.debug_struct("Queue");
        if let Some(kept) = kept {
            text.field("kept", &kept);
        }
        text.field("waiters", &waiters)
            .field("handing", &self.handing.map(index))
            .field("holder", &self.holder)
            .field("handed", &self.handed)
            .field("entry", &self.entry)
            .field("due", &self.due.as_ref().map(moment))
            .field("poll", &self.poll.as_ref().map(moment))
            .field("refused", &self.refused)
            .field(
                "outage_since",
                &self.outage.as_ref().map(|(since, _)| since.micros()),
            )
            .finish_non_exhaustive()
    }
}

impl<P: Parts> Queue<P> {
    /// Takes the effects of the events so far; `None` if there is none, as in most cases.
    pub fn take_effects(&mut self) -> Option<Effects<P>> {
        let out = &self.out;
        let none = out.removed.is_none() && out.replaced.is_none() && out.wakers.is_empty();
        let none = none && out.entry.is_none() && out.hold.is_none();
        (!none).then(|| std::mem::take(&mut self.out))
    }

    fn give_up(&mut self, entry: Option<P::Debt>) {
        if entry.is_some() {
            self.out.entry = entry;
        }
    }

    /// The waiters in order of arrival.
    pub(crate) fn waiters(&self) -> impl ExactSizeIterator<Item = &Waiter<P>> {
        self.waiters.values()
    }

    pub(crate) fn waiter(&self, place: u64) -> Option<&Waiter<P>> {
        self.waiters.get(&place)
    }

    /// Returns whether no waiter is left.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The moment of the next call of [`Queue::timer`].
    pub fn next_poll(&self) -> Option<Moment> {
        self.poll.map(|(at, _)| at)
    }

    pub(crate) const fn holder(&self) -> &P::Holder {
        &self.holder
    }

    /// Returns whether a later waiter needs no earlier message: a fact is in every later reply, too.
    pub(crate) const fn is_for_facts(&self) -> bool {
        self.facts
    }

    /// Returns whether another requesting waiter may have been granted, or a holder of this process exists.
    pub(crate) fn may_have_holder(&self, cx: &dyn Context) -> bool {
        self.asking > 1 || self.holder.is_held(cx.now())
    }

    /// The first waiter that has not been given a hold. One that was may take long to take it.
    pub(crate) fn first(&self) -> Option<&Waiter<P>> {
        self.first_place().map(|(_, waiter)| waiter)
    }

    fn first_place(&self) -> Option<(u64, &Waiter<P>)> {
        let mut waiters = self.waiters.iter();
        let (place, waiter) = waiters.find(|(_, waiter)| !waiter.has_hold())?;
        Some((*place, waiter))
    }

    fn first_sharing(&self) -> Option<Sharing> {
        self.first().map(|waiter| waiter.want.sharing())
    }

    fn first_is_parked(&self) -> bool {
        self.first().is_some_and(Waiter::is_parked)
    }

    /// Returns whether the first waiter is woken.
    fn first_is_woken(&self) -> bool {
        self.first().is_some_and(|first| first.turn.is_some())
    }

    /// Returns whether a request or a hand-off is in flight.
    fn is_under_way(&self) -> bool {
        self.asking > 0 || self.handing.is_some()
    }

    /// Counts waiters that are parked from now on, or are not any more.
    const fn count_parked(&mut self, by: isize) {
        // Saturating: a miscount only delays a new waiter until the next poll, an overflow would panic in the middle of a change.
        self.parked = self.parked.saturating_add_signed(by);
    }

    /// Gives the waiter at `place` its turn, and collects its waker.
    fn give_turn(&mut self, place: u64, turn: Turn<P>) {
        let Some(waiter) = self.waiters.get_mut(&place) else {
            return;
        };
        let parked = waiter.is_parked();
        // No caller replaces a `Take`: its hold would be dropped here (invariant 4).
        waiter.turn = Some(turn);
        // Taken, not cloned: a clone may run foreign code (invariant 4). The task registers again with its next poll.
        self.out.wakers.extend(waiter.waker.take());
        if parked {
            self.count_parked(-1);
        }
    }

    /// Lets the first waiter send a request for `reason`.
    pub fn admit(&mut self, reason: Reason) {
        let Some((first, waiter)) = self.first_place() else {
            return;
        };
        // A first waiter that has not taken its `Try` yet needs nothing: its request will be sent after this wake.
        if self.handing.is_none() && waiter.is_parked() {
            self.give_turn(first, Turn::Try(reason));
        } else if self.is_under_way() {
            self.remember(Moment::ZERO, reason);
        }
    }

    /// Remembers when and why the first waiter sends its next request, until the request or the hand-off in flight has ended (invariant 2).
    fn remember(&mut self, at: Moment, reason: Reason) {
        let is_better = |(known, for_reason): (Moment, Reason)| {
            at < known || at == known && for_reason != Reason::Told
        };
        if self.due.is_none_or(is_better) {
            self.due = Some((at, reason));
        }
    }

    /// Lets the first waiter send a request if it has sent none as the first, and this process has no entry on the server.
    fn make_known(&mut self, cx: &dyn Context) {
        let is_unknown = |first: &Waiter<P>| {
            first.is_parked() && first.asked != Asked::First && first.want.is_in_line()
        };
        let unknown = self.first().is_some_and(is_unknown);
        if unknown && !self.has_entry() && self.handing.is_none() && !self.holder.is_held(cx.now())
        {
            self.admit(Reason::Turn);
        }
    }

    /// Lets all parked waiters but the one at `place` send requests.
    fn admit_all_but(&mut self, place: Option<u64>) {
        let parked: Vec<u64> = self
            .waiters
            .iter()
            .filter(|(other, waiter)| waiter.is_parked() && Some(**other) != place)
            .map(|(place, _)| *place)
            .collect();
        for place in parked {
            self.give_turn(place, Turn::Try(Reason::Turn));
        }
    }

    /// Lets the first parked waiter send a request.
    fn admit_another(&mut self, reason: Reason) {
        let parked = self.waiters.iter().find(|(_, waiter)| waiter.is_parked());
        if let Some((&place, _)) = parked {
            self.give_turn(place, Turn::Try(reason));
        }
    }

    /// Lets one waiter send a request. If it has one in flight, it sends another after the reply.
    pub(crate) fn nudge(&mut self, place: u64) {
        if self.waiters.get(&place).is_some_and(|it| it.turn.is_none()) {
            self.give_turn(place, Turn::Try(Reason::Turn));
        }
    }

    /// Plans the next poll at `at`, in place of the one planned so far.
    pub(crate) const fn poll_at(&mut self, at: Moment, reason: Reason) {
        self.poll = Some((at, reason));
    }

    /// Plans a poll at `at`, unless one is planned sooner.
    pub(crate) fn poll_by(&mut self, at: Moment, reason: Reason) {
        if self.poll.is_none_or(|(planned, _)| at < planned) {
            self.poll_at(at, reason);
        }
    }
}

//! The decisions of one local queue, as a state machine: which of its waiters send requests, and when.
//!
//! A waiter is *parked*, or it has a request in flight. The queue sends the requests and gets their replies: each is an event,
//! whether or not the task of the waiter is polled. A refusal parks the waiter again. A grant, a hand-off or a failure ends its wait: it leaves the
//! order, and its [`Outcome`] is kept until its task takes it. Therefore a task that is not polled delays no other waiter.
//!
//! Each method handles one event and collects its [`Effects`]. Nothing here sends, waits, locks or calls a waker, and the clock is an argument: the shell
//! (`waiting/lock_entry.rs`) does, and the explorer runs the same machine over a model of the network. [`Parts`] names the things that
//! a queue stores and does not look into.
//!
//! `waiters` is the life of a waiter, `replies` the outcomes of its requests, `entry` the entry of this process in the queue on the server, `holders` the effect of holds of this
//! process, `messages` reads messages.

mod clone;
mod entry;
mod holders;
mod messages;
mod parts;
mod replies;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use crate::about::Sharing;
use crate::line::Reason;
use stanchion_transport::Moment;

pub use crate::description::End;
pub use clone::Copied;
pub use entry::{Begin, Refused};
pub use messages::hear;
pub use parts::{Context, EndedHold, Held, Holder, Owed, Parts, Want};
pub(crate) use waiters::after_expiry;

/// The end of a wait.
#[derive(Debug)]
pub enum Outcome<P: Parts> {
    /// Take the hold, which the server granted, or a local holder handed over.
    Granted(P::Hold),
    /// The event that it waits for has happened.
    Seen,
    /// Start again: it was given a hold and did not take it before the lease ended.
    Missed,
    /// Fail: the server has been unreachable for too long. With the debt of this waiter, if it has one.
    OutOfReach(P::Outage, Option<P::Debt>),
    /// A reply has decided.
    Answered(P::Answer),
}

/// The news for the task of a waiter.
#[derive(Debug)]
pub enum News<P: Parts> {
    /// The waiter has to wait for others. Reported once.
    Waits,
    /// Its wait has ended.
    Over(Outcome<P>),
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
pub(crate) enum Requested {
    Never,
    /// None as the first waiter of this process: it has no entry on the server.
    Behind,
    First,
}

/// The state of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// Its call has not begun to wait: it gets facts, and sends no request yet.
    StandingBy,
    /// A request of it is in flight.
    Asking,
    /// A permit is being handed to it.
    Receiving,
}

/// A waiter.
#[derive(Debug)]
pub struct Waiter<P: Parts> {
    pub(crate) want: P::Want,
    /// The owner of its request in flight, or of its last one.
    pub(crate) owner: P::Owner,
    pub(crate) terms: P::Terms,
    /// Its call, which may have had other places before.
    pub(crate) stay: Stay,
    /// The leftovers of `owner` on the server. `None`: the queue has it, as the entry of this process, and the next request has another owner.
    debt: Option<P::Debt>,
    doing: Doing,
    /// A hold that a message gave to it during its request. Its task gets the hold when that request has ended.
    given: Option<P::Hold>,
    /// True if it sends another request after the one in flight.
    again: bool,
    pub(crate) asked: Requested,
    /// The next free place at its last request: the waiters below that place had joined by then.
    asked_before: u64,
    /// True once it had to wait for others, and true once its task knows.
    waits: bool,
    told: bool,
    /// The waker of the task that polls it. Taken when there is news.
    waker: Option<P::Waker>,
}

impl<P: Parts> Waiter<P> {
    fn is_parked(&self) -> bool {
        self.doing == Doing::Nothing
    }

    /// Returns whether a request or a hand-off for this waiter is in flight.
    fn is_busy(&self) -> bool {
        matches!(self.doing, Doing::Asking | Doing::Receiving)
    }

    fn is_asking(&self) -> bool {
        self.doing == Doing::Asking
    }

    /// The owner of its request in flight, or of its last one.
    pub const fn owner(&self) -> &P::Owner {
        &self.owner
    }

    /// What `owner` may have on the server, unless the queue has it.
    pub(crate) const fn debt(&self) -> Option<&P::Debt> {
        self.debt.as_ref()
    }
}

/// A request that a waiter sends.
#[derive(Debug)]
pub struct Ask<P: Parts> {
    /// The place of the waiter.
    pub place: u64,
    /// The owner of the request, and its leftovers on the server.
    pub debt: P::Debt,
    /// The options of the acquire.
    pub terms: P::Terms,
    /// The call.
    pub stay: Stay,
    /// True if the request may get an entry.
    pub first: bool,
    /// The reason of the request.
    pub reason: Reason,
    /// True if the waiter had to wait for others before.
    pub waited: bool,
}

/// The entry of this process in the queue on the server.
#[derive(Debug)]
struct Entry<P: Parts> {
    /// The right of its owner. The drop gives the entry up (P3).
    debt: P::Debt,
    /// True if the server may have removed it: a message has let this process try, or may have while another queue had the entry.
    off: bool,
}

/// One action of the shell after an event, once the queue is unlocked: wakers and dropped values may own anything (invariant 4).
#[derive(Debug)]
pub enum Effect<P: Parts> {
    /// To send in the background. The outcome is the next event of that waiter's request.
    Send(Ask<P>),
    /// To call.
    Wake(P::Waker),
    /// To clean up after, and to drop: a waiter that does not wait any more.
    Left(Waiter<P>),
    /// To drop: the outcome of a wait that no task takes. A hold is released by that.
    Untaken(Outcome<P>),
    /// To drop, which gives an entry on the server up, or what other requests may have left.
    GiveUp(P::Debt),
    /// To drop: an older waker of the same waiter.
    Forget(P::Waker),
}

/// The actions of the shell, in order.
pub type Effects<P> = SmallVec<[Effect<P>; 4]>;

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
    /// The waiters by place, that is by order of arrival.
    waiters: BTreeMap<u64, Waiter<P>>,
    /// The outcomes that no task has taken, with the places that their waiters had.
    outcomes: Vec<(u64, Outcome<P>)>,
    /// The number of places that were assigned. Never falls, so no place is assigned twice.
    next: u64,
    /// The number of waiters that are not parked.
    asking: usize,
    /// The place of the waiter that an exclusive holder is handing its hold to. While it is set, wakes are only remembered in `due`.
    handing: Option<u64>,
    /// The one holder, if it is of this process. Waiters send no requests while it holds, unless the server keeps the queue; its end calls
    /// [`Queue::freed`].
    holder: P::Holder,
    /// The number of hand-offs since the last release or grant.
    handed: u32,
    /// The entry of this process in the queue on the server, while no request for it is in flight.
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
            outcomes: Vec::new(),
            next: 0,
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
            out: Effects::new(),
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
                let asked_before = it.is_asking().then(|| index(it.asked_before));
                let told = (it.waits, it.told, it.again);
                let (owner, doing) = (&it.owner, it.doing);
                let owned = it.debt.is_some();
                (
                    &it.want,
                    owner,
                    owned,
                    doing,
                    &it.given,
                    it.asked,
                    asked_before,
                    told,
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
        if !self.outcomes.is_empty() {
            let outcomes: Vec<_> = self.outcomes.iter().map(|(_, it)| it).collect();
            text.field("outcomes", &outcomes);
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
    /// Takes the effects of the events so far.
    #[must_use]
    pub fn take_effects(&mut self) -> Effects<P> {
        std::mem::take(&mut self.out)
    }

    fn give_up(&mut self, debt: Option<P::Debt>) {
        self.out.extend(debt.map(Effect::GiveUp));
    }

    /// The waiters in order of arrival.
    pub(crate) fn waiters(&self) -> impl ExactSizeIterator<Item = &Waiter<P>> {
        self.waiters.values()
    }

    /// The waiter at `place`, unless its wait has ended.
    pub fn waiter(&self, place: u64) -> Option<&Waiter<P>> {
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
    pub const fn is_for_facts(&self) -> bool {
        self.facts
    }

    /// Returns whether another requesting waiter may have been granted, or a holder of this process exists.
    pub fn may_have_holder(&self, now: Moment) -> bool {
        self.asking > 1 || self.holder.is_held(now)
    }

    /// Returns whether others wait for the end of the requests in flight, so that these must go on without the tasks of their waiters.
    pub fn is_waited_for(&self) -> bool {
        let kept = !self.kept.by_owner.is_empty();
        self.due.is_some() || !kept && self.waiters.len() > self.asking
    }

    /// Invariant 3: returns whether something that is under way leads to a request of the first waiter, or to its end.
    pub fn is_attended(&self) -> bool {
        let attended = self.is_under_way() || self.holder.exists() || self.poll.is_some();
        attended || self.waiters.is_empty()
    }

    /// The first waiter that has not been given a hold.
    pub(crate) fn first(&self) -> Option<&Waiter<P>> {
        self.first_place().map(|(_, waiter)| waiter)
    }

    fn first_place(&self) -> Option<(u64, &Waiter<P>)> {
        let mut waiters = self.waiters.iter();
        let waits = |it: &Waiter<P>| it.given.is_none() && it.doing != Doing::StandingBy;
        let (place, waiter) = waiters.find(|(_, waiter)| waits(waiter))?;
        Some((*place, waiter))
    }

    fn is_first(&self, place: u64) -> bool {
        self.first_place().is_some_and(|(first, _)| first == place)
    }

    fn first_sharing(&self) -> Option<Sharing> {
        self.first().map(|waiter| waiter.want.sharing())
    }

    fn first_is_parked(&self) -> bool {
        self.first().is_some_and(Waiter::is_parked)
    }

    /// Returns whether a request or a hand-off is in flight.
    fn is_under_way(&self) -> bool {
        self.asking > 0 || self.handing.is_some()
    }

    /// Lets the first waiter send a request for `reason`.
    pub fn admit(&mut self, cx: &dyn Context<P>, reason: Reason) {
        match self.first_place() {
            Some((first, waiter)) if self.handing.is_none() && waiter.is_parked() => {
                self.send(cx, first, reason);
            }
            Some(_) if self.is_under_way() => self.remember(Moment::ZERO, reason),
            Some(_) => {}
            // The first of those that stand by sends a request when its call begins to wait.
            None => {
                let mut waiters = self.waiters.values_mut();
                if let Some(first) = waiters.find(|it| it.doing == Doing::StandingBy) {
                    first.again = true;
                }
            }
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
    fn make_known(&mut self, cx: &dyn Context<P>) {
        let is_unknown = |first: &Waiter<P>| {
            first.is_parked() && first.asked != Requested::First && first.want.is_in_line()
        };
        let unknown = self.first().is_some_and(is_unknown);
        if unknown && !self.has_entry() && self.handing.is_none() && !self.holder.is_held(cx.now())
        {
            self.admit(cx, Reason::Turn);
        }
    }

    /// Lets all parked waiters but the one at `place` send requests.
    fn admit_all_but(&mut self, cx: &dyn Context<P>, place: Option<u64>) {
        let parked: Vec<u64> = self
            .waiters
            .iter()
            .filter(|(other, waiter)| waiter.is_parked() && Some(**other) != place)
            .map(|(place, _)| *place)
            .collect();
        for place in parked {
            self.send(cx, place, Reason::Turn);
        }
    }

    /// Lets the first parked waiter send a request.
    fn admit_another(&mut self, cx: &dyn Context<P>, reason: Reason) {
        let parked = self.waiters.iter().find(|(_, waiter)| waiter.is_parked());
        if let Some((&place, _)) = parked {
            self.send(cx, place, reason);
        }
    }

    /// Lets one waiter send a request. If it has one in flight, it sends another after the reply.
    pub fn nudge(&mut self, cx: &dyn Context<P>, place: u64) {
        match self.waiters.get_mut(&place) {
            Some(waiter) if waiter.is_parked() => self.send(cx, place, Reason::Turn),
            Some(waiter) if waiter.given.is_none() => waiter.again = true,
            _ => {}
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

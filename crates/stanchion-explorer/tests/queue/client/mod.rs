//! A client: the real state machines of `stanchion-core` in a model of what surrounds them, written after `acquire` and `hold`.
//!
//! `Queue` decides which waiter sends a request, and when; [`Claim`] what an owner may have left; [`Life`] when a hold is renewed and ends. The
//! model sends the requests, renewals and releases. It leaves out re-entry and jitter: a poll at a random moment happens at the latest moment. A
//! woken task runs at once, or never again. A process has a queue for each name of its kind; the event under way is about one of them (`Client::at`).
//!
//! `process` has the inputs, `waits` the loop of an acquire, `holds` the life of a hold, `line` the local queues by name, `model` the types
//! that a queue stores, `kind` what the kinds of synchronizers add, `wants` what its tasks want, and `redisson` another client in the place of a process.
//!
//! Long: the state of a client, and the dispatch of its events.

mod holds;
mod kind;
mod line;
mod model;
mod process;
mod redisson;
mod waits;
mod wants;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::time::Duration;

use stanchion_client::claim::Claim;
use stanchion_client::life::Life;
use stanchion_client::local_queue::{Context, Effect, Outcome};
use stanchion_client::primitive::Reason;
use stanchion_client::{Lease, Moment};
use stanchion_explorer::{Call, Micros, Output, Reply};

pub(crate) use self::kind::{Ask, Kind, call};
use self::line::{Line, Subscribed};
use self::model::{Model, Settings, moment, set_holds};
use self::redisson::Redisson;
pub(crate) use self::redisson::SCRIPTS as REDISSONS_SCRIPTS;

pub(crate) const MS: Micros = 1000;
/// The lease, in milliseconds.
pub(crate) const LEASE: &str = "30000";
const LEASE_US: Micros = 30_000 * MS;
/// A request may run so long after it was sent, and no longer.
const SILENCE: Micros = 2000 * MS;
/// The hand-offs in a row before a process joins the end of the server's queue.
const HAND_OFFS: u32 = 8;

/// The numbers of requests: a thousand of each kind, plus the number of the owner.
const FIRST: u64 = 1000;
const AGAIN: u64 = 2000;
const RENEW: u64 = 3000;
const RELEASE: u64 = 4000;
const LEAVE: u64 = 5000;
const TEND: u64 = 6000;
/// A hand-off to the owner.
const HAND_OFF: u64 = 7000;
/// A release and the first request of the owner, in one.
const BOTH: u64 = 8000;

/// An operation of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Acquire,
    /// Drops the waiter with this index.
    DropAcquire(usize),
    /// The task of the waiter with this index is not polled any more.
    Sleep(usize),
    Release,
    /// A release, and at the same moment an acquire.
    ReleaseAndAcquire,
}

/// A client.
#[derive(Clone)]
pub(crate) struct Client<K: Kind> {
    uuid: &'static str,
    /// What the user acquires if `others` is empty, and what the owners acquire that `wants` does not name.
    pub(crate) kind: K,
    /// What the next acquires are for, in this order.
    others: Vec<K>,
    /// What the requests of an owner are for, if the tasks of this process want different things.
    wants: BTreeMap<u64, K>,
    /// True if the client receives no messages.
    pub(crate) polls: bool,
    /// The number of acquires that the user does at the same time.
    tasks: usize,
    /// The acquires, and the drops of waiting acquires, that the user may still do.
    pub(crate) acquires: u8,
    drops: u8,
    /// The number of waiters whose tasks may stop to be polled.
    sleeps: u8,
    /// The number of owners so far.
    owners: u64,
    /// A client of Redisson's, which has nothing of what follows.
    redisson: Option<Redisson>,
    /// The subscription to Redisson's releases.
    relays: Subscribed,
    /// One for each name.
    lines: Vec<Line<K>>,
    /// The name that the present event is about; 0 between events.
    at: usize,
    waiters: Vec<Waiter<K>>,
    holds: Vec<Hold>,
    handing: Option<Handing>,
    /// The owner that a request in flight releases, and the one that it acquires for. The second is 0 before the request is sent.
    both: Option<(u64, u64)>,
    /// True once a subscription was cut, if the server keeps an entry for each waiter: others may then go first.
    pub(crate) was_cut: bool,
    /// What the requests of an owner may have left on the server.
    debts: BTreeMap<u64, Claim>,
    /// Owners whose leftovers are removed a second time, because a request of theirs may run until then.
    sweeps: Vec<(Micros, u64)>,
    /// The time at which the queue is to be tended.
    tend: Option<Micros>,
    /// The present time of the timer.
    timer: Option<Micros>,
}

/// A call that waits.
#[derive(Clone)]
struct Waiter<K> {
    kind: K,
    /// The name in whose local queue it waits, and its place there.
    name: usize,
    place: u64,
    began: Micros,
    asking: Option<Asking>,
    /// True if its task is not polled any more.
    sleeps: bool,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Asking {
    owner: u64,
    /// When it was sent, or sent again.
    sent: Micros,
    first: bool,
    reason: Reason,
}

impl<K: Debug> Debug for Waiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the place: the order of waiters shows it, and the number grows.
        (&self.kind, self.began, self.asking, self.name, self.sleeps).fmt(f)
    }
}

/// A hand-off in flight.
#[derive(Clone)]
struct Handing {
    from: u64,
    to: u64,
    /// The name in whose local queue the waiter is, and its place there.
    name: usize,
    place: u64,
    /// The hand-offs in a row before it.
    handed: u32,
    sent: Micros,
}

impl Debug for Handing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The queue shows the place.
        (self.from, self.to, self.name, self.sent).fmt(f)
    }
}

#[derive(Clone, Debug)]
struct Hold {
    owner: u64,
    /// The name in whose local queue it was acquired.
    name: usize,
    token: u64,
    life: Life,
    renewal_sent: Option<Micros>,
    /// When the release was sent first.
    release_sent: Option<Micros>,
}

impl Hold {
    /// Returns whether the user has it, and has not released it.
    fn is_taken(&self) -> bool {
        !self.life.is_untaken() && self.life.ended().is_none()
    }
}

/// The reply to a release whose owner holds nothing.
const GONE: i64 = -2;

fn number(reply: &Reply) -> u64 {
    match reply {
        Reply::Int(n) => u64::try_from(*n).unwrap_or_default(),
        _ => 0,
    }
}

/// Splits `{ "tend", ms, reply }`, the reply of a script that has not finished.
fn split(reply: Reply) -> (Reply, Option<u64>) {
    match reply {
        Reply::Array(mut parts) if matches!(parts.first(), Some(Reply::Bulk(_))) => {
            let inner = parts.pop().unwrap_or(Reply::Nil);
            (inner, parts.get(1).map(number))
        }
        reply => (reply, None),
    }
}

/// The inputs and outputs of a step.
struct Step {
    now: Micros,
    outputs: Vec<Output>,
}

impl<K: Kind> Client<K> {
    pub(crate) fn new(uuid: &'static str, kind: K, acquires: u8, drops: u8) -> Self {
        Self {
            uuid,
            kind,
            others: Vec::new(),
            wants: BTreeMap::new(),
            polls: false,
            tasks: 1,
            acquires,
            drops,
            sleeps: 0,
            owners: 0,
            redisson: None,
            relays: Subscribed::No,
            lines: vec![Line::default(); K::BASES.len()],
            at: 0,
            waiters: Vec::new(),
            holds: Vec::new(),
            handing: None,
            both: None,
            was_cut: false,
            debts: BTreeMap::new(),
            sweeps: Vec::new(),
            tend: None,
            timer: None,
        }
    }

    pub(crate) fn polling(self) -> Self {
        let polls = true;
        Self { polls, ..self }
    }

    /// The user does so many acquires at the same time.
    pub(crate) fn with_tasks(self, tasks: usize) -> Self {
        Self { tasks, ..self }
    }

    /// One task of the user is not polled any more at some time.
    pub(crate) fn that_sleeps(self) -> Self {
        Self { sleeps: 1, ..self }
    }

    /// A client of Redisson's.
    pub(crate) fn of_redisson(uuid: &'static str, kind: K, acquires: u8) -> Self {
        let redisson = Some(Redisson::new(uuid));
        Self {
            redisson,
            ..Self::new(uuid, kind, acquires, 0)
        }
    }

    pub(crate) fn is_redissons(&self) -> bool {
        self.redisson.is_some()
    }

    /// Returns whether a task that runs waits.
    pub(crate) fn waits(&self) -> bool {
        let redisson = self.redisson.as_ref();
        self.waiters.iter().any(|it| !it.sleeps) || redisson.is_some_and(Redisson::waits)
    }

    /// Returns whether a task is not polled any more.
    pub(crate) fn has_a_sleeper(&self) -> bool {
        self.waiters.iter().any(|it| it.sleeps)
    }

    /// Returns whether a task waits, or has a hold that it has not taken.
    pub(crate) fn is_in_use(&self) -> bool {
        let lasts = |it: &Waiter<K>| self.lines[it.name].queue.waiter(it.place).is_some();
        let untaken = |it: &Hold| it.life.is_untaken();
        self.waits() || self.waiters.iter().any(lasts) || self.holds.iter().any(untaken)
    }

    /// Invariant 3: something that is under way leads to the next request of each local queue with waiters, or to its end.
    pub(crate) fn is_attended(&self) -> bool {
        self.set_holds();
        self.lines.iter().all(|it| it.queue.is_attended())
    }

    /// The number of holds of the user.
    pub(crate) fn held(&self, now: Micros) -> usize {
        let held = |hold: &&Hold| hold.is_taken() && moment(now) < hold.life.valid_until();
        self.holds.iter().filter(held).count()
    }

    pub(crate) fn holds(&self, now: Micros) -> bool {
        let redisson = self.redisson.as_ref();
        self.held(now) > 0 || redisson.is_some_and(|it| it.holds(now))
    }

    /// The owners of the present acquires, and of the entry in the queue.
    pub(crate) fn waiting_owners(&self) -> Vec<String> {
        let holds = |owner: u64| self.holds.iter().any(|it| it.owner == owner);
        let waiting = self.debts.keys().filter(|owner| !holds(**owner));
        waiting.map(|owner| self.wire(*owner)).collect()
    }

    /// The channel for messages to this process about the present name.
    pub(crate) fn channel(&self) -> String {
        format!("{}:{}", K::BASES[self.at], self.uuid)
    }

    /// The local queue of the present name.
    fn here(&mut self) -> &mut Line<K> {
        &mut self.lines[self.at]
    }

    /// The name of the local queue with a waiter or a hold of `owner`.
    fn name_of(&self, owner: u64) -> usize {
        let asks = |it: &&Waiter<K>| it.asking.is_some_and(|it| it.owner == owner);
        let waiter = self.waiters.iter().find(asks).map(|it| it.name);
        let hold = self.holds.iter().find(|it| it.owner == owner);
        let handing = self.handing.as_ref().filter(|it| it.to == owner);
        waiter
            .or_else(|| hold.map(|it| it.name))
            .or_else(|| handing.map(|it| it.name))
            .unwrap_or_default()
    }

    /// The owners of waiters that have an entry, and their arrivals, as far as this process knows.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = (String, u64)> {
        let debts = self.debts.iter();
        let all = debts.map(|(owner, claim)| (self.wire(*owner), claim.arrived()));
        let all = all.filter(|(_, arrived)| *arrived > 0);
        all.filter(|(owner, _)| self.lines.iter().any(|it| it.queue.has_debt_of(owner)))
    }

    /// The owners that may have what they want, as the server may know: they hold, or a request of theirs is in flight.
    pub(crate) fn owners(&self) -> Vec<String> {
        let asking = self.waiters.iter().filter_map(|it| it.asking);
        let all = asking.map(|it| it.owner);
        let all = all.chain(self.holds.iter().map(|it| it.owner));
        let all = all.chain(self.handing.iter().map(|it| it.to));
        all.map(|owner| self.wire(owner)).collect()
    }

    fn wire(&self, owner: u64) -> String {
        format!("{}:{owner}", self.uuid)
    }

    fn number_of(wire: &str) -> u64 {
        let number = wire.rsplit(':').next();
        number.and_then(|it| it.parse().ok()).unwrap_or_default()
    }

    /// Sets the holds that exist, for the queue.
    fn set_holds(&self) {
        let end = |it: &Hold| (self.wire(it.owner), it.life.held_until().micros());
        set_holds(self.holds.iter().map(end).collect());
    }

    /// Passes an event to the queue, and carries out its effects.
    fn event<R>(
        &mut self,
        step: &mut Step,
        event: impl FnOnce(&mut Self, &dyn Context<Model<K>>) -> R,
    ) -> R {
        self.set_holds();
        let settings = Settings {
            now: step.now,
            polls: self.polls,
            uuid: self.uuid,
            owners: Cell::new(self.owners),
        };
        let result = event(self, &settings);
        self.owners = settings.owners.get();
        if self.here().queue.is_empty() {
            self.here().queue.rest();
        }
        let effects = self.here().queue.take_effects();
        if self.here().queue.is_idle() {
            self.here().queue.reset();
        }
        for effect in effects {
            match effect {
                Effect::Send(ask) => self.ask(step, ask),
                Effect::Wake(place) => self.poll(step, place),
                Effect::GiveUp(debt) => self.give_up(step, Self::number_of(&debt.owner)),
                Effect::Untaken(Outcome::Granted(hold)) => {
                    self.release_hold(step, Self::number_of(&hold.owner));
                }
                Effect::Untaken(_) | Effect::Left(_) | Effect::Forget(_) => {}
            }
        }
        result
    }

    fn send(&self, step: &mut Step, kind: u64, owner: u64, call: Call) {
        let request = kind + owner;
        step.outputs.push(Output::Send { request, call });
    }

    fn release(&self, step: &mut Step, owner: u64, leaves: bool) {
        let (kind, leaves) = if leaves { (LEAVE, "1") } else { (RELEASE, "0") };
        let call = self.kind_of(owner).release(&self.wire(owner), leaves);
        self.send(step, kind, owner, call);
    }

    /// What `owner` may have on the server.
    fn claim_of(&mut self, owner: u64) -> &mut Claim {
        let new = || Claim::new(Lease::default());
        self.debts.entry(owner).or_insert_with(new)
    }

    /// Removes the leftovers of `owner` now, and again when no request of it can run any more.
    fn sweep(&mut self, step: &mut Step, owner: u64, left: Claim) {
        if left.until() > moment(step.now) {
            self.sweeps.push((left.until().micros(), owner));
        }
        self.release(step, owner, true);
    }

    /// As [`Client::sweep`], with all that `owner` may have.
    fn sweep_all(&mut self, step: &mut Step, owner: u64) {
        let left = self.claim_of(owner).take();
        self.sweep(step, owner, left);
    }

    /// Cleans up after `owner`, which no waiter, request, entry or hold uses any more.
    fn settle(&mut self, step: &mut Step, owner: u64) {
        let claim = self.debts.remove(&owner);
        if let Some(left) = claim.and_then(|mut it| it.take_leftover()) {
            self.sweep(step, owner, left);
        }
    }

    /// Cleans up after `owner`, unless a request in flight, a hand-off, a hold or a queue has its debt.
    fn give_up(&mut self, step: &mut Step, owner: u64) {
        let wire = self.wire(owner);
        let in_flight = self.debts.get(&owner).is_some_and(Claim::is_in_flight);
        let kept = self.lines.iter().any(|it| it.queue.has_debt_of(&wire));
        let handed = self.handing.as_ref().is_some_and(|it| it.to == owner);
        if !kept && !handed && !in_flight && self.hold_of(owner).is_none() {
            self.settle(step, owner);
        }
    }

    fn user(&mut self, step: &mut Step, op: Op) {
        match op {
            Op::Acquire => {
                self.acquires -= 1;
                let kind = match self.others.is_empty() {
                    true => self.kind,
                    false => self.others.remove(0),
                };
                // The server's clock is up to a millisecond ahead: later than all requests so far.
                self.join(step, kind, step.now + MS - 1);
            }
            Op::DropAcquire(index) => {
                self.drops -= 1;
                let waiter = self.waiters.remove(index);
                self.at = waiter.name;
                // A request in flight goes on, and its reply is followed by the clean-up.
                let (own, entry) =
                    self.event(step, |it, cx| it.here().queue.leave(cx, waiter.place));
                for debt in entry.into_iter().chain(own) {
                    self.give_up(step, Self::number_of(&debt.owner));
                }
            }
            Op::Sleep(index) => {
                self.sleeps -= 1;
                self.waiters[index].sleeps = true;
            }
            Op::Release => {
                if let Some(owner) = self.held_owner() {
                    self.at = self.name_of(owner);
                    self.release_hold(step, owner);
                }
            }
            Op::ReleaseAndAcquire => {
                self.acquires -= 1;
                if let Some(owner) = self.held_owner() {
                    self.end_hold(step, owner);
                    self.both = Some((owner, 0));
                    self.join(step, self.kind, step.now + MS - 1);
                }
            }
        }
    }

    /// The owner of a hold of the user.
    fn held_owner(&self) -> Option<u64> {
        let held = self.holds.iter().find(|it| it.is_taken());
        held.map(|it| it.owner)
    }

    fn reply(&mut self, step: &mut Step, request: u64, reply: Option<Reply>) {
        let (owner, now) = (request % 1000, step.now);
        let kind = request - owner;
        self.at = self.name_of(owner);
        let (reply, unfinished) = match reply.map(split) {
            Some((reply, unfinished)) => (Some(reply), unfinished),
            None => (None, (kind == TEND).then_some(250)),
        };
        if let Some(ms) = unfinished {
            self.tend = Some(now + (ms + 1) * MS);
        }
        match (kind, reply) {
            (FIRST | AGAIN, Some(reply)) => self.answered(step, owner, &reply),
            (FIRST | AGAIN, None) => self.unanswered(step, owner),
            (RENEW, reply) => self.renewed(step, owner, reply.as_ref()),
            (RELEASE, None) => self.release(step, owner, false),
            (LEAVE, None) => self.release(step, owner, true),
            (RELEASE, Some(reply)) => self.released(step, owner, &reply),
            (LEAVE, Some(reply)) => self.served(step, &reply),
            (BOTH, reply) => self.released_and_answered(step, owner, reply),
            (HAND_OFF, reply) => self.handed_off(step, reply.as_ref()),
            _ => {}
        }
    }

    fn timer(&mut self, step: &mut Step) {
        let now = step.now;
        let due: Vec<_> = self.sweeps.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, owner) in due {
            self.release(step, owner, true);
        }
        if self.tend.take_if(|at| *at <= now).is_some() {
            self.send(step, TEND, 0, self.kind.tend(""));
        }
        let lives = |it: &&Hold| it.life.ended().is_none();
        let over = |it: &&Hold| lives(it) && it.life.end_at(moment(now)).is_some();
        let over: Vec<_> = self.holds.iter().filter(over).cloned().collect();
        for hold in over {
            self.at = hold.name;
            // A request in flight may have been granted to the same owner: its waiter cleans up.
            let asks = |it: &Waiter<K>| it.asking.is_some_and(|it| it.owner == hold.owner);
            if !self.waiters.iter().any(asks) {
                self.sweep_all(step, hold.owner);
            }
            self.lose(step, hold.owner);
        }
        let is_due = |it: &&mut Hold| it.life.next().is_some_and(|at| at <= moment(now));
        let due = self.holds.iter_mut().filter(is_due);
        let due = due.map(|it| (it.owner, it.life.due(moment(now), Duration::ZERO, Some(1))));
        for (owner, due) in due.collect::<Vec<_>>() {
            if due.is_left {
                self.leave_untaken(step, owner);
            }
            if due.renews {
                self.renew(step, owner);
            }
        }
        for name in 0..self.lines.len() {
            self.at = name;
            let poll = self.here().queue.next_poll();
            if poll.is_some_and(|at| at <= moment(now)) {
                self.event(step, |it, cx| it.here().queue.timer(cx));
            }
        }
    }

    /// The next time at which the process does something by itself.
    fn next(&self) -> Option<Micros> {
        // The timers of the world are whole milliseconds.
        let polls = self.lines.iter().filter_map(|it| it.queue.next_poll());
        let polls = polls.map(|at| at.micros().div_ceil(MS) * MS);
        let holds = self.holds.iter().filter_map(|it| it.life.next());
        let holds = holds.filter(|at| *at < Moment::FAR);
        let holds = holds.map(|at| at.micros().div_ceil(MS) * MS);
        let sweeps = self.sweeps.iter().map(|(at, _)| *at);
        sweeps.chain(polls).chain(holds).chain(self.tend).min()
    }
}

//! A model of a client with one waiter, written after `waiting`, `acquire` and `hold` of `stanchion-core`.
//!
//! The model keeps what decides about requests: the entry in the queue, the reason of the next request, messages during a request, the
//! hold and its renewal, and the clean-up of an owner. It leaves out several waiters of one process, hand-offs, re-entry, Redisson's
//! clients and jitter: a poll at a random moment happens at the latest moment.
//!
//! Long: one state machine, in the order of its inputs.

use std::fmt::Debug;

use stanchion_explorer::{Call, Input, Micros, Output, Process, Reply};

const MS: Micros = 1000;
/// The lease, in milliseconds.
pub(crate) const LEASE: &str = "30000";
const LEASE_US: Micros = 30_000 * MS;
const POLL: Micros = 5000 * MS;
const POLL_UNSUBSCRIBED: Micros = 250 * MS;
/// The longest pause of a client that polls.
const SPIN: Micros = 128 * MS;
/// A request may run so long after it was sent, and no longer.
const SILENCE: Micros = 2000 * MS;
/// The end of a hold without a lease.
const FAR: Micros = Micros::MAX;

/// The numbers of requests: a thousand of each kind, plus the number of the owner.
const FIRST: u64 = 1000;
const AGAIN: u64 = 2000;
const RENEW: u64 = 3000;
const RELEASE: u64 = 4000;
const LEAVE: u64 = 5000;
const TEND: u64 = 6000;

/// The scripts of a synchronizer, and the properties that the client knows. `Debug` distinguishes kinds of processes.
pub(crate) trait Kind: Copy + Debug {
    /// True if a grant by message is a call to confirm it, and a hold has no lease: plain permits.
    const CONFIRMS: bool = false;

    fn acquire(&self, ask: &Ask) -> Call;
    /// `leaves`: `1` to give up the entry in the queue, too; otherwise `0`.
    fn release(&self, owner: &str, leaves: &str) -> Call;
    fn renew(&self, owner: &str, not_after: &str) -> Call;
    fn tend(&self) -> Call;
}

/// The parameters of a request.
pub(crate) struct Ask {
    pub(crate) owner: String,
    pub(crate) word: String,
    pub(crate) not_after: String,
    /// The start of the acquire.
    pub(crate) began: String,
}

/// Makes the call of a script.
pub(crate) fn call(script: &'static str, keys: &[&str], args: &[&str]) -> Call {
    let [keys, args] = [keys, args].map(|texts| texts.iter().map(|&it| it.to_owned()).collect());
    Call { script, keys, args }
}

/// An operation of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Acquire,
    DropAcquire,
    Release,
}

/// A client with one waiter.
#[derive(Clone, Debug)]
pub(crate) struct Client<K> {
    uuid: &'static str,
    pub(crate) kind: K,
    /// True if the client receives no messages.
    pub(crate) polls: bool,
    /// The acquires, and the drops of waiting acquires, that the user may still do.
    acquires: u8,
    drops: u8,
    /// The number of the present owner: each acquire has a new one.
    owner: u64,
    subscribed: Subscribed,
    /// True if a message came while there was no waiter.
    unheard: bool,
    waiter: Option<Waiter>,
    hold: Option<Hold>,
    /// Owners whose leftovers are removed a second time, because a request of theirs may run until then.
    sweeps: Vec<(Micros, u64)>,
    /// The time at which the queue is to be tended.
    tend: Option<Micros>,
    /// The present time of the timer.
    timer: Option<Micros>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscribed {
    No,
    Sent,
    Confirmed,
}

/// A call that waits.
#[derive(Clone, Debug)]
struct Waiter {
    began: Micros,
    /// The time at which the request in flight was sent.
    asking: Option<Micros>,
    /// The arrival of the entry in the queue, if there is one.
    arrived: Option<String>,
    /// The time and the reason of the next request, as a message during the request in flight said. 0: at once.
    due: Option<(Micros, Reason)>,
    poll: Option<(Micros, Reason)>,
    /// A grant by message that crossed the request.
    taken: Option<Hold>,
    unanswered_until: Option<Micros>,
}

/// The reason of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A first request, or one after a request that was not decided.
    Turn,
    /// A message of the server.
    Told,
    /// The time of a poll.
    Look,
    /// A change of the subscription.
    Anew,
}

#[derive(Clone, Debug)]
struct Hold {
    token: u64,
    valid_until: Micros,
    renew_at: Option<Micros>,
    renewal_sent: Option<Micros>,
    unanswered_until: Option<Micros>,
}

/// The end of a lease on the client's side, with the margin of P1.
fn valid_until(sent: Micros, lease: Micros) -> Micros {
    sent + lease - (lease / 100).max(2 * MS)
}

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

impl<K: Kind> Client<K> {
    pub(crate) fn new(uuid: &'static str, kind: K, acquires: u8, drops: u8) -> Self {
        Self {
            uuid,
            kind,
            polls: false,
            acquires,
            drops,
            owner: 0,
            subscribed: Subscribed::No,
            unheard: false,
            waiter: None,
            hold: None,
            sweeps: Vec::new(),
            tend: None,
            timer: None,
        }
    }

    pub(crate) fn polling(self) -> Self {
        let polls = true;
        Self { polls, ..self }
    }

    pub(crate) fn waits(&self) -> bool {
        self.waiter.is_some()
    }

    pub(crate) fn holds(&self, now: Micros) -> bool {
        self.hold.as_ref().is_some_and(|h| now < h.valid_until)
    }

    /// Returns whether the server may know that the present owner has what it wants: it holds, or a request of it is in flight.
    pub(crate) fn may_have(&self) -> bool {
        let asks = |it: &Waiter| it.asking.is_some();
        self.hold.is_some() || self.waiter.as_ref().is_some_and(asks)
    }

    /// The owner of the present acquire or hold.
    pub(crate) fn owner(&self) -> String {
        self.wire(self.owner)
    }

    fn wire(&self, owner: u64) -> String {
        format!("{}:{owner}", self.uuid)
    }

    fn release(&self, owner: u64, leaves: bool) -> Output {
        let (kind, leaves) = if leaves { (LEAVE, "1") } else { (RELEASE, "0") };
        let call = self.kind.release(&self.wire(owner), leaves);
        let request = kind + owner;
        Output::Send { request, call }
    }

    /// Removes the leftovers of `owner` now, and again when no request of it can run any more.
    fn sweep(&mut self, owner: u64, unanswered_until: Option<Micros>) -> Output {
        self.sweeps.extend(unanswered_until.map(|at| (at, owner)));
        self.release(owner, true)
    }

    fn renew(&mut self, now: Micros) -> Option<Output> {
        let (owner, wire) = (self.owner, self.owner());
        let taken = self.waiter.as_mut().and_then(|w| w.taken.as_mut());
        let hold = self.hold.as_mut().or(taken)?;
        (hold.renewal_sent, hold.renew_at) = (Some(now), None);
        let call = self.kind.renew(&wire, &(now + SILENCE).to_string());
        let request = RENEW + owner;
        Some(Output::Send { request, call })
    }

    /// Sends the request of the waiter, for `reason`.
    fn ask(&mut self, now: Micros, reason: Reason) -> Option<Output> {
        let (owner, wire) = (self.owner, self.owner());
        let waiter = self.waiter.as_mut()?;
        waiter.asking = Some(now);
        // Without a message its reply plans the next poll.
        waiter.poll.take_if(|(_, reason)| *reason != Reason::Told);
        let arrived = waiter.arrived.as_deref().unwrap_or_default();
        let word = match reason {
            Reason::Told => "ask",
            Reason::Look => "look",
            Reason::Turn if !arrived.is_empty() => "ask",
            Reason::Turn | Reason::Anew => "new",
        };
        let word = match (word, arrived, self.polls) {
            ("new", "", false) => word.to_owned(),
            (_, _, polls) => format!("{word} {arrived} 0 {}", if polls { "?" } else { "" }),
        };
        let kind = if arrived.is_empty() { FIRST } else { AGAIN };
        let call = self.kind.acquire(&Ask {
            owner: wire,
            word,
            not_after: (now + SILENCE).to_string(),
            began: waiter.began.to_string(),
        });
        let request = kind + owner;
        Some(Output::Send { request, call })
    }

    /// A message or a change: the waiter sends a request at `at` (0: now), or after the one in flight.
    fn is_due(&mut self, now: Micros, at: Micros, reason: Reason) -> Option<Output> {
        let waiter = self.waiter.as_mut()?;
        if waiter.asking.is_some() {
            let better = |(known, why)| at < known || at == known && why != Reason::Told;
            if waiter.due.is_none_or(better) {
                waiter.due = Some((at, reason));
            }
            return None;
        }
        if at == 0 {
            return self.ask(now, reason);
        }
        waiter.poll = Some((at, reason));
        None
    }

    /// The waiter gets `hold`, unless the hold has ended before: then its owner is cleaned up, and a new one waits.
    fn begin(&mut self, now: Micros, mut hold: Hold) -> Vec<Output> {
        let debt = self.waiter.take().and_then(|w| w.unanswered_until);
        hold.unanswered_until = hold.unanswered_until.max(debt);
        if now >= hold.valid_until {
            let mut outputs = vec![self.sweep(self.owner, hold.unanswered_until)];
            outputs.extend(self.acquire(now));
            return outputs;
        }
        let token = hold.token;
        self.hold = Some(hold);
        vec![Output::Granted { token }]
    }

    fn acquire(&mut self, now: Micros) -> Option<Output> {
        self.owner += 1;
        self.waiter = Some(Waiter {
            // The server's clock is up to a millisecond ahead: later than all requests so far.
            began: now + MS - 1,
            asking: None,
            arrived: None,
            due: None,
            poll: None,
            taken: None,
            unanswered_until: None,
        });
        self.ask(now, Reason::Turn)
    }

    /// The user drops the acquire. A request in flight goes on, and its reply is followed by the clean-up.
    fn drop_acquire(&mut self) -> Vec<Output> {
        let Some(waiter) = self.waiter.take() else {
            return Vec::new();
        };
        let until = waiter.unanswered_until;
        if waiter.asking.is_some() {
            self.sweeps.extend(until.map(|at| (at, self.owner)));
            let taken = waiter.taken.map(|_| self.release(self.owner, false));
            return taken.into_iter().collect();
        }
        vec![self.sweep(self.owner, until)]
    }

    fn user(&mut self, now: Micros, op: Op) -> Vec<Output> {
        match op {
            Op::Acquire => {
                self.acquires -= 1;
                self.acquire(now).into_iter().collect()
            }
            Op::DropAcquire => {
                self.drops -= 1;
                self.drop_acquire()
            }
            Op::Release => {
                let until = self.hold.take().and_then(|hold| hold.unanswered_until);
                self.sweeps.extend(until.map(|at| (at, self.owner)));
                vec![self.release(self.owner, false)]
            }
        }
    }

    fn message(&mut self, now: Micros, payload: &str) -> Vec<Output> {
        let Some(waiter) = &mut self.waiter else {
            self.unheard = true;
            return Vec::new();
        };
        let mut parts = payload.split(' ');
        let (word, to) = (parts.next(), parts.next());
        let numbers: Vec<u64> = parts.filter_map(|text| text.parse().ok()).collect();
        // A grant to an owner that is given up is returned by the clean-up of that owner.
        if to != Some(&format!("{}:{}", self.uuid, self.owner)) {
            return Vec::new();
        }
        let due = match (word, &numbers[..]) {
            // A second copy is dropped.
            (Some("G"), _) if waiter.taken.is_some() => None,
            (Some("G"), &[token, us, ms, ..]) => {
                let (sent, lease) = (us / MS * MS, ms * MS);
                let hold = Hold {
                    token,
                    valid_until: valid_until(sent, lease),
                    renew_at: Some(sent + lease / 3),
                    renewal_sent: None,
                    unanswered_until: None,
                };
                if waiter.asking.is_none() {
                    return self.begin(now, hold);
                }
                (waiter.taken, waiter.due) = (Some(hold), None);
                None
            }
            (Some("N"), [ms]) => Some((now + (ms + 1) * MS, Reason::Look)),
            (Some("P"), [0]) => Some((0, Reason::Told)),
            (Some("P"), [ms]) => Some((now + ms * MS, Reason::Told)),
            _ => Some((0, Reason::Told)),
        };
        let request = due.and_then(|(at, reason)| self.is_due(now, at, reason));
        request.into_iter().collect()
    }

    /// The reply to a request of `owner` for a hold. `queued`: the owner had an entry before.
    fn answered(&mut self, now: Micros, owner: u64, queued: bool, reply: &Reply) -> Vec<Output> {
        let Some(waiter) = self.waiter.as_mut().filter(|_| owner == self.owner) else {
            // The acquire was dropped: its hold or its entry is given back.
            return match reply {
                Reply::Int(-1) if !queued => Vec::new(),
                Reply::Int(0..) => vec![self.release(owner, false)],
                _ => vec![self.release(owner, true)],
            };
        };
        let sent = waiter.asking.take().unwrap_or(now);
        match reply {
            Reply::Int(-1) => self.undecided(now),
            Reply::Int(_) => {
                let until = valid_until(sent, LEASE_US);
                let (valid_until, renew_at) = match K::CONFIRMS {
                    true => (FAR, None),
                    false => (until, Some(sent + LEASE_US / 3)),
                };
                let hold = Hold {
                    token: number(reply),
                    valid_until,
                    renew_at,
                    renewal_sent: None,
                    unanswered_until: None,
                };
                self.begin(now, hold)
            }
            Reply::Array(parts) => self.refused(now, parts),
            _ => Vec::new(),
        }
    }

    /// After a request without a decision: the waiter has a hold by message, or sends a request again.
    fn undecided(&mut self, now: Micros) -> Vec<Output> {
        match self.waiter.as_mut().and_then(|w| w.taken.take()) {
            Some(hold) => self.begin(now, hold),
            None => self.ask(now, Reason::Turn).into_iter().collect(),
        }
    }

    /// `parts`: see [`Process::reads`].
    fn refused(&mut self, now: Micros, parts: &[Reply]) -> Vec<Output> {
        let mut outputs = Vec::new();
        let subscribed = self.subscribed;
        if subscribed == Subscribed::No && !self.polls {
            self.subscribed = Subscribed::Sent;
            outputs.push(self.subscribe());
        }
        let unheard = std::mem::take(&mut self.unheard);
        let polls = self.polls;
        let Some(waiter) = &mut self.waiter else {
            return outputs;
        };
        if let Some(hold) = waiter.taken.take() {
            outputs.extend(self.begin(now, hold));
            return outputs;
        }
        let (ttl, spread, told) = match parts {
            [ttl, arrived, spread, told] => {
                waiter.arrived = Some(number(arrived).to_string());
                (ttl, number(spread) == 1, number(told) == 1)
            }
            _ => return outputs,
        };
        let anew = unheard.then_some((0, Reason::Anew));
        let due = waiter.due.take().or(anew);
        if let Some((_, reason)) = due.filter(|(at, _)| *at <= now) {
            outputs.extend(self.ask(now, reason));
            return outputs;
        }
        let ttl = match ttl {
            Reply::Int(n) => u64::try_from(-4 - n).map_or(FAR - MS, |ms| ms * MS),
            _ => 0,
        };
        let pause = match subscribed {
            _ if polls => (ttl + MS).min(SPIN),
            Subscribed::Confirmed if spread && ttl < FAR - MS => ttl,
            Subscribed::Confirmed => (ttl + MS).min(POLL),
            _ => (ttl + MS).min(POLL_UNSUBSCRIBED),
        };
        let reason = if told { Reason::Told } else { Reason::Look };
        let planned = (now + pause, reason);
        waiter.poll = due.filter(|(at, _)| *at <= planned.0).or(Some(planned));
        outputs
    }

    fn renewed(&mut self, now: Micros, owner: u64, reply: Option<&Reply>) -> Vec<Output> {
        let taken = self.waiter.as_mut().and_then(|w| w.taken.as_mut());
        let hold = self.hold.as_mut().or(taken);
        let Some(hold) = hold.filter(|_| owner == self.owner) else {
            return Vec::new();
        };
        let Some(sent) = hold.renewal_sent.take() else {
            return Vec::new();
        };
        match reply {
            // The user sees the loss. The server has nothing left.
            Some(Reply::Array(items)) if items.contains(&Reply::Int(0)) => {
                hold.valid_until = now;
                self.hold = None;
            }
            Some(Reply::Array(_)) => {
                hold.valid_until = hold.valid_until.max(valid_until(sent, LEASE_US));
                hold.renew_at = Some(sent + LEASE_US / 3);
            }
            _ => hold.renew_at = Some(now + 200 * MS),
        }
        Vec::new()
    }

    fn reply(&mut self, now: Micros, request: u64, reply: Option<Reply>) -> Vec<Output> {
        let owner = request % 1000;
        let kind = request - owner;
        let (reply, unfinished) = match reply.map(split) {
            Some((reply, unfinished)) => (Some(reply), unfinished),
            None => (None, (kind == TEND).then_some(250)),
        };
        if let Some(ms) = unfinished {
            self.tend = Some(now + (ms + 1) * MS);
        }
        match (kind, reply) {
            (FIRST | AGAIN, Some(reply)) => self.answered(now, owner, kind == AGAIN, &reply),
            (FIRST | AGAIN, None) => {
                let current = owner == self.owner;
                let Some(waiter) = self.waiter.as_mut().filter(|_| current) else {
                    return vec![self.sweep(owner, Some(now + SILENCE + 2 * MS))];
                };
                let sent = waiter.asking.take().unwrap_or(now);
                waiter.unanswered_until = Some(sent + SILENCE + 2 * MS);
                self.undecided(now)
            }
            (RENEW, reply) => self.renewed(now, owner, reply.as_ref()),
            (RELEASE, None) => vec![self.release(owner, false)],
            (LEAVE, None) => vec![self.release(owner, true)],
            _ => Vec::new(),
        }
    }

    fn timer(&mut self, now: Micros) -> Vec<Output> {
        let mut outputs = Vec::new();
        let due: Vec<_> = self.sweeps.extract_if(.., |(at, _)| *at <= now).collect();
        outputs.extend(due.iter().map(|(_, owner)| self.release(*owner, true)));
        if self.tend.take_if(|at| *at <= now).is_some() {
            let (request, call) = (TEND, self.kind.tend());
            outputs.push(Output::Send { request, call });
        }
        if let Some(hold) = self.hold.take_if(|hold| now >= hold.valid_until) {
            outputs.push(self.sweep(self.owner, hold.unanswered_until));
        }
        if self.renewal().is_some_and(|at| at <= now) {
            outputs.extend(self.renew(now));
        }
        let waiter = self.waiter.as_mut();
        if let Some((_, reason)) = waiter.and_then(|w| w.poll.take_if(|(at, _)| *at <= now)) {
            outputs.extend(self.is_due(now, 0, reason));
        }
        outputs
    }

    /// The time of the next renewal.
    fn renewal(&self) -> Option<Micros> {
        let taken = self.waiter.as_ref().and_then(|w| w.taken.as_ref());
        self.hold.as_ref().or(taken)?.renew_at
    }

    fn subscribe(&self) -> Output {
        Output::Subscribe(format!("base:{}", self.uuid))
    }
}

impl<K: Kind> Process for Client<K> {
    type Op = Op;

    fn ops(&self) -> Vec<Op> {
        match (&self.waiter, &self.hold) {
            (None, None) if self.acquires > 0 => vec![Op::Acquire],
            (Some(_), None) if self.drops > 0 => vec![Op::DropAcquire],
            (_, Some(_)) => vec![Op::Release],
            _ => Vec::new(),
        }
    }

    /// Of a refusal: the time, the arrival, and whether the next poll is at random, and a response to a wake-up.
    fn reads(call: &Call, reply: Reply) -> Option<Reply> {
        let refusal = |reply| match reply {
            Reply::Array(parts) if parts.len() > 5 => {
                Reply::Array([0, 2, 4, 5].map(|at| parts[at].clone()).into())
            }
            reply => reply,
        };
        let acquires = call.script.starts_with("acquire") || call.script == "renew";
        match (acquires, reply) {
            (false, Reply::Int(_)) => None,
            (_, Reply::Array(mut parts)) if matches!(parts.first(), Some(Reply::Bulk(_))) => {
                parts[2] = refusal(parts[2].clone());
                Some(Reply::Array(parts))
            }
            (_, reply) => Some(refusal(reply)),
        }
    }

    fn step(&mut self, now: Micros, input: Input<Op>) -> Vec<Output> {
        let mut outputs = match input {
            Input::User(op) => self.user(now, op),
            Input::Reply { request, reply } => self.reply(now, request, Some(reply)),
            Input::Failed { request } => self.reply(now, request, None),
            Input::Message { payload, .. } => self.message(now, &payload),
            Input::Subscribed { .. } => {
                self.subscribed = Subscribed::Confirmed;
                self.is_due(now, 0, Reason::Anew).into_iter().collect()
            }
            Input::Disconnected if self.subscribed == Subscribed::No => Vec::new(),
            Input::Disconnected => {
                let mut outputs = vec![self.subscribe()];
                let before = std::mem::replace(&mut self.subscribed, Subscribed::Sent);
                if before == Subscribed::Confirmed {
                    outputs.extend(self.is_due(now, 0, Reason::Anew));
                }
                outputs
            }
            Input::Timer => {
                self.timer = None;
                self.timer(now)
            }
        };
        let poll = self.waiter.as_ref().and_then(|w| Some(w.poll?.0));
        let end = self.hold.as_ref().map(|hold| hold.valid_until);
        let end = end.filter(|at| *at < FAR);
        let hold = self.renewal().or(end);
        let sweep = self.sweeps.iter().map(|(at, _)| *at);
        let next = sweep.chain(poll).chain(hold).chain(self.tend).min();
        if next != self.timer {
            self.timer = next;
            outputs.push(Output::Timer(next));
        }
        outputs
    }
}

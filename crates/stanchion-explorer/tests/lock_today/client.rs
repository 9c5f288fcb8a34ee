//! A model of a client of today's lock with one waiter, written after `stanchion-core/src/waiting` and `hold`.
//!
//! The model keeps what decides about requests: the place in the line, the reason of the next request, wake-ups during a request, the
//! hold and its renewal, and the clean-up of an owner. The model leaves out hand-offs, re-entry, polling clients, Redisson's clients and jitter:
//! a poll at a random moment happens at the latest moment.
//!
//! Long: one state machine, in the order of its inputs.

use stanchion_explorer::{Call, Input, Micros, Output, Process, Reply};

const MS: Micros = 1000;
const LEASE: Micros = 30_000 * MS;
const POLL: Micros = 5000 * MS;
const POLL_UNSUBSCRIBED: Micros = 250 * MS;
/// A request may run so long after it was sent, and no longer.
const SILENCE: Micros = 2000 * MS;

/// The numbers of requests: a thousand of each kind, plus the number of the owner.
const ASK: u64 = 1000;
const RENEW: u64 = 2000;
const RELEASE: u64 = 3000;
const LEAVE: u64 = 4000;
const TEND: u64 = 5000;

/// An operation of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Acquire,
    DropAcquire,
    Release,
}

/// A client with one waiter.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    uuid: &'static str,
    /// The counter of tokens. The lock's own key: no tokens, which saves states.
    fence: &'static str,
    /// The acquires, and the drops of waiting acquires, that the user may still do.
    acquires: u8,
    drops: u8,
    /// The number of the present owner: each acquire has a new one.
    owner: u64,
    subscribed: Subscribed,
    waiter: Option<Waiter>,
    hold: Option<Hold>,
    /// Owners whose leftovers are removed a second time, because a request of theirs may run until then.
    sweeps: Vec<(Micros, u64)>,
    /// The times at which the line is to be tended.
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
    /// When the request in flight was sent.
    asking: Option<Micros>,
    /// When the place in the line arrived, if there is one.
    arrived: Option<String>,
    /// The reason of the next request.
    reason: Reason,
    /// True if a wake-up came during the request.
    again: bool,
    try_at: Option<Micros>,
    head_poll: Option<Micros>,
    poll: Option<(Micros, Reason)>,
    /// A grant by message that crossed the request.
    taken: Option<Hold>,
    unanswered_until: Option<Micros>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The request follows a reply.
    Turn,
    /// A message of the server.
    Message,
    /// The time of a poll.
    Poll,
    /// A first request, or a change of the subscription.
    Subscription,
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

impl Client {
    pub(crate) fn new(uuid: &'static str, acquires: u8, drops: u8) -> Self {
        Self {
            uuid,
            fence: "orders",
            acquires,
            drops,
            owner: 0,
            subscribed: Subscribed::No,
            waiter: None,
            hold: None,
            sweeps: Vec::new(),
            tend: None,
            timer: None,
        }
    }

    pub(crate) fn with_tokens(self) -> Self {
        let fence = "fence";
        Self { fence, ..self }
    }

    pub(crate) fn waits(&self) -> bool {
        self.waiter.is_some()
    }

    pub(crate) fn holds(&self, now: Micros) -> bool {
        self.hold.as_ref().is_some_and(|h| now < h.valid_until)
    }

    fn wire(&self, owner: u64) -> String {
        format!("{}:{owner}", self.uuid)
    }

    fn send(&self, request: u64, script: &'static str, args: Vec<String>) -> Output {
        let keys = ["orders", self.fence, "line", "wake"].map(str::to_owned);
        let keys = match script {
            "renew" => keys[..1].to_vec(),
            _ => keys.into(),
        };
        let call = Call { script, keys, args };
        Output::Send { request, call }
    }

    fn release(&self, owner: u64, places: bool) -> Output {
        let kind = if places { LEAVE } else { RELEASE };
        let places = u8::from(places).to_string();
        let owner_text = self.wire(owner);
        let args = vec!["base".to_owned(), "PUBLISH".to_owned(), owner_text, places];
        self.send(kind + owner, "release", args)
    }

    fn renew(&mut self, now: Micros) -> Option<Output> {
        let (owner, wire) = (self.owner, self.wire(self.owner));
        let taken = self.waiter.as_mut().and_then(|w| w.taken.as_mut());
        let hold = self.hold.as_mut().or(taken);
        let hold = hold.filter(|h| h.renewal_sent.is_none())?;
        (hold.renewal_sent, hold.renew_at) = (Some(now), None);
        let not_after = hold.valid_until.min(now + SILENCE).to_string();
        let args = vec![not_after, wire, (LEASE / MS).to_string()];
        Some(self.send(RENEW + owner, "renew", args))
    }

    /// Sends the request of the waiter, for `reason`.
    fn ask(&mut self, now: Micros, reason: Reason) -> Option<Output> {
        let (owner, wire) = (self.owner, self.wire(self.owner));
        let waiter = self.waiter.as_mut()?;
        (waiter.asking, waiter.poll, waiter.reason) = (Some(now), None, Reason::Turn);
        let arrived = waiter.arrived.as_deref().unwrap_or_default();
        let word = match reason {
            Reason::Message => "ask",
            Reason::Poll => "look",
            Reason::Turn if !arrived.is_empty() => "ask",
            Reason::Turn | Reason::Subscription => "new",
        };
        let ask = match (word, arrived) {
            ("new", "") => word.to_owned(),
            _ => format!("{word} {arrived} 0"),
        };
        let args = vec![
            wire,
            (LEASE / MS).to_string(),
            (now + SILENCE).to_string(),
            ask,
            "PUBLISH".to_owned(),
            "base".to_owned(),
        ];
        Some(self.send(ASK + owner, "acquire", args))
    }

    /// A wake-up: the waiter sends a request now, or after the one in flight.
    fn wake(&mut self, now: Micros, reason: Reason) -> Option<Output> {
        let waiter = self.waiter.as_mut()?;
        if waiter.asking.is_some() {
            waiter.again = true;
            if reason == Reason::Message {
                waiter.reason = reason;
            }
            return None;
        }
        self.ask(now, reason)
    }

    fn begin(&mut self, now: Micros, mut hold: Hold) -> Vec<Output> {
        // The hold takes the debt over: an earlier request may still run after its release.
        hold.unanswered_until = self.waiter.take().and_then(|w| w.unanswered_until);
        let token = hold.token;
        let confirms = hold.renew_at.is_some_and(|at| at <= now);
        self.hold = Some(hold);
        let mut outputs = vec![Output::Granted { token }];
        outputs.extend(confirms.then(|| self.renew(now)).flatten());
        outputs
    }

    fn acquire(&mut self, now: Micros) -> Option<Output> {
        self.owner += 1;
        self.waiter = Some(Waiter {
            asking: None,
            arrived: None,
            reason: Reason::Turn,
            again: false,
            try_at: None,
            head_poll: None,
            poll: None,
            taken: None,
            unanswered_until: None,
        });
        self.ask(now, Reason::Subscription)
    }

    /// The user drops the acquire. A request in flight goes on, and its reply is followed by the clean-up.
    fn drop_acquire(&mut self) -> Option<Output> {
        let waiter = self.waiter.take()?;
        if let Some(until) = waiter.unanswered_until {
            self.sweeps.push((until, self.owner));
        }
        let is_queued = waiter.arrived.is_some() || waiter.unanswered_until.is_some();
        (waiter.asking.is_none() && is_queued).then(|| self.release(self.owner, true))
    }

    fn user(&mut self, now: Micros, op: Op) -> Vec<Output> {
        match op {
            Op::Acquire => {
                self.acquires -= 1;
                self.acquire(now).into_iter().collect()
            }
            Op::DropAcquire => {
                self.drops -= 1;
                self.drop_acquire().into_iter().collect()
            }
            Op::Release => {
                if let Some(until) = self.hold.take().and_then(|h| h.unanswered_until) {
                    self.sweeps.push((until, self.owner));
                }
                vec![self.release(self.owner, false)]
            }
        }
    }

    fn message(&mut self, now: Micros, payload: &str) -> Vec<Output> {
        let parts: Vec<_> = payload.split(' ').collect();
        let number = |at: usize| parts.get(at).and_then(|text| text.parse::<u64>().ok());
        let wire = self.wire(self.owner);
        if let ["G", to, ..] = parts[..] {
            let (Some(token), Some(us), Some(ms)) = (number(2), number(3), number(4)) else {
                return Vec::new();
            };
            let Some(waiter) = self.waiter.as_mut().filter(|_| to == wire) else {
                // The clean-up of that owner returns the grant.
                return Vec::new();
            };
            if waiter.taken.is_some() {
                return Vec::new();
            }
            let hold = Hold {
                token,
                valid_until: valid_until(us / MS * MS, ms * MS),
                renew_at: Some(now),
                renewal_sent: None,
                unanswered_until: None,
            };
            if waiter.asking.is_none() {
                return self.begin(now, hold);
            }
            waiter.taken = Some(hold);
            return self.renew(now).into_iter().collect();
        }
        let Some(waiter) = &mut self.waiter else {
            return Vec::new();
        };
        match (parts[0], number(1)) {
            ("N", Some(ms)) => {
                let at = now + (ms + 1) * MS;
                waiter.head_poll = Some(at);
                if waiter.asking.is_none() {
                    waiter.poll = Some((at, Reason::Poll));
                }
                Vec::new()
            }
            ("P", Some(ms)) if ms > 0 => {
                let at = now + ms * MS;
                if waiter.asking.is_some() {
                    waiter.try_at = Some(at);
                } else {
                    waiter.poll = Some((at, Reason::Message));
                }
                Vec::new()
            }
            _ => self.wake(now, Reason::Message).into_iter().collect(),
        }
    }

    /// The reply to the waiter's request.
    fn answered(&mut self, now: Micros, owner: u64, reply: &Reply) -> Vec<Output> {
        if owner != self.owner || self.waiter.is_none() {
            // The acquire was dropped: its place or hold is given back.
            return match reply {
                Reply::Int(-1) => Vec::new(),
                _ => vec![self.release(owner, true)],
            };
        }
        let Some(waiter) = &mut self.waiter else {
            return Vec::new();
        };
        let sent = waiter.asking.take().unwrap_or(now);
        match reply {
            Reply::Int(-1) => self.ask(now, Reason::Turn).into_iter().collect(),
            Reply::Int(token) => {
                let until = valid_until(sent, LEASE);
                if until <= now {
                    return self.lost(now);
                }
                // A renewal of the same owner may be in flight; its reply may only lengthen the hold.
                let renewal_sent = waiter.taken.take().and_then(|h| h.renewal_sent);
                let renew_at = renewal_sent.is_none().then_some(sent + LEASE / 3);
                let hold = Hold {
                    token: u64::try_from(*token).unwrap_or_default(),
                    valid_until: until,
                    renew_at,
                    renewal_sent,
                    unanswered_until: None,
                };
                self.begin(now, hold)
            }
            Reply::Array(parts) => self.refused(now, parts),
            _ => Vec::new(),
        }
    }

    fn refused(&mut self, now: Micros, parts: &[Reply]) -> Vec<Output> {
        let number = |at: usize| match parts.get(at) {
            Some(Reply::Int(n)) => *n,
            _ => 0,
        };
        let subscribed = self.subscribed;
        let Some(waiter) = &mut self.waiter else {
            return Vec::new();
        };
        let mut outputs = Vec::new();
        if subscribed == Subscribed::No {
            self.subscribed = Subscribed::Sent;
            outputs.push(Output::Subscribe(format!("base:{}", self.uuid)));
        }
        if let Some(hold) = waiter.taken.take() {
            // The grant by message crossed the refusal.
            outputs.extend(match now < hold.valid_until {
                true => self.begin(now, hold),
                false => self.lost(now),
            });
            return outputs;
        }
        waiter.arrived = Some(number(1).to_string());
        let longest = match subscribed {
            Subscribed::Confirmed => POLL,
            _ => POLL_UNSUBSCRIBED,
        };
        if std::mem::take(&mut waiter.again) {
            let reason = waiter.reason;
            outputs.extend(self.ask(now, reason));
            return outputs;
        }
        let ttl = u64::try_from(-4 - number(0)).unwrap_or_default() * MS;
        let mut at = now + (ttl + MS).min(longest);
        if let Some(poll) = waiter.head_poll.take_if(|at| *at > now) {
            at = at.min(poll);
        }
        let mut reason = match number(4) {
            1 => Reason::Message,
            _ => Reason::Poll,
        };
        if let Some(time) = waiter.try_at.take_if(|time| *time > now && *time <= at) {
            (at, reason) = (time, Reason::Message);
        }
        waiter.poll = Some((at, reason));
        outputs
    }

    /// A hold ended before the waiter had it: the owner is cleaned up, and a new one waits.
    fn lost(&mut self, now: Micros) -> Vec<Output> {
        let mut outputs = vec![self.release(self.owner, true)];
        if let Some(until) = self.waiter.take().and_then(|w| w.unanswered_until) {
            self.sweeps.push((until, self.owner));
        }
        outputs.extend(self.acquire(now));
        outputs
    }

    fn renewed(&mut self, now: Micros, owner: u64, reply: Option<&Reply>) -> Vec<Output> {
        let taken = self.waiter.as_mut().and_then(|w| w.taken.as_mut());
        let hold = match self.hold.as_mut().or(taken) {
            Some(hold) if owner == self.owner => hold,
            _ => return Vec::new(),
        };
        let Some(sent) = hold.renewal_sent.take() else {
            return Vec::new();
        };
        let gone = match reply {
            Some(Reply::Array(items)) => items.first() == Some(&Reply::Int(0)),
            _ => false,
        };
        let renewed = matches!(reply, Some(Reply::Array(_))) && !gone;
        if gone || now >= hold.valid_until {
            // The user sees the loss, and the hold is given back.
            if self.hold.take().is_some() {
                return vec![self.release(owner, false)];
            }
        } else if renewed {
            hold.valid_until = hold.valid_until.max(valid_until(sent, LEASE));
            hold.renew_at = Some(sent + LEASE / 3);
        } else {
            return self.renew(now).into_iter().collect();
        }
        Vec::new()
    }

    fn reply(&mut self, now: Micros, request: u64, reply: Option<&Reply>) -> Vec<Output> {
        let owner = request % 1000;
        match (request - owner, reply) {
            (ASK, Some(reply)) => self.answered(now, owner, reply),
            (ASK, None) => {
                let current = owner == self.owner;
                let Some(waiter) = self.waiter.as_mut().filter(|_| current) else {
                    self.sweeps.push((now + SILENCE + 2 * MS, owner));
                    return vec![self.release(owner, true)];
                };
                waiter.asking = None;
                waiter.unanswered_until = Some(now + SILENCE + 2 * MS);
                if let Some(hold) = waiter.taken.take() {
                    return self.begin(now, hold);
                }
                self.ask(now, Reason::Turn).into_iter().collect()
            }
            (RENEW, reply) => self.renewed(now, owner, reply),
            (RELEASE, None) => vec![self.release(owner, false)],
            (LEAVE, None) => vec![self.release(owner, true)],
            (_, Some(Reply::Array(parts))) => {
                // Unfinished: { "tend", ms, reply }.
                if let [_, Reply::Int(ms), ..] = parts[..] {
                    self.tend = Some(now + u64::try_from(ms).unwrap_or_default() * MS);
                }
                Vec::new()
            }
            (TEND, None) => {
                self.tend = Some(now);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn timer(&mut self, now: Micros) -> Vec<Output> {
        let mut outputs = Vec::new();
        let due: Vec<_> = self.sweeps.extract_if(.., |(at, _)| *at <= now).collect();
        outputs.extend(due.iter().map(|(_, owner)| self.release(*owner, true)));
        if self.tend.take_if(|at| *at <= now).is_some() {
            let args = ["base", "PUBLISH", ""].map(str::to_owned).into();
            outputs.push(self.send(TEND, "tend", args));
        }
        if self.hold.is_some() && !self.holds(now) {
            self.hold = None;
            outputs.push(self.release(self.owner, false));
        }
        let renews = |hold: &Hold| hold.renew_at.is_some_and(|at| at <= now);
        if self.hold.as_ref().is_some_and(renews) {
            outputs.extend(self.renew(now));
        }
        let waiter = self.waiter.as_mut();
        if let Some((_, reason)) = waiter.and_then(|w| w.poll.take_if(|(at, _)| *at <= now)) {
            outputs.extend(self.ask(now, reason));
        }
        outputs
    }
}

impl Process for Client {
    type Op = Op;

    fn ops(&self) -> Vec<Op> {
        match (&self.waiter, &self.hold) {
            (None, None) if self.acquires > 0 => vec![Op::Acquire],
            (Some(_), None) if self.drops > 0 => vec![Op::DropAcquire],
            (_, Some(_)) => vec![Op::Release],
            _ => Vec::new(),
        }
    }

    fn reads(call: &Call, reply: Reply) -> Option<Reply> {
        match (call.script, reply) {
            // The server's time serves to estimate its clock.
            ("acquire", Reply::Array(mut parts)) => {
                parts.remove(1);
                Some(Reply::Array(parts))
            }
            ("release" | "tend", Reply::Int(_)) => None,
            (_, reply) => Some(reply),
        }
    }

    fn step(&mut self, now: Micros, input: Input<Op>) -> Vec<Output> {
        let mut outputs = match input {
            Input::User(op) => self.user(now, op),
            Input::Reply { request, reply } => self.reply(now, request, Some(&reply)),
            Input::Failed { request } => self.reply(now, request, None),
            Input::Message { payload, .. } => self.message(now, &payload),
            Input::Subscribed { .. } => {
                self.subscribed = Subscribed::Confirmed;
                self.wake(now, Reason::Subscription).into_iter().collect()
            }
            Input::Disconnected => {
                self.subscribed = Subscribed::Sent;
                let mut outputs = vec![Output::Subscribe(format!("base:{}", self.uuid))];
                outputs.extend(self.wake(now, Reason::Subscription));
                outputs
            }
            Input::Timer => {
                self.timer = None;
                self.timer(now)
            }
        };
        let poll = self.waiter.as_ref().and_then(|w| Some(w.poll?.0));
        let hold = self.hold.as_ref();
        let renewal = hold.map(|h| h.renew_at.unwrap_or(h.valid_until));
        let sweep = self.sweeps.iter().map(|(at, _)| *at);
        let next = sweep.chain(poll).chain(renewal).chain(self.tend).min();
        if next != self.timer {
            self.timer = next;
            outputs.push(Output::Timer(next));
        }
        outputs
    }
}

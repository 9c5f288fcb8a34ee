//! The inputs of a client, in the terms of the explorer.

use std::fmt::{self, Debug};

use stanchion_client::primitive::{Reason, Role};
use stanchion_explorer::{Input, Micros, Output, Process, Reply};

use super::line::Subscribed;
use super::{BOTH, Client, GONE, Kind, LEAVE, Op, RELEASE, Step, TEND};

/// The text is hashed for each new state, so it leaves out what most clients do not have.
impl<K: Kind> Debug for Client<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Client");
        text.field("uuid", &self.uuid).field("kind", &self.kind);
        text.field("may", &(self.polls, self.tasks, self.acquires, self.drops));
        if self.sleeps > 0 {
            text.field("sleeps", &self.sleeps);
        }
        if let Some(redisson) = &self.redisson {
            return text.field("redisson", redisson).finish();
        }
        if !self.others.is_empty() || !self.wants.is_empty() {
            text.field("others", &(&self.others, &self.wants));
        }
        text.field("owners", &self.owners)
            .field("lines", &self.lines)
            .field("waiters", &self.waiters)
            .field("holds", &self.holds)
            .field("debts", &self.debts)
            .field("sweeps", &self.sweeps);
        let rare = (
            self.relays,
            &self.handing,
            self.both,
            self.was_cut,
            self.tend,
        );
        if !matches!(rare, (Subscribed::No, None, None, false, None)) {
            text.field("rare", &rare);
        }
        text.finish()
    }
}

impl<K: Kind> Process for Client<K> {
    type Op = Op;

    fn ops(&self) -> Vec<Op> {
        if let Some(redisson) = &self.redisson {
            return redisson.ops(self.acquires > 0);
        }
        let held = self.holds.iter().filter(|it| it.is_taken()).count();
        let mut ops = Vec::new();
        if self.acquires > 0 && self.waiters.len() + held < self.tasks {
            ops.push(Op::Acquire);
        }
        if self.drops > 0 {
            ops.extend((0..self.waiters.len()).map(Op::DropAcquire));
        }
        if self.sleeps > 0 {
            ops.extend((0..self.waiters.len()).map(Op::Sleep));
        }
        if held > 0 {
            ops.push(Op::Release);
        }
        if held > 0 && self.acquires > 0 && self.waiters.len() < self.tasks && self.goes_with() {
            ops.push(Op::ReleaseAndAcquire);
        }
        ops
    }

    fn subscribed(&self) -> Vec<String> {
        let lines = K::BASES.iter().zip(&self.lines);
        let subscribed = lines.filter(|(_, line)| line.subscribed == Subscribed::Confirmed);
        subscribed
            .map(|(base, _)| format!("{base}:{}", self.uuid))
            .collect()
    }

    /// Of a refusal: the time, the arrival, whether the next poll is at random, and a response to a wake-up; and the holder, and whether the
    /// entry had been removed.
    fn reads(&self, request: u64, reply: Reply) -> Option<Reply> {
        if self.is_redissons() {
            return Some(reply);
        }
        let refusal = |reply| match reply {
            Reply::Array(parts) if parts.len() > 5 => {
                let read: &[usize] = match self.kind_of(request % 1000).is_of_several() {
                    // The third part is the number of the busy name.
                    true => &[0, 3, 5, 6, 2],
                    // The fourth part is the role of the process.
                    false if self.kind.is_beside_redisson() => &[0, 2, 4, 5, 3],
                    false => &[0, 2, 4, 5, 6, 7],
                };
                let read = read.iter();
                Reply::Array(read.filter_map(|at| parts.get(*at).cloned()).collect())
            }
            reply => reply,
        };
        let (owner, kind) = (request % 1000, request / 1000 * 1000);
        match (kind, reply) {
            // The queue learns of the end of a hold, and whether the server had it.
            (RELEASE, Reply::Int(n)) if self.holds.iter().any(|it| it.owner == owner) => {
                Some(if n == GONE {
                    Reply::Int(GONE)
                } else {
                    Reply::Nil
                })
            }
            (BOTH, Reply::Array(mut replies)) if replies.len() == 2 => {
                replies[1] = refusal(replies[1].clone());
                Some(Reply::Array(replies))
            }
            (RELEASE | LEAVE | TEND, Reply::Int(_)) => None,
            (_, Reply::Array(mut parts)) if matches!(parts.first(), Some(Reply::Bulk(_))) => {
                parts[2] = refusal(parts[2].clone());
                Some(Reply::Array(parts))
            }
            (_, reply) => Some(refusal(reply)),
        }
    }

    fn step(&mut self, now: Micros, input: Input<Op>) -> Vec<Output> {
        if let Some(redisson) = &mut self.redisson {
            self.acquires -= u8::from(matches!(input, Input::User(Op::Acquire)));
            return redisson.step(now, input);
        }
        let mut step = Step {
            now,
            outputs: Vec::new(),
        };
        match input {
            Input::User(op) => self.user(&mut step, op),
            Input::Reply { request, reply } => self.reply(&mut step, request, Some(reply)),
            Input::Failed { request } => self.reply(&mut step, request, None),
            Input::Message { channel, payload } if channel == K::BASES[0] => {
                self.message_for_all(&mut step, &payload);
            }
            Input::Subscribed { channel } if channel == K::BASES[0] => {}
            Input::Subscribed { channel } if channel == Self::mark() => {
                self.relays = Subscribed::Confirmed;
                self.event(&mut step, |it, cx| {
                    it.here().queue.admit(cx, Reason::Resubscribed);
                });
            }
            Input::Message { channel, payload } => {
                self.at = Self::name_on(&channel);
                if self.here().queue.is_empty() {
                    self.here().unheard = true;
                } else {
                    self.message(&mut step, &payload);
                }
            }
            Input::Subscribed { channel } => {
                self.at = Self::name_on(&channel);
                self.here().subscribed = Subscribed::Confirmed;
                self.event(&mut step, |it, cx| {
                    it.here().queue.admit(cx, Reason::Resubscribed);
                });
            }
            Input::Disconnected => {
                self.was_cut = self.kind.keeps_waiters();
                for name in 0..self.lines.len() {
                    self.at = name;
                    self.disconnected(&mut step);
                }
                if std::mem::replace(&mut self.relays, Subscribed::No) != Subscribed::No {
                    self.play(&mut step, Role::Take);
                }
            }
            Input::Timer => {
                self.timer = None;
                self.timer(&mut step);
            }
        }
        self.at = 0;
        let next = self.next();
        if next != self.timer {
            self.timer = next;
            step.outputs.push(Output::Timer(next));
        }
        step.outputs
    }
}

//! A client of Redisson's, with one thread: `lock` and `unlock` of its `RLock`.
//!
//! `lock` tries, subscribes, and tries again after each message and when the lease of the holder has ended. A message that comes before the
//! thread waits lets it try once more. The scripts have the effects of Redisson's: see `docs/interop.md`.

use stanchion_explorer::{Input, Micros, Output, Reply};

use super::line::Subscribed;
use super::{LEASE, LEASE_US, MS, Op, call};
use crate::Text;

pub(crate) const SCRIPTS: [Text; 3] = [
    (
        "redisson_lock",
        "if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
           return redis.call('PTTL', KEYS[1])
         end
         redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
         redis.call('PEXPIRE', KEYS[1], ARGV[2])
         return false",
    ),
    (
        "redisson_unlock",
        "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
         redis.call('DEL', KEYS[1])
         redis.call('PUBLISH', ARGV[2], '0')
         return 1",
    ),
    (
        "redisson_renew",
        "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
         return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    ),
];

const CHANNEL: &str = "base";

const LOCK: u64 = 1;
const UNLOCK: u64 = 2;
const RENEW: u64 = 3;

/// The thread, and the subscription of its process.
#[derive(Clone, Debug)]
pub(crate) struct Redisson {
    owner: String,
    state: State,
    subscribed: Subscribed,
    /// Messages that the thread has not waited for.
    permits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// It has sent a request then.
    Asks(Micros),
    Subscribes,
    /// Until that time at most.
    Waits(Option<Micros>),
    Holds {
        until: Micros,
        /// The next renewal, or the time at which that in flight was sent.
        renewal: Result<Micros, Micros>,
    },
    Unlocks,
}

impl Redisson {
    pub(super) fn new(uuid: &str) -> Self {
        Self {
            owner: format!("{uuid}:1"),
            state: State::Idle,
            subscribed: Subscribed::No,
            permits: 0,
        }
    }

    pub(super) fn waits(&self) -> bool {
        matches!(
            self.state,
            State::Asks(_) | State::Subscribes | State::Waits(_)
        )
    }

    pub(super) fn holds(&self, now: Micros) -> bool {
        matches!(self.state, State::Holds { until, .. } if now < until)
    }

    pub(super) fn ops(&self, may_acquire: bool) -> Vec<Op> {
        match self.state {
            State::Idle if may_acquire => vec![Op::Acquire],
            State::Holds { .. } => vec![Op::Release],
            _ => Vec::new(),
        }
    }

    fn send(&self, request: u64) -> Output {
        let (script, arg) = match request {
            LOCK => ("redisson_lock", LEASE),
            UNLOCK => ("redisson_unlock", CHANNEL),
            _ => ("redisson_renew", LEASE),
        };
        let call = call(script, &["orders"], &[&self.owner, arg]);
        Output::Send { request, call }
    }

    fn ask(&mut self, now: Micros) -> Vec<Output> {
        self.state = State::Asks(now);
        vec![Output::Timer(None), self.send(LOCK)]
    }

    fn unsubscribe(&mut self) -> Vec<Output> {
        self.permits = 0;
        match std::mem::replace(&mut self.subscribed, Subscribed::No) {
            Subscribed::No => Vec::new(),
            _ => vec![Output::Unsubscribe(CHANNEL.to_owned())],
        }
    }

    pub(super) fn step(&mut self, now: Micros, input: Input<Op>) -> Vec<Output> {
        match input {
            Input::User(Op::Acquire) => self.ask(now),
            Input::User(_) => {
                self.state = State::Unlocks;
                vec![Output::Timer(None), self.send(UNLOCK)]
            }
            Input::Reply { request, reply } => self.reply(now, request, &reply),
            // The call fails.
            Input::Failed { request: RENEW } => Vec::new(),
            Input::Failed { .. } => {
                self.state = State::Idle;
                self.unsubscribe()
            }
            Input::Subscribed { .. } => {
                self.subscribed = Subscribed::Confirmed;
                match self.state {
                    State::Subscribes => self.ask(now),
                    _ => Vec::new(),
                }
            }
            Input::Message { .. } if self.subscribed == Subscribed::No => Vec::new(),
            Input::Message { .. } => match self.state {
                State::Waits(_) => self.ask(now),
                _ => {
                    self.permits += 1;
                    Vec::new()
                }
            },
            // It subscribes again, and wakes no thread.
            Input::Disconnected if self.subscribed == Subscribed::No => Vec::new(),
            Input::Disconnected => {
                self.subscribed = Subscribed::Sent;
                vec![Output::Subscribe(CHANNEL.to_owned())]
            }
            Input::Timer => match self.state {
                State::Waits(_) => self.ask(now),
                State::Holds { until, .. } => {
                    let renewal = Err(now);
                    self.state = State::Holds { until, renewal };
                    vec![self.send(RENEW)]
                }
                _ => Vec::new(),
            },
        }
    }

    fn reply(&mut self, now: Micros, request: u64, reply: &Reply) -> Vec<Output> {
        match (request, self.state, reply) {
            (LOCK, State::Asks(sent), Reply::Nil) => {
                let mut outputs = self.unsubscribe();
                outputs.extend(self.hold(sent));
                outputs.push(Output::Granted { token: 0 });
                outputs
            }
            (LOCK, State::Asks(_), _) if self.subscribed == Subscribed::No => {
                self.subscribed = Subscribed::Sent;
                self.state = State::Subscribes;
                vec![Output::Subscribe(CHANNEL.to_owned())]
            }
            (LOCK, State::Asks(_), _) if self.permits > 0 => {
                self.permits -= 1;
                self.ask(now)
            }
            (LOCK, State::Asks(_), Reply::Int(ttl)) => {
                let until = u64::try_from(*ttl).ok().map(|ttl| now + ttl * MS);
                self.state = State::Waits(until);
                vec![Output::Timer(until)]
            }
            (RENEW, State::Holds { renewal, .. }, Reply::Int(1)) => match renewal {
                Err(sent) => self.hold(sent),
                Ok(_) => Vec::new(),
            },
            (UNLOCK, State::Unlocks, _) => {
                self.state = State::Idle;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// The lease began at `sent`.
    fn hold(&mut self, sent: Micros) -> Vec<Output> {
        let renewal = sent + LEASE_US / 3;
        self.state = State::Holds {
            until: sent + LEASE_US,
            renewal: Ok(renewal),
        };
        vec![Output::Timer(Some(renewal))]
    }
}

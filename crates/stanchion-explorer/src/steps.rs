//! The steps from a state to the next.

use std::sync::Arc;

use crate::Process;
use crate::world::{Action, InFlight, Incoming, Life, World};

/// A step from a state to the next. Numbers are indices into the lists of the world.
#[derive(Clone, Debug)]
pub(crate) enum Step<Op> {
    /// The server executes a request.
    Execute(usize),
    /// A reply arrives.
    Answer(usize),
    /// The first thing in flight to a process arrives.
    Receive(usize),
    /// The timer of a process fires.
    Timer(usize),
    /// A user does something.
    User(usize, Op),
    /// The clock jumps to the next deadline.
    Advance,
    /// The connection of a request breaks before the server executes it.
    Break(usize),
    /// A request of a broken connection never arrives.
    Vanish(usize),
    /// The connection of a reply breaks.
    LoseAnswer(usize),
    /// The first message to a process is lost.
    LoseMessage(usize),
    /// The first message to a process arrives, and will arrive again.
    Duplicate(usize),
    /// The connection for messages of a process is cut.
    Cut(usize),
    /// A process is killed.
    Kill(usize),
    /// A process stops.
    Stop(usize),
}

impl<P: Process> World<P> {
    /// Returns the steps from this state, in a fixed order. Steps without a fault come first, so that traces are short.
    pub(crate) fn steps(&self) -> Vec<Step<P::Op>> {
        let mut steps = Vec::new();
        steps.extend(self.network_steps());
        for (i, node) in self.nodes.iter().enumerate() {
            if node.life == Life::Running {
                let ops = node.process.ops().into_iter();
                steps.extend(ops.map(|op| Step::User(i, op)));
            }
        }
        if self.deadlines > 0 && self.next_deadline().is_some() {
            steps.push(Step::Advance);
        }
        let orphan = |i: &usize| self.requests[*i].orphan;
        let requests = 0..self.requests.len();
        steps.extend(requests.clone().filter(orphan).map(Step::Vanish));
        if self.faults.replies > 0 {
            let is_call = |i: &usize| matches!(self.requests[*i].action, Action::Call(_));
            steps.extend(
                requests
                    .filter(|i| is_call(i) && !orphan(i))
                    .map(Step::Break),
            );
            let answers = 0..self.answers.len();
            let whole = answers.filter(|i| self.answers[*i].reply.is_some());
            steps.extend(whole.map(Step::LoseAnswer));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if node.life != Life::Running {
                continue;
            }
            if matches!(node.inbox.front(), Some(Incoming::Message(..))) {
                steps.extend((self.faults.messages > 0).then_some(Step::LoseMessage(i)));
                steps.extend((self.faults.duplicates > 0).then_some(Step::Duplicate(i)));
            }
            steps.extend((self.faults.cuts > 0).then_some(Step::Cut(i)));
            steps.extend((self.faults.kills > 0).then_some(Step::Kill(i)));
            steps.extend((self.faults.stops > 0).then_some(Step::Stop(i)));
        }
        steps
    }

    /// Returns the steps of the network and of timers that are due.
    pub(crate) fn network_steps(&self) -> Vec<Step<P::Op>> {
        let mut steps = Vec::new();
        for (i, request) in self.requests.iter().enumerate() {
            // Subscriptions share one connection.
            let subscribes = |r: &InFlight| !matches!(r.action, Action::Call(_));
            let earlier = |r: &Arc<InFlight>| r.process == request.process && subscribes(r);
            if !subscribes(request) || !self.requests[..i].iter().any(earlier) {
                steps.push(Step::Execute(i));
            }
        }
        steps.extend((0..self.answers.len()).map(Step::Answer));
        for (i, node) in self.nodes.iter().enumerate() {
            if node.life == Life::Running {
                steps.extend((!node.inbox.is_empty()).then_some(Step::Receive(i)));
                let due = node.timer.is_some_and(|at| at <= self.client_now());
                steps.extend(due.then_some(Step::Timer(i)));
            }
        }
        steps
    }
}

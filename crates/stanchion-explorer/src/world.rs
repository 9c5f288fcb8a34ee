//! One state of a system: the server, the processes, the network; and the steps from a state to the next.

use std::collections::VecDeque;
use std::sync::Arc;

use stanchion_embedded::Reply;
use stanchion_embedded::explore::Snapshot;

use crate::runner::{Runner, call_text, name, readable, text};
use crate::steps::Step;
use crate::{Call, Change, Faults, Input, Micros, Output, Process, START};

/// One state of a system.
#[derive(Clone, Debug)]
pub struct World<P> {
    /// The clock, which moves by a microsecond for each script, and by a jump to the next deadline.
    pub(crate) now: Micros,
    /// The keys and subscriptions.
    pub server: Snapshot,
    /// The processes and their connections for messages.
    pub(crate) nodes: Vec<Arc<Node<P>>>,
    /// Requests in flight. Any of them may arrive next, but subscriptions of a process arrive in order.
    pub(crate) requests: Vec<Arc<InFlight>>,
    /// Replies in flight. Any of them may arrive next.
    pub(crate) answers: Vec<Arc<Answer>>,
    /// The text of each process for the identity of the state, if it is known.
    pub(crate) texts: Vec<Option<Arc<str>>>,
    /// The faults that could occur at the start.
    pub allowed: Faults,
    /// The faults that may still occur.
    pub faults: Faults,
    /// The number of jumps of the clock that are left.
    pub(crate) deadlines: u8,
    /// The number of jumps at the start.
    pub(crate) allowed_deadlines: u8,
    /// The token of the last grant to a user.
    pub(crate) last_token: u64,
    /// The number of grants to users so far, which does not distinguish states.
    pub grants: u32,
    /// The violation that the last step was, if any.
    pub(crate) violation: Option<String>,
}

/// A process and its connection for messages.
#[derive(Clone, Debug)]
pub(crate) struct Node<P> {
    /// The state machine.
    pub(crate) process: P,
    /// Running, stopped or killed.
    pub(crate) life: Life,
    /// The time of its timer.
    pub(crate) timer: Option<Micros>,
    /// The messages in flight to it, in order.
    pub(crate) inbox: VecDeque<Incoming>,
}

/// The life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// The process runs.
    Running,
    /// The process does nothing more, but its connections stay open.
    Stopped,
    /// The process was killed, and its connections are closed.
    Killed,
}

/// Something in flight on a connection for messages.
#[derive(Clone, Debug)]
pub(crate) enum Incoming {
    /// A message: channel and payload.
    Message(String, String),
    /// The confirmation of a subscription.
    Subscribed(String),
    /// The end of the connection.
    Disconnected,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// The index of the process.
    pub(crate) process: usize,
    /// The process's number of the request.
    pub(crate) request: u64,
    /// The action of the server.
    pub(crate) action: Action,
    /// True if its connection broke: the server may still execute the request, but no process gets the reply.
    pub(crate) orphan: bool,
}

/// The action of a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Runs a script.
    Call(Call),
    /// Subscribes to a channel.
    Subscribe(String),
    /// Ends a subscription.
    Unsubscribe(String),
}

/// A reply in flight.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The index of the process.
    pub(crate) process: usize,
    /// The process's number of the request.
    pub(crate) request: u64,
    /// The reply; `None` if the connection broke.
    pub(crate) reply: Option<Reply>,
}

impl<P: Process> World<P> {
    /// Returns the processes that run.
    pub fn running(&self) -> impl Iterator<Item = &P> {
        let running = |node: &&Arc<Node<P>>| node.life == Life::Running;
        self.nodes.iter().filter(running).map(|node| &node.process)
    }

    /// Returns the processes that were killed or stopped, as they were then.
    pub fn ended(&self) -> impl Iterator<Item = &P> {
        let ended = |node: &&Arc<Node<P>>| node.life != Life::Running;
        self.nodes.iter().filter(ended).map(|node| &node.process)
    }

    /// The clock as processes read it, in whole milliseconds.
    #[must_use]
    pub fn client_now(&self) -> Micros {
        self.now / 1000 * 1000
    }

    /// Returns whether nothing is in flight, and no timer of a running process is due.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let busy = |node: &Arc<Node<P>>| {
            let due = node.timer.is_some_and(|at| at <= self.client_now());
            node.life == Life::Running && (due || !node.inbox.is_empty())
        };
        self.requests.is_empty() && self.answers.is_empty() && !self.nodes.iter().any(busy)
    }

    /// Returns whether no fault has occurred and the clock has not jumped.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.faults == self.allowed && self.client_now() == START
    }

    /// Returns whether the clock has jumped, perhaps with something in flight.
    #[must_use]
    pub fn has_jumped(&self) -> bool {
        self.deadlines < self.allowed_deadlines
    }

    /// Returns whether no user can do anything any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.running().all(|process| process.ops().is_empty())
    }

    /// Returns the next time at which a timer fires or a key has ended.
    pub(crate) fn next_deadline(&self) -> Option<Micros> {
        let running = |node: &&Arc<Node<P>>| node.life == Life::Running;
        let timers = self.nodes.iter().filter(running).filter_map(|n| n.timer);
        let later = timers.filter(|at| *at > self.client_now());
        let ends = self.server.ttls().filter_map(|ttl| {
            // A key is gone in the millisecond after its end.
            let millis = u64::try_from(ttl + 1).ok()?;
            Some(self.client_now() + millis * 1000)
        });
        later.chain(ends).min()
    }

    /// Does one step.
    pub(crate) fn apply(&mut self, runner: &mut Runner, step: &Step<P::Op>) {
        self.violation = None;
        match step {
            Step::Execute(i) => self.execute(runner, *i),
            Step::Answer(i) => {
                let answer = self.answers.remove(*i);
                let Answer {
                    process, request, ..
                } = *answer;
                runner.log(|| match &answer.reply {
                    Some(reply) => format!("{} gets the reply {}", name(process), text(reply)),
                    None => format!("{} learns that its connection broke", name(process)),
                });
                let input = match answer.reply.clone() {
                    Some(reply) => Input::Reply { request, reply },
                    None => Input::Failed { request },
                };
                self.input(runner, process, input);
            }
            Step::Receive(i) => {
                if let Some(first) = self.node(*i).inbox.pop_front() {
                    self.receive(runner, *i, first);
                }
            }
            Step::Duplicate(i) => {
                self.faults.duplicates -= 1;
                if let Some(first) = self.nodes[*i].inbox.front().cloned() {
                    runner.log(|| "FAULT: the next message will arrive twice".to_owned());
                    self.receive(runner, *i, first);
                }
            }
            Step::Timer(i) => {
                self.node(*i).timer = None;
                runner.log(|| format!("the timer of {} fires", name(*i)));
                self.input(runner, *i, Input::Timer);
            }
            Step::User(i, op) => {
                runner.log(|| format!("the user of {}: {op:?}", name(*i)));
                self.input(runner, *i, Input::User(op.clone()));
            }
            Step::Advance => {
                self.deadlines -= 1;
                self.advance(runner);
            }
            fault => self.fault(runner, fault),
        }
    }

    fn fault(&mut self, runner: &mut Runner, step: &Step<P::Op>) {
        match step {
            Step::Break(i) => {
                self.faults.replies -= 1;
                let request = Arc::make_mut(&mut self.requests[*i]);
                request.orphan = true;
                let (process, request) = (request.process, request.request);
                runner.log(|| {
                    let client = name(process);
                    format!("FAULT: a connection of {client} breaks, its request stays in flight")
                });
                self.answers.push(Arc::new(Answer {
                    process,
                    request,
                    reply: None,
                }));
            }
            Step::Vanish(i) => {
                let request = self.requests.remove(*i);
                let client = name(request.process);
                runner.log(|| format!("a request of {client} never arrives"));
            }
            Step::LoseAnswer(i) => {
                self.faults.replies -= 1;
                let answer = Arc::make_mut(&mut self.answers[*i]);
                answer.reply = None;
                let client = name(answer.process);
                runner.log(|| format!("FAULT: a reply to {client} is lost with its connection"));
            }
            Step::LoseMessage(i) => {
                self.faults.messages -= 1;
                let lost = self.node(*i).inbox.pop_front();
                runner.log(|| format!("FAULT: a message to {} is lost: {lost:?}", name(*i)));
            }
            Step::Cut(i) => {
                self.faults.cuts -= 1;
                runner.log(|| format!("FAULT: the subscriptions of {} are cut", name(*i)));
                self.disconnect(runner, *i);
                self.node(*i).inbox = [Incoming::Disconnected].into();
            }
            Step::Kill(i) => {
                self.faults.kills -= 1;
                runner.log(|| format!("FAULT: {} is killed", name(*i)));
                self.disconnect(runner, *i);
                self.end(*i, Life::Killed);
            }
            Step::Stop(i) => {
                self.faults.stops -= 1;
                runner.log(|| format!("FAULT: {} stops", name(*i)));
                self.end(*i, Life::Stopped);
            }
            _ => {}
        }
    }

    /// Applies the rule for a step that led here from `before`.
    pub(crate) fn judge(&mut self, rule: &Change<P>, before: &Self) {
        if self.violation.is_none() {
            self.violation = rule(before, self).err();
        }
    }

    /// Lets time pass without a fault and without the users, until `millis` have passed. Ends at a broken rule.
    pub(crate) fn settle(&mut self, runner: &mut Runner, rule: &Change<P>, millis: u64) {
        let until = self.now + millis * 1000;
        // A bound, should two processes send requests to each other without an end.
        for _ in 0..5_000 {
            if let Some(step) = self.network_steps().first() {
                let before = self.clone();
                self.apply(runner, step);
                self.judge(rule, &before);
                if self.violation.is_some() {
                    return;
                }
            } else if self.next_deadline().is_some_and(|at| at <= until) {
                self.advance(runner);
            } else {
                return;
            }
        }
        self.violation = Some("the network does not become quiet".to_owned());
    }

    fn node(&mut self, process: usize) -> &mut Node<P> {
        self.texts[process] = None;
        Arc::make_mut(&mut self.nodes[process])
    }

    fn receive(&mut self, runner: &mut Runner, process: usize, incoming: Incoming) {
        runner.log(|| match &incoming {
            Incoming::Message(_, payload) => format!("{} receives \"{payload}\"", name(process)),
            Incoming::Subscribed(_) => format!("{} is subscribed", name(process)),
            Incoming::Disconnected => format!("{} learns of the cut", name(process)),
        });
        let input = match incoming {
            Incoming::Message(channel, payload) => Input::Message { channel, payload },
            Incoming::Subscribed(channel) => Input::Subscribed { channel },
            Incoming::Disconnected => Input::Disconnected,
        };
        self.input(runner, process, input);
    }

    /// Hands an input to a process, and puts its outputs into the network.
    fn input(&mut self, runner: &mut Runner, process: usize, input: Input<P::Op>) {
        let now = self.client_now();
        for output in self.node(process).process.step(now, input) {
            let (request, action) = match output {
                Output::Send { request, call } => {
                    runner.log(|| format!("  {} sends {}", name(process), call_text(&call)));
                    (request, Action::Call(call))
                }
                Output::Subscribe(channel) => {
                    runner.log(|| format!("  {} subscribes", name(process)));
                    (0, Action::Subscribe(channel))
                }
                Output::Unsubscribe(channel) => {
                    runner.log(|| format!("  {} ends its subscription", name(process)));
                    (0, Action::Unsubscribe(channel))
                }
                Output::Timer(at) => {
                    self.node(process).timer = at;
                    continue;
                }
                Output::Granted { token } => {
                    runner.log(|| format!("  {} holds, with token {token}", name(process)));
                    if token != 0 && token <= self.last_token {
                        let last = self.last_token;
                        let text = format!("P2: token {token} was granted after token {last}");
                        self.violation = Some(readable(&text, &runner.aliases));
                    }
                    self.last_token = self.last_token.max(token);
                    self.grants += 1;
                    continue;
                }
            };
            self.requests.push(Arc::new(InFlight {
                process,
                request,
                action,
                orphan: false,
            }));
        }
    }

    /// Executes a request on the server.
    fn execute(&mut self, runner: &mut Runner, index: usize) {
        let request = self.requests.remove(index);
        let process = request.process;
        let connection = process as u64;
        runner.server.restore(&self.server);
        self.now += 1;
        runner.server.set_clock(self.now);
        match &request.action {
            Action::Subscribe(channel) => {
                runner.log(|| format!("the server subscribes {}", name(process)));
                runner.server.subscribe(connection, channel.as_bytes());
                let confirmed = Incoming::Subscribed(channel.clone());
                self.node(process).inbox.push_back(confirmed);
            }
            Action::Unsubscribe(channel) => {
                runner.server.unsubscribe(connection, channel.as_bytes());
            }
            Action::Call(call) => {
                let reply = runner.execute(call);
                runner.log(|| {
                    let client = name(process);
                    let reply = text(&reply);
                    format!("the server runs {} of {client}: {reply}", call_text(call))
                });
                // A script that fails is a mistake of the configuration or of the script.
                if let Reply::Error(error) = &reply {
                    self.violation = Some(format!("{} failed: {error}", call.script));
                }
                for message in runner.server.take_messages() {
                    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                    let to = usize::try_from(message.connection).unwrap_or_default();
                    let (channel, payload) = (text(message.channel), text(message.payload));
                    runner.log(|| format!("  it sends \"{payload}\" to {}", name(to)));
                    // A stopped process reads nothing any more.
                    if self.nodes[to].life == Life::Running {
                        let message = Incoming::Message(channel, payload);
                        self.node(to).inbox.push_back(message);
                    }
                }
                let of = &self.nodes[process].process;
                let read = match of.reads(request.request, reply) {
                    None if self.faults.replies > 0 => Some(Reply::Nil),
                    read => read,
                };
                if let Some(reply) = read.filter(|_| !request.orphan) {
                    self.answers.push(Arc::new(Answer {
                        process,
                        request: request.request,
                        reply: Some(reply),
                    }));
                }
            }
        }
        self.server = runner.server.save();
    }

    fn advance(&mut self, runner: &mut Runner) {
        let Some(at) = self.next_deadline() else {
            return;
        };
        let passed = (at - self.client_now()) / 1000;
        runner.log(|| format!("{passed} ms pass"));
        self.now = at;
        runner.server.restore(&self.server);
        runner.server.set_clock(at);
        self.server = runner.server.save();
    }

    /// Ends the subscriptions of a process.
    fn disconnect(&mut self, runner: &Runner, process: usize) {
        let subscribes = |r: &InFlight| !matches!(r.action, Action::Call(_));
        self.requests
            .retain(|request| request.process != process || !subscribes(request));
        runner.server.restore(&self.server);
        runner.server.disconnect(process as u64);
        self.server = runner.server.save();
    }

    fn end(&mut self, process: usize, life: Life) {
        let node = self.node(process);
        (node.life, node.timer) = (life, None);
        node.inbox.clear();
        self.answers.retain(|answer| answer.process != process);
        for request in &mut self.requests {
            if request.process == process {
                Arc::make_mut(request).orphan = true;
            }
        }
    }
}

//! One state of a system: the server, the processes, the network; and the steps from a state to the next.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use stanchion_embedded::Reply;
use stanchion_embedded::explore::{ExploredServer, Snapshot};

use crate::canonical::{hash, times};
use crate::{Call, Configuration, Faults, Input, Micros, Output, Process, START};

/// One state of a system.
#[derive(Clone, Debug)]
pub struct World<P> {
    /// The clock. It moves by a microsecond for each script, and by a jump to the next deadline.
    pub now: Micros,
    /// The keys and subscriptions.
    pub server: Snapshot,
    /// The processes and their connections for messages.
    pub nodes: Vec<Arc<Node<P>>>,
    /// Requests in flight. Any of them may arrive next, but subscriptions of a process arrive in order.
    pub requests: Vec<Arc<InFlight>>,
    /// Replies in flight. Any of them may arrive next.
    pub answers: Vec<Arc<Answer>>,
    /// The faults that could occur at the start.
    pub allowed: Faults,
    /// The faults that may still occur.
    pub faults: Faults,
    /// How often the clock may still jump.
    pub deadlines: u8,
    /// The token of the last grant to a user.
    pub last_token: u64,
    /// The number of grants to users so far. It does not distinguish states.
    pub grants: u32,
    /// The violation that the last step was, if any.
    pub violation: Option<String>,
}

/// A process and its connection for messages.
#[derive(Clone, Debug)]
pub struct Node<P> {
    /// The state machine.
    pub process: P,
    /// Whether it still runs.
    pub life: Life,
    /// The time of its timer.
    pub timer: Option<Micros>,
    /// The messages in flight to it, in order.
    pub inbox: VecDeque<Incoming>,
}

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It does nothing more, but its connections stay open.
    Stopped,
    /// It was killed, and its connections are closed.
    Killed,
}

/// Something in flight on a connection for messages.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// A message: channel and payload.
    Message(String, String),
    /// The confirmation of a subscription.
    Subscribed(String),
    /// The end of the connection.
    Disconnected,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The index of the process.
    pub process: usize,
    /// The process's number of the request.
    pub request: u64,
    /// What the server is to do.
    pub action: Action,
    /// True if its connection broke: it may still be executed, but nobody gets the reply.
    pub orphan: bool,
}

/// What a request does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Runs a script.
    Call(Call),
    /// Subscribes to a channel.
    Subscribe(String),
    /// Ends a subscription.
    Unsubscribe(String),
}

/// A reply in flight.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The index of the process.
    pub process: usize,
    /// The process's number of the request.
    pub request: u64,
    /// The reply; `None` if the connection broke.
    pub reply: Option<Reply>,
}

/// A step from a state to the next. Numbers are indices into the lists of the world.
#[derive(Clone, Debug)]
pub enum Step<Op> {
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
    /// A request whose connection broke never arrives.
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

/// The server that executes requests, with its compiled scripts; and the story of the steps if one is wanted.
#[derive(Debug)]
pub struct Runner {
    server: ExploredServer,
    scripts: BTreeMap<&'static str, String>,
    aliases: Vec<(String, String)>,
    /// The story so far, one line for each event; `None`: nobody reads it.
    pub(crate) story: Option<Vec<String>>,
}

impl Runner {
    /// Starts a server and compiles the scripts.
    #[must_use]
    pub fn new<P: Process>(configuration: &Configuration<P>) -> Self {
        let server = ExploredServer::new(START);
        let load = |(name, text): &(&'static str, String)| (*name, server.load(text));
        Self {
            scripts: configuration.scripts.iter().map(load).collect(),
            aliases: configuration.aliases.clone(),
            server,
            story: None,
        }
    }

    /// Makes the first state.
    pub fn begin<P: Process>(&self, configuration: &Configuration<P>) -> World<P> {
        for command in &configuration.setup {
            self.server.run(command);
        }
        let node = |process: &P| {
            Arc::new(Node {
                process: process.clone(),
                life: Life::Running,
                timer: None,
                inbox: VecDeque::new(),
            })
        };
        World {
            now: START,
            server: self.server.save(),
            nodes: configuration.processes.iter().map(node).collect(),
            requests: Vec::new(),
            answers: Vec::new(),
            allowed: configuration.faults,
            faults: configuration.faults,
            deadlines: configuration.deadlines,
            last_token: 0,
            grants: 0,
            violation: None,
        }
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(readable(&line(), &self.aliases));
        }
    }

    fn execute(&self, call: &Call) -> Reply {
        let Some(sha) = self.scripts.get(call.script) else {
            return Reply::Error(format!("no script {}", call.script));
        };
        let count = call.keys.len().to_string();
        let mut command = vec!["EVALSHA", sha, &count];
        command.extend(call.keys.iter().chain(&call.args).map(String::as_str));
        self.server.run(&command)
    }
}

/// Replaces times by their distance from the start, and long texts by their aliases.
fn readable(text: &str, aliases: &[(String, String)]) -> String {
    let mut result = String::new();
    let mut at = 0;
    for (place, time) in times(text.as_bytes()) {
        let micros = i128::from(time) - i128::from(START);
        let (millis, rest) = (micros.div_euclid(1000), micros.rem_euclid(1000));
        // Writing into a string does not fail.
        let _ = write!(result, "{}<{millis}.{rest:03}ms>", &text[at..place]);
        at = place + 16;
    }
    result.push_str(&text[at..]);
    for (long, short) in aliases {
        result = result.replace(long, short);
    }
    result
}

/// The name of a process in a story.
pub(crate) fn name(process: usize) -> char {
    char::from(b'A'.saturating_add(u8::try_from(process).unwrap_or(25)))
}

impl<P: Process> World<P> {
    /// Returns the processes that run.
    pub fn running(&self) -> impl Iterator<Item = &P> {
        let running = |node: &&Arc<Node<P>>| node.life == Life::Running;
        self.nodes.iter().filter(running).map(|node| &node.process)
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

    /// Returns whether no user can do anything any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.running().all(|process| process.ops().is_empty())
    }

    /// Returns the steps from this state, in a fixed order. Steps without a fault come first, so that stories are short.
    #[must_use]
    pub fn steps(&self) -> Vec<Step<P::Op>> {
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
    fn network_steps(&self) -> Vec<Step<P::Op>> {
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

    /// Returns the next time at which a timer fires or a key has ended.
    fn next_deadline(&self) -> Option<Micros> {
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
    pub fn apply(&mut self, runner: &mut Runner, step: &Step<P::Op>) {
        self.violation = None;
        match step {
            Step::Execute(i) => self.execute(runner, *i),
            Step::Answer(i) => {
                let answer = self.answers.remove(*i);
                let Answer {
                    process, request, ..
                } = *answer;
                runner.tell(|| match &answer.reply {
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
                    runner.tell(|| "FAULT: the next message will arrive twice".to_owned());
                    self.receive(runner, *i, first);
                }
            }
            Step::Timer(i) => {
                self.node(*i).timer = None;
                runner.tell(|| format!("the timer of {} fires", name(*i)));
                self.input(runner, *i, Input::Timer);
            }
            Step::User(i, op) => {
                runner.tell(|| format!("the user of {}: {op:?}", name(*i)));
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
                runner.tell(|| {
                    let whose = name(process);
                    format!("FAULT: a connection of {whose} breaks, its request stays in flight")
                });
                self.answers.push(Arc::new(Answer {
                    process,
                    request,
                    reply: None,
                }));
            }
            Step::Vanish(i) => {
                let request = self.requests.remove(*i);
                let whose = name(request.process);
                runner.tell(|| format!("a request of {whose} never arrives"));
            }
            Step::LoseAnswer(i) => {
                self.faults.replies -= 1;
                let answer = Arc::make_mut(&mut self.answers[*i]);
                answer.reply = None;
                let whose = name(answer.process);
                runner.tell(|| format!("FAULT: a reply to {whose} is lost with its connection"));
            }
            Step::LoseMessage(i) => {
                self.faults.messages -= 1;
                let lost = self.node(*i).inbox.pop_front();
                runner.tell(|| format!("FAULT: a message to {} is lost: {lost:?}", name(*i)));
            }
            Step::Cut(i) => {
                self.faults.cuts -= 1;
                runner.tell(|| format!("FAULT: the subscriptions of {} are cut", name(*i)));
                self.disconnect(runner, *i);
                self.node(*i).inbox = [Incoming::Disconnected].into();
            }
            Step::Kill(i) => {
                self.faults.kills -= 1;
                runner.tell(|| format!("FAULT: {} is killed", name(*i)));
                self.disconnect(runner, *i);
                self.end(*i, Life::Killed);
            }
            Step::Stop(i) => {
                self.faults.stops -= 1;
                runner.tell(|| format!("FAULT: {} stops", name(*i)));
                self.end(*i, Life::Stopped);
            }
            _ => {}
        }
    }

    /// Lets time pass without a fault and without the users, until `millis` have passed.
    pub fn settle(&mut self, runner: &mut Runner, millis: u64) {
        let until = self.now + millis * 1000;
        // A bound, should two processes send requests to each other without an end.
        for _ in 0..1_000 {
            if let Some(step) = self.network_steps().first() {
                self.apply(runner, step);
            } else if self.next_deadline().is_some_and(|at| at <= until) {
                self.advance(runner);
            } else {
                return;
            }
        }
        self.violation = Some("the network does not become quiet".to_owned());
    }

    fn node(&mut self, process: usize) -> &mut Node<P> {
        Arc::make_mut(&mut self.nodes[process])
    }

    fn receive(&mut self, runner: &mut Runner, process: usize, incoming: Incoming) {
        runner.tell(|| match &incoming {
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
                    runner.tell(|| format!("  {} sends {}", name(process), call_text(&call)));
                    (request, Action::Call(call))
                }
                Output::Subscribe(channel) => {
                    runner.tell(|| format!("  {} subscribes", name(process)));
                    (0, Action::Subscribe(channel))
                }
                Output::Unsubscribe(channel) => {
                    runner.tell(|| format!("  {} ends its subscription", name(process)));
                    (0, Action::Unsubscribe(channel))
                }
                Output::Timer(at) => {
                    self.node(process).timer = at;
                    continue;
                }
                Output::Granted { token } => {
                    runner.tell(|| format!("  {} holds, with token {token}", name(process)));
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
                runner.tell(|| format!("the server subscribes {}", name(process)));
                runner.server.subscribe(connection, channel.as_bytes());
                let confirmed = Incoming::Subscribed(channel.clone());
                self.node(process).inbox.push_back(confirmed);
            }
            Action::Unsubscribe(channel) => {
                runner.server.unsubscribe(connection, channel.as_bytes());
            }
            Action::Call(call) => {
                let reply = runner.execute(call);
                runner.tell(|| {
                    let whose = name(process);
                    let reply = text(&reply);
                    format!("the server runs {} of {whose}: {reply}", call_text(call))
                });
                // A script that fails is a mistake of the configuration or of the script.
                if let Reply::Error(error) = &reply {
                    self.violation = Some(format!("{} failed: {error}", call.script));
                }
                for message in runner.server.take_messages() {
                    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                    let to = usize::try_from(message.connection).unwrap_or_default();
                    let (channel, payload) = (text(message.channel), text(message.payload));
                    runner.tell(|| format!("  it sends \"{payload}\" to {}", name(to)));
                    // A stopped process reads nothing any more.
                    if self.nodes[to].life == Life::Running {
                        let message = Incoming::Message(channel, payload);
                        self.node(to).inbox.push_back(message);
                    }
                }
                let read = match P::reads(call, reply) {
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
        runner.tell(|| format!("{passed} ms pass"));
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

    /// Returns the identity of this state. `buffer` is room for its text.
    pub(crate) fn identity(&self, buffer: &mut Vec<u8>) -> u128 {
        buffer.clear();
        self.server.canonical(buffer);
        // Writing into a vector does not fail.
        let _ = write!(
            buffer,
            "{}|{}|{:?}{}",
            self.now, self.last_token, self.faults, self.deadlines
        );
        for node in &self.nodes {
            if node.life == Life::Running {
                let _ = write!(buffer, "|{node:?}");
            } else {
                // What a process that has ended knew makes no difference.
                let _ = write!(buffer, "|{:?}", node.life);
            }
        }
        let mut requests: Vec<_> = self.requests.iter().collect();
        // Stable: subscriptions of one process stay in order.
        requests.sort_by_key(|r| (r.process, r.request, r.orphan));
        for request in requests {
            let _ = write!(buffer, "|{request:?}");
        }
        let mut answers: Vec<_> = self.answers.iter().collect();
        answers.sort_by_key(|a| (a.process, a.request));
        for answer in answers {
            let _ = write!(buffer, "|{answer:?}");
        }
        hash(buffer, self.now)
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Array(items) => {
            let items: Vec<_> = items.iter().map(text).collect();
            format!("[{}]", items.join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn call_text(call: &Call) -> String {
    format!("{}({})", call.script, call.args.join(", "))
}

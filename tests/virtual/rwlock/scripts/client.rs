//! Simulates clients that follow the protocol over an unreliable network, and checks their state.
//!
//! Long: one simulation, used as a whole.

use std::time::Duration;

use stanchion::embedded::Engine;

use super::java;
use super::server::{Op, Server};

const LEASES: [u64; 3] = [1_000, 3_000, 10_000];

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Acquiring,
    Held,
    /// The same request is resent until a reply arrives.
    Reentering,
    Releasing,
    Downgrading {
        to: String,
    },
    /// The client gives up: it sends releases until a reply arrives, and one more when no request can be in flight.
    Ending {
        began: u64,
        answered: bool,
    },
    Over,
}

/// One hold of one owner, as its client knows it.
#[derive(Clone, Debug)]
struct Client {
    owner: String,
    writes: bool,
    /// For a nested read: the owner that writes.
    within: Option<String>,
    lease: u64,
    n: u64,
    state: State,
    /// In ms.
    valid_until: u64,
    /// In ms. No unanswered request can grant after this time.
    unanswered_until: u64,
}

impl Client {
    fn field(&self) -> String {
        if self.writes {
            format!("{}:write", self.owner)
        } else {
            self.owner.clone()
        }
    }

    fn is_valid(&self, ms: u64) -> bool {
        matches!(
            self.state,
            State::Held | State::Reentering | State::Releasing
        ) && ms <= self.valid_until
    }

    /// Gives up as the core does: abandons repeatedly.
    fn give_up(&mut self, ms: u64) {
        self.state = State::Ending {
            began: ms,
            answered: false,
        };
    }
}

/// A Redisson thread: its hold counts, and the latest end of its holds.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    reads: u64,
    writes: u64,
    valid_until: u64,
}

pub(super) struct Sim {
    server: Server,
    rng: fastrand::Rng,
    clients: Vec<Client>,
    threads: [Thread; 2],
    delayed: Vec<Op>,
    next: u64,
    last_token: i64,
}

impl Sim {
    pub(super) fn new(engine: Engine, seed: u64) -> Self {
        Self {
            server: Server::new(engine, if seed.is_multiple_of(2) { "R" } else { "r" }),
            rng: fastrand::Rng::with_seed(seed),
            clients: Vec::new(),
            threads: Default::default(),
            delayed: Vec::new(),
            next: 0,
            last_token: 0,
        }
    }

    /// Returns the number of scripts that have run.
    pub(super) async fn run(mut self, steps: usize) -> usize {
        for _ in 0..steps {
            self.step().await;
            self.check();
        }
        self.drain().await;
        self.server.scripts
    }

    fn ms(&self) -> u64 {
        self.server.now() / 1000
    }

    fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(..choices.len())]
    }

    /// Sends over the unreliable network. `None` means that no reply arrived.
    fn send(&mut self, op: Op) -> Option<i64> {
        match self.rng.u8(..20) {
            0..14 => Some(self.server.run(&op)),
            14..17 => {
                self.server.run(&op);
                None
            }
            _ => {
                self.delayed.push(op);
                None
            }
        }
    }

    async fn step(&mut self) {
        match self.rng.u8(..100) {
            0..25 => {
                let pause = self.choose(&[0, 1, 5, 100, 400, 1_000, 1_001, 3_000]);
                tokio::time::advance(Duration::from_millis(pause)).await;
            }
            25..33 if !self.delayed.is_empty() => {
                let at = self.rng.usize(..self.delayed.len());
                // Some arrive twice.
                let op = if self.rng.u8(..4) == 0 {
                    self.delayed[at].clone()
                } else {
                    self.delayed.swap_remove(at)
                };
                self.server.run(&op);
            }
            33..46 => self.java(),
            46..56 if self.living() < 9 => self.begin(None),
            _ => {
                let ms = self.ms();
                let able: Vec<usize> = (0..self.clients.len())
                    .filter(|i| {
                        let client = &self.clients[*i];
                        let waits = matches!(client.state, State::Ending { answered: true, .. })
                            && ms <= client.unanswered_until;
                        client.state != State::Over && !waits
                    })
                    .collect();
                if !able.is_empty() {
                    let chosen = self.choose(&able);
                    self.act(chosen);
                }
            }
        }
    }

    fn living(&self) -> usize {
        self.clients
            .iter()
            .filter(|client| client.state != State::Over)
            .count()
    }

    fn begin(&mut self, within: Option<String>) {
        self.next += 1;
        let client = Client {
            owner: format!("a:{}", self.next),
            writes: within.is_none() && self.rng.u8(..3) == 0,
            within,
            lease: self.choose(&LEASES),
            n: 0,
            state: State::Acquiring,
            valid_until: 0,
            unanswered_until: 0,
        };
        self.clients.push(client);
    }

    fn act(&mut self, at: usize) {
        let ms = self.ms();
        let mut client = self.clients[at].clone();
        match client.state.clone() {
            State::Acquiring => self.acquire(&mut client),
            State::Held if ms > client.valid_until => client.give_up(ms),
            State::Held => self.use_hold(&mut client),
            State::Reentering => self.reenter(&mut client),
            State::Releasing => self.release(&mut client),
            State::Downgrading { to } => self.downgrade(&mut client, to),
            State::Ending { began, answered } => self.end(&mut client, began, answered),
            State::Over => {}
        }
        self.clients[at] = client;
    }

    fn not_after(&mut self) -> u64 {
        self.server.now() + 1000 * self.choose(&[500, 2_000, 20_000])
    }

    fn valid(&self, client: &Client, sent: u64) -> u64 {
        let margin = (client.lease / 100).max(2);
        client.valid_until.max(sent + client.lease - margin)
    }

    fn acquire(&mut self, client: &mut Client) {
        let sent = self.ms();
        if self.rng.u8(..10) == 0 {
            return client.give_up(sent);
        }
        let (lease, not_after) = (client.lease, self.not_after());
        let op = if client.writes {
            Op::WriteAcquire {
                field: client.field(),
                lease,
                not_after,
            }
        } else {
            let within = client.within.as_ref();
            Op::ReadAcquire {
                owner: client.owner.clone(),
                lease,
                not_after,
                within: within
                    .map(|owner| format!("{owner}:write"))
                    .unwrap_or_default(),
            }
        };
        match self.send(op) {
            None => client.unanswered_until = client.unanswered_until.max(not_after / 1000 + 1),
            Some(token) if token >= 0 => {
                if client.writes {
                    assert!(token > self.last_token, "P2");
                    self.last_token = token;
                }
                client.n = 1;
                client.state = State::Held;
                client.valid_until = self.valid(client, sent);
            }
            Some(_) => {}
        }
    }

    fn use_hold(&mut self, client: &mut Client) {
        let sent = self.ms();
        match self.rng.u8(..20) {
            0..4 => {
                // Harder than in production, where all requests of a hold use one lease.
                client.lease = self.choose(&LEASES);
                let (lease, not_after) = (client.lease, self.not_after());
                let op = if client.writes {
                    Op::WriteRenew {
                        field: client.field(),
                        lease,
                        not_after,
                    }
                } else {
                    Op::ReadRenew {
                        owner: client.owner.clone(),
                        lease,
                        not_after,
                    }
                };
                match self.send(op) {
                    Some(1) => client.valid_until = self.valid(client, sent),
                    Some(0) => client.give_up(sent),
                    _ => {}
                }
            }
            4..7 => client.state = State::Reentering,
            7..10 if client.writes => self.begin(Some(client.owner.clone())),
            10..12 if client.writes && client.n == 1 => {
                self.next += 1;
                let to = format!("a:{}", self.next);
                client.state = State::Downgrading { to };
            }
            12..16 if client.n > 1 => client.state = State::Releasing,
            16..19 => client.give_up(sent),
            _ => {}
        }
    }

    fn reenter(&mut self, client: &mut Client) {
        let sent = self.ms();
        let (lease, not_after, n) = (client.lease, self.not_after(), client.n);
        let op = if client.writes {
            Op::WriteReenter {
                field: client.field(),
                lease,
                not_after,
                n,
            }
        } else {
            Op::ReadReenter {
                owner: client.owner.clone(),
                lease,
                not_after,
                n,
            }
        };
        match self.send(op) {
            Some(0) => {
                client.n += 1;
                client.state = State::Held;
                client.valid_until = self.valid(client, sent);
            }
            Some(-2) => client.give_up(sent),
            _ => {}
        }
    }

    fn release(&mut self, client: &mut Client) {
        let (lease, n) = (client.lease, client.n);
        let op = if client.writes {
            Op::WriteRelease {
                field: client.field(),
                n,
                lease,
            }
        } else {
            Op::ReadRelease {
                owner: client.owner.clone(),
                n,
                lease,
                quits: false,
            }
        };
        match self.send(op) {
            Some(0) => {
                client.n -= 1;
                client.state = State::Held;
            }
            Some(-2) => client.give_up(self.ms()),
            _ => {}
        }
    }

    fn downgrade(&mut self, client: &mut Client, to: String) {
        let sent = self.ms();
        let (lease, not_after) = (client.lease, self.not_after());
        let op = Op::Downgrade {
            field: client.field(),
            owner: to.clone(),
            lease,
            not_after,
        };
        let mut reader = Client {
            owner: to,
            writes: false,
            within: None,
            n: 1,
            state: State::Held,
            valid_until: 0,
            ..client.clone()
        };
        reader.valid_until = self.valid(&reader, sent);
        match self.send(op) {
            Some(0) => {
                // R2: an acquire of the writer may still be in flight. Other copies of this downgrade find no writer.
                client.state = if sent <= client.unanswered_until {
                    State::Ending {
                        began: 0,
                        answered: true,
                    }
                } else {
                    State::Over
                };
                self.clients.push(reader);
            }
            Some(-2) => {
                reader.give_up(sent);
                self.clients.push(reader);
                client.give_up(sent);
            }
            Some(_) => {}
            None => client.unanswered_until = client.unanswered_until.max(not_after / 1000 + 1),
        }
    }

    fn end(&mut self, client: &mut Client, began: u64, answered: bool) {
        if answered {
            // R2: no request that can grant is in flight any more; this release is final.
            client.unanswered_until = 0;
        }
        let op = if client.writes {
            Op::WriteAbandon {
                field: client.field(),
            }
        } else {
            Op::ReadRelease {
                owner: client.owner.clone(),
                n: 1,
                lease: client.lease,
                quits: true,
            }
        };
        if self.send(op).is_some() {
            client.state = if client.unanswered_until >= began && client.unanswered_until > 0 {
                State::Ending {
                    began,
                    answered: true,
                }
            } else {
                State::Over
            };
        }
    }

    fn java(&mut self) {
        let ms = self.ms();
        let at = self.rng.usize(..self.threads.len());
        let owner = format!("J:{at}");
        let mut thread = self.threads[at];
        let lease = self.choose(&LEASES);
        let known = self.server.table.count(&owner).is_some()
            || self.server.table.count(&format!("{owner}:write")).is_some();
        if ms > thread.valid_until && !known {
            thread = Thread::default();
        }
        let holds = thread.reads + thread.writes > 0;
        match self.rng.u8(..10) {
            0..5 if holds => {
                if thread.reads > 0 && (thread.writes == 0 || self.rng.bool()) {
                    match self.server.run(&Op::JavaUnread { owner }) {
                        -2 => thread.reads = 0,
                        _ => thread.reads -= 1,
                    }
                } else if thread.writes > 0 {
                    match self.server.run(&Op::JavaUnwrite {
                        owner,
                        lease: 1_000,
                    }) {
                        -2 => thread.writes = 0,
                        _ => thread.writes -= 1,
                    }
                }
                // Redisson's scripts may shorten the thread's own lease. The simulation does not model by how much.
                thread.valid_until = thread.valid_until.min(ms);
            }
            5..6 if thread.reads > 0 => {
                self.server.run(&Op::JavaRenewRead {
                    owner,
                    lease: 10_000,
                });
            }
            6..9 => {
                let granted = self.server.run(&Op::JavaRead { owner, lease }) == java::GRANTED;
                let end = if holds { thread.valid_until } else { u64::MAX };
                if granted {
                    thread.valid_until = end.min(ms + lease);
                    thread.reads += 1;
                }
            }
            _ if thread.reads == 0 => {
                let granted = self.server.run(&Op::JavaWrite { owner, lease }) == java::GRANTED;
                if granted {
                    thread.valid_until = if holds {
                        thread.valid_until
                    } else {
                        ms + lease
                    };
                    thread.writes += 1;
                }
            }
            _ => {}
        }
        self.threads[at] = thread;
    }

    fn check(&mut self) {
        let ms = self.ms();
        self.server.table.tick(ms);
        let mut writers: Vec<String> = Vec::new();
        let mut readers: Vec<Option<String>> = Vec::new();
        for client in &self.clients {
            if client.is_valid(ms) {
                if client.writes {
                    writers.push(client.owner.clone());
                } else {
                    readers.push(client.within.clone());
                }
                let known = self.server.table.count(&client.field()).is_some();
                assert!(
                    known,
                    "the server does not know the valid hold {client:?}\n{}",
                    self.server.tail()
                );
            }
        }
        for (at, thread) in self.threads.iter().enumerate() {
            if ms < thread.valid_until {
                let owner = format!("J:{at}");
                if thread.writes > 0 {
                    writers.push(owner.clone());
                }
                if thread.reads > 0 {
                    readers.push(Some(owner));
                }
            }
        }
        assert!(
            writers.len() <= 1,
            "P1: {writers:?} write\n{}",
            self.server.tail()
        );
        if let Some(writer) = writers.first() {
            let others = readers
                .iter()
                .filter(|within| within.as_ref() != Some(writer));
            assert_eq!(
                others.count(),
                0,
                "P1: readers hold next to the writer {writer}\n{}",
                self.server.tail()
            );
        }
        for (field, _) in &self.server.table.fields {
            let ours = field.starts_with("a:");
            let alive = self.clients.iter().any(|client| {
                let to = match &client.state {
                    State::Downgrading { to } => Some(to),
                    _ => None,
                };
                client.state != State::Over && (client.field() == *field || to == Some(field))
            });
            assert!(
                !ours || alive,
                "P3: no client owns {field}\n{}",
                self.server.tail()
            );
        }
    }

    /// All clients give up, and all delayed requests arrive. After that, no hold is left.
    async fn drain(&mut self) {
        for _ in 0..400 {
            while let Some(op) = self.delayed.pop() {
                self.server.run(&op);
                self.check();
            }
            tokio::time::advance(Duration::from_millis(2_500)).await;
            let ms = self.ms();
            let living: Vec<usize> = (0..self.clients.len())
                .filter(|i| self.clients[*i].state != State::Over)
                .collect();
            for at in &living {
                let client = &mut self.clients[*at];
                match client.state {
                    State::Ending { .. } => {}
                    State::Downgrading { .. } => {}
                    _ => client.give_up(ms),
                }
                self.act(*at);
            }
            if living.is_empty() {
                break;
            }
        }
        assert_eq!(self.living(), 0);
        tokio::time::advance(Duration::from_secs(60)).await;
        let ms = self.ms();
        self.server.table.tick(ms);
        assert_eq!(
            (self.server.table.mode, self.server.table.holds.len()),
            (None, 0)
        );
    }
}

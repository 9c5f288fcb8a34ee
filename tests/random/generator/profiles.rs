//! The profiles: each draws programs of one kind, so that a limited budget reaches deep.
//!
//! Long: one table, or one case for each step.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::Union;

use crate::generator::draws::{
    SLOTS, barrier_targets, call_options, campaigns, deadlock_options, fault, javas, jobs, leased,
    limiters, locks, manages, multi, options_at_barrier, options_with_rest, passes, permits,
    polled, polled_at_barrier, readers, resends, role_verbs, select, several, ticket_targets,
    verbs,
};
use crate::generator::fault::Fault;
use crate::generator::program::{CallOptions, ClientSpec, Step, Target, WakeMode, World};

/// A kind of program: its world, the weights of its steps, and the strategies for their parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) servers: (u8, u8),
    pub(crate) databases: u8,
    pub(crate) clients: (u8, u8),
    pub(crate) length: (usize, usize),
    /// The relative frequency of each kind of step, where it is not that of [`USUAL`].
    pub(crate) weights: &'static str,
    /// So many of ten acquires have a shared owner.
    pub(crate) owners: u32,
    /// So many of ten pauses last for many seconds.
    pub(crate) long: u32,
    /// About so many of ten calls are polled once and then kept.
    pub(crate) parked: u32,
    pub(crate) targets: fn(u8) -> BoxedStrategy<Target>,
    pub(crate) fault: fn() -> BoxedStrategy<Fault>,
    pub(crate) kind: Kind,
}

/// The usual weights, without faults. The weight of other steps is 0.
const USUAL: &str = "take 30, verb 26, pass 14, manage 2, shutdown 1, drop_client 1";

/// The primitives that management calls and Java steps change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Locks,
    Permits,
    Leased,
    Latches,
    All,
    /// Elections, jobs, limiters, tickets.
    Roles,
    Limiters,
    /// Owners that wait for each other.
    Deadlocks,
    Barriers,
    /// Latches with an idle expiry.
    Idle,
}

/// Clients of one server.
const BASE: Profile = Profile {
    name: "locks",
    servers: (1, 1),
    databases: 1,
    clients: (1, 3),
    length: (3, 24),
    weights: "",
    owners: 3,
    long: 1,
    parked: 1,
    targets: |_| locks(),
    fault,
    kind: Kind::Locks,
};

const ELECTIONS: Profile = Profile {
    name: "elections",
    clients: (2, 4),
    length: (4, 22),
    weights: "kill 1, work 8, observe 3, partition 6",
    owners: 0,
    targets: |_| campaigns(),
    kind: Kind::Roles,
    ..BASE
};

pub(crate) const PROFILES: &[Profile] = &[
    BASE,
    Profile {
        name: "servers",
        servers: (2, 3),
        databases: 2,
        clients: (3, 5),
        length: (3, 20),
        owners: 5,
        targets: several,
        ..BASE
    },
    Profile {
        name: "multilocks",
        servers: (1, 2),
        clients: (2, 3),
        length: (3, 20),
        weights: "manage 5, fault 2, suspend 3, java 2",
        owners: 2,
        long: 2,
        targets: |clients| prop_oneof![2 => multi(clients), 1 => locks()].boxed(),
        ..BASE
    },
    Profile {
        name: "readers",
        clients: (1, 4),
        length: (3, 26),
        weights: "kill 1, worker 2",
        targets: |_| readers(),
        ..BASE
    },
    Profile {
        name: "queues",
        clients: (2, 5),
        weights: "kill 2, worker 1, fault 2",
        owners: 1,
        long: 2,
        targets: |_| select(&[Target::Fair("x"), Target::Fair("y")]),
        ..BASE
    },
    Profile {
        name: "permits",
        clients: (2, 3),
        length: (4, 22),
        weights: "manage 8, worker 8, kill 2, java 4",
        owners: 0,
        long: 2,
        targets: |_| permits(),
        kind: Kind::Permits,
        ..BASE
    },
    Profile {
        name: "leased",
        clients: (2, 3),
        length: (4, 22),
        weights: "manage 7, worker 5, kill 2, fault 3",
        owners: 0,
        long: 2,
        targets: |_| leased(),
        kind: Kind::Leased,
        ..BASE
    },
    Profile {
        name: "latches",
        length: (6, 30),
        weights: "take 24, verb 18, manage 36, fault 12, java 2",
        owners: 0,
        parked: 4,
        targets: |_| select(&[Target::Latch("l"), Target::Latch("m")]),
        fault: || prop_oneof![2 => resends(), 1 => fault()].boxed(),
        kind: Kind::Latches,
        ..BASE
    },
    Profile {
        name: "storms",
        length: (5, 30),
        weights: "fault 14, freeze 5, suspend 1, stall 1, shutdown 2, kill 1",
        owners: 2,
        long: 4,
        targets: |_| prop_oneof![4 => locks(), 2 => readers(), 1 => leased()].boxed(),
        kind: Kind::All,
        ..BASE
    },
    Profile {
        name: "shutdowns",
        length: (3, 18),
        weights: "shutdown 8, drop_client 3, freeze 4, fault 3, connect 2",
        owners: 1,
        targets: |_| {
            prop_oneof![4 => locks(), 2 => readers(), 1 => permits(), 1 => leased()].boxed()
        },
        kind: Kind::All,
        ..BASE
    },
    Profile {
        name: "blackouts",
        clients: (1, 2),
        length: (4, 16),
        weights: "fault 16, freeze 2, pass 18",
        owners: 1,
        long: 4,
        targets: |_| {
            select(&[
                Target::Lock("x"),
                Target::Lock("x"),
                Target::Write("r"),
                Target::Read("r"),
                Target::Fair("f"),
            ])
        },
        fault: || {
            prop_oneof![
                4 => Just(Fault::Frozen), 4 => Just(Fault::Thawed), 1 => Just(Fault::Refused),
                1 => Just(Fault::Accepted), 1 => Just(Fault::Cut), 2 => Just(Fault::Cleared)
            ]
            .boxed()
        },
        ..BASE
    },
    Profile {
        name: "duplicates",
        clients: (1, 2),
        length: (4, 16),
        weights: "fault 20, verb 30",
        owners: 1,
        long: 0,
        targets: |_| {
            select(&[
                Target::Lock("x"),
                Target::Lock("x"),
                Target::Write("r"),
                Target::Read("r"),
                Target::Fair("f"),
                Target::Leased("p", 1),
                Target::Permits("s", 1),
            ])
        },
        fault: resends,
        kind: Kind::All,
        ..BASE
    },
    Profile {
        name: "quorums",
        servers: (3, 3),
        clients: (3, 4),
        length: (3, 18),
        weights: "fault 5, freeze 3, suspend 3, kill 1",
        owners: 0,
        long: 2,
        targets: |_| {
            select(&[
                Target::Red("x"),
                Target::Red("x"),
                Target::Red("y"),
                Target::Lock("x"),
            ])
        },
        ..BASE
    },
    Profile {
        name: "turns",
        clients: (2, 4),
        length: (3, 10),
        weights: "take 10, worker 20, pass 10, verb 4",
        owners: 0,
        long: 6,
        targets: |clients| {
            let pair = (0..clients).prop_map(|client| {
                Target::Multi(vec![
                    (client, Target::Lock("x")),
                    (client, Target::Lock("y")),
                ])
            });
            prop_oneof![
                5 => select(&[Target::WriterFirstRead("q"), Target::WriterFirstWrite("q"), Target::WriterFirstWrite("q")]),
                3 => select(&[Target::Lock("x"), Target::Lock("y")]),
                2 => pair,
                1 => readers(), 1 => locks()
            ]
            .boxed()
        },
        ..BASE
    },
    Profile {
        name: "deaths",
        clients: (2, 3),
        length: (3, 14),
        weights: "kill_group 3, kill 4, fault 1",
        owners: 0,
        long: 3,
        targets: |_| {
            prop_oneof![4 => select(&[Target::Fair("x")]), 2 => readers(), 1 => leased(), 1 => locks()].boxed()
        },
        kind: Kind::All,
        ..BASE
    },
    Profile {
        name: "everything",
        servers: (1, 3),
        databases: 2,
        clients: (2, 5),
        length: (5, 34),
        weights: "manage 6, worker 2, connect 1, kill 1, fault 5, freeze 2, suspend 1, stall 1, java 2",
        owners: 2,
        long: 2,
        targets: |clients| {
            prop_oneof![
                4 => locks(), 3 => readers(), 2 => multi(clients), 2 => permits(), 2 => leased(),
                2 => select(&[Target::Latch("l"), Target::Fair("x"), Target::Fair("{y}")]),
                1 => select(&[Target::Red("x")])
            ]
            .boxed()
        },
        kind: Kind::All,
        ..BASE
    },
    ELECTIONS,
    Profile {
        name: "jobs",
        weights: "kill 1, work 10, java 1",
        targets: |_| jobs(),
        ..ELECTIONS
    },
    Profile {
        name: "limiters",
        weights: "manage 3, kill 1, worker 3",
        targets: |_| limiters(),
        kind: Kind::Limiters,
        ..ELECTIONS
    },
    Profile {
        name: "tickets",
        weights: "manage 1, kill 4, adopt 10",
        owners: 1,
        targets: |_| ticket_targets(),
        ..ELECTIONS
    },
    Profile {
        name: "tangles",
        weights: "take 40, verb 3, pass 8, shutdown 0, drop_client 0, manage 0",
        length: (4, 11),
        long: 7,
        targets: |_| {
            select(&[
                Target::Lock("x"),
                Target::Lock("x"),
                Target::Lock("y"),
                Target::Lock("y"),
                Target::Fair("f"),
            ])
        },
        kind: Kind::Deadlocks,
        ..ELECTIONS
    },
    Profile {
        name: "gales",
        servers: (1, 2),
        weights: "manage 3, kill 2, work 6, observe 2, adopt 5, worker 1, fault 12, freeze 4, suspend 1, stall 1, shutdown 2, java 1",
        long: 3,
        targets: |_| {
            prop_oneof![2 => campaigns(), 2 => jobs(), 2 => limiters(), 2 => ticket_targets(), 1 => locks()].boxed()
        },
        ..ELECTIONS
    },
    Profile {
        name: "meetings",
        weights: "take 40, verb 20, manage 3, worker 2, kill 1",
        targets: |_| barrier_targets(),
        kind: Kind::Barriers,
        ..ELECTIONS
    },
    Profile {
        name: "musters",
        servers: (1, 2),
        weights: "take 40, verb 16, manage 3, worker 2, kill 2, fault 12, freeze 4, suspend 1, stall 2, shutdown 2",
        long: 3,
        targets: |_| prop_oneof![6 => barrier_targets(), 1 => locks()].boxed(),
        fault,
        kind: Kind::Barriers,
        ..ELECTIONS
    },
    Profile {
        name: "partitions",
        clients: (4, 4),
        length: (12, 36),
        weights: "take 36, verb 4, pass 26, fault 3, partition 14, observe 2",
        targets: |_| {
            select(&[
                Target::Barrier("x", 2, false),
                Target::Barrier("x", 2, false),
                Target::Barrier("x", 2, false),
                Target::DoubleBarrier("x", 2),
                Target::Leader("x", 0),
            ])
        },
        long: 2,
        fault: resends,
        kind: Kind::Barriers,
        ..ELECTIONS
    },
    Profile {
        name: "idle",
        weights: "manage 24, kill 1, fault 2, java 1",
        long: 5,
        targets: |_| select(&[Target::Latch("l"), Target::Latch("l"), Target::Latch("m")]),
        kind: Kind::Idle,
        ..ELECTIONS
    },
];

impl Profile {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The world of a seed.
    pub(crate) fn world(&self, seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x57a9_c410);
        let servers = rng.u8(self.servers.0..=self.servers.1);
        let count = rng.u8(self.clients.0..=self.clients.1).max(servers);
        let clients = (0..count)
            .map(|number| ClientSpec {
                // Every server has a client.
                server: if number < servers {
                    number
                } else {
                    rng.u8(..servers)
                },
                database: rng.u8(..self.databases),
                wake_mode: if rng.u8(..8) == 0 {
                    WakeMode::Polls
                } else {
                    WakeMode::Messages
                },
            })
            .collect();
        World {
            servers,
            latency: [0, 0, 1, 5][rng.usize(..4)],
            clients,
        }
    }

    /// The strategy for the steps of programs in `world`.
    pub(crate) fn steps(&self, world: &World) -> BoxedStrategy<Vec<Step>> {
        let clients = u8::try_from(world.clients.len()).unwrap_or(1);
        let servers = world.servers;
        let target = (self.targets)(clients);
        let client = || 0..clients;
        let for_deadlocks = self.kind == Kind::Deadlocks;
        let opts = match self.kind {
            Kind::Roles | Kind::Limiters => options_with_rest(self.owners),
            Kind::Deadlocks => deadlock_options(),
            Kind::Barriers => options_at_barrier(),
            _ => call_options(self.owners),
        };
        let polled = || match self.kind {
            Kind::Barriers => polled_at_barrier(self.parked),
            _ => polled(self.parked),
        };
        let verb = match self.kind {
            Kind::Roles | Kind::Limiters => role_verbs(self.parked),
            _ => verbs(self.parked),
        };
        // Many slots, so that a `Take` seldom drops another guard: a deadlock needs several holds.
        let slots = 0..if for_deadlocks { 3 * SLOTS } else { SLOTS };
        let mut kinds = Kinds::of(self.weights);
        kinds.add("pass", passes(self.long), Step::Pass);
        let parts = (slots, client(), target.clone(), opts, polled());
        kinds.add(
            "take",
            parts,
            move |(slot, client, target, opts, polled)| Step::Take {
                slot,
                // Mostly each owner uses one client, because only then other clients see the waits of the owner.
                client: match opts.owner {
                    Some(owner) if for_deadlocks && slot % 4 > 0 => owner % clients,
                    _ => client,
                },
                target,
                opts,
                polled,
            },
        );
        kinds.add("verb", (0..SLOTS, verb), |(slot, verb)| {
            Step::Use(slot, verb)
        });
        let parts = (client(), manages(self.kind, target.clone()));
        kinds.add("manage", parts, |(client, it)| Step::Manage(client, it));
        let times = prop_oneof![3 => 0..12_u8, 1 => 12..80_u8];
        let parts = (
            client(),
            target.clone(),
            20..2_000_u16,
            times.clone(),
            times,
        );
        kinds.add("worker", parts, |(client, target, rounds, hold, pause)| {
            Step::Worker {
                client,
                target,
                opts: CallOptions::default(),
                rounds,
                hold,
                pause,
            }
        });
        let parts = (0..servers, 0..self.databases);
        kinds.add("connect", parts, |(server, database)| {
            Step::Connect(ClientSpec {
                server,
                database,
                wake_mode: WakeMode::Messages,
            })
        });
        let parts = (client(), prop_oneof![Just(0_u16), 1..3_000_u16]);
        kinds.add("shutdown", parts, |(client, grace)| {
            Step::Shutdown(client, grace)
        });
        kinds.add("drop_client", client(), Step::DropClient);
        kinds.add("kill", client(), Step::Kill);
        let parts = (client(), 2..120_u8, target.clone(), 0..3_000_u16);
        kinds.add("kill_group", parts, |(client, processes, target, live)| {
            Step::KillGroup {
                client,
                processes,
                target,
                live,
            }
        });
        let parts = (0..servers, (self.fault)());
        kinds.add("fault", parts, |(server, fault)| Step::Fault(server, fault));
        kinds.add("freeze", client(), Step::Freeze);
        kinds.add("freeze", client(), Step::Thaw);
        let parts = (client(), 300..5_000_u16);
        kinds.add("partition", parts, |(client, millis)| {
            Step::Partition(client, millis)
        });
        kinds.add("suspend", 100..20_000_u16, Step::Suspend);
        kinds.add("stall", 10..5_000_u16, Step::Stall);
        let parts = (0..servers, javas(self.kind));
        kinds.add("java", parts, |(server, java)| Step::Java(server, java));
        let parts = (0..SLOTS, client(), 0..2_u8, call_options(0), polled());
        kinds.add("adopt", parts, |(slot, client, ticket, opts, polled)| {
            Step::Adopt {
                slot,
                client,
                ticket,
                opts,
                polled,
            }
        });
        let parts = (0..SLOTS, client(), target, 10..9_000_u16, polled());
        kinds.add("work", parts, |(slot, client, target, work, polled)| {
            Step::Work {
                slot,
                client,
                target,
                work,
                polled,
            }
        });
        let parts = (client(), proptest::sample::select(vec!["x", "{x}"]));
        kinds.add("observe", parts, |(client, name)| {
            Step::Observe(client, name)
        });
        let length = self.length.0..=self.length.1;
        proptest::collection::vec(kinds.union(), length).boxed()
    }
}

/// The kinds of steps, with their weights.
struct Kinds {
    weights: BTreeMap<&'static str, u32>,
    seen: Vec<&'static str>,
    all: Vec<(u32, BoxedStrategy<Step>)>,
}

impl Kinds {
    /// Reads `step weight, …`. The weight of a step that is not named is the usual one.
    fn of(weights: &'static str) -> Self {
        let parts = USUAL.split(", ").chain(weights.split_terminator(", "));
        let pairs = parts.map(|part| part.split_once(' ').unwrap());
        Self {
            weights: pairs
                .map(|(step, weight)| (step, weight.parse().unwrap()))
                .collect(),
            seen: Vec::new(),
            all: Vec::new(),
        }
    }

    fn add<S>(&mut self, step: &'static str, parts: S, make: impl Fn(S::Value) -> Step + 'static)
    where
        S: Strategy + 'static,
    {
        self.seen.push(step);
        let weight = self.weights.get(step).copied().unwrap_or_default();
        if weight > 0 {
            self.all.push((weight, parts.prop_map(make).boxed()));
        }
    }

    fn union(self) -> Union<BoxedStrategy<Step>> {
        let unknown = self.weights.keys().find(|step| !self.seen.contains(step));
        assert_eq!(unknown, None, "a step that does not exist");
        Union::new_weighted(self.all)
    }
}

//! The profiles: each draws programs of one kind, so that a limited budget reaches deep.
//!
//! Long: one table, or one case for each step.

use proptest::prelude::*;
use proptest::strategy::Union;

use crate::generator::barriers::{BARRIER_PROFILES, polled_at_barrier};
use crate::generator::draws::{
    SLOTS, call_options, deadlock_options, fault, javas, leased, locks, manages, multi,
    options_at_barrier, options_with_rest, passes, permits, polled, readers, resends, role_verbs,
    select, several, verbs,
};
use crate::generator::fault::Fault;
use crate::generator::program::{CallOptions, ClientSpec, Step, Target, WakeMode, World};
use crate::generator::role_profiles::ROLE_PROFILES;

/// The relative frequency of each kind of step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) take: u32,
    pub(crate) verb: u32,
    pub(crate) pass: u32,
    pub(crate) manage: u32,
    pub(crate) worker: u32,
    pub(crate) connect: u32,
    pub(crate) shutdown: u32,
    pub(crate) drop_client: u32,
    pub(crate) kill: u32,
    pub(crate) kill_group: u32,
    pub(crate) fault: u32,
    pub(crate) freeze: u32,
    pub(crate) partition: u32,
    pub(crate) suspend: u32,
    pub(crate) stall: u32,
    pub(crate) java: u32,
    pub(crate) work: u32,
    pub(crate) observe: u32,
    pub(crate) adopt: u32,
}

pub(crate) const NO_FAULTS: Weights = Weights {
    take: 30,
    verb: 26,
    pass: 14,
    manage: 2,
    worker: 0,
    connect: 0,
    shutdown: 1,
    drop_client: 1,
    kill: 0,
    kill_group: 0,
    fault: 0,
    freeze: 0,
    partition: 0,
    suspend: 0,
    stall: 0,
    java: 0,
    work: 0,
    observe: 0,
    adopt: 0,
};

/// A kind of program: its world, the weights of its steps, and the strategies for their parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) servers: (u8, u8),
    pub(crate) databases: u8,
    pub(crate) clients: (u8, u8),
    pub(crate) length: (usize, usize),
    pub(crate) weights: Weights,
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

pub(crate) const PROFILES: &[Profile] = &[
    Profile {
        name: "locks",
        servers: (1, 1),
        databases: 1,
        clients: (1, 3),
        length: (3, 24),
        weights: NO_FAULTS,
        owners: 3,
        long: 1,
        parked: 1,
        targets: |_| locks(),
        fault,
        kind: Kind::Locks,
    },
    Profile {
        name: "servers",
        servers: (2, 3),
        databases: 2,
        clients: (3, 5),
        length: (3, 20),
        weights: NO_FAULTS,
        owners: 5,
        long: 1,
        parked: 1,
        targets: several,
        fault,
        kind: Kind::Locks,
    },
    Profile {
        name: "multilocks",
        servers: (1, 2),
        databases: 1,
        clients: (2, 3),
        length: (3, 20),
        weights: Weights {
            manage: 5,
            fault: 2,
            suspend: 3,
            java: 2,
            ..NO_FAULTS
        },
        owners: 2,
        long: 2,
        parked: 1,
        targets: |clients| prop_oneof![2 => multi(clients), 1 => locks()].boxed(),
        fault,
        kind: Kind::Locks,
    },
    Profile {
        name: "readers",
        servers: (1, 1),
        databases: 1,
        clients: (1, 4),
        length: (3, 26),
        weights: Weights {
            kill: 1,
            worker: 2,
            ..NO_FAULTS
        },
        owners: 3,
        long: 1,
        parked: 1,
        targets: |_| readers(),
        fault,
        kind: Kind::Locks,
    },
    Profile {
        name: "queues",
        servers: (1, 1),
        databases: 1,
        clients: (2, 5),
        length: (3, 24),
        weights: Weights {
            kill: 2,
            worker: 1,
            fault: 2,
            ..NO_FAULTS
        },
        owners: 1,
        long: 2,
        parked: 1,
        targets: |_| select(&[Target::Fair("x"), Target::Fair("y")]),
        fault,
        kind: Kind::Locks,
    },
    Profile {
        name: "permits",
        servers: (1, 1),
        databases: 1,
        clients: (2, 3),
        length: (4, 22),
        weights: Weights {
            manage: 8,
            worker: 8,
            kill: 2,
            java: 4,
            ..NO_FAULTS
        },
        owners: 0,
        long: 2,
        parked: 1,
        targets: |_| permits(),
        fault,
        kind: Kind::Permits,
    },
    Profile {
        name: "leased",
        servers: (1, 1),
        databases: 1,
        clients: (2, 3),
        length: (4, 22),
        weights: Weights {
            manage: 7,
            worker: 5,
            kill: 2,
            fault: 3,
            ..NO_FAULTS
        },
        owners: 0,
        long: 2,
        parked: 1,
        targets: |_| leased(),
        fault,
        kind: Kind::Leased,
    },
    Profile {
        name: "latches",
        servers: (1, 1),
        databases: 1,
        clients: (1, 3),
        length: (6, 30),
        weights: Weights {
            take: 24,
            verb: 18,
            manage: 36,
            fault: 12,
            java: 2,
            ..NO_FAULTS
        },
        owners: 0,
        long: 1,
        parked: 4,
        targets: |_| select(&[Target::Latch("l"), Target::Latch("m")]),
        fault: || prop_oneof![2 => resends(), 1 => fault()].boxed(),
        kind: Kind::Latches,
    },
    Profile {
        name: "storms",
        servers: (1, 1),
        databases: 1,
        clients: (1, 3),
        length: (5, 30),
        weights: Weights {
            fault: 14,
            freeze: 5,
            suspend: 1,
            stall: 1,
            shutdown: 2,
            kill: 1,
            ..NO_FAULTS
        },
        owners: 2,
        long: 4,
        parked: 1,
        targets: |_| prop_oneof![4 => locks(), 2 => readers(), 1 => leased()].boxed(),
        fault,
        kind: Kind::All,
    },
    Profile {
        name: "shutdowns",
        servers: (1, 1),
        databases: 1,
        clients: (1, 3),
        length: (3, 18),
        weights: Weights {
            shutdown: 8,
            drop_client: 3,
            freeze: 4,
            fault: 3,
            connect: 2,
            ..NO_FAULTS
        },
        owners: 1,
        long: 1,
        parked: 1,
        targets: |_| {
            prop_oneof![4 => locks(), 2 => readers(), 1 => permits(), 1 => leased()].boxed()
        },
        fault,
        kind: Kind::All,
    },
    Profile {
        name: "blackouts",
        servers: (1, 1),
        databases: 1,
        clients: (1, 2),
        length: (4, 16),
        weights: Weights {
            fault: 16,
            freeze: 2,
            pass: 18,
            ..NO_FAULTS
        },
        owners: 1,
        long: 4,
        parked: 1,
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
        kind: Kind::Locks,
    },
    Profile {
        name: "duplicates",
        servers: (1, 1),
        databases: 1,
        clients: (1, 2),
        length: (4, 16),
        weights: Weights {
            fault: 20,
            verb: 30,
            ..NO_FAULTS
        },
        owners: 1,
        long: 0,
        parked: 1,
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
    },
    Profile {
        name: "quorums",
        servers: (3, 3),
        databases: 1,
        clients: (3, 4),
        length: (3, 18),
        weights: Weights {
            fault: 5,
            freeze: 3,
            suspend: 3,
            kill: 1,
            ..NO_FAULTS
        },
        owners: 0,
        long: 2,
        parked: 1,
        targets: |_| {
            select(&[
                Target::Red("x"),
                Target::Red("x"),
                Target::Red("y"),
                Target::Lock("x"),
            ])
        },
        fault,
        kind: Kind::Locks,
    },
    Profile {
        name: "turns",
        servers: (1, 1),
        databases: 1,
        clients: (2, 4),
        length: (3, 10),
        weights: Weights {
            take: 10,
            worker: 20,
            pass: 10,
            verb: 4,
            ..NO_FAULTS
        },
        owners: 0,
        long: 6,
        parked: 1,
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
        fault,
        kind: Kind::Locks,
    },
    Profile {
        name: "deaths",
        servers: (1, 1),
        databases: 1,
        clients: (2, 3),
        length: (3, 14),
        weights: Weights {
            kill_group: 3,
            kill: 4,
            fault: 1,
            ..NO_FAULTS
        },
        owners: 0,
        long: 3,
        parked: 1,
        targets: |_| {
            prop_oneof![4 => select(&[Target::Fair("x")]), 2 => readers(), 1 => leased(), 1 => locks()].boxed()
        },
        fault,
        kind: Kind::All,
    },
    Profile {
        name: "everything",
        servers: (1, 3),
        databases: 2,
        clients: (2, 5),
        length: (5, 34),
        weights: Weights {
            manage: 6,
            worker: 2,
            connect: 1,
            shutdown: 1,
            drop_client: 1,
            kill: 1,
            fault: 5,
            freeze: 2,
            suspend: 1,
            stall: 1,
            java: 2,
            ..NO_FAULTS
        },
        owners: 2,
        long: 2,
        parked: 1,
        targets: |clients| {
            prop_oneof![
                4 => locks(), 3 => readers(), 2 => multi(clients), 2 => permits(), 2 => leased(),
                2 => select(&[Target::Latch("l"), Target::Fair("x"), Target::Fair("{y}")]),
                1 => select(&[Target::Red("x")])
            ]
            .boxed()
        },
        fault,
        kind: Kind::All,
    },
    ROLE_PROFILES[0],
    ROLE_PROFILES[1],
    ROLE_PROFILES[2],
    ROLE_PROFILES[3],
    ROLE_PROFILES[4],
    ROLE_PROFILES[5],
    BARRIER_PROFILES[0],
    BARRIER_PROFILES[1],
    BARRIER_PROFILES[2],
    BARRIER_PROFILES[3],
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
        let w = self.weights;
        let mut kinds: Vec<(u32, BoxedStrategy<Step>)> = Vec::new();
        let mut add = |weight: u32, steps: BoxedStrategy<Step>| {
            if weight > 0 {
                kinds.push((weight, steps));
            }
        };
        let client = || 0..clients;
        let for_deadlocks = self.kind == Kind::Deadlocks;
        add(w.pass, passes(self.long).prop_map(Step::Pass).boxed());
        add(
            w.take,
            (
                // Many slots, so that a `Take` seldom drops another guard: a deadlock needs several holds.
                0..if for_deadlocks { 3 * SLOTS } else { SLOTS },
                client(),
                target.clone(),
                match self.kind {
                    Kind::Roles | Kind::Limiters => options_with_rest(self.owners),
                    Kind::Deadlocks => deadlock_options(),
                    Kind::Barriers => options_at_barrier(),
                    _ => call_options(self.owners),
                },
                match self.kind {
                    Kind::Barriers => polled_at_barrier(self.parked),
                    _ => polled(self.parked),
                },
            )
                .prop_map(move |(slot, client, target, opts, polled)| Step::Take {
                    slot,
                    // Mostly each owner uses one client, because only then other clients see the waits of the owner.
                    client: match opts.owner {
                        Some(owner) if for_deadlocks && slot % 4 > 0 => owner % clients,
                        _ => client,
                    },
                    target,
                    opts,
                    polled,
                })
                .boxed(),
        );
        add(
            w.verb,
            (
                0..SLOTS,
                match self.kind {
                    Kind::Roles | Kind::Limiters => role_verbs(self.parked),
                    _ => verbs(self.parked),
                },
            )
                .prop_map(|(slot, verb)| Step::Use(slot, verb))
                .boxed(),
        );
        add(
            w.manage,
            (client(), manages(self.kind, target.clone()))
                .prop_map(|(client, manage)| Step::Manage(client, manage))
                .boxed(),
        );
        let times = prop_oneof![3 => 0..12_u8, 1 => 12..80_u8];
        add(
            w.worker,
            (
                client(),
                target.clone(),
                20..2_000_u16,
                times.clone(),
                times,
            )
                .prop_map(|(client, target, rounds, hold, pause)| Step::Worker {
                    client,
                    target,
                    opts: CallOptions::default(),
                    rounds,
                    hold,
                    pause,
                })
                .boxed(),
        );
        let spec = (0..servers, 0..self.databases).prop_map(|(server, database)| ClientSpec {
            server,
            database,
            wake_mode: WakeMode::Messages,
        });
        add(w.connect, spec.prop_map(Step::Connect).boxed());
        add(
            w.shutdown,
            (client(), prop_oneof![Just(0_u16), 1..3_000_u16])
                .prop_map(|(client, grace)| Step::Shutdown(client, grace))
                .boxed(),
        );
        add(w.drop_client, client().prop_map(Step::DropClient).boxed());
        add(w.kill, client().prop_map(Step::Kill).boxed());
        add(
            w.kill_group,
            (client(), 2..120_u8, target, 0..3_000_u16)
                .prop_map(|(client, processes, target, live)| Step::KillGroup {
                    client,
                    processes,
                    target,
                    live,
                })
                .boxed(),
        );
        add(
            w.fault,
            (0..servers, (self.fault)())
                .prop_map(|(server, fault)| Step::Fault(server, fault))
                .boxed(),
        );
        add(w.freeze, client().prop_map(Step::Freeze).boxed());
        add(w.freeze, client().prop_map(Step::Thaw).boxed());
        add(
            w.partition,
            (client(), 300..5_000_u16)
                .prop_map(|(client, millis)| Step::Partition(client, millis))
                .boxed(),
        );
        add(w.suspend, (100..20_000_u16).prop_map(Step::Suspend).boxed());
        add(w.stall, (10..5_000_u16).prop_map(Step::Stall).boxed());
        add(
            w.java,
            (0..servers, javas(self.kind))
                .prop_map(|(server, java)| Step::Java(server, java))
                .boxed(),
        );
        add(
            w.adopt,
            (
                0..SLOTS,
                client(),
                0..2_u8,
                call_options(0),
                polled(self.parked),
            )
                .prop_map(|(slot, client, ticket, opts, polled)| Step::Adopt {
                    slot,
                    client,
                    ticket,
                    opts,
                    polled,
                })
                .boxed(),
        );
        add(
            w.work,
            (
                0..SLOTS,
                client(),
                (self.targets)(clients),
                10..9_000_u16,
                polled(self.parked),
            )
                .prop_map(|(slot, client, target, work, polled)| Step::Work {
                    slot,
                    client,
                    target,
                    work,
                    polled,
                })
                .boxed(),
        );
        add(
            w.observe,
            (client(), proptest::sample::select(vec!["x", "{x}"]))
                .prop_map(|(client, name)| Step::Observe(client, name))
                .boxed(),
        );
        let length = self.length.0..=self.length.1;
        proptest::collection::vec(Union::new_weighted(kinds), length).boxed()
    }
}

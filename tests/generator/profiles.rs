//! The ingredients of programs: profiles, each with a taste of its own, so that a budget reaches deep.
//!
//! Long: one table, or one case for each step.

use proptest::prelude::*;
use proptest::strategy::Union;

use crate::draws::{
    HANDS, asks, entangled, javas, leased, locks, manages, multi, newer_verbs, passes, permits,
    polled, readers, resting, select, several, verbs, weather,
};
use crate::meetings::{MEETINGS, attended};
use crate::newer::NEWER;
use crate::program::{Ask, Hears, Seat, Step, What, World};
use crate::weather::Weather;

/// The frequency of each kind of step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) take: u32,
    pub(crate) verb: u32,
    pub(crate) pass: u32,
    pub(crate) manage: u32,
    pub(crate) worker: u32,
    pub(crate) connect: u32,
    pub(crate) shutdown: u32,
    pub(crate) let_client: u32,
    pub(crate) kill: u32,
    pub(crate) doomed: u32,
    pub(crate) weather: u32,
    pub(crate) freeze: u32,
    pub(crate) suspend: u32,
    pub(crate) stall: u32,
    pub(crate) java: u32,
    pub(crate) work: u32,
    pub(crate) observe: u32,
    pub(crate) adopt: u32,
}

pub(crate) const FAIR_WEATHER: Weights = Weights {
    take: 30,
    verb: 26,
    pass: 14,
    manage: 2,
    worker: 0,
    connect: 0,
    shutdown: 1,
    let_client: 1,
    kill: 0,
    doomed: 0,
    weather: 0,
    freeze: 0,
    suspend: 0,
    stall: 0,
    java: 0,
    work: 0,
    observe: 0,
    adopt: 0,
};

/// A taste of programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) servers: (u8, u8),
    pub(crate) databases: u8,
    pub(crate) clients: (u8, u8),
    pub(crate) length: (usize, usize),
    pub(crate) weights: Weights,
    /// Of ten acquires, so many have a shared owner.
    pub(crate) owners: u32,
    /// Of ten passes, so many are of many seconds.
    pub(crate) long: u32,
    /// Of ten calls, so many are polled once and left alone.
    pub(crate) left: u32,
    pub(crate) whats: fn(u8) -> BoxedStrategy<What>,
    pub(crate) weather: fn() -> BoxedStrategy<Weather>,
    pub(crate) kind: Kind,
}

/// Whose numbers are managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Locks,
    Permits,
    Leased,
    Latches,
    All,
    /// Elections, jobs, limiters, tickets.
    Newer,
    Limiters,
    /// Owners that wait for each other.
    Tangles,
    /// Barriers.
    Meetings,
    /// Latches that end.
    Idle,
}

pub(crate) const PROFILES: &[Profile] = &[
    Profile {
        name: "locks",
        servers: (1, 1),
        databases: 1,
        clients: (1, 3),
        length: (3, 24),
        weights: FAIR_WEATHER,
        owners: 3,
        long: 1,
        left: 1,
        whats: |_| locks(),
        weather,
        kind: Kind::Locks,
    },
    Profile {
        name: "servers",
        servers: (2, 3),
        databases: 2,
        clients: (3, 5),
        length: (3, 20),
        weights: FAIR_WEATHER,
        owners: 5,
        long: 1,
        left: 1,
        whats: several,
        weather,
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
            weather: 2,
            suspend: 3,
            java: 2,
            ..FAIR_WEATHER
        },
        owners: 2,
        long: 2,
        left: 1,
        whats: |clients| prop_oneof![2 => multi(clients), 1 => locks()].boxed(),
        weather,
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
            ..FAIR_WEATHER
        },
        owners: 3,
        long: 1,
        left: 1,
        whats: |_| readers(),
        weather,
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
            weather: 2,
            ..FAIR_WEATHER
        },
        owners: 1,
        long: 2,
        left: 1,
        whats: |_| select(&[What::Fair("x"), What::Fair("y")]),
        weather,
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
            ..FAIR_WEATHER
        },
        owners: 0,
        long: 2,
        left: 1,
        whats: |_| permits(),
        weather,
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
            weather: 3,
            ..FAIR_WEATHER
        },
        owners: 0,
        long: 2,
        left: 1,
        whats: |_| leased(),
        weather,
        kind: Kind::Leased,
    },
    Profile {
        name: "latches",
        servers: (1, 1),
        databases: 1,
        clients: (1, 3),
        length: (4, 22),
        weights: Weights {
            manage: 18,
            weather: 2,
            java: 2,
            ..FAIR_WEATHER
        },
        owners: 0,
        long: 1,
        left: 4,
        whats: |_| select(&[What::Latch("l"), What::Latch("m")]),
        weather,
        kind: Kind::Latches,
    },
    Profile {
        name: "storms",
        servers: (1, 1),
        databases: 1,
        clients: (1, 3),
        length: (5, 30),
        weights: Weights {
            weather: 14,
            freeze: 5,
            suspend: 1,
            stall: 1,
            shutdown: 2,
            kill: 1,
            ..FAIR_WEATHER
        },
        owners: 2,
        long: 4,
        left: 1,
        whats: |_| prop_oneof![4 => locks(), 2 => readers(), 1 => leased()].boxed(),
        weather,
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
            let_client: 3,
            freeze: 4,
            weather: 3,
            connect: 2,
            ..FAIR_WEATHER
        },
        owners: 1,
        long: 1,
        left: 1,
        whats: |_| prop_oneof![4 => locks(), 2 => readers(), 1 => permits(), 1 => leased()].boxed(),
        weather,
        kind: Kind::All,
    },
    Profile {
        name: "blackouts",
        servers: (1, 1),
        databases: 1,
        clients: (1, 2),
        length: (4, 16),
        weights: Weights {
            weather: 16,
            freeze: 2,
            pass: 18,
            ..FAIR_WEATHER
        },
        owners: 1,
        long: 4,
        left: 1,
        whats: |_| {
            select(&[
                What::Lock("x"),
                What::Lock("x"),
                What::Write("r"),
                What::Read("r"),
                What::Fair("f"),
            ])
        },
        weather: || {
            prop_oneof![
                4 => Just(Weather::Frozen), 4 => Just(Weather::Thawed), 1 => Just(Weather::Refused),
                1 => Just(Weather::Accepted), 1 => Just(Weather::Cut), 2 => Just(Weather::Calm)
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
            weather: 20,
            verb: 30,
            ..FAIR_WEATHER
        },
        owners: 1,
        long: 0,
        left: 1,
        whats: |_| {
            select(&[
                What::Lock("x"),
                What::Lock("x"),
                What::Write("r"),
                What::Read("r"),
                What::Fair("f"),
                What::Leased("p", 1),
                What::Permits("s", 1),
            ])
        },
        weather: || {
            prop_oneof![
                6 => (1..3_u8).prop_map(Weather::Delayed), 6 => Just(Weather::Delivered),
                2 => (1..3_u8).prop_map(Weather::RepliesSilent), 2 => (1..3_u8).prop_map(Weather::RepliesLost),
                1 => Just(Weather::Calm)
            ]
            .boxed()
        },
        kind: Kind::All,
    },
    Profile {
        name: "quorums",
        servers: (3, 3),
        databases: 1,
        clients: (3, 4),
        length: (3, 18),
        weights: Weights {
            weather: 5,
            freeze: 3,
            suspend: 3,
            kill: 1,
            ..FAIR_WEATHER
        },
        owners: 0,
        long: 2,
        left: 1,
        whats: |_| {
            select(&[
                What::Red("x"),
                What::Red("x"),
                What::Red("y"),
                What::Lock("x"),
            ])
        },
        weather,
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
            ..FAIR_WEATHER
        },
        owners: 0,
        long: 6,
        left: 1,
        whats: |clients| {
            let pair = (0..clients).prop_map(|client| {
                What::Multi(vec![(client, What::Lock("x")), (client, What::Lock("y"))])
            });
            prop_oneof![
                5 => select(&[What::PoliteRead("q"), What::PoliteWrite("q"), What::PoliteWrite("q")]),
                3 => select(&[What::Lock("x"), What::Lock("y")]),
                2 => pair,
                1 => readers(), 1 => locks()
            ]
            .boxed()
        },
        weather,
        kind: Kind::Locks,
    },
    Profile {
        name: "deaths",
        servers: (1, 1),
        databases: 1,
        clients: (2, 3),
        length: (3, 14),
        weights: Weights {
            doomed: 3,
            kill: 4,
            weather: 1,
            ..FAIR_WEATHER
        },
        owners: 0,
        long: 3,
        left: 1,
        whats: |_| {
            prop_oneof![4 => select(&[What::Fair("x")]), 2 => readers(), 1 => leased(), 1 => locks()].boxed()
        },
        weather,
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
            let_client: 1,
            kill: 1,
            weather: 5,
            freeze: 2,
            suspend: 1,
            stall: 1,
            java: 2,
            ..FAIR_WEATHER
        },
        owners: 2,
        long: 2,
        left: 1,
        whats: |clients| {
            prop_oneof![
                4 => locks(), 3 => readers(), 2 => multi(clients), 2 => permits(), 2 => leased(),
                2 => select(&[What::Latch("l"), What::Fair("x"), What::Fair("{y}")]),
                1 => select(&[What::Red("x")])
            ]
            .boxed()
        },
        weather,
        kind: Kind::All,
    },
    NEWER[0],
    NEWER[1],
    NEWER[2],
    NEWER[3],
    NEWER[4],
    NEWER[5],
    MEETINGS[0],
    MEETINGS[1],
    MEETINGS[2],
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
            .map(|number| Seat {
                // Every server has a client.
                server: if number < servers {
                    number
                } else {
                    rng.u8(..servers)
                },
                database: rng.u8(..self.databases),
                hears: if rng.u8(..8) == 0 {
                    Hears::Polls
                } else {
                    Hears::Messages
                },
            })
            .collect();
        World {
            servers,
            latency: [0, 0, 1, 5][rng.usize(..4)],
            clients,
        }
    }

    /// The steps of programs in `world`.
    pub(crate) fn steps(&self, world: &World) -> BoxedStrategy<Vec<Step>> {
        let clients = u8::try_from(world.clients.len()).unwrap_or(1);
        let servers = world.servers;
        let what = (self.whats)(clients);
        let w = self.weights;
        let mut kinds: Vec<(u32, BoxedStrategy<Step>)> = Vec::new();
        let mut add = |weight: u32, steps: BoxedStrategy<Step>| {
            if weight > 0 {
                kinds.push((weight, steps));
            }
        };
        let client = || 0..clients;
        let tangles = self.kind == Kind::Tangles;
        add(w.pass, passes(self.long).prop_map(Step::Pass).boxed());
        add(
            w.take,
            (
                // Enough that a take seldom lets go what another has taken: only then do owners wait for each other.
                0..if tangles { 3 * HANDS } else { HANDS },
                client(),
                what.clone(),
                match self.kind {
                    Kind::Newer | Kind::Limiters => resting(self.owners),
                    Kind::Tangles => entangled(),
                    _ => asks(self.owners),
                },
                match self.kind {
                    Kind::Meetings => attended(self.left),
                    _ => polled(self.left),
                },
            )
                .prop_map(move |(hand, client, what, ask, polled)| Step::Take {
                    hand,
                    // Mostly each owner through one client: others see only then what it waits for.
                    client: match ask.owner {
                        Some(owner) if tangles && hand % 4 > 0 => owner % clients,
                        _ => client,
                    },
                    what,
                    ask,
                    polled,
                })
                .boxed(),
        );
        add(
            w.verb,
            (
                0..HANDS,
                match self.kind {
                    Kind::Newer | Kind::Limiters => newer_verbs(self.left),
                    _ => verbs(self.left),
                },
            )
                .prop_map(|(hand, verb)| Step::Use(hand, verb))
                .boxed(),
        );
        add(
            w.manage,
            (client(), manages(self.kind, what.clone()))
                .prop_map(|(client, manage)| Step::Manage(client, manage))
                .boxed(),
        );
        let times = prop_oneof![3 => 0..12_u8, 1 => 12..80_u8];
        add(
            w.worker,
            (client(), what.clone(), 20..2_000_u16, times.clone(), times)
                .prop_map(|(client, what, rounds, hold, pause)| Step::Worker {
                    client,
                    what,
                    ask: Ask::default(),
                    rounds,
                    hold,
                    pause,
                })
                .boxed(),
        );
        let seat = (0..servers, 0..self.databases).prop_map(|(server, database)| Seat {
            server,
            database,
            hears: Hears::Messages,
        });
        add(w.connect, seat.prop_map(Step::Connect).boxed());
        add(
            w.shutdown,
            (client(), prop_oneof![Just(0_u16), 1..3_000_u16])
                .prop_map(|(client, grace)| Step::Shutdown(client, grace))
                .boxed(),
        );
        add(w.let_client, client().prop_map(Step::LetClient).boxed());
        add(w.kill, client().prop_map(Step::Kill).boxed());
        add(
            w.doomed,
            (client(), 2..120_u8, what, 0..3_000_u16)
                .prop_map(|(client, processes, what, live)| Step::Doomed {
                    client,
                    processes,
                    what,
                    live,
                })
                .boxed(),
        );
        add(
            w.weather,
            (0..servers, (self.weather)())
                .prop_map(|(server, weather)| Step::Weather(server, weather))
                .boxed(),
        );
        add(w.freeze, client().prop_map(Step::Freeze).boxed());
        add(w.freeze, client().prop_map(Step::Thaw).boxed());
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
            (0..HANDS, client(), 0..2_u8, asks(0), polled(self.left))
                .prop_map(|(hand, client, ticket, ask, polled)| Step::Adopt {
                    hand,
                    client,
                    ticket,
                    ask,
                    polled,
                })
                .boxed(),
        );
        add(
            w.work,
            (
                0..HANDS,
                client(),
                (self.whats)(clients),
                10..9_000_u16,
                polled(self.left),
            )
                .prop_map(|(hand, client, what, work, polled)| Step::Work {
                    hand,
                    client,
                    what,
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

//! The profiles: each draws programs of one kind, so that a limited budget reaches deep.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::strategy::Union;

use crate::generator::draws::{
    SLOTS, barrier_targets, call_options, campaigns, deadlock_options, fault, javas, jobs, leased,
    limiters, locks, manages, multi, options_at_barrier, options_with_rest, passes, permits,
    polled, polled_at_barrier, readers, resends, role_verbs, select, several, targets,
    ticket_targets, verbs,
};
use crate::generator::fault::Fault;
use crate::generator::program::{CallOptions, ClientSpec, Step, Target, WakeMode, World};

/// A kind of program: its world, the weights of its steps, and the strategies for their parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    servers: (u8, u8),
    databases: u8,
    clients: (u8, u8),
    length: (u8, u8),
    /// The relative frequency of each kind of step, where it is not that of [`USUAL`].
    weights: &'static str,
    /// So many of ten acquires have a shared owner.
    owners: u32,
    /// So many of ten pauses last for many seconds.
    long: u32,
    /// About so many of ten calls are polled once and then kept.
    parked: u32,
    kind: Kind,
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

const KINDS: [Kind; 10] = [
    Kind::Locks,
    Kind::Permits,
    Kind::Leased,
    Kind::Latches,
    Kind::All,
    Kind::Roles,
    Kind::Limiters,
    Kind::Deadlocks,
    Kind::Barriers,
    Kind::Idle,
];

/// `name: setting value, …; step weight, …`, with the settings that are not those of `locks`.
const TABLE: &str = "
locks:
servers: servers 2-3, databases 2, clients 3-5, length 3-20, owners 5
multilocks: servers 1-2, clients 2-3, length 3-20, owners 2, long 2; manage 5, fault 2, suspend 3, java 2
readers: clients 1-4, length 3-26; kill 1, worker 2
queues: clients 2-5, owners 1, long 2; kill 2, worker 1, fault 2
permits: clients 2-3, length 4-22, owners 0, long 2, kind Permits; manage 8, worker 8, kill 2, java 4
leased: clients 2-3, length 4-22, owners 0, long 2, kind Leased; manage 7, worker 5, kill 2, fault 3
latches: length 6-30, owners 0, parked 4, kind Latches; take 24, verb 18, manage 36, fault 12, java 2
storms: length 5-30, owners 2, long 4, kind All; fault 14, freeze 5, suspend 1, stall 1, shutdown 2, kill 1
shutdowns: length 3-18, owners 1, kind All; shutdown 8, drop_client 3, freeze 4, fault 3, connect 2
blackouts: clients 1-2, length 4-16, owners 1, long 4; fault 16, freeze 2, pass 18
duplicates: clients 1-2, length 4-16, owners 1, long 0, kind All; fault 20, verb 30
quorums: servers 3-3, clients 3-4, length 3-18, owners 0, long 2; fault 5, freeze 3, suspend 3, kill 1
turns: clients 2-4, length 3-10, owners 0, long 6; take 10, worker 20, pass 10, verb 4
deaths: clients 2-3, length 3-14, owners 0, long 3, kind All; kill_group 3, kill 4, fault 1
everything: servers 1-3, databases 2, clients 2-5, length 5-34, owners 2, long 2, kind All; manage 6, worker 2, connect 1, kill 1, fault 5, freeze 2, suspend 1, stall 1, java 2
elections: clients 2-4, length 4-22, owners 0, kind Roles; kill 1, work 8, observe 3, partition 6
jobs: clients 2-4, length 4-22, owners 0, kind Roles; kill 1, work 10, java 1
limiters: clients 2-4, length 4-22, owners 0, kind Limiters; manage 3, kill 1, worker 3
tickets: clients 2-4, length 4-22, owners 1, kind Roles; manage 1, kill 4, adopt 10
tangles: clients 2-4, length 4-11, owners 0, long 7, kind Deadlocks; take 40, verb 3, pass 8, shutdown 0, drop_client 0, manage 0
gales: servers 1-2, clients 2-4, length 4-22, owners 0, long 3, kind Roles; manage 3, kill 2, work 6, observe 2, adopt 5, worker 1, fault 12, freeze 4, suspend 1, stall 1, shutdown 2, java 1
meetings: clients 2-4, length 4-22, owners 0, kind Barriers; take 40, verb 20, manage 3, worker 2, kill 1
musters: servers 1-2, clients 2-4, length 4-22, owners 0, long 3, kind Barriers; take 40, verb 16, manage 3, worker 2, kill 2, fault 12, freeze 4, suspend 1, stall 2, shutdown 2
partitions: clients 4-4, length 12-36, owners 0, long 2, kind Barriers; take 36, verb 4, pass 26, fault 3, partition 14, observe 2
idle: clients 2-4, length 4-22, owners 0, long 5, kind Idle; manage 24, kill 1, fault 2, java 1
";

pub(crate) static PROFILES: LazyLock<Vec<Profile>> =
    LazyLock::new(|| TABLE.trim().lines().map(Profile::parse).collect());

impl Profile {
    fn parse(line: &'static str) -> Self {
        let (name, rest) = line.split_once(':').unwrap();
        let (settings, weights) = rest.split_once(';').unwrap_or((rest, ""));
        let mut it = Self {
            name,
            servers: (1, 1),
            databases: 1,
            clients: (1, 3),
            length: (3, 24),
            weights: weights.trim(),
            owners: 3,
            long: 1,
            parked: 1,
            kind: Kind::Locks,
        };
        for setting in settings.split_terminator(',') {
            let (setting, value) = setting.trim().split_once(' ').unwrap();
            let number = || value.parse().unwrap();
            let range = || {
                let (from, to) = value.split_once('-').unwrap();
                (from.parse().unwrap(), to.parse().unwrap())
            };
            match setting {
                "servers" => it.servers = range(),
                "databases" => it.databases = value.parse().unwrap(),
                "clients" => it.clients = range(),
                "length" => it.length = range(),
                "owners" => it.owners = number(),
                "long" => it.long = number(),
                "parked" => it.parked = number(),
                "kind" => {
                    let named = |kind: &&Kind| format!("{kind:?}") == value;
                    it.kind = *KINDS.iter().find(named).unwrap();
                }
                _ => panic!("no setting: {line}"),
            }
        }
        it
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    fn targets(&self, clients: u8) -> BoxedStrategy<Target> {
        match self.name {
            "servers" => several(clients),
            "multilocks" => prop_oneof![2 => multi(clients), 1 => locks()].boxed(),
            "readers" => readers(),
            "queues" => select("fair x, fair y"),
            "permits" => permits(),
            "leased" => leased(),
            "latches" => select("latch l, latch m"),
            "storms" => prop_oneof![4 => locks(), 2 => readers(), 1 => leased()].boxed(),
            "shutdowns" => {
                prop_oneof![4 => locks(), 2 => readers(), 1 => permits(), 1 => leased()].boxed()
            }
            "blackouts" => select("lock x, lock x, write r, read r, fair f"),
            "duplicates" => {
                select("lock x, lock x, write r, read r, fair f, leased p 1, permits s 1")
            }
            "quorums" => select("red x, red x, red y, lock x"),
            "turns" => {
                let pair = (0..clients).prop_map(|client| {
                    Target::Multi(targets("lock x, lock y").map(|it| (client, it)).collect())
                });
                prop_oneof![
                    5 => select("writer_first_read q, writer_first_write q, writer_first_write q"),
                    3 => select("lock x, lock y"),
                    2 => pair,
                    1 => readers(), 1 => locks()
                ]
                .boxed()
            }
            "deaths" => {
                prop_oneof![4 => select("fair x"), 2 => readers(), 1 => leased(), 1 => locks()]
                    .boxed()
            }
            "everything" => prop_oneof![
                4 => locks(), 3 => readers(), 2 => multi(clients), 2 => permits(), 2 => leased(),
                2 => select("latch l, fair x, fair {y}"),
                1 => select("red x")
            ]
            .boxed(),
            "elections" => campaigns(),
            "jobs" => jobs(),
            "limiters" => limiters(),
            "tickets" => ticket_targets(),
            "tangles" => select("lock x, lock x, lock y, lock y, fair f"),
            "gales" => {
                prop_oneof![2 => campaigns(), 2 => jobs(), 2 => limiters(), 2 => ticket_targets(), 1 => locks()].boxed()
            }
            "meetings" => barrier_targets(),
            "musters" => prop_oneof![6 => barrier_targets(), 1 => locks()].boxed(),
            "partitions" => {
                select("barrier x 2, barrier x 2, barrier x 2, double x 2, leader x 0")
            }
            "idle" => select("latch l, latch l, latch m"),
            _ => locks(),
        }
    }

    fn faults(&self) -> BoxedStrategy<Fault> {
        match self.name {
            "latches" => prop_oneof![2 => resends(), 1 => fault()].boxed(),
            "blackouts" => prop_oneof![
                4 => Just(Fault::Frozen), 4 => Just(Fault::Thawed), 1 => Just(Fault::Refused),
                1 => Just(Fault::Accepted), 1 => Just(Fault::Cut), 2 => Just(Fault::Cleared)
            ]
            .boxed(),
            "duplicates" | "partitions" => resends(),
            _ => fault(),
        }
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
        let target = self.targets(clients);
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
        let parts = (0..servers, self.faults());
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
        let length = self.length.0.into()..=self.length.1.into();
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

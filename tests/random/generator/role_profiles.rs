//! Profiles of elections, jobs, limiters, tickets and deadlocks.

use proptest::prelude::*;

use crate::generator::draws::{campaigns, fault, jobs, limiters, locks, select, ticket_targets};
use crate::generator::profiles::{Kind, NO_FAULTS, Profile, Weights};
use crate::generator::program::Target;

pub(crate) const ELECTIONS: Profile = Profile {
    name: "elections",
    servers: (1, 1),
    databases: 1,
    clients: (2, 4),
    length: (4, 22),
    weights: Weights {
        manage: 2,
        kill: 1,
        work: 8,
        observe: 3,
        partition: 6,
        ..NO_FAULTS
    },
    owners: 0,
    long: 1,
    parked: 1,
    targets: |_| campaigns(),
    fault,
    kind: Kind::Roles,
};

pub(crate) const ROLE_PROFILES: [Profile; 6] = [
    ELECTIONS,
    Profile {
        name: "jobs",
        weights: Weights {
            manage: 2,
            kill: 1,
            work: 10,
            java: 1,
            ..NO_FAULTS
        },
        targets: |_| jobs(),
        ..ELECTIONS
    },
    Profile {
        name: "limiters",
        weights: Weights {
            manage: 3,
            kill: 1,
            worker: 3,
            ..NO_FAULTS
        },
        targets: |_| limiters(),
        kind: Kind::Limiters,
        ..ELECTIONS
    },
    Profile {
        name: "tickets",
        weights: Weights {
            manage: 1,
            kill: 4,
            adopt: 10,
            ..NO_FAULTS
        },
        owners: 1,
        targets: |_| ticket_targets(),
        ..ELECTIONS
    },
    Profile {
        name: "tangles",
        weights: Weights {
            take: 40,
            verb: 3,
            pass: 8,
            shutdown: 0,
            drop_client: 0,
            manage: 0,
            ..NO_FAULTS
        },
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
        weights: Weights {
            manage: 3,
            kill: 2,
            work: 6,
            observe: 2,
            adopt: 5,
            worker: 1,
            fault: 12,
            freeze: 4,
            suspend: 1,
            stall: 1,
            shutdown: 2,
            java: 1,
            ..NO_FAULTS
        },
        long: 3,
        targets: |_| {
            prop_oneof![2 => campaigns(), 2 => jobs(), 2 => limiters(), 2 => ticket_targets(), 1 => locks()].boxed()
        },
        ..ELECTIONS
    },
];

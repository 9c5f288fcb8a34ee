//! Profiles of elections, jobs, limiters, tickets and owners that wait for each other.

use proptest::prelude::*;

use crate::draws::{campaigns, handed_on, jobs, limiters, locks, select, weather};
use crate::profiles::{FAIR_WEATHER, Kind, Profile, Weights};
use crate::program::What;

pub(crate) const QUIET: Profile = Profile {
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
        ..FAIR_WEATHER
    },
    owners: 0,
    long: 1,
    left: 1,
    whats: |_| campaigns(),
    weather,
    kind: Kind::Newer,
};

pub(crate) const NEWER: [Profile; 6] = [
    QUIET,
    Profile {
        name: "jobs",
        weights: Weights {
            manage: 2,
            kill: 1,
            work: 10,
            java: 1,
            ..FAIR_WEATHER
        },
        whats: |_| jobs(),
        ..QUIET
    },
    Profile {
        name: "limiters",
        weights: Weights {
            manage: 3,
            kill: 1,
            worker: 3,
            ..FAIR_WEATHER
        },
        whats: |_| limiters(),
        kind: Kind::Limiters,
        ..QUIET
    },
    Profile {
        name: "tickets",
        weights: Weights {
            manage: 1,
            kill: 4,
            adopt: 10,
            ..FAIR_WEATHER
        },
        owners: 1,
        whats: |_| handed_on(),
        ..QUIET
    },
    Profile {
        name: "tangles",
        weights: Weights {
            take: 40,
            verb: 3,
            pass: 8,
            shutdown: 0,
            let_client: 0,
            manage: 0,
            ..FAIR_WEATHER
        },
        length: (4, 11),
        long: 7,
        whats: |_| {
            select(&[
                What::Lock("x"),
                What::Lock("x"),
                What::Lock("y"),
                What::Lock("y"),
                What::Fair("f"),
            ])
        },
        kind: Kind::Tangles,
        ..QUIET
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
            weather: 12,
            freeze: 4,
            suspend: 1,
            stall: 1,
            shutdown: 2,
            java: 1,
            ..FAIR_WEATHER
        },
        long: 3,
        whats: |_| {
            prop_oneof![2 => campaigns(), 2 => jobs(), 2 => limiters(), 2 => handed_on(), 1 => locks()].boxed()
        },
        ..QUIET
    },
];

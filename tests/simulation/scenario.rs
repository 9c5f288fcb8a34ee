//! The scenario of one seed.

use std::time::Duration;

use stanchion::Preference;

use crate::family::Primitive;
use crate::filter::Mutation;
use crate::kinds::Play;
use crate::kinds::barrier::BARRIER;
use crate::kinds::double::DOUBLE;
use crate::kinds::election::ELECTION;
use crate::kinds::holds::HOLDS;
use crate::kinds::job::JOB;
use crate::kinds::latch::LATCH;
use crate::kinds::limiter::{BUCKET, LIMITER};
use crate::kinds::ticket::TICKETS;

/// A way to reckon the end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reckoning {
    /// As the guard says: the lease counts from the sending of the request.
    ByGuard,
    /// The first planted bug: the lease counts from the receipt of the reply.
    FromReply,
}

/// Which faults happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// All of them, but the server keeps its data.
    Stormy,
    /// All of them; at some restarts the server loses its data.
    Forgetful,
    /// Links get slow and deliver late; nothing else.
    Sluggish,
    /// Latency only.
    Fair,
}

/// The parameters of one simulation.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) play: Play,
    /// What has a guard, where that is what is played.
    pub(crate) primitive: Primitive,
    /// Whether holds are detached, and their tickets adopted.
    pub(crate) tickets: bool,
    pub(crate) weather: Weather,
    pub(crate) clients: u32,
    pub(crate) tasks: u32,
    pub(crate) names: &'static [&'static str],
    /// Between two acquires of a task, at most.
    pub(crate) think: Duration,
    /// The leases tasks choose from.
    pub(crate) leases: Vec<Duration>,
    /// The number of holds in ten that are not renewed, and then mostly outlast their lease.
    pub(crate) unrenewed: u8,
    pub(crate) poll_interval: Duration,
    pub(crate) linger: Duration,
    pub(crate) response_timeout: Duration,
    /// The time for which simulated tasks work; the rest up to the whole length is for coming to rest.
    pub(crate) busy_for: Duration,
    /// The simulated time.
    pub(crate) length: Duration,
    /// A lock that is free in calm weather is taken by a waiter within this time.
    pub(crate) prompt: Duration,
    /// Fewer grants, or whatever the kind counts, than this prove nothing.
    pub(crate) least: usize,
    pub(crate) reckoning: Reckoning,
    pub(crate) mutation: Option<Mutation>,
}

impl Scenario {
    /// The usual crowd: many short waits, everything goes wrong.
    pub(crate) fn crowd(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let millis = |choices: &[u64], rng: &mut fastrand::Rng| {
            Duration::from_millis(choices[rng.usize(..choices.len())])
        };
        Self {
            seed,
            play: HOLDS,
            primitive: Primitive::Lock,
            tickets: false,
            weather: if seed.is_multiple_of(4) {
                Weather::Forgetful
            } else {
                Weather::Stormy
            },
            clients: 3 + u32::from(seed.is_multiple_of(2)),
            tasks: 2 + u32::from(seed.is_multiple_of(3)),
            names: if seed.is_multiple_of(5) {
                &["orders"]
            } else {
                &["orders", "stock"]
            },
            think: millis(&[200, 600, 1_500], &mut rng),
            leases: vec![
                Duration::from_millis(600),
                Duration::from_millis(1_000),
                Duration::from_millis(2_500),
            ],
            unrenewed: 1,
            poll_interval: millis(&[1_000, 2_000, 5_000], &mut rng),
            linger: millis(&[10, 300, 3_000], &mut rng),
            response_timeout: millis(&[300, 1_000], &mut rng),
            busy_for: Duration::from_secs(560),
            length: Duration::from_secs(600),
            prompt: Duration::from_secs(1),
            least: 500,
            reckoning: Reckoning::ByGuard,
            mutation: None,
        }
    }

    /// A crowd at fair locks. Who died in a queue costs the others the grace of 2 s.
    pub(crate) fn queue(seed: u64) -> Self {
        Self {
            primitive: Primitive::FairLock,
            prompt: Duration::from_millis(3_500),
            least: 300,
            ..Self::crowd(seed)
        }
    }

    /// A crowd that reads and writes.
    ///
    /// A reader has no token to tell whether it was granted before the server lost its data: here it keeps them.
    pub(crate) fn library(seed: u64) -> Self {
        Self {
            primitive: Primitive::RwLock(if seed.is_multiple_of(2) {
                Preference::Writer
            } else {
                Preference::Redisson
            }),
            weather: Weather::Stormy,
            // The mark of a writer that died keeps readers out for its grace.
            prompt: Duration::from_millis(3_500),
            ..Self::crowd(seed)
        }
    }

    /// A crowd that shares three permits, with requests for one and for two. Its data, too, is kept.
    pub(crate) fn pool(seed: u64) -> Self {
        Self {
            primitive: Primitive::LeasedSemaphore(3),
            weather: Weather::Stormy,
            // The mark of a request for two that died keeps the others back until it ends.
            prompt: Duration::from_secs(8),
            ..Self::crowd(seed)
        }
    }

    /// A shorter crowd at something else: two storms and two calms.
    fn short(play: Play, least: usize, seed: u64) -> Self {
        Self {
            play,
            weather: Weather::Stormy,
            names: &["orders"],
            leases: vec![Duration::from_millis(2_000)],
            busy_for: Duration::from_secs(200),
            length: Duration::from_secs(240),
            least,
            ..Self::crowd(seed)
        }
    }

    /// Candidates that campaign, lead, proclaim, hand over and resign, and observers.
    pub(crate) fn election(seed: u64) -> Self {
        let crowd = Self::crowd(seed);
        Self {
            primitive: Primitive::Election,
            weather: crowd.weather,
            leases: crowd.leases,
            unrenewed: 1,
            // A vacancy is kept for half a second for each candidate of higher priority that died, and a rest lasts up to 1.5 s.
            prompt: Duration::from_secs(5),
            ..Self::short(ELECTION, 80, seed)
        }
    }

    /// Holds that become tickets, of locks and of fair locks in turns.
    pub(crate) fn tickets(seed: u64) -> Self {
        let crowd = Self::crowd(seed);
        Self {
            primitive: if seed.is_multiple_of(2) {
                Primitive::FairLock
            } else {
                Primitive::Lock
            },
            tickets: true,
            leases: crowd.leases,
            names: &["orders", "stock"],
            prompt: Duration::from_millis(3_500),
            ..Self::short(TICKETS, 40, seed)
        }
    }

    /// Machines with wrong clocks and one job.
    pub(crate) fn job(seed: u64) -> Self {
        Self {
            tasks: 1,
            clients: 4,
            ..Self::short(JOB, 40, seed)
        }
    }

    /// More who want permits of a rate limiter than there are.
    pub(crate) fn limiter(seed: u64) -> Self {
        Self::short(LIMITER, 400, seed)
    }

    /// The same at a token bucket.
    pub(crate) fn bucket(seed: u64) -> Self {
        Self::short(BUCKET, 400, seed)
    }

    /// More parties than places at a cyclic barrier.
    pub(crate) fn barrier(seed: u64) -> Self {
        Self {
            tasks: 3,
            ..Self::short(BARRIER, 200, seed)
        }
    }

    /// More parties than places at a double barrier.
    pub(crate) fn double(seed: u64) -> Self {
        Self {
            tasks: 3,
            ..Self::short(DOUBLE, 100, seed)
        }
    }

    /// Latches that end when nobody uses them.
    pub(crate) fn latch(seed: u64) -> Self {
        Self {
            tasks: 3,
            ..Self::short(LATCH, 30, seed)
        }
    }

    /// Two clients that meet now and then, with long leases and a longer poll: only messages, and asking again after
    /// every subscription, get a waiter its lock soon.
    pub(crate) fn encounters(seed: u64) -> Self {
        Self {
            weather: Weather::Fair,
            clients: 2,
            tasks: 1,
            names: &["orders"],
            think: Duration::from_secs(2),
            leases: vec![Duration::from_secs(30)],
            unrenewed: 0,
            poll_interval: Duration::from_secs(60),
            linger: Duration::from_millis(10),
            response_timeout: Duration::from_secs(1),
            prompt: Duration::from_millis(250),
            least: 300,
            ..Self::crowd(seed)
        }
    }

    /// A network so slow that it matters from when a lease counts, and leases that run out.
    pub(crate) fn laggards(seed: u64) -> Self {
        Self {
            weather: Weather::Sluggish,
            names: &["orders"],
            think: Duration::from_millis(300),
            leases: vec![Duration::from_millis(1_000), Duration::from_millis(1_500)],
            unrenewed: 4,
            poll_interval: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            least: 300,
            ..Self::crowd(seed)
        }
    }
}

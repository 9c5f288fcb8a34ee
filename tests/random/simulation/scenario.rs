//! The scenarios, each with the parameters of one simulation.

use std::time::Duration;

use stanchion::rwlock::Preference;

use crate::simulation::filter::Mutation;
use crate::simulation::kinds::Workload;
use crate::simulation::kinds::barrier::BARRIER;
use crate::simulation::kinds::double::DOUBLE;
use crate::simulation::kinds::election::ELECTION;
use crate::simulation::kinds::holds::HOLDS;
use crate::simulation::kinds::job::JOB;
use crate::simulation::kinds::latch::LATCH;
use crate::simulation::kinds::limiter::{BUCKET, LIMITER};
use crate::simulation::kinds::ticket::TICKETS;
use crate::simulation::primitives::Primitive;

/// A way to compute the end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reckoning {
    /// By the guard: the lease counts from the sending of the request.
    ByGuard,
    /// The planted bug: the lease counts from the receipt of the reply.
    FromReply,
}

/// The faults that are injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultMode {
    /// All faults, but the server keeps its data.
    All,
    /// All faults, and the server loses its data at some restarts.
    AllWithDataLoss,
    /// Slow links and late delivery only.
    SlowLinks,
    /// Normal latency only.
    Off,
}

/// The parameters of one simulation.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) workload: Workload,
    /// The primitive, for workloads with guards.
    pub(crate) primitive: Primitive,
    /// If true, tasks detach holds and adopt their tickets.
    pub(crate) tickets: bool,
    pub(crate) fault_mode: FaultMode,
    pub(crate) clients: u32,
    pub(crate) tasks: u32,
    pub(crate) names: &'static [&'static str],
    /// The longest pause between two acquires of a task.
    pub(crate) think: Duration,
    /// The leases that tasks choose from.
    pub(crate) leases: Vec<Duration>,
    /// The number of holds in ten that are not renewed. Half of them last longer than their lease.
    pub(crate) unrenewed: u8,
    pub(crate) poll_interval: Duration,
    pub(crate) linger: Duration,
    pub(crate) response_timeout: Duration,
    /// The time for which tasks work. Until `length` the simulation waits for their end.
    pub(crate) busy_for: Duration,
    /// The simulated time.
    pub(crate) length: Duration,
    /// In a calm phase a waiter acquires a free lock within this time.
    pub(crate) prompt: Duration,
    /// The least number of grants, or of other events that the kind counts. A simulation with fewer proves nothing.
    pub(crate) least: usize,
    pub(crate) reckoning: Reckoning,
    pub(crate) mutation: Option<Mutation>,
}

impl Scenario {
    /// Exclusive locks with many short waits and all faults.
    pub(crate) fn exclusive_locks(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let millis = |choices: &[u64], rng: &mut fastrand::Rng| {
            Duration::from_millis(choices[rng.usize(..choices.len())])
        };
        Self {
            seed,
            workload: HOLDS,
            primitive: Primitive::Lock,
            tickets: false,
            fault_mode: if seed.is_multiple_of(4) {
                FaultMode::AllWithDataLoss
            } else {
                FaultMode::All
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

    /// Fair locks. A queue entry of a killed process delays the others by the grace of 2 s.
    pub(crate) fn fair_locks(seed: u64) -> Self {
        Self {
            primitive: Primitive::FairLock,
            prompt: Duration::from_millis(3_500),
            least: 300,
            ..Self::exclusive_locks(seed)
        }
    }

    /// Read-write locks.
    ///
    /// The server keeps its data, because a reader has no token that shows whether its grant was before a data loss.
    pub(crate) fn read_write_locks(seed: u64) -> Self {
        Self {
            primitive: Primitive::RwLock(if seed.is_multiple_of(2) {
                Preference::Writer
            } else {
                Preference::Redisson
            }),
            fault_mode: FaultMode::All,
            // The mark of a killed writer blocks readers until its grace ends.
            prompt: Duration::from_millis(3_500),
            ..Self::exclusive_locks(seed)
        }
    }

    /// Three leased permits, with requests for one and for two. The server keeps its data here, too.
    pub(crate) fn leased_permits(seed: u64) -> Self {
        Self {
            primitive: Primitive::LeasedSemaphore(3),
            fault_mode: FaultMode::All,
            // The mark of a killed request for two permits blocks others until the mark expires.
            prompt: Duration::from_secs(8),
            ..Self::exclusive_locks(seed)
        }
    }

    /// A shorter scenario for another workload: two phases with faults and two calm phases.
    fn short(workload: Workload, least: usize, seed: u64) -> Self {
        Self {
            workload,
            fault_mode: FaultMode::All,
            names: &["orders"],
            leases: vec![Duration::from_millis(2_000)],
            busy_for: Duration::from_secs(200),
            length: Duration::from_secs(240),
            least,
            ..Self::exclusive_locks(seed)
        }
    }

    /// Elections: candidates campaign, lead, proclaim, hand over and resign. Observers watch.
    pub(crate) fn election(seed: u64) -> Self {
        let base = Self::exclusive_locks(seed);
        Self {
            primitive: Primitive::Election,
            fault_mode: base.fault_mode,
            leases: base.leases,
            unrenewed: 1,
            // Each killed candidate of higher priority delays the next term by 0.5 s, and a rest lasts up to 1.5 s.
            prompt: Duration::from_secs(5),
            ..Self::short(ELECTION, 80, seed)
        }
    }

    /// Tickets of locks, or of fair locks if the seed is even.
    pub(crate) fn tickets(seed: u64) -> Self {
        let base = Self::exclusive_locks(seed);
        Self {
            primitive: if seed.is_multiple_of(2) {
                Primitive::FairLock
            } else {
                Primitive::Lock
            },
            tickets: true,
            leases: base.leases,
            names: &["orders", "stock"],
            prompt: Duration::from_millis(3_500),
            ..Self::short(TICKETS, 40, seed)
        }
    }

    /// One job on machines with wrong clocks.
    pub(crate) fn job(seed: u64) -> Self {
        Self {
            tasks: 1,
            clients: 4,
            ..Self::short(JOB, 40, seed)
        }
    }

    /// A rate limiter with more demand than permits.
    pub(crate) fn limiter(seed: u64) -> Self {
        Self::short(LIMITER, 400, seed)
    }

    /// A token bucket with more demand than permits.
    pub(crate) fn bucket(seed: u64) -> Self {
        Self::short(BUCKET, 400, seed)
    }

    /// A cyclic barrier with more parties than places.
    pub(crate) fn barrier(seed: u64) -> Self {
        Self {
            tasks: 3,
            ..Self::short(BARRIER, 200, seed)
        }
    }

    /// A double barrier with more parties than places.
    pub(crate) fn double(seed: u64) -> Self {
        Self {
            tasks: 3,
            ..Self::short(DOUBLE, 100, seed)
        }
    }

    /// Latches that expire when they are idle.
    pub(crate) fn latch(seed: u64) -> Self {
        Self {
            tasks: 3,
            ..Self::short(LATCH, 30, seed)
        }
    }

    /// Exclusive locks without faults: two clients with long leases and a longer poll interval. A waiter is prompt only by messages and
    /// by the retry after every subscription.
    pub(crate) fn without_faults(seed: u64) -> Self {
        Self {
            fault_mode: FaultMode::Off,
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
            ..Self::exclusive_locks(seed)
        }
    }

    /// Exclusive locks on a network so slow that the start of a lease matters, with leases that run out.
    pub(crate) fn on_slow_links(seed: u64) -> Self {
        Self {
            fault_mode: FaultMode::SlowLinks,
            names: &["orders"],
            think: Duration::from_millis(300),
            leases: vec![Duration::from_millis(1_000), Duration::from_millis(1_500)],
            unrenewed: 4,
            poll_interval: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            least: 300,
            ..Self::exclusive_locks(seed)
        }
    }
}

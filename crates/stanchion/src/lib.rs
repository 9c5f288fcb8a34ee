//! Distributed synchronizers for Rust on Redis and Valkey.
//!
//! A stanchion is the post that holds the rope of a waiting line: first come, first served.
//!
//! ```
//! use std::time::Duration;
//! use stanchion::{Client, Lock};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), stanchion::Error> {
//! # let url = "memory://facade-doc";
//! let client = Client::connect(url).await?; // redis://, rediss://, unix://, memory://
//! let orders = Lock::new(&client, "orders")?;
//! let guard = orders.acquire_timeout(Duration::from_secs(5)).await?;
//! let total = guard.run(async { 1 + 1 }).await?; // dropped in time if the lock is lost
//! assert_eq!(total, 2);
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **No lease lock excludes a holder that is paused between its check and its write.** Give
//! [`LockGuard::fencing_token`] to the resource you write to, and let it refuse smaller ones.
//!
//! # Features
//!
//! None is on by default, and the default build compiles no C code.
//!
//! * `embedded`: `memory://` URLs, an engine inside the process, for tests, demos and single processes. Needs a C compiler.
//! * `tls`: `rediss://` URLs and the other TLS URLs. Needs a C compiler.
//! * `metrics`: counters and histograms through the `metrics` facade.
//! * `tower`: layers for HTTP services, such as axum's: one request at a time, idempotency keys, concurrency and rates.
//! * `blocking`: calls that block a thread, for code without an async runtime.
//!
//! # Names
//!
//! The root has what most programs write: the synchronizers, their guards, the client, options and errors. Each primitive has a module with
//! all of its names, also those of the root: its status, its options, its operations for operators. [`client`], [`hold`], [`error`],
//! [`events`], [`survey`] and [`console`] have the names that the primitives share.
//!
//! This crate only re-exports, except for the module `blocking`: each primitive is a crate of its own over `stanchion-core` and can be used alone.

// docs.rs builds with nightly and this cfg: the pages then show the feature of each item.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(inline)]
pub use barrier::{BarrierError, CyclicBarrier, DoubleBarrier};
#[doc(inline)]
pub use client::{
    Background, Client, ClientConfig, Moment, Secret, ServerUrl, ShutdownReport, Wake,
};
#[doc(inline)]
pub use election::{Election, Leadership};
#[doc(inline)]
pub use error::{
    AcquireError, AdoptError, ConfigError, ConnectError, Error, FreeBy, InvalidLease, InvalidName,
    LeaseLost, LostReason, Outage, QueryError, Rejection, ReleaseError, RenewError,
};
#[doc(inline)]
pub use events::{Event, Events};
#[doc(inline)]
pub use fair::{FairLock, FairLockGuard};
#[doc(inline)]
pub use hold::{
    Acquire, AcquireOptions, Ended, Fencing, FencingToken, Guard, HoldTicket, IdleExpiry, Lease,
    Lockable, Name, OnDeadlock, Owner, Reentry, Renewal,
};
#[doc(inline)]
pub use jobs::{Job, JobGuard, Tick};
#[doc(inline)]
pub use latch::CountDownLatch;
#[doc(inline)]
pub use limiter::{LimitError, Quota, RateLimiter, TokenBucket};
#[doc(inline)]
pub use lock::{Lock, LockGuard};
#[doc(inline)]
pub use multilock::{MultiGuard, MultiLock};
#[doc(inline)]
pub use redlock::{RedGuard, RedLock, RedLockError};
#[doc(inline)]
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
#[doc(inline)]
pub use semaphore::{LeasedPermit, LeasedSemaphore, Permit, Semaphore};
#[cfg(feature = "embedded")]
#[doc(inline)]
pub use stanchion_embedded as embedded;

/// Barriers: parties that wait for each other, once or in rounds.
pub mod barrier {
    #[doc(inline)]
    pub use stanchion_barrier::{
        BarrierDanger, BarrierError, BarrierStatus, BrokenBy, CyclicBarrier, DoubleBarrier,
        DoubleStatus, Inside, InvalidBarrier, OnLeave, Passed, WaitOptions,
    };
}

#[cfg(feature = "blocking")]
pub mod blocking;

/// The client, its settings, and the parts of it that a program can replace: clock, connections, observer.
pub mod client {
    #[doc(inline)]
    pub use stanchion_client::{
        AbandonedHold, Background, BootClock, ByteStream, Client, ClientConfig, Clock, Connector,
        Credentials, CredentialsProvider, Gauges, Moment, Observer, Placement, Presence, Process,
        Processes, Secret, ServerInfo, ServerUrl, ShutdownReport, TokioClock, Wake,
    };
}

/// Plain commands to the servers of a client, for operators' tools.
pub mod console {
    #[doc(inline)]
    pub use stanchion_client::{Console, Printable, Reply, Tracked};
}

/// Leader election: candidates, terms, and the work of a leader.
pub mod election {
    #[doc(inline)]
    pub use stanchion_election::{
        CampaignOptions, Candidate, Challenge, Election, ElectionDanger, Lead, LeadEnd, Leader,
        Leaders, Leadership, Observed, Stop, Term, TermEnd, WorkError,
    };
}

/// The errors that primitives share. An error of one primitive is in the module of the primitive.
pub mod error {
    #[doc(inline)]
    pub use stanchion_client::{
        AcquireError, AdoptError, ConfigError, ConnectError, Error, FreeBy, InvalidDuration,
        InvalidLease, InvalidName, InvalidTicket, LeaseLost, LostReason, NameRule, Outage,
        QueryError, Rejection, ReleaseError, RenewError, ServerRejection,
    };
}

/// The events of a name, in any process.
pub mod events {
    #[doc(inline)]
    pub use stanchion_client::{Event, Events, HoldMode, NameHolder, NameState};
}

/// The fair lock: one queue over all processes.
pub mod fair {
    #[doc(inline)]
    pub use stanchion_fair::{FairDanger, FairHolder, FairLock, FairLockGuard, FairLockStatus};
}

/// The parts that acquires and holds of all primitives share: names, owners, options, leases, tokens, tickets.
pub mod hold {
    #[doc(inline)]
    pub use stanchion_client::{
        Acquire, AcquireOptions, Acquiring, Anything, Asked, Ended, Fencing, FencingToken, Guard,
        Held, HoldTicket, IdleExpiry, Lease, Lockable, MAX_NAME_BYTES, Name, OnDeadlock, Owner,
        Reentry, ReleaseRequest, Renewal, WireOwner,
    };
}

/// Scheduled jobs that run once, although many machines have the schedule.
pub mod jobs {
    #[doc(inline)]
    pub use stanchion_jobs::{
        Activity, Begun, InvalidTick, Job, JobGuard, JobHolder, JobRun, JobStatus, LastRun,
        Outcome, Tick,
    };
}

/// The count-down latch.
pub mod latch {
    #[doc(inline)]
    pub use stanchion_latch::{CountDownLatch, LatchDanger};
}

/// Rate limiters.
pub mod limiter {
    #[doc(inline)]
    pub use stanchion_limiter::{
        Attempt, BucketStatus, Grant, InvalidQuota, Limit, LimitError, Limited, LimiterDanger,
        LimiterStatus, Quota, QuotaScope, RateLimiter, TokenBucket, Usage, Waiting,
    };
    #[cfg(feature = "tower")]
    #[doc(inline)]
    pub use stanchion_limiter::{LayerError, LimitLayer, LimitService, Limiting};
}

/// The reentrant lock.
pub mod lock {
    #[doc(inline)]
    pub use stanchion_lock::{Danger, Holder, Lock, LockGuard, LockStatus};
}

/// Several locks as one, all or nothing.
pub mod multilock {
    #[doc(inline)]
    pub use stanchion_multilock::{InvalidMembers, MultiDanger, MultiGuard, MultiLock};
}

/// One lock on a quorum of independent servers.
pub mod redlock {
    #[doc(inline)]
    pub use stanchion_redlock::{
        InvalidNodes, NodeOutcome, NodeReport, RedGuard, RedLock, RedLockError,
    };
}

/// The read-write lock: many readers or one writer.
pub mod rwlock {
    #[doc(inline)]
    pub use stanchion_rwlock::{
        Preference, ReadGuard, Reading, RwLock, RwLockDanger, RwLockHolder, RwLockSide,
        RwLockStatus, WriteGuard, Writing,
    };
}

/// Semaphores: at most n permits, with or without a lease.
pub mod semaphore {
    #[doc(inline)]
    pub use stanchion_semaphore::{
        HeldPermit, InvalidPermitId, LeasedDanger, LeasedPermit, LeasedSemaphore, LeasedStatus,
        Permit, PermitHolder, PermitId, Semaphore, SemaphoreDanger, SemaphoreStatus,
    };
}

/// Holds and waits of all clients, and deadlocks among them.
pub mod survey {
    #[doc(inline)]
    pub use stanchion_client::{
        Actor, Certainty, Deadlock, DeadlockEdge, DeadlockParty, InTheWay, OnDeadlock, Survey,
        SurveyedClient, SurveyedHold, SurveyedName, SurveyedWait, Unreached,
    };
}

/// Layers for HTTP services of tower, such as axum's, whose limits hold for a whole fleet.
#[cfg(feature = "tower")]
pub mod tower {
    #[doc(inline)]
    pub use stanchion_tower::{
        Claim, ConcurrencyLayer, HoldService, IdempotencyLayer, IdempotencyService, Locked,
        MAX_RESPONSE_BYTES, OneAtATimeLayer, RateLimitLayer, RateLimitService, Refusal,
        ResponseBody,
    };
}

/// The items that most programs need.
pub mod prelude {
    pub use crate::{
        Acquire, AcquireError, AcquireOptions, Client, CountDownLatch, CyclicBarrier,
        DoubleBarrier, Election, Error, FairLock, FairLockGuard, FencingToken, Guard, Job,
        Leadership, Lease, LeaseLost, LeasedPermit, LeasedSemaphore, Lock, LockGuard, Lockable,
        MultiGuard, MultiLock, Permit, Quota, RateLimiter, ReadGuard, RedGuard, RedLock, Renewal,
        RwLock, Semaphore, Tick, TokenBucket, WriteGuard,
    };
}

/// The programs of the README and of the book, as doc tests on the embedded engine. `tests/facade/book` runs those that are marked
/// `ignore`.
#[cfg(all(doctest, feature = "embedded"))]
mod book {
    macro_rules! pages {
        ($($name:ident: $path:literal,)*) => { $(#[doc = include_str!($path)] struct $name;)* };
    }

    pages! {
        Readme: "../README.md",
        Root: "../../../README.md",
        Introduction: "../../../docs/README.md",
        Integrating: "../../../docs/integrating.md",
        Lock: "../../../docs/primitives/lock.md",
        Fair: "../../../docs/primitives/fair.md",
        RwLock: "../../../docs/primitives/rwlock.md",
        Semaphore: "../../../docs/primitives/semaphore.md",
        Latch: "../../../docs/primitives/latch.md",
        Limiter: "../../../docs/primitives/limiter.md",
        Lost: "../../../docs/lost.md",
        MultiLock: "../../../docs/primitives/multilock.md",
        RedLock: "../../../docs/primitives/redlock.md",
        Election: "../../../docs/primitives/election.md",
        Barrier: "../../../docs/primitives/barrier.md",
        Jobs: "../../../docs/primitives/jobs.md",
        Events: "../../../docs/events.md",
        Rights: "../../../docs/running/rights.md",
        Monitoring: "../../../docs/running/monitoring.md",
        Deadlocks: "../../../docs/running/deadlocks.md",
    }

    #[cfg(feature = "blocking")]
    pages! {
        Blocking: "../../../docs/blocking.md",
    }

    #[cfg(feature = "tower")]
    pages! {
        Tower: "../../../docs/tower.md",
    }
}

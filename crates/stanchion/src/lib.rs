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
//! * `tower`: a layer that lets requests through at the rate of a limiter.
//!
//! This crate only re-exports: each primitive is a crate of its own over `stanchion-core` and can be used alone.

#[doc(inline)]
pub use stanchion_barrier::{
    BarrierDanger, BarrierError, BarrierStatus, BrokenBy, CyclicBarrier, DoubleBarrier,
    DoubleStatus, Inside, InvalidBarrier, OnLeave, Passed, WaitOptions,
};
#[doc(inline)]
pub use stanchion_client::{
    AbandonedHold, Acquire, AcquireError, AcquireOptions, Acquiring, Actor, AdoptError, Asked,
    Background, BootClock, ByteStream, Certainty, Client, ClientConfig, Clock, ConfigError,
    ConnectError, Connector, Console, Credentials, CredentialsProvider, Deadlock, DeadlockEdge,
    DeadlockParty, Ended, Error, Event, Events, Fencing, FencingToken, FreeBy, Gauges, Guard, Held,
    HoldMode, HoldTicket, IdleExpiry, InTheWay, InvalidIdleExpiry, InvalidLease, InvalidName,
    InvalidTicket, Lease, LeaseLost, Lockable, LostReason, MAX_NAME_BYTES, Moment, Name,
    NameHolder, NameRule, NameState, Observer, OnDeadlock, Outage, Owner, Placement, Presence,
    Printable, Process, QueryError, Reentry, Rejection, ReleaseError, ReleaseRequest, RenewError,
    Renewal, Reply, Secret, ServerInfo, ServerRejection, ServerUrl, ShutdownReport, Survey,
    SurveyedClient, SurveyedHold, SurveyedName, SurveyedWait, TokioClock, Tracked, Wake, WireOwner,
};
#[doc(inline)]
pub use stanchion_election::{
    CampaignOptions, Candidate, Challenge, Election, ElectionDanger, Lead, LeadEnd, Leader,
    Leaders, Leadership, Observed, Stop, Term, TermEnd,
};
#[cfg(feature = "embedded")]
#[doc(inline)]
pub use stanchion_embedded as embedded;
#[doc(inline)]
pub use stanchion_fair::{FairDanger, FairHolder, FairLock, FairLockGuard, FairLockStatus};
#[doc(inline)]
pub use stanchion_jobs::{
    Activity, Begun, InvalidTick, Job, JobGuard, JobHolder, JobRun, JobStatus, LastRun, Outcome,
    Tick,
};
#[doc(inline)]
pub use stanchion_latch::CountDownLatch;
#[doc(inline)]
pub use stanchion_limiter::{
    Attempt, BucketStatus, Grant, InvalidQuota, Limit, LimitError, Limited, LimiterStatus, Quota,
    QuotaScope, RateLimiter, TokenBucket, Usage, Waiting,
};
#[cfg(feature = "tower")]
#[doc(inline)]
pub use stanchion_limiter::{LayerError, LimitLayer, LimitService, Limiting};
#[doc(inline)]
pub use stanchion_lock::{Danger, Holder, Lock, LockGuard, LockStatus};
#[doc(inline)]
pub use stanchion_multilock::{InvalidMembers, MultiDanger, MultiGuard, MultiLock};
#[doc(inline)]
pub use stanchion_redlock::{
    InvalidNodes, NodeOutcome, NodeReport, RedGuard, RedLock, RedLockError,
};
#[doc(inline)]
pub use stanchion_rwlock::{
    Preference, ReadGuard, RwLock, RwLockDanger, RwLockHolder, RwLockSide, RwLockStatus, WriteGuard,
};
#[doc(inline)]
pub use stanchion_semaphore::{
    HeldPermit, InvalidPermitId, LeasedDanger, LeasedPermit, LeasedSemaphore, LeasedStatus, Permit,
    PermitHolder, PermitId, Semaphore, SemaphoreDanger, SemaphoreStatus,
};

/// The items that most programs need.
pub mod prelude {
    pub use crate::{
        Acquire, AcquireOptions, Client, CountDownLatch, CyclicBarrier, DoubleBarrier, Election,
        FairLock, FairLockGuard, Guard, Job, Leadership, Lease, LeasedPermit, LeasedSemaphore,
        Lock, LockGuard, Lockable, MultiGuard, MultiLock, Permit, Quota, RateLimiter, ReadGuard,
        RedGuard, RedLock, RwLock, Semaphore, TokenBucket, WriteGuard,
    };
}

/// The programs of the README and of the book, as doc tests on the embedded engine. `tests/book` runs those that are marked
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
        MultiLock: "../../../docs/primitives/multilock.md",
        RedLock: "../../../docs/primitives/redlock.md",
        Election: "../../../docs/primitives/election.md",
        Barrier: "../../../docs/primitives/barrier.md",
        Jobs: "../../../docs/primitives/jobs.md",
        Events: "../../../docs/events.md",
        Operations: "../../../docs/operations.md",
    }
}

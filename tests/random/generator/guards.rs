//! One type for all guards and results, and the call behind each acquire.
//!
//! Long: one table, or one case for each kind.

use std::future::Future;
use std::pin::Pin;

use stanchion::barrier::Inside;
use stanchion::election::Term;
use stanchion::jobs::JobRun;
use stanchion::limiter::Grant;
use stanchion::rwlock::Preference;
use stanchion::{
    AcquireError, AcquireOptions, Client, CountDownLatch, FairLock, FairLockGuard, Fencing,
    JobGuard, Leadership, Lease, LeasedPermit, LeasedSemaphore, Lock, LockGuard, Lockable,
    LostReason, Moment, MultiGuard, MultiLock, OnDeadlock, Owner, Permit, ReadGuard, RedGuard,
    RedLock, ReleaseError, RenewError, Renewal, RwLock, Semaphore, Tick, WriteGuard,
};

use crate::generator::barriers::{self, BarrierEnd};
use crate::generator::program::{CallOptions, Target};
use crate::generator::{roles, span};

/// The lease of calls that set none, in milliseconds.
pub(crate) const LEASE: u16 = 3_000;

pub(crate) type Call = Pin<Box<dyn Future<Output = Result<Option<Acquired>, AcquireError>> + Send>>;
type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The result of an acquire: a guard, or the end of a call without a guard.
pub(crate) enum Acquired {
    Lock(LockGuard),
    Fair(FairLockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
    Leased(LeasedPermit),
    Multi(MultiGuard),
    Red(RedGuard),
    Term(Leadership),
    Job(JobGuard),
    /// Permits of a limiter, which are used up or refunded.
    Grant(Grant),
    /// The views that the work of a leader and of a job gets of a hold. The library keeps the guard.
    TermView(Term),
    Run(JobRun),
    Inside(Inside),
    /// The end of a wait at a barrier, without a guard.
    BarrierEnd(BarrierEnd),
    /// The end of a wait at a latch or for a free lock, without a guard. Also a placeholder for a guard that was moved out.
    Passed,
    /// A job did not begin: `Ran` because a tick has run, `Skipped` because another run holds the lock or the job rests.
    Ran(Tick),
    Skipped,
}

/// Calls a verb of any guard. Guards without a lease have none of these verbs.
macro_rules! each {
    ($acquired:expr, $guard:ident => $verb:expr, else $other:expr) => {
        match $acquired {
            Acquired::Lock($guard) => $verb,
            Acquired::Fair($guard) => $verb,
            Acquired::Read($guard) => $verb,
            Acquired::Write($guard) => $verb,
            Acquired::Leased($guard) => $verb,
            Acquired::Multi($guard) => $verb,
            Acquired::Red($guard) => $verb,
            Acquired::Term($guard) => $verb,
            Acquired::Job($guard) => $verb,
            _ => $other,
        }
    };
}

impl Acquired {
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::TermView(term) => term.is_held(),
            Self::Run(run) => run.is_held(),
            Self::Inside(inside) => inside.is_held(),
            _ => each!(self, guard => guard.is_held(), else true),
        }
    }

    pub(crate) fn valid_until(&self) -> Option<Moment> {
        each!(self, guard => Some(guard.valid_until()), else None)
    }

    pub(crate) fn lost(&self) -> Option<Later<LostReason>> {
        if let Self::Inside(inside) = self {
            return Some(Box::pin(inside.lost()));
        }
        each!(self, guard => Some(Box::pin(guard.lost())), else None)
    }

    pub(crate) async fn renew(&self) -> Result<(), RenewError> {
        each!(self, guard => guard.renew().await, else Ok(()))
    }

    pub(crate) async fn renew_for(&self, millis: u16) -> Result<(), RenewError> {
        let lease = lease(millis);
        each!(self, guard => guard.renew_for(lease).await, else Ok(()))
    }

    /// Returns whether work can run under the guard.
    pub(crate) fn runs(&self) -> bool {
        self.valid_until().is_some() || matches!(self, Self::Inside(_))
    }

    pub(crate) async fn run<F: Future>(&self, work: F) -> Option<F::Output> {
        if let Self::Inside(inside) = self {
            return inside.run(work).await.ok();
        }
        each!(self, guard => guard.run(work).await.ok(), else None)
    }

    pub(crate) fn release(self) -> Later<Result<(), ReleaseError>> {
        match self {
            Self::Lock(guard) => Box::pin(guard.release()),
            Self::Fair(guard) => Box::pin(guard.release()),
            Self::Read(guard) => Box::pin(guard.release()),
            Self::Write(guard) => Box::pin(guard.release()),
            Self::Permit(guard) => Box::pin(guard.release()),
            Self::Leased(guard) => Box::pin(guard.release()),
            Self::Multi(guard) => Box::pin(guard.release()),
            Self::Red(guard) => Box::pin(guard.release()),
            Self::Term(guard) => Box::pin(guard.step_down()),
            Self::Job(guard) => Box::pin(guard.release()),
            Self::Grant(grant) => Box::pin(async { grant.refund().await.map(drop) }),
            _ => Box::pin(async { Ok(()) }),
        }
    }

    /// The holder as the server stores it, for exclusive locks.
    pub(crate) fn owner(&self) -> Option<String> {
        match self {
            Self::Lock(guard) => Some(guard.owner().to_string()),
            Self::Fair(guard) => Some(guard.owner().to_string()),
            Self::Write(guard) => Some(format!("{}:write", guard.owner())),
            Self::Term(term) => Some(term.id().to_owned()),
            _ => None,
        }
    }

    /// Returns whether the guard has a `reenter` method.
    pub(crate) fn is_reentrant(&self) -> bool {
        matches!(
            self,
            Self::Lock(_) | Self::Fair(_) | Self::Read(_) | Self::Write(_)
        )
    }

    pub(crate) async fn reenter(&self) -> Option<Result<Self, RenewError>> {
        Some(match self {
            Self::Lock(guard) => guard.reenter().await.map(Self::Lock),
            Self::Fair(guard) => guard.reenter().await.map(Self::Fair),
            Self::Read(guard) => guard.reenter().await.map(Self::Read),
            Self::Write(guard) => guard.reenter().await.map(Self::Write),
            _ => return None,
        })
    }

    /// The fencing token for `name`, if the guard has one.
    pub(crate) fn token(&self, name: &str) -> Option<u64> {
        match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Fair(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
            Self::Multi(guard) => guard.fencing_token(name),
            Self::Term(guard) => guard.fencing_token(),
            Self::Job(guard) => guard.fencing_token(),
            Self::TermView(term) => term.fencing_token(),
            Self::Run(run) => run.fencing_token(),
            _ => None,
        }
        .map(stanchion::FencingToken::get)
    }
}

/// Makes the call for `target`. `clients` maps numbers to clients; `nodes` are the clients of a RedLock.
pub(crate) fn call(
    clients: &dyn Fn(u8) -> Option<Client>,
    client: u8,
    nodes: &[Client],
    target: &Target,
    opts: CallOptions,
    owner: Option<&Owner>,
) -> Option<Call> {
    let it = clients(client)?;
    let options = options(opts, owner);
    let lease = lease(LEASE);
    let tries = opts.tries;
    macro_rules! acquire {
        ($handle:expr, $guard:path, $wait:ident, $try:ident) => {{
            let handle = $handle;
            Box::pin(async move {
                if tries {
                    Ok(handle.$try(options).await?.map($guard))
                } else {
                    Ok(Some($guard(handle.$wait(options).await?)))
                }
            })
        }};
    }
    macro_rules! locking {
        ($handle:expr, $guard:path) => {
            acquire!($handle.lease(lease), $guard, acquire_with, try_acquire_with)
        };
    }
    Some(match target {
        Target::Lock(_) | Target::Unfenced(_) | Target::NameFenced(_) => {
            locking!(lock(&it, target)?, Acquired::Lock)
        }
        Target::Fair(name) => locking!(FairLock::new(&it, name).ok()?, Acquired::Fair),
        Target::Read(name) | Target::WriterFirstRead(name) => {
            let lock = rwlock(&it, name, target)?.lease(lease);
            acquire!(lock, Acquired::Read, read_with, try_read_with)
        }
        Target::Write(name) | Target::WriterFirstWrite(name) => {
            let lock = rwlock(&it, name, target)?.lease(lease);
            acquire!(lock, Acquired::Write, write_with, try_write_with)
        }
        Target::Multi(members) => {
            let parts: Option<Vec<_>> = members
                .iter()
                .map(|(client, target)| member(&clients(*client)?, target))
                .collect();
            let parts = parts?;
            let lock = MultiLock::new(parts.iter().map(|part| &**part)).ok()?;
            acquire!(lock, Acquired::Multi, acquire_with, try_acquire_with)
        }
        Target::Red(name) => {
            locking!(RedLock::new(nodes, name).ok()?, Acquired::Red)
        }
        Target::Permits(name, permits) => {
            let (pool, permits) = (Semaphore::new(&it, name).ok()?, *permits);
            Box::pin(async move {
                Ok(match opts.timeout {
                    _ if tries => pool.try_acquire_many(permits).await?.map(Acquired::Permit),
                    Some(timeout) => Some(Acquired::Permit(
                        pool.acquire_many_timeout(permits, span(timeout)).await?,
                    )),
                    None => Some(Acquired::Permit(pool.acquire_many(permits).await?)),
                })
            })
        }
        Target::Leased(name, permits) => {
            let (pool, permits) = (LeasedSemaphore::new(&it, name).ok()?, *permits);
            let pool = pool.lease(lease);
            Box::pin(async move {
                Ok(if tries {
                    pool.try_acquire_with(permits, options)
                        .await?
                        .map(Acquired::Leased)
                } else {
                    Some(Acquired::Leased(pool.acquire_with(permits, options).await?))
                })
            })
        }
        Target::Latch(name) => {
            let latch = CountDownLatch::new(&it, name).ok()?;
            Box::pin(async move {
                match opts.timeout {
                    Some(timeout) => latch.wait_timeout(span(timeout)).await?,
                    None => latch.wait().await?,
                }
                Ok(Some(Acquired::Passed))
            })
        }
        Target::WaitFree(name) => {
            let lock = Lock::new(&it, name).ok()?;
            Box::pin(async move {
                lock.wait_free(opts.timeout.map(span)).await?;
                Ok(Some(Acquired::Passed))
            })
        }
        Target::Barrier(name, parties, breaks) => {
            barriers::wait(&it, name, *parties, *breaks, opts)?
        }
        Target::DoubleBarrier(name, parties) => barriers::enter(&it, name, *parties, opts)?,
        Target::Leader(name, priority) => roles::campaign(&it, name, *priority, options, tries)?,
        Target::Job(name, tick, least) => roles::begin(&it, name, *tick, *least, opts)?,
        Target::Rate(name, permits) => roles::rated(&it, name, *permits, opts)?,
        Target::Bucket(name, permits) => roles::bucketed(&it, name, *permits, opts)?,
    })
}

pub(crate) fn options(opts: CallOptions, owner: Option<&Owner>) -> AcquireOptions {
    let mut options = AcquireOptions::new();
    if let Some(owner) = owner {
        options = options.owner(owner);
    }
    if let Some(millis) = opts.lease {
        options = options.lease(lease(millis));
    }
    if opts.manual {
        options = options.renewal(Renewal::Manual);
    }
    if let Some(max) = opts.max_hold {
        options = options.max_hold(span(max));
    }
    if let Some(rest) = opts.rest {
        options = options.rest_after_crash(span(rest));
    }
    if opts.fails {
        options = options.on_deadlock(OnDeadlock::Fail);
    }
    if opts.refuses_reentry {
        options = options.reentry(stanchion::Reentry::Refused);
    }
    match opts.timeout {
        Some(timeout) => options.timeout(span(timeout)),
        None => options,
    }
}

pub(crate) fn lease(millis: u16) -> Lease {
    Lease::new(span(millis)).unwrap_or_default()
}

/// A lock, with the source of its tokens.
fn lock(client: &Client, target: &Target) -> Option<Lock> {
    let (name, fencing) = match target {
        Target::Lock(name) => (name, Fencing::default()),
        Target::Unfenced(name) => (name, Fencing::Off),
        Target::NameFenced(name) => (name, Fencing::PerName),
        _ => return None,
    };
    Some(Lock::new(client, name).ok()?.fencing(fencing))
}

fn rwlock(client: &Client, name: &str, target: &Target) -> Option<RwLock> {
    let lock = RwLock::new(client, name).ok()?;
    Some(match target {
        Target::WriterFirstRead(_) | Target::WriterFirstWrite(_) => {
            lock.preference(Preference::Writer)
        }
        _ => lock,
    })
}

fn member(client: &Client, target: &Target) -> Option<Box<dyn Lockable>> {
    let lease = lease(LEASE);
    Some(match target {
        Target::Lock(_) | Target::Unfenced(_) | Target::NameFenced(_) => {
            Box::new(lock(client, target)?.lease(lease))
        }
        Target::Fair(name) => Box::new(FairLock::new(client, name).ok()?.lease(lease)),
        Target::Read(name) | Target::WriterFirstRead(name) => {
            Box::new(rwlock(client, name, target)?.lease(lease).read_side())
        }
        Target::Write(name) | Target::WriterFirstWrite(name) => {
            Box::new(rwlock(client, name, target)?.lease(lease).write_side())
        }
        _ => return None,
    })
}

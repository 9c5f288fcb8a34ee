//! One face for every guard, and the call behind every acquire.
//!
//! Long: one table, or one case for each kind.

use std::future::Future;
use std::pin::Pin;

use stanchion::{
    AcquireError, AcquireOptions, Client, CountDownLatch, FairLock, FairLockGuard, Fencing, Grant,
    Inside, JobGuard, JobRun, Leadership, Lease, LeasedPermit, LeasedSemaphore, Lock, LockGuard,
    Lockable, LostReason, Moment, MultiGuard, MultiLock, OnDeadlock, Owner, Permit, Preference,
    ReadGuard, RedGuard, RedLock, ReleaseError, RenewError, Renewal, RwLock, Semaphore, Term, Tick,
    WriteGuard,
};

use crate::meetings::{self, Met};
use crate::program::{Ask, What};
use crate::{roles, span};

/// The lease of whatever names none.
pub(crate) const LEASE: u16 = 3_000;

pub(crate) type Call = Pin<Box<dyn Future<Output = Result<Option<Thing>, AcquireError>> + Send>>;
type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The result of a call.
pub(crate) enum Thing {
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
    /// Permits of a limiter: used up, and perhaps refunded.
    Grant(Grant),
    /// The views that work has of what somebody else holds.
    Reign(Term),
    Run(JobRun),
    Inside(Inside),
    /// The end of a wait at a barrier, which leaves nothing in the hand.
    Met(Met),
    /// A latch leaves nothing in the hand.
    Passed,
    /// A job that did not begin: the last tick that has run, or somebody runs.
    Ran(Tick),
    Skipped,
}

/// Calls the same verb of any guard; guards without a lease have none of these verbs.
macro_rules! each {
    ($thing:expr, $guard:ident => $verb:expr, else $other:expr) => {
        match $thing {
            Thing::Lock($guard) => $verb,
            Thing::Fair($guard) => $verb,
            Thing::Read($guard) => $verb,
            Thing::Write($guard) => $verb,
            Thing::Leased($guard) => $verb,
            Thing::Multi($guard) => $verb,
            Thing::Red($guard) => $verb,
            Thing::Term($guard) => $verb,
            Thing::Job($guard) => $verb,
            _ => $other,
        }
    };
}

impl Thing {
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Reign(term) => term.is_held(),
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

    /// Returns whether work can run under it.
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

    /// The holder that the server has, of a lock of its own.
    pub(crate) fn owner(&self) -> Option<String> {
        match self {
            Self::Lock(guard) => Some(guard.owner().to_string()),
            Self::Fair(guard) => Some(guard.owner().to_string()),
            Self::Write(guard) => Some(format!("{}:write", guard.owner())),
            _ => None,
        }
    }

    /// Returns whether it can be held once more.
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

    /// The token for `name`; `None` inside: there is none.
    pub(crate) fn token(&self, name: &str) -> Option<u64> {
        match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Fair(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
            Self::Multi(guard) => guard.fencing_token(name),
            Self::Term(guard) => guard.fencing_token(),
            Self::Job(guard) => guard.fencing_token(),
            Self::Reign(term) => term.fencing_token(),
            Self::Run(run) => run.fencing_token(),
            _ => None,
        }
        .map(stanchion::FencingToken::get)
    }
}

/// The call for `what`. `clients`: by number; those that a multi-lock or RedLock needs, too.
pub(crate) fn call(
    clients: &dyn Fn(u8) -> Option<Client>,
    client: u8,
    nodes: &[Client],
    what: &What,
    ask: Ask,
    owner: Option<&Owner>,
) -> Option<Call> {
    let it = clients(client)?;
    let options = options(ask, owner);
    let lease = lease(LEASE);
    let tries = ask.tries;
    macro_rules! asking {
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
            asking!(
                $handle.with_lease(lease),
                $guard,
                acquire_with,
                try_acquire_with
            )
        };
    }
    Some(match what {
        What::Lock(name) => locking!(Lock::new(&it, name).ok()?, Thing::Lock),
        What::Bare(name) => {
            locking!(
                Lock::new(&it, name).ok()?.with_fencing(Fencing::Off),
                Thing::Lock
            )
        }
        What::Own(name) => {
            locking!(
                Lock::new(&it, name).ok()?.with_fencing(Fencing::PerName),
                Thing::Lock
            )
        }
        What::Fair(name) => locking!(FairLock::new(&it, name).ok()?, Thing::Fair),
        What::Read(name) | What::PoliteRead(name) => {
            let lock = rwlock(&it, name, what)?.with_lease(lease);
            asking!(lock, Thing::Read, read_with, try_read_with)
        }
        What::Write(name) | What::PoliteWrite(name) => {
            let lock = rwlock(&it, name, what)?.with_lease(lease);
            asking!(lock, Thing::Write, write_with, try_write_with)
        }
        What::Multi(members) => {
            let parts: Option<Vec<_>> = members
                .iter()
                .map(|(client, what)| member(&clients(*client)?, what))
                .collect();
            let parts = parts?;
            let lock = MultiLock::new(parts.iter().map(|part| &**part)).ok()?;
            asking!(lock, Thing::Multi, acquire_with, try_acquire_with)
        }
        What::Red(name) => {
            let lock = RedLock::new(nodes, name).ok()?.with_lease(lease);
            Box::pin(async move {
                if tries {
                    Ok(lock.try_acquire_with(options).await?.map(Thing::Red))
                } else {
                    Ok(Some(Thing::Red(lock.acquire_with(options).await?)))
                }
            })
        }
        What::Permits(name, permits) => {
            let (pool, permits) = (Semaphore::new(&it, name).ok()?, *permits);
            Box::pin(async move {
                Ok(match ask.timeout {
                    _ if tries => pool.try_acquire_many(permits).await?.map(Thing::Permit),
                    Some(timeout) => Some(Thing::Permit(
                        pool.acquire_many_timeout(permits, span(timeout)).await?,
                    )),
                    None => Some(Thing::Permit(pool.acquire_many(permits).await?)),
                })
            })
        }
        What::Leased(name, permits) => {
            let (pool, permits) = (LeasedSemaphore::new(&it, name).ok()?, *permits);
            let pool = pool.with_lease(lease);
            Box::pin(async move {
                Ok(if tries {
                    pool.try_acquire_with(permits, options)
                        .await?
                        .map(Thing::Leased)
                } else {
                    Some(Thing::Leased(pool.acquire_with(permits, options).await?))
                })
            })
        }
        What::Latch(name) => {
            let latch = CountDownLatch::new(&it, name).ok()?;
            Box::pin(async move {
                match ask.timeout {
                    Some(timeout) => latch.wait_timeout(span(timeout)).await?,
                    None => latch.wait().await?,
                }
                Ok(Some(Thing::Passed))
            })
        }
        What::Free(name) => {
            let lock = Lock::new(&it, name).ok()?;
            Box::pin(async move {
                lock.wait_free(ask.timeout.map(span)).await?;
                Ok(Some(Thing::Passed))
            })
        }
        What::Meet(name, parties, breaks) => meetings::meet(&it, name, *parties, *breaks, ask)?,
        What::Inside(name, parties) => meetings::enter(&it, name, *parties, ask)?,
        What::Leader(name, priority) => roles::campaign(&it, name, *priority, options, tries)?,
        What::Job(name, tick, least) => roles::begin(&it, name, *tick, *least, ask)?,
        What::Rate(name, permits) => roles::rated(&it, name, *permits, ask)?,
        What::Bucket(name, permits) => roles::bucketed(&it, name, *permits, ask)?,
    })
}

pub(crate) fn options(ask: Ask, owner: Option<&Owner>) -> AcquireOptions {
    let mut options = AcquireOptions::new();
    if let Some(owner) = owner {
        options = options.owner(owner);
    }
    if let Some(millis) = ask.lease {
        options = options.lease(lease(millis));
    }
    if ask.manual {
        options = options.renewal(Renewal::Manual);
    }
    if let Some(max) = ask.max_hold {
        options = options.max_hold(span(max));
    }
    if let Some(rest) = ask.rest {
        options = options.rest_after_crash(span(rest));
    }
    if ask.fails {
        options = options.on_deadlock(OnDeadlock::Fail);
    }
    if ask.refuses_reentry {
        options = options.reentry(stanchion::Reentry::Refused);
    }
    match ask.timeout {
        Some(timeout) => options.timeout(span(timeout)),
        None => options,
    }
}

pub(crate) fn lease(millis: u16) -> Lease {
    Lease::new(span(millis)).unwrap_or_default()
}

fn rwlock(client: &Client, name: &str, what: &What) -> Option<RwLock> {
    let lock = RwLock::new(client, name).ok()?;
    Some(match what {
        What::PoliteRead(_) | What::PoliteWrite(_) => lock.with_preference(Preference::Writer),
        _ => lock,
    })
}

fn member(client: &Client, what: &What) -> Option<Box<dyn Lockable>> {
    let lease = lease(LEASE);
    Some(match what {
        What::Lock(name) => Box::new(Lock::new(client, name).ok()?.with_lease(lease)),
        What::Bare(name) => Box::new(
            Lock::new(client, name)
                .ok()?
                .with_fencing(Fencing::Off)
                .with_lease(lease),
        ),
        What::Own(name) => Box::new(
            Lock::new(client, name)
                .ok()?
                .with_fencing(Fencing::PerName)
                .with_lease(lease),
        ),
        What::Fair(name) => Box::new(FairLock::new(client, name).ok()?.with_lease(lease)),
        What::Read(name) | What::PoliteRead(name) => {
            Box::new(rwlock(client, name, what)?.with_lease(lease).read_side())
        }
        What::Write(name) | What::PoliteWrite(name) => {
            Box::new(rwlock(client, name, what)?.with_lease(lease).write_side())
        }
        _ => return None,
    })
}

//! One interface to all primitives that have a lease, so that they run under the same faults.

use std::time::Duration;

use stanchion::election::CampaignOptions;
use stanchion::rwlock::Preference;
use stanchion::{
    AcquireError, AcquireOptions, AdoptError, Client, Election, Error, FairLock, FairLockGuard,
    FencingToken, HoldTicket, JobGuard, Leadership, Lease, LeasedPermit, LeasedSemaphore, Lock,
    LockGuard, LostReason, Moment, ReadGuard, ReleaseError, RenewError, RwLock, WriteGuard,
};
use stanchion_testkit::Mode;

/// The simulated primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Primitive {
    Lock,
    FairLock,
    /// Two of three acquires are for reading.
    RwLock(Preference),
    /// The number of leased permits. An acquire is for one or two.
    LeasedSemaphore(u32),
    /// A hold is a term of a leader.
    Election,
}

/// One name of a primitive.
#[derive(Clone, Debug)]
pub(crate) enum Contested {
    /// For a guard that was not acquired through this interface.
    Nothing,
    Lock(Lock),
    FairLock(FairLock),
    RwLock(RwLock),
    LeasedSemaphore(LeasedSemaphore),
    /// The election, and the priority and the rest of the next campaign.
    Election(Election, i32, Duration),
}

impl Contested {
    pub(crate) async fn new(
        primitive: Primitive,
        client: &Client,
        name: &str,
    ) -> Result<Self, Error> {
        Ok(match primitive {
            Primitive::Lock => Self::Lock(Lock::new(client, name)?),
            Primitive::FairLock => Self::FairLock(FairLock::new(client, name)?),
            Primitive::RwLock(preference) => {
                Self::RwLock(RwLock::new(client, name)?.preference(preference))
            }
            Primitive::LeasedSemaphore(permits) => {
                let semaphore = LeasedSemaphore::new(client, name)?;
                // The first call initializes the semaphore. Under faults it may take a few tries.
                while semaphore.init(permits).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                Self::LeasedSemaphore(semaphore)
            }
            Primitive::Election => Self::Election(Election::new(client, name)?, 0, Duration::ZERO),
        })
    }

    /// Returns a copy for one call. Each campaign has its own priority and rest.
    pub(crate) fn for_one_call(&self, rng: &mut fastrand::Rng) -> Self {
        let mut one = self.clone();
        if let Self::Election(_, priority, rest) = &mut one {
            *priority = rng.i32(-1..=2);
            *rest = Duration::from_millis(rng.u64(0..1_500));
        }
        one
    }

    /// Chooses the mode of the next acquire.
    pub(crate) fn choose(&self, rng: &mut fastrand::Rng) -> Mode {
        match self {
            Self::Nothing | Self::Lock(_) | Self::FairLock(_) | Self::Election(..) => Mode::Write,
            Self::RwLock(_) if rng.u8(..3) == 0 => Mode::Write,
            Self::RwLock(_) => Mode::Read,
            Self::LeasedSemaphore(_) => Mode::Permits(rng.u32(1..=2)),
        }
    }

    pub(crate) async fn acquire(
        &self,
        mode: Mode,
        options: AcquireOptions,
    ) -> Result<Guard, AcquireError> {
        match (self, mode) {
            (Self::Nothing, _) => unreachable!("there is no primitive to acquire"),
            (Self::Lock(lock), _) => lock.acquire_with(options).await.map(Guard::Lock),
            (Self::FairLock(lock), _) => lock.acquire_with(options).await.map(Guard::Fair),
            (Self::RwLock(lock), Mode::Write) => lock.write_with(options).await.map(Guard::Write),
            (Self::RwLock(lock), _) => lock.read_with(options).await.map(Guard::Read),
            (Self::LeasedSemaphore(semaphore), _) => semaphore
                .acquire_with(permits(mode), options)
                .await
                .map(Guard::Permit),
            (Self::Election(election, priority, rest), _) => election
                .campaign_with("0", campaign(options, *priority, *rest))
                .await
                .map(Guard::Term),
        }
    }

    pub(crate) async fn try_acquire(
        &self,
        mode: Mode,
        options: AcquireOptions,
    ) -> Result<Option<Guard>, AcquireError> {
        Ok(match (self, mode) {
            (Self::Nothing, _) => unreachable!("there is no primitive to acquire"),
            (Self::Lock(lock), _) => lock.try_acquire_with(options).await?.map(Guard::Lock),
            (Self::FairLock(lock), _) => lock.try_acquire_with(options).await?.map(Guard::Fair),
            (Self::RwLock(lock), Mode::Write) => {
                lock.try_write_with(options).await?.map(Guard::Write)
            }
            (Self::RwLock(lock), _) => lock.try_read_with(options).await?.map(Guard::Read),
            (Self::LeasedSemaphore(semaphore), _) => semaphore
                .try_acquire_with(permits(mode), options)
                .await?
                .map(Guard::Permit),
            (Self::Election(election, priority, rest), _) => election
                .try_campaign_with("0", campaign(options, *priority, *rest))
                .await?
                .map(Guard::Term),
        })
    }

    /// Adopts the hold of a ticket.
    pub(crate) async fn adopt(
        &self,
        ticket: &HoldTicket,
        options: AcquireOptions,
    ) -> Result<Guard, AdoptError> {
        match self {
            Self::Lock(lock) => lock.adopt_with(ticket, options).await.map(Guard::Lock),
            Self::FairLock(lock) => lock.adopt_with(ticket, options).await.map(Guard::Fair),
            _ => unreachable!("only locks have tickets"),
        }
    }

    /// Returns another candidate, if one is known.
    pub(crate) async fn successor(&self) -> Option<String> {
        let Self::Election(election, ..) = self else {
            return None;
        };
        Some(election.candidates().await.ok()?.pop()?.id)
    }
}

fn campaign(options: AcquireOptions, priority: i32, rest: Duration) -> CampaignOptions {
    CampaignOptions::from(options)
        .priority(priority)
        .cooldown(rest)
}

fn permits(mode: Mode) -> u32 {
    match mode {
        Mode::Permits(n) => n,
        Mode::Write | Mode::Read => 1,
    }
}

/// The guard of any primitive.
#[derive(Debug)]
pub(crate) enum Guard {
    Lock(LockGuard),
    Fair(FairLockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(LeasedPermit),
    Term(Leadership),
    Run(JobGuard),
}

/// Calls the same method of each guard.
macro_rules! each {
    ($guard:expr, $one:ident => $verb:expr) => {
        match $guard {
            Guard::Lock($one) => $verb,
            Guard::Fair($one) => $verb,
            Guard::Read($one) => $verb,
            Guard::Write($one) => $verb,
            Guard::Permit($one) => $verb,
            Guard::Term($one) => $verb,
            Guard::Run($one) => $verb,
        }
    };
}

impl Guard {
    pub(crate) fn valid_until(&self) -> Moment {
        each!(self, guard => guard.valid_until())
    }

    pub(crate) async fn lost(&self) -> LostReason {
        each!(self, guard => guard.lost().await)
    }

    pub(crate) async fn run(&self, work: impl Future<Output = ()>) {
        // The caller detects a loss with `lost`.
        each!(self, guard => drop(guard.run(work).await));
    }

    pub(crate) async fn renew(&self) -> Result<(), RenewError> {
        each!(self, guard => guard.renew().await)
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        each!(self, guard => guard.release().await)
    }

    /// Returns whether grants of this kind have tokens.
    pub(crate) fn is_exclusive(&self) -> bool {
        !matches!(self, Self::Read(_) | Self::Permit(_))
    }

    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Fair(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
            Self::Term(term) => term.fencing_token(),
            Self::Run(run) => run.fencing_token(),
            Self::Read(_) | Self::Permit(_) => None,
        }
    }

    /// Detaches the hold and returns its ticket.
    pub(crate) async fn detach_for(self, lease: Lease) -> Result<HoldTicket, RenewError> {
        match self {
            Self::Lock(guard) => guard.detach_for(lease).await,
            Self::Fair(guard) => guard.detach_for(lease).await,
            _ => unreachable!("only locks have tickets"),
        }
    }

    /// Changes the value of a leader. Does nothing for other guards.
    pub(crate) async fn proclaim(&self, number: u64) -> Result<(), RenewError> {
        match self {
            Self::Term(term) => term.proclaim(number.to_string()).await,
            _ => Ok(()),
        }
    }

    /// Hands a term over to the given candidate. Releases if there is none, or for other guards.
    pub(crate) async fn hand_over(self, successor: Option<String>) -> Result<(), ReleaseError> {
        match (self, successor) {
            (Self::Term(term), Some(successor)) => term.hand_over(&successor).await,
            (guard, _) => guard.release().await,
        }
    }

    /// Re-enters the hold. Returns `None` for permits, terms and runs, which cannot be re-entered.
    pub(crate) async fn reenter(&self) -> Option<Result<Self, RenewError>> {
        Some(match self {
            Self::Lock(guard) => guard.reenter().await.map(Self::Lock),
            Self::Fair(guard) => guard.reenter().await.map(Self::Fair),
            Self::Read(guard) => guard.reenter().await.map(Self::Read),
            Self::Write(guard) => guard.reenter().await.map(Self::Write),
            Self::Permit(_) | Self::Term(_) | Self::Run(_) => return None,
        })
    }
}

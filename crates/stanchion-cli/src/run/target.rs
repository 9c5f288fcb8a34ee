//! The synchronizer that `run` acquires, behind the verbs that `run` needs.

use std::pin::Pin;
use std::time::Duration;

use stanchion::election::CampaignOptions;
use stanchion::hold::ReleaseRequest;
use stanchion::{
    AcquireError, AcquireOptions, Client, Election, FairLock, FairLockGuard, FencingToken,
    JobGuard, Leadership, LeasedPermit, LeasedSemaphore, Lock, LockGuard, LostReason, Name,
    QueryError, ReadGuard, ReleaseError, RwLock, Tick, WriteGuard,
};

use super::{Kind, RunArgs};
use crate::exit::{Failure, Library};
use crate::look::not_permits;
use crate::messages;
use crate::people::People;

#[derive(Debug)]
pub(super) enum Target {
    Lock(Lock),
    Fair(FairLock),
    Read(RwLock),
    Write(RwLock),
    Permit(LeasedSemaphore),
    Leader {
        election: Election,
        value: String,
        priority: i32,
    },
}

#[must_use = "dropping it releases at once"]
#[derive(Debug)]
pub(super) enum Held {
    Lock(LockGuard),
    Job(JobGuard),
    Fair(FairLockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(LeasedPermit),
    Leader(Leadership),
}

/// Evaluates one expression for any kind of guard.
macro_rules! each {
    ($held:expr, $guard:ident => $do:expr) => {
        match $held {
            Held::Lock($guard) => $do,
            Held::Job($guard) => $do,
            Held::Fair($guard) => $do,
            Held::Read($guard) => $do,
            Held::Write($guard) => $do,
            Held::Permit($guard) => $do,
            Held::Leader($guard) => $do,
        }
    };
}

impl Target {
    /// Creates the handle. Sends a request only for a semaphore, to set its number of permits if it is not set yet; `say` gets a
    /// warning if the number was a different one.
    pub(super) async fn new(
        client: &Client,
        args: &RunArgs,
        say: impl FnOnce(std::fmt::Arguments<'_>),
    ) -> Result<Self, Failure> {
        let (name, lease) = (&args.name, args.lease);
        Ok(match args.kind() {
            Kind::Lock => Self::Lock(Lock::new(client, name).map_err(Library)?.lease(lease)),
            Kind::Fair => Self::Fair(FairLock::new(client, name).map_err(Library)?.lease(lease)),
            Kind::Read => Self::Read(RwLock::new(client, name).map_err(Library)?.lease(lease)),
            Kind::Write => Self::Write(RwLock::new(client, name).map_err(Library)?.lease(lease)),
            Kind::Permit(most) => {
                let semaphore = LeasedSemaphore::new(client, name)
                    .map_err(Library)?
                    .lease(lease);
                let is_first = match semaphore.init(most).await {
                    Ok(is_first) => is_first,
                    Err(error) => return Err(not_permits(client, name, error).await),
                };
                if !is_first {
                    let there = semaphore.total().await.map_err(Library)?;
                    if there != i64::from(most) {
                        let text = messages::other_permits(name, there, most);
                        say(format_args!("{text}"));
                    }
                }
                Self::Permit(semaphore)
            }
            Kind::Leader => {
                let election = Election::new(client, name).map_err(Library)?.lease(lease);
                let lead = args.lead.as_ref();
                Self::Leader {
                    election,
                    value: lead.map(|lead| lead.value(client)).unwrap_or_default(),
                    priority: lead.map(|lead| lead.priority).unwrap_or_default(),
                }
            }
        })
    }

    pub(super) fn name(&self) -> &Name {
        match self {
            Self::Lock(lock) => lock.name(),
            Self::Fair(lock) => lock.name(),
            Self::Read(lock) | Self::Write(lock) => lock.name(),
            Self::Permit(semaphore) => semaphore.name(),
            Self::Leader { election, .. } => election.name(),
        }
    }

    pub(super) async fn acquire(&self, options: AcquireOptions) -> Result<Held, AcquireError> {
        Ok(match self {
            Self::Lock(lock) => Held::Lock(lock.acquire_with(options).await?),
            Self::Fair(lock) => Held::Fair(lock.acquire_with(options).await?),
            Self::Read(lock) => Held::Read(lock.read_with(options).await?),
            Self::Write(lock) => Held::Write(lock.write_with(options).await?),
            Self::Permit(semaphore) => Held::Permit(semaphore.acquire_with(1, options).await?),
            Self::Leader {
                election,
                value,
                priority,
            } => {
                let options = CampaignOptions::from(options).priority(*priority);
                Held::Leader(election.campaign_with(value, options).await?)
            }
        })
    }

    pub(super) async fn try_acquire(
        &self,
        options: AcquireOptions,
    ) -> Result<Option<Held>, AcquireError> {
        Ok(match self {
            Self::Lock(lock) => lock.try_acquire_with(options).await?.map(Held::Lock),
            Self::Fair(lock) => lock.try_acquire_with(options).await?.map(Held::Fair),
            Self::Read(lock) => lock.try_read_with(options).await?.map(Held::Read),
            Self::Write(lock) => lock.try_write_with(options).await?.map(Held::Write),
            Self::Permit(semaphore) => {
                let permit = semaphore.try_acquire_with(1, options).await?;
                permit.map(Held::Permit)
            }
            Self::Leader {
                election,
                value,
                priority,
            } => {
                let options = CampaignOptions::from(options).priority(*priority);
                let term = election.try_campaign_with(value, options).await?;
                term.map(Held::Leader)
            }
        })
    }

    /// True if a waiter has a place on the server, which it gives up after the wait.
    pub(super) fn has_queue(&self) -> bool {
        matches!(self, Self::Fair(_))
    }

    /// The reason that it was not acquired.
    pub(super) fn taken(&self) -> String {
        let name = self.name();
        match self {
            Self::Lock(_) | Self::Fair(_) | Self::Write(_) => messages::taken(name),
            Self::Read(_) => messages::taken_by_writer(name),
            Self::Permit(_) => messages::all_permits_taken(name),
            Self::Leader { .. } => messages::led_by_another(name),
        }
    }

    /// Returns the current holders, as far as they are known.
    pub(super) async fn in_the_way(&self, people: &People) -> Result<Option<String>, QueryError> {
        let held_by = |owner: &str, left| messages::held_by(&people.who(owner), left);
        Ok(match self {
            Self::Lock(lock) => {
                let holder = lock.status().await?.holder;
                holder.map(|holder| held_by(&holder.owner, holder.remaining))
            }
            Self::Fair(lock) => {
                let status = lock.status().await?;
                status.holder.map(|holder| {
                    let held = held_by(&holder.owner, holder.remaining);
                    messages::with_queue(&held, status.queue_len)
                })
            }
            Self::Read(lock) | Self::Write(lock) => {
                let status = lock.status().await?;
                match (&status.writer, &*status.readers) {
                    (Some(writer), _) => Some(held_by(&writer.owner, status.remaining)),
                    (None, []) => None,
                    (None, [reader]) => Some(held_by(&reader.owner, status.remaining)),
                    (None, _) => Some(messages::held_by_readers(status.reader_count)),
                }
            }
            Self::Permit(semaphore) => {
                let status = semaphore.status().await?;
                let soonest = status.permits.iter().filter_map(|p| p.remaining).min();
                Some(messages::permits_held(
                    status.acquired,
                    status.total,
                    soonest,
                ))
            }
            Self::Leader { election, .. } => election
                .leader()
                .await?
                .map(|leader| messages::led_by(&crate::leader::value(&leader))),
        })
    }
}

impl Held {
    /// The token to send with writes; readers and permits have none.
    pub(super) fn fencing_token(&self) -> Option<FencingToken> {
        match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Job(guard) => guard.fencing_token(),
            Self::Fair(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
            Self::Leader(term) => term.fencing_token(),
            Self::Read(_) | Self::Permit(_) => None,
        }
    }

    /// The moment of the schedule for which a job runs.
    pub(super) fn tick(&self) -> Option<Tick> {
        match self {
            Self::Job(guard) => guard.tick(),
            _ => None,
        }
    }

    pub(super) fn owner(&self) -> String {
        each!(self, guard => guard.owner().to_string())
    }

    pub(super) fn remaining(&self) -> Duration {
        each!(self, guard => guard.remaining())
    }

    pub(super) fn lost(&self) -> Pin<Box<dyn Future<Output = LostReason> + Send>> {
        each!(self, guard => Box::pin(guard.lost()))
    }

    /// Resolves when another client requests the release. Permits cannot be requested.
    pub(super) fn requested(&self) -> Pin<Box<dyn Future<Output = ReleaseRequest> + Send>> {
        match self {
            Self::Permit(_) => Box::pin(std::future::pending()),
            held => each!(held, guard => Box::pin(guard.requested())),
        }
    }

    /// Ends renewal, so that the lease ends the hold.
    pub(super) fn leave(self) {
        each!(self, guard => guard.leave());
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        each!(self, guard => guard.release().await)
    }
}

//! Detecting the kind of a name, and reading its status.

use clap::ValueEnum;
use serde::Serialize;
use stanchion::{
    Client, CountDownLatch, FairLock, FairLockStatus, LeasedSemaphore, LeasedStatus, Lock,
    QueryError, Rejection, RwLock, RwLockStatus, Semaphore, SemaphoreStatus,
};

use crate::exit::{Failure, Library};

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Lock,
    Fair,
    Rwlock,
    /// Redisson's RSemaphore.
    Semaphore,
    /// Permits with leases, as `run --permits` takes them.
    LeasedSemaphore,
    Latch,
}

impl Kind {
    /// The kind in one short word, for tables.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Rwlock => "rwlock",
            Self::Semaphore => "semaphore",
            Self::LeasedSemaphore => "permits",
            Self::Latch => "latch",
        }
    }
}

/// The status of a name on the server.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A lock, or a fair lock with an empty queue: they look the same.
    Lock(FairLockStatus),
    Fair(FairLockStatus),
    Rwlock(RwLockStatus),
    Semaphore(SemaphoreStatus),
    Leased(LeasedStatus),
    Latch(u64),
    /// A number of unknown meaning.
    Number(i64),
}

impl Seen {
    /// The owners of a lock or a read-write lock; none of what is not held as a whole.
    pub(crate) fn owners(&self) -> Vec<String> {
        let mut owners: Vec<String> = match self {
            Self::Lock(status) | Self::Fair(status) => {
                let holder = status.holder.iter();
                holder.map(|holder| holder.owner.clone()).collect()
            }
            Self::Rwlock(status) => {
                let all = status.writer.iter().chain(&status.readers);
                all.map(|holder| holder.owner.clone()).collect()
            }
            Self::Semaphore(_) | Self::Leased(_) | Self::Latch(_) | Self::Number(_) => Vec::new(),
        };
        owners.sort_unstable();
        owners
    }
}

fn is_something_else<T>(result: &Result<T, QueryError>) -> bool {
    matches!(
        result,
        Err(QueryError::Rejected {
            rejection: Rejection::WrongType { .. } | Rejection::Other { .. }
        })
    )
}

/// Reads the status as `kind`, or detects the kind.
pub(crate) async fn look(
    client: &Client,
    name: &[u8],
    kind: Option<Kind>,
) -> Result<Seen, Failure> {
    match kind {
        None => guess(client, name).await,
        Some(Kind::Lock) => {
            // The fair lock's status covers a lock too, but the lock's own status has the right error message.
            let lock = Lock::new(client, name).map_err(Library)?;
            let waiting = lock.status().await.map_err(Library)?.waiting_processes;
            let fair = FairLock::new(client, name).map_err(Library)?;
            let status = fair.status().await.map_err(Library)?;
            Ok(Seen::Lock(counted(status, waiting)))
        }
        Some(Kind::Fair) => {
            let fair = FairLock::new(client, name).map_err(Library)?;
            Ok(Seen::Fair(fair.status().await.map_err(Library)?))
        }
        Some(Kind::Rwlock) => {
            let lock = RwLock::new(client, name).map_err(Library)?;
            Ok(Seen::Rwlock(lock.status().await.map_err(Library)?))
        }
        Some(Kind::Semaphore) => {
            let semaphore = Semaphore::new(client, name).map_err(Library)?;
            Ok(Seen::Semaphore(semaphore.status().await.map_err(Library)?))
        }
        Some(Kind::LeasedSemaphore) => {
            let semaphore = LeasedSemaphore::new(client, name).map_err(Library)?;
            Ok(Seen::Leased(semaphore.status().await.map_err(Library)?))
        }
        Some(Kind::Latch) => {
            let latch = CountDownLatch::new(client, name).map_err(Library)?;
            Ok(Seen::Latch(latch.count().await.map_err(Library)?))
        }
    }
}

/// The status of a lock, in which its own line is counted and not the fair lock's queue.
fn counted(mut status: FairLockStatus, waiting: Option<u64>) -> FairLockStatus {
    status.waiting_processes = waiting;
    status
}

async fn guess(client: &Client, name: &[u8]) -> Result<Seen, Failure> {
    let fair = FairLock::new(client, name).map_err(Library)?.status().await;
    if !is_something_else(&fair) {
        let status = fair.map_err(Library)?;
        return Ok(if status.queue_len > 0 {
            Seen::Fair(status)
        } else {
            let lock = Lock::new(client, name).map_err(Library)?.status().await;
            let waiting = lock.ok().and_then(|lock| lock.waiting_processes);
            Seen::Lock(counted(status, waiting))
        });
    }
    let rwlock = RwLock::new(client, name).map_err(Library)?.status().await;
    if !is_something_else(&rwlock) {
        return Ok(Seen::Rwlock(rwlock.map_err(Library)?));
    }
    let leased = LeasedSemaphore::new(client, name).map_err(Library)?;
    let leased = leased.status().await;
    if is_something_else(&leased) {
        // Not a kind of stanchion's: the first error explains why.
        return Err(fair.map(drop).map_err(Library).err().map_or_else(
            || Failure::new(crate::exit::CONFIG, "an unknown kind"),
            Failure::from,
        ));
    }
    let leased = leased.map_err(Library)?;
    if !leased.permits.is_empty() {
        return Ok(Seen::Leased(leased));
    }
    let plain = Semaphore::new(client, name).map_err(Library)?;
    let plain = plain.status().await.map_err(Library)?;
    Ok(if plain.holders.is_empty() {
        Seen::Number(leased.available)
    } else {
        Seen::Semaphore(plain)
    })
}

//! The synchronizers of one worker, and its holds.

use anyhow::Error;
use stanchion::{
    Client, FairLock, FairLockGuard, FencingToken, LeaseLost, LeasedPermit, LeasedSemaphore, Lock,
    LockGuard, Lockable, MultiGuard, MultiLock, ReadGuard, RedGuard, RedLock, ReleaseError, RwLock,
    WriteGuard,
};

use super::primitive::Primitive;

/// One of this many turns at a read-write lock writes.
const WRITES: usize = 4;

/// The synchronizers of a worker: one of each name.
#[derive(Debug)]
pub(super) enum Prize {
    Lock(Vec<Lock>),
    Fair(Vec<FairLock>),
    RwLock(Vec<RwLock>),
    Semaphore(Vec<LeasedSemaphore>),
    Multi(Vec<Lock>),
    RedLock(Vec<RedLock>),
}

/// A place in the detector: the name, and the number of its units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) name: usize,
    pub(super) units: usize,
    pub(super) token: Option<FencingToken>,
}

#[must_use = "dropping it releases at once"]
#[derive(Debug)]
pub(super) enum Held {
    Lock(LockGuard),
    Fair(FairLockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(LeasedPermit),
    Multi(MultiGuard),
    Red(RedGuard),
}

impl Prize {
    /// Creates the synchronizers. `clients` has one client of each server: more than one only for a RedLock.
    pub(super) fn new(primitive: Primitive, clients: &[Client], names: u16) -> Result<Self, Error> {
        let client = &clients[0];
        let noun = primitive.noun();
        let named = (1..=names).map(|number| format!("{noun}-{number}"));
        Ok(match primitive {
            Primitive::Fair => Self::Fair(
                named
                    .map(|name| FairLock::new(client, name))
                    .collect::<Result<_, _>>()?,
            ),
            Primitive::Rwlock => Self::RwLock(
                named
                    .map(|name| RwLock::new(client, name))
                    .collect::<Result<_, _>>()?,
            ),
            Primitive::Semaphore => Self::Semaphore(
                named
                    .map(|name| LeasedSemaphore::new(client, name))
                    .collect::<Result<_, _>>()?,
            ),
            Primitive::Multilock => Self::Multi(
                named
                    .map(|name| Lock::new(client, name))
                    .collect::<Result<_, _>>()?,
            ),
            Primitive::Redlock => Self::RedLock(
                named
                    .map(|name| RedLock::new(clients, name))
                    .collect::<Result<_, _>>()?,
            ),
            Primitive::Lock | Primitive::Latch | Primitive::All => Self::Lock(
                named
                    .map(|name| Lock::new(client, name))
                    .collect::<Result<_, _>>()?,
            ),
        })
    }

    /// Waits for one, or for two, picked at random. Returns the hold and its places in the detector.
    pub(super) async fn acquire(&self) -> Result<(Held, Vec<Place>), Error> {
        let (held, name, units) = match self {
            Self::Lock(locks) => {
                let name = fastrand::usize(0..locks.len());
                (Held::Lock(locks[name].acquire().await?), name, 1)
            }
            Self::Fair(locks) => {
                let name = fastrand::usize(0..locks.len());
                (Held::Fair(locks[name].acquire().await?), name, 1)
            }
            Self::RwLock(locks) => {
                let name = fastrand::usize(0..locks.len());
                if fastrand::usize(0..WRITES) == 0 {
                    let guard = locks[name].write().await?;
                    (Held::Write(guard), name, Primitive::Rwlock.capacity())
                } else {
                    (Held::Read(locks[name].read().await?), name, 1)
                }
            }
            Self::Semaphore(semaphores) => {
                let name = fastrand::usize(0..semaphores.len());
                (Held::Permit(semaphores[name].acquire().await?), name, 1)
            }
            Self::RedLock(locks) => {
                let name = fastrand::usize(0..locks.len());
                (Held::Red(locks[name].acquire().await?), name, 1)
            }
            Self::Multi(locks) => return two_of(locks).await,
        };
        let token = held.token();
        let place = Place { name, units, token };
        Ok((held, vec![place]))
    }
}

/// Acquires two different locks, named in random order, which would deadlock without the multi-lock.
async fn two_of(locks: &[Lock]) -> Result<(Held, Vec<Place>), Error> {
    let first = fastrand::usize(0..locks.len());
    let second = (first + fastrand::usize(1..locks.len())) % locks.len();
    let members = [&locks[first] as &dyn Lockable, &locks[second]];
    let both = MultiLock::new(members)?;
    let guard = both.acquire().await?;
    let place = |name: usize| Place {
        name,
        units: 1,
        token: guard.fencing_token(locks[name].name().as_bytes()),
    };
    let places = vec![place(first), place(second)];
    Ok((Held::Multi(guard), places))
}

impl Held {
    fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Fair(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
            Self::Read(_) | Self::Permit(_) | Self::Multi(_) | Self::Red(_) => None,
        }
    }

    /// Runs `work` while the hold lasts.
    pub(super) async fn run(&self, work: impl Future<Output = ()>) -> Result<(), LeaseLost> {
        match self {
            Self::Lock(guard) => guard.run(work).await,
            Self::Fair(guard) => guard.run(work).await,
            Self::Read(guard) => guard.run(work).await,
            Self::Write(guard) => guard.run(work).await,
            Self::Permit(guard) => guard.run(work).await,
            Self::Multi(guard) => guard.run(work).await,
            Self::Red(guard) => guard.run(work).await,
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Fair(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
            Self::Multi(guard) => guard.release().await,
            Self::Red(guard) => guard.release().await,
        }
    }
}

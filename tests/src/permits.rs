//! Both kinds of semaphore behind one type, for tests that are the same for both.

use std::time::Duration;

use stanchion::{
    AcquireError, Client, IdleExpiry, Lease, LeasedPermit, LeasedSemaphore, Permit, QueryError,
    ReleaseError, Semaphore,
};
use stanchion_testkit::eventually;

use crate::World;

/// The name in these tests.
pub const NAME: &str = "seats";
/// Its channel.
pub const CHANNEL: &str = "redisson_sc:{seats}";
/// The ledger: the holders of plain permits.
pub const LEDGER: &str = "stanchion_permits:{seats}";
/// The leases of leased permits.
pub const LEASES: &str = "{seats}:timeout";
/// The number of plain permits, as far as it is known.
pub const TOTAL: &str = "stanchion_semaphore_total:{seats}";

/// The idle time of a semaphore that expires when no client uses it.
pub const IDLE: &str = "stanchion_semaphore_idle:{seats}";

/// The kind of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without leases.
    Plain,
    /// With leases.
    Leased,
}

/// Both.
pub const KINDS: [Kind; 2] = [Kind::Plain, Kind::Leased];

/// A semaphore of either kind.
#[derive(Clone, Debug)]
pub enum Seats {
    /// Without leases.
    Plain(Semaphore),
    /// With leases.
    Leased(LeasedSemaphore),
}

/// A permit of either kind.
#[derive(Debug)]
pub enum Seat {
    /// Without a lease.
    Plain(Permit),
    /// With a lease.
    Leased(LeasedPermit),
}

impl Kind {
    /// The semaphore [`NAME`] on a client.
    #[must_use]
    pub fn on(self, client: &Client) -> Seats {
        self.named(client, NAME)
    }

    /// A semaphore on a client.
    #[must_use]
    pub fn named(self, client: &Client, name: impl AsRef<[u8]>) -> Seats {
        match self {
            Self::Plain => Seats::Plain(Semaphore::new(client, name).unwrap()),
            Self::Leased => Seats::Leased(LeasedSemaphore::new(client, name).unwrap()),
        }
    }

    /// The queue of the waiting processes.
    #[must_use]
    pub const fn line(self) -> &'static str {
        match self {
            Self::Plain => "stanchion_semaphore_line:{seats}",
            Self::Leased => "stanchion_leased_line:{seats}",
        }
    }

    /// What the server knows of the queue.
    #[must_use]
    pub const fn wake(self) -> &'static str {
        match self {
            Self::Plain => "stanchion_semaphore_wake:{seats}",
            Self::Leased => "stanchion_leased_wake:{seats}",
        }
    }

    /// The number of processes in the queue.
    #[must_use]
    pub fn queued(self, world: &World) -> usize {
        world.admin(&["ZCARD", self.line()]).parse().unwrap()
    }

    /// The number of held permits on the server.
    #[must_use]
    pub fn held(self, world: &World) -> i64 {
        let (script, key) = match self {
            Self::Plain => (
                "local sum = 0 for _, n in ipairs(redis.call('HVALS', KEYS[1])) do sum = sum + n end return sum",
                LEDGER,
            ),
            Self::Leased => ("return redis.call('ZCARD', KEYS[1])", LEASES),
        };
        world.admin(&["EVAL", script, "1", key]).parse().unwrap()
    }

    /// The keys on the server, except those that this kind keeps for a while. Asserts that these have a TTL.
    #[must_use]
    pub fn keys(self, world: &World) -> Vec<String> {
        let [line, wake] = KINDS.map(|kind| [kind.line(), kind.wake()]);
        let mut for_a_while = [line, wake].concat();
        if self == Self::Plain {
            for_a_while.push(TOTAL);
        }
        let mut keys = world.keys();
        keys.retain(|key| {
            let remembered =
                key.starts_with("stanchion_once:") || for_a_while.contains(&key.as_str());
            assert!(
                !remembered || world.admin(&["PTTL", key]) != "-1",
                "{key} has no TTL"
            );
            !remembered
        });
        keys
    }

    /// Waits until no permit is held, `permits` are free, no process is queued, and no other key is left.
    pub async fn at_rest(self, world: &World, permits: i64) {
        eventually(&format!("all {permits} permits are free"), || {
            let queued = KINDS.map(|kind| kind.queued(world));
            self.keys(world) == [NAME] && free(world) == permits && queued == [0, 0]
        })
        .await;
    }
}

/// The number of free permits on the server.
#[must_use]
pub fn free(world: &World) -> i64 {
    world.admin(&["GET", NAME]).parse().unwrap_or(0)
}

/// [`Kind::keys`] of a plain semaphore.
#[must_use]
pub fn keys(world: &World) -> Vec<String> {
    Kind::Plain.keys(world)
}

/// Waits until no permit is held, `permits` are free, and no other key is left.
pub async fn at_rest(world: &World, permits: i64) {
    Kind::Plain.at_rest(world, permits).await;
}

impl Seats {
    /// Sets the lease of leased permits. Plain permits have none.
    #[must_use]
    pub fn lease(self, lease: Lease) -> Self {
        match self {
            Self::Plain(plain) => Self::Plain(plain),
            Self::Leased(leased) => Self::Leased(leased.lease(lease)),
        }
    }

    /// See [`Semaphore::ephemeral`].
    #[must_use]
    pub fn ephemeral(self, permits: u32, expiry: IdleExpiry) -> Self {
        match self {
            Self::Plain(plain) => Self::Plain(plain.ephemeral(permits, expiry)),
            Self::Leased(leased) => Self::Leased(leased.ephemeral(permits, expiry)),
        }
    }

    /// See [`Semaphore::init`].
    ///
    /// # Errors
    /// As there.
    pub async fn init(&self, permits: u32) -> Result<bool, QueryError> {
        match self {
            Self::Plain(plain) => plain.init(permits).await,
            Self::Leased(leased) => leased.init(permits).await,
        }
    }

    /// See [`Semaphore::acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Seat, AcquireError>> + use<> {
        let seats = self.clone();
        async move {
            Ok(match seats {
                Self::Plain(plain) => Seat::Plain(plain.acquire_many(permits).await?),
                Self::Leased(leased) => Seat::Leased(leased.acquire_many(permits).await?),
            })
        }
    }

    /// See [`Semaphore::acquire_many_timeout`].
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> Result<Seat, AcquireError> {
        Ok(match self {
            Self::Plain(plain) => Seat::Plain(plain.acquire_many_timeout(permits, timeout).await?),
            Self::Leased(leased) => {
                Seat::Leased(leased.acquire_many_timeout(permits, timeout).await?)
            }
        })
    }

    /// See [`Semaphore::try_acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Seat>, AcquireError> {
        Ok(match self {
            Self::Plain(plain) => plain.try_acquire_many(permits).await?.map(Seat::Plain),
            Self::Leased(leased) => leased.try_acquire_many(permits).await?.map(Seat::Leased),
        })
    }

    /// See [`Semaphore::available`].
    ///
    /// # Errors
    /// As there.
    pub async fn available(&self) -> Result<i64, QueryError> {
        match self {
            Self::Plain(plain) => plain.available().await,
            Self::Leased(leased) => leased.available().await,
        }
    }

    /// See [`Semaphore::add`].
    ///
    /// # Errors
    /// As there.
    pub async fn add(&self, permits: u32) -> Result<i64, QueryError> {
        match self {
            Self::Plain(plain) => plain.add(permits).await,
            Self::Leased(leased) => leased.add(permits).await,
        }
    }

    /// See [`Semaphore::reduce`].
    ///
    /// # Errors
    /// As there.
    pub async fn reduce(&self, permits: u32) -> Result<i64, QueryError> {
        match self {
            Self::Plain(plain) => plain.reduce(permits).await,
            Self::Leased(leased) => leased.reduce(permits).await,
        }
    }

    /// See [`Semaphore::drain`].
    ///
    /// # Errors
    /// As there.
    pub async fn drain(&self) -> Result<u32, QueryError> {
        match self {
            Self::Plain(plain) => plain.drain().await,
            Self::Leased(leased) => leased.drain().await,
        }
    }
}

impl Seat {
    /// See [`Permit::count`].
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Plain(plain) => plain.count(),
            Self::Leased(leased) => leased.count(),
        }
    }

    /// Returns whether the permit is held by the client's clock. A plain permit always is.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Leased(leased) => leased.is_held(),
        }
    }

    /// See [`Permit::release`].
    ///
    /// # Errors
    /// As there.
    pub async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Plain(plain) => plain.release().await,
            Self::Leased(leased) => leased.release().await,
        }
    }
}

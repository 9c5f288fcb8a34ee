//! The semaphore of leased permits.

use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::{Resend, Synchronizer};
use stanchion_core::{
    Acquire, AcquireError, AcquireOptions, Acquiring, Client, Guard, InvalidName, Lease, Name,
    QueryError, Rejection,
};

use crate::danger::LeasedDanger;
use crate::keys::Keys;
use crate::permit::LeasedPermit;
use crate::pool::{Pool, countable, unexpected, wanted, within};
use crate::scripts::leased::{Description, set_total, status};
use crate::status::LeasedStatus;

/// How many leases [`LeasedSemaphore::status`] lists.
const LISTED: u64 = 1000;

/// A number of permits that processes share by a name, each leased to its holder. Cheap to clone; handles have no state.
///
/// The watchdog renews what is held. The permits of a process that dies come back when their leases end.
///
/// # Guarantees
/// * P1: never more permits are held than there are, as far as each holder's [`valid_until`](LeasedPermit::valid_until)
///   reaches, while the server keeps its data and its clock is not stepped. There are no fencing tokens: permits do not
///   exclude each other.
/// * P3: an acquire that gives no [`LeasedPermit`] leaves nothing behind: gone in one round trip if the server answers,
///   otherwise when the lease ends.
/// * P4: a release wakes as many waiters as it serves, in every process; a lost message costs a poll (5 s). A lease that
///   ends sends no message: a waiter knows when the next one does, and asks then.
/// * P5, P10: a permit is renewed until released, and known to be lost before anybody else can have it.
/// * In a process waiters are served in order of arrival. Between processes see [`LeasedSemaphore::acquire_many`].
///
/// Next to Java processes P1 is theirs to break: Redisson ends leases by the clock of whoever asks, so a Java process whose
/// clock is fast takes permits from under their holders. It is noticed at the next renewal.
///
/// # On the wire
/// Redisson's `RPermitExpirableSemaphore`: the string `name` with the number of free permits, the sorted set
/// `{name}:timeout` with id and end of each lease, and the channel `redisson_sc:{name}`. An uncontended acquire and release
/// are two commands. All times are the server's.
#[derive(Clone, Debug)]
pub struct LeasedSemaphore {
    pool: Pool,
    one: Arc<dyn Synchronizer>,
    lease: Lease,
}

impl LeasedSemaphore {
    /// The most permits that one request can ask for. Each has an id and a lease, which is renewed.
    pub const MOST_AT_ONCE: u32 = 1000;

    /// The semaphore called `name` (1 to 512 bytes with the client's key prefix; on a cluster, no odd braces). Sends
    /// nothing. It has no permits until [`LeasedSemaphore::init`], [`LeasedSemaphore::set_total`] or
    /// [`LeasedSemaphore::add`] gives it some, here or elsewhere.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let pool = Pool::new(client, Keys::leased(client, name)?);
        let one = Arc::new(Description {
            keys: Arc::clone(&pool.keys),
            permits: 1,
        });
        let lease = Lease::default();
        Ok(Self { pool, one, lease })
    }

    /// The same semaphore with another lease for acquires that name none. Default 30 s.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// The name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.pool.keys.name
    }

    fn asking_for(&self, permits: u32) -> Result<Arc<dyn Synchronizer>, Rejection> {
        if permits == 1 {
            return Ok(Arc::clone(&self.one));
        }
        let permits = wanted(permits, Self::MOST_AT_ONCE)?;
        let keys = Arc::clone(&self.pool.keys);
        Ok(Arc::new(Description { keys, permits }))
    }

    /// Sets the number of permits, if nobody has yet. Returns whether it did. Redisson's `trySetPermits`.
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unavailable`]: it may have been done, and it is not done later.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have set it.
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect and the answer of once (P6).
    pub async fn init(&self, permits: u32) -> Result<bool, QueryError> {
        self.pool.init(permits).await
    }

    /// Waits for one permit.
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: it cannot be, as things are. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the place in the queue is given up, a request under way is waited for in the
    /// background and its permits released (P3), a wake is passed on.
    ///
    /// # On the wire
    /// One script when a permit is free. Otherwise one subscription for all waiters of the process, and one script for
    /// each waiter that a message or the end of a lease can serve. A script that is short of permits returns those whose
    /// leases have ended, up to 100 more than it asks for.
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<LeasedPermit, AcquireError>> + Send + 'static {
        self.acquire_many(1)
    }

    /// Waits for `permits` permits, all of them at once.
    ///
    /// # Guarantees
    /// A big request is not starved by small ones: as with
    /// [`Semaphore::acquire_many`](crate::Semaphore::acquire_many), and Java's permits count as those of others do.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::acquire`]. [`AcquireError::Rejected`] for no permits and for more than
    /// [`LeasedSemaphore::MOST_AT_ONCE`].
    ///
    /// # Cancel safety
    /// As [`LeasedSemaphore::acquire`].
    pub fn acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<LeasedPermit, AcquireError>> + Send + 'static {
        self.acquire_with(permits, AcquireOptions::new())
    }

    /// Waits for one permit, for at most `timeout`. Zero asks once.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as
    /// [`LeasedSemaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`LeasedSemaphore::acquire`].
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<LeasedPermit, AcquireError>> + Send + 'static {
        self.acquire_with(1, within(timeout))
    }

    /// Waits for `permits` permits, for at most `timeout`. Zero asks once.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::acquire_timeout`] and [`LeasedSemaphore::acquire_many`].
    ///
    /// # Cancel safety
    /// As [`LeasedSemaphore::acquire`].
    pub fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<LeasedPermit, AcquireError>> + Send + 'static {
        self.acquire_with(permits, within(timeout))
    }

    /// Acquires as `options` say.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::acquire_many_timeout`]. [`Rejection::InvalidOption`] for options with an owner: permits are
    /// not re-entered, every acquire takes others.
    ///
    /// # Cancel safety
    /// As [`LeasedSemaphore::acquire`].
    pub fn acquire_with(
        &self,
        permits: u32,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<LeasedPermit, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            this.pool
                .acquire(this.asking_for(permits), options, this.lease)
                .await
                .map(LeasedPermit::new)
        }
    }

    /// Asks once for one permit; `Ok(None)` when none is free, or those that are free are kept back for a big request.
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`LeasedSemaphore::acquire`].
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect of once (P6).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LeasedPermit>, AcquireError>> + Send + 'static {
        self.try_acquire_many(1)
    }

    /// Asks once for `permits` permits.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::try_acquire`] and [`LeasedSemaphore::acquire_many`].
    ///
    /// # Cancel safety
    /// As [`LeasedSemaphore::acquire`].
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Option<LeasedPermit>, AcquireError>> + Send + 'static {
        self.try_acquire_with(permits, AcquireOptions::new())
    }

    /// Asks once, as `options` say. Their timeout bounds the wait for the server's answer.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::try_acquire`] and [`LeasedSemaphore::acquire_with`].
    ///
    /// # Cancel safety
    /// As [`LeasedSemaphore::acquire`].
    pub fn try_acquire_with(
        &self,
        permits: u32,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<LeasedPermit>, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let hold = this
                .pool
                .try_acquire(this.asking_for(permits), options, this.lease)
                .await?;
            Ok(hold.map(LeasedPermit::new))
        }
    }

    /// How many permits can be had: those nobody holds, and those whose leases have ended. Negative after a
    /// [`LeasedSemaphore::reduce`] below what was free.
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`] when the name belongs to something else.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn available(&self) -> Result<i64, QueryError> {
        Ok(self.look(0).await?.available)
    }

    /// How many permits are held, with leases that have not ended.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::available`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn acquired(&self) -> Result<u32, QueryError> {
        Ok(self.look(0).await?.acquired)
    }

    /// How many permits there are: [`available`](LeasedSemaphore::available) and [`acquired`](LeasedSemaphore::acquired)
    /// together. Redisson's `getPermits`.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::available`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn total(&self) -> Result<i64, QueryError> {
        Ok(self.look(0).await?.total)
    }

    /// How many permits there are, and the ids and leases of up to 1000 that are held, those that end first.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::available`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn status(&self) -> Result<LeasedStatus, QueryError> {
        self.look(LISTED).await
    }

    async fn look(&self, list: u64) -> Result<LeasedStatus, QueryError> {
        let call = status(&self.pool.keys, list);
        let reply = self.pool.client.query(&call, Resend::UntilAnswered).await?;
        LeasedStatus::read(&reply).ok_or_else(|| unexpected(&reply))
    }

    /// Sets how many permits there are, whoever holds them, and returns how many there were. Below what is held, nobody
    /// loses a permit: the number of free ones is negative until enough have been released. Redisson's `setPermits`.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::add`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have set it.
    ///
    /// # On the wire
    /// As [`LeasedSemaphore::add`].
    pub async fn set_total(&self, permits: u32) -> Result<i64, QueryError> {
        let permits = countable(permits)?;
        self.pool
            .once(|operation| set_total(&self.pool.keys, permits, operation))
            .await
    }

    /// Adds permits, and wakes waiters. Returns how many nobody holds then. A semaphore that does not exist is made. A TTL
    /// on the key stays, unlike with Redisson's `addPermits`.
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unavailable`]: they may have been added, and are not added later.
    /// [`QueryError::Rejected`] beyond 2³¹ − 1, the most that Java can read.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have added them.
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect and the answer of once (P6).
    pub async fn add(&self, permits: u32) -> Result<i64, QueryError> {
        self.pool.add(permits).await
    }

    /// Takes permits away for good, whether or not they are free. Returns how many nobody holds then; below zero, so many
    /// releases do not wake anybody. Redisson's `addPermits` with a negative number.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::add`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have taken them.
    ///
    /// # On the wire
    /// As [`LeasedSemaphore::add`].
    pub async fn reduce(&self, permits: u32) -> Result<i64, QueryError> {
        self.pool.reduce(permits).await
    }

    /// Takes all permits away for good that nobody holds, and returns how many that were. Those whose leases have ended
    /// stay, until somebody asks for them.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::add`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have taken them.
    ///
    /// # On the wire
    /// As [`LeasedSemaphore::add`].
    pub async fn drain(&self) -> Result<u32, QueryError> {
        self.pool.drain().await
    }

    /// What breaks promises.
    #[must_use]
    pub fn danger(&self) -> LeasedDanger<'_> {
        LeasedDanger { pool: &self.pool }
    }
}

/// One permit.
impl Acquire for LeasedSemaphore {
    fn name(&self) -> Name {
        Self::name(self).clone()
    }

    fn acquire_with(&self, options: AcquireOptions) -> Acquiring<Guard> {
        let acquiring = Self::acquire_with(self, 1, options);
        Box::pin(async move { acquiring.await.map(Guard::from) })
    }

    fn try_acquire_with(&self, options: AcquireOptions) -> Acquiring<Option<Guard>> {
        let asking = Self::try_acquire_with(self, 1, options);
        Box::pin(async move { Ok(asking.await?.map(Guard::from)) })
    }
}

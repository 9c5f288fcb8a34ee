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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let url = "memory://leasedsemaphore-new";
    /// let client = Client::connect(url).await?; // redis://…
    /// let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// assert_eq!(downloads.total().await?, 0); // no call has given it permits yet
    /// assert!(LeasedSemaphore::new(&client, "").is_err());
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{Client, Lease, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-with-lease").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let downloads = downloads.with_lease(Lease::new(Duration::from_secs(10))?);
    /// let permit = downloads.acquire().await?;
    /// assert!(permit.remaining() <= Duration::from_secs(10)); // free that long after a crash
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// The name, key prefix included.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, ClientConfig, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::new("memory://").key_prefix("shop:");
    /// let downloads = LeasedSemaphore::new(&Client::connect_with(config).await?, "downloads")?;
    /// assert_eq!(downloads.name().as_bytes(), b"shop:downloads");
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-init").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// assert!(downloads.init(8).await?);
    /// assert!(!downloads.init(5).await?); // the first call has set the number
    /// assert_eq!(downloads.total().await?, 8);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-acquire").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(1).await?;
    /// let permit = downloads.acquire().await?; // the only one
    /// let next = tokio::spawn(downloads.acquire()); // waits
    /// permit.run(async { /* download */ }).await?; // dropped in time if the permit is lost
    /// permit.release().await?;
    /// assert!(next.await??.is_held());
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-acquire-many").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let permit = downloads.acquire().await?;
    /// let all = tokio::spawn(downloads.acquire_many(3)); // waits, although two are free
    /// permit.release().await?;
    /// assert_eq!(all.await??.count(), 3);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireError, Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-acquire-timeout").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(1).await?;
    /// let permit = downloads.acquire().await?;
    /// let late = downloads.acquire_timeout(Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
    /// permit.release().await?;
    /// downloads.acquire_timeout(Duration::from_secs(5)).await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireError, Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-acquire-many-timeout").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let pair = downloads.acquire_many_timeout(2, Duration::from_secs(5)).await?;
    /// assert_eq!(pair.count(), 2);
    /// let late = downloads.acquire_many_timeout(2, Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. }))); // one is free: not enough
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireOptions, Client, LeasedSemaphore, LostReason};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-acquire-with").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(20));
    /// let permit = downloads.acquire_with(1, options).await?;
    /// assert_eq!(permit.lost().await, LostReason::MaxHold); // nobody renews it any longer
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-try-acquire").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(1).await?;
    /// let permit = downloads.try_acquire().await?;
    /// assert!(permit.is_some());
    /// assert!(downloads.try_acquire().await?.is_none()); // returns at once
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-try-acquire-many").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let permit = downloads.acquire_many(2).await?;
    /// assert!(downloads.try_acquire_many(2).await?.is_none()); // all or none
    /// assert_eq!(downloads.available().await?, 1);
    /// permit.release().await?;
    /// assert!(downloads.try_acquire_many(2).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireOptions, Client, Lease, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-try-acquire-with").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let options = AcquireOptions::new().lease(Lease::new(Duration::from_secs(5))?);
    /// if let Some(pair) = downloads.try_acquire_with(2, options).await? {
    ///     assert_eq!(pair.count(), 2);
    ///     assert!(pair.remaining() <= Duration::from_secs(5));
    /// }
    /// # assert_eq!(downloads.total().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-available").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let pair = downloads.acquire_many(2).await?;
    /// assert_eq!(downloads.available().await?, 1);
    /// pair.release().await?;
    /// assert_eq!(downloads.available().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-acquired").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let pair = downloads.acquire_many(2).await?;
    /// assert_eq!(downloads.acquired().await?, 2);
    /// pair.release().await?;
    /// assert_eq!(downloads.acquired().await?, 0);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-total").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let pair = downloads.acquire_many(2).await?;
    /// assert_eq!(downloads.total().await?, 3); // held or not
    /// downloads.add(1).await?;
    /// assert_eq!(downloads.total().await?, 4);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-status").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let permit = downloads.acquire().await?;
    /// let status = downloads.status().await?;
    /// assert_eq!((status.available, status.acquired, status.total), (2, 1, 3));
    /// assert_eq!(status.permits[0].id, permit.ids()[0]);
    /// assert!(status.permits[0].remaining.is_some()); // its lease
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-set-total").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let pair = downloads.acquire_many(2).await?;
    /// assert_eq!(downloads.set_total(1).await?, 3); // the number before
    /// assert_eq!(downloads.available().await?, -1); // both stay held
    /// pair.release().await?;
    /// assert_eq!(downloads.available().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-add").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(1).await?;
    /// let permit = downloads.acquire().await?; // the only one
    /// let waiter = tokio::spawn(downloads.acquire());
    /// assert_eq!(downloads.add(1).await?, 1);
    /// assert_eq!(waiter.await??.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-reduce").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let pair = downloads.acquire_many(2).await?;
    /// assert_eq!(downloads.reduce(2).await?, -1); // one was free
    /// pair.release().await?;
    /// assert_eq!(downloads.total().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-drain").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let permit = downloads.acquire().await?;
    /// assert_eq!(downloads.drain().await?, 2);
    /// assert_eq!(downloads.total().await?, 1); // the one that is held
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-danger").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let operator = downloads.danger(); // a word that shows in a review
    /// assert!(operator.delete().await?);
    /// assert!(!downloads.status().await?.exists);
    /// # Ok(())
    /// # }
    /// ```
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

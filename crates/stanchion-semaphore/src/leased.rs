//! The semaphore of leased permits.
//!
//! Long: the public verbs of one type, each with its contract and an example.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, Resend, Synchronizer, unexpected};
use stanchion_client::{
    Acquire, AcquireError, AcquireOptions, Acquiring, Client, Events, Guard, IdleExpiry,
    InvalidName, Lease, Name, Outage, QueryError, Rejection,
};

use crate::danger::LeasedDanger;
use crate::keys::Keys;
use crate::permit::LeasedPermit;
use crate::pool::{Pool, countable, wanted, within};
use crate::scripts::leased::{LISTED, LeasedDescription, set_total, status};
use crate::status::LeasedStatus;

/// A number of permits that processes share by a name, each leased to its holder. Cheap to clone; handles have no state.
///
/// The watchdog renews held permits. The permits of a process that dies come back when their leases end.
///
/// # Guarantees
/// * P1: no more permits are held than exist, counting each hold up to its [`valid_until`](LeasedPermit::valid_until), while
///   the server keeps its data and its clock is not stepped. There are no fencing tokens: permits do not exclude each other.
/// * P3: an acquire that returns no [`LeasedPermit`] leaves nothing behind: a late grant is released within one round trip
///   if the server answers, and otherwise ends with its lease.
/// * P4: a release grants to as many waiters as it can serve, the processes in order of arrival. A grant whose message is lost ends after
///   1.5 s. The end of a lease sends no message: the first waiter knows when the next lease ends and then sends a request.
/// * P5, P10: a permit is renewed until it is released, and its holder learns of a loss before it can be granted again.
/// * Within a process, waiters for the same number of permits are served in order of arrival. Across processes, see [`LeasedSemaphore::acquire_many`].
///
/// Java processes can break P1: Redisson ends leases by the clock of the requesting process, so a process with a fast
/// clock takes permits that are still held. Their holder learns of it at its next renewal.
///
/// # On the wire
/// Redisson's `RPermitExpirableSemaphore`: the string `name` with the number of free permits, the sorted set
/// `{name}:timeout` with id and end of each lease, and the channel `redisson_sc:{name}`. An uncontended acquire and release
/// are two commands. All times are the server's.
#[derive(Clone, Debug)]
pub struct LeasedSemaphore {
    pool: Pool,
    one: Arc<dyn Synchronizer>,
    lease: Duration,
}

impl LeasedSemaphore {
    /// The largest number of permits of one request. Each has an id and a lease, which is renewed.
    pub const MOST_AT_ONCE: u32 = 1000;

    /// Returns a handle to the semaphore called `name` (1 to 512 bytes with the client's key prefix; on a cluster, no odd
    /// braces). Sends nothing. The semaphore has no permits until [`LeasedSemaphore::init`], [`LeasedSemaphore::set_total`]
    /// or [`LeasedSemaphore::add`] gives it some, in any process.
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
        let handle = Handle::of(client);
        let keys = Keys::leased(&handle, name)?;
        Ok(Self::over(
            Pool::new(handle, keys),
            Lease::default().length(),
        ))
    }

    fn over(pool: Pool, lease: Duration) -> Self {
        let one = Arc::new(LeasedDescription::new(&pool.keys, 1));
        Self { pool, one, lease }
    }

    /// Returns the same semaphore, ephemeral: it needs no [`init`](Self::init) and ends after a time without use. Every call by this handle
    /// that finds no semaphore creates it with `permits` permits. When the semaphore has not been used for the time of `expiry`, all its
    /// keys are removed. For names that come and go, such as one for each customer. Off by default, as with Redisson.
    ///
    /// The time belongs to the semaphore, not to the handle: the call that creates it sets the time, and every acquire, renewal, change and
    /// [`init`](Self::init) by any handle of any process restarts it. An existing semaphore is not changed, not
    /// even its number. A semaphore with a held permit,
    /// or with a waiting stanchion process, is kept beyond that time. After a release the time counts from the end that the lease had, so
    /// the semaphore ends up to a lease later; the same is true when the last holder dies. For other handles a missing semaphore has no
    /// permits; for this one all are free ([`available`](Self::available), [`total`](Self::total)).
    ///
    /// Redisson's acquires and releases neither restart the time nor keep the semaphore until stanchion's next acquire: do not use it where
    /// Java's leases are longer than the time. If Java creates the semaphore or changes its number (`addPermits`), it no longer ends.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stanchion_semaphore::Client::connect("memory://leasedsemaphore-ephemeral").await?;
    /// use stanchion_semaphore::{IdleExpiry, LeasedSemaphore};
    ///
    /// let hour = IdleExpiry::after(Duration::from_secs(3600))?;
    /// let reports = LeasedSemaphore::new(&client, "reports:4711")?.ephemeral(3, hour);
    /// let permit = reports.acquire().await?; // makes it
    /// permit.release().await?; // an hour and a lease after the last of these calls it is gone
    /// # assert_eq!(reports.total().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// More than 2³¹ − 1 permits are refused by the calls, with [`Rejection::InvalidOption`].
    ///
    /// # On the wire
    /// A TTL of the string `name` and of the leases, and `stanchion_semaphore_idle:{name}` with the same TTL. That key has the time.
    #[must_use]
    pub fn ephemeral(self, permits: u32, expiry: IdleExpiry) -> Self {
        Self::over(self.pool.ephemeral(permits, expiry), self.lease)
    }

    /// Returns the same semaphore with another lease for acquires that set none: 10 ms to 30 days, checked by the acquires. Default 30 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leasedsemaphore-lease").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let downloads = downloads.lease(Duration::from_secs(10));
    /// let permit = downloads.acquire().await?;
    /// assert!(permit.remaining() <= Duration::from_secs(10)); // free that long after a crash
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Returns the name, key prefix included.
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
        Ok(Arc::new(LeasedDescription::new(&self.pool.keys, permits)))
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
    /// [`AcquireError::Rejected`]: the request cannot succeed as it is. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server was out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the place in the queue is given up, a request already sent is awaited in the
    /// background and its permits are released (P3), and a wake is passed on to the next waiter.
    ///
    /// # On the wire
    /// One script when a permit is free. Otherwise one subscription for all waiters of the process, and an entry in the queue on the
    /// server; a release grants to the head of the queue by message. A request that finds too few free permits frees
    /// those whose leases have ended, up to 100 more than it needs.
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
    /// Small requests do not starve a big one, as with [`Semaphore::acquire_many`](crate::Semaphore::acquire_many). Permits
    /// held by Java processes count like those of other holders.
    ///
    /// # Errors
    /// As [`LeasedSemaphore::acquire`]. [`AcquireError::Rejected`] for zero permits and for more than
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

    /// Waits for `permits` permits, with `options`.
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
    /// not re-entered, every acquire takes further ones.
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
                .acquire(this.asking_for(permits), &options, this.lease)
                .await
                .map(LeasedPermit::of)
        }
    }

    /// Tries once to acquire `permits` permits, with `options`. Their timeout bounds the wait for the server's answer.
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
                .try_acquire(this.asking_for(permits), &options, this.lease)
                .await?;
            Ok(hold.map(LeasedPermit::of))
        }
    }

    /// Returns the number of available permits: those that are free, and those whose leases have ended. Negative after a
    /// [`LeasedSemaphore::reduce`] by more than were free.
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
        Ok(self.numbers().await?.available)
    }

    /// Returns the number of held permits whose leases have not ended.
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
        Ok(self.numbers().await?.acquired)
    }

    /// Returns the number of all permits, [`available`](LeasedSemaphore::available) and
    /// [`acquired`](LeasedSemaphore::acquired) together. Redisson's `getPermits`.
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
        Ok(self.numbers().await?.total)
    }

    /// Returns the numbers of permits, and the ids and leases of up to 1000 held ones, those that end first.
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
    ///
    /// # On the wire
    /// Two scripts, sent together.
    pub async fn status(&self) -> Result<LeasedStatus, QueryError> {
        let (call, queue) = (status(&self.pool.keys, LISTED), &self.pool.keys.queue);
        let (reply, waiting_processes) = self.pool.handle.status(&call, queue).await?;
        let status = LeasedStatus::read(&reply)
            .ok_or_else(|| unexpected(&reply))?
            .or_unmade(self.pool.unmade());
        Ok(LeasedStatus {
            waiting_processes,
            ..status
        })
    }

    /// Returns the events of the semaphore from now on: permits acquired, released or expired, and the number of free permits.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Event, LeasedSemaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leased-events").await?;
    /// # let licences = LeasedSemaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let mut events = licences.events();
    /// assert!(matches!(events.next().await, Some(Event::Now(state)) if state.available == Some(3)));
    /// let _permit = licences.acquire().await?;
    /// assert!(matches!(events.next().await, Some(Event::Taken(_))));
    /// assert_eq!(events.next().await, Some(Event::Available(2)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe; it only reads. Dropping the stream stops the reads.
    ///
    /// # On the wire
    /// Nothing until the stream is polled. Then, once for all listeners of this process: `CLIENT TRACKING ON` and `EXISTS` on the
    /// connection for messages. A script reads the state after each change and each renewal, and once in each poll interval.
    pub fn events(&self) -> Events {
        Events::of(
            &self.pool.handle,
            Arc::new(LeasedDescription::new(&self.pool.keys, 1)),
        )
    }

    async fn numbers(&self) -> Result<LeasedStatus, QueryError> {
        let call = status(&self.pool.keys, 0);
        let reply = self.pool.handle.query(&call, Resend::UntilAnswered).await?;
        let status = LeasedStatus::read(&reply).ok_or_else(|| unexpected(&reply))?;
        Ok(status.or_unmade(self.pool.unmade()))
    }

    /// Sets the total number of permits, held ones included, and returns the previous total. If more are held, no holder
    /// loses one: the number of free permits is negative until enough have been released. Redisson's `setPermits`.
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

    /// Sets the number of permits if the semaphore does not exist yet, and returns whether it did so. Redisson's `trySetPermits`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// assert!(semaphore.init(3).await?);
    /// assert!(!semaphore.init(5).await?); // the first call has set the number
    /// assert_eq!(semaphore.available().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::init`](crate::Semaphore::init). The cancel safety and the messages on the wire are the same.
    pub async fn init(&self, permits: u32) -> Result<bool, QueryError> {
        self.pool.init(permits).await
    }

    /// Waits for one permit, for at most `timeout`. Zero sends one request.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{AcquireError, Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(1).await?;
    /// let permit = semaphore.acquire().await?;
    /// let late = semaphore.acquire_timeout(Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
    /// permit.release().await?;
    /// semaphore.acquire_timeout(Duration::from_secs(5)).await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`](crate::Semaphore::acquire_timeout). The cancel safety and the messages on the wire are the same.
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<LeasedPermit, AcquireError>> + Send + 'static {
        self.acquire_with(1, within(timeout))
    }

    /// Waits for `permits` permits, for at most `timeout`. Zero sends one request.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{AcquireError, Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(3).await?;
    /// let pair = semaphore.acquire_many_timeout(2, Duration::from_secs(5)).await?;
    /// assert_eq!(pair.count(), 2);
    /// let late = semaphore.acquire_many_timeout(2, Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. }))); // one is free: not enough
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::acquire_many_timeout`](crate::Semaphore::acquire_many_timeout). The cancel safety and the messages on the wire are the same.
    pub fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<LeasedPermit, AcquireError>> + Send + 'static {
        self.acquire_with(permits, within(timeout))
    }

    /// Tries once to acquire one permit; returns `Ok(None)` when none is free, or the free ones are kept back for a big request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(1).await?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert!(permit.is_some());
    /// assert!(semaphore.try_acquire().await?.is_none()); // returns at once
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire). The cancel safety and the messages on the wire are the same.
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LeasedPermit>, AcquireError>> + Send + 'static {
        self.try_acquire_many(1)
    }

    /// Tries once to acquire `permits` permits, all of them at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(3).await?;
    /// let pair = semaphore.acquire_many(2).await?;
    /// assert!(semaphore.try_acquire_many(2).await?.is_none()); // all or none
    /// assert_eq!(semaphore.available().await?, 1);
    /// pair.release().await?;
    /// assert!(semaphore.try_acquire_many(2).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many). The cancel safety and the messages on the wire are the same.
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Option<LeasedPermit>, AcquireError>> + Send + 'static {
        self.try_acquire_with(permits, AcquireOptions::new())
    }

    /// Adds permits, wakes waiters, and returns the number of permits that are free afterwards. Creates the semaphore if it
    /// does not exist. A TTL on the key stays, unlike with Redisson's `addPermits`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(1).await?;
    /// let permit = semaphore.acquire().await?; // the only one
    /// let waiter = tokio::spawn(semaphore.acquire());
    /// assert_eq!(semaphore.add(1).await?, 1);
    /// assert_eq!(waiter.await??.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::add`](crate::Semaphore::add). The cancel safety and the messages on the wire are the same.
    pub async fn add(&self, permits: u32) -> Result<i64, QueryError> {
        self.pool.add(permits).await
    }

    /// Removes permits for good, free or held, and returns the number of permits that are free afterwards. While
    /// that number is negative, a release wakes no waiter. Redisson's `addPermits` with a negative number.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(3).await?;
    /// let pair = semaphore.acquire_many(2).await?;
    /// assert_eq!(semaphore.reduce(2).await?, -1); // one was free
    /// pair.release().await?;
    /// assert_eq!(semaphore.available().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::reduce`](crate::Semaphore::reduce). The cancel safety and the messages on the wire are the same.
    pub async fn reduce(&self, permits: u32) -> Result<i64, QueryError> {
        self.pool.reduce(permits).await
    }

    /// Removes all free permits for good, and returns their number.
    /// Permits whose leases have ended stay until a request needs them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(3).await?;
    /// let permit = semaphore.acquire().await?;
    /// assert_eq!(semaphore.drain().await?, 2);
    /// permit.release().await?;
    /// assert_eq!(semaphore.available().await?, 1); // the one that was held
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::drain`](crate::Semaphore::drain). The cancel safety and the messages on the wire are the same.
    pub async fn drain(&self) -> Result<u32, QueryError> {
        self.pool.drain().await
    }

    /// Returns the operations that take permits away from their holders.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, LeasedSemaphore};
    /// # let client = Client::connect("memory://leasedsemaphore-verbs").await?;
    /// # let semaphore = LeasedSemaphore::new(&client, "downloads")?;
    /// # semaphore.init(3).await?;
    /// let operator = semaphore.danger(); // a word that shows in a review
    /// assert!(operator.delete().await?);
    /// assert!(!semaphore.status().await?.exists);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn danger(&self) -> LeasedDanger<'_> {
        LeasedDanger { pool: &self.pool }
    }
}

/// Acquires one permit.
impl Acquire for LeasedSemaphore {
    fn name(&self) -> Name {
        Self::name(self).clone()
    }

    fn outage(&self) -> Option<Outage> {
        self.pool.handle.outage(Self::name(self))
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

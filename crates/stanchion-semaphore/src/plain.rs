//! The plain semaphore.

use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::{Resend, Synchronizer};
use stanchion_core::{
    AcquireError, AcquireOptions, Client, InvalidName, Lease, Name, QueryError, Rejection,
};

use crate::danger::SemaphoreDanger;
use crate::keys::Keys;
use crate::permit::Permit;
use crate::pool::{Pool, most, unexpected, wanted, within};
use crate::scripts::plain::{Description, status};
use crate::status::SemaphoreStatus;

/// A number of permits that processes share by a name. Cheap to clone; handles have no state.
///
/// Permits have no lease: whoever holds one holds it until it is released, also through any pause or outage. The price:
/// **the permits of a process that dies are lost**, until an operator returns them. [`Semaphore::status`] shows whose they
/// are, [`SemaphoreDanger::reclaim`] returns them. [`LeasedSemaphore`](crate::LeasedSemaphore) needs no operator.
///
/// # Guarantees
/// * Never more permits are held than there are, while the server keeps its data: an acquire that ran twice takes its
///   permits once (P6), and so does every change of their number.
/// * P3: an acquire that gives no [`Permit`] leaves nothing behind, as soon as the server answers again.
/// * P4: a release wakes as many waiters as it serves, in every process; a lost message costs a poll (5 s).
/// * In a process waiters are served in order of arrival. Between processes see [`Semaphore::acquire_many`].
///
/// # On the wire
/// Redisson's `RSemaphore`: the string `name` with the number of free permits, and the channel `redisson_sc:{name}`. The
/// hash `stanchion_permits:{name}` says who of us holds how many; Java's holders are not in it. An uncontended acquire and
/// release are two commands. When Java deletes the semaphore, nothing is held of it any more: a release gives nothing back
/// and says so.
#[derive(Clone, Debug)]
pub struct Semaphore {
    pool: Pool,
    one: Arc<dyn Synchronizer>,
}

impl Semaphore {
    /// The semaphore called `name` (1 to 512 bytes with the client's key prefix; on a cluster, no odd braces). Sends
    /// nothing. It has no permits until [`Semaphore::init`] or [`Semaphore::add`] gives it some, here or elsewhere.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let url = "memory://semaphore-new";
    /// let client = Client::connect(url).await?; // redis://…
    /// let licences = Semaphore::new(&client, "licences")?;
    /// assert_eq!(licences.available().await?, 0); // no call has given it permits yet
    /// assert!(Semaphore::new(&client, "").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let pool = Pool::new(client, Keys::plain(client, name)?);
        let one = Arc::new(Description {
            keys: Arc::clone(&pool.keys),
            permits: 1,
        });
        Ok(Self { pool, one })
    }

    /// The name, key prefix included.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, ClientConfig, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ClientConfig::new("memory://").key_prefix("shop:");
    /// let licences = Semaphore::new(&Client::connect_with(config).await?, "licences")?;
    /// assert_eq!(licences.name().as_bytes(), b"shop:licences");
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
        let permits = wanted(permits, most())?;
        let keys = Arc::clone(&self.pool.keys);
        Ok(Arc::new(Description { keys, permits }))
    }

    /// Sets the number of permits, if nobody has yet. Returns whether it did. Redisson's `trySetPermits`.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-init").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// assert!(licences.init(3).await?);
    /// assert!(!licences.init(5).await?); // the first call has set the number
    /// assert_eq!(licences.available().await?, 3);
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
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-acquire").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(1).await?;
    /// let permit = licences.acquire().await?; // the only one
    /// let next = tokio::spawn(licences.acquire()); // waits
    /// permit.release().await?;
    /// assert_eq!(next.await??.count(), 1);
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
    /// each waiter that a message can serve.
    pub fn acquire(&self) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        self.acquire_many(1)
    }

    /// Waits for `permits` permits, all of them at once.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-acquire-many").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let permit = licences.acquire().await?;
    /// let all = tokio::spawn(licences.acquire_many(3)); // waits, although two are free
    /// permit.release().await?;
    /// assert_eq!(all.await??.count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// A big request is not starved by small ones. In its process no waiter that came later is served before it. Across
    /// processes a request for more than one permit that has to wait, and is the first of its process, stands in a line on
    /// the server; from then on every first waiter that is refused joins behind it, also those for one permit. Permits are
    /// kept back for the first in line: others, and [`Semaphore::try_acquire`], get only what leaves enough for it. So it is
    /// served as soon as the permits that it lacks, of those that were held when it became first, have been released. The
    /// line has 16 places; whoever finds none asks again and takes the first that comes free.
    ///
    /// It keeps nobody waiting for what does not come back. The first has its turn for 3 s; who held permits all that time is
    /// remembered as slow, and a request that needs their permits is passed over: others go on before it, in its process,
    /// too, until they have released. Then it has another turn, twice as long. It is served among holds of up to 5 min,
    /// after which the slow are forgotten; a permit that never comes back costs the others 3 s in 5 min.
    ///
    /// Exceptions: Redisson's requests ignore the line. A first in line that has died keeps permits back for 3 s. A request
    /// for more permits than there are, held by Java or not at all, is passed over until some are added. So is one that
    /// has missed its turn beside more than 256 holders, for 5 min.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]. [`AcquireError::Rejected`] for no permits and for more than 2³¹ − 1.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        self.acquire_with(permits, AcquireOptions::new())
    }

    /// Waits for one permit, for at most `timeout`. Zero asks once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireError, Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-acquire-timeout").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(1).await?;
    /// let permit = licences.acquire().await?;
    /// let late = licences.acquire_timeout(Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
    /// permit.release().await?;
    /// licences.acquire_timeout(Duration::from_secs(5)).await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as
    /// [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        self.acquire_many_timeout(1, timeout)
    }

    /// Waits for `permits` permits, for at most `timeout`. Zero asks once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireError, Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-acquire-many-timeout").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let pair = licences.acquire_many_timeout(2, Duration::from_secs(5)).await?;
    /// assert_eq!(pair.count(), 2);
    /// let late = licences.acquire_many_timeout(2, Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. }))); // one is free: not enough
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`] and [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        self.acquire_with(permits, within(timeout))
    }

    fn acquire_with(
        &self,
        permits: u32,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            this.pool
                .acquire(this.asking_for(permits), options, Lease::default())
                .await
                .map(Permit::new)
        }
    }

    /// Asks once for one permit; `Ok(None)` when none is free, or those that are free are kept back for a big request.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-try-acquire").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(1).await?;
    /// let permit = licences.try_acquire().await?;
    /// assert!(permit.is_some());
    /// assert!(licences.try_acquire().await?.is_none()); // returns at once
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect of once (P6).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Permit>, AcquireError>> + Send + 'static {
        self.try_acquire_many(1)
    }

    /// Asks once for `permits` permits.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-try-acquire-many").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let pair = licences.acquire_many(2).await?;
    /// assert!(licences.try_acquire_many(2).await?.is_none()); // all or none
    /// assert_eq!(licences.available().await?, 1);
    /// pair.release().await?;
    /// assert!(licences.try_acquire_many(2).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`] and [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Option<Permit>, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let hold = this
                .pool
                .try_acquire(
                    this.asking_for(permits),
                    AcquireOptions::new(),
                    Lease::default(),
                )
                .await?;
            Ok(hold.map(Permit::new))
        }
    }

    /// How many permits nobody holds; 0 when there is no such semaphore. Negative after a [`Semaphore::reduce`] below what
    /// was free.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-available").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let pair = licences.acquire_many(2).await?;
    /// assert_eq!(licences.available().await?, 1);
    /// pair.release().await?;
    /// assert_eq!(licences.available().await?, 3);
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
        Ok(self.look(Holders::Uncounted).await?.available)
    }

    /// How many permits are free, and who of us holds how many.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-status").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let pair = licences.acquire_many(2).await?;
    /// let status = licences.status().await?;
    /// assert_eq!(status.available, 1);
    /// assert_eq!(status.holders[0].owner, pair.owner().as_str());
    /// assert_eq!(status.holders[0].permits, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::available`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script; its cost grows with the number of holders.
    pub async fn status(&self) -> Result<SemaphoreStatus, QueryError> {
        self.look(Holders::Listed).await
    }

    async fn look(&self, holders: Holders) -> Result<SemaphoreStatus, QueryError> {
        let call = status(&self.pool.keys, holders == Holders::Listed);
        let reply = self.pool.client.query(&call, Resend::UntilAnswered).await?;
        SemaphoreStatus::read(&reply).ok_or_else(|| unexpected(&reply))
    }

    /// Adds permits, and wakes waiters. Returns how many are free then. A semaphore that does not exist is made. A TTL on
    /// the key stays, unlike with Redisson's `addPermits`.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-add").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(1).await?;
    /// let permit = licences.acquire().await?; // the only one
    /// let waiter = tokio::spawn(licences.acquire());
    /// assert_eq!(licences.add(1).await?, 1);
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

    /// Takes permits away for good, whether or not they are free. Returns how many are free then: below zero, so many
    /// releases do not wake anybody. Redisson's `addPermits` with a negative number.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-reduce").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let pair = licences.acquire_many(2).await?;
    /// assert_eq!(licences.reduce(2).await?, -1); // one was free
    /// pair.release().await?;
    /// assert_eq!(licences.available().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::add`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have taken them.
    ///
    /// # On the wire
    /// As [`Semaphore::add`].
    pub async fn reduce(&self, permits: u32) -> Result<i64, QueryError> {
        self.pool.reduce(permits).await
    }

    /// Takes all free permits away for good, and returns how many that were.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-drain").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let permit = licences.acquire().await?;
    /// assert_eq!(licences.drain().await?, 2);
    /// permit.release().await?;
    /// assert_eq!(licences.available().await?, 1); // the one that was held
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Semaphore::add`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have taken them.
    ///
    /// # On the wire
    /// As [`Semaphore::add`].
    pub async fn drain(&self) -> Result<u32, QueryError> {
        self.pool.drain().await
    }

    /// What breaks promises.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-danger").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let operator = licences.danger(); // a word that shows in a review
    /// assert!(operator.delete().await?);
    /// assert!(!licences.status().await?.exists);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn danger(&self) -> SemaphoreDanger<'_> {
        SemaphoreDanger { pool: &self.pool }
    }
}

/// Whether a look at a semaphore lists its holders.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holders {
    Listed,
    Uncounted,
}

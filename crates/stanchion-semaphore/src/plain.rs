//! The plain semaphore.
//!
//! Long: the public verbs of one type, each with its contract and an example.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, Resend, Synchronizer, unexpected};
use stanchion_client::{
    AcquireError, AcquireOptions, Client, Events, IdleExpiry, InvalidName, Lease, Name, QueryError,
    Rejection,
};

use crate::danger::SemaphoreDanger;
use crate::keys::Keys;
use crate::permit::Permit;
use crate::pool::{Pool, most, wanted, within};
use crate::scripts::plain::{Description, status};
use crate::status::SemaphoreStatus;

/// A number of permits that processes share by a name. Cheap to clone; handles have no state.
///
/// Permits have no lease: a permit is held until it is released, through any pause or outage. The price: **the permits of a
/// process that dies stay taken** until an operator gives them back. [`Semaphore::status`] lists their owners, and
/// [`SemaphoreDanger::reclaim`] gives them back. [`LeasedSemaphore`](crate::LeasedSemaphore) needs no operator.
///
/// # Guarantees
/// * No more permits are held than exist, while the server keeps its data: an acquire, and any change of the number of
///   permits, takes effect once, even when it was resent (P6).
/// * P3: an acquire that returns no [`Permit`] leaves nothing behind once the server answers again.
/// * P4: a release wakes as many waiters as it can serve, the processes in order of arrival; a lost message delays them until the
///   next poll (5 s).
/// * Within a process, waiters for the same number of permits are served in order of arrival. Across processes, see [`Semaphore::acquire_many`].
///
/// # On the wire
/// Redisson's `RSemaphore`: the string `name` with the number of free permits, and the channel `redisson_sc:{name}`. The
/// hash `stanchion_permits:{name}` has the number of permits of each holder, except Java's. An uncontended acquire and release
/// are two commands. When Java deletes the semaphore, its permits are no longer held: a release gives nothing back and
/// returns an error.
#[derive(Clone, Debug)]
pub struct Semaphore {
    pool: Pool,
    one: Arc<dyn Synchronizer>,
}

impl Semaphore {
    /// Returns a handle to the semaphore called `name` (1 to 512 bytes with the client's key prefix; on a cluster, no odd
    /// braces). Sends nothing. The semaphore has no permits until [`Semaphore::init`] or [`Semaphore::add`] gives it some, in
    /// any process.
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
        let handle = Handle::of(client);
        let keys = Keys::plain(&handle, name)?;
        Ok(Self::over(Pool::new(handle, keys)))
    }

    fn over(pool: Pool) -> Self {
        let one = Arc::new(Description::new(&pool.keys, 1));
        Self { pool, one }
    }

    /// Returns the same semaphore, ephemeral: it needs no [`init`](Self::init) and ends after a time without use. Every call by this handle
    /// that finds no semaphore creates it with `permits` permits. When no permit is held and the semaphore has not been used for the time
    /// of `expiry`, all its keys are removed. For names that come and go, such as one for each customer. Off by default, as with Redisson.
    ///
    /// The time belongs to the semaphore, not to the handle: the call that creates it sets the time, and every acquire,
    /// release, change and [`init`](Self::init) by any handle of any process restarts it. An existing semaphore is not
    /// changed, not even its number. A semaphore with a held permit, or with a waiting stanchion process, is kept beyond that time; **also by
    /// the permit of a process that has died**, until an operator [gives it back](SemaphoreDanger::reclaim). For other
    /// handles a missing semaphore has no permits; for this one all are free ([`available`](Self::available)).
    ///
    /// Redisson's acquires and releases neither restart the time nor keep the semaphore: do not use it where Java holds a permit for longer
    /// than the time. If Java creates the semaphore or changes its number (`addPermits`, `drainPermits`), it no longer ends.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stanchion_semaphore::Client::connect("memory://semaphore-ephemeral").await?;
    /// use stanchion_semaphore::{IdleExpiry, Semaphore};
    ///
    /// let hour = IdleExpiry::after(Duration::from_secs(3600))?;
    /// let imports = Semaphore::new(&client, "imports:4711")?.ephemeral(3, hour);
    /// let permit = imports.acquire().await?; // makes it
    /// permit.release().await?; // an hour after the last of these calls it is gone
    /// # assert_eq!(imports.available().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// More than 2³¹ − 1 permits are refused by the calls, with [`Rejection::InvalidOption`].
    ///
    /// # On the wire
    /// A TTL of the string `name`, and `stanchion_semaphore_idle:{name}` with the same TTL. That key has the time, the
    /// number of permits, and the end of the time for which a waiter keeps the semaphore.
    #[must_use]
    pub fn ephemeral(self, permits: u32, expiry: IdleExpiry) -> Self {
        Self::over(self.pool.ephemeral(permits, expiry))
    }

    /// Returns the name, key prefix included.
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
        Ok(Arc::new(Description::new(&self.pool.keys, permits)))
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
    /// [`AcquireError::Rejected`]: the request cannot succeed as it is. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server was out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the place in the queue is given up, a request already sent is awaited in the background
    /// and its permits are released (P3), and a wake is passed on to the next waiter.
    ///
    /// # On the wire
    /// One script when a permit is free. Otherwise one subscription for all waiters of the process, and an entry in the queue on the
    /// server; a release grants to the head of the queue by message, and one more script confirms the grant.
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
    /// Small requests do not starve a big one. The server orders requests by arrival; the tasks of a process that want the same number of
    /// permits share a place in this order. When a big request is the first, it has a turn of 3 s. In that time free permits are kept for it:
    /// other requests, and [`Semaphore::try_acquire`], get none.
    ///
    /// A permit that never comes back does not stop the queue. If the turn ends first, the request rests for ten times as long: it stays
    /// in the queue, and all requests for which there are enough permits are served before it. Its
    /// next turn is twice as long, up to 300 s. A big request is therefore served despite holds of up to 5 min, and a permit that never
    /// comes back costs the others a tenth of the time at most.
    ///
    /// Exceptions: Redisson's requests ignore the queue. If the process of a big request was killed, no permits are kept for it. If it was
    /// stopped, they are kept for one turn.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]. [`AcquireError::Rejected`] for zero permits and for more than 2³¹ − 1.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        self.acquire_with(permits, AcquireOptions::new())
    }

    /// Waits for `permits` permits, with `options`: a timeout, or a function to call when the acquire has to wait.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireError, AcquireOptions, Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-acquire-with").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(1).await?;
    /// let _held = licences.acquire().await?;
    /// let options = AcquireOptions::new()
    ///     .timeout(Duration::from_millis(20))
    ///     .on_queued(|| println!("waiting for a licence"));
    /// let late = licences.acquire_with(1, options).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire_many_timeout`](Self::acquire_many_timeout). [`Rejection::InvalidOption`], and nothing is sent, for options that could have
    /// no effect: those of a lease (`lease`, `first_lease`, `renewal`, `max_hold`, `rest_after_crash`), because these permits have none; an
    /// owner, because permits are not re-entered; `on_deadlock`. [`LeasedSemaphore::acquire_with`](crate::LeasedSemaphore::acquire_with)
    /// takes those of a lease.
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn acquire_with(
        &self,
        permits: u32,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            this.pool
                .acquire(
                    this.asking_for(permits),
                    &options,
                    Lease::default().length(),
                )
                .await
                .map(Permit::new)
        }
    }

    /// Tries once to acquire `permits` permits, with `options`. Their timeout bounds the wait for the server's answer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_semaphore::{AcquireOptions, Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-try-acquire-with").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(1).await?;
    /// let soon = AcquireOptions::new().timeout(Duration::from_millis(200));
    /// assert!(licences.try_acquire_with(1, soon).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_with`](Self::acquire_with).
    ///
    /// # Cancel safety
    /// As [`Semaphore::acquire`].
    pub fn try_acquire_with(
        &self,
        permits: u32,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<Permit>, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let hold = this
                .pool
                .try_acquire(
                    this.asking_for(permits),
                    &options,
                    Lease::default().length(),
                )
                .await?;
            Ok(hold.map(Permit::new))
        }
    }

    /// Returns the number of free permits; 0 when the semaphore does not exist. Negative after a [`Semaphore::reduce`] by more
    /// than were free.
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
        let call = status(&self.pool.keys, false);
        let reply = self.pool.handle.query(&call, Resend::UntilAnswered).await?;
        let status = SemaphoreStatus::read(&reply)
            .ok_or_else(|| unexpected(&reply))?
            .or_unmade(self.pool.unmade());
        Ok(status.available)
    }

    /// Returns the number of free permits, and the holders with their numbers, except Java's.
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
    /// Two scripts, sent together; the cost grows with the number of holders.
    pub async fn status(&self) -> Result<SemaphoreStatus, QueryError> {
        let (call, queue) = (status(&self.pool.keys, true), &self.pool.keys.queue);
        let (reply, waiting_processes) = self.pool.handle.status(&call, queue).await?;
        let status = SemaphoreStatus::read(&reply)
            .ok_or_else(|| unexpected(&reply))?
            .or_unmade(self.pool.unmade());
        Ok(SemaphoreStatus {
            waiting_processes,
            ..status
        })
    }

    /// Returns the events of the semaphore from now on: permits acquired or released, and the number of free permits.
    /// Java's holders are not listed: their operations only show in the number of free permits.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Event, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphore-events").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
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
            Arc::new(Description::new(&self.pool.keys, 1)),
        )
    }

    /// Sets the number of permits if the semaphore does not exist yet, and returns whether it did so. Redisson's `trySetPermits`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
    /// assert!(semaphore.init(3).await?);
    /// assert!(!semaphore.init(5).await?); // the first call has set the number
    /// assert_eq!(semaphore.available().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unavailable`]: it may have taken effect, and does not take effect later.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have set it.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6).
    pub async fn init(&self, permits: u32) -> Result<bool, QueryError> {
        self.pool.init(permits).await
    }

    /// Waits for one permit, for at most `timeout`. Zero sends one request.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{AcquireError, Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
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
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        self.acquire_with(1, within(timeout))
    }

    /// Waits for `permits` permits, for at most `timeout`. Zero sends one request.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{AcquireError, Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
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
    /// As [`acquire_timeout`](Self::acquire_timeout) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + Send + 'static {
        self.acquire_with(permits, within(timeout))
    }

    /// Tries once to acquire one permit; returns `Ok(None)` when none is free, or the free ones are kept back for a big request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
    /// # semaphore.init(1).await?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert!(permit.is_some());
    /// assert!(semaphore.try_acquire().await?.is_none()); // returns at once
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once (P6).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Permit>, AcquireError>> + Send + 'static {
        self.try_acquire_many(1)
    }

    /// Tries once to acquire `permits` permits, all of them at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
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
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Option<Permit>, AcquireError>> + Send + 'static {
        self.try_acquire_with(permits, AcquireOptions::new())
    }

    /// Adds permits, wakes waiters, and returns the number of permits that are free afterwards. Creates the semaphore if it
    /// does not exist. A TTL on the key stays, unlike with Redisson's `addPermits`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
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
    /// [`QueryError`]. [`QueryError::Unavailable`]: they may have been added, and are not added later.
    /// [`QueryError::Rejected`] for more than 2³¹ − 1, the most that Java can read.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have added them.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6).
    pub async fn add(&self, permits: u32) -> Result<i64, QueryError> {
        self.pool.add(permits).await
    }

    /// Removes permits for good, free or held, and returns the number of permits that are free afterwards. While
    /// that number is negative, a release wakes no waiter. Redisson's `addPermits` with a negative number.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
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
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have removed them.
    ///
    /// # On the wire
    /// As [`add`](Self::add).
    pub async fn reduce(&self, permits: u32) -> Result<i64, QueryError> {
        self.pool.reduce(permits).await
    }

    /// Removes all free permits for good, and returns their number.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
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
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have removed them.
    ///
    /// # On the wire
    /// As [`add`](Self::add).
    pub async fn drain(&self) -> Result<u32, QueryError> {
        self.pool.drain().await
    }

    /// Returns the operations that take permits away from their holders.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # let client = Client::connect("memory://semaphore-verbs").await?;
    /// # let semaphore = Semaphore::new(&client, "licences")?;
    /// # semaphore.init(3).await?;
    /// let operator = semaphore.danger(); // a word that shows in a review
    /// assert!(operator.delete().await?);
    /// assert!(!semaphore.status().await?.exists);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn danger(&self) -> SemaphoreDanger<'_> {
        SemaphoreDanger { pool: &self.pool }
    }
}

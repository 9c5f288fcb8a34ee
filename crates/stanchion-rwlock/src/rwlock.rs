//! The read-write lock.
//!
//! Long: the public verbs of one type, each with its contract and an example.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, Part, Reply, Resend, Synchronizer};
use stanchion_client::{
    AcquireError, AcquireOptions, Asked, Client, Events, Fencing, InvalidName, Lease, Lockable,
    Name, QueryError,
};

use crate::guard::{ReadGuard, WriteGuard};
use crate::layout::Layout;
use crate::preference::Preference;
use crate::read::ReadSide;
use crate::status::RwLockStatus;
use crate::write::WriteSide;

/// A read-write lock that processes share by its name: many readers, or one writer. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * P1: while one owner writes, until its [`valid_until`](WriteGuard::valid_until), no other owner reads or writes.
///   Readers hold the lock together.
/// * P2: [fencing tokens](WriteGuard::fencing_token) of writers grow.
/// * P3: an acquire that returns no guard leaves nothing behind.
/// * P4: the release of a writer, or of the last reader, gives the lock to the next in the queue within about a round trip: to
///   one writer, or to the readers up to the next writer. After a lost message it takes 1.5 s, or at the longest until the next
///   poll (5 s).
/// * Readers of a dead process keep the lock until their leases end, and no longer, even if other readers follow.
/// * P11: the work of a release does not grow with the number of readers.
/// * Every acquire is a new owner: two calls on one handle are two readers, or exclude each other. To re-enter, use
///   `reenter` on a guard or [`AcquireOptions::owner`].
/// * Waiters of one process are served in order of arrival, so no reader overtakes a waiting writer of its own
///   process. Waiting processes are also served in order of arrival. For readers that arrive while others read see
///   [`Preference`].
///
/// # One owner on both sides
/// An [`Owner`](stanchion_client::Owner) that writes may also read, without a wait. If it releases its write hold first, it
/// keeps reading; [`WriteGuard::downgrade`] does the same in one step. An owner that reads and then acquires for writing
/// would wait for itself, so the call is refused with [`Rejection::AlreadyHeld`](stanchion_client::Rejection::AlreadyHeld).
///
/// A task that holds a read guard and acquires another one *as another owner* can deadlock: it waits behind waiting
/// writers, and they wait for the task. Use [`ReadGuard::reenter`].
///
/// # Together with Redisson
/// Redisson renews a read lease by setting the TTL of the whole lock to 30 s, even if that shortens the TTL. Where
/// Java programs read under the same name, keep read leases at 30 s or less.
///
/// # On the wire
/// Redisson's `RReadWriteLock`: the hash `name` with the field `mode` and one field for each holder, a key for each reader that
/// lasts as long as its lease, and the channel `redisson_rwlock:{name}`. An acquire and its release are two commands, even with
/// many waiting processes: stanchion keeps a queue of them, and each subscribes to its own channel, named after Redisson's.
#[derive(Clone, Debug)]
pub struct RwLock {
    handle: Handle,
    layout: Arc<Layout>,
    readers: Arc<dyn Synchronizer>,
    writers: Arc<dyn Synchronizer>,
    fencing: Fencing,
    lease: Duration,
}

impl RwLock {
    /// Creates a handle to the read-write lock called `name`. Sends nothing.
    ///
    /// A name has 1 to 512 bytes with the client's key prefix; on a cluster it has no braces, or exactly one non-empty `{tag}`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-new").await?;
    /// let prices = RwLock::new(&client, "prices")?;
    /// let same = RwLock::new(&client, "prices")?; // one name, one lock
    /// let _writing = prices.write().await?;
    /// assert!(same.try_read().await?.is_none());
    /// assert!(RwLock::new(&client, "").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = client.name(name)?;
        let (fencing, preference) = (Fencing::default(), Preference::default());
        let handle = Handle::of(client);
        let layout = Layout::new(&handle, name, fencing, preference);
        Ok(Self::described(
            handle,
            layout,
            fencing,
            Lease::default().length(),
        ))
    }

    fn described(handle: Handle, layout: Layout, fencing: Fencing, lease: Duration) -> Self {
        let layout = Arc::new(layout);
        Self {
            handle,
            readers: Arc::new(ReadSide(Arc::clone(&layout))),
            writers: Arc::new(WriteSide(Arc::clone(&layout))),
            layout,
            fencing,
            lease,
        }
    }

    /// Returns the same lock with its writers' tokens from another source. All users of a name must agree on it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-fencing").await?;
    /// use stanchion_rwlock::Fencing;
    ///
    /// let cache = RwLock::new(&client, "cache")?.fencing(Fencing::Off); // saves one key
    /// let writing = cache.write().await?;
    /// assert_eq!(writing.fencing_token(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing(self, fencing: Fencing) -> Self {
        let (name, preference) = (self.name().clone(), self.layout.preference);
        let layout = Layout::new(&self.handle, name, fencing, preference);
        Self::described(self.handle, layout, fencing, self.lease)
    }

    /// Returns the same lock with another order between readers and writers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-preference").await?;
    /// use stanchion_rwlock::Preference;
    ///
    /// let prices = RwLock::new(&client, "prices")?.preference(Preference::Writer);
    /// let _reading = prices.read().await?;
    /// let _writer = tokio::spawn(prices.write()); // waits for the reader
    /// # while !prices.status().await?.readers_held_off {}
    /// assert!(prices.try_read().await?.is_none()); // new readers come after the writer
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn preference(self, preference: Preference) -> Self {
        let name = self.name().clone();
        let layout = Layout::new(&self.handle, name, self.fencing, preference);
        Self::described(self.handle, layout, self.fencing, self.lease)
    }

    /// Returns the same lock with another lease for acquires that set none: 10 ms to 30 days, checked by the
    /// acquires. Default 30 s.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-lease").await?;
    /// use std::time::Duration;
    /// use stanchion_rwlock::Lease;
    ///
    /// let short = Lease::new(Duration::from_secs(5))?;
    /// let prices = RwLock::new(&client, "prices")?.lease(short);
    /// let reading = prices.read().await?; // if this process dies, writers wait for 5 s at most
    /// assert!(reading.remaining() <= Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Returns the reading side, for a multi-lock and for code that takes any lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-read_side").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// use stanchion_rwlock::Acquire;
    ///
    /// let any: &dyn Acquire = &prices.read_side();
    /// let guard = any.acquire().await?;
    /// assert!(!guard.is_exclusive());
    /// assert!(prices.try_read().await?.is_some()); // beside other readers
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read_side(&self) -> RwLockSide {
        RwLockSide(Part::new(&self.handle, &self.readers, self.lease))
    }

    /// Returns the writing side, for a multi-lock and for code that takes any lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-write_side").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// use stanchion_rwlock::Acquire;
    ///
    /// let any: &dyn Acquire = &prices.write_side();
    /// let guard = any.acquire().await?;
    /// assert!(guard.is_exclusive());
    /// assert!(prices.try_read().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn write_side(&self) -> RwLockSide {
        RwLockSide(Part::new(&self.handle, &self.writers, self.lease))
    }

    /// Returns the name, key prefix included.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://rwlock-name").await?;
    /// use stanchion_rwlock::{Client, ClientConfig, RwLock};
    ///
    /// let mut config = ClientConfig::new("memory://rwlock-name");
    /// config.key_prefix = "shop:".into();
    /// let client = Client::connect_with(config).await?;
    /// let prices = RwLock::new(&client, "prices")?;
    /// assert_eq!(prices.name().to_string(), "shop:prices");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        self.layout.name()
    }

    /// Waits until the lock is acquired for reading.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-read").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let reading = prices.read().await?;
    /// let beside = prices.read().await?; // readers hold together
    /// assert!(prices.try_write().await?.is_none());
    /// beside.release().await?;
    /// reading.release().await?;
    /// assert!(prices.try_write().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: the request cannot succeed as it is. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the waiter leaves the queue; a request already sent is awaited in the background and its
    /// grant released (P3); a wake is passed on to the next waiter.
    ///
    /// # On the wire
    /// One script when no other owner writes. Otherwise one subscription for all waiters of the process, and an entry in the queue on the
    /// server; a release grants by message. After that grant all readers of the process up to its next writer send requests.
    pub fn read(&self) -> impl Future<Output = Result<ReadGuard, AcquireError>> + Send + 'static {
        self.read_with(AcquireOptions::new())
    }

    /// Waits until the lock is acquired for writing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-write").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let reading = prices.read().await?;
    /// let writer = tokio::spawn(prices.write()); // waits for the reader
    /// reading.release().await?;
    /// let writing = writer.await??;
    /// assert!(prices.try_read().await?.is_none()); // alone
    /// # drop(writing);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RwLock::read`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    ///
    /// # On the wire
    /// One script when the lock is free. Otherwise one subscription for all waiters of the process, and an entry in the queue
    /// on the server; the release grants to the head of the queue by message.
    pub fn write(&self) -> impl Future<Output = Result<WriteGuard, AcquireError>> + Send + 'static {
        self.write_with(AcquireOptions::new())
    }

    /// Waits to read for at most `timeout`. Zero sends one request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{AcquireError, Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-read_timeout").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// # use std::time::Duration;
    /// let _writing = prices.write().await?;
    /// match prices.read_timeout(Duration::from_millis(50)).await {
    ///     Err(AcquireError::TimedOut { waited, .. }) => assert!(waited >= Duration::from_millis(50)),
    ///     other => panic!("somebody else writes: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as [`RwLock::read`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    pub fn read_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<ReadGuard, AcquireError>> + Send + 'static {
        self.read_with(AcquireOptions::new().timeout(timeout))
    }

    /// Waits to write for at most `timeout`. Zero sends one request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{AcquireError, Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-write_timeout").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// # use std::time::Duration;
    /// let _reading = prices.read().await?;
    /// match prices.write_timeout(Duration::from_millis(50)).await {
    ///     Err(AcquireError::TimedOut { waited, .. }) => assert!(waited >= Duration::from_millis(50)),
    ///     other => panic!("somebody else reads: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RwLock::read_timeout`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    pub fn write_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<WriteGuard, AcquireError>> + Send + 'static {
        self.write_with(AcquireOptions::new().timeout(timeout))
    }

    /// Acquires for reading with `options`. An owner that already writes is granted without a wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{AcquireOptions, Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-read_with").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let writing = prices.write().await?;
    /// let same = AcquireOptions::new().owner(writing.owner());
    /// let reading = prices.read_with(same).await?; // inside its own write hold
    /// writing.release().await?;
    /// assert_eq!(prices.status().await?.reader_count, 1); // it keeps reading
    /// # drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RwLock::read`] and [`RwLock::read_timeout`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    pub fn read_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<ReadGuard, AcquireError>> + Send + 'static {
        self.read_side().0.acquire_with(options)
    }

    /// Acquires for writing with `options`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{AcquireError, AcquireOptions, Client, Rejection, RwLock};
    /// # let client = Client::connect("memory://rwlock-write_with").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let reading = prices.read().await?;
    /// let same = AcquireOptions::new().owner(reading.owner());
    /// // To write, it would wait for its own read hold for ever.
    /// match prices.write_with(same).await {
    ///     Err(AcquireError::Rejected { rejection: Rejection::AlreadyHeld { .. }, .. }) => {}
    ///     other => panic!("refused at once: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RwLock::write`] and [`RwLock::write_timeout`]; and [`AcquireError::Rejected`] with
    /// [`Rejection::AlreadyHeld`](stanchion_client::Rejection::AlreadyHeld), at once and without a request, for an
    /// owner that reads.
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    pub fn write_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<WriteGuard, AcquireError>> + Send + 'static {
        self.write_side().0.acquire_with(options)
    }

    /// Tries once to acquire for reading, without waiting; `Ok(None)` when another owner writes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-try_read").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let writing = prices.write().await?;
    /// assert!(prices.try_read().await?.is_none()); // answered at once
    /// writing.release().await?;
    /// let reading = prices.try_read().await?.ok_or("somebody else writes")?;
    /// assert!(prices.try_read().await?.is_some()); // beside other readers
    /// # drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    ///
    /// # On the wire
    /// One script. It is sent again after a lost reply, with the effect of once (P6).
    pub fn try_read(
        &self,
    ) -> impl Future<Output = Result<Option<ReadGuard>, AcquireError>> + Send + 'static {
        self.try_read_with(AcquireOptions::new())
    }

    /// Tries once to acquire for writing, without waiting; `Ok(None)` when another owner holds the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-try_write").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let reading = prices.read().await?;
    /// assert!(prices.try_write().await?.is_none()); // answered at once
    /// reading.release().await?;
    /// let writing = prices.try_write().await?.ok_or("somebody else holds it")?;
    /// assert!(writing.fencing_token().is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RwLock::try_read`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    ///
    /// # On the wire
    /// As [`RwLock::try_read`]. It holds no readers off, with either [`Preference`].
    pub fn try_write(
        &self,
    ) -> impl Future<Output = Result<Option<WriteGuard>, AcquireError>> + Send + 'static {
        self.try_write_with(AcquireOptions::new())
    }

    /// Tries once to acquire for reading, with `options`. Their timeout limits the wait for the server's reply.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-try_read_with").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// # use std::time::Duration;
    /// use stanchion_rwlock::AcquireOptions;
    ///
    /// let bounded = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let reading = prices.try_read_with(bounded).await?.ok_or("somebody else writes")?;
    /// reading.lost().await; // forgotten guards block writers no longer than that
    /// assert!(!reading.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RwLock::try_read`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    pub fn try_read_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<ReadGuard>, AcquireError>> + Send + 'static {
        self.read_side().0.try_acquire_with(options)
    }

    /// Tries once to acquire for writing, with `options`. Their timeout limits the wait for the server's reply.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-try_write_with").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// # use std::time::Duration;
    /// use stanchion_rwlock::{AcquireOptions, Lease, Renewal};
    ///
    /// let minute = Lease::new(Duration::from_secs(60))?;
    /// let once_a_minute = AcquireOptions::new().lease(minute).renewal(Renewal::Manual);
    /// let writing = prices.try_write_with(once_a_minute.clone()).await?.ok_or("it has run")?;
    /// writing.leave(); // keeps others off until the lease ends
    /// assert!(prices.try_write_with(once_a_minute).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RwLock::try_read`] and [`RwLock::write_with`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    pub fn try_write_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<WriteGuard>, AcquireError>> + Send + 'static {
        self.write_side().0.try_acquire_with(options)
    }

    /// Returns the writer and the readers, their hold counts, the rest of the longest lease, and the last token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-status").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let (one, two) = (prices.read().await?, prices.read().await?);
    /// let status = prices.status().await?;
    /// assert_eq!((status.writer, status.reader_count), (None, 2));
    /// let reader = &status.readers[0];
    /// assert!(reader.owner.starts_with(&client.id().to_string()));
    /// # drop((one, two));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_client::Rejection::WrongType) when the name belongs to something
    /// else.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// Two scripts, sent together. The reply lists 1000 holders at most.
    pub async fn status(&self) -> Result<RwLockStatus, QueryError> {
        let call = self.layout.status(RwLockStatus::MOST);
        let (reply, waiting_processes) = self.handle.status(&call, &self.layout.line).await?;
        let seen = RwLockStatus::read(&reply)?;
        Ok(RwLockStatus {
            waiting_processes,
            // Without the preference readers pass a writer that waits.
            readers_held_off: seen.readers_held_off && self.layout.preference == Preference::Writer,
            ..seen
        })
    }

    /// Returns the events of the lock from now on: acquires and releases of readers and writers, and expired leases.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, Event, HoldMode, RwLock};
    /// # let client = Client::connect("memory://rwlock-events").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let mut events = prices.events();
    /// assert!(matches!(events.next().await, Some(Event::Now(_)))); // the state of now
    /// let _reading = prices.read().await?;
    /// assert!(matches!(events.next().await, Some(Event::Taken(by)) if by.mode == HoldMode::Shared));
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
        Events::of(&self.handle, self.layout.clone())
    }

    /// Sends the readers or the writer a request to give the lock back, with a reason of at most 200 bytes. The
    /// holders decide, and need not reply: their guards show the [request](crate::WriteGuard::requested).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-request").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let writing = prices.write().await?;
    /// let requested = writing.requested(); // from here on this client listens
    /// while prices.request_release("an export waits").await?.heard == 0 {
    ///     tokio::time::sleep(Duration::from_millis(10)).await;
    /// }
    /// assert_eq!(requested.await.reason, "an export waits");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have sent the request.
    ///
    /// # On the wire
    /// One script, which publishes to the processes of at most 1024 holders. A process subscribes when it has held something for a second
    /// (in a cluster, for a third of its lease); before that it does not receive the request. Redisson processes never receive it.
    pub async fn request_release(&self, reason: &str) -> Result<Asked, QueryError> {
        let name = self.layout.name();
        self.handle.request_release(name, reason, true).await
    }

    /// Returns the operations that break guarantees.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-danger").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let stuck = prices.write().await?; // its process hangs
    /// let danger = prices.danger(); // a word to look for in reviews
    /// assert!(danger.force_release().await?);
    /// assert!(!prices.status().await?.is_held());
    /// # drop(stuck);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn danger(&self) -> RwLockDanger<'_> {
        RwLockDanger { lock: self }
    }
}

/// One side of a [`RwLock`], as a member of a multi-lock. See [`RwLock::read_side`] and [`RwLock::write_side`].
#[derive(Clone, Debug)]
pub struct RwLockSide(Part);

impl Lockable for RwLockSide {
    fn part(&self) -> Part {
        self.0.clone()
    }
}

/// Operations that take a lock away from its holders. See [`RwLock::danger`].
#[derive(Debug)]
pub struct RwLockDanger<'a> {
    lock: &'a RwLock,
}

impl RwLockDanger<'_> {
    /// Frees the lock, whether readers or a writer hold it. Returns whether it was held.
    ///
    /// At most 1024 holders get a message and query the server: they know of the loss within a round trip. A holder that has held for less
    /// than a second, or that misses the message, learns of it at its next renewal, up to a third of its lease later. Until then, P1 and P5
    /// do not hold; fencing tokens still do. The readers' own keys next to the hash expire with their leases.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-force_release").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let old = prices.write().await?;
    /// assert!(prices.danger().force_release().await?);
    /// let new = prices.try_write().await?.ok_or("it is free")?;
    /// assert!(new.fencing_token() > old.fencing_token()); // the resource can refuse `old`
    /// assert!(old.renew().await.is_err()); // and `old` learns that it is lost
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: the script may have run; it is not sent twice, because the second
    /// run would take the lock from the next holder.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have freed the lock.
    pub async fn force_release(&self) -> Result<bool, QueryError> {
        let call = self.lock.layout.force_release("");
        let handle = &self.lock.handle;
        let reply = handle.query(&call, Resend::Never).await?;
        let reply = handle.finished(reply, || self.lock.layout.tend(false));
        Ok(reply == Reply::Int(1))
    }

    /// Frees the lock if readers hold it. Leaves a writer alone, even one that also reads. Returns whether readers held the lock.
    ///
    /// Readers learn of the loss as described at [`force_release`](Self::force_release).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-force_release_readers").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let stuck = prices.read().await?;
    /// assert!(!prices.danger().force_release_writer().await?); // nobody writes
    /// assert!(prices.danger().force_release_readers().await?);
    /// let writing = prices.try_write().await?.ok_or("it is free")?;
    /// assert!(!prices.danger().force_release_readers().await?);
    /// assert!(writing.is_held());
    /// # drop(stuck);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`force_release`](Self::force_release).
    ///
    /// # Cancel safety
    /// As [`force_release`](Self::force_release).
    pub async fn force_release_readers(&self) -> Result<bool, QueryError> {
        self.lock.handle.force_release(&*self.lock.readers).await
    }

    /// Frees the lock if a writer holds it, and leaves readers alone. Returns whether a writer held it.
    ///
    /// The writer learns of the loss as described at [`force_release`](Self::force_release).
    ///
    /// # Errors
    /// As [`force_release`](Self::force_release).
    ///
    /// # Cancel safety
    /// As [`force_release`](Self::force_release).
    pub async fn force_release_writer(&self) -> Result<bool, QueryError> {
        self.lock.handle.force_release(&*self.lock.writers).await
    }
}

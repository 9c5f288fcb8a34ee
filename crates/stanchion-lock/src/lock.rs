//! The lock.
//!
//! Long: the public verbs of one type, each with its contract and an example.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, Part, Synchronizer};
use stanchion_client::{
    AcquireError, AcquireOptions, AdoptError, Asked, Client, Events, Fencing, HoldTicket,
    InvalidName, Lease, Lockable, Name, QueryError,
};

use crate::free::Free;
use crate::guard::LockGuard;
use crate::scripts::Description;
use crate::status::LockStatus;

/// A reentrant lock that processes share by its name. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * P1: at most one owner holds at a time, until its [`valid_until`](LockGuard::valid_until).
/// * P2: [fencing tokens](LockGuard::fencing_token) grow.
/// * P3: an acquire that returns no guard leaves nothing behind.
/// * P4: a release makes the process that has waited longest the next holder, within about a round trip. After a lost
///   message it takes 1.5 s, or at the longest until the next poll (5 s).
/// * P11: a grant costs two commands, however many processes wait.
/// * Every acquire is a new owner: two calls on one handle exclude each other. To re-enter, use [`LockGuard::reenter`] or
///   [`AcquireOptions::owner`](stanchion_client::AcquireOptions::owner).
/// * Within a process waiters are served in order of arrival. Processes take turns: up to 8 hand-offs in a row inside
///   one, then the next. A try only gets a free lock, and a lock with waiters is hardly ever free. For an order of
///   single calls across processes use the fair lock.
///
/// # On the wire
/// Redisson's `RLock`: the hash `name` with one field, and the channel `redisson_lock__channel:{name}`. Waiting processes
/// are in stanchion's own queue, `stanchion_line:{name}`; each subscribes to its own channel, named after Redisson's.
/// Redisson's clients get their turns in between. An uncontended acquire and release are two commands.
#[derive(Clone, Debug)]
pub struct Lock {
    handle: Handle,
    description: Arc<Description>,
    sync: Arc<dyn Synchronizer>,
    lease: Duration,
}

impl Lock {
    /// Creates a handle to the lock called `name`. Sends nothing.
    ///
    /// A name has 1 to 512 bytes with the client's key prefix; on a cluster it has no braces, or exactly one non-empty `{tag}`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-new").await?;
    /// let orders = Lock::new(&client, "orders")?;
    /// let same = Lock::new(&client, "orders")?; // one name, one lock
    /// let _guard = orders.acquire().await?;
    /// assert!(same.try_acquire().await?.is_none());
    /// assert!(Lock::new(&client, "").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        Ok(Self::described(
            Handle::of(client),
            client.name(name)?,
            Fencing::default(),
            Lease::default().length(),
        ))
    }

    fn described(handle: Handle, name: Name, fencing: Fencing, lease: Duration) -> Self {
        let description = Arc::new(Description::new(&handle, name, fencing));
        let sync = Arc::clone(&description) as Arc<dyn Synchronizer>;
        Self {
            handle,
            description,
            sync,
            lease,
        }
    }

    /// Returns the same lock with tokens from another source. All users of a name must agree on it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-fencing").await?;
    /// use stanchion_lock::Fencing;
    ///
    /// let cache = Lock::new(&client, "cache")?.fencing(Fencing::Off); // saves one key
    /// let guard = cache.acquire().await?;
    /// assert_eq!(guard.fencing_token(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing(self, fencing: Fencing) -> Self {
        let name = self.name().clone();
        Self::described(self.handle, name, fencing, self.lease)
    }

    /// Returns the name, key prefix included.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://lock-name").await?;
    /// use stanchion_lock::{Client, ClientConfig, Lock};
    ///
    /// let mut config = ClientConfig::new("memory://lock-name");
    /// config.key_prefix = "shop:".into();
    /// let client = Client::connect_with(config).await?;
    /// let orders = Lock::new(&client, "orders")?;
    /// assert_eq!(orders.name().to_string(), "shop:orders");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        self.description.name()
    }

    /// Returns the same lock with another lease for acquires that set none: 10 ms to 30 days, checked by the
    /// acquires. Default 30 s.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    /// # use std::time::Duration;
    /// let lock = lock.lease(Duration::from_secs(5));
    /// let guard = lock.acquire().await?; // if this process dies, it ends after 5 s
    /// assert!(guard.remaining() <= Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Waits until the lock is acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-acquire").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// let next = tokio::spawn(orders.acquire()); // waits
    /// guard.release().await?;
    /// let guard = next.await??; // its turn
    /// assert!(guard.is_held());
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
    /// One script when the lock is free. Otherwise one subscription for all waiters of the process, and one script for each
    /// wake of the process; none when the holder is in this process and hands the lock off.
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        self.part().acquire()
    }

    /// Waits for at most `timeout`. A timeout of zero sends one request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{AcquireError, Client, Lock};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    /// # use std::time::Duration;
    /// let _guard = lock.acquire().await?;
    /// match lock.acquire_timeout(Duration::from_millis(50)).await {
    ///     Err(AcquireError::TimedOut { waited, .. }) => assert!(waited >= Duration::from_millis(50)),
    ///     other => panic!("somebody else holds it: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new().timeout(timeout))
    }

    /// Acquires with `options`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{AcquireOptions, Client, Lock};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    /// # use std::time::Duration;
    /// let me = AcquireOptions::new().owner(&client.owner());
    /// let outer = lock.acquire_with(me.clone()).await?;
    /// let inner = lock.acquire_with(me).await?; // the same owner re-enters
    /// assert_eq!(inner.fencing_token(), outer.fencing_token());
    ///
    /// let other = AcquireOptions::new().timeout(Duration::ZERO);
    /// assert!(lock.acquire_with(other).await.is_err()); // a new owner does not
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire) and [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        self.part().acquire_with(options)
    }

    /// Tries once, without waiting; `Ok(None)` when another owner holds the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-try_acquire").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.try_acquire().await?.ok_or("somebody else holds it")?;
    /// assert!(orders.try_acquire().await?.is_none()); // answered at once
    /// guard.release().await?;
    /// assert!(orders.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # On the wire
    /// One script. It is sent again after a lost reply, with the effect of once (P6).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LockGuard>, AcquireError>> + Send + 'static {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Tries once, with `options`. Their timeout limits the wait for the server's reply.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{AcquireOptions, Client, Lease, Lock, Renewal};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    /// # use std::time::Duration;
    /// let minute = Lease::new(Duration::from_secs(60))?;
    /// let once_a_minute = AcquireOptions::new().lease(minute).renewal(Renewal::Manual);
    /// let guard = lock.try_acquire_with(once_a_minute.clone()).await?.ok_or("it has run")?;
    /// guard.leave(); // keeps others off until the lease ends
    /// assert!(lock.try_acquire_with(once_a_minute).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<LockGuard>, AcquireError>> + Send + 'static {
        self.part().try_acquire_with(options)
    }

    /// Takes over the hold of a ticket from [`detach`](LockGuard::detach), in any process.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    /// let guard = lock.acquire().await?;
    /// let token = guard.fencing_token();
    /// let ticket = guard.detach().await?.to_string(); // into a file, a job's payload, the next release's environment
    /// assert!(lock.try_acquire().await?.is_none()); // it is still held
    ///
    /// let guard = lock.adopt(&ticket.parse()?).await?;
    /// assert!(guard.fencing_token() > token);
    /// assert!(lock.adopt(&ticket.parse()?).await.is_err()); // once
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AdoptError`].
    ///
    /// # Cancel safety
    /// A dropped call may have adopted the hold, which is then released in the background. Otherwise the ticket stays valid.
    ///
    /// # On the wire
    /// One script. After a lost reply the script is sent again; repeated runs have the effect of one (P6).
    pub fn adopt(
        &self,
        ticket: &HoldTicket,
    ) -> impl Future<Output = Result<LockGuard, AdoptError>> + Send + 'static {
        self.adopt_with(ticket, AcquireOptions::new())
    }

    /// As [`adopt`](Self::adopt), with the lease, the renewal and the `max_hold` of `options`. A `max_hold` of the detached hold still
    /// counts, from its grant.
    ///
    /// # Errors
    /// As [`adopt`](Self::adopt).
    ///
    /// # Cancel safety
    /// As [`adopt`](Self::adopt).
    pub fn adopt_with(
        &self,
        ticket: &HoldTicket,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<LockGuard, AdoptError>> + Send + 'static {
        self.part().adopt_with(ticket, options)
    }

    /// Requests that the holder gives the lock back, with a reason of at most 200 bytes. The holder decides, and need not answer: its guard
    /// shows the [request](LockGuard::requested).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    /// # use std::time::Duration;
    /// let guard = lock.acquire().await?;
    /// let requested = guard.requested(); // from here on this client listens
    /// while lock.request_release("a migration waits").await?.heard == 0 {
    ///     tokio::time::sleep(Duration::from_millis(10)).await;
    /// }
    /// assert_eq!(requested.await.reason, "a migration waits");
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
    /// One script, which publishes to the holder's process. A process subscribes once it has held something for a second (in a cluster for a
    /// third of its lease), or when `requested` is called on its guard. Before that `heard` is 0, and the caller has to send the request
    /// again. Redisson's processes do not receive the request.
    pub async fn request_release(&self, reason: &str) -> Result<Asked, QueryError> {
        self.handle
            .request_release(self.sync.name(), reason, false)
            .await
    }

    /// Returns the operations that break guarantees.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    /// let stuck = lock.acquire().await?; // its process hangs
    /// let danger = lock.danger(); // a word to look for in reviews
    /// assert!(danger.force_release().await?);
    /// assert!(!lock.status().await?.is_held());
    /// # drop(stuck);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn danger(&self) -> Danger<'_> {
        Danger { lock: self }
    }

    /// Waits until the lock is free, for at most `timeout` if there is one, and does not acquire it: another owner
    /// may acquire it right after. For programs that only wait for the end of another program's work.
    ///
    /// While processes are queued, a lock goes from one to the next and is not free in between: the wait ends when
    /// the last of them has released it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use stanchion_lock::{AcquireError, Client, Lock};
    /// # let client = Client::connect("memory://lock-wait_free").await?;
    /// # let import = Lock::new(&client, "import")?;
    /// let guard = import.acquire().await?;
    /// let soon = Some(Duration::from_millis(20));
    /// assert!(matches!(import.wait_free(soon).await, Err(AcquireError::TimedOut { .. })));
    /// guard.release().await?;
    /// import.wait_free(None).await?; // the import is done
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire) and [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// A script that reads. While the lock is held, also a subscription to Redisson's channel, which all such waiters
    /// of the process share, and another read when the holder's lease may have ended. To the queue this wait looks
    /// like a waiting Redisson process, which costs a release one message more.
    pub async fn wait_free(&self, timeout: Option<Duration>) -> Result<(), AcquireError> {
        let free: Arc<dyn Synchronizer> =
            Arc::new(Free::of(self.sync.name(), self.description.line()));
        self.handle.wait(&free, timeout).await
    }

    /// Returns the events of the lock from now on: acquires, releases and expired leases.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Event, Lock};
    /// # let client = Client::connect("memory://lock-events").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let mut events = orders.events();
    /// // The first event is the state of now.
    /// assert!(matches!(events.next().await, Some(Event::Now(state)) if state.holders.is_empty()));
    /// let guard = orders.acquire().await?;
    /// assert!(matches!(events.next().await, Some(Event::Taken(by)) if by.holder.starts_with(&client.id().to_string())));
    /// guard.release().await?;
    /// assert!(matches!(events.next().await, Some(Event::Released(_))));
    /// assert_eq!(events.next().await, Some(Event::Free));
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
        Events::of(&self.handle, self.description.clone())
    }

    /// Returns the holder, its hold count, the rest of its lease, the last token, and the number of waiting processes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-status").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// let status = orders.status().await?;
    /// assert_eq!(status.last_token, guard.fencing_token());
    /// let holder = status.holder.ok_or("free")?;
    /// assert!(holder.owner.starts_with(&client.id().to_string()));
    /// assert_eq!(holder.hold_count, 1);
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
    /// Two scripts, sent together.
    pub async fn status(&self) -> Result<LockStatus, QueryError> {
        let (call, line) = (self.description.status(), self.description.line());
        let (reply, waiting_processes) = self.handle.status(&call, line).await?;
        let mut status = LockStatus {
            waiting_processes,
            ..LockStatus::read(&reply)?
        };
        if !self.description.mints_tokens() {
            status.last_token = None;
        }
        Ok(status)
    }
}

impl Lockable for Lock {
    fn part(&self) -> Part {
        Part::new(&self.handle, &self.sync, self.lease)
    }
}

/// Operations that take a lock away from its holder. See [`Lock::danger`].
#[derive(Debug)]
pub struct Danger<'a> {
    lock: &'a Lock,
}

impl Danger<'_> {
    /// Frees the lock, whichever owner holds it. Returns whether it was held.
    ///
    /// The holder gets a message and queries the server, so it knows within a round trip. If it has held for less
    /// than a second, or the message is lost, it learns of it at its next renewal, up to a third of its lease later.
    /// Until then, P1 and P5 do not hold; fencing tokens still do.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-force_release").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let old = orders.acquire().await?;
    /// assert!(orders.danger().force_release().await?);
    /// let new = orders.try_acquire().await?.ok_or("it is free")?;
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
        self.lock.handle.force_release(&*self.lock.sync).await
    }
}

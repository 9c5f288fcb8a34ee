//! The lock.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, Synchronizer};
use stanchion_client::{
    AcquireError, Client, Events, Fencing, InvalidName, Lease, Name, QueryError, define_verbs,
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
/// are queued in stanchion's own line, `stanchion_line:{name}`; each subscribes to its own channel, named after Redisson's.
/// Redisson's clients get their turns in between. An uncontended acquire and release are two commands.
#[derive(Clone, Debug)]
pub struct Lock {
    handle: Handle,
    description: Arc<Description>,
    sync: Arc<dyn Synchronizer>,
    lease: Lease,
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
            Lease::default(),
        ))
    }

    fn described(handle: Handle, name: Name, fencing: Fencing, lease: Lease) -> Self {
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
    /// # let client = Client::connect("memory://lock-with_fencing").await?;
    /// use stanchion_lock::Fencing;
    ///
    /// let cache = Lock::new(&client, "cache")?.with_fencing(Fencing::Off); // saves one key
    /// let guard = cache.acquire().await?;
    /// assert_eq!(guard.fencing_token(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_fencing(self, fencing: Fencing) -> Self {
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
}

define_verbs! {
    impl Lock, guarded by LockGuard, in Danger;

    /// # use stanchion_lock::{AcquireError, AcquireOptions, Client, Lease, Lock, Renewal};
    /// # let client = Client::connect("memory://lock-verbs").await?;
    /// # let lock = Lock::new(&client, "orders")?;
    example lock;

    fn acquire {
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
        /// [`AcquireError::Rejected`](stanchion_client::AcquireError::Rejected): the request cannot succeed as it is.
        /// [`AcquireError::Unavailable`](stanchion_client::AcquireError::Unavailable) or
        /// [`AcquireError::Ambiguous`](stanchion_client::AcquireError::Ambiguous): the server has been out of reach for the
        /// outage tolerance (30 s).
        ///
        /// # Cancel safety
        /// Safe at every await point: the waiter leaves the queue; a request already sent is awaited in the background and its
        /// grant released (P3); a wake is passed on to the next waiter.
        ///
        /// # On the wire
        /// One script when the lock is free. Otherwise one subscription for all waiters of the process, and one script for each
        /// wake of the process; none when the holder is in this process and hands the lock off.
    }
    fn try_acquire {
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
        /// [`AcquireError`](stanchion_client::AcquireError), but never for contention. Ends within the operation timeout (5 s).
        ///
        /// # Cancel safety
        /// As [`Lock::acquire`].
        ///
        /// # On the wire
        /// One script. It is sent again after a lost reply, with the effect of once (P6).
    }
}

impl Lock {
    /// Waits until the lock is free, for at most `timeout` if there is one, and does not acquire it: another owner
    /// may acquire it right after. For programs that only wait for the end of another program's work.
    ///
    /// While processes are in line, a lock goes from one to the next and is not free in between: the wait ends when
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
    /// of the process share, and another read when the holder's lease may have ended. To the line this wait looks
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
        let (reply, waiting_processes) = self.handle.status(&call, line, None).await?;
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

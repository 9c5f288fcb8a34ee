//! The fair lock.
//!
//! Long: the public verbs of one type, each with its contract and an example.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, Part, Resend, Synchronizer, unexpected};
use stanchion_client::{
    AcquireError, AcquireOptions, AdoptError, Asked, Client, Events, Fencing, HoldTicket,
    InvalidName, Lease, Lockable, Name, QueryError,
};

use crate::guard::FairLockGuard;
use crate::scripts::{Description, GRACE, REDISSON_WAIT};
use crate::status::FairLockStatus;

/// The number of waiters, at most, from which a status counts the processes: it bounds the cost on the server (P11).
const LOOKED_AT: u64 = 1000;

/// A reentrant lock that processes share by its name, granted in the order of the requests. Cheap to clone; handles
/// have no state.
///
/// # Guarantees
/// * P1: at most one owner holds at a time, until its [`valid_until`](FairLockGuard::valid_until).
/// * P2: [fencing tokens](FairLockGuard::fencing_token) grow.
/// * P3: an acquire that returns no guard leaves nothing behind: no hold, no place in the queue.
/// * P4: a release is a grant: the script that frees the lock makes the head of the queue the next holder, in any
///   process, and notifies it. A lost message is found by a poll, within 5 s.
/// * P7: grants follow the order in which requests reached the server, across all processes. A process whose connections are
///   closed delays no other. All processes that are stopped or cut off without a sign delay the others by at most
///   [`FairLock::GRACE`] together. If the lock is granted to a stopped process, that waiter joins again at the tail when the process
///   resumes. The other waiters of a process that was stopped or cut off take their places again when it is back.
/// * P11: no script takes more than logarithmic time in the length of the queue. The exceptions: giving up from the middle,
///   one `LREM`; taking a place there again, one `LINSERT`; and [`FairLock::position`].
/// * Every acquire is a new owner: two calls on one handle exclude each other. To re-enter, use
///   [`FairLockGuard::reenter`] or [`AcquireOptions::owner`](stanchion_client::AcquireOptions::owner); a re-entry bypasses the queue.
///
/// # What it costs
/// Every release goes through the server, so a process with many waiters cannot keep the lock to itself. Each hand-off
/// costs two commands. Where only exclusion matters and many tasks of one process want the lock, the plain lock is faster.
///
/// A grant by message lasts 1.5 s. The holder's watchdog extends it to the full lease within half a second, so a waiter
/// that dies in between delays the others by no more than the grace.
///
/// # On the wire
/// Redisson's `RFairLock`: the hash `name` with one field, the list `redisson_lock_queue:{name}`, the sorted set
/// `redisson_lock_timeout:{name}`, and the channels `redisson_lock__channel:{name}:<owner>`; and two keys of stanchion's own,
/// `stanchion_fair_waiters:{name}` and `stanchion_fair_wake:{name}`. Rust and Java wait in one queue. A Java waiter
/// is woken and then sends its own request. It keeps its place by Redisson's rules: for about its wait time, by its
/// own clock. An uncontended acquire and release are two commands.
///
/// A plain lock of the same name and a fair lock exclude each other, but the plain lock neither joins the queue nor notifies it
/// of a release: its users overtake, and the queue notices the release within 5 s. Use one kind for one name.
#[derive(Clone, Debug)]
pub struct FairLock {
    handle: Handle,
    description: Arc<Description>,
    sync: Arc<dyn Synchronizer>,
    fencing: Fencing,
    redisson_wait: Duration,
    lease: Duration,
}

impl FairLock {
    /// The longest delay that processes which are stopped or cut off cause the others, all of them together: 2 s.
    pub const GRACE: Duration = GRACE;

    /// Creates a handle to the fair lock called `name`. Sends nothing.
    ///
    /// A name has 1 to 512 bytes with the client's key prefix and is not wholly in braces; on a cluster it has no braces, or
    /// exactly one non-empty `{tag}`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-new").await?;
    /// let tickets = FairLock::new(&client, "tickets")?;
    /// let same = FairLock::new(&client, "tickets")?; // one name, one lock, one queue
    /// let _guard = tickets.acquire().await?;
    /// assert!(same.try_acquire().await?.is_none());
    /// assert!(FairLock::new(&client, "{tickets}").is_err()); // would share that queue
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`]. A name of the form `{x}` is refused: by Redisson's rule for derived keys it has the queue of `x`, so a
    /// release of the one would grant to a waiter of the other. `{x}:y` is allowed.
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let name = handle.name_that_shares_nothing(name)?;
        Ok(Self::described(
            handle,
            name,
            Fencing::default(),
            REDISSON_WAIT,
            Lease::default().length(),
        ))
    }

    fn described(
        handle: Handle,
        name: Name,
        fencing: Fencing,
        redisson_wait: Duration,
        lease: Duration,
    ) -> Self {
        let description = Arc::new(Description::new(&handle, name, fencing, redisson_wait));
        let sync = Arc::clone(&description) as Arc<dyn Synchronizer>;
        Self {
            handle,
            description,
            sync,
            fencing,
            redisson_wait,
            lease,
        }
    }

    /// Returns the same lock with tokens from another source. All users of a name must agree on it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-fencing").await?;
    /// use stanchion_fair::Fencing;
    ///
    /// let tickets = FairLock::new(&client, "tickets")?.fencing(Fencing::PerName);
    /// let guard = tickets.acquire().await?; // the name has a counter of its own
    /// assert_eq!(guard.fencing_token(), tickets.status().await?.last_token);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing(self, fencing: Fencing) -> Self {
        let name = self.name().clone();
        Self::described(self.handle, name, fencing, self.redisson_wait, self.lease)
    }

    /// Returns the same lock for a name for which a Redisson client may wait longer than 5 minutes. `longest` is the longest
    /// `waitTime` or `fairLockWaitTimeout` in use. Default 5 minutes, as in Redisson; a shorter time counts as that.
    ///
    /// Without Redisson on the name it has no effect. With it, all users of the name must know the longest wait; otherwise a
    /// Redisson client may take a stanchion waiter for dead. Each Redisson client that dies at the head of the queue delays
    /// the others by up to this time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-redisson_wait").await?;
    /// use std::time::Duration;
    ///
    /// // Somewhere a Java service calls `tickets.tryLock(10, TimeUnit.MINUTES)`.
    /// let longest = Duration::from_secs(600);
    /// let tickets = FairLock::new(&client, "tickets")?.redisson_wait(longest);
    /// let guard = tickets.acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn redisson_wait(self, longest: Duration) -> Self {
        let name = self.name().clone();
        Self::described(self.handle, name, self.fencing, longest, self.lease)
    }

    /// Returns the name, key prefix included.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://fair-name").await?;
    /// use stanchion_fair::{Client, ClientConfig, FairLock};
    ///
    /// let mut config = ClientConfig::new("memory://fair-name");
    /// config.key_prefix = "shop:".into();
    /// let client = Client::connect_with(config).await?;
    /// let tickets = FairLock::new(&client, "tickets")?;
    /// assert_eq!(tickets.name().to_string(), "shop:tickets");
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
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-verbs").await?;
    /// # let lock = FairLock::new(&client, "tickets")?;
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

    /// Waits in the queue until the lock is acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-acquire").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let guard = tickets.acquire().await?;
    /// let first = tokio::spawn(tickets.acquire());
    /// # while tickets.queue_len().await? < 1 {}
    /// let second = tokio::spawn(tickets.acquire());
    /// # while tickets.queue_len().await? < 2 {}
    /// guard.release().await?; // grants to `first`
    /// let guard = first.await??;
    /// assert!(!second.is_finished()); // its turn comes next
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: the request cannot succeed as it is. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the waiter leaves the queue, and a grant on its way passes to the next one (P3). An acquire
    /// that is dropped and called again waits at the tail.
    ///
    /// # On the wire
    /// One script when the lock is free and the queue is empty. Otherwise one script to join the queue, one
    /// message with the grant, and one renewal if the lock is held for longer than half a second. One
    /// subscription and one script every half second for all waiters of the process. Every 75 s each waiter
    /// repeats its request. When a Redisson client holds or is ahead, one more subscription for each waiter.
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<FairLockGuard, AcquireError>> + Send + 'static {
        self.part().acquire()
    }

    /// Waits for at most `timeout`. A timeout of zero sends one request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{AcquireError, Client, FairLock};
    /// # let client = Client::connect("memory://fair-verbs").await?;
    /// # let lock = FairLock::new(&client, "tickets")?;
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
    ) -> impl Future<Output = Result<FairLockGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new().timeout(timeout))
    }

    /// Acquires with `options`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{AcquireOptions, Client, FairLock};
    /// # let client = Client::connect("memory://fair-verbs").await?;
    /// # let lock = FairLock::new(&client, "tickets")?;
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
    ) -> impl Future<Output = Result<FairLockGuard, AcquireError>> + Send + 'static {
        self.part().acquire_with(options)
    }

    /// Tries once, without joining the queue; `Ok(None)` when the lock is held or has waiters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-try_acquire").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let guard = tickets.try_acquire().await?.ok_or("it is held or waited for")?;
    /// assert!(tickets.try_acquire().await?.is_none()); // answered at once
    /// assert_eq!(tickets.queue_len().await?, 0); // and waits for nothing
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`FairLock::acquire`].
    ///
    /// # On the wire
    /// One script. It is sent again after a lost reply, with the effect of once (P6).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<FairLockGuard>, AcquireError>> + Send + 'static {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Tries once, with `options`. Their timeout limits the wait for the server's reply.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{AcquireOptions, Client, FairLock, Lease, Renewal};
    /// # let client = Client::connect("memory://fair-verbs").await?;
    /// # let lock = FairLock::new(&client, "tickets")?;
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
    ) -> impl Future<Output = Result<Option<FairLockGuard>, AcquireError>> + Send + 'static {
        self.part().try_acquire_with(options)
    }

    /// Takes over the hold of a ticket from [`detach`](FairLockGuard::detach), in any process.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-verbs").await?;
    /// # let lock = FairLock::new(&client, "tickets")?;
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
    ) -> impl Future<Output = Result<FairLockGuard, AdoptError>> + Send + 'static {
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
    ) -> impl Future<Output = Result<FairLockGuard, AdoptError>> + Send + 'static {
        self.part().adopt_with(ticket, options)
    }

    /// Requests that the holder gives the lock back, with a reason of at most 200 bytes. The holder decides, and need not answer: its guard
    /// shows the [request](FairLockGuard::requested).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-verbs").await?;
    /// # let lock = FairLock::new(&client, "tickets")?;
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
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-verbs").await?;
    /// # let lock = FairLock::new(&client, "tickets")?;
    /// let stuck = lock.acquire().await?; // its process hangs
    /// let danger = lock.danger(); // a word to look for in reviews
    /// assert!(danger.force_release().await?);
    /// assert!(!lock.status().await?.is_held());
    /// # drop(stuck);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn danger(&self) -> FairDanger<'_> {
        FairDanger { lock: self }
    }

    /// Returns the holder, its hold count, the rest of its lease, the last token, and the length of the queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-status").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let guard = tickets.acquire().await?;
    /// let status = tickets.status().await?;
    /// assert_eq!(status.last_token, guard.fencing_token());
    /// assert_eq!(status.queue_len, 0); // the holder does not queue
    /// let holder = status.holder.ok_or("free")?;
    /// assert!(holder.owner.starts_with(&client.id().to_string()));
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
    pub async fn status(&self) -> Result<FairLockStatus, QueryError> {
        self.look(LOOKED_AT).await
    }

    /// Returns the events of the lock from now on: grants, releases and expired leases.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, Event, FairLock};
    /// # let client = Client::connect("memory://fair-events").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let mut events = tickets.events();
    /// assert!(matches!(events.next().await, Some(Event::Now(_)))); // the state of now
    /// let _guard = tickets.acquire().await?;
    /// assert!(matches!(events.next().await, Some(Event::Taken(_))));
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

    async fn look(&self, looked_at: u64) -> Result<FairLockStatus, QueryError> {
        let call = self.description.status(looked_at);
        let reply = self.handle.query(&call, Resend::UntilAnswered).await?;
        let mut status = FairLockStatus::read(&reply)?;
        if !self.description.mints_tokens() {
            status.last_token = None;
        }
        Ok(status)
    }

    /// Returns the number of waiters in the queue, in all processes: [`FairLockStatus::queue_len`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-queue_len").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let _guard = tickets.acquire().await?;
    /// assert_eq!(tickets.queue_len().await?, 0); // the holder is not in the queue
    /// let _waiter = tokio::spawn(tickets.acquire());
    /// # while tickets.queue_len().await? == 0 {}
    /// assert_eq!(tickets.queue_len().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`FairLock::status`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn queue_len(&self) -> Result<u64, QueryError> {
        Ok(self.look(0).await?.queue_len)
    }

    /// Returns the number of waiters ahead of this client's first one: 0 at the head of the queue. `None` when no acquire of
    /// this client is in the queue, because none waits or its grant is on the way.
    ///
    /// The holder is not in the queue. Waiters of a dead process count until they reach the head.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-position").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// # let other = Client::connect("memory://fair-position").await?;
    /// # let there = FairLock::new(&other, "tickets")?;
    /// let _guard = tickets.acquire().await?;
    /// assert_eq!(tickets.position().await?, None); // a holder does not wait
    /// let _ahead = tokio::spawn(there.acquire()); // another process
    /// # while tickets.queue_len().await? < 1 {}
    /// let _mine = tokio::spawn(tickets.acquire());
    /// # while tickets.queue_len().await? < 2 {}
    /// assert_eq!(tickets.position().await?, Some(1)); // one waiter is ahead
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script that walks the queue from its head to the place: for people and dashboards.
    pub async fn position(&self) -> Result<Option<u64>, QueryError> {
        let call = self.description.position(&self.handle.id().to_string());
        let reply = self.handle.query(&call, Resend::UntilAnswered).await?;
        let ahead = reply.as_int().ok_or_else(|| unexpected(&reply))?;
        Ok(u64::try_from(ahead).ok())
    }
}

impl Lockable for FairLock {
    fn part(&self) -> Part {
        Part::new(&self.handle, &self.sync, self.lease)
    }
}

/// Operations that take a fair lock away from its holder. See [`FairLock::danger`].
#[derive(Debug)]
pub struct FairDanger<'a> {
    lock: &'a FairLock,
}

impl FairDanger<'_> {
    /// Frees the lock, whichever owner holds it, and grants it to the head of the queue. Returns whether it was held.
    ///
    /// The holder gets a message and queries the server, so it knows within a round trip. If it has held for less
    /// than a second, or the message is lost, it learns of it at its next renewal, up to a third of its lease later.
    /// Until then, P1 and P5 do not hold; fencing tokens still do.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-force_release").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let old = tickets.acquire().await?;
    /// let next = tokio::spawn(tickets.acquire());
    /// # while tickets.queue_len().await? == 0 {}
    /// assert!(tickets.danger().force_release().await?);
    /// let new = next.await??; // the head of the queue
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

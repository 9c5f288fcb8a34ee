//! The fair lock.

use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::{Hold, Lockable, Part, Reply, Resend, Synchronizer};
use stanchion_core::{
    AcquireError, AcquireOptions, Client, Fencing, InvalidName, Lease, Name, QueryError,
};

use crate::guard::FairLockGuard;
use crate::scripts::{Description, GRACE, REDISSON_WAIT};
use crate::status::{FairLockStatus, unexpected};

/// A reentrant lock that processes share by its name and get in the order in which they asked. Cheap to clone; handles
/// have no state.
///
/// # Guarantees
/// * P1: at most one owner holds, as far as its [`valid_until`](FairLockGuard::valid_until) reaches.
/// * P2: [fencing tokens](FairLockGuard::fencing_token) grow.
/// * P3: an acquire that gives no guard leaves nothing behind: no hold, no place in the queue.
/// * P4: a release is a grant: the script that frees the lock makes the head of the queue the next holder, whatever its
///   process, and tells it. A lost message costs half a second.
/// * P7: grants follow the order in which requests reached the server, over all processes. A live waiter keeps its
///   place. Processes that died delay the others by at most [`FairLock::GRACE`] together, however many they are; for
///   that one process of ours has to be waiting or releasing. A process counts as dead after it has been silent for
///   that long *while others were heard*: one that is stopped for longer loses the place of its waiter at the head, and
///   joins again at the tail when it goes on. After a time in which the server heard nobody, because it
///   restarted, stood still or was cut off, everybody's grace begins anew; and when waiters come back from a cut one after the
///   other, those still missing have one grace more.
/// * P11: no script's work grows with the queue by more than a logarithm. The exceptions: giving up from the middle, one
///   `LREM`; and [`FairLock::position`].
/// * Every acquire is a new owner: two calls on one handle exclude each other. Re-entry is asked for, with
///   [`FairLockGuard::reenter`] or [`AcquireOptions::owner`], and passes the queue.
///
/// # What it costs
/// Every release passes through the server, so a process that has many waiters of its own does not keep the lock to
/// itself. Two commands for each hand-off, and two a second for each process that waits. When you only need exclusion, the
/// plain lock is faster where many tasks of one process want it.
///
/// A grant by message lasts for 1.5 s until its holder's watchdog renews it to its lease, which happens within half a
/// second: a waiter that dies just then costs the others no more than the grace.
///
/// # On the wire
/// Redisson's `RFairLock`: the hash `name` with one field, the list `redisson_lock_queue:{name}`, the sorted set
/// `redisson_lock_timeout:{name}`, and the channels `redisson_lock__channel:{name}:<owner>`; two keys of our own,
/// `stanchion_fair_waiters:{name}` and `stanchion_fair_heard:{name}`. Rust and Java wait in one queue. Java's waiters are
/// woken and acquire for themselves. They keep their places by Redisson's rules: for about their wait time, by their own clocks.
/// An uncontended acquire and release are two commands.
///
/// A plain lock of the same name excludes a fair one and is excluded by it, but it neither joins the queue nor tells it of
/// its release: its users overtake, and the queue finds out within half a second. Use one kind for one name.
#[derive(Clone, Debug)]
pub struct FairLock {
    client: Client,
    description: Arc<Description>,
    sync: Arc<dyn Synchronizer>,
    fencing: Fencing,
    redisson_wait: Duration,
    lease: Lease,
}

impl FairLock {
    /// For so long at most the waiters of a process that died delay the others, all together.
    pub const GRACE: Duration = GRACE;

    /// The fair lock called `name` (1 to 512 bytes with the client's key prefix; not wholly in braces; on a cluster, no odd
    /// braces). Sends nothing.
    ///
    /// # Errors
    /// [`InvalidName`]. By Redisson's rule for derived keys `{x}` has the queue of `x`, so that a release of the one would
    /// grant to a waiter of the other: a name of the form `{x}` is refused. `{x}:y` is not.
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = client.name_that_shares_nothing(name)?;
        Ok(Self::described(
            client.clone(),
            name,
            Fencing::default(),
            REDISSON_WAIT,
            Lease::default(),
        ))
    }

    fn described(
        client: Client,
        name: Name,
        fencing: Fencing,
        redisson_wait: Duration,
        lease: Lease,
    ) -> Self {
        let description = Arc::new(Description::new(&client, name, fencing, redisson_wait));
        let sync = Arc::clone(&description) as Arc<dyn Synchronizer>;
        Self {
            client,
            description,
            sync,
            fencing,
            redisson_wait,
            lease,
        }
    }

    /// The same lock with its tokens from elsewhere.
    #[must_use]
    pub fn with_fencing(self, fencing: Fencing) -> Self {
        let name = self.name().clone();
        Self::described(self.client, name, fencing, self.redisson_wait, self.lease)
    }

    /// The same lock for a name for which a Redisson client may wait longer than 5 minutes: the longest `waitTime` or
    /// `fairLockWaitTimeout` in use. Default 5 minutes, which is Redisson's; a shorter time counts as that.
    ///
    /// Without Redisson on the name it changes nothing. With it, all users of the name must know the longest wait: a
    /// Redisson client may otherwise take a waiter of ours for dead. A Redisson client that dies at the head of the queue
    /// costs the others up to this time, once for each.
    #[must_use]
    pub fn with_redisson_wait(self, longest: Duration) -> Self {
        let name = self.name().clone();
        Self::described(self.client, name, self.fencing, longest, self.lease)
    }

    /// The same lock with another lease for acquires that name none. Default 30 s.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// The name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.description.name()
    }

    /// Waits in the queue until the lock is acquired.
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: it cannot be, as things are. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the place in the queue is given up, and a grant that was under way goes on to the next
    /// (P3). An acquire that is dropped and called again waits at the tail.
    ///
    /// # On the wire
    /// One script when nobody holds and nobody waits. Otherwise one script to take a place, one message when it is
    /// granted, and one renewal if it is held for longer than half a second. One subscription and one script every half
    /// second for all waiters of the process. Every 75 s each waiter asks again. When a Redisson client holds or is ahead,
    /// one subscription more for each waiter.
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<FairLockGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new())
    }

    /// Waits in the queue for at most `timeout`. Zero asks once.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as
    /// [`FairLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`FairLock::acquire`].
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<FairLockGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new().timeout(timeout))
    }

    /// Acquires as `options` say.
    ///
    /// # Errors
    /// As [`FairLock::acquire`] and [`FairLock::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`FairLock::acquire`].
    pub fn acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<FairLockGuard, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            this.client
                .acquire(&this.sync, options, this.lease)
                .await
                .map(FairLockGuard::new)
        }
    }

    /// Asks once, and takes no place; `Ok(None)` when somebody holds it or anybody waits for it.
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`FairLock::acquire`].
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect of once (P6).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<FairLockGuard>, AcquireError>> + Send + 'static {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Asks once, as `options` say. Their timeout bounds the wait for the server's answer.
    ///
    /// # Errors
    /// As [`FairLock::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`FairLock::acquire`].
    pub fn try_acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<FairLockGuard>, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let hold: Option<Hold> = this
                .client
                .try_acquire(&this.sync, options, this.lease)
                .await?;
            Ok(hold.map(FairLockGuard::new))
        }
    }

    /// Who holds it, how often, for how long, the last token, and how many wait.
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_core::Rejection::WrongType) when the name belongs to something
    /// else.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn status(&self) -> Result<FairLockStatus, QueryError> {
        let reply = self
            .client
            .query(&self.description.status(), Resend::UntilAnswered)
            .await?;
        let mut status = FairLockStatus::read(&reply)?;
        if !self.description.mints_tokens() {
            status.last_token = None;
        }
        Ok(status)
    }

    /// How many wait in the queue, in all processes: [`FairLockStatus::queue_len`].
    ///
    /// # Errors
    /// As [`FairLock::status`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn queue_len(&self) -> Result<u64, QueryError> {
        Ok(self.status().await?.queue_len)
    }

    /// How many are ahead of this client's first waiter in the queue: 0 when it is the head. `None`: no acquire of this
    /// client has a place in it, because nobody waits or the grant is under way.
    ///
    /// The holder is not in the queue. Waiters of a process that has died count until they come to the head.
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
        let call = self.description.position(&self.client.id().to_string());
        let reply = self.client.query(&call, Resend::UntilAnswered).await?;
        let ahead = reply.as_int().ok_or_else(|| unexpected(&reply))?;
        Ok(u64::try_from(ahead).ok())
    }

    /// What breaks promises.
    #[must_use]
    pub fn danger(&self) -> FairDanger<'_> {
        FairDanger { lock: self }
    }
}

impl Lockable for FairLock {
    fn part(&self) -> Part {
        Part::new(&self.client, &self.sync, self.lease)
    }
}

/// Operations that take a fair lock from under its holder. See [`FairLock::danger`].
#[derive(Debug)]
pub struct FairDanger<'a> {
    lock: &'a FairLock,
}

impl FairDanger<'_> {
    /// Frees the lock whoever holds it, and grants it to the head of the queue. Returns whether anybody held it.
    ///
    /// The holder learns of it at its next renewal, up to a third of its lease later; until then P1 and P5 do not hold.
    /// Fencing tokens still do.
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have been done; it is not sent twice, because the second run
    /// would free the next holder.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have freed the lock.
    pub async fn force_release(&self) -> Result<bool, QueryError> {
        let reply = self
            .lock
            .client
            .query(&self.lock.description.force_release(), Resend::Never)
            .await?;
        Ok(reply == Reply::Int(1))
    }
}

//! The lock.

use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::{Hold, Part, Reply, Resend, Synchronizer};
use stanchion_core::{
    AcquireError, AcquireOptions, Client, Fencing, InvalidName, Lease, Lockable, Name, QueryError,
};

use crate::guard::LockGuard;
use crate::scripts::Description;
use crate::status::LockStatus;

/// A reentrant lock that processes share by its name. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * P1: at most one owner holds, as far as its [`valid_until`](LockGuard::valid_until) reaches.
/// * P2: [fencing tokens](LockGuard::fencing_token) grow.
/// * P3: an acquire that gives no guard leaves nothing behind.
/// * P4: a release wakes a waiter within about a round trip, in every process; a lost message costs a poll (5 s).
/// * Every acquire is a new owner: two calls on one handle exclude each other. Re-entry is asked for, with
///   [`LockGuard::reenter`] or [`AcquireOptions::owner`].
/// * Within a process waiters are served in order of arrival; between processes there is no order (that is the fair
///   lock's).
///
/// # On the wire
/// Redisson's `RLock`: the hash `name` with one field, and the channel `redisson_lock__channel:{name}`. An uncontended
/// acquire and release are two commands.
#[derive(Clone, Debug)]
pub struct Lock {
    client: Client,
    description: Arc<Description>,
    sync: Arc<dyn Synchronizer>,
    lease: Lease,
}

impl Lock {
    /// The lock called `name` (1 to 512 bytes with the client's key prefix; on a cluster, no odd braces). Sends nothing.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        Ok(Self::described(
            client.clone(),
            client.name(name)?,
            Fencing::default(),
            Lease::default(),
        ))
    }

    fn described(client: Client, name: Name, fencing: Fencing, lease: Lease) -> Self {
        let description = Arc::new(Description::new(&client, name, fencing));
        let sync = Arc::clone(&description) as Arc<dyn Synchronizer>;
        Self {
            client,
            description,
            sync,
            lease,
        }
    }

    /// The same lock with its tokens from elsewhere.
    #[must_use]
    pub fn with_fencing(self, fencing: Fencing) -> Self {
        let name = self.name().clone();
        Self::described(self.client, name, fencing, self.lease)
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

    /// Waits until the lock is acquired.
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: it cannot be, as things are. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the place in the queue is given up, a request under way is waited for in the
    /// background and its grant released (P3), a wake is passed on.
    ///
    /// # On the wire
    /// One script when the lock is free. Otherwise one subscription for all waiters of the process, and one script for
    /// each wake of the process; none when the holder is in this process and passes the lock on.
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new())
    }

    /// Waits for at most `timeout`. Zero asks once.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new().timeout(timeout))
    }

    /// Acquires as `options` say.
    ///
    /// # Errors
    /// As [`Lock::acquire`] and [`Lock::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            this.client
                .acquire(&this.sync, options, this.lease)
                .await
                .map(LockGuard::new)
        }
    }

    /// Asks once; `Ok(None)` when somebody else holds it.
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect of once (P6).
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LockGuard>, AcquireError>> + Send + 'static {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Asks once, as `options` say. Their timeout bounds the wait for the server's answer.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub fn try_acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<LockGuard>, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let hold: Option<Hold> = this
                .client
                .try_acquire(&this.sync, options, this.lease)
                .await?;
            Ok(hold.map(LockGuard::new))
        }
    }

    /// Who holds it, how often, for how long, and the last token.
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_core::Rejection::WrongType) when the name belongs to something
    /// else.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    pub async fn status(&self) -> Result<LockStatus, QueryError> {
        let reply = self
            .client
            .query(&self.description.status(), Resend::UntilAnswered)
            .await?;
        let mut status = LockStatus::read(&reply)?;
        if !self.description.mints_tokens() {
            status.last_token = None;
        }
        Ok(status)
    }

    /// What breaks promises.
    #[must_use]
    pub fn danger(&self) -> Danger<'_> {
        Danger { lock: self }
    }
}

impl Lockable for Lock {
    fn part(&self) -> Part {
        Part::new(&self.client, &self.sync, self.lease)
    }
}

/// Operations that take a lock from under its holder. See [`Lock::danger`].
#[derive(Debug)]
pub struct Danger<'a> {
    lock: &'a Lock,
}

impl Danger<'_> {
    /// Frees the lock whoever holds it. Returns whether anybody did.
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

//! The read-write lock.

use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::{Part, Reply, Resend, Synchronizer};
use stanchion_core::{
    AcquireError, AcquireOptions, Client, Fencing, InvalidName, Lease, Lockable, Name, QueryError,
};

use crate::guard::{ReadGuard, WriteGuard};
use crate::layout::Layout;
use crate::read::ReadSide;
use crate::status::RwLockStatus;
use crate::write::WriteSide;

/// Who comes first when readers hold and a writer waits. Users of one name should agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preference {
    /// Redisson's: readers of other processes join readers that hold, whoever waits. Under a steady stream of readers a
    /// writer may wait for ever.
    #[default]
    Redisson,
    /// A writer that waits holds new readers off, in every process that has this preference. It gets the lock when those
    /// who read have finished, unless another writer is faster. Readers that wait let one writer pass; then it is their
    /// turn, before the next writer.
    ///
    /// A writer or a reader says that it waits in a key of ours, for 2 s at a time, and asks every second meanwhile. If its
    /// process dies, the others wait for those 2 s at most. Redisson does not look at those keys: it is as correct as
    /// ever, and its readers may starve writers as ever.
    Writer,
}

/// A read-write lock that processes share by its name: many readers, or one writer. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * P1: while one owner writes, as far as its [`valid_until`](WriteGuard::valid_until) reaches, nobody else reads or
///   writes. Readers hold together.
/// * P2: [fencing tokens](WriteGuard::fencing_token) of writers grow.
/// * P3: an acquire that gives no guard leaves nothing behind.
/// * P4: the release of a writer, or of the last reader, wakes waiters within about a round trip, in every process; a
///   lost message costs a poll (5 s). Readers of one process that wait side by side are let in together.
/// * Readers of a process that died keep the lock until their leases have ended, and no longer, whoever reads after them.
/// * P11: the work of a release does not grow with the number of readers.
/// * Every acquire is a new owner: two calls on one handle are two readers, or exclude each other. Re-entry is asked
///   for, with `reenter` on a guard or with [`AcquireOptions::owner`].
/// * Within a process waiters are served in order of arrival, so a waiting writer is passed by no reader of its own
///   process. Between processes see [`Preference`].
///
/// # One owner on both sides
/// An [`Owner`](stanchion_core::Owner) that writes may read as well, at once. When it releases its write hold first, it
/// goes on reading: that is the long way to [`WriteGuard::downgrade`]. An owner that reads and asks to write would wait
/// for itself for ever; it is refused with [`Rejection::AlreadyHeld`](stanchion_core::Rejection::AlreadyHeld).
///
/// A task that holds a read guard and asks for another read *as another owner* waits behind writers that wait, and they
/// wait for the task. Use [`ReadGuard::reenter`].
///
/// # Beside Redisson
/// Redisson renews read leases by setting the TTL of the whole lock to 30 s, even if that shortens it. Where Java reads
/// under the same name, keep read leases at 30 s or less.
///
/// # On the wire
/// Redisson's `RReadWriteLock`: the hash `name` with the field `mode` and one for each holder, a key for each reader that
/// lasts as long as its lease, and the channel `redisson_rwlock:{name}`. An uncontended acquire and release are two
/// commands.
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    layout: Arc<Layout>,
    readers: Arc<dyn Synchronizer>,
    writers: Arc<dyn Synchronizer>,
    fencing: Fencing,
    lease: Lease,
}

impl RwLock {
    /// The read-write lock called `name` (1 to 512 bytes with the client's key prefix; on a cluster, no odd braces). Sends
    /// nothing.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = client.name(name)?;
        let (fencing, preference) = (Fencing::default(), Preference::default());
        let layout = Layout::new(client, name, fencing, preference);
        Ok(Self::described(
            client.clone(),
            layout,
            fencing,
            Lease::default(),
        ))
    }

    fn described(client: Client, layout: Layout, fencing: Fencing, lease: Lease) -> Self {
        let layout = Arc::new(layout);
        Self {
            client,
            readers: Arc::new(ReadSide(Arc::clone(&layout))),
            writers: Arc::new(WriteSide(Arc::clone(&layout))),
            layout,
            fencing,
            lease,
        }
    }

    /// The same lock with its writers' tokens from elsewhere.
    #[must_use]
    pub fn with_fencing(self, fencing: Fencing) -> Self {
        let (name, preference) = (self.name().clone(), self.layout.preference);
        let layout = Layout::new(&self.client, name, fencing, preference);
        Self::described(self.client, layout, fencing, self.lease)
    }

    /// The same lock with another order between readers and writers.
    #[must_use]
    pub fn with_preference(self, preference: Preference) -> Self {
        let name = self.name().clone();
        let layout = Layout::new(&self.client, name, self.fencing, preference);
        Self::described(self.client, layout, self.fencing, self.lease)
    }

    /// The same lock with another lease for acquires that name none. Default 30 s.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Its reading side, as a member of a multi-lock.
    #[must_use]
    pub fn read_side(&self) -> RwLockSide {
        RwLockSide(Part::new(&self.client, &self.readers, self.lease))
    }

    /// Its writing side, as a member of a multi-lock.
    #[must_use]
    pub fn write_side(&self) -> RwLockSide {
        RwLockSide(Part::new(&self.client, &self.writers, self.lease))
    }

    /// The name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.layout.name
    }

    /// Waits until it may read.
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: it cannot, as things are. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the place in the queue is given up, a request under way is waited for in the
    /// background and its grant released (P3), a wake is passed on.
    ///
    /// # On the wire
    /// One script when nobody writes. Otherwise one subscription for all waiters of the process; on a wake the first
    /// reader asks, and when it is let in, all readers up to the next writer do.
    pub fn read(&self) -> impl Future<Output = Result<ReadGuard, AcquireError>> + Send + 'static {
        self.read_with(AcquireOptions::new())
    }

    /// Waits until it may write.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    ///
    /// # On the wire
    /// One script when nobody holds. Otherwise one subscription for all waiters of the process, and one script for each
    /// wake of the process.
    pub fn write(&self) -> impl Future<Output = Result<WriteGuard, AcquireError>> + Send + 'static {
        self.write_with(AcquireOptions::new())
    }

    /// Waits to read for at most `timeout`. Zero asks once.
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

    /// Waits to write for at most `timeout`. Zero asks once.
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

    /// Reads as `options` say. For an owner that writes already it is granted at once.
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
        let this = self.clone();
        async move {
            this.client
                .acquire(&this.readers, options, this.lease)
                .await
                .map(ReadGuard::new)
        }
    }

    /// Writes as `options` say.
    ///
    /// # Errors
    /// As [`RwLock::write`] and [`RwLock::write_timeout`]; and [`AcquireError::Rejected`] with
    /// [`Rejection::AlreadyHeld`](stanchion_core::Rejection::AlreadyHeld), at once and without asking the server, for an
    /// owner that reads.
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    pub fn write_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<WriteGuard, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let hold = this
                .client
                .acquire(&this.writers, options, this.lease)
                .await?;
            Ok(WriteGuard::new(hold, Arc::clone(&this.readers)))
        }
    }

    /// Asks once whether it may read; `Ok(None)` when somebody else writes.
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect of once (P6).
    pub fn try_read(
        &self,
    ) -> impl Future<Output = Result<Option<ReadGuard>, AcquireError>> + Send + 'static {
        self.try_read_with(AcquireOptions::new())
    }

    /// Asks once whether it may write; `Ok(None)` when somebody else holds.
    ///
    /// # Errors
    /// As [`RwLock::try_read`].
    ///
    /// # Cancel safety
    /// As [`RwLock::read`].
    ///
    /// # On the wire
    /// As [`RwLock::try_read`]. It holds no readers off, whatever the [`Preference`].
    pub fn try_write(
        &self,
    ) -> impl Future<Output = Result<Option<WriteGuard>, AcquireError>> + Send + 'static {
        self.try_write_with(AcquireOptions::new())
    }

    /// Asks once to read, as `options` say. Their timeout bounds the wait for the server's answer.
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
        let this = self.clone();
        async move {
            let hold = this
                .client
                .try_acquire(&this.readers, options, this.lease)
                .await?;
            Ok(hold.map(ReadGuard::new))
        }
    }

    /// Asks once to write, as `options` say. Their timeout bounds the wait for the server's answer.
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
        let this = self.clone();
        async move {
            let hold = this
                .client
                .try_acquire(&this.writers, options, this.lease)
                .await?;
            Ok(hold.map(|hold| WriteGuard::new(hold, Arc::clone(&this.readers))))
        }
    }

    /// Who reads or writes, how often, for how long, and the last token.
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_core::Rejection::WrongType) when the name belongs to something
    /// else.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script. Its answer lists 1000 holders at most.
    pub async fn status(&self) -> Result<RwLockStatus, QueryError> {
        let call = self.layout.status(RwLockStatus::MOST);
        let reply = self.client.query(&call, Resend::UntilAnswered).await?;
        RwLockStatus::read(&reply)
    }

    /// What breaks promises.
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

/// Operations that take a lock from under its holders. See [`RwLock::danger`].
#[derive(Debug)]
pub struct RwLockDanger<'a> {
    lock: &'a RwLock,
}

impl RwLockDanger<'_> {
    /// Frees the lock whoever reads or writes. Returns whether anybody did.
    ///
    /// Holders learn of it at their next renewal, up to a third of their lease later; until then P1 and P5 do not hold.
    /// Fencing tokens still do. What readers have besides the hash expires with their leases.
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have been done; it is not sent twice, because the second run
    /// would free the next holder.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have freed the lock.
    pub async fn force_release(&self) -> Result<bool, QueryError> {
        let call = self.lock.layout.force_release();
        let reply = self.lock.client.query(&call, Resend::Never).await?;
        Ok(reply == Reply::Int(1))
    }
}

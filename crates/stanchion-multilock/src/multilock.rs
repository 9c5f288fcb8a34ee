//! The multi-lock.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{
    Guarded as _, Hold, HoldSet, Part, ReadOptions as _, Synchronizer,
};
use stanchion_client::{
    Acquire, AcquireError, AcquireOptions, Acquiring, Guard, Lockable, Moment, Name, Outage,
    QueryError,
};

use crate::guard::MultiGuard;
use crate::members::{InvalidMembers, Way, settled, sorted, way};
use crate::scripts::Joint;

/// Several synchronizers, acquired all or not at all. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * Members are acquired in the order of their names, however they were given: as bytes, and one name on several servers in
///   the order of a number that each keyspace stores, the same for every client. Two tasks that take `{a, b}` and `{b, a}` never
///   deadlock, in one process or in several, also through multi-locks of different members.
/// * All or nothing, also after an error, a timeout or a dropped future: members acquired by a failed attempt are released
///   (P3).
/// * The guard is lost when any member is lost (P5).
/// * Every acquire is a new owner. It is not re-entrant, except with [`AcquireOptions::owner`]: members that this owner already
///   holds are held once more.
///
/// # Two ways
/// * Members that are plain `Lock`s of one client, on a cluster in one slot, are acquired by **one script** and released by one: two
///   commands for any number of them, and none is held during the wait for the others. They share one lease, and those that mint tokens
///   share one fencing token. Other owners may hold the members in turns, so that they are never all free. Then the acquire switches to the
///   other way after 16 refusals by changing members. A release passes them to the next task of this process in one script, if it wants the
///   same locks and is the first to wait for one of them; after 8 times in a row they are released.
/// * Any other mix is acquired **one after the other**, with a command for each, and released again when one cannot
///   be acquired. Members already acquired stay held, and renewed, during the wait for the rest.
///
/// # Events
/// There is no `events` method: a multi-lock has no state of its own on any server, and its members may be on several servers without a common
/// order of events. Listen to the members (`Lock::events`), or wait for the whole with [`acquire`](Self::acquire).
///
/// # On the wire
/// No format of its own: each member looks as if acquired alone, so holders and waiters of single members, also Redisson's,
/// interoperate. Redisson's multi-lock does not sort: give it the names in byte order, or it can deadlock with others.
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In name order.
    members: Arc<[Part]>,
    way: Way,
    lease: Duration,
}

impl MultiLock {
    /// Returns the multi-lock of `members`, given in any order. Members of several types are given as `&dyn Lockable`. Its lease is the shortest of theirs. Sends nothing.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, InvalidMembers, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-new").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// let both = MultiLock::new([&from, &to])?; // in any order
    /// let guard = both.acquire().await?;
    /// assert!(from.try_acquire().await?.is_none() && to.try_acquire().await?.is_none());
    /// let twice = MultiLock::new([&from, &from]);
    /// assert!(matches!(twice, Err(InvalidMembers::Duplicate { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidMembers`]: no members, or one name twice. A name given through two clients of one server is rejected only by an
    /// acquire; a try always finds it held.
    pub fn new<'a, L: Lockable + ?Sized + 'a>(
        members: impl IntoIterator<Item = &'a L>,
    ) -> Result<Self, InvalidMembers> {
        let members = sorted(members.into_iter().map(Lockable::part).collect())?;
        let lease = members.iter().map(|part| part.lease).min();
        Ok(Self {
            way: way(&members),
            lease: lease.unwrap_or_default(),
            members: members.into(),
        })
    }

    /// Returns the same multi-lock with another lease for acquires that set none: 10 ms to 30 days, checked by the acquires. Default: the
    /// shortest of the members'.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-lease").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
    /// let both = both.lease(Duration::from_secs(10));
    /// let guard = both.acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(10)); // free that long after a crash
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Returns the names of the members in name order, with the client's key prefix.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-names").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// let both = MultiLock::new([&from, &to])?;
    /// let names: Vec<String> = both.names().map(ToString::to_string).collect();
    /// assert_eq!(names, ["account:4", "account:7"]); // as they are acquired
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.members.iter().map(|part| part.sync.name())
    }

    /// Returns the operations that break guarantees.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-danger").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
    /// let stuck = to.acquire().await?; // its process hangs
    /// assert_eq!(both.danger().force_release().await?, 1);
    /// assert!(both.try_acquire().await?.is_some());
    /// # drop(stuck);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn danger(&self) -> MultiDanger<'_> {
        MultiDanger { lock: self }
    }

    /// Waits until all members are acquired.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-acquire").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
    /// let guard = both.acquire().await?;
    /// assert!(to.try_acquire().await?.is_none()); // its members are held
    /// guard.release().await?;
    /// assert!(to.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], with the name of the member that failed (the first, where one script acquires all). Nothing is held
    /// then, except for a leftover that the error names. [`AcquireError::Rejected`]: the request cannot succeed as it is.
    /// [`AcquireError::Unavailable`] or [`AcquireError::Ambiguous`]: a server was out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: places in queues are given up, requests already sent are awaited in the background, and
    /// every grant, earlier or late, is released (P3).
    ///
    /// # On the wire
    /// See [`MultiLock`]: one script when all are free. Otherwise it waits for a held member on the subscription that all
    /// waiters of the process for that member share.
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<MultiGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new())
    }

    /// Waits until all members are acquired, for at most `timeout` in all. Zero tries once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireError, Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-acquire-timeout").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
    /// let guard = to.acquire().await?;
    /// let late = both.acquire_timeout(Duration::from_millis(20)).await;
    /// assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
    /// assert!(from.try_acquire().await?.is_some()); // all or nothing
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as
    /// [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<MultiGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new().timeout(timeout))
    }

    /// Acquires all members with `options`, which apply to each of them; the timeout applies to all of them together. With an
    /// owner the members are acquired one after the other.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-acquire-with").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
    /// let one = to.acquire().await?;
    /// let options = AcquireOptions::new().owner(one.owner()); // does not wait for itself
    /// let guard = both.acquire_with(options).await?;
    /// assert_eq!(guard.names().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MultiLock::acquire`] and [`MultiLock::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    pub fn acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<MultiGuard, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let first = &this.members[0];
            let until = options
                .patience()
                .map(|patience| first.handle.now() + patience);
            loop {
                let together = match this.together(&options) {
                    Some(joint) => this.at_once(joint, &options, until).await?,
                    None => None,
                };
                let holds = match together {
                    Some(hold) => vec![hold],
                    None => this.in_order(&options, until).await?,
                };
                // A member was lost during the wait for a later one: start over while there is time. Each turn waits for the
                // members, so this is not a busy loop.
                if let Some(guard) = this.guard(holds) {
                    return Ok(guard);
                }
            }
        }
    }

    /// Tries once to acquire all members; returns `Ok(None)` when another owner holds one.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-try-acquire").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
    /// let one = to.acquire().await?;
    /// assert!(both.try_acquire().await?.is_none()); // returns at once, and holds nothing
    /// one.release().await?;
    /// assert!(both.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s) of each member.
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    ///
    /// # On the wire
    /// See [`MultiLock`]; it waits for no member.
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<MultiGuard>, AcquireError>> + Send + 'static {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Tries once to acquire all members, with `options`. Their timeout bounds the wait for the servers' answers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-try-acquire-with").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
    /// let options = AcquireOptions::new().lease(Duration::from_secs(5));
    /// if let Some(guard) = both.try_acquire_with(options).await? {
    ///     assert!(guard.remaining() <= Duration::from_secs(5));
    ///     guard.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MultiLock::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    pub fn try_acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<MultiGuard>, AcquireError>> + Send + 'static {
        let this = self.clone();
        async move {
            let until = options
                .patience()
                .map(|patience| this.members[0].handle.now() + patience);
            let together = this.together(&options).map(|joint| this.part(joint));
            let parts = together.as_ref().map_or(&*this.members, slice::from_ref);
            let mut holds = Vec::with_capacity(parts.len());
            for part in parts {
                let options = this.left(&options, until);
                let hold = part
                    .handle
                    .try_acquire(&part.sync, &options, this.lease)
                    .await?;
                match hold {
                    Some(hold) => holds.push(hold),
                    None => return Ok(None),
                }
            }
            Ok(this.guard(holds))
        }
    }

    /// Returns all members as one, if one script acquires them. `None` with an owner, which may hold some of them
    /// already: the script only handles holds of all members.
    fn together(&self, options: &AcquireOptions) -> Option<Arc<Joint>> {
        let Way::Together(joint) = &self.way else {
            return None;
        };
        (!options.has_owner()).then(|| Arc::new(joint.clone()))
    }

    fn part(&self, joint: Arc<Joint>) -> Part {
        let joint: Arc<dyn Synchronizer> = joint;
        Part::new(&self.members[0].handle, &joint, self.lease)
    }

    /// Acquires all members by one script. `None` when other owners hold them in turns and could keep this acquire out indefinitely.
    async fn at_once(
        &self,
        joint: Arc<Joint>,
        options: &AcquireOptions,
        until: Option<Moment>,
    ) -> Result<Option<Hold>, AcquireError> {
        let part = self.part(Arc::clone(&joint));
        let options = self.left(options, until);
        tokio::select! {
            biased;
            hold = part.handle.acquire(&part.sync, &options, self.lease) => hold.map(Some),
            () = joint.starved() => Ok(None),
        }
    }

    /// Acquires one member after the other. Releases those already acquired when it is dropped or fails.
    async fn in_order(
        &self,
        options: &AcquireOptions,
        until: Option<Moment>,
    ) -> Result<Vec<Hold>, AcquireError> {
        let patience = || self.left(&AcquireOptions::new(), until);
        let members = settled(&self.members, patience).await?;
        let mut holds = Vec::with_capacity(members.len());
        for part in &*members {
            let options = self.left(options, until);
            holds.push(
                part.handle
                    .acquire(&part.sync, &options, self.lease)
                    .await?,
            );
        }
        Ok(holds)
    }

    /// Returns `options` with the time that is left.
    fn left(&self, options: &AcquireOptions, until: Option<Moment>) -> AcquireOptions {
        match until {
            Some(until) => options
                .clone()
                .timeout(until.since(self.members[0].handle.now())),
            None => options.clone(),
        }
    }

    fn guard(&self, holds: Vec<Hold>) -> Option<MultiGuard> {
        let holds = HoldSet::all(holds).filter(HoldSet::is_held)?;
        Some(MultiGuard::new(holds, &self.members))
    }
}

/// Operations that take members away from their holders. See [`MultiLock::danger`].
#[derive(Debug)]
pub struct MultiDanger<'a> {
    lock: &'a MultiLock,
}

impl MultiDanger<'_> {
    /// Frees every member, whichever owner holds it: this multi-lock, another one, or a single acquire. Returns the
    /// number of members that were held.
    ///
    /// Holders learn of the loss as after a forced release of each member; a multi-lock is lost with its first
    /// member. Until then, P1 and P5 do not hold; fencing tokens still do.
    ///
    /// # Errors
    /// [`QueryError`], of the first member that could not be freed; those before it, in name order, are free. Semaphores cannot be
    /// freed by force.
    ///
    /// # Cancel safety
    /// A dropped call may have freed some of them.
    ///
    /// # On the wire
    /// One script for each member, sent once.
    pub async fn force_release(&self) -> Result<usize, QueryError> {
        let mut freed = 0;
        for part in &*self.lock.members {
            freed += usize::from(part.handle.force_release(&*part.sync).await?);
        }
        Ok(freed)
    }
}

impl Acquire for MultiLock {
    fn name(&self) -> Name {
        self.members[0].sync.name().clone()
    }

    fn outage(&self) -> Option<Outage> {
        self.members.iter().find_map(Part::outage)
    }

    fn acquire_with(&self, options: AcquireOptions) -> Acquiring<Guard> {
        let acquiring = Self::acquire_with(self, options);
        Box::pin(async move { acquiring.await.map(Guard::from) })
    }

    fn try_acquire_with(&self, options: AcquireOptions) -> Acquiring<Option<Guard>> {
        let asking = Self::try_acquire_with(self, options);
        Box::pin(async move { Ok(asking.await?.map(Guard::from)) })
    }
}

//! The multi-lock.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::{Hold, HoldSet, Part, Synchronizer};
use stanchion_core::{
    Acquire, AcquireError, AcquireOptions, Acquiring, Guard, Lease, Lockable, Moment, Name,
};

use crate::guard::MultiGuard;
use crate::members::{InvalidMembers, Way, settled, sorted, way};
use crate::scripts::Joint;

/// Several synchronizers, acquired all or not at all. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * Whatever order they are named in, members are acquired in the order of their names (as bytes; one name on several
///   servers in the order of a number that each keyspace stores, the same for every client). Two tasks that take `{a, b}` and
///   `{b, a}` never deadlock, in one process or in several, also when they take the locks through multi-locks of different
///   members.
/// * All or nothing, also after an error, a timeout or a dropped future: what was acquired of a failed attempt is released
///   (P3).
/// * The guard is lost when any member is lost (P5).
/// * Every acquire is a new owner. It is not re-entrant, except with [`AcquireOptions::owner`], which holds those members
///   once more that the owner holds already.
///
/// # Two ways
/// * Members that are plain `Lock`s of one client, on a cluster in one slot, are acquired by **one script** and released by
///   one: two commands for any number of them, and none is held while the others are waited for. They share one lease and,
///   of those that mint tokens, one fencing token. An acquire that is kept out by others who hold members in turns, so that
///   never all are free, goes the other way after 16 refusals by changing members.
/// * Any other mix is acquired **one after the other**, with a command for each, and rolled back from the end when one
///   cannot be had. Members that come early in the order are held while the later ones are waited for, renewed by the
///   watchdog.
///
/// # On the wire
/// Nothing of its own: each member looks as if acquired alone, so that holders and waiters of single members, also
/// Redisson's, take part. Redisson's multi-lock does not sort: give it the names in byte order, or it can deadlock with
/// others.
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In name order.
    members: Arc<[Part]>,
    way: Way,
    lease: Lease,
}

impl MultiLock {
    /// The multi-lock of `members`, in any order. Its lease is the shortest of theirs. Sends nothing.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, InvalidMembers, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-new").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// let both = MultiLock::new([&from as &dyn Lockable, &to])?; // in any order
    /// let guard = both.acquire().await?;
    /// assert!(from.try_acquire().await?.is_none() && to.try_acquire().await?.is_none());
    /// let twice = MultiLock::new([&from as &dyn Lockable, &from]);
    /// assert!(matches!(twice, Err(InvalidMembers::Duplicate { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidMembers`]: none, or one name twice. That two clients are of one server is found out only by an acquire, which
    /// then rejects a name given once through each; a try always finds it held.
    pub fn new<'a>(
        members: impl IntoIterator<Item = &'a dyn Lockable>,
    ) -> Result<Self, InvalidMembers> {
        let members = sorted(members.into_iter().map(Lockable::part).collect())?;
        let lease = members.iter().map(|part| part.lease).min();
        Ok(Self {
            way: way(&members),
            lease: lease.unwrap_or_default(),
            members: members.into(),
        })
    }

    /// The same multi-lock with another lease for acquires that name none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lease, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-with-lease").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let both = both.with_lease(Lease::new(Duration::from_secs(10))?);
    /// let guard = both.acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(10)); // free that long after a crash
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// The members' names in name order, with the client's key prefix.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-names").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let names: Vec<String> = both.names().map(ToString::to_string).collect();
    /// assert_eq!(names, ["account:4", "account:7"]); // as they are acquired
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.members.iter().map(|part| part.sync.name())
    }

    /// Waits until all members are acquired.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-acquire").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// assert!(to.try_acquire().await?.is_none()); // its members are held
    /// guard.release().await?;
    /// assert!(to.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], with the name of the member it is about (that of the first where all are asked for at once). Nothing
    /// is held then, except what the error says may remain. [`AcquireError::Rejected`]: it cannot be, as things are.
    /// [`AcquireError::Unavailable`] or [`AcquireError::Ambiguous`]: a server has been out of reach for the outage tolerance
    /// (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: places in queues are given up, requests under way are waited for in the background, and
    /// what was or will be granted is released (P3).
    ///
    /// # On the wire
    /// See [`MultiLock`]: one script when all are free. A member that is held is waited for by the subscription that all
    /// waiters of the process for that member share.
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<MultiGuard, AcquireError>> + Send + 'static {
        self.acquire_with(AcquireOptions::new())
    }

    /// Waits for at most `timeout` in all. Zero asks once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireError, Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-acquire-timeout").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
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

    /// Acquires as `options` say; each of them applies to every member, the timeout to all of them together. With an owner
    /// the members are acquired one after the other.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-acquire-with").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
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
                .map(|patience| first.client.now() + patience);
            loop {
                let together = match this.together(&options) {
                    Some(joint) => this.at_once(joint, &options, until).await?,
                    None => None,
                };
                let holds = match together {
                    Some(hold) => vec![hold],
                    None => this.in_order(&options, until).await?,
                };
                // A member that was lost while a later one was waited for: all over again, as long as there is time. Each turn
                // waits for the members, so this is not a busy loop.
                if let Some(guard) = this.guard(holds) {
                    return Ok(guard);
                }
            }
        }
    }

    /// Asks once; `Ok(None)` when somebody else holds a member.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-try-acquire").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
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
    /// See [`MultiLock`]; nothing is waited for.
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<MultiGuard>, AcquireError>> + Send + 'static {
        self.try_acquire_with(AcquireOptions::new())
    }

    /// Asks once, as `options` say. Their timeout bounds the wait for the servers' answers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, Lease, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multilock-try-acquire-with").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let options = AcquireOptions::new().lease(Lease::new(Duration::from_secs(5))?);
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
                .map(|patience| this.members[0].client.now() + patience);
            let together = this.together(&options).map(|joint| this.part(joint));
            let parts = together.as_ref().map_or(&*this.members, slice::from_ref);
            let mut holds = Vec::with_capacity(parts.len());
            for part in parts {
                let options = this.left(&options, until);
                let hold = part
                    .client
                    .try_acquire(&part.sync, options, this.lease)
                    .await?;
                match hold {
                    Some(hold) => holds.push(hold),
                    None => return Ok(None),
                }
            }
            Ok(this.guard(holds))
        }
    }

    /// All members as one, where one script serves them. An owner may hold some of them already, and that script knows only
    /// holds of all.
    fn together(&self, options: &AcquireOptions) -> Option<Arc<Joint>> {
        let Way::Together(joint) = &self.way else {
            return None;
        };
        (!options.has_owner()).then(|| Arc::new(joint.clone()))
    }

    fn part(&self, joint: Arc<Joint>) -> Part {
        let joint: Arc<dyn Synchronizer> = joint;
        Part::new(&self.members[0].client, &joint, self.lease)
    }

    /// All members by one script. `None` when others who hold them in turns would keep it out for ever.
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
            hold = part.client.acquire(&part.sync, options, self.lease) => hold.map(Some),
            () = joint.starved() => Ok(None),
        }
    }

    /// One member after the other. Dropped on the way, or after an error, it releases what it has got.
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
            holds.push(part.client.acquire(&part.sync, options, self.lease).await?);
        }
        Ok(holds)
    }

    /// `options` with the time that is left.
    fn left(&self, options: &AcquireOptions, until: Option<Moment>) -> AcquireOptions {
        match until {
            Some(until) => options
                .clone()
                .timeout(until.since(self.members[0].client.now())),
            None => options.clone(),
        }
    }

    fn guard(&self, holds: Vec<Hold>) -> Option<MultiGuard> {
        let holds = HoldSet::all(holds).filter(HoldSet::is_held)?;
        Some(MultiGuard::new(holds, &self.members))
    }
}

impl Acquire for MultiLock {
    fn name(&self) -> Name {
        self.members[0].sync.name().clone()
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

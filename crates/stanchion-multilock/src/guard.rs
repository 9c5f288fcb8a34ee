//! The guard that an acquire returns.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use stanchion_core::primitive::{HoldSet, Part};
use stanchion_core::{
    Ended, FencingToken, Guard, LeaseLost, LostReason, Moment, Name, ReleaseError, RenewError,
};

/// All members of a [`MultiLock`](crate::MultiLock), held. Release it, or drop it: the release then runs in the background.
///
/// It is lost when any member is lost. `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and
/// never panics (P9).
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct MultiGuard {
    holds: HoldSet,
    names: Vec<Name>,
    /// For each member, whether it mints tokens.
    mints: Vec<bool>,
}

impl MultiGuard {
    /// Makes the guard of `members`, in name order. `holds` has one hold for all of them, or one for each.
    pub(crate) fn new(holds: HoldSet, members: &[Part]) -> Self {
        Self {
            holds,
            names: members
                .iter()
                .map(|part| part.sync.name().clone())
                .collect(),
            mints: members
                .iter()
                .map(|part| part.sync.fence().is_some())
                .collect(),
        }
    }

    /// Returns the names of the members in name order, with the client's key prefix.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-names").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// let names: Vec<String> = guard.names().iter().map(ToString::to_string).collect();
    /// assert_eq!(names, ["account:4", "account:7"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Returns the fencing token of the member called `name` (key prefix included); `None` if it mints none, or is not a
    /// member. Give each resource the token of the name that guards it.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-fencing-token").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// let earlier = guard.fencing_token("account:7");
    /// guard.release().await?;
    /// let guard = both.acquire().await?;
    /// assert!(guard.fencing_token("account:7") > earlier); // the account refuses smaller ones
    /// assert!(guard.fencing_token("account:9").is_none()); // not a member
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P2, for each name: larger than the token of every earlier outermost acquisition of that name, by any lock.
    /// Members that mint and that one script acquired share one token.
    #[must_use]
    pub fn fencing_token(&self, name: impl AsRef<[u8]>) -> Option<FencingToken> {
        let i = self
            .names
            .iter()
            .position(|member| member.as_bytes() == name.as_ref())?;
        // One hold for all members has a token if any of them mints.
        if !*self.mints.get(i)? {
            return None;
        }
        let holds = self.holds.holds();
        holds.get(i).or_else(|| holds.first())?.fencing_token()
    }

    /// Returns the time until which the holder may count on all members, on the first member's clock: the earliest of their
    /// ends. Every renewal extends it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-valid-until").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// let left = guard.valid_until().since(client.now());
    /// assert!(left > Duration::from_secs(20)); // of a lease of 30 s
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P1: no other owner is granted any member before it, while the servers keep their data and their clocks are not
    /// stepped.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.holds.valid_until()
    }

    /// Returns the time that is left until [`valid_until`](Self::valid_until); zero once lost.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-remaining").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(20)); // of a lease of 30 s
    /// client.shutdown(Duration::ZERO).await;
    /// assert_eq!(guard.remaining(), Duration::ZERO); // lost
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.holds.remaining()
    }

    /// Returns whether all members are still held.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-is-held").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// assert!(guard.is_held());
    /// client.shutdown(Duration::ZERO).await; // nobody renews it any longer
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P5: false before another owner can be granted a member. Compares the clock; needs no network and no timer.
    /// It cannot stop code between this check and its effect: for that, use the fencing tokens.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.is_held()
    }

    /// Resolves when the first member is lost, with the reason; never after a release.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, Lockable, LostReason, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-lost").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(20));
    /// let guard = both.acquire_with(options).await?;
    /// assert_eq!(guard.lost().await, LostReason::MaxHold);
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P5: resolves before another owner can be granted that member, and not early while renewals succeed. The forced release
    /// of a member is noticed at the next renewal, up to a third of the lease later.
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist, and they may outlive the guard. After a release they pend for ever and
    /// keep nothing alive, but a task that only waits for one never ends: spawn [`ended`](Self::ended) instead.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.holds.lost()
    }

    /// Resolves when the hold has ended: released, or the first member lost. For tasks that watch it.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Ended, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-ended").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// let watch = tokio::spawn(guard.ended());
    /// guard.release().await?;
    /// assert_eq!(watch.await?, Ended::Released);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// As [`lost`](Self::lost), if it is lost.
    ///
    /// # Cancel safety
    /// As [`lost`](Self::lost). It keeps nothing alive.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.holds.ended()
    }

    /// Runs `work` while all members are held. When one is lost, `work` is dropped at its await point.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, Lockable, LostReason, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-run").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(20));
    /// let guard = both.acquire_with(options).await?;
    /// assert_eq!(guard.run(async { 1 + 1 }).await?, 2);
    /// let endless = guard.run(std::future::pending::<()>()).await;
    /// assert_eq!(endless.unwrap_err().reason, LostReason::MaxHold); // dropped in time
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LeaseLost`]: the work did not finish.
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.holds.run(work).await
    }

    /// Renews the leases of all members now. Only needed with [`Renewal::Manual`](stanchion_core::Renewal::Manual), or to
    /// have a whole lease ahead at a certain point. Never shortens a lease.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, Lockable, MultiLock, Renewal};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-renew").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let options = AcquireOptions::new().renewal(Renewal::Manual);
    /// let guard = both.acquire_with(options).await?;
    /// let earlier = guard.valid_until();
    /// guard.renew().await?;
    /// assert!(guard.valid_until() > earlier); // a whole lease ahead
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RenewError::Lost`] when a member is lost; the other errors leave the holds as they were. Ends within the operation
    /// timeout.
    ///
    /// # Cancel safety
    /// Safe: a renewal that was sent may still take effect.
    ///
    /// # On the wire
    /// One script, or one for each member, resent after a lost reply; each takes effect once.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.holds.renew().await
    }

    /// Releases all members, and waits for the server's answer. Dropping the guard does the same in the background.
    ///
    /// ```
    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{Client, Lockable, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-release").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    /// let guard = both.acquire().await?;
    /// guard.release().await?; // confirmed: the next request finds them free
    /// assert!(both.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: a member was lost before, and another owner may have held it since; that owner's hold was not
    /// touched, and the other members are released. [`ReleaseError::Ambiguous`]: no answer within the operation timeout;
    /// the release goes on in the background.
    ///
    /// # Cancel safety
    /// Safe: the release goes on in the background.
    ///
    /// # On the wire
    /// One script, or one for each member. A message is published on the channel of each.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.holds.release().await
    }
}

impl From<MultiGuard> for Guard {
    fn from(guard: MultiGuard) -> Self {
        Self::from(guard.holds)
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard")
            .field("names", &self.names)
            .field("holds", &self.holds)
            .finish()
    }
}

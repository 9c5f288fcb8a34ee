//! The guard that an acquire returns.

use std::fmt;
use std::time::Duration;

use stanchion_client::primitive::{Guarded as _, HoldSet, Part, lease_for};
use stanchion_client::{
    Ended, FencingToken, Guard, LeaseLost, LostReason, Moment, Name, ReleaseError, ReleaseRequest,
    RenewError,
};

/// All members of a [`MultiLock`](crate::MultiLock), held. Release it, or drop it: the release then runs in the background.
///
/// The guard is lost when any member is lost. `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and
/// never panics (P9). A forced release of a member is noticed at the next renewal, up to a third of the lease later.
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
    /// # use stanchion_multilock::{Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-names").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
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
    /// # use stanchion_multilock::{Client, MultiLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://multiguard-fencing-token").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from, &to])?;
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

    /// The end of the time in which the holder may rely on all members: the earliest of their ends (P1). See [`Held::valid_until`](stanchion_client::Held::valid_until).
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.holds.valid_until()
    }

    /// The time left until then; zero once lost. See [`Held::remaining`](stanchion_client::Held::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.holds.remaining()
    }

    /// Returns whether all members are still held (P5). See [`Held::is_held`](stanchion_client::Held::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.is_held()
    }

    /// Resolves when the first member is lost, with the reason; never after a release (P5). See [`Held::lost`](stanchion_client::Held::lost).
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.holds.lost()
    }

    /// Resolves when the members are released, or the first one is lost. See [`Held::ended`](stanchion_client::Held::ended).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.holds.ended()
    }

    /// Resolves with the last request to give it back. See [`Held::requested`](stanchion_client::Held::requested).
    pub fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static {
        self.holds.requested()
    }

    /// The last request to give it back. See [`Held::request`](stanchion_client::Held::request).
    #[must_use]
    pub fn request(&self) -> Option<ReleaseRequest> {
        self.holds.request()
    }

    /// Runs `work` while all members are held; drops `work` when one is lost. See [`Held::run`](stanchion_client::Held::run).
    ///
    /// # Errors
    /// [`LeaseLost`]: the work did not finish.
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.holds.run(work).await
    }

    /// Renews the leases of all members now. Never shortens a lease. See [`Held::renew`](stanchion_client::Held::renew).
    ///
    /// # Errors
    /// [`RenewError::Lost`] when a member is lost; the other errors leave the holds as they were.
    ///
    /// # Cancel safety
    /// Safe: a renewal that was sent may still take effect.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.holds.renew(None).await
    }

    /// Renews now, once for `lease` instead of the usual one. See [`Held::renew_for`](stanchion_client::Held::renew_for).
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    /// As [`renew`](Self::renew).
    pub async fn renew_for(&self, lease: impl Into<Duration>) -> Result<(), RenewError> {
        let lease = lease_for(&self.names[0], lease.into())?;
        self.holds.renew(Some(lease)).await
    }

    /// Releases all members, and waits for the server's answer. Dropping the guard does the same in the background. See [`Held::release`](stanchion_client::Held::release).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: a member was lost before; the others are released. [`ReleaseError::Ambiguous`]: no answer within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.holds.release().await
    }
}

impl From<MultiGuard> for Guard {
    fn from(guard: MultiGuard) -> Self {
        Self::of(guard.holds)
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

//! The guard that an acquire returns.

use std::fmt;

use stanchion_client::primitive::{HoldSet, Part};
use stanchion_client::{FencingToken, Name, define_guard};

define_guard! {
    /// All members of a [`MultiLock`](crate::MultiLock), held. Release it, or drop it: the release then runs in the background.
    ///
    /// The guard is lost when any member is lost. `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and
    /// never panics (P9).
    pub struct MultiGuard over holds
        with names: Vec<Name>
        // For each member, whether it mints tokens.
        with mints: Vec<bool>;

    /// # use stanchion_lock::Lock;
    /// # use stanchion_multilock::{AcquireOptions, Client, Ended, Lockable, LostReason, MultiLock, Renewal};
    /// # let client = Client::connect("memory://multiguard").await?;
    /// # let (from, to) = (Lock::new(&client, "account:7")?, Lock::new(&client, "account:4")?);
    /// # let both = MultiLock::new([&from as &dyn Lockable, &to])?;
    example both.acquire(), both.acquire_with(options);

    fn valid_until {
        /// Returns the time until which the holder may count on all members, on the first member's clock: the earliest of their
        /// ends. Every renewal extends it.
    } {
        /// # Guarantees
        /// P1: no other owner is granted any member before it, while the servers keep their data and their clocks are not
        /// stepped.
    }
    fn is_held {
        /// Returns whether all members are still held.
    } {
        /// # Guarantees
        /// P5: false before another owner can be granted a member. Compares the clock; needs no network and no timer.
        /// This check cannot stop code between it and its effect: for that, use the fencing tokens.
    }
    fn lost {
        /// Resolves when the first member is lost, with the reason; never after a release.
    } {
        /// # Guarantees
        /// P5: resolves before another owner can be granted that member, and not early while renewals succeed. The forced
        /// release of a member is noticed at the next renewal, up to a third of the lease later.
    }
    fn ended {
        /// Resolves when the hold has ended: released, or the first member lost. For tasks that watch it.
    }
    fn run {
        /// Runs `work` while all members are held. When one is lost, `work` is dropped at its await point.
    }
    fn renew {
        /// Renews the leases of all members now. Only needed with [`Renewal::Manual`](stanchion_client::Renewal::Manual), or to
        /// have a whole lease ahead at a certain point. Never shortens a lease.
    } {
        /// # Errors
        /// [`RenewError::Lost`](stanchion_client::RenewError::Lost) when a member is lost; the other errors leave the holds as
        /// they were. Ends within the operation timeout.
        ///
        /// # Cancel safety
        /// Safe: a renewal that was sent may still take effect.
        ///
        /// # On the wire
        /// One script, or one for each member, resent after a lost reply; each takes effect once.
    }
    fn release {
        /// Releases all members, and waits for the server's answer. Dropping the guard does the same in the background.
    } {
        /// # Errors
        /// [`ReleaseError::Lost`](stanchion_client::ReleaseError::Lost): a member was lost before, and another owner may have held
        /// it since; that owner's hold was not touched, and the other members are released.
        /// [`ReleaseError::Ambiguous`](stanchion_client::ReleaseError::Ambiguous): no answer within the operation
        /// timeout; the release continues in the background.
        ///
        /// # Cancel safety
        /// Safe: the release continues in the background.
        ///
        /// # On the wire
        /// One script, or one for each member. A message is published on the channel of each.
    }
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
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard")
            .field("names", &self.names)
            .field("holds", &self.holds)
            .finish()
    }
}

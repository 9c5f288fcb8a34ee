//! One interface for all locks of the family, for code that works with any of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::description::Sharing;
use crate::error::{AcquireError, LeaseLost, LostReason, Rejection, ReleaseError, RenewError};
use crate::hold::ended::Ended;
use crate::hold::handle::Hold;
use crate::hold::set::HoldSet;
use crate::lease::Lease;
use crate::name::Name;
use crate::notice::ReleaseRequest;
use crate::options::AcquireOptions;
use crate::primitive::Lockable;
use crate::token::FencingToken;
use stanchion_transport::Moment;

/// An acquire under way. `'static`: it can be spawned, and outlives the handle it came from.
pub type Acquiring<T> = Pin<Box<dyn Future<Output = Result<T, AcquireError>> + Send>>;

/// Anything that can be acquired with a lease, behind one set of methods: `Lock`, `FairLock`, both sides of a `RwLock`, `MultiLock`, `RedLock`, one
/// permit of a `LeasedSemaphore`. Object-safe, for code that works with any lock.
///
/// The methods give the guarantees of the methods with the same names on the type itself. Prefer the type's own methods if the type is known: they
/// need no box, and their guards can do more.
///
/// ```
/// use stanchion_core::{Acquire, AcquireError, Guard};
///
/// async fn settle(lock: &dyn Acquire) -> Result<(), Box<dyn std::error::Error>> {
///     let guard: Guard = lock.acquire().await?;
///     guard.run(async { /* … */ }).await?;
///     Ok(guard.release().await?)
/// }
/// ```
pub trait Acquire: fmt::Debug + Send + Sync {
    /// The name that is acquired, with the client's key prefix; of several names the first.
    fn name(&self) -> Name;

    /// Acquires with `options`.
    fn acquire_with(&self, options: AcquireOptions) -> Acquiring<Guard>;

    /// Tries once, with `options`; `None` if another owner holds the name.
    fn try_acquire_with(&self, options: AcquireOptions) -> Acquiring<Option<Guard>>;

    /// Waits until the name is acquired.
    fn acquire(&self) -> Acquiring<Guard> {
        self.acquire_with(AcquireOptions::new())
    }

    /// Waits for at most `timeout`. Zero sends one request.
    fn acquire_timeout(&self, timeout: Duration) -> Acquiring<Guard> {
        self.acquire_with(AcquireOptions::new().timeout(timeout))
    }

    /// Tries once; `None` if another owner holds the name.
    fn try_acquire(&self) -> Acquiring<Option<Guard>> {
        self.try_acquire_with(AcquireOptions::new())
    }
}

impl<T: Lockable + Send + Sync + ?Sized> Acquire for T {
    fn name(&self) -> Name {
        self.part().sync.name().clone()
    }

    fn acquire_with(&self, options: AcquireOptions) -> Acquiring<Guard> {
        let part = self.part();
        Box::pin(async move { part.acquire(&options).await.map(Guard::from) })
    }

    fn try_acquire_with(&self, options: AcquireOptions) -> Acquiring<Option<Guard>> {
        let part = self.part();
        Box::pin(async move { Ok(part.try_acquire(&options).await?.map(Guard::from)) })
    }
}

/// The guard of an [`Acquire`]. Every guard with a lease can be turned [into](From) one. Release it, or drop it: the release
/// then runs in the background.
///
/// Its methods give the guarantees of the guard that it was made from.
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct Guard(HoldSet);

impl Guard {
    /// The name that is held, with the client's key prefix; of several names the first.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// Returns whether no other owner can hold the name at the same time.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        let alone = |hold: &Hold| matches!(hold.sharing(), Sharing::Exclusive | Sharing::Queued);
        self.0.holds().iter().all(alone)
    }

    /// The fencing token; `None` where none is minted, and for several names, each of which has its own.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        match self.0.holds() {
            [hold] => hold.fencing_token(),
            _ => None,
        }
    }

    /// The end of the time in which the holder may rely on the hold (P1).
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.0.valid_until()
    }

    /// The time left until [`valid_until`](Self::valid_until); zero once lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns whether the hold is still held (P5).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Resolves when the hold is lost (P5); never after a release.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.0.lost()
    }

    /// Resolves when the hold is released or lost (P5).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.0.ended()
    }

    /// Resolves when a client requests that the holder gives the hold back. The holder decides.
    pub fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static {
        self.0.requested()
    }

    /// The last request to give the hold back.
    #[must_use]
    pub fn request(&self) -> Option<ReleaseRequest> {
        self.0.request()
    }

    /// Runs `work` while the hold lasts. When the hold is lost, `work` is dropped at its await point.
    ///
    /// # Errors
    /// [`LeaseLost`]: the work did not finish.
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.0.run(work).await
    }

    /// Renews the lease now.
    ///
    /// # Errors
    /// [`RenewError`]. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a renewal that was sent may still take effect.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.0.renew().await
    }

    /// Renews now, once for `lease` instead of the usual one. Never shortens what is left.
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    /// As [`renew`](Self::renew).
    pub async fn renew_for(&self, lease: Lease) -> Result<(), RenewError> {
        self.0.renew_for(lease).await
    }

    /// Re-enters: holds once more, as the same owner.
    ///
    /// # Errors
    /// [`RenewError`]; [`RenewError::Rejected`] if one owner cannot hold the name twice: permits, several names, a quorum.
    ///
    /// # Cancel safety
    /// Safe: a re-entry that was sent is undone in the background.
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        match self.0.holds() {
            [hold] => hold.reenter().await.map(Self::from),
            _ => Err(RenewError::Rejected {
                name: self.name().clone(),
                rejection: Rejection::InvalidOption {
                    rule: "a guard of several holds cannot be re-entered".into(),
                },
            }),
        }
    }

    /// Releases, and waits for the server's answer.
    ///
    /// # Errors
    /// [`ReleaseError`].
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.0.release().await
    }
}

impl From<Hold> for Guard {
    fn from(hold: Hold) -> Self {
        Self(HoldSet::one(hold))
    }
}

impl From<HoldSet> for Guard {
    fn from(holds: HoldSet) -> Self {
        Self(holds)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.0).finish()
    }
}

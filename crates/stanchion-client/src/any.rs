//! One interface for all locks of the family, for code that works with any of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::TryFutureExt as _;
use stanchion_core::{AcquireError, AcquireOptions, Name, Outage};

use crate::guard::{Anything, Guard};
use crate::part::Lockable;

/// An acquire under way. `'static`: it can be spawned, and outlives the handle it came from.
pub type Acquiring<T> = Pin<Box<dyn Future<Output = Result<T, AcquireError>> + Send>>;

/// Anything that can be acquired with a lease, behind one set of methods: `Lock`, `FairLock`, both sides of a `RwLock`, `MultiLock`, `RedLock`, one
/// permit of a `LeasedSemaphore`. Object-safe, for code that works with any lock.
///
/// The methods give the guarantees of the methods with the same names on the type itself. Prefer the type's own methods if the type is known: they
/// need no box, and their guards can do more.
///
/// ```
/// use stanchion_client::{Acquire, AcquireError, Guard};
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

    /// Returns the reason if the client knows that a request would find no connection now: an acquire would then wait for the end of the outage.
    /// Of several clients: if too few of them are connected for a grant. In a cluster the master of the name counts.
    fn outage(&self) -> Option<Outage>;

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

    fn outage(&self) -> Option<Outage> {
        self.part().outage()
    }

    fn acquire_with(&self, options: AcquireOptions) -> Acquiring<Guard> {
        // Not an `async` block: the box would contain the future twice.
        let acquiring = self.part().acquire_with::<Anything>(options);
        Box::pin(acquiring.map_ok(Guard::from))
    }

    fn try_acquire_with(&self, options: AcquireOptions) -> Acquiring<Option<Guard>> {
        let trying = self.part().try_acquire_with::<Anything>(options);
        Box::pin(trying.map_ok(|held| held.map(Guard::from)))
    }
}

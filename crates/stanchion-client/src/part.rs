//! A synchronizer with its client and lease: what the verbs of a primitive delegate to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stanchion_core::primitive::{Handle, Synchronizer};
use stanchion_core::{AcquireError, AcquireOptions, AdoptError, HoldTicket, Outage};

use crate::guard::Held;

/// A member of a multi-lock: a lock, a fair lock, a side of a read-write lock.
pub trait Lockable: fmt::Debug {
    /// The parts that the multi-lock needs.
    fn part(&self) -> Part;
}

/// A synchronizer together with the client and the lease it was made with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Part {
    /// The client that acquires.
    pub handle: Handle,
    /// The synchronizer.
    pub sync: Arc<dyn Synchronizer>,
    /// The lease of an acquire if its options have none.
    pub lease: Duration,
}

impl Part {
    /// Combines a client, a synchronizer and a lease.
    #[must_use]
    pub fn new(handle: &Handle, sync: &Arc<dyn Synchronizer>, lease: Duration) -> Self {
        Self {
            handle: handle.clone(),
            sync: Arc::clone(sync),
            lease,
        }
    }

    /// Returns the reason if a request would find no connection now.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.handle.outage(self.sync.name())
    }

    /// Acquires, and waits without a limit. For the verb `acquire` of a primitive.
    ///
    /// # Errors
    /// The future returns [`AcquireError`].
    pub fn acquire<K: 'static>(
        self,
    ) -> impl Future<Output = Result<Held<K>, AcquireError>> + Send + 'static {
        // By reference: otherwise the future of every waiter would contain the options.
        let options = AcquireOptions::none();
        async move {
            let acquiring = self.handle.acquire(&self.sync, options, self.lease);
            acquiring.await.map(Held::of)
        }
    }

    /// Acquires, and waits as `options` say. For the verb `acquire_with`.
    ///
    /// # Errors
    /// The future returns [`AcquireError`].
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its arguments twice"
    )]
    pub fn acquire_with<K: 'static>(
        self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Held<K>, AcquireError>> + Send + 'static {
        async move {
            let acquiring = self.handle.acquire(&self.sync, &options, self.lease);
            acquiring.await.map(Held::of)
        }
    }

    /// Tries once, without waiting; `None` when another owner holds the name. For the verb `try_acquire_with`.
    ///
    /// # Errors
    /// The future returns [`AcquireError`].
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its arguments twice"
    )]
    pub fn try_acquire_with<K: 'static>(
        self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Option<Held<K>>, AcquireError>> + Send + 'static {
        async move {
            let trying = self.handle.try_acquire(&self.sync, &options, self.lease);
            Ok(trying.await?.map(Held::of))
        }
    }

    /// Takes over the hold of `ticket`. For the verb `adopt_with`.
    ///
    /// # Errors
    /// The future returns [`AdoptError`].
    pub fn adopt_with<K: 'static>(
        self,
        ticket: &HoldTicket,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Held<K>, AdoptError>> + Send + 'static + use<K> {
        let ticket = ticket.clone();
        async move {
            let adopting = self.handle.adopt(&self.sync, &ticket, &options, self.lease);
            adopting.await.map(Held::of)
        }
    }
}

//! The interface for the crates of the primitives: a synchronizer describes itself to the core.
//!
//! A primitive is its scripts plus an implementation of [`Synchronizer`]. The loop that waits, the guard, renewal,
//! clean-up and cancellation are here in the core, once.

mod handle;
mod inside;
mod line;
mod standby;
mod waiting;

use std::fmt;
use std::sync::Arc;

use crate::error::AcquireError;
use crate::error::AdoptError;
use crate::guard::Held;
use crate::hold::ticket::HoldTicket;
use crate::lease::Lease;
use crate::options::AcquireOptions;

pub use self::handle::{Handle, Operation};
pub use self::inside::{HeldHere, WeakHandle};
pub use self::line::Line;
pub use self::standby::Standby;
pub use crate::actor::{ActorId, mark_of};
pub use crate::dated::Dated;
pub use crate::description::{
    Granted, HandOff, Heard, Kind, Request, ServerLine, ServerQueue, Sharing, Subject,
    Synchronizer, Tenure, Verdict,
};
pub use crate::error::Leftover;
pub use crate::extension::{Boxed, Extension, GiveUp, Patient, Queued};
pub use crate::fact::{Facts, Told};
pub use crate::field::{adopt_field, renew_field};
pub use crate::guard::{Detachable, Downgradable, Fenced, Permits, Quorum, Reentrant};
pub use crate::hint::{Hint, Refusal};
pub use crate::hold::ended::Watch;
pub use crate::hold::guarded::Guarded;
pub use crate::hold::handle::Hold;
pub use crate::hold::set::HoldSet;
pub use crate::hold::spent::Spent;
pub use crate::holders::Holders;
pub use crate::line::{Approach, Placed, Reason, Role, Sign};
#[doc(hidden)]
pub use crate::lua::{
    ANY_LINE, LINE, MINT, MINT_FUNCTION, NOTICE, Part as LuaPart, woven, woven_len,
};
pub use crate::millis::{Brief, as_millis, whole_millis};
pub use crate::name::derived;
pub use crate::query::Resend;
pub use crate::reading::{holder_in, natural, unexpected};
pub use crate::waiting::Waiting;
pub use stanchion_transport::{Arg, Call, Item, Reply, Script, sleep, timeout};

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
    pub lease: Lease,
}

impl Part {
    /// Combines a client, a synchronizer and a lease.
    #[must_use]
    pub fn new(handle: &Handle, sync: &Arc<dyn Synchronizer>, lease: Lease) -> Self {
        Self {
            handle: handle.clone(),
            sync: Arc::clone(sync),
            lease,
        }
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

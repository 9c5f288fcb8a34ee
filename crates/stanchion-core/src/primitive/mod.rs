//! The interface for the crates of the primitives: a synchronizer describes itself to the core.
//!
//! A primitive is its scripts plus an implementation of [`Synchronizer`]. The loop that waits, renewal, clean-up and cancellation
//! are here in the core, once.

mod handle;
mod inside;
mod line;
mod standby;
mod waiting;

pub use self::handle::{Handle, Operation};
pub use self::inside::{HeldHere, WeakHandle};
pub use self::line::Line;
pub use self::standby::Standby;
pub use crate::about::{About, Kind, Sharing, Tenure};
pub use crate::actor::{ActorId, mark_of};
pub use crate::dated::Dated;
pub use crate::description::{
    Granted, HandOff, Heard, Holdable, Request, ServerQueue, Subject, Synchronizer, Verdict,
};
pub use crate::error::{Leftover, bounded, lease_of};
pub use crate::extension::{Boxed, Extension, GiveUp, Patient, Queued};
pub use crate::fact::{Facts, Told};
pub use crate::field::{adopt_field, renew_field};
pub use crate::hint::{Hint, Refusal};
pub use crate::hold::guarded::Guarded;
pub use crate::hold::handle::{Hold, Watch};
pub use crate::hold::set::HoldSet;
pub use crate::hold::spent::Spent;
pub use crate::holders::Holders;
pub use crate::line::{Approach, Placed, Reason, Role, Yields};
#[doc(hidden)]
pub use crate::lua::{ANY_LINE, LINE, MINT, MINT_FUNCTION, NOTICE};
pub use crate::millis::{Brief, as_millis, whole_millis};
pub use crate::name::{Namespace, derived};
pub use crate::options::ReadOptions;
pub use crate::query::Resend;
pub use crate::reading::{holder_in, natural, unexpected};
pub use crate::waiting::Waiting;
#[doc(hidden)]
pub use stanchion_transport::Part as LuaPart;
pub use stanchion_transport::{Arg, Call, Item, Reply, Script, sleep, timeout};

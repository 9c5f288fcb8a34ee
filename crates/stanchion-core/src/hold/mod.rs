//! A hold, from its grant to its end.
//!
//! * [`holds`]: the state that the holds of a client share; [`queue`]: the local queue of a hold's name, as the hold uses it.
//! * [`claim`]: all that one owner may have on the server; [`debt`]: a claim with what cleans up after it.
//! * [`life`]: how long a hold lasts, when it is renewed, and how it ends. Claims and lives decide without I/O, and the explorer runs them.
//! * [`state`]: the state that the guards, the watchdog and the releaser of one hold share.
//! * [`request`]: a request to give the hold back.
//! * [`handle`]: one count of a hold; [`set`]: several holds that count as one; [`guarded`]: what a guard needs of either.
//! * [`losses`]: lost holds that the server may still have.
//! * [`renew`]: renewal and re-entry on demand; [`parked`]: a re-entry whose caller does not poll it.
//! * [`release`]: the end; [`hand_off`]: the transfer to another owner; [`sweep`]: the clean-up in the background; [`ended`]: the
//!   way in which a hold ended; [`spent`]: the rest of a hold that was used up.
//! * [`releases`]: the releases of the last seconds, which are sent again to a new master.

pub mod claim;
pub(crate) mod debt;
pub(crate) mod ended;
pub(crate) mod guarded;
pub(crate) mod hand_off;
pub(crate) mod handle;
pub(crate) mod holds;
pub mod life;
pub(crate) mod losses;
mod parked;
pub(crate) mod queue;
pub(crate) mod release;
pub(crate) mod releases;
pub(crate) mod renew;
pub(crate) mod request;
pub(crate) mod set;
pub(crate) mod spent;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod ticket;

//! A hold, from its grant to its end.
//!
//! * [`state`]: what the guards, the watchdog and the releaser of one hold share.
//! * [`handle`]: one count of it, which a guard wraps; [`set`]: several holds that count as one.
//! * [`losses`]: those that were lost, and that the server may still have.
//! * [`renew`]: renewal and re-entry on demand; [`parked`]: a re-entry that nobody polls.
//! * [`release`]: the end; [`hand_off`]: the transfer to another owner; [`sweep`]: the clean-up in the background; [`ended`]: the
//!   end, for those who only watch; [`spent`]: what is left of a hold that was used up.
//! * [`releases`]: those of the last seconds, which are sent again to a new master.

pub(crate) mod ended;
pub(crate) mod hand_off;
pub(crate) mod handle;
pub(crate) mod losses;
mod parked;
pub(crate) mod release;
pub(crate) mod releases;
pub(crate) mod renew;
pub(crate) mod set;
pub(crate) mod spent;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod ticket;

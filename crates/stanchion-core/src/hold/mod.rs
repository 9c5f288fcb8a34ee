//! A hold, from its grant to its end.
//!
//! * [`state`]: what the guards, the watchdog and the releaser of one hold share.
//! * [`handle`]: one count of it, which a guard wraps; [`set`]: several holds that count as one.
//! * [`renew`]: renewal and re-entry on demand; [`release`]: the end, public or passed on; [`ended`]: the end, for who only watches.

pub(crate) mod ended;
pub(crate) mod handle;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod set;
pub(crate) mod state;

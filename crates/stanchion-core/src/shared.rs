//! The state that the parts of a client share.
//!
//! Clients, holds and acquires keep the [`Core`] alive; the background tasks hold it weakly or only its parts, and end with its `closed` token,
//! which its drop cancels.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::agenda::Agenda;
use crate::extension::Extensions;
use crate::hold::losses::Losses;
use crate::hold::releases::Releases;
use crate::observe::Counts;
use crate::subscriptions::Subscriptions;
use crate::waiting::LockEntries;
use crate::wire::Wire;

/// The state that the parts of a client share. Everything below holds and queues is in [`Wire`].
pub(crate) struct Core {
    pub(crate) wire: Wire,
    /// The fields `subscriptions`, `entries` and `timetable` have mutexes of their own, in the lock order of [`crate::waiting`].
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) entries: LockEntries,
    pub(crate) timetable: Arc<Agenda>,
    pub(crate) losses: Losses,
    /// The releases of the last seconds, which are repeated when another master takes over.
    pub(crate) releases: Arc<Releases>,
    /// The parts of the client that live in other crates.
    pub(crate) extensions: Arc<Extensions>,
    /// The number of holds, if there is an observer.
    pub(crate) counts: Counts,
}

/// A core is used wherever its wire is.
impl Deref for Core {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

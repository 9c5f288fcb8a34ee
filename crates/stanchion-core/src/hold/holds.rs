//! The state that the holds of a client share.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::agenda::Agenda;
use crate::description::Synchronizer;
use crate::extension::Extensions;
use crate::hold::losses::Losses;
use crate::hold::releases::Releases;
use crate::receiver::Subscriptions;
use crate::wire::Wire;
use stanchion_transport::Counts;

/// The state that the holds of a client share. Everything below holds is in [`Wire`].
pub(crate) struct Holds {
    pub(crate) wire: Wire,
    /// The client, for work that keeps it alive.
    pub(crate) client: Weak<dyn Base>,
    /// The fields `subscriptions` and `timetable` have mutexes of their own, in the lock order of [`crate::waiting`].
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) timetable: Arc<Agenda>,
    pub(crate) losses: Losses,
    /// The releases of the last seconds, which are repeated when another master takes over.
    pub(crate) releases: Arc<Releases>,
    /// The parts of the client that live in other crates.
    pub(crate) extensions: Arc<Extensions>,
    /// The number of holds, if there is an observer.
    pub(crate) counts: Counts,
}

/// Holds are used wherever their wire is.
impl Deref for Holds {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

/// A client, as its holds see it: the layer above implements it. Holds and requests keep it alive.
pub(crate) trait Base: Send + Sync {
    /// The state that its holds share.
    fn holds(&self) -> &Holds;

    /// Passes a grant in the reply to a release to the waiter that it names.
    fn granted(&self, sync: &dyn Synchronizer, grant: &[u8]);
}

impl Deref for dyn Base {
    type Target = Holds;

    fn deref(&self) -> &Holds {
        self.holds()
    }
}

impl std::fmt::Debug for dyn Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

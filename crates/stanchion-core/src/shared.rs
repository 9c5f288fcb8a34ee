//! The state that the parts of a client share.
//!
//! Clients, holds and acquires keep the [`Core`] alive; the background tasks hold it weakly or only its parts, and end with its `closed` token,
//! which its drop cancels.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::description::Synchronizer;
use crate::hold::holds::{Base, Holds};
use crate::waiting::LockEntries;

/// The state that the parts of a client share. Everything below queues is in [`Holds`].
pub(crate) struct Core {
    pub(crate) holds: Holds,
    /// Has mutexes of its own, in the lock order of [`crate::waiting`].
    pub(crate) entries: LockEntries,
}

impl Core {
    /// This client, as its holds see it.
    pub(crate) fn base(self: &Arc<Self>) -> Arc<dyn Base> {
        Arc::clone(self) as _
    }
}

impl Base for Core {
    fn holds(&self) -> &Holds {
        &self.holds
    }

    fn granted(&self, sync: &dyn Synchronizer, grant: &[u8]) {
        self.entries.granted(sync, grant);
    }
}

/// A core is used wherever its holds are.
impl Deref for Core {
    type Target = Holds;

    fn deref(&self) -> &Holds {
        &self.holds
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

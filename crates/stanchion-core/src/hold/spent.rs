//! A hold that was used up: it has ended locally, and its data on the server is unchanged.

use std::fmt;
use std::sync::Arc;

use crate::error::ReleaseError;
use crate::hold::release;
use crate::hold::renew::in_time;
use crate::hold::state::HoldState;
use crate::name::Name;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Moment, Persistent};

/// The rest of a hold that was [used up](crate::primitive::Hold::spend). Dropping it does nothing.
pub struct Spent {
    state: Arc<HoldState>,
}

impl Spent {
    pub(super) fn new(state: Arc<HoldState>) -> Self {
        // The hold is held until now, so only a loss can come first. A hold of `Tenure::Unleased` is lost only by a shutdown.
        state.end().ok();
        Self { state }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.state.sync.name()
    }

    /// The owner to which the hold was granted.
    #[must_use]
    pub fn wire_owner(&self) -> &WireOwner {
        &self.state.debt.owner
    }

    /// The moment from which the hold counted.
    #[must_use]
    pub fn due(&self) -> Moment {
        self.state.dates().0.max(self.state.began())
    }

    /// Gives the grant back, and waits for the server's answer. If the future is dropped, the work goes on in the background.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub async fn give_back(self) -> Result<(), ReleaseError> {
        let work = release::after_its_end(Arc::clone(&self.state));
        let work = Persistent::begun(&self.state.core.runner, work);
        in_time(self.state, work).await
    }
}

impl fmt::Debug for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

//! A wait for an event that begins before the event can happen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

use super::{Handle, Synchronizer};
use crate::acquire::StandingBy;
use crate::error::AcquireError;
use crate::observe::span;

/// A registration for the facts of an event: see [`Facts`](crate::primitive::Facts). Dropping it ends the registration.
#[must_use = "it is told nothing once it is dropped"]
pub struct Standby {
    handle: Handle,
    sync: Arc<dyn Synchronizer>,
    place: StandingBy,
}

impl Handle {
    /// Registers for the event of `sync`, before the caller's action that may cause it. `sync` must have [`facts`](Synchronizer::facts).
    ///
    /// # Errors
    /// [`AcquireError`]: the client is closing.
    pub fn stand_by(&self, sync: &Arc<dyn Synchronizer>) -> Result<Standby, AcquireError> {
        self.open(&**sync)?;
        Ok(Standby {
            handle: self.clone(),
            sync: Arc::clone(sync),
            place: StandingBy::begin(self.core(), sync)?,
        })
    }
}

impl Standby {
    /// Plans a poll after `pause`, in case no message ends the wait before: a lease, for example, may end then without a message.
    pub fn ask_within(&self, pause: Duration) {
        self.place.ask_within(pause);
    }

    /// Waits for the message that the event has happened. With `look`, sends one request first.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn wait(self, timeout: Option<Duration>, look: bool) -> Result<(), AcquireError> {
        let Self {
            handle,
            sync,
            place,
        } = self;
        let span = span!("wait", sync);
        let started = handle.started(&span);
        // Boxed: the caller has an acquire of its own, and every waiter carries both.
        let result = Box::pin(place.wait(timeout, look).instrument(span.clone())).await;
        handle.waited(
            &*sync,
            started,
            &result,
            |hold| Some(hold.fencing_token()),
            &span,
        );
        result.map(drop)
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

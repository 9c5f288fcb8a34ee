//! The state of a client that the [extensions](crate::extension) read: its holds, its waits, its servers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Handle, Synchronizer};
use crate::actor::ActorId;
use crate::error::QueryError;
use crate::extension::Extension;
use crate::hold::state::HoldState;
use crate::name::Name;
use crate::query::{Resend, query, unanswered_in};
use crate::shared::Core;
use crate::token::FencingToken;
use crate::waiting::Waiting;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, ClientConfig, Moment, Path, Reply, Runner, Servers};

/// A reference that does not keep the client alive, for background tasks.
#[derive(Clone, Debug)]
pub struct WeakHandle(Weak<Core>);

impl WeakHandle {
    /// Returns the client, unless it was dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(|core| Handle { core })
    }
}

/// A hold of this client, for surveys.
#[derive(Clone, Debug)]
pub struct HeldHere(Arc<HoldState>);

impl HeldHere {
    /// The synchronizer.
    #[must_use]
    pub fn sync(&self) -> &Arc<dyn Synchronizer> {
        &self.0.sync
    }

    /// The owner.
    #[must_use]
    pub fn owner(&self) -> &WireOwner {
        &self.0.debt.owner
    }

    /// The actor that acquired the hold.
    #[must_use]
    pub fn actor(&self) -> Option<ActorId> {
        self.0.terms.actor
    }

    /// The moment of the grant.
    #[must_use]
    pub fn began(&self) -> Moment {
        self.0.began()
    }

    /// The moment from which the hold counts; later than now for a booking.
    #[must_use]
    pub fn due(&self) -> Moment {
        self.0.dates().0
    }

    /// The end of the time in which the holder may rely on the hold.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.0.valid_until()
    }

    /// The moment at which the hold ends without a release; `None` if it is renewed, or has no lease.
    #[must_use]
    pub fn ends(&self) -> Option<Moment> {
        self.0.ends()
    }

    /// Returns whether the hold is still held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Returns whether the hold belongs to a call that still waits.
    #[must_use]
    pub fn is_of_a_wait(&self) -> bool {
        self.0.is_of_a_wait()
    }

    /// The number of guards; `None` while an operation changes it.
    #[must_use]
    pub fn guards(&self) -> Option<u32> {
        self.0.guards()
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.0.token()
    }
}

impl Handle {
    /// Makes a reference that does not keep the client alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(self.core()))
    }

    /// Returns the client's extension of the type `T`.
    #[must_use]
    pub fn extension<T: Extension>(&self) -> Option<Arc<T>> {
        self.core().extensions.of()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.core().config
    }

    /// Returns the servers.
    #[must_use]
    pub fn servers(&self) -> &Arc<Servers> {
        &self.core().servers
    }

    /// Returns the runner of the background tasks.
    #[must_use]
    pub fn runner(&self) -> &Arc<Runner> {
        &self.core().runner
    }

    /// Returns the token that a shutdown cancels first: nothing new begins.
    #[must_use]
    pub fn closing(&self) -> &CancellationToken {
        &self.core().closing
    }

    /// Returns the token that is cancelled when the client ends.
    #[must_use]
    pub fn closed(&self) -> &CancellationToken {
        &self.core().closed
    }

    /// Returns the holds of this client, in no order.
    #[must_use]
    pub fn holds(&self) -> Vec<HeldHere> {
        let holds = self.core().live_holds().into_iter();
        holds.map(HeldHere).collect()
    }

    /// Calls `see` with the name of each queue, its first `most` waiters, and the number of the others.
    pub fn waits(&self, most: usize, see: impl FnMut(&Name, Vec<Waiting>, usize)) {
        self.core().entries.survey(most, see);
    }

    /// Returns the start of the oldest wait.
    #[must_use]
    pub fn oldest_wait(&self) -> Option<Moment> {
        self.core().entries.census().1
    }

    /// Returns the slot of a name; 0 on a server without slots.
    #[must_use]
    pub fn slot_of(&self, name: &Name) -> u16 {
        self.core().slot_of(name)
    }

    /// Returns the slot of a key of the client's own; 0 on a server without slots.
    #[must_use]
    pub fn slot_of_key(&self, key: &[u8]) -> u16 {
        self.core().slot_of_key(key)
    }

    /// Returns the time of the server of `slot`, in µs, when the client's clock reads `moment`.
    #[must_use]
    pub fn server_micros(&self, slot: u16, moment: Moment) -> u64 {
        self.core().server_micros(slot, moment)
    }

    /// Returns the pause until the next poll: the poll interval, up to a tenth less.
    #[must_use]
    pub fn next_poll(&self) -> Duration {
        self.core().poll_interval()
    }

    /// Returns a random duration up to `most`.
    #[must_use]
    pub fn jitter(&self, most: Duration) -> Duration {
        self.core().jitter(most)
    }

    /// Runs a script on the background connection, within the operation timeout.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn query_in_background(&self, call: &Call) -> Result<Reply, QueryError> {
        query(self.core(), Path::Background, call, Resend::UntilAnswered).await
    }

    /// Returns the error of a request that was not answered within the operation timeout.
    #[must_use]
    pub fn unanswered(&self) -> QueryError {
        QueryError::Unanswered {
            outage: unanswered_in(self.config().operation_timeout),
        }
    }
}

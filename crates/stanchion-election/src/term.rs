//! The parameters of a leader's work: a view of its term, and the request to stop.

use std::sync::{Arc, Weak};
use std::time::Duration;

use stanchion_client::{FencingToken, Name, RenewError};
use tokio::sync::watch;

use crate::leadership::{Challenge, Leadership, Office};

/// A term, as the work that [`Election::lead`](crate::Election::lead) runs sees it. Cheap to clone. It does not keep the term alive:
/// the term ends with the work.
#[derive(Clone, Debug)]
pub struct Term {
    term: Weak<Leadership>,
    office: Office,
    name: Name,
    id: Arc<str>,
    token: Option<FencingToken>,
}

impl Term {
    pub(crate) fn of(term: &Arc<Leadership>) -> Self {
        Self {
            term: Arc::downgrade(term),
            office: term.office(),
            name: term.name().clone(),
            id: term.id().into(),
            token: term.fencing_token(),
        }
    }

    /// The name of the election, with the client's key prefix.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The id of this leader: see [`Leadership::id`].
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The fencing token: see [`Leadership::fencing_token`].
    #[must_use]
    pub const fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns whether the term still lasts: see [`Leadership::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.term.upgrade().is_some_and(|term| term.is_held())
    }

    /// The time for which the leader may rely on the lease; zero after the end.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.term
            .upgrade()
            .map_or(Duration::ZERO, |term| term.remaining())
    }

    /// Changes the value that others see: see [`Leadership::proclaim`].
    ///
    /// # Errors
    /// As [`Leadership::proclaim`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have changed it.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), RenewError> {
        self.office.proclaim(value.as_ref()).await
    }

    /// Resolves when a candidate of a higher priority waits: see [`Leadership::challenged`].
    ///
    /// # Cancel safety
    /// Safe.
    pub fn challenged(&self) -> impl Future<Output = Challenge> + Send + 'static {
        let challenged = self.term.upgrade().map(|term| term.challenged());
        async move {
            match challenged {
                Some(challenged) => challenged.await,
                None => std::future::pending().await,
            }
        }
    }
}

/// The request to stop the work of a leader. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) const fn new(asked: watch::Receiver<bool>) -> Self {
        Self(asked)
    }

    /// Returns whether the work shall stop, or its term is over.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Resolves when the work shall stop, or its term is over; at once if that has happened.
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut asked = self.0.clone();
        async move {
            // An error means that the sender was dropped: the term is over.
            let _ = asked.wait_for(|asked| *asked).await;
        }
    }
}

//! The options of one wait.

use std::time::Duration;

use serde::Serialize;

use crate::keys::Policy;

/// The effect on the other parties when a waiting party times out, is dropped, or dies. The first arrival of a round decides for the round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnLeave {
    /// The place is free again, and the round waits for another party: for fleets whose members come and go.
    #[default]
    Free,
    /// The round breaks for all of its waiters: they get [`BarrierError::Broken`](crate::BarrierError::Broken), and the next round
    /// begins. For work that exactly these parties must do together. This is the contract of Java's `CyclicBarrier`, without `reset`.
    Break,
}

impl OnLeave {
    pub(crate) const fn policy(self) -> Policy {
        Policy(match self {
            Self::Free => "f",
            Self::Break => "b",
        })
    }
}

/// Options of one wait at a [`CyclicBarrier`](crate::CyclicBarrier). The defaults: no timeout, [`OnLeave::Free`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_leave: OnLeave,
}

impl WaitOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time after which the wait gives up. Zero sends one request, and does not wait.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the effect on the other parties when a party leaves. It applies if this wait is the first arrival of its round.
    #[must_use]
    pub fn on_leave(mut self, on_leave: OnLeave) -> Self {
        self.on_leave = on_leave;
        self
    }
}

//! Errors of a wait at a barrier.

use std::time::Duration;

use stanchion_client::primitive::{Brief, Leftover};
use stanchion_client::{AcquireError, Error, FreeBy, InvalidName, Name, ReleaseError};

use crate::meeting::MOST;

/// Invalid arguments for a barrier: see [`CyclicBarrier::new`](crate::CyclicBarrier::new).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBarrier {
    /// The name breaks a rule.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The number of parties is not one of 1 to 10 000.
    #[error("invalid number of parties {parties}: a barrier has 1 to {MOST}")]
    Parties {
        /// The number as given.
        parties: u32,
    },
}

impl From<InvalidBarrier> for Error {
    fn from(invalid: InvalidBarrier) -> Self {
        match invalid {
            InvalidBarrier::Name(invalid) => invalid.into(),
            invalid => Self::primitive(invalid),
        }
    }
}

/// A wait at a barrier that did not end with its round.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The deadline passed first.
    #[error("timed out after {} waiting for {name}{}", Brief(*.waited), Leftover(*.free_by))]
    TimedOut {
        /// The barrier.
        name: Name,
        /// The time that the call waited.
        waited: Duration,
        /// `None`: the place does not count. Otherwise a round may count the place until then.
        free_by: Option<FreeBy>,
    },
    /// The round broke for all of its waiters: by the rule [`OnLeave::Break`](crate::OnLeave::Break), or by force. The next round has
    /// begun.
    #[error("round {generation} of the barrier {name} broke: {by}")]
    Broken {
        /// The barrier.
        name: Name,
        /// The round that broke.
        generation: u64,
        /// The cause.
        by: BrokenBy,
    },
    /// The barrier on the server has another number of parties. No place was taken.
    #[error("the barrier {name} has {theirs} parties, not {ours}")]
    Parties {
        /// The barrier.
        name: Name,
        /// The number that this handle was made with.
        ours: u32,
        /// The number that the server has.
        theirs: u32,
    },
    /// The place was lost before the round was complete, and so was the second place that the wait took. Leases had ended, as when
    /// the process is paused again and again, or keys were deleted. The place does not count.
    #[error(
        "the place at the barrier {name} in round {generation} was lost before the round was complete"
    )]
    Lost {
        /// The barrier.
        name: Name,
        /// The round of the place.
        generation: u64,
    },
    /// A place inside a [`DoubleBarrier`](crate::DoubleBarrier) was lost before the party left, or the server did not confirm that it left.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// Another error of the acquire of a place, or of the wait: never [`AcquireError::TimedOut`].
    #[error(transparent)]
    Acquire(AcquireError),
}

impl From<AcquireError> for BarrierError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::TimedOut {
                name,
                waited,
                free_by,
                ..
            } => Self::TimedOut {
                name,
                waited,
                free_by,
            },
            error => Self::Acquire(error),
        }
    }
}

impl From<BarrierError> for Error {
    fn from(error: BarrierError) -> Self {
        match error {
            BarrierError::TimedOut {
                name,
                waited,
                free_by,
            } => AcquireError::TimedOut {
                name,
                waited,
                free_by,
                remark: None,
            }
            .into(),
            BarrierError::Release(error) => error.into(),
            BarrierError::Acquire(error) => error.into(),
            error => Self::primitive(error),
        }
    }
}

/// The cause that broke a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum BrokenBy {
    /// The timeout of a party passed.
    #[error("a party timed out")]
    TimedOut,
    /// A party dropped its wait, or was shut down.
    #[error("a party left")]
    Left,
    /// The lease of a party had ended: its process died, or was paused.
    #[error("a party died")]
    Died,
    /// [`BarrierDanger::break_all`](crate::BarrierDanger::break_all).
    #[error("it was broken by force")]
    Forced,
}

impl BrokenBy {
    /// The letter for this cause in scripts.
    pub(crate) const fn letter(self) -> &'static str {
        match self {
            Self::TimedOut => "t",
            Self::Left => "l",
            Self::Died => "d",
            Self::Forced => "f",
        }
    }

    pub(crate) fn of(letter: u8) -> Option<Self> {
        [Self::TimedOut, Self::Left, Self::Died, Self::Forced]
            .into_iter()
            .find(|by| by.letter().as_bytes() == [letter])
    }
}

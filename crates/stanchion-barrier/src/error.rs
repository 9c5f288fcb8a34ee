//! Errors of a wait at a barrier.

use stanchion_core::{AcquireError, Name};

/// A wait at a barrier that did not end with its round.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The barrier on the server has another number of parties. Nothing was changed; no place was taken.
    #[error("the barrier {name} has {theirs} parties, not {ours}")]
    Parties {
        /// The barrier.
        name: Name,
        /// The number that this handle was made with.
        ours: u32,
        /// The number that the server has.
        theirs: u32,
    },
    /// The place was lost before the round tripped: its lease had ended, as that of a process that stood still. Wait again.
    #[error(
        "the place at the barrier {name} in generation {generation} was lost before the round tripped"
    )]
    Lost {
        /// The barrier.
        name: Name,
        /// The generation of the place.
        generation: u64,
    },
    /// As of every acquire.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

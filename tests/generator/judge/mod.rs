//! The model: what the promises say about what a run has seen.

pub(crate) mod deadlocks;
pub(crate) mod holders;
pub(crate) mod latch;
pub(crate) mod meetings;
pub(crate) mod places;
pub(crate) mod rates;
pub(crate) mod rest;
pub(crate) mod rests;
pub(crate) mod shutdown;
pub(crate) mod terms;
pub(crate) mod ticks;
pub(crate) mod truth;
pub(crate) mod waiting;

use std::collections::BTreeMap;

use crate::keys::{self, Seen};
use crate::spot::Spot;
use crate::state::State;

/// Looks at the servers and at the guards, and judges.
pub(crate) fn look(state: &mut State) {
    let seen: BTreeMap<Spot, Seen> = state
        .places
        .keys()
        .map(|spot| {
            (
                *spot,
                keys::look(&state.engines[usize::from(spot.server)], *spot),
            )
        })
        .collect();
    holders::look(state, &seen);
    waiting::look(state, &seen);
    rest::look(state, &seen);
    rests::look(state);
    rates::look(state);
    terms::look(state);
    deadlocks::look(state);
    places::look(state);
}

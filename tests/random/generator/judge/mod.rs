//! The model: judges the events of a run and the data on the servers by the promises.

pub(crate) mod barrier_places;
pub(crate) mod barriers;
pub(crate) mod consistency;
pub(crate) mod deadlocks;
pub(crate) mod detached;
pub(crate) mod holders;
pub(crate) mod latch;
pub(crate) mod rates;
pub(crate) mod shutdown;
pub(crate) mod terms;
pub(crate) mod ticks;
pub(crate) mod truth;
pub(crate) mod waiting;

use std::collections::BTreeMap;

use crate::generator::keys::{self, Snapshot};
use crate::generator::resource::Resource;
use crate::generator::state::State;

/// Reads the servers and judges the state of the run.
pub(crate) fn check(state: &mut State) {
    let seen: BTreeMap<Resource, Snapshot> = state
        .records
        .keys()
        .map(|resource| {
            (
                *resource,
                keys::snapshot(&state.engines[usize::from(resource.server)], *resource),
            )
        })
        .collect();
    holders::check(state, &seen);
    waiting::check(state, &seen);
    consistency::check(state, &seen);
    detached::check(state);
    rates::check(state);
    terms::check(state);
    deadlocks::check(state);
    barrier_places::check(state);
}

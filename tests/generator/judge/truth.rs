//! P8: what answers claim.

use std::time::Duration;

use stanchion::{AcquireError, QueryError, Rejection, ReleaseError, RenewError};

use crate::calls::masked;
use crate::keys;
use crate::spot::Family;
use crate::state::{Op, State};
use crate::things::Thing;

/// Nothing has gone wrong around the call since shortly before it began.
fn fair(state: &State, op: &Op) -> bool {
    state.calm(&op.uses) >= op.started.elapsed() + Duration::from_secs(4)
        && op.uses.iter().all(|used| {
            state
                .processes
                .get(usize::from(used.client))
                .is_some_and(|process| !process.killed && !process.closing)
        })
}

pub(crate) fn acquired(state: &mut State, op: &Op, outcome: &Result<Option<Thing>, AcquireError>) {
    let Err(error) = outcome else { return };
    let fair = fair(state, op) && !op.was_parked;
    let lie = match error {
        AcquireError::TimedOut { free_by, .. } => {
            let age = op.started.elapsed();
            let early = op
                .ask
                .timeout
                .is_none_or(|timeout| age + Duration::from_millis(2) < crate::span(timeout));
            // Clocks may have jumped.
            if early && state.calm(&op.uses) > age {
                Some("it timed out too early")
            } else if free_by.is_none() && fair && left_something(state, op) {
                Some("P8: it left nothing, it says, and the server has something of it")
            } else {
                None
            }
        }
        AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. } => {
            // A try may have been given no time.
            let hurried = op.ask.tries && op.ask.timeout.is_some();
            (fair && !hurried).then_some("P8: the server was there all the time")
        }
        AcquireError::Rejected {
            rejection: Rejection::Other { .. },
            ..
        } => Some("P8: an answer that nobody understands"),
        AcquireError::Shutdown { .. } => fair.then_some("P8: nobody shut it down"),
        _ => None,
    };
    if let Some(lie) = lie {
        let text = format!("{lie}: {}: {}", op.label, masked(error));
        state.report("Untrue", text);
    }
    if matches!(error, AcquireError::Deadlock { .. }) {
        super::deadlocks::given_up(state, op);
    }
}

/// Returns whether its client has something at a lock although no other call of it could.
fn left_something(state: &State, op: &Op) -> bool {
    let [used] = op.uses.as_slice() else {
        return false;
    };
    let spot = used.spot;
    let ours = |uses: &[crate::spot::Use]| {
        uses.iter()
            .any(|other| other.client == used.client && other.spot.base() == spot.base())
    };
    let recent = state.ended.iter().any(|(client, base, at)| {
        *client == used.client && *base == spot.base() && at.elapsed() < Duration::from_secs(12)
    });
    let known = spot.family == Family::Hash || spot.family.is_barrier();
    if !known
        || op.ask.owner.is_some()
        || recent
        || state.ops.values().any(|other| ours(&other.uses))
        || state.held.values().any(|held| ours(&held.uses))
    {
        return false;
    }
    let engine = &state.engines[usize::from(spot.server)];
    let id = &state.processes[usize::from(used.client)].id;
    if spot.family.is_barrier() {
        return keys::standing(engine, spot).is_some_and(|standing| standing.of(id) > 0);
    }
    keys::look(engine, spot).has(id)
}

pub(crate) fn released(
    state: &mut State,
    op: &Op,
    outcome: &Result<(), ReleaseError>,
    was_held: bool,
) {
    let Err(error) = outcome else { return };
    // Another program, or an operator, may have taken it away during the call.
    let taken = op.uses.iter().any(|used| {
        let place = state.places.get(&used.spot);
        place.is_some_and(|place| place.tainted.is_some_and(|at| at >= op.started))
    });
    if was_held && !taken && !op.was_parked && fair(state, op) {
        let text = format!(
            "P8: a held guard in fair weather: {}: {}",
            op.label,
            masked(error)
        );
        state.report("Untrue", text);
    }
}

pub(crate) fn renewal_failed(state: &mut State, op: &Op, error: &RenewError, tainted: bool) {
    let lie = match error {
        RenewError::Unavailable { .. } => fair(state, op),
        RenewError::Rejected {
            rejection: Rejection::Other { .. },
            ..
        } => !tainted,
        _ => false,
    };
    if lie {
        let text = format!("P8: in fair weather: {}: {}", op.label, masked(error));
        state.report("Untrue", text);
    }
}

pub(crate) fn queried(state: &mut State, op: &Op, error: &QueryError) {
    let lie = match error {
        QueryError::Unavailable { .. } | QueryError::Unanswered { .. } => fair(state, op),
        QueryError::Rejected {
            rejection: Rejection::Other { .. },
        } => true,
        _ => false,
    };
    if lie {
        let text = format!("P8: in fair weather: {}: {}", op.label, masked(error));
        state.report("Untrue", text);
    }
}

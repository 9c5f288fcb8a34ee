//! P8: judges the claims of errors.

use std::time::Duration;

use stanchion::{AcquireError, QueryError, Rejection, ReleaseError, RenewError};

use crate::generator::calls::masked;
use crate::generator::guards::Acquired;
use crate::generator::keys;
use crate::generator::resource::Family;
use crate::generator::state::{Op, State};

/// Returns whether no fault has affected the call since shortly before it began.
fn undisturbed(state: &State, op: &Op) -> bool {
    state.fault_free(&op.uses) >= op.started.elapsed() + Duration::from_secs(4)
        && op.uses.iter().all(|used| {
            state
                .processes
                .get(usize::from(used.client))
                .is_some_and(|process| !process.killed && !process.closing)
        })
}

pub(crate) fn acquired(
    state: &mut State,
    op: &Op,
    outcome: &Result<Option<Acquired>, AcquireError>,
) {
    let Err(error) = outcome else { return };
    let undisturbed = undisturbed(state, op) && !op.was_parked;
    let false_claim = match error {
        AcquireError::TimedOut { free_by, .. } => {
            let age = op.started.elapsed();
            let early = op.opts.timeout.is_none_or(|timeout| {
                age + Duration::from_millis(2) < crate::generator::span(timeout)
            });
            // Clocks may have jumped.
            if early && state.fault_free(&op.uses) > age {
                Some("it timed out too early")
            } else if free_by.is_none() && undisturbed && left_something(state, op) {
                Some("P8: it reports that nothing is left, and the server has an entry")
            } else {
                None
            }
        }
        AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. } => {
            // A try with a timeout may have had no time to send its request.
            let hurried = op.opts.tries && op.opts.timeout.is_some();
            (undisturbed && !hurried).then_some("P8: the server was reachable all the time")
        }
        AcquireError::Rejected {
            rejection: Rejection::Other { .. },
            ..
        } => Some("P8: a reply that the library does not understand"),
        AcquireError::Shutdown { .. } => undisturbed.then_some("P8: the client was not shut down"),
        _ => None,
    };
    if let Some(false_claim) = false_claim {
        let text = format!("{false_claim}: {}: {}", op.label, masked(error));
        state.report("Untrue", text);
    }
    if matches!(error, AcquireError::Deadlock { .. }) {
        super::deadlocks::given_up(state, op);
    }
}

/// Returns whether the client has an entry at a lock or barrier that no other call of the client can have left.
fn left_something(state: &State, op: &Op) -> bool {
    let [used] = op.uses.as_slice() else {
        return false;
    };
    let resource = used.resource;
    let ours = |uses: &[crate::generator::resource::Use]| {
        uses.iter()
            .any(|other| other.client == used.client && other.resource.base() == resource.base())
    };
    let recent = state.ended.iter().any(|(client, base, at)| {
        *client == used.client && *base == resource.base() && at.elapsed() < Duration::from_secs(12)
    });
    let known = resource.family == Family::Hash || resource.family.is_barrier();
    if !known
        || op.opts.owner.is_some()
        || recent
        || state.ops.values().any(|other| ours(&other.uses))
        || state.held.values().any(|held| ours(&held.uses))
    {
        return false;
    }
    let engine = &state.engines[usize::from(resource.server)];
    let id = &state.processes[usize::from(used.client)].id;
    if resource.family.is_barrier() {
        return keys::barrier_state(engine, resource)
            .is_some_and(|barrier_state| barrier_state.of(id) > 0);
    }
    keys::snapshot(engine, resource).has(id)
}

pub(crate) fn released(
    state: &mut State,
    op: &Op,
    outcome: &Result<(), ReleaseError>,
    was_held: bool,
) {
    let Err(error) = outcome else { return };
    // Another program, or an operator, may have ended the hold during the call.
    let taken = op.uses.iter().any(|used| {
        let record = state.records.get(&used.resource);
        record.is_some_and(|record| record.tainted.is_some_and(|at| at >= op.started))
    });
    if was_held && !taken && !op.was_parked && undisturbed(state, op) {
        let text = format!(
            "P8: a held guard, without a fault: {}: {}",
            op.label,
            masked(error)
        );
        state.report("Untrue", text);
    }
}

pub(crate) fn renewal_failed(state: &mut State, op: &Op, error: &RenewError, tainted: bool) {
    let false_claim = match error {
        RenewError::Unavailable { .. } => undisturbed(state, op),
        RenewError::Rejected {
            rejection: Rejection::Other { .. },
            ..
        } => !tainted,
        _ => false,
    };
    if false_claim {
        let text = format!("P8: without a fault: {}: {}", op.label, masked(error));
        state.report("Untrue", text);
    }
}

pub(crate) fn queried(state: &mut State, op: &Op, error: &QueryError) {
    let false_claim = match error {
        QueryError::Unavailable { .. } | QueryError::Unanswered { .. } => undisturbed(state, op),
        QueryError::Rejected {
            rejection: Rejection::Other { .. },
        } => true,
        _ => false,
    };
    if false_claim {
        let text = format!("P8: without a fault: {}: {}", op.label, masked(error));
        state.report("Untrue", text);
    }
}

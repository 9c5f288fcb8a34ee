//! P8: judges waits at latches and for free locks.
//!
//! A wait must not succeed if the latch was closed, or the lock was held, during the whole wait.

use crate::generator::keys;
use crate::generator::program::Target;
use crate::generator::resource::{Side, Use};
use crate::generator::state::{Held, Op, OpKind, State};

/// Returns whether a wait that begins now finds a closed latch that no call in flight can open.
pub(crate) fn is_shut(state: &State, target: &Target, uses: &[Use]) -> bool {
    let (Target::Latch(_), [used]) = (target, uses) else {
        return false;
    };
    let managed = |op: &Op| {
        op.kind == OpKind::Manage && op.uses.iter().any(|other| other.resource == used.resource)
    };
    let seen = keys::snapshot(
        &state.engines[usize::from(used.resource.server)],
        used.resource,
    );
    seen.exists && !seen.foreign && !state.ops.values().any(managed)
}

pub(crate) fn passed(state: &mut State, op: &Op) {
    held_all_through(state, op);
    if op.closed_at_start {
        let text = format!(
            "P8: {} passed a latch that was closed during the whole wait",
            op.label
        );
        state.report("PassedArmed", text);
    }
}

/// P6: a count-down counts once. No other call changed the latch since it began, when the count was `before`.
pub(crate) fn counted(state: &mut State, op: &Op, before: i64, by: i64, left: i64) {
    let expires = state.tracking.idle.contains_key(&op.uses[0].resource) || state.tracking.armed;
    // The request of a frozen client may arrive late.
    let frozen = state
        .processes
        .iter()
        .any(|it| it.frozen.is_some() || it.trouble > op.started);
    if left != (before - by).max(0) && !(expires && left == 0) && !frozen {
        let text = format!("P6: {}: {left} are left of {before}", op.label);
        state.report("Miscounted", text);
    }
}

/// P8: a wait for a free lock does not succeed if a guard has held the lock since before the wait began.
fn held_all_through(state: &mut State, op: &Op) {
    let wants = |held: &Held| {
        let mut uses = held.uses.iter();
        uses.any(|used| used.resource == op.uses[0].resource && used.side == Side::Exclusive)
    };
    let mut held = state.held.iter();
    let holder = held.find(|(_, held)| {
        wants(held) && !held.tainted && held.since < op.started && held.acquired.is_held()
    });
    if let Some((id, _)) = holder.filter(|_| op.uses[0].side == Side::NoHold) {
        let text = format!("P8: {} reports a free lock; guard {id} holds it", op.label);
        state.report("PassedHeld", text);
    }
}

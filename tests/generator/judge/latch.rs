//! P8 for latches, and for waits until a lock is free: nobody passes one that is closed all through the wait.

use crate::keys;
use crate::program::What;
use crate::spot::{Side, Use};
use crate::state::{Held, Op, OpKind, State};

/// Returns whether a wait that begins now begins at a closed latch that nothing under way can open.
pub(crate) fn is_shut(state: &State, what: &What, uses: &[Use]) -> bool {
    let (What::Latch(_), [used]) = (what, uses) else {
        return false;
    };
    let managed =
        |op: &Op| op.kind == OpKind::Manage && op.uses.iter().any(|other| other.spot == used.spot);
    let seen = keys::look(&state.engines[usize::from(used.spot.server)], used.spot);
    seen.exists && !seen.foreign && !state.ops.values().any(managed)
}

pub(crate) fn passed(state: &mut State, op: &Op) {
    held_all_through(state, op);
    if op.shut_out {
        let text = format!(
            "P8: {} passed a latch that was closed all through its wait",
            op.label
        );
        state.report("PassedArmed", text);
    }
}

/// P8: nobody is told that a lock is free that one has held since before.
fn held_all_through(state: &mut State, op: &Op) {
    let wants = |held: &Held| {
        let mut uses = held.uses.iter();
        uses.any(|used| used.spot == op.uses[0].spot && used.side == Side::Alone)
    };
    let mut held = state.held.iter();
    let holder = held.find(|(_, held)| {
        wants(held) && !held.tainted && held.since < op.started && held.thing.is_held()
    });
    if let Some((id, _)) = holder.filter(|_| op.uses[0].side == Side::Absent) {
        let text = format!(
            "P8: {} was told that it is free; guard {id} has it",
            op.label
        );
        state.report("PassedHeld", text);
    }
}

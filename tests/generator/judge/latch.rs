//! P8 for latches: nobody passes one that is closed all through the wait.

use crate::keys;
use crate::program::What;
use crate::spot::Use;
use crate::state::{Op, OpKind, State};

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
    if op.shut_out {
        let text = format!(
            "P8: {} passed a latch that was closed all through its wait",
            op.label
        );
        state.report("PassedArmed", text);
    }
}

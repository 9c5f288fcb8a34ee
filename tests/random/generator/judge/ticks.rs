//! Judges jobs: each tick runs once, and the reported reasons of skipped runs are true.

use stanchion::Tick;

use crate::generator::program::Target;
use crate::generator::resource::Resource;
use crate::generator::state::{Op, OpKind, State};

fn requested_tick(target: &Target) -> Option<u64> {
    match target {
        Target::Job(_, Some(number), _) => {
            Some(crate::generator::roles::tick(*number)?.unix_millis())
        }
        _ => None,
    }
}

fn resource_of(op: &Op) -> Option<Resource> {
    op.uses.first().map(|used| used.resource)
}

/// Judges a run that has begun.
pub(crate) fn begun(state: &mut State, op: &Op, target: &Target, is_held: bool) {
    let (Some(tick), Some(resource)) = (requested_tick(target), resource_of(op)) else {
        return;
    };
    let ticks = state.tracking.ticks.entry(resource).or_default();
    // A call that was not polled for a while may return a run that is over, so its order does not count.
    let after = ticks.begun.iter().any(|other| *other > tick) && is_held;
    if !ticks.begun.insert(tick) || after {
        let text = format!("{} runs tick {tick} after {:?}", op.label, ticks.begun);
        state.report("TickTwice", text);
    }
}

/// P8: judges a job that did not run because `tick` has run.
pub(crate) fn ran(state: &mut State, op: &Op, target: &Target, tick: Tick) {
    let (Some(own), Some(resource), reported) =
        (requested_tick(target), resource_of(op), tick.unix_millis())
    else {
        return;
    };
    let known = state.tracking.ticks.get(&resource);
    let begun = known.is_some_and(|ticks| ticks.begun.contains(&reported));
    // The run may have been granted to a process that was killed, or to a call that was not polled.
    let had_faults = state.fault_states[usize::from(resource.server)].last > state.began;
    // A forced release may have ended the hold of the run before the run began.
    let forced = state
        .records
        .get(&resource)
        .is_some_and(|record| record.tainted.is_some());
    let unseen = forced || state.deaths || state.left || state.ever_parked || had_faults;
    let false_claim = if reported < own {
        Some("an earlier tick is no reason")
    } else if !begun && !unseen {
        Some("no call has run it")
    } else {
        None
    };
    if let Some(false_claim) = false_claim {
        let text = format!(
            "P8: {} reports that tick {reported} has run: {false_claim}",
            op.label
        );
        state.report("Untrue", text);
    }
}

/// P8: judges a job that did not run because of another run or a rest.
pub(crate) fn skipped(state: &mut State, op: &Op) {
    let Some(resource) = resource_of(op) else {
        return;
    };
    let here = |other: &Op| other.uses.iter().any(|used| used.resource == resource);
    let held = state
        .held
        .values()
        .any(|held| held.uses.iter().any(|used| used.resource == resource));
    let record = state.record(resource).clone();
    // Another call may have held the job until just now, or be about to receive its grant.
    let recently = record.last_change > op.started
        || record.last_change.elapsed() < crate::generator::span(1_500);
    let fault_free = state.fault_free_server(resource.server) > crate::generator::span(8_000);
    let others = state.ops.values().any(here);
    let detached_holds = state.tracking.detached_holds.iter();
    let detached = detached_holds
        .into_iter()
        .any(|detached_hold| detached_hold.used.resource == resource);
    if !held
        && !recently
        && !others
        && !detached
        && fault_free
        && tokio::time::Instant::now() >= record.dead_until
        && !state.ever_parked
        && !record.forgotten
        && op.kind != OpKind::Manage
    {
        let text = format!("P8: {} reports another run, and there is none", op.label);
        state.report("Untrue", text);
    }
}

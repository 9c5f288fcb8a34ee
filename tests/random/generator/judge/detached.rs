//! Judges holds without a guard, which are detached or rest after a crash, and the ends of holds.

use std::time::Duration;

use stanchion::Moment;
use stanchion::client::Clock as _;
use tokio::time::Instant;

use crate::generator::resource::{Family, Side};
use crate::generator::state::{Actor, Held, Op, State};
use crate::generator::tracking::Rest;

/// The margin by which a lease ends earlier at the client, and one millisecond of the engine's clock.
const GRAIN: Duration = Duration::from_millis(12);

/// The time at which the client's clock shows `moment`.
pub(crate) fn instant(state: &State, client: u8, moment: Moment) -> Option<Instant> {
    let process = state.processes.get(usize::from(client))?;
    let now = process.clock.now();
    Some(if moment > now {
        Instant::now() + moment.since(now)
    } else {
        Instant::now().checked_sub(now.since(moment))?
    })
}

/// Records the names that rest after the death of this client's process.
pub(crate) fn note_rests(state: &mut State, client: u8) {
    let rests = |held: &Held| {
        let rest = held.opts.rest.filter(|_| !held.opts.manual)?;
        let [used] = held.uses.as_slice() else {
            return None;
        };
        // A grant by message has a shorter lease until its first renewal.
        let settled = held.since.elapsed() > Duration::from_millis(1_500)
            && state.fault_free(&held.uses) > held.since.elapsed() + Duration::from_secs(3);
        let counts = used.resource.family == Family::Hash
            && used.client == client
            && used.side == Side::Exclusive
            && matches!(held.actor, Actor::Fresh(_))
            && !held.tainted
            && held.acquired.is_held();
        let until = instant(state, client, held.acquired.valid_until()?)?;
        let until = (until + crate::generator::span(rest)).checked_sub(GRAIN)?;
        (counts && settled).then_some(Rest {
            resource: used.resource,
            until,
        })
    };
    let rests: Vec<Rest> = state.held.values().filter_map(rests).collect();
    state.tracking.rests.extend(rests);
}

/// P1: a grant does not include a name that a ticket holds, or that rests after a crash.
pub(crate) fn granted(state: &mut State, op: &Op, actor: Actor) {
    let now = Instant::now();
    let mut broken = None;
    for used in op.uses.iter().filter(|used| used.side != Side::Quorum) {
        let resource = used.resource;
        let detached_holds = state.tracking.detached_holds.iter();
        let mut kept = detached_holds.filter(|detached_hold| {
            detached_hold.used.resource == resource
                && !detached_hold.uncertain
                && detached_hold.actor != actor
                && now < detached_hold.until
        });
        if let Some(detached_hold) = kept.next() {
            broken = Some((
                "Exclusion",
                format!(
                    "P1: {} was granted a lock that the ticket {} holds",
                    op.label, detached_hold.ticket
                ),
            ));
        }
        let mut rests = state.tracking.rests.iter();
        if let Some(rest) = rests.find(|rest| rest.resource == resource && now < rest.until) {
            let early = rest.until.duration_since(now);
            broken = Some((
                "Unrested",
                format!(
                    "{} was granted {early:?} before the end of the rest of a dead holder",
                    op.label
                ),
            ));
        }
    }
    if let Some((rule, text)) = broken.filter(|_| !op.was_parked) {
        state.report(rule, text);
    }
}

/// P1: a ticket is adopted once.
pub(crate) fn adopted(state: &mut State, detached_hold: usize) {
    let Some(detached_hold) = state.tracking.detached_holds.get_mut(detached_hold) else {
        return;
    };
    detached_hold.adopted += 1;
    if detached_hold.adopted > 1 {
        let text = format!("P1: the ticket {} was adopted twice", detached_hold.ticket);
        state.report("AdoptedTwice", text);
    }
}

/// P8: judges an adoption that reports its hold as gone. `good`: the hold was known to exist when the call began.
pub(crate) fn reported_gone(state: &mut State, op: &Op, detached_hold: usize, good: bool) {
    let Some(detached_hold) = state.tracking.detached_holds.get(detached_hold) else {
        return;
    };
    let there = detached_hold.used.resource == op.uses[0].resource;
    // A kill or a forced release may have happened after the call began.
    let undisturbed = state.fault_free(&op.uses) > op.started.elapsed() + Duration::from_secs(3);
    if good && there && undisturbed && Instant::now() < detached_hold.until {
        let text = format!(
            "P8: {} reports that the hold is gone, and it is not",
            op.label
        );
        state.report("Untrue", text);
    }
}

fn is_quorum(held: &Held) -> bool {
    held.uses.iter().any(|used| used.side == Side::Quorum)
}

/// P10: a renewal never shortens a hold, so the end of a guard only grows.
pub(crate) fn check(state: &mut State) {
    let mut broken = None;
    for (id, held) in state
        .held
        .iter()
        .filter(|(_, held)| held.acquired.is_held())
    {
        // A quorum is valid as long as enough of its nodes are: for less time when the client of a node ends.
        let Some(valid) = held.acquired.valid_until().filter(|_| !is_quorum(held)) else {
            continue;
        };
        let last = state.tracking.valid.entry(*id).or_insert(valid);
        if valid < *last {
            broken = Some(format!(
                "P10: the end of guard {id} ({:?}) moved back by {:?}",
                held.target,
                last.since(valid)
            ));
        }
        *last = (*last).max(valid);
    }
    let held = &state.held;
    state.tracking.valid.retain(|id, _| held.contains_key(id));
    if let Some(text) = broken {
        state.report("Shrunk", text);
    }
}

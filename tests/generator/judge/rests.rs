//! Holds on the server without a guard here: detached ones, and those that the dead leave for a while.

use std::time::Duration;

use stanchion::{Clock as _, Moment};
use tokio::time::Instant;

use crate::books::Rest;
use crate::spot::{Family, Side};
use crate::state::{Actor, Held, Op, State};

/// Promises end early by the margin of a lease, and a millisecond is the engine's grain.
const GRAIN: Duration = Duration::from_millis(12);

/// When a client's clock shows `moment`.
pub(crate) fn instant(state: &State, client: u8, moment: Moment) -> Option<Instant> {
    let process = state.processes.get(usize::from(client))?;
    let now = process.clock.now();
    Some(if moment > now {
        Instant::now() + moment.since(now)
    } else {
        Instant::now().checked_sub(now.since(moment))?
    })
}

/// The process of `client` is about to die: what asked for it stays taken.
pub(crate) fn note(state: &mut State, client: u8) {
    let rests = |held: &Held| {
        let rest = held.ask.rest.filter(|_| !held.ask.manual)?;
        let [used] = held.uses.as_slice() else {
            return None;
        };
        // A grant by message is for less, until it has been renewed.
        let settled = held.since.elapsed() > Duration::from_millis(1_500)
            && state.calm(&held.uses) > held.since.elapsed() + Duration::from_secs(3);
        let counts = used.spot.family == Family::Hash
            && used.client == client
            && used.side == Side::Alone
            && matches!(held.actor, Actor::Fresh(_))
            && !held.tainted
            && held.thing.is_held();
        let until = instant(state, client, held.thing.valid_until()?)?;
        let until = (until + crate::span(rest)).checked_sub(GRAIN)?;
        (counts && settled).then_some(Rest {
            spot: used.spot,
            until,
        })
    };
    let rests: Vec<Rest> = state.held.values().filter_map(rests).collect();
    state.books.rests.extend(rests);
}

/// P1: judges a grant of a name that a ticket holds, or that rests after a death.
pub(crate) fn granted(state: &mut State, op: &Op, actor: Actor) {
    let now = Instant::now();
    let mut broken = None;
    for used in op.uses.iter().filter(|used| used.side != Side::Quorum) {
        let spot = used.spot;
        let slips = state.books.slips.iter();
        let mut kept = slips.filter(|slip| {
            slip.used.spot == spot && !slip.loose && slip.actor != actor && now < slip.until
        });
        if let Some(slip) = kept.next() {
            broken = Some((
                "Exclusion",
                format!(
                    "P1: {} was granted what the ticket {} holds",
                    op.label, slip.ticket
                ),
            ));
        }
        let mut rests = state.books.rests.iter();
        if let Some(rest) = rests.find(|rest| rest.spot == spot && now < rest.until) {
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

/// A ticket was adopted.
pub(crate) fn adopted(state: &mut State, slip: usize) {
    let Some(slip) = state.books.slips.get_mut(slip) else {
        return;
    };
    slip.adopted += 1;
    if slip.adopted > 1 {
        let text = format!("P1: the ticket {} was adopted twice", slip.ticket);
        state.report("AdoptedTwice", text);
    }
}

/// P8: a ticket whose hold has ended, it says. `good`: nothing else was known of it when the call began.
pub(crate) fn gone(state: &mut State, op: &Op, slip: usize, good: bool) {
    let Some(slip) = state.books.slips.get(slip) else {
        return;
    };
    let there = slip.used.spot == op.uses[0].spot;
    // A kill or a force may have come after the beginning.
    let fair = state.calm(&op.uses) > op.started.elapsed() + Duration::from_secs(3);
    if good && there && fair && Instant::now() < slip.until {
        let text = format!("P8: {} is told that it is gone, and it is not", op.label);
        state.report("Untrue", text);
    }
}

fn is_quorum(held: &Held) -> bool {
    held.uses.iter().any(|used| used.side == Side::Quorum)
}

/// A renewal never shortens: the end that a guard shows only grows.
pub(crate) fn look(state: &mut State) {
    let mut broken = None;
    for (id, held) in state.held.iter().filter(|(_, held)| held.thing.is_held()) {
        // A quorum is valid as long as enough of its nodes are: fewer when one of its clients goes.
        let Some(valid) = held.thing.valid_until().filter(|_| !is_quorum(held)) else {
            continue;
        };
        let last = state.books.valid.entry(*id).or_insert(valid);
        if valid < *last {
            broken = Some(format!(
                "P10: guard {id} ({:?}) is valid for {:?} less than it was",
                held.what,
                last.since(valid)
            ));
        }
        *last = (*last).max(valid);
    }
    let held = &state.held;
    state.books.valid.retain(|id, _| held.contains_key(id));
    if let Some(text) = broken {
        state.report("Shrunk", text);
    }
}

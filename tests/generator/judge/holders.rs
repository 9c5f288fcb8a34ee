//! P1, P2, P5: who holds, with which token, and whether the server knows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::keys::{self, Seen};
use crate::program::What;
use crate::spot::{Family, Side, Spot, Tokens, Use};
use crate::state::{Actor, Held, Op, OpKind, State};
use crate::things::Thing;

pub(crate) fn look(state: &mut State, seen: &BTreeMap<Spot, Seen>) {
    exclusion(state);
    ghosts(state, seen);
    losses(state);
}

/// A guard that its holder may count on now.
fn counts(held: &Held) -> bool {
    !held.tainted && held.thing.is_held()
}

fn sides(state: &State) -> BTreeMap<Spot, Vec<(u64, &Held, Side)>> {
    let mut sides: BTreeMap<Spot, Vec<_>> = BTreeMap::new();
    for (id, held) in state.held.iter().filter(|(_, held)| counts(held)) {
        for used in &held.uses {
            let there = sides.entry(used.spot).or_default();
            there.push((*id, held, used.side));
        }
    }
    sides
}

/// P1: holders that exclude each other.
pub(crate) fn exclusion(state: &mut State) {
    let mut broken = None;
    let sides = sides(state);
    for (spot, there) in &sides {
        for (n, (id, held, side)) in there.iter().enumerate() {
            for (other_id, other, other_side) in &there[..n] {
                let same = held.actor == other.actor;
                let alone = matches!(
                    (side, other_side),
                    (Side::Alone, Side::Alone | Side::Together) | (Side::Together, Side::Alone)
                );
                if spot.family == Family::Hash && alone && !same {
                    broken = Some(format!(
                        "P1: guards {other_id} ({:?}) and {id} ({:?}) hold {spot:?} at the same time",
                        other.what, held.what
                    ));
                }
            }
        }
        let permits = there.iter().map(|(_, _, side)| match side {
            Side::Of(n) => i64::from(*n),
            _ => 0,
        });
        let (used, place) = (permits.sum::<i64>(), state.places.get(spot));
        if let Some(place) = place
            && let Some(total) = place.total
            && matches!(spot.family, Family::Permits | Family::Leased)
            && used > total
            && !place.reduced
        {
            broken = Some(format!(
                "P1: {used} permits of {total} are held at {spot:?}"
            ));
        }
    }
    let red: Vec<_> = state
        .held
        .iter()
        .filter(|(_, held)| matches!(&*held.thing, Thing::Red(_)) && counts(held))
        .collect();
    for (n, (id, held)) in red.iter().enumerate() {
        if red[..n].iter().any(|(_, other)| other.what == held.what) {
            broken = Some(format!("P1: guard {id} and another hold {:?}", held.what));
        }
    }
    if let Some(text) = broken {
        state.report("Exclusion", text);
    }
}

/// P1, P8: whoever says "held" is known to the server.
fn ghosts(state: &mut State, seen: &BTreeMap<Spot, Seen>) {
    let mut broken = None;
    for (id, held) in state.held.iter().filter(|(_, held)| counts(held)) {
        for used in &held.uses {
            let Some(seen) = seen.get(&used.spot) else {
                continue;
            };
            let known = match (used.spot.family, &*held.thing) {
                (Family::Hash, _) if used.side != Side::Quorum => {
                    is_holder(state, held, used, seen)
                }
                (Family::Permits, Thing::Permit(permit)) => seen.has(permit.owner().as_str()),
                _ => true,
            };
            // A call about it may have done its work, and not told yet.
            let managed = state.ops.values().any(|op| {
                op.kind == OpKind::Manage && op.uses.iter().any(|other| other.spot == used.spot)
            });
            if !known && !managed {
                broken = Some(format!(
                    "P1: guard {id} ({:?}) says that it is held, and {:?} is not its on the server: {:?}",
                    held.what, used.spot, seen.holders
                ));
            }
        }
    }
    if let Some(text) = broken {
        state.report("Ghost", text);
    }
}

fn is_holder(state: &State, held: &Held, used: &Use, seen: &Seen) -> bool {
    match held.actor {
        // Through whichever client its owner came first.
        Actor::Shared(_) => state.processes.iter().any(|process| seen.has(&process.id)),
        Actor::Fresh(_) => state
            .processes
            .get(usize::from(used.client))
            .is_some_and(|process| seen.has(&process.id)),
    }
}

/// P10: nothing is lost in fair weather. P5 is judged where work runs.
fn losses(state: &mut State) {
    let now = Instant::now();
    let over: Vec<u64> = state
        .held
        .iter()
        .filter(|(_, held)| held.over.is_none() && !held.thing.is_held())
        .map(|(id, _)| *id)
        .collect();
    for id in over {
        let Some(held) = state.held.get_mut(&id) else {
            continue;
        };
        held.over = Some(now);
        let (uses, what) = (held.uses.clone(), held.what.clone());
        // A shared owner's hold has the terms of whoever came first.
        let renewed = !held.tainted
            && !held.ask.manual
            && held.ask.max_hold.is_none()
            && matches!(held.actor, Actor::Fresh(_));
        let age = now.duration_since(held.since);
        state.tell(format!("guard {id} ({what:?}) is lost"));
        let closing = |used: &Use| {
            state
                .processes
                .get(usize::from(used.client))
                .is_none_or(|process| process.closing || process.killed)
        };
        let closing = uses.iter().any(closing);
        let calm = state.calm(&uses) >= age.min(Duration::from_secs(60)) + Duration::from_secs(12);
        if renewed && !closing && calm {
            let text = format!("P10: guard {id} ({what:?}) was lost in fair weather");
            state.report("LostEarly", text);
        }
    }
}

/// P2, and P1 at the moment of a grant.
pub(crate) fn granted(state: &mut State, id: u64, op: &Op) {
    exclusion(state);
    let Some(held) = state.held.get(&id) else {
        return;
    };
    let joins = state.held.iter().any(|(other, it)| {
        *other != id && it.actor == held.actor && it.uses.iter().any(|used| op.uses.contains(used))
    });
    let other_policy = matches!(held.actor, Actor::Shared(_));
    let names: BTreeSet<_> = held.uses.iter().map(|used| used.spot.name).collect();
    // A joint guard is asked by name.
    if names.len() != held.uses.len() || matches!(held.what, What::Red(_)) {
        return;
    }
    let (what, uses, parked) = (held.what.clone(), held.uses.clone(), op.was_parked);
    let thing = std::sync::Arc::clone(&held.thing);
    let held_by = thing.owner();
    for used in uses {
        if used.spot.family != Family::Hash || used.side != Side::Alone {
            continue;
        }
        let token = thing.token(used.spot.name);
        if !other_policy && token.is_some() != (used.tokens != Tokens::None) {
            let text = format!(
                "P2: {what:?} asked for {:?} of {:?} and shows {token:?}",
                used.tokens, used.spot
            );
            state.report("TokenPolicy", text);
        }
        let stepped = state.skies[usize::from(used.spot.server)].stepped;
        let source = u8::from(used.tokens == Tokens::OfName);
        let last = state.place(used.spot).tokens.get(&source).copied();
        // A hold that force ended before its answer came: the next one may have been told first. Tokens are in the order of grants.
        let engine = &state.engines[usize::from(used.spot.server)];
        let there = keys::look(engine, used.spot).holders;
        let ended = held_by
            .as_ref()
            .is_some_and(|it| !there.iter().any(|(who, _)| who == it));
        let place = state.place(used.spot);
        if let Some(token) = token
            && !ended
            && !joins
            && !other_policy
            && !parked
        {
            place.tokens.insert(source, token);
            if last.is_some_and(|last| token <= last) && !stepped {
                let text = format!("P2: token {token} of {:?} after {last:?}", used.spot);
                state.report("Token", text);
            }
        }
    }
}

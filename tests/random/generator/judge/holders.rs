//! P1, P2, P5, P10: judges guards against each other and against the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::generator::guards::{Acquired, LEASE};
use crate::generator::keys::{self, Snapshot};
use crate::generator::planted::Planted;
use crate::generator::program::Target;
use crate::generator::resource::{Family, Resource, Side, Tokens, Use};
use crate::generator::state::{Actor, Held, Op, OpKind, State};

pub(crate) fn check(state: &mut State, seen: &BTreeMap<Resource, Snapshot>) {
    exclusion(state);
    ghosts(state, seen);
    losses(state);
}

/// Returns whether the holder may rely on the guard now.
fn counts(state: &State, held: &Held) -> bool {
    let believed = || {
        let lease = crate::generator::span(held.opts.lease.unwrap_or(LEASE));
        held.since.elapsed() < lease - (lease / 100).max(Duration::from_millis(2))
    };
    let planted = state.planted == Planted::LeaseFromReply && held.opts.max_hold.is_none();
    !held.tainted && (held.acquired.is_held() || planted && believed())
}

fn sides(state: &State) -> BTreeMap<Resource, Vec<(u64, &Held, Side)>> {
    let mut sides: BTreeMap<Resource, Vec<_>> = BTreeMap::new();
    for (id, held) in state.held.iter().filter(|(_, held)| counts(state, held)) {
        for used in &held.uses {
            let there = sides.entry(used.resource).or_default();
            there.push((*id, held, used.side));
        }
    }
    sides
}

/// P1: two holders that exclude each other do not hold at the same time.
pub(crate) fn exclusion(state: &mut State) {
    let mut broken = None;
    let sides = sides(state);
    for (resource, there) in &sides {
        for (n, (id, held, side)) in there.iter().enumerate() {
            for (other_id, other, other_side) in &there[..n] {
                let same = held.actor == other.actor;
                let alone = matches!(
                    (side, other_side),
                    (Side::Exclusive, Side::Exclusive | Side::Shared)
                        | (Side::Shared, Side::Exclusive)
                );
                if resource.family == Family::Hash && alone && !same {
                    broken = Some(format!(
                        "P1: guards {other_id} ({:?}) and {id} ({:?}) hold {resource:?} at the same time",
                        other.target, held.target
                    ));
                }
            }
        }
        let permits = there.iter().map(|(_, _, side)| match side {
            Side::Count(n) => i64::from(*n),
            _ => 0,
        });
        let (used, record) = (permits.sum::<i64>(), state.records.get(resource));
        if let Some(record) = record
            && let Some(total) = record.total
            && matches!(resource.family, Family::Permits | Family::Leased)
            && used > total
            && !record.reduced
        {
            broken = Some(format!(
                "P1: {used} permits of {total} are held at {resource:?}"
            ));
        }
    }
    let red: Vec<_> = state
        .held
        .iter()
        .filter(|(_, held)| matches!(&*held.acquired, Acquired::Red(_)) && counts(state, held))
        .collect();
    for (n, (id, held)) in red.iter().enumerate() {
        if red[..n]
            .iter()
            .any(|(_, other)| other.target == held.target)
        {
            broken = Some(format!("P1: guard {id} and another hold {:?}", held.target));
        }
    }
    if let Some(text) = broken {
        state.report("Exclusion", text);
    }
}

/// P1, P8: a guard that reports "held" is a holder on the server.
fn ghosts(state: &mut State, seen: &BTreeMap<Resource, Snapshot>) {
    let mut broken = None;
    for (id, held) in state.held.iter().filter(|(_, held)| counts(state, held)) {
        for used in &held.uses {
            let Some(seen) = seen.get(&used.resource) else {
                continue;
            };
            let known = match (used.resource.family, &*held.acquired) {
                (Family::Hash, _) if used.side != Side::Quorum => {
                    is_holder(state, held, used, seen)
                }
                (Family::Permits, Acquired::Permit(permit)) => seen.has(permit.owner().as_str()),
                _ => true,
            };
            // A management call may have had its effect before its reply arrived.
            let managed = state.ops.values().any(|op| {
                op.kind == OpKind::Manage
                    && op.uses.iter().any(|other| other.resource == used.resource)
            });
            if !known && !managed {
                broken = Some(format!(
                    "P1: guard {id} ({:?}) reports that it is held, and does not hold {:?} on the server: {:?}",
                    held.target, used.resource, seen.holders
                ));
            }
        }
    }
    if let Some(text) = broken {
        state.report("Ghost", text);
    }
}

fn is_holder(state: &State, held: &Held, used: &Use, seen: &Snapshot) -> bool {
    match held.actor {
        // The server stores the client that used the owner first.
        Actor::Shared(_) => state.processes.iter().any(|process| seen.has(&process.id)),
        Actor::Fresh(_) => state
            .processes
            .get(usize::from(used.client))
            .is_some_and(|process| seen.has(&process.id)),
    }
}

/// P10: no hold is lost without a fault. P5 is judged by the work under a guard.
fn losses(state: &mut State) {
    let now = Instant::now();
    let over: Vec<u64> = state
        .held
        .iter()
        .filter(|(_, held)| held.over.is_none() && !held.acquired.is_held())
        .map(|(id, _)| *id)
        .collect();
    for id in over {
        let Some(held) = state.held.get_mut(&id) else {
            continue;
        };
        held.over = Some(now);
        let (uses, target) = (held.uses.clone(), held.target.clone());
        // The hold of a shared owner has the options of the call that acquired it first.
        let renewed = !held.tainted
            && !held.opts.manual
            && held.opts.max_hold.is_none()
            && matches!(held.actor, Actor::Fresh(_));
        let age = now.duration_since(held.since);
        state.log(format!("guard {id} ({target:?}) is lost"));
        let closing = |used: &Use| {
            state
                .processes
                .get(usize::from(used.client))
                .is_none_or(|process| process.closing || process.killed)
        };
        let closing = uses.iter().any(closing);
        let fault_free =
            state.fault_free(&uses) >= age.min(Duration::from_secs(60)) + Duration::from_secs(12);
        if renewed && !closing && fault_free {
            let text = format!("P10: guard {id} ({target:?}) was lost without a fault");
            state.report("LostEarly", text);
        }
    }
}

/// P2: judges the tokens of a grant. P1: judges exclusion at the moment of the grant.
pub(crate) fn granted(state: &mut State, id: u64, op: &Op) {
    exclusion(state);
    let Some(held) = state.held.get(&id) else {
        return;
    };
    let joins = state.held.iter().any(|(other, it)| {
        *other != id && it.actor == held.actor && it.uses.iter().any(|used| op.uses.contains(used))
    });
    let other_policy = matches!(held.actor, Actor::Shared(_));
    let names: BTreeSet<_> = held.uses.iter().map(|used| used.resource.name).collect();
    // The token of a joint guard is looked up by name, so each name must be unique.
    if names.len() != held.uses.len() || matches!(held.target, Target::Red(_)) {
        return;
    }
    let (target, uses, parked) = (held.target.clone(), held.uses.clone(), op.was_parked);
    let acquired = std::sync::Arc::clone(&held.acquired);
    let held_by = acquired.owner();
    for used in uses {
        if used.resource.family != Family::Hash || used.side != Side::Exclusive {
            continue;
        }
        let token = acquired.token(used.resource.name);
        if !other_policy && token.is_some() != (used.tokens != Tokens::None) {
            let text = format!(
                "P2: {target:?} has the token policy {:?} at {:?} and shows {token:?}",
                used.tokens, used.resource
            );
            state.report("TokenPolicy", text);
        }
        let stepped = state.fault_states[usize::from(used.resource.server)].stepped;
        let source = u8::from(used.tokens == Tokens::OfName);
        let last = state.record(used.resource).tokens.get(&source).copied();
        // A forced release may have ended the hold before its reply arrived. Then the next grant may be recorded first, with a greater
        // token.
        let engine = &state.engines[usize::from(used.resource.server)];
        let there = keys::snapshot(engine, used.resource).holders;
        let ended = held_by
            .as_ref()
            .is_some_and(|it| !there.iter().any(|(owner, _)| owner == it));
        let record = state.record(used.resource);
        if let Some(token) = token
            && !ended
            && !joins
            && !other_policy
            && !parked
        {
            record.tokens.insert(source, token);
            if last.is_some_and(|last| token <= last) && !stepped {
                let text = format!("P2: token {token} of {:?} after {last:?}", used.resource);
                state.report("Token", text);
            }
        }
    }
}

//! Judges deadlock detection: a call that reports a deadlock was in one, and one call of each deadlock gives up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::generator::keys;
use crate::generator::resource::{Resource, Side};
use crate::generator::state::{Actor, Op, OpKind, State};

/// A call gives up after 17 s at the earliest, usually within 30 s. If the first call does not, the next one does 35 s later.
const BOUND: Duration = Duration::from_secs(45);

fn actor_of(op: &Op) -> Option<Actor> {
    op.opts.owner.map(Actor::Shared)
}

fn waits(op: &Op) -> bool {
    op.kind == OpKind::Wait && op.uses.iter().all(|used| used.side != Side::NoHold)
}

/// The actors for which each actor waits: holders, and with `queues` other waiters.
fn edges(state: &State, queues: bool) -> BTreeMap<Actor, BTreeSet<Actor>> {
    let mut edges: BTreeMap<Actor, BTreeSet<Actor>> = BTreeMap::new();
    for op in state.ops.values().filter(|op| waits(op)) {
        let Some(actor) = actor_of(op) else { continue };
        let resources: BTreeSet<Resource> = op.uses.iter().map(|used| used.resource).collect();
        let there = edges.entry(actor).or_default();
        for held in state.held.values().filter(|held| held.acquired.is_held()) {
            if held
                .uses
                .iter()
                .any(|used| resources.contains(&used.resource))
            {
                there.insert(held.actor);
            }
        }
        for other in state.ops.values().filter(|other| queues && waits(other)) {
            if other
                .uses
                .iter()
                .any(|used| resources.contains(&used.resource))
            {
                there.extend(actor_of(other));
            }
        }
        there.remove(&actor);
    }
    edges
}

/// All actors that can be reached from `from`. In a cycle `from` is one of them.
fn reached(edges: &BTreeMap<Actor, BTreeSet<Actor>>, from: Actor) -> BTreeSet<Actor> {
    let mut all = BTreeSet::new();
    let mut next = vec![from];
    while let Some(actor) = next.pop() {
        for other in edges.get(&actor).into_iter().flatten() {
            if all.insert(*other) {
                next.push(*other);
            }
        }
    }
    all
}

/// P8: judges a call that gave up. The call is no longer in `state.ops`.
pub(crate) fn given_up(state: &mut State, op: &Op) {
    let Some(actor) = actor_of(op) else { return };
    let mut with = edges(state, true);
    let resources: BTreeSet<Resource> = op.uses.iter().map(|used| used.resource).collect();
    let held = state.held.values();
    let holders = held.filter(|held| {
        held.uses
            .iter()
            .any(|used| resources.contains(&used.resource))
    });
    let mut there: BTreeSet<Actor> = holders.map(|held| held.actor).collect();
    let ahead = state.ops.values().filter(|other| waits(other));
    let ahead = ahead.filter(|it| {
        it.uses
            .iter()
            .any(|used| resources.contains(&used.resource))
    });
    there.extend(ahead.filter_map(actor_of));
    there.remove(&actor);
    with.entry(actor).or_default().extend(there);
    if !reached(&with, actor).contains(&actor) && state.fault_free(&op.uses) > op.started.elapsed()
    {
        let text = format!("P8: {} reports a deadlock that does not exist", op.label);
        state.report("Untrue", text);
    }
}

/// P4: actors do not wait for each other indefinitely if their calls fail in a deadlock.
pub(crate) fn check(state: &mut State) {
    let edges = edges(state, false);
    let mut cycles: BTreeSet<BTreeSet<Actor>> = BTreeSet::new();
    for actor in edges.keys() {
        let mine = reached(&edges, *actor);
        if mine.contains(actor) {
            let back = |other: &&Actor| reached(&edges, **other).contains(actor);
            cycles.insert(mine.iter().filter(back).copied().collect());
        }
    }
    let now = Instant::now();
    let may_fail = |op: &Op| {
        waits(op)
            && op.opts.fails
            && op.opts.owner.is_some()
            && op.uses.len() == 1
            && super::waiting::is_live(state, op)
    };
    let all_may_fail = |cycle: &BTreeSet<Actor>| {
        cycle.iter().all(|actor| {
            let mut own = state.ops.values().filter(|op| actor_of(op) == Some(*actor));
            let own_waits = own.clone().filter(|op| waits(op)).count();
            own_waits == 1 && own.all(|op| !waits(op) || may_fail(op))
        })
    };
    // Documented: an actor's wait is visible only if the actor waits through the client through which it holds.
    let is_visible = |cycle: &BTreeSet<Actor>| {
        let ours = |actor: Actor| cycle.contains(&actor);
        let mut waits = state
            .ops
            .values()
            .filter(|op| waits(op) && actor_of(op).is_some_and(ours));
        waits.all(|op| {
            let own = &state.processes[usize::from(op.client)].id;
            let held = state
                .held
                .values()
                .filter(|held| Some(held.actor) == actor_of(op));
            let mut resources = held.flat_map(|held| &held.uses).map(|used| used.resource);
            resources.all(|resource| {
                keys::snapshot(&state.engines[usize::from(resource.server)], resource).has(own)
            })
        })
    };
    let cycles = cycles
        .into_iter()
        .filter(|it| all_may_fail(it) && is_visible(it));
    let cycles: Vec<BTreeSet<Actor>> = cycles.collect();
    let quiet = state.fault_states.iter().all(|fault_state| {
        fault_state.last <= state.began && fault_state.messages_lost <= state.began
    });
    let quiet = quiet && !state.deaths && !state.left && !state.time_jumped;
    let mut broken = None;
    let mut deadlocked = BTreeMap::new();
    for cycle in cycles {
        let since = state
            .tracking
            .deadlocked
            .get(&cycle)
            .copied()
            .unwrap_or(now);
        if quiet && since.elapsed() > BOUND {
            broken = Some(format!(
                "{cycle:?} have waited for each other for {:?}",
                since.elapsed()
            ));
        }
        deadlocked.insert(cycle, since);
    }
    state.tracking.deadlocked = deadlocked;
    if let Some(text) = broken {
        state.report("Deadlocked", text);
    }
}

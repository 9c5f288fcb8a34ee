//! Deadlocks: who gives up was in one, and of those who would give up somebody does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::keys;
use crate::spot::{Side, Spot};
use crate::state::{Actor, Op, OpKind, State};

/// One gives up after 17 s at the earliest, usually within 30 s; the next one 35 s later, if the first does not.
const BOUND: Duration = Duration::from_secs(45);

fn actor_of(op: &Op) -> Option<Actor> {
    op.ask.owner.map(Actor::Shared)
}

fn waits(op: &Op) -> bool {
    op.kind == OpKind::Wait && op.uses.iter().all(|used| used.side != Side::Absent)
}

/// Whom each actor waits for: holders, and in `queues` those before it.
fn edges(state: &State, queues: bool) -> BTreeMap<Actor, BTreeSet<Actor>> {
    let mut edges: BTreeMap<Actor, BTreeSet<Actor>> = BTreeMap::new();
    for op in state.ops.values().filter(|op| waits(op)) {
        let Some(actor) = actor_of(op) else { continue };
        let spots: BTreeSet<Spot> = op.uses.iter().map(|used| used.spot).collect();
        let there = edges.entry(actor).or_default();
        for held in state.held.values().filter(|held| held.thing.is_held()) {
            if held.uses.iter().any(|used| spots.contains(&used.spot)) {
                there.insert(held.actor);
            }
        }
        for other in state.ops.values().filter(|other| queues && waits(other)) {
            if other.uses.iter().any(|used| spots.contains(&used.spot)) {
                there.extend(actor_of(other));
            }
        }
        there.remove(&actor);
    }
    edges
}

/// Those who are reached from `from`, which is among them if it waits for itself in the end.
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

/// P8: a call gave up. Its own books are closed already: `op` is it.
pub(crate) fn given_up(state: &mut State, op: &Op) {
    let Some(actor) = actor_of(op) else { return };
    let mut with = edges(state, true);
    let spots: BTreeSet<Spot> = op.uses.iter().map(|used| used.spot).collect();
    let held = state.held.values();
    let holders = held.filter(|held| held.uses.iter().any(|used| spots.contains(&used.spot)));
    let mut there: BTreeSet<Actor> = holders.map(|held| held.actor).collect();
    let ahead = state.ops.values().filter(|other| waits(other));
    let ahead = ahead.filter(|it| it.uses.iter().any(|used| spots.contains(&used.spot)));
    there.extend(ahead.filter_map(actor_of));
    there.remove(&actor);
    with.entry(actor).or_default().extend(there);
    if !reached(&with, actor).contains(&actor) && state.calm(&op.uses) > op.started.elapsed() {
        let text = format!("P8: {} gave up in a deadlock that there is not", op.label);
        state.report("Untrue", text);
    }
}

/// P4: those who wait for each other for long, and asked to be told.
pub(crate) fn look(state: &mut State) {
    let edges = edges(state, false);
    let mut knots: BTreeSet<BTreeSet<Actor>> = BTreeSet::new();
    for actor in edges.keys() {
        let mine = reached(&edges, *actor);
        if mine.contains(actor) {
            let back = |other: &&Actor| reached(&edges, **other).contains(actor);
            knots.insert(mine.iter().filter(back).copied().collect());
        }
    }
    let now = Instant::now();
    let asks = |op: &Op| {
        waits(op)
            && op.ask.fails
            && op.ask.owner.is_some()
            && op.uses.len() == 1
            && super::waiting::is_live(state, op)
    };
    let all_ask = |knot: &BTreeSet<Actor>| {
        knot.iter().all(|actor| {
            let mut own = state.ops.values().filter(|op| actor_of(op) == Some(*actor));
            let own_waits = own.clone().filter(|op| waits(op)).count();
            own_waits == 1 && own.all(|op| !waits(op) || asks(op))
        })
    };
    // Said so in the book: what an actor waits for is looked for with the client through which it holds.
    let is_seen = |knot: &BTreeSet<Actor>| {
        let ours = |actor: Actor| knot.contains(&actor);
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
            let mut spots = held.flat_map(|held| &held.uses).map(|used| used.spot);
            spots.all(|spot| keys::look(&state.engines[usize::from(spot.server)], spot).has(own))
        })
    };
    let knots = knots.into_iter().filter(|it| all_ask(it) && is_seen(it));
    let knots: Vec<BTreeSet<Actor>> = knots.collect();
    let quiet = state
        .skies
        .iter()
        .all(|sky| sky.last <= state.began && sky.deaf <= state.began);
    let quiet = quiet && !state.deaths && !state.left && !state.leapt;
    let mut broken = None;
    let mut tangled = BTreeMap::new();
    for knot in knots {
        let since = state.books.tangled.get(&knot).copied().unwrap_or(now);
        if quiet && since.elapsed() > BOUND {
            broken = Some(format!(
                "{knot:?} wait for each other for {:?}",
                since.elapsed()
            ));
        }
        tangled.insert(knot, since);
    }
    state.books.tangled = tangled;
    if let Some(text) = broken {
        state.report("Deadlocked", text);
    }
}

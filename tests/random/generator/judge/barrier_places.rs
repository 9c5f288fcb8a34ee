//! Judges the places of barriers on the servers against calls and guards, and the idle expiry of latches.

use std::time::Duration;

use tokio::time::Instant;

use super::barriers::{POLL, SETTLED, here, rounds};
use crate::generator::calls;
use crate::generator::keys::{self, BarrierState};
use crate::generator::program::WakeMode;
use crate::generator::resource::{Family, Resource, Use};
use crate::generator::state::{Held, Op, OpKind, State};
use crate::generator::tracking::{Departure, RoundResult, Rounds};

/// The interval between two checks of a barrier that has not changed.
const PAUSE: Duration = Duration::from_millis(700);

fn barrier_state(state: &State, resource: Resource) -> Option<BarrierState> {
    keys::barrier_state(&state.engines[usize::from(resource.server)], resource)
}

/// Checks all barriers, and all latches with an idle expiry.
pub(crate) fn check(state: &mut State) {
    let resources: Vec<Resource> = state.tracking.rounds.keys().copied().collect();
    for resource in resources {
        // Queries to the servers take most of the time of a run.
        let last_change = state.record(resource).last_change.elapsed() < SETTLED;
        let checked = rounds(state, resource).checked;
        if !last_change && checked.is_some_and(|at| at.elapsed() < PAUSE) {
            continue;
        }
        rounds(state, resource).checked = Some(Instant::now());
        all_reported(state, resource);
        if let Some(barrier_state) = barrier_state(state, resource) {
            unbroken(state, resource, &barrier_state);
            adds_up(state, resource, &barrier_state);
        }
    }
    idle(state);
}

/// The number of the present round, or 0 if there is no barrier.
pub(super) fn present(state: &State, resource: Resource) -> u64 {
    barrier_state(state, resource).map_or(0, |barrier_state| barrier_state.present)
}

/// Returns the round that breaks because this call has ended and had a place in it.
pub(super) fn breaks(state: &State, op: &Op, resource: Resource) -> Option<u64> {
    let fault_free = state.fault_free(&op.uses) > op.started.elapsed() + SETTLED;
    let settled = op.started.elapsed() > SETTLED && !op.was_parked && fault_free;
    if resource.family != Family::Barrier || !settled {
        return None;
    }
    let barrier_state = barrier_state(state, resource)?;
    let share = share(state, resource, op.client, &barrier_state);
    // Otherwise the round of the call is over already.
    let counts = share.places == share.waits + 1;
    (barrier_state.breaks && counts).then_some(barrier_state.present)
}

/// A party that leaves breaks its round within one round trip.
fn unbroken(state: &mut State, resource: Resource, barrier_state: &BarrierState) {
    let fault_free = state.fault_free_server(resource.server);
    let processes = &state.processes;
    let Some(rounds) = state.tracking.rounds.get_mut(&resource) else {
        return;
    };
    rounds.breaking.retain(|(at, client, round)| {
        let process = &processes[usize::from(*client)];
        let alive = !process.killed && !process.closing;
        alive && *round == barrier_state.present && fault_free > at.elapsed() + SETTLED
    });
    let old = |(at, ..): &&(Instant, u8, u64)| at.elapsed() > SETTLED;
    if let Some((_, client, round)) = rounds.breaking.iter().find(old).copied() {
        let text = format!(
            "client {client} left round {round} of {resource:?}, which has not ended: {barrier_state:?}"
        );
        state.report("Unbroken", text);
    }
}

/// All parties of a complete round report it, unless a party has left. Fewer reports mean that the round had too few parties.
fn all_reported(state: &mut State, resource: Resource) {
    let fault_free = state.fault_free_server(resource.server);
    let parked = |op: &Op| op.was_parked && here(&op.uses, resource);
    if fault_free < POLL + SETTLED || state.ops.values().any(parked) {
        return;
    }
    let missed = |result: &RoundResult, rounds: &Rounds| {
        let began = result.arrivals.iter().map(|(_, began)| *began).min()?;
        // A party that loses its place inside a double barrier was in the round, and reports only the next one. Only faults cause that.
        let settled =
            resource.family == Family::Barrier || fault_free > began.elapsed() + SETTLED * 3;
        // The place of a party that left before may have counted.
        let stays = |departure: &Departure| departure.lease + calls::OPERATION * 2;
        let left = rounds
            .departures
            .iter()
            .any(|departure| departure.at + stays(departure) >= began);
        let old = result.at.elapsed() > POLL + SETTLED;
        let few = result.arrivals.len() < result.parties as usize && result.broken.is_none();
        (few && settled && old && !left).then_some(result.arrivals.len())
    };
    let Some(rounds) = state.tracking.rounds.get(&resource) else {
        return;
    };
    let found = rounds.results.iter().rev().take(20);
    let mut found =
        found.filter_map(|(round, result)| Some((round, missed(result, rounds)?, result)));
    if let Some((round, there, result)) = found.next() {
        let text = format!(
            "round {round} of {} at {resource:?} is complete; {there} parties report it, and none has left",
            result.parties
        );
        state.report("TooFew", text);
    }
}

/// The counts of one process at a barrier.
struct Share {
    /// Places on the server.
    places: usize,
    /// Calls that wait, and those of them that are live and have waited for longer than `SETTLED`.
    waits: usize,
    settled: usize,
    /// Guards, and those of them that report that they are held.
    guards: usize,
    held: usize,
    /// A call of the process leaves, and its round is over.
    left: bool,
}

fn share(state: &State, resource: Resource, client: u8, barrier_state: &BarrierState) -> Share {
    let through = |uses: &[Use]| {
        uses.iter()
            .any(|used| used.resource == resource && used.client == client)
    };
    let ops = || state.ops.iter().filter(|(_, op)| through(&op.uses));
    let waits = || ops().filter(|(_, op)| op.kind == OpKind::Wait);
    let settled = |(_, op): &(&u64, &Op)| {
        op.started.elapsed() > SETTLED && super::waiting::is_live(state, op)
    };
    let guards = || state.held.values().filter(|held| through(&held.uses));
    let held = |held: &&Held| held.acquired.is_held() && !held.tainted;
    let leaving = state
        .tracking
        .rounds
        .get(&resource)
        .map(|rounds| &rounds.leaving);
    let is_over = |id: &u64| {
        let round = leaving.and_then(|leaving| leaving.get(id));
        round.is_some_and(|round| barrier_state.present > round * 2 + 1)
    };
    Share {
        places: barrier_state.of(&state.processes[usize::from(client)].id),
        waits: waits().count(),
        settled: waits().filter(settled).count(),
        guards: guards().count(),
        held: guards().filter(held).count(),
        left: ops().any(|(id, op)| is_over(id) && !op.was_parked),
    }
}

/// P3, P4: places match calls and guards.
fn adds_up(state: &mut State, resource: Resource, barrier_state: &BarrierState) {
    let live = barrier_state
        .places
        .iter()
        .filter(|(_, left)| *left >= 0)
        .count();
    let dead = barrier_state.places.len() - live;
    let under_way = resource.family == Family::Double && barrier_state.present % 2 == 1;
    let most = barrier_state.parties as usize;
    if live > most || live == most && !under_way {
        let text =
            format!("{live} places of {most} are taken, and the round goes on: {barrier_state:?}");
        state.report("Withheld", text);
    }
    // The parties of a round that breaks, or that is over, because other parties are dead.
    let waits_for_dead = dead > 0 && (barrier_state.breaks || under_way && live == 0);
    let clients = u8::try_from(state.processes.len()).unwrap_or(u8::MAX);
    for client in 0..clients {
        let process = &state.processes[usize::from(client)];
        let there =
            (process.spec.server, process.spec.database) == (resource.server, resource.database);
        if !there || process.killed || process.closing {
            continue;
        }
        let polls = process.spec.wake_mode == WakeMode::Polls;
        let it = share(state, resource, client, barrier_state);
        let messages_lost = state.fault_states[usize::from(resource.server)]
            .messages_lost
            .elapsed()
            < Duration::from_secs(15);
        let wake_time = if messages_lost || polls {
            POLL
        } else {
            SETTLED
        };
        let waits = it.settled > 0 || it.left;
        let round_is_over = it.left || !under_way && it.settled > it.places;
        // After a clock step, places without a call or guard may stay on the server for longer.
        let unsure = |at: Option<Instant>| at.is_some_and(|until| Instant::now() < until);
        let unsure = unsure(
            state
                .tracking
                .rounds
                .get(&resource)
                .and_then(|rounds| rounds.unsure),
        );
        let odd = [
            ("Asleep", wake_time, round_is_over, "its round is over"),
            (
                "Unbroken",
                POLL,
                waits_for_dead && waits,
                "the other parties are dead",
            ),
            (
                "Orphan",
                SETTLED,
                it.places > it.waits + it.guards && !unsure,
                "it has more places than calls and guards",
            ),
            (
                "Ghost",
                Duration::ZERO,
                it.held > it.places,
                "more guards than places report that they are held",
            ),
        ];
        for (rule, limit, is_odd, text) in odd {
            judge_odd(
                state,
                resource,
                barrier_state,
                (rule, client),
                is_odd,
                limit,
                text,
            );
        }
    }
}

/// Reports a mismatch that has lasted for longer than `limit` without a fault.
fn judge_odd(
    state: &mut State,
    resource: Resource,
    barrier_state: &BarrierState,
    (rule, client): (&'static str, u8),
    is_odd: bool,
    limit: Duration,
    text: &str,
) {
    let now = Instant::now();
    let fault_free = state.fault_free_between(resource.server, client);
    let last_change = state.record(resource).last_change.elapsed();
    let rounds = rounds(state, resource);
    if !is_odd {
        rounds.odd.remove(&(rule, client));
        return;
    }
    let since = rounds.odd.entry((rule, client)).or_insert(now).elapsed();
    // A clean-up has to reconnect first.
    let recovery = Duration::from_secs(if rule == "Orphan" { 7 } else { 3 });
    let settled = rule != "Orphan" || last_change > SETTLED;
    let instant = rule == "Ghost";
    if instant || since > limit && fault_free > since + recovery && settled {
        let text =
            format!("{resource:?}, client {client}: {text}, for {since:?}: {barrier_state:?}");
        state.report(rule, text);
    }
}

/// A latch with an idle expiry lives at least for its idle time.
fn idle(state: &mut State) {
    let now = Instant::now();
    let ended = state.tracking.idle.iter().find(|(resource, until)| {
        let engine = &state.engines[usize::from(resource.server)];
        now + Duration::from_millis(10) < **until && !keys::snapshot(engine, **resource).exists
    });
    if let Some((resource, until)) = ended {
        let left = *until - now;
        let text = format!("{resource:?} expired {left:?} before the end of its idle time");
        state.report("EndedEarly", text);
    }
}

//! Barriers: places on the servers, and the calls and guards that have them; and latches that end when nobody uses them.

use std::time::Duration;

use tokio::time::Instant;

use super::meetings::{POLL, SETTLED, here, rounds};
use crate::books::{Gone, Rounds, Told};
use crate::calls;
use crate::keys::{self, Standing};
use crate::program::Hears;
use crate::spot::{Family, Spot, Use};
use crate::state::{Held, Op, OpKind, State};

/// Between two looks at what stays as it is.
const PAUSE: Duration = Duration::from_millis(700);

fn standing(state: &State, spot: Spot) -> Option<Standing> {
    keys::standing(&state.engines[usize::from(spot.server)], spot)
}

/// Judges what the servers have.
pub(crate) fn look(state: &mut State) {
    let spots: Vec<Spot> = state.books.rounds.keys().copied().collect();
    for spot in spots {
        // Questions take most of the time of a run.
        let stirred = state.place(spot).stirred.elapsed() < SETTLED;
        let looked = rounds(state, spot).looked;
        if !stirred && looked.is_some_and(|at| at.elapsed() < PAUSE) {
            continue;
        }
        rounds(state, spot).looked = Some(Instant::now());
        all_told(state, spot);
        if let Some(standing) = standing(state, spot) {
            unbroken(state, spot, &standing);
            adds_up(state, spot, &standing);
        }
    }
    idle(state);
}

/// The present round; 0 without a barrier.
pub(super) fn present(state: &State, spot: Spot) -> u64 {
    standing(state, spot).map_or(0, |standing| standing.present)
}

/// The round that breaks because this call, which has just gone, had a place in it.
pub(super) fn breaks(state: &State, op: &Op, spot: Spot) -> Option<u64> {
    let calm = state.calm(&op.uses) > op.started.elapsed() + SETTLED;
    let settled = op.started.elapsed() > SETTLED && !op.was_parked && calm;
    if spot.family != Family::Barrier || !settled {
        return None;
    }
    let standing = standing(state, spot)?;
    let share = share(state, spot, op.client, &standing);
    // Otherwise its round is over already.
    let counts = share.places == share.waits + 1;
    (standing.breaks && counts).then_some(standing.present)
}

/// Who leaves has broken the round a round trip later.
fn unbroken(state: &mut State, spot: Spot, standing: &Standing) {
    let calm = state.calm_over(spot.server);
    let processes = &state.processes;
    let Some(rounds) = state.books.rounds.get_mut(&spot) else {
        return;
    };
    rounds.breaking.retain(|(at, client, round)| {
        let process = &processes[usize::from(*client)];
        let alive = !process.killed && !process.closing;
        alive && *round == standing.present && calm > at.elapsed() + SETTLED
    });
    let old = |(at, ..): &&(Instant, u8, u64)| at.elapsed() > SETTLED;
    if let Some((_, client, round)) = rounds.breaking.iter().find(old).copied() {
        let text = format!("client {client} has left round {round} of {spot:?}: {standing:?}");
        state.report("Unbroken", text);
    }
}

/// A round that somebody was told of is told to all of it, if nobody has gone: then one of them was last.
fn all_told(state: &mut State, spot: Spot) {
    let calm = state.calm_over(spot.server);
    let parked = |op: &Op| op.was_parked && here(&op.uses, spot);
    if calm < POLL + SETTLED || state.ops.values().any(parked) {
        return;
    }
    let missed = |told: &Told, rounds: &Rounds| {
        let began = told.arrivals.iter().map(|(_, began)| *began).min()?;
        // One that was lost inside has been in the round, and enters the next.
        let settled = spot.family == Family::Barrier || calm > began.elapsed() + SETTLED * 3;
        // The place of one who went before may have counted.
        let stays = |gone: &Gone| gone.lease + calls::OPERATION * 2;
        let left = rounds
            .gone
            .iter()
            .any(|gone| gone.at + stays(gone) >= began);
        let old = told.at.elapsed() > POLL + SETTLED;
        let few = told.arrivals.len() < told.parties as usize && told.broken.is_none();
        (few && settled && old && !left).then_some(told.arrivals.len())
    };
    let Some(rounds) = state.books.rounds.get(&spot) else {
        return;
    };
    let found = rounds.told.iter().rev().take(20);
    let mut found = found.filter_map(|(round, told)| Some((round, missed(told, rounds)?, told)));
    if let Some((round, there, told)) = found.next() {
        let text = format!(
            "round {round} of {} at {spot:?} is complete; {there} were told, and nobody has gone",
            told.parties
        );
        state.report("TooFew", text);
    }
}

/// What one process has at a barrier.
struct Share {
    /// Its places on the server.
    places: usize,
    /// Its calls that wait, and those that have for a while and are polled.
    waits: usize,
    settled: usize,
    /// Its guards, and those of them that say that they are held.
    guards: usize,
    held: usize,
    /// A call of it leaves, and its round is over.
    left: bool,
}

fn share(state: &State, spot: Spot, client: u8, standing: &Standing) -> Share {
    let through = |uses: &[Use]| {
        uses.iter()
            .any(|used| used.spot == spot && used.client == client)
    };
    let ops = || state.ops.iter().filter(|(_, op)| through(&op.uses));
    let waits = || ops().filter(|(_, op)| op.kind == OpKind::Wait);
    let settled = |(_, op): &(&u64, &Op)| {
        op.started.elapsed() > SETTLED && super::waiting::is_live(state, op)
    };
    let guards = || state.held.values().filter(|held| through(&held.uses));
    let held = |held: &&Held| held.thing.is_held() && !held.tainted;
    let leaving = state.books.rounds.get(&spot).map(|rounds| &rounds.leaving);
    let is_over = |id: &u64| {
        let round = leaving.and_then(|leaving| leaving.get(id));
        round.is_some_and(|round| standing.present > round * 2 + 1)
    };
    Share {
        places: standing.of(&state.processes[usize::from(client)].id),
        waits: waits().count(),
        settled: waits().filter(settled).count(),
        guards: guards().count(),
        held: guards().filter(held).count(),
        left: ops().any(|(id, op)| is_over(id) && !op.was_parked),
    }
}

/// P3, P4: places and those who have them.
fn adds_up(state: &mut State, spot: Spot, standing: &Standing) {
    let live = standing
        .places
        .iter()
        .filter(|(_, left)| *left >= 0)
        .count();
    let dead = standing.places.len() - live;
    let under_way = spot.family == Family::Double && standing.present % 2 == 1;
    let most = standing.parties as usize;
    if live > most || live == most && !under_way {
        let text =
            format!("{live} places of {most} are taken, and the round goes on: {standing:?}");
        state.report("Withheld", text);
    }
    // Who waits in a round that breaks, or that is over, because its others are dead.
    let mourns = dead > 0 && (standing.breaks || under_way && live == 0);
    let clients = u8::try_from(state.processes.len()).unwrap_or(u8::MAX);
    for client in 0..clients {
        let process = &state.processes[usize::from(client)];
        let there = (process.seat.server, process.seat.database) == (spot.server, spot.database);
        if !there || process.killed || process.closing {
            continue;
        }
        let polls = process.seat.hears == Hears::Polls;
        let it = share(state, spot, client, standing);
        let deaf = state.skies[usize::from(spot.server)].deaf.elapsed() < Duration::from_secs(15);
        let told = if deaf || polls { POLL } else { SETTLED };
        let waits = it.settled > 0 || it.left;
        let unheard = it.left || !under_way && it.settled > it.places;
        // A few polls of those who hear nothing: whoever looks first, by a timer, tells all.
        let unsure = |at: Option<Instant>| at.is_some_and(|until| Instant::now() < until);
        let unsure = unsure(
            state
                .books
                .rounds
                .get(&spot)
                .and_then(|rounds| rounds.unsure),
        );
        let odd = [
            ("Asleep", told, unheard, "its round is over"),
            (
                "Unbroken",
                POLL,
                mourns && waits,
                "those it waits for are dead",
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
                "its guards say that they are held",
            ),
        ];
        for (rule, limit, is_odd, text) in odd {
            judge_odd(state, spot, standing, (rule, client), is_odd, limit, text);
        }
    }
}

/// Reports what has not added up for longer than `limit`, in calm weather.
fn judge_odd(
    state: &mut State,
    spot: Spot,
    standing: &Standing,
    (rule, client): (&'static str, u8),
    is_odd: bool,
    limit: Duration,
    text: &str,
) {
    let now = Instant::now();
    let calm = state.calm_of(spot.server, client);
    let stirred = state.place(spot).stirred.elapsed();
    let rounds = rounds(state, spot);
    if !is_odd {
        rounds.odd.remove(&(rule, client));
        return;
    }
    let since = rounds.odd.entry((rule, client)).or_insert(now).elapsed();
    // A clean-up needs its connection back.
    let calms = Duration::from_secs(if rule == "Orphan" { 7 } else { 3 });
    let settled = rule != "Orphan" || stirred > SETTLED;
    let instant = rule == "Ghost";
    if instant || since > limit && calm > since + calms && settled {
        let text = format!("{spot:?}, client {client}: {text}, for {since:?}: {standing:?}");
        state.report(rule, text);
    }
}

/// A latch that ends lives for as long as was said.
fn idle(state: &mut State) {
    let now = Instant::now();
    let ended = state.books.idle.iter().find(|(spot, until)| {
        let engine = &state.engines[usize::from(spot.server)];
        now + Duration::from_millis(10) < **until && !keys::look(engine, **spot).exists
    });
    if let Some((spot, until)) = ended {
        let left = *until - now;
        let text = format!("{spot:?} has ended {left:?} before it was unused for long enough");
        state.report("EndedEarly", text);
    }
}

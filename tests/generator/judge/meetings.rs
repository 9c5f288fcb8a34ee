//! Barriers: rounds of all or none, told to all of them; nothing is deleted, or ends, under who waits.

use std::time::Duration;

use stanchion::{AcquireError, BrokenBy, Rejection};
use tokio::time::Instant;

use crate::books::{Gone, Rounds, Told};
use crate::meetings::Met;
use crate::program::{Hears, Manage, What};
use crate::spot::{Spot, Use};
use crate::state::{Held, Op, OpKind, State};
use crate::things::{LEASE, Thing};
use crate::{calls, span};

/// A round trip and a message, generously.
pub(super) const SETTLED: Duration = Duration::from_millis(1_200);

/// The poll behind every wait, and something for its jitter.
pub(super) const POLL: Duration = Duration::from_millis(6_500);

pub(super) fn here(uses: &[Use], spot: Spot) -> bool {
    uses.iter().any(|used| used.spot == spot)
}

fn lease_of(op: &Op) -> Duration {
    span(op.ask.lease.unwrap_or(LEASE))
}

/// The time for which a wait asks what became of its place after the server was out of reach for that place's lease.
pub(super) fn settles(op: &Op) -> Duration {
    let meets = op.uses.iter().any(|used| used.spot.family.is_barrier());
    if meets {
        lease_of(op) + Duration::from_secs(5)
    } else {
        Duration::ZERO
    }
}

fn barrier_of(op: &Op) -> Option<Spot> {
    let spots = op.uses.iter().map(|used| used.spot);
    spots.into_iter().find(|spot| spot.family.is_barrier())
}

pub(super) fn rounds(state: &mut State, spot: Spot) -> &mut Rounds {
    state.books.rounds.entry(spot).or_default()
}

/// A wait is about to begin.
pub(crate) fn asked(state: &mut State, what: &What, uses: &[Use]) {
    let (What::Meet(_, parties, _) | What::Inside(_, parties)) = what else {
        return;
    };
    for used in uses {
        let rounds = rounds(state, used.spot);
        rounds.parties.insert(*parties);
        rounds.breaks |= matches!(what, What::Meet(_, _, true));
    }
}

/// A call of the owner of the name is about to begin.
pub(crate) fn managed(state: &mut State, manage: &Manage, uses: &[Use]) {
    for used in uses {
        match manage {
            Manage::SetParties(_, n) => drop(rounds(state, used.spot).parties.insert(*n)),
            Manage::BreakAll(_) => {
                let present = super::places::present(state, used.spot);
                let rounds = rounds(state, used.spot);
                (rounds.forced, rounds.force) = (true, present);
            }
            _ => {}
        }
    }
}

/// P8: a round of so many was broken by force, and another one has begun.
pub(crate) fn forced(state: &mut State, spot: Spot, count: u64) {
    let present = super::places::present(state, spot);
    if count > 0 && present == rounds(state, spot).force {
        let text =
            format!("P8: {count} waits at {spot:?} were ended, it says; round {present} goes on");
        state.report("Untrue", text);
    }
}

/// A call went that had not ended, or ended without its round: its place may count for a while.
pub(crate) fn gone(state: &mut State, op: &Op) {
    let Some(spot) = barrier_of(op) else { return };
    if let Some(round) = super::places::breaks(state, op, spot) {
        let left = (Instant::now(), op.client, round);
        rounds(state, spot).breaking.push(left);
    }
    let gone = Gone {
        at: Instant::now(),
        client: op.client,
        lease: lease_of(op),
    };
    let rounds = rounds(state, spot);
    rounds.gone.push(gone);
    rounds.odd.retain(|(_, client), _| *client != op.client);
}

/// A wait has ended: what did not add up does, perhaps.
pub(crate) fn ended(
    state: &mut State,
    op: &Op,
    what: &What,
    outcome: &Result<Option<Thing>, AcquireError>,
) {
    if let Some(spot) = barrier_of(op) {
        let client = op.client;
        rounds(state, spot).odd.retain(|(_, of), _| *of != client);
        if !matches!(
            outcome,
            Ok(Some(Thing::Met(Met::Passed(_)) | Thing::Inside(_)))
        ) {
            gone(state, op);
        }
    }
    let deleted = matches!(
        outcome,
        Err(AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        })
    );
    if deleted {
        was_deleted(state, op, what);
    }
}

/// P8: nothing is deleted, or ends, that somebody waits at.
fn was_deleted(state: &mut State, op: &Op, what: &What) {
    let calm = state.calm(&op.uses) >= op.started.elapsed() + Duration::from_secs(4);
    let lie = match what {
        What::Latch(_) => op.shut_out && calm && !op.was_parked,
        What::Meet(..) | What::Inside(..) => {
            let spot = op.uses[0].spot;
            let lost = rounds(state, spot).lost;
            lost.is_none_or(|at| at + POLL < op.started)
        }
        _ => false,
    };
    if lie {
        let text = format!("P8: {} was told that it is deleted; it is not", op.label);
        state.report("Untrue", text);
    }
}

/// A wait at a cyclic barrier has ended.
pub(crate) fn met(state: &mut State, op: &Op, what: &What, met: &Met) {
    let What::Meet(_, parties, _) = what else {
        return other_end(state, op, what, met);
    };
    match met {
        Met::Passed(passed) => {
            state.tell(format!("{}: {passed:?}", op.label));
            let told = (passed.generation(), passed.arrival(), passed.is_last());
            took_part(state, op, *parties, told);
        }
        Met::Broke(round, by) => broke(state, op, *round, *by),
        _ => other_end(state, op, what, met),
    }
}

fn other_end(state: &mut State, op: &Op, what: &What, met: &Met) {
    let Some(spot) = barrier_of(op) else { return };
    let calm = state.calm(&op.uses) >= op.started.elapsed() + Duration::from_secs(4);
    match met {
        Met::Others(theirs) => {
            state.tell(format!("{}: it has {theirs} parties", op.label));
            let known = rounds(state, spot).parties.contains(theirs);
            let own = matches!(what, What::Meet(_, n, _) | What::Inside(_, n) if n == theirs);
            if !known || own {
                let text = format!("P8: {} is told of {theirs} parties", op.label);
                state.report("Untrue", text);
            }
        }
        Met::Lost(round) => {
            state.tell(format!("{}: lost in round {round}", op.label));
            if calm && !op.was_parked {
                let text = format!("P8: {} has lost two places in fair weather", op.label);
                state.report("Untrue", text);
            }
        }
        // A double barrier breaks no round.
        Met::Passed(_) | Met::Broke(..) => {
            let text = format!("{} ended as no such wait can", op.label);
            state.report("Untrue", text);
        }
    }
}

/// A party was told that its round is complete.
fn took_part(state: &mut State, op: &Op, parties: u32, told: (u64, u32, bool)) {
    let Some(spot) = barrier_of(op) else { return };
    let (round, arrival, last) = told;
    let stepped = state.skies[usize::from(spot.server)].stepped;
    let calm = state.calm_over(spot.server) >= op.started.elapsed() + Duration::from_secs(4);
    let deaf = state.skies[usize::from(spot.server)].deaf.elapsed() < POLL * 2;
    let seat = state.processes[usize::from(op.client)].seat;
    let at_once = calm && !deaf && !op.was_parked && seat.hears == Hears::Messages;
    // The round ended in between.
    let lately = Instant::now() - SETTLED;
    let present = counted(state, spot, if at_once { lately } else { op.started });
    let rounds = rounds(state, spot);
    let now = Instant::now();
    let mut broken = None;
    let earlier = rounds.told.range(round..);
    let again = earlier.into_iter().find(|(_, told)| told.at < op.started);
    if let Some((other, _)) = again.filter(|_| !stepped) {
        let text = format!("{} is told of round {round} after {other}", op.label);
        broken = Some(("Backwards", text));
    }
    let left = rounds.gone.iter().any(|gone| gone.at >= op.started);
    let told = rounds.told.entry(round).or_insert_with(|| Told {
        at: now,
        parties,
        arrivals: Vec::new(),
        broken: None,
    });
    let twice = told.arrivals.iter().any(|(other, _)| *other == arrival);
    if arrival == 0 || arrival > parties || last != (arrival == parties) {
        let text = format!("{}: arrival {arrival} of {parties}, last: {last}", op.label);
        broken = Some(("Untrue", text));
    } else if told.parties != parties {
        let text = format!("round {round} of {spot:?} had {} parties", told.parties);
        broken = Some(("Untrue", text));
    } else if last && twice {
        let text = format!("{}: round {round} has two who were last", op.label);
        broken = Some(("TwoLast", text));
    } else if twice && calm && !left {
        let text = format!("{}: two of round {round} arrived as {arrival}", op.label);
        broken = Some(("Untrue", text));
    } else if let Some(by) = told.broken {
        let text = format!("{}: round {round} is complete, and broke: {by}", op.label);
        broken = Some(("TwoEnds", text));
    }
    told.arrivals.push((arrival, op.started));
    let there = told.arrivals.len();
    let sure = rounds.unsure.is_none_or(|until| now >= until);
    if there > parties as usize {
        let text = format!("{there} were in round {round} of {parties} at {spot:?}");
        broken = Some(("Crowded", text));
    } else if there + present < parties as usize && sure {
        let text = format!(
            "{}: round {round} of {parties} is complete; {there} were told, and {present} more may have come",
            op.label
        );
        broken = Some(("TooFew", text));
    }
    if let Some((rule, text)) = broken {
        state.report(rule, text);
    }
}

/// The number of places that may have been taken since then without having been told: by those who wait, and by those who have gone.
fn counted(state: &State, spot: Spot, since: Instant) -> usize {
    let waits = |op: &&Op| matches!(op.kind, OpKind::Wait) && here(&op.uses, spot);
    let waiting = state.ops.values().filter(waits).count();
    let Some(rounds) = state.books.rounds.get(&spot) else {
        return waiting;
    };
    let counts = |gone: &&Gone| {
        let calm =
            state.calm_of(spot.server, gone.client) > gone.at.elapsed() + Duration::from_secs(4);
        let process = state.processes.get(usize::from(gone.client));
        let alive = process.is_some_and(|it| !it.killed && !it.closing && it.client.is_some());
        // A request may run until it is too late, and its place lasts for its lease.
        let later = gone.lease + calls::OPERATION * 2;
        gone.at + if calm && alive { SETTLED } else { later } >= since
    };
    waiting + rounds.gone.iter().filter(counts).count()
}

/// A party was told that its round broke.
fn broke(state: &mut State, op: &Op, round: u64, by: BrokenBy) {
    state.tell(format!("{}: round {round} broke: {by}", op.label));
    let Some(spot) = barrier_of(op) else { return };
    let fair =
        !state.deaths && !state.leapt && state.calm_over(spot.server) > state.began.elapsed();
    let somebody = |state: &State, spot: Spot| {
        let waits = state
            .ops
            .values()
            .any(|op| here(&op.uses, spot) && op.ask.timeout.is_some());
        waits || op.ask.timeout.is_some()
    };
    let may_time_out = somebody(state, spot);
    let rounds = rounds(state, spot);
    let why = match by {
        _ if by != BrokenBy::Forced && !rounds.breaks => Some("nobody asked for that"),
        BrokenBy::Forced if !rounds.forced => Some("nobody did that"),
        BrokenBy::Left if rounds.gone.is_empty() => Some("nobody left"),
        BrokenBy::TimedOut if rounds.gone.is_empty() && !may_time_out => Some("nobody did"),
        BrokenBy::Died if fair => Some("nobody died"),
        _ => None,
    };
    let now = Instant::now();
    let told = rounds.told.entry(round).or_insert_with(|| Told {
        at: now,
        parties: 0,
        arrivals: Vec::new(),
        broken: Some(by),
    });
    let other = told.broken != Some(by);
    if other || !told.arrivals.is_empty() {
        let text = format!(
            "P8: {}: round {round} broke: {by}; others: {:?}",
            op.label, told.broken
        );
        state.report("TwoEnds", text);
    } else if let Some(why) = why {
        let text = format!("P8: {}: round {round} broke: {by}: {why}", op.label);
        state.report("Untrue", text);
    }
}

fn inside(held: &Held) -> Option<&stanchion::Inside> {
    match &*held.thing {
        Thing::Inside(inside) => Some(inside),
        _ => None,
    }
}

/// Somebody is inside a double barrier.
pub(crate) fn entered(state: &mut State, op: &Op, id: u64) {
    let Some(held) = state.held.get(&id) else {
        return;
    };
    let (What::Inside(_, parties), Some(own)) = (held.what.clone(), inside(held)) else {
        return;
    };
    let (round, told) = (own.generation(), (own.arrival(), own.is_last()));
    let counts = own.is_held() && !held.tainted;
    took_part(state, op, parties, (round, told.0, told.1));
    let others = state
        .held
        .iter()
        .filter(|(_, other)| here(&other.uses, op.uses[0].spot));
    let mut others = others.filter_map(|(other, held)| Some((other, held, inside(held)?)));
    let mingled = others.find(|(_, held, inside)| {
        inside.generation() != round && inside.is_held() && !held.tainted
    });
    if let Some((other, _, inside)) = mingled.filter(|_| counts) {
        let text = format!(
            "{} is inside in round {round}, and guard {other} still is in {}",
            op.label,
            inside.generation()
        );
        state.report("Mingled", text);
    }
}

/// Somebody was told that all have left.
pub(crate) fn all_out(state: &mut State, op: &Op, round: u64) {
    let spot = op.uses[0].spot;
    let mut others = state.held.iter().filter(|(_, held)| here(&held.uses, spot));
    let within = others.find(|(_, held)| {
        inside(held).is_some_and(|it| it.generation() == round && it.is_held() && !held.tainted)
    });
    if let Some((id, _)) = within {
        let text = format!(
            "{} is told that all are out; guard {id} is inside",
            op.label
        );
        state.report("LeftAlone", text);
    }
}

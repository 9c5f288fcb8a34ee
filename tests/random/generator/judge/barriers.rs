//! Judges the results of waits at barriers: a round is complete for all its parties or for none.
//!
//! Also judges that barriers and latches are not deleted while calls wait at them.

use std::time::Duration;

use stanchion::barrier::BrokenBy;
use stanchion::{AcquireError, Rejection};
use tokio::time::Instant;

use crate::generator::barriers::BarrierEnd;
use crate::generator::guards::{Acquired, LEASE};
use crate::generator::program::{Manage, Target, WakeMode};
use crate::generator::resource::{Resource, Use};
use crate::generator::state::{Held, Op, OpKind, State};
use crate::generator::tracking::{Departure, RoundResult, Rounds};
use crate::generator::{calls, span};

/// A round trip and a message, with a generous margin.
pub(super) const SETTLED: Duration = Duration::from_millis(1_200);

/// The interval of the poll behind every wait, with its jitter.
pub(super) const POLL: Duration = Duration::from_millis(6_500);

pub(super) fn here(uses: &[Use], resource: Resource) -> bool {
    uses.iter().any(|used| used.resource == resource)
}

fn lease_of(op: &Op) -> Duration {
    span(op.opts.lease.unwrap_or(LEASE))
}

/// The time that a wait at a barrier needs beyond the outage tolerance to learn the state of its place: its lease and 5 s.
pub(super) fn settles(op: &Op) -> Duration {
    let at_barrier = op.uses.iter().any(|used| used.resource.family.is_barrier());
    if at_barrier {
        lease_of(op) + Duration::from_secs(5)
    } else {
        Duration::ZERO
    }
}

fn barrier_of(op: &Op) -> Option<Resource> {
    let resources = op.uses.iter().map(|used| used.resource);
    resources
        .into_iter()
        .find(|resource| resource.family.is_barrier())
}

pub(super) fn rounds(state: &mut State, resource: Resource) -> &mut Rounds {
    state.tracking.rounds.entry(resource).or_default()
}

/// Records a wait that is about to begin.
pub(crate) fn wait_begins(state: &mut State, target: &Target, uses: &[Use]) {
    let (Target::Barrier(_, parties, _) | Target::DoubleBarrier(_, parties)) = target else {
        return;
    };
    for used in uses {
        let rounds = rounds(state, used.resource);
        rounds.parties.insert(*parties);
        rounds.breaks |= matches!(target, Target::Barrier(_, _, true));
    }
}

/// Records a management call that is about to begin.
pub(crate) fn managed(state: &mut State, manage: &Manage, uses: &[Use]) {
    for used in uses {
        match manage {
            Manage::SetParties(_, n) => drop(rounds(state, used.resource).parties.insert(*n)),
            Manage::BreakAll(_) => {
                let present = super::barrier_places::present(state, used.resource);
                let rounds = rounds(state, used.resource);
                (rounds.forced, rounds.force) = (true, present);
            }
            _ => {}
        }
    }
}

/// P8: if `break_all` reports that it ended `count` waits, the next round has begun.
pub(crate) fn forced(state: &mut State, resource: Resource, count: u64) {
    let present = super::barrier_places::present(state, resource);
    if count > 0 && present == rounds(state, resource).force {
        let text =
            format!("P8: break_all reports {count} waits at {resource:?}; round {present} goes on");
        state.report("Untrue", text);
    }
}

/// Records a call that ended without its round. The place of the call may count for a while.
pub(crate) fn left_early(state: &mut State, op: &Op) {
    let Some(resource) = barrier_of(op) else {
        return;
    };
    if let Some(round) = super::barrier_places::breaks(state, op, resource) {
        let left = (Instant::now(), op.client, round);
        rounds(state, resource).breaking.push(left);
    }
    let departure = Departure {
        at: Instant::now(),
        client: op.client,
        lease: lease_of(op),
    };
    let rounds = rounds(state, resource);
    rounds.departures.push(departure);
    rounds.odd.retain(|(_, client), _| *client != op.client);
}

/// Records the end of a wait, and forgets the mismatches of its client.
pub(crate) fn ended(
    state: &mut State,
    op: &Op,
    target: &Target,
    outcome: &Result<Option<Acquired>, AcquireError>,
) {
    if let Some(resource) = barrier_of(op) {
        let client = op.client;
        rounds(state, resource)
            .odd
            .retain(|(_, of), _| *of != client);
        if !matches!(
            outcome,
            Ok(Some(
                Acquired::BarrierEnd(BarrierEnd::Passed(_)) | Acquired::Inside(_)
            ))
        ) {
            left_early(state, op);
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
        was_deleted(state, op, target);
    }
}

/// P8: a latch or barrier is not deleted, and does not expire, while a call waits at it.
fn was_deleted(state: &mut State, op: &Op, target: &Target) {
    let fault_free = state.fault_free(&op.uses) >= op.started.elapsed() + Duration::from_secs(4);
    let false_claim = match target {
        Target::Latch(_) => op.closed_at_start && fault_free && !op.was_parked,
        Target::Barrier(..) | Target::DoubleBarrier(..) => {
            let resource = op.uses[0].resource;
            let lost = rounds(state, resource).lost;
            lost.is_none_or(|at| at + POLL < op.started)
        }
        _ => false,
    };
    if false_claim {
        let text = format!("P8: {} reports a deletion that did not happen", op.label);
        state.report("Untrue", text);
    }
}

/// Judges the result of a wait at a barrier.
pub(crate) fn barrier_end(state: &mut State, op: &Op, target: &Target, barrier_end: &BarrierEnd) {
    let Target::Barrier(_, parties, _) = target else {
        return other_end(state, op, target, barrier_end);
    };
    match barrier_end {
        BarrierEnd::Passed(passed) => {
            state.log(format!("{}: {passed:?}", op.label));
            let ending = (passed.generation(), passed.arrival(), passed.is_last());
            took_part(state, op, *parties, ending);
        }
        BarrierEnd::Broke(round, by) => broke(state, op, *round, *by),
        _ => other_end(state, op, target, barrier_end),
    }
}

fn other_end(state: &mut State, op: &Op, target: &Target, barrier_end: &BarrierEnd) {
    let Some(resource) = barrier_of(op) else {
        return;
    };
    let fault_free = state.fault_free(&op.uses) >= op.started.elapsed() + Duration::from_secs(4);
    match barrier_end {
        BarrierEnd::OtherParties(theirs) => {
            state.log(format!("{}: the server has {theirs} parties", op.label));
            let known = rounds(state, resource).parties.contains(theirs);
            let own = matches!(target, Target::Barrier(_, n, _) | Target::DoubleBarrier(_, n) if n == theirs);
            if !known || own {
                let text = format!("P8: {} reports {theirs} parties", op.label);
                state.report("Untrue", text);
            }
        }
        BarrierEnd::Lost(round) => {
            state.log(format!("{}: lost in round {round}", op.label));
            if fault_free && !op.was_parked {
                let text = format!("P8: {} lost two places without a fault", op.label);
                state.report("Untrue", text);
            }
        }
        // A wait at a double barrier has neither of these results.
        BarrierEnd::Passed(_) | BarrierEnd::Broke(..) => {
            let text = format!("{} has a result that such a wait cannot have", op.label);
            state.report("Untrue", text);
        }
    }
}

/// Judges a party that reports its round as complete.
fn took_part(state: &mut State, op: &Op, parties: u32, ending: (u64, u32, bool)) {
    let Some(resource) = barrier_of(op) else {
        return;
    };
    let (round, arrival, last) = ending;
    let stepped = state.fault_states[usize::from(resource.server)].stepped;
    let fault_free =
        state.fault_free_server(resource.server) >= op.started.elapsed() + Duration::from_secs(4);
    let messages_lost = state.fault_states[usize::from(resource.server)]
        .messages_lost
        .elapsed()
        < POLL * 2;
    let spec = state.processes[usize::from(op.client)].spec;
    let at_once =
        fault_free && !messages_lost && !op.was_parked && spec.wake_mode == WakeMode::Messages;
    // Without faults, a party learns of the end within `SETTLED`. Only parties that left since then may have counted.
    let recently = Instant::now() - SETTLED;
    let present = counted(state, resource, if at_once { recently } else { op.started });
    let rounds = rounds(state, resource);
    let now = Instant::now();
    let mut broken = None;
    let earlier = rounds.results.range(round..);
    let again = earlier
        .into_iter()
        .find(|(_, result)| result.at < op.started);
    if let Some((other, _)) = again.filter(|_| !stepped) {
        let text = format!("{} reports round {round} after round {other}", op.label);
        broken = Some(("Backwards", text));
    }
    let left = rounds
        .departures
        .iter()
        .any(|departure| departure.at >= op.started);
    let result = rounds.results.entry(round).or_insert_with(|| RoundResult {
        at: now,
        parties,
        arrivals: Vec::new(),
        broken: None,
    });
    let twice = result.arrivals.iter().any(|(other, _)| *other == arrival);
    if arrival == 0 || arrival > parties || last != (arrival == parties) {
        let text = format!("{}: arrival {arrival} of {parties}, last: {last}", op.label);
        broken = Some(("Untrue", text));
    } else if result.parties != parties {
        let text = format!(
            "round {round} of {resource:?} had {} parties",
            result.parties
        );
        broken = Some(("Untrue", text));
    } else if last && twice {
        let text = format!("{}: round {round} has two last parties", op.label);
        broken = Some(("TwoLast", text));
    } else if twice && fault_free && !left {
        let text = format!(
            "{}: two parties of round {round} have number {arrival}",
            op.label
        );
        broken = Some(("Untrue", text));
    } else if let Some(by) = result.broken {
        let text = format!("{}: round {round} is complete, and broke: {by}", op.label);
        broken = Some(("TwoEnds", text));
    }
    result.arrivals.push((arrival, op.started));
    let there = result.arrivals.len();
    let sure = rounds.unsure.is_none_or(|until| now >= until);
    if there > parties as usize {
        let text = format!("{there} parties were in round {round} of {parties} at {resource:?}");
        broken = Some(("Crowded", text));
    } else if there + present < parties as usize && sure {
        let text = format!(
            "{}: round {round} of {parties} is complete; {there} parties report it, and {present} more may have come",
            op.label
        );
        broken = Some(("TooFew", text));
    }
    if let Some((rule, text)) = broken {
        state.report(rule, text);
    }
}

/// Counts the places that may have been taken since `since` without a report: of calls that wait, and of calls that have ended.
fn counted(state: &State, resource: Resource, since: Instant) -> usize {
    let waits = |op: &&Op| matches!(op.kind, OpKind::Wait) && here(&op.uses, resource);
    let waiting = state.ops.values().filter(waits).count();
    let Some(rounds) = state.tracking.rounds.get(&resource) else {
        return waiting;
    };
    let counts = |departure: &&Departure| {
        let fault_free = state.fault_free_between(resource.server, departure.client)
            > departure.at.elapsed() + Duration::from_secs(4);
        let process = state.processes.get(usize::from(departure.client));
        let alive = process.is_some_and(|it| !it.killed && !it.closing && it.client.is_some());
        // A request may run until its timeout, and its place lasts for the lease.
        let later = departure.lease + calls::OPERATION * 2;
        departure.at + if fault_free && alive { SETTLED } else { later } >= since
    };
    waiting + rounds.departures.iter().filter(counts).count()
}

/// Judges a party that reports its round as broken.
fn broke(state: &mut State, op: &Op, round: u64, by: BrokenBy) {
    state.log(format!("{}: round {round} broke: {by}", op.label));
    let Some(resource) = barrier_of(op) else {
        return;
    };
    let undisturbed = !state.deaths
        && !state.time_jumped
        && state.fault_free_server(resource.server) > state.began.elapsed();
    let has_timeout = |state: &State, resource: Resource| {
        let waits = state
            .ops
            .values()
            .any(|op| here(&op.uses, resource) && op.opts.timeout.is_some());
        waits || op.opts.timeout.is_some()
    };
    let may_time_out = has_timeout(state, resource);
    let rounds = rounds(state, resource);
    let why = match by {
        _ if by != BrokenBy::Forced && !rounds.breaks => Some("no wait breaks rounds"),
        BrokenBy::Forced if !rounds.forced => Some("no call broke it"),
        BrokenBy::Left if rounds.departures.is_empty() => Some("no party left"),
        BrokenBy::TimedOut if rounds.departures.is_empty() && !may_time_out => {
            Some("no wait timed out")
        }
        BrokenBy::Died if undisturbed => Some("no party died"),
        _ => None,
    };
    let now = Instant::now();
    let result = rounds.results.entry(round).or_insert_with(|| RoundResult {
        at: now,
        parties: 0,
        arrivals: Vec::new(),
        broken: Some(by),
    });
    let other = result.broken != Some(by);
    if other || !result.arrivals.is_empty() {
        let text = format!(
            "P8: {}: round {round} broke: {by}; others: {:?}",
            op.label, result.broken
        );
        state.report("TwoEnds", text);
    } else if let Some(why) = why {
        let text = format!("P8: {}: round {round} broke: {by}: {why}", op.label);
        state.report("Untrue", text);
    }
}

fn inside(held: &Held) -> Option<&stanchion::barrier::Inside> {
    match &*held.acquired {
        Acquired::Inside(inside) => Some(inside),
        _ => None,
    }
}

/// Judges a party that has entered a double barrier.
pub(crate) fn entered(state: &mut State, op: &Op, id: u64) {
    let Some(held) = state.held.get(&id) else {
        return;
    };
    let (Target::DoubleBarrier(_, parties), Some(own)) = (held.target.clone(), inside(held)) else {
        return;
    };
    let (round, position) = (own.generation(), (own.arrival(), own.is_last()));
    let counts = own.is_held() && !held.tainted;
    took_part(state, op, parties, (round, position.0, position.1));
    let others = state
        .held
        .iter()
        .filter(|(_, other)| here(&other.uses, op.uses[0].resource));
    let mut others = others.filter_map(|(other, held)| Some((other, held, inside(held)?)));
    let mingled = others.find(|(_, held, inside)| {
        inside.generation() != round && inside.is_held() && !held.tainted
    });
    if let Some((other, _, inside)) = mingled.filter(|_| counts) {
        let text = format!(
            "{} is inside in round {round}, and guard {other} is still inside in round {}",
            op.label,
            inside.generation()
        );
        state.report("Mingled", text);
    }
}

/// Judges a party that has left a double barrier and reports that all parties have left.
pub(crate) fn all_out(state: &mut State, op: &Op, round: u64) {
    let resource = op.uses[0].resource;
    let mut others = state
        .held
        .iter()
        .filter(|(_, held)| here(&held.uses, resource));
    let within = others.find(|(_, held)| {
        inside(held).is_some_and(|it| it.generation() == round && it.is_held() && !held.tainted)
    });
    if let Some((id, _)) = within {
        let text = format!(
            "{} reports that all are out; guard {id} is inside",
            op.label
        );
        state.report("LeftAlone", text);
    }
}

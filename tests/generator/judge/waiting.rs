//! P4, P7, P9: who waits, for how long, and what for.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::calls::TOLERANCE;
use crate::keys::{self, Seen};
use crate::program::Hears;
use crate::spot::{Family, Queue, Side, Spot, Use};
use crate::state::{Op, OpKind, State};

/// The time that P9 allows beyond a deadline.
const SLACK: Duration = Duration::from_millis(50);

/// A try in fair weather.
const PROMPT: Duration = Duration::from_secs(1);

/// The poll behind every wait, and something for its jitter.
const POLL: Duration = Duration::from_millis(6_500);

/// Past this nobody says that it is bad luck.
const STARVED: (u64, Duration) = (400, Duration::from_secs(20));

/// The longest hold that still counts as overtaking: a few turns.
const LONG_HOLD: Duration = Duration::from_secs(2);

pub(crate) fn look(state: &mut State, seen: &BTreeMap<Spot, Seen>) {
    late(state);
    starved(state);
    for (spot, seen) in seen {
        asleep(state, *spot, seen);
        blocked(state, *spot, seen);
    }
}

/// P9: calls that outlive what bounds them.
fn late(state: &mut State) {
    hinder(state);
    let mut broken = None;
    for op in state.ops.values().filter(|op| !op.was_parked) {
        let age = op.started.elapsed();
        if let Some(limit) = op.limit
            && age > limit + SLACK
        {
            broken = Some((
                "Late",
                format!(
                    "P9: {} goes on after {age:?}; its bound is {limit:?}",
                    op.label
                ),
            ));
        }
        let calm = state.calm(&op.uses) >= age + Duration::from_secs(3);
        if op.kind == OpKind::Try && age > PROMPT && calm && op.hindered.is_none() {
            broken = Some((
                "TryWaits",
                format!(
                    "{} has not ended after {age:?}: a try does not queue",
                    op.label
                ),
            ));
        }
        let single = op.uses.len() == 1;
        if op.kind == OpKind::Wait
            && op.ask.timeout.is_none()
            && single
            && let Some(dark) = state.dark_since(op.uses[0].spot.server, op.client)
        {
            let began = dark.max(op.hindered.unwrap_or(op.started));
            let since = began.elapsed();
            // Who did not run meanwhile could not notice the silence.
            let stalls = state.stalls.iter().filter(|(end, _)| *end > began);
            let stalled: Duration = stalls.map(|(_, length)| *length).sum();
            let settles = super::meetings::settles(op);
            if since > TOLERANCE + Duration::from_secs(4) + stalled + settles {
                broken = Some((
                    "OutageTolerance",
                    format!(
                        "{} still waits after {since:?} without the server; it gives up after {TOLERANCE:?}",
                        op.label
                    ),
                ));
            }
        }
    }
    if let Some((rule, text)) = broken {
        state.report(rule, text);
    }
}

/// Notes whose way a call that nobody polls is in.
fn hinder(state: &mut State) {
    let hindered: Vec<u64> = state
        .ops
        .iter()
        .filter(|(_, op)| {
            let mut uses = op.uses.iter();
            uses.any(|used| state.parked_at(used.spot, op.client))
        })
        .map(|(id, _)| *id)
        .collect();
    for id in hindered {
        if let Some(op) = state.ops.get_mut(&id) {
            op.hindered = Some(Instant::now());
        }
    }
}

/// A waiter that everybody overtakes, although nobody keeps what it wants for long.
fn starved(state: &mut State) {
    let now = Instant::now();
    let mut broken = None;
    let mut counted = Vec::new();
    for (id, op) in &state.ops {
        if !is_live(state, op) {
            continue;
        }
        let places = op
            .uses
            .iter()
            .filter_map(|used| state.places.get(&used.spot));
        let grants: u64 = places.map(|place| place.grants).sum();
        // Said so in the book: under a steady stream of readers a writer may wait for ever.
        let documented = matches!(op.what_side(), (Side::Alone, Queue::Open))
            && op.uses.iter().any(|used| used.spot.family == Family::Hash)
            && state.held.values().any(|held| {
                held.uses
                    .iter()
                    .any(|used| used.side == Side::Together && op.uses[0].spot == used.spot)
            });
        // A round is for those who are first: nobody says that the next one is for who was not.
        let meets = op.uses.iter().any(|used| used.spot.family.is_barrier());
        // Fair locks and others exclude, and do not wake, each other.
        let mixed = op.uses.iter().any(|used| {
            let place = state.places.get(&used.spot);
            place.is_some_and(|place| place.mixed)
        });
        if documented || meets || mixed || op.uses.iter().any(|used| is_kept(state, *used)) {
            counted.push((*id, None));
            continue;
        }
        let (since, before) = op.starving.unwrap_or((now, grants));
        let passed = grants - before;
        if passed >= STARVED.0 && now.duration_since(since) > STARVED.1 {
            broken = Some(format!(
                "{} waits since {:?}, and {passed} others have been granted",
                op.label,
                now.duration_since(since)
            ));
        }
        counted.push((*id, Some((since, before))));
    }
    for (id, starving) in counted {
        if let Some(op) = state.ops.get_mut(&id) {
            op.starving = starving;
        }
    }
    if let Some(text) = broken {
        state.report("Starved", text);
    }
}

/// Returns whether somebody keeps it from `wanted` who does not come and go: a long hold, or the dead.
fn is_kept(state: &State, wanted: Use) -> bool {
    let at = |uses: &[Use]| {
        uses.iter()
            .find(|used| used.spot == wanted.spot)
            .map(|used| used.side)
    };
    let mut long = state
        .held
        .values()
        .filter(|held| held.since.elapsed() > LONG_HOLD)
        .filter_map(|held| at(&held.uses));
    match wanted.side {
        Side::Alone | Side::Quorum => long.next().is_some(),
        // A lock goes from one to the next, and is not free in between.
        Side::Absent => true,
        Side::Together => long.any(|side| side != Side::Together),
        // More than there are, or nobody knows how many: it waits until some are added.
        Side::Of(n) => {
            let place = state.places.get(&wanted.spot);
            let Some(total) = place.and_then(|place| place.total) else {
                return true;
            };
            let kept: i64 = long
                .map(|side| match side {
                    Side::Of(n) => i64::from(n),
                    _ => 0,
                })
                .sum();
            total - kept - of_the_dead(state, wanted.spot) < i64::from(n)
        }
    }
}

/// Permits that are not leased stay with who died.
fn of_the_dead(state: &State, spot: Spot) -> i64 {
    if spot.family != Family::Permits || !state.deaths {
        return 0;
    }
    let seen = keys::look(&state.engines[usize::from(spot.server)], spot);
    let dead = |who: &str| {
        let mut processes = state.processes.iter();
        !processes.any(|process| !process.killed && who.starts_with(&process.id))
    };
    let lost = seen.holders.iter().filter(|(who, _)| dead(who));
    lost.map(|(_, count)| count).sum()
}

impl Op {
    fn what_side(&self) -> (Side, Queue) {
        self.uses
            .first()
            .map_or((Side::Alone, Queue::Open), |used| (used.side, used.queue))
    }
}

/// Waits, is polled, and nothing of its own client is in its way.
pub(super) fn is_live(state: &State, op: &Op) -> bool {
    let process = |used: &Use| state.processes.get(usize::from(used.client));
    op.kind == OpKind::Wait
        && !op.was_parked
        && op.uses.iter().all(|used| {
            process(used).is_some_and(|process| !process.killed && !process.closing)
                && !state.parked_at(used.spot, used.client)
        })
        && !state.ops.values().any(|other| {
            // The owner's other call has the turn there, and nobody polls it, or the one that it is behind in its process.
            let same = |used: &Use| op.uses.iter().any(|own| own.spot == used.spot);
            let in_its_way = |used: &Use| state.parked_at(used.spot, other.client);
            other.ask.owner.is_some()
                && other.ask.owner == op.ask.owner
                && other.uses.iter().any(same)
                && (other.parked || other.uses.iter().any(in_its_way))
        })
}

fn wants(op: &Op, spot: Spot) -> Option<i64> {
    let used = op.uses.iter().find(|used| used.spot == spot)?;
    Some(match used.side {
        Side::Of(n) => i64::from(n),
        _ => 0,
    })
}

/// P4: what is free, and waited for, is taken soon.
fn asleep(state: &mut State, spot: Spot, seen: &Seen) {
    let waiting: Vec<&Op> = state
        .ops
        .values()
        .filter(|op| op.kind == OpKind::Wait && wants(op, spot).is_some())
        .collect();
    let most = waiting.iter().filter_map(|op| wants(op, spot)).max();
    let servable = match spot.family {
        Family::Hash | Family::Latch => !seen.exists,
        Family::Permits | Family::Leased => {
            !seen.foreign && most.is_some_and(|most| seen.number >= most)
        }
        // By their own rule: what is free is not to be seen in one number.
        Family::Rate | Family::Bucket | Family::Barrier | Family::Double => false,
    };
    let sleeper = waiting
        .iter()
        .find(|op| op.uses.len() == 1 && is_live(state, op));
    let Some(sleeper) = sleeper.filter(|_| servable) else {
        if let Some(place) = state.places.get_mut(&spot) {
            place.asleep = None;
        }
        return;
    };
    let (label, calm) = (sleeper.label.clone(), state.calm(&sleeper.uses));
    let queue = sleeper.uses[0].queue;
    let deaf = state.skies[usize::from(spot.server)].deaf.elapsed() < Duration::from_secs(15);
    let polls = state
        .processes
        .get(usize::from(sleeper.client))
        .is_some_and(|process| process.seat.hears == Hears::Polls);
    // Signs of the dead, of what a shutdown could not finish, and of futures that nobody polls hold others off for a few seconds.
    let signs = state.deaths || state.left || state.ops.values().any(|op| op.parked);
    let now = Instant::now();
    let place = state.place(spot);
    let alone = !place.mixed;
    let since = *place.asleep.get_or_insert(now);
    // Otherwise a lease has ended, which nobody tells.
    let told = since.saturating_duration_since(place.released) < Duration::from_millis(60)
        || place.released >= since;
    let limit = match queue {
        // P7: what died at the head costs the grace.
        _ if !alone => POLL,
        Queue::Fair if signs => Duration::from_millis(3_000),
        Queue::Fair => Duration::from_millis(1_500),
        _ if told && !deaf && !polls && !signs => Duration::from_millis(1_200),
        _ => POLL,
    };
    let limit = if deaf { limit.max(POLL) } else { limit };
    let slept = since.elapsed();
    if slept > limit && calm >= slept + Duration::from_secs(3) {
        let text = format!("P4: {spot:?} is free for {slept:?}, and {label} waits for it");
        state.report("Asleep", text);
    }
}

/// Nobody has it, it is not free, and somebody waits: for longer than any lease.
fn blocked(state: &mut State, spot: Spot, seen: &Seen) {
    let is_here = |uses: &[Use]| uses.iter().any(|used| used.spot == spot);
    let place = state.place(spot).clone();
    let waiter = state
        .ops
        .values()
        .find(|op| op.uses.len() == 1 && is_here(&op.uses) && is_live(state, op));
    let Some(waiter) = waiter else {
        state.place(spot).blocked = None;
        return;
    };
    let counted: i64 = state
        .held
        .values()
        .filter(|held| held.thing.is_held())
        .flat_map(|held| &held.uses)
        .filter(|used| used.spot == spot)
        .map(|used| match used.side {
            Side::Of(n) => i64::from(n),
            _ => 1,
        })
        .sum();
    let want = wants(waiter, spot).unwrap_or_default();
    let busy = state.ops.values().any(|op| {
        matches!(
            op.kind,
            OpKind::Try | OpKind::Guard | OpKind::Release | OpKind::Manage
        ) && is_here(&op.uses)
    });
    let several = state
        .ops
        .values()
        .any(|op| op.uses.len() > 1 && is_here(&op.uses));
    let withheld = match spot.family {
        Family::Hash => seen.exists && !seen.foreign && counted == 0,
        // Enough are free, and it does not get them.
        Family::Permits => seen.number >= want && counted == 0,
        Family::Leased => place
            .total
            .is_some_and(|total| total - place.java_permits - counted >= want),
        _ => false,
    };
    let now = Instant::now();
    let there = withheld && !busy && !several && !place.forgotten && now >= place.dead_until;
    let (label, calm) = (waiter.label.clone(), state.calm(&waiter.uses));
    let place = state.place(spot);
    if !there {
        place.blocked = None;
        return;
    }
    let since = (*place.blocked.get_or_insert(now)).max(place.granted);
    let limit = place.lease + POLL + Duration::from_secs(3);
    let stood = since.elapsed();
    if stood > limit && calm >= stood + Duration::from_secs(3) {
        let rule = if spot.family == Family::Permits {
            "Withheld"
        } else {
            "Blocked"
        };
        let text = format!(
            "P4: nobody holds {spot:?} for {stood:?}, the server has {seen:?}, and {label} waits for it"
        );
        state.report(rule, text);
    }
}

/// P7: a fair lock is not granted past a live waiter.
pub(crate) fn granted(state: &mut State, op: &Op) {
    let [used] = op.uses.as_slice() else { return };
    if used.queue != Queue::Fair || op.ask.owner.is_some() || op.was_parked {
        return;
    }
    let overtaken = state.ops.values().find(|other| {
        let head_start = op.started.saturating_duration_since(other.started);
        is_live(state, other)
            && other.uses.len() == 1
            && other.uses[0].spot == used.spot
            && other.uses[0].queue == Queue::Fair
            && other.ask.owner.is_none()
            && head_start > Duration::from_millis(400)
            && state.calm(&other.uses) >= other.started.elapsed() + Duration::from_secs(3)
    });
    if let Some(other) = overtaken {
        let text = format!("P7: {} was granted before {}", op.label, other.label);
        state.report("Overtaken", text);
    }
}

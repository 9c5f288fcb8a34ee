//! P4, P7, P9: judges how long calls wait, and in which order waiters are granted.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::generator::calls::TOLERANCE;
use crate::generator::keys::{self, Snapshot};
use crate::generator::program::WakeMode;
use crate::generator::resource::{Family, Queue, Resource, Side, Use};
use crate::generator::state::{Op, OpKind, State};

/// The time by which P9 lets a call exceed its deadline.
const SLACK: Duration = Duration::from_millis(50);

/// The longest time that a try takes without faults.
const PROMPT: Duration = Duration::from_secs(1);

/// The interval of the poll behind every wait, with its jitter.
const POLL: Duration = Duration::from_millis(6_500);

/// A waiter is starved after so many grants to others and this time.
const STARVED: (u64, Duration) = (400, Duration::from_secs(20));

/// The longest hold of another call that still counts as a short turn.
const LONG_HOLD: Duration = Duration::from_secs(2);

pub(crate) fn check(state: &mut State, seen: &BTreeMap<Resource, Snapshot>) {
    late(state);
    starved(state);
    for (resource, seen) in seen {
        asleep(state, *resource, seen);
        blocked(state, *resource, seen);
    }
}

/// P9: calls end within their bounds.
fn late(state: &mut State) {
    mark_hindered(state);
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
        let fault_free = state.fault_free(&op.uses) >= age + Duration::from_secs(3);
        if op.kind == OpKind::Try && age > PROMPT && fault_free && op.hindered.is_none() {
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
            && op.opts.timeout.is_none()
            && single
            && let Some(unanswered) = state.unanswered_since(op.uses[0].resource.server, op.client)
        {
            let began = unanswered.max(op.hindered.unwrap_or(op.started));
            let since = began.elapsed();
            // A stalled process cannot notice that the server is silent.
            let stalls = state.stalls.iter().filter(|(end, _)| *end > began);
            let stalled: Duration = stalls.map(|(_, length)| *length).sum();
            let settles = super::barriers::settles(op);
            if since > TOLERANCE + Duration::from_secs(4) + stalled + settles {
                broken = Some((
                    "OutageTolerance",
                    format!(
                        "{} still waits after {since:?} without the server; the tolerance is {TOLERANCE:?}",
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

/// Marks the calls that are behind a call of the same client that is not polled.
fn mark_hindered(state: &mut State) {
    let hindered: Vec<u64> = state
        .ops
        .iter()
        .filter(|(_, op)| {
            let mut uses = op.uses.iter();
            uses.any(|used| state.parked_at(used.resource, op.client))
        })
        .map(|(id, _)| *id)
        .collect();
    for id in hindered {
        if let Some(op) = state.ops.get_mut(&id) {
            op.hindered = Some(Instant::now());
        }
    }
}

/// A waiter is not skipped indefinitely while no other call holds its resources for long.
fn starved(state: &mut State) {
    let now = Instant::now();
    let mut broken = None;
    let mut counted = Vec::new();
    for (id, op) in &state.ops {
        if !is_live(state, op) {
            continue;
        }
        let records = op
            .uses
            .iter()
            .filter_map(|used| state.records.get(&used.resource));
        let grants: u64 = records.map(|record| record.grants).sum();
        // Documented: a steady stream of readers may delay a writer indefinitely.
        let documented = matches!(op.side_and_queue(), (Side::Exclusive, Queue::Unordered))
            && op
                .uses
                .iter()
                .any(|used| used.resource.family == Family::Hash)
            && state.held.values().any(|held| {
                held.uses
                    .iter()
                    .any(|used| used.side == Side::Shared && op.uses[0].resource == used.resource)
            });
        // A round admits the parties that arrive first. The others have no right to the next round.
        let at_barrier = op.uses.iter().any(|used| used.resource.family.is_barrier());
        // Fair locks and other locks exclude each other, but do not wake each other.
        let mixed = op.uses.iter().any(|used| {
            let record = state.records.get(&used.resource);
            record.is_some_and(|record| record.mixed)
        });
        if documented || at_barrier || mixed || op.uses.iter().any(|used| is_withheld(state, *used))
        {
            counted.push((*id, None));
            continue;
        }
        let (since, before) = op.starving.unwrap_or((now, grants));
        let passed = grants - before;
        if passed >= STARVED.0 && now.duration_since(since) > STARVED.1 {
            broken = Some(format!(
                "{} has waited for {:?}, and {passed} others have been granted",
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

/// Returns whether a long hold or a dead process withholds `wanted`.
fn is_withheld(state: &State, wanted: Use) -> bool {
    let at = |uses: &[Use]| {
        uses.iter()
            .find(|used| used.resource == wanted.resource)
            .map(|used| used.side)
    };
    let mut long = state
        .held
        .values()
        .filter(|held| held.since.elapsed() > LONG_HOLD)
        .filter_map(|held| at(&held.uses));
    match wanted.side {
        Side::Exclusive | Side::Quorum => long.next().is_some(),
        // A lock may go from one holder to the next without being free in between.
        Side::NoHold => true,
        Side::Shared => long.any(|side| side != Side::Shared),
        // If the request exceeds the total, or the total is unknown, the call waits until permits are added.
        Side::Count(n) => {
            let record = state.records.get(&wanted.resource);
            let Some(total) = record.and_then(|record| record.total) else {
                return true;
            };
            let kept: i64 = long
                .map(|side| match side {
                    Side::Count(n) => i64::from(n),
                    _ => 0,
                })
                .sum();
            total - kept - held_by_dead(state, wanted.resource) < i64::from(n)
        }
    }
}

/// Permits without a lease stay with dead processes.
fn held_by_dead(state: &State, resource: Resource) -> i64 {
    if resource.family != Family::Permits || !state.deaths {
        return 0;
    }
    let seen = keys::snapshot(&state.engines[usize::from(resource.server)], resource);
    let dead = |owner: &str| {
        let mut processes = state.processes.iter();
        !processes.any(|process| !process.killed && owner.starts_with(&process.id))
    };
    let lost = seen.holders.iter().filter(|(owner, _)| dead(owner));
    lost.map(|(_, count)| count).sum()
}

impl Op {
    fn side_and_queue(&self) -> (Side, Queue) {
        self.uses
            .first()
            .map_or((Side::Exclusive, Queue::Unordered), |used| {
                (used.side, used.queue)
            })
    }
}

/// Returns whether the call waits, is polled, and is not blocked by another call of its client.
pub(super) fn is_live(state: &State, op: &Op) -> bool {
    let process = |used: &Use| state.processes.get(usize::from(used.client));
    op.kind == OpKind::Wait
        && !op.was_parked
        && op.uses.iter().all(|used| {
            process(used).is_some_and(|process| !process.killed && !process.closing)
                && !state.parked_at(used.resource, used.client)
        })
        && !state.ops.values().any(|other| {
            // Another call of the same owner has the turn, and is not polled, or is behind a call that is not polled.
            let same = |used: &Use| op.uses.iter().any(|own| own.resource == used.resource);
            let in_its_way = |used: &Use| state.parked_at(used.resource, other.client);
            other.opts.owner.is_some()
                && other.opts.owner == op.opts.owner
                && other.uses.iter().any(same)
                && (other.parked || other.uses.iter().any(in_its_way))
        })
}

fn wants(op: &Op, resource: Resource) -> Option<i64> {
    let used = op.uses.iter().find(|used| used.resource == resource)?;
    Some(match used.side {
        Side::Count(n) => i64::from(n),
        _ => 0,
    })
}

/// P4: a free resource is soon acquired by a waiter.
fn asleep(state: &mut State, resource: Resource, seen: &Snapshot) {
    let waiting: Vec<&Op> = state
        .ops
        .values()
        .filter(|op| op.kind == OpKind::Wait && wants(op, resource).is_some())
        .collect();
    let most = waiting.iter().filter_map(|op| wants(op, resource)).max();
    let servable = match resource.family {
        Family::Hash | Family::Latch => !seen.exists,
        Family::Permits | Family::Leased => {
            !seen.foreign && most.is_some_and(|most| seen.number >= most)
        }
        // Limiters and barriers have their own judges: no single number shows whether a waiter can be served.
        Family::Rate | Family::Bucket | Family::Barrier | Family::Double => false,
    };
    let sleeper = waiting
        .iter()
        .find(|op| op.uses.len() == 1 && is_live(state, op));
    let Some(sleeper) = sleeper.filter(|_| servable) else {
        if let Some(record) = state.records.get_mut(&resource) {
            record.asleep = None;
        }
        return;
    };
    let (label, fault_free) = (sleeper.label.clone(), state.fault_free(&sleeper.uses));
    let queue = sleeper.uses[0].queue;
    let messages_lost = state.fault_states[usize::from(resource.server)]
        .messages_lost
        .elapsed()
        < Duration::from_secs(15);
    let polls = state
        .processes
        .get(usize::from(sleeper.client))
        .is_some_and(|process| process.spec.wake_mode == WakeMode::Polls);
    // Entries of dead processes, of incomplete shutdowns and of futures that are not polled delay other waiters for a few seconds.
    let signs = state.deaths || state.left || state.ops.values().any(|op| op.parked);
    let now = Instant::now();
    let record = state.record(resource);
    let alone = !record.mixed;
    let since = *record.asleep.get_or_insert(now);
    // Otherwise a lease has ended, and no message was published.
    let notified = since.saturating_duration_since(record.released) < Duration::from_millis(60)
        || record.released >= since;
    let limit = match queue {
        // P7: dead waiters at the head of the queue delay the others by the grace.
        _ if !alone => POLL,
        Queue::Fair if signs => Duration::from_millis(3_000),
        Queue::Fair => Duration::from_millis(1_500),
        _ if notified && !messages_lost && !polls && !signs => Duration::from_millis(1_200),
        _ => POLL,
    };
    let limit = if messages_lost {
        limit.max(POLL)
    } else {
        limit
    };
    let slept = since.elapsed();
    if slept > limit && fault_free >= slept + Duration::from_secs(3) {
        let text =
            format!("P4: {resource:?} has been free for {slept:?}, and {label} waits for it");
        state.report("Asleep", text);
    }
}

/// P4: a resource without a known holder is granted to a waiter after the longest lease.
fn blocked(state: &mut State, resource: Resource, seen: &Snapshot) {
    let is_here = |uses: &[Use]| uses.iter().any(|used| used.resource == resource);
    let record = state.record(resource).clone();
    let waiter = state
        .ops
        .values()
        .find(|op| op.uses.len() == 1 && is_here(&op.uses) && is_live(state, op));
    let Some(waiter) = waiter else {
        state.record(resource).blocked = None;
        return;
    };
    let counted: i64 = state
        .held
        .values()
        .filter(|held| held.acquired.is_held())
        .flat_map(|held| &held.uses)
        .filter(|used| used.resource == resource)
        .map(|used| match used.side {
            Side::Count(n) => i64::from(n),
            _ => 1,
        })
        .sum();
    let want = wants(waiter, resource).unwrap_or_default();
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
    let withheld = match resource.family {
        Family::Hash => seen.exists && !seen.foreign && counted == 0,
        // Enough permits are free, but the waiter does not get them.
        Family::Permits => seen.number >= want && counted == 0,
        Family::Leased => record
            .total
            .is_some_and(|total| total - record.java_permits - counted >= want),
        _ => false,
    };
    let now = Instant::now();
    let there = withheld && !busy && !several && !record.forgotten && now >= record.dead_until;
    let (label, fault_free) = (waiter.label.clone(), state.fault_free(&waiter.uses));
    let record = state.record(resource);
    if !there {
        record.blocked = None;
        return;
    }
    let since = (*record.blocked.get_or_insert(now)).max(record.granted);
    let limit = record.lease + POLL + Duration::from_secs(3);
    let lasted = since.elapsed();
    if lasted > limit && fault_free >= lasted + Duration::from_secs(3) {
        let rule = if resource.family == Family::Permits {
            "Withheld"
        } else {
            "Blocked"
        };
        let text = format!(
            "P4: {resource:?} has had no holder for {lasted:?}, the server has {seen:?}, and {label} waits for it"
        );
        state.report(rule, text);
    }
}

/// P7: a fair lock is not granted past a live waiter that arrived earlier.
pub(crate) fn granted(state: &mut State, op: &Op) {
    let [used] = op.uses.as_slice() else { return };
    if used.queue != Queue::Fair || op.opts.owner.is_some() || op.was_parked {
        return;
    }
    let overtaken = state.ops.values().find(|other| {
        let head_start = op.started.saturating_duration_since(other.started);
        is_live(state, other)
            && other.uses.len() == 1
            && other.uses[0].resource == used.resource
            && other.uses[0].queue == Queue::Fair
            && other.opts.owner.is_none()
            && head_start > Duration::from_millis(400)
            && state.fault_free(&other.uses) >= other.started.elapsed() + Duration::from_secs(3)
    });
    if let Some(other) = overtaken {
        let text = format!("P7: {} was granted before {}", op.label, other.label);
        state.report("Overtaken", text);
    }
}

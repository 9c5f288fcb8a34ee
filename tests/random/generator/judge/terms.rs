//! Judges elections: after a hand-over the named candidate comes first, observers see terms in order, and candidates belong to campaigns.

use std::time::Duration;

use stanchion::election::{Leader, Observed};
use stanchion::embedded::Reply;
use tokio::time::Instant;

use crate::generator::guards::Acquired;
use crate::generator::keys::{self, key_for, run};
use crate::generator::program::{Target, WakeMode};
use crate::generator::resource::Resource;
use crate::generator::state::{Held, Op, OpKind, State};

/// The time that clean-ups need after a fault: to reconnect, and for requests in flight to end.
const FAULT_FREE: Duration = Duration::from_secs(7);

/// The time within which an observer knows the leader without faults: the longest interval between two polls, and a margin.
const KNOWS: Duration = Duration::from_secs(18);

/// The time within which an observer learns of a term from its message.
const ANNOUNCED: Duration = Duration::from_secs(3);

pub(crate) fn check(state: &mut State) {
    let mut resources: Vec<Resource> = state.campaigns.iter().copied().collect();
    resources.retain(|resource| state.records.contains_key(resource));
    for resource in resources {
        candidates(state, resource);
    }
    blind(state);
}

/// An observer learns of every leader that stays: by a message, or by its poll.
fn blind(state: &mut State) {
    let mut missed = None;
    for number in 0..state.tracking.observers.len() {
        let it = &state.tracking.observers[number];
        let (resource, client) = (it.resource, it.client);
        let server = usize::from(resource.server);
        let seen = keys::snapshot(&state.engines[server], resource);
        let known = it.last.as_ref().map(|(id, ..)| id).filter(|_| !it.vacant);
        let process = &state.processes[usize::from(client)];
        let ended = it.ended || process.killed || process.closing || seen.foreign;
        let unknown = seen.holders.first().map(|(owner, _)| owner);
        let unknown = unknown.filter(|owner| known != Some(*owner) && !ended);
        let messages = state.fault_states[server].messages_lost.elapsed() > KNOWS;
        // Messages do not announce holders of the plain lock.
        let is_term = |held: &Held| {
            matches!(&*held.acquired, Acquired::Term(_))
                && held.acquired.owner().as_ref() == unknown
        };
        let announced = state.held.values().any(is_term);
        let limit = if announced && messages && process.spec.wake_mode == WakeMode::Messages {
            ANNOUNCED
        } else {
            KNOWS
        };
        let fault_free = state.fault_free_between(resource.server, client);
        let since = match (&it.missed, unknown) {
            (Some((owner, since)), Some(now)) if owner == now => *since,
            _ => Instant::now(),
        };
        if let Some(owner) = unknown
            && since.elapsed() > limit
            && fault_free > limit + Duration::from_secs(3)
        {
            missed = Some(format!(
                "observer {number} has not seen {owner} for {limit:?}"
            ));
        }
        state.tracking.observers[number].missed = unknown.map(|owner| (owner.clone(), since));
    }
    if let Some(text) = missed {
        state.report("Blind", text);
    }
}

/// P3: each candidate on the server belongs to a campaign.
fn candidates(state: &mut State, resource: Resource) {
    let engine = state.engines[usize::from(resource.server)].clone();
    let key = key_for("stanchion_candidate_seen", resource.name);
    let command = ["ZRANGE", &key, "0", "-1"];
    let Reply::Array(owners) = run(&engine, resource.database, &command) else {
        return;
    };
    let mut orphan = None;
    for owner in owners {
        let Reply::Bulk(owner) = owner else { continue };
        let owner = String::from_utf8_lossy(&owner).into_owned();
        let mut processes = state.processes.iter();
        let Some(client) = processes.position(|process| owner.starts_with(&process.id)) else {
            continue;
        };
        let process = &state.processes[client];
        let client = u8::try_from(client).unwrap_or(u8::MAX);
        let ours = |op: &Op| op.uses.iter().any(|used| used.resource == resource);
        let last_change = state
            .records
            .get(&resource)
            .map(|record| record.last_change);
        let settled = last_change.is_some_and(|at| at.elapsed() > Duration::from_millis(1_200));
        if process.killed
            || process.closing
            || process.client.is_none()
            || !settled
            || state.fault_free_between(resource.server, client) < FAULT_FREE
            || state.ops.values().any(ours)
        {
            continue;
        }
        orphan = Some(owner);
    }
    if let Some(owner) = orphan {
        let text =
            format!("P3: {owner} is a candidate at {resource:?}, and no campaign is under way");
        state.report("Orphan", text);
    }
}

/// Judges an election after a hand-over.
pub(crate) fn elected(state: &mut State, op: &Op, target: &Target) {
    let Some(used) = op.uses.first().copied() else {
        return;
    };
    let Some(heir) = state.tracking.heirs.get(&used.resource).copied() else {
        return;
    };
    let now = Instant::now();
    let over = heir.until.is_some_and(|until| now >= until);
    let waits = |other: &Op| {
        other.client == heir.client
            && other.kind == OpKind::Wait
            && !other.was_parked
            && other.started < heir.since
            && other.uses.iter().any(|it| it.resource == used.resource)
    };
    let left = state.ended.iter().any(|(client, base, at)| {
        *client == heir.client && *base == used.resource.base() && *at >= heir.since
    });
    let fault_free = state.fault_free(&op.uses) > now.duration_since(heir.since) + FAULT_FREE;
    if !over
        && used.client != heir.client
        && matches!(target, Target::Leader(..))
        && !op.was_parked
        && state.ops.values().any(waits)
        && !left
        && fault_free
    {
        let text = format!(
            "{} was elected {:?} after a leader handed over to client {}, which waits",
            op.label,
            now.duration_since(heir.since),
            heir.client
        );
        state.report("Usurped", text);
    }
    state.tracking.heirs.remove(&used.resource);
}

/// The number in a leader's value: the values are `v0`, `v1` and so on.
fn number(leader: &Leader) -> u64 {
    let value = leader.value.as_deref().unwrap_or_default();
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.trim_start_matches('v').parse().unwrap_or_default()
}

/// Judges an event of an observer.
pub(crate) fn observed(state: &mut State, observer: usize, observed: &Observed) {
    let shown = match observed {
        Observed::Leader(leader) => format!("{} with {:?}", leader.id, leader.value),
        Observed::Vacant => "no leader".into(),
        _ => "unknown".into(),
    };
    state.log(format!("observer {observer}: {shown}"));
    let Some(it) = state.tracking.observers.get_mut(observer) else {
        return;
    };
    it.vacant = matches!(observed, Observed::Vacant);
    let Observed::Leader(leader) = observed else {
        return;
    };
    let token = leader.token.map(stanchion::FencingToken::get);
    let number = number(leader);
    let broken = match &it.last {
        Some((id, _, last)) if *id == leader.id && number < *last => Some(format!(
            "observer {observer} saw value {last} of {id}, and then {number}"
        )),
        // The token of a holder of the plain lock is not known.
        Some((id, Some(last), _)) if *id != leader.id && token.is_some_and(|it| it <= *last) => {
            Some(format!(
                "observer {observer} saw token {token:?} after {last}"
            ))
        }
        _ => None,
    };
    let last = token.or_else(|| it.last.as_ref().and_then(|(_, token, _)| *token));
    it.last = Some((leader.id.clone(), last, number));
    if let Some(text) = broken {
        state.report("Backwards", text);
    }
}

/// At the end there is no leader, and all observers must know that.
pub(crate) fn at_the_end(state: &mut State) {
    let blind = state.tracking.observers.iter().position(|it| {
        let process = &state.processes[usize::from(it.client)];
        let seen = keys::snapshot(&state.engines[usize::from(it.resource.server)], it.resource);
        !it.ended
            && !it.vacant
            && !seen.exists
            && !process.killed
            && !process.closing
            && state.fault_free_between(it.resource.server, it.client)
                > KNOWS + Duration::from_secs(3)
    });
    if let Some(number) = blind {
        let text = format!("observer {number} does not know that there is no leader");
        state.report("Blind", text);
    }
}

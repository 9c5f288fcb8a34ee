//! Elections: heirs come first, those who look on see terms in their order, and candidates have somebody behind them.

use std::time::Duration;

use stanchion::embedded::Reply;
use stanchion::{Leader, Observed};
use tokio::time::Instant;

use crate::keys::{self, beside, run};
use crate::program::What;
use crate::spot::Spot;
use crate::state::{Op, OpKind, State};

/// Clean-ups need their connections back, and the end of what is under way.
const CALM: Duration = Duration::from_secs(7);

/// The time after which an observer without faults knows the leader: the longest silence between two looks, and something.
const KNOWS: Duration = Duration::from_secs(18);

pub(crate) fn look(state: &mut State) {
    let mut spots: Vec<Spot> = state.campaigns.iter().copied().collect();
    spots.retain(|spot| state.places.contains_key(spot));
    for spot in spots {
        candidates(state, spot);
    }
}

/// P3: a candidate on the server belongs to a campaign.
fn candidates(state: &mut State, spot: Spot) {
    let engine = state.engines[usize::from(spot.server)].clone();
    let key = beside("stanchion_candidate_seen", spot.name);
    let command = ["ZRANGE", &key, "0", "-1"];
    let Reply::Array(owners) = run(&engine, spot.database, &command) else {
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
        let ours = |op: &Op| op.uses.iter().any(|used| used.spot == spot);
        let stirred = state.places.get(&spot).map(|place| place.stirred);
        let settled = stirred.is_some_and(|at| at.elapsed() > Duration::from_millis(1_200));
        if process.killed
            || process.closing
            || process.client.is_none()
            || !settled
            || state.calm_of(spot.server, client) < CALM
            || state.ops.values().any(ours)
        {
            continue;
        }
        orphan = Some(owner);
    }
    if let Some(owner) = orphan {
        let text = format!("P3: {owner} is a candidate at {spot:?}, and no campaign is under way");
        state.report("Orphan", text);
    }
}

/// Somebody was elected.
pub(crate) fn elected(state: &mut State, op: &Op, what: &What) {
    let Some(used) = op.uses.first().copied() else {
        return;
    };
    let Some(heir) = state.books.heirs.get(&used.spot).copied() else {
        return;
    };
    let now = Instant::now();
    let over = heir.until.is_some_and(|until| now >= until);
    let waits = |other: &Op| {
        other.client == heir.client
            && other.kind == OpKind::Wait
            && !other.was_parked
            && other.started < heir.since
            && other.uses.iter().any(|it| it.spot == used.spot)
    };
    let left = state.ended.iter().any(|(client, base, at)| {
        *client == heir.client && *base == used.spot.base() && *at >= heir.since
    });
    let calm = state.calm(&op.uses) > now.duration_since(heir.since) + CALM;
    if !over
        && used.client != heir.client
        && matches!(what, What::Leader(..))
        && !op.was_parked
        && state.ops.values().any(waits)
        && !left
        && calm
    {
        let text = format!(
            "{} was elected {:?} after a leader stepped down for client {}, which waits",
            op.label,
            now.duration_since(heir.since),
            heir.client
        );
        state.report("Usurped", text);
    }
    state.books.heirs.remove(&used.spot);
}

/// The number in a value of a program.
fn number(leader: &Leader) -> u64 {
    let value = leader.value.as_deref().unwrap_or_default();
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.trim_start_matches('v').parse().unwrap_or_default()
}

/// One who looks on was told something.
pub(crate) fn observed(state: &mut State, lookout: usize, observed: &Observed) {
    let shown = match observed {
        Observed::Leader(leader) => format!("{} with {:?}", leader.id, leader.value),
        Observed::Vacant => "nobody".into(),
        _ => "unknown".into(),
    };
    state.tell(format!("observer {lookout}: {shown}"));
    let Some(it) = state.books.lookouts.get_mut(lookout) else {
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
            "observer {lookout} saw value {last} of {id}, and then {number}"
        )),
        // Of holders of the plain lock no token is known.
        Some((id, Some(last), _)) if *id != leader.id && token.is_some_and(|it| it <= *last) => {
            Some(format!(
                "observer {lookout} saw token {token:?} after {last}"
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

/// Nobody leads any more, and everybody who looks on must know.
pub(crate) fn at_the_end(state: &mut State) {
    let blind = state.books.lookouts.iter().position(|it| {
        let process = &state.processes[usize::from(it.client)];
        let seen = keys::look(&state.engines[usize::from(it.spot.server)], it.spot);
        !it.ended
            && !it.vacant
            && !seen.exists
            && !process.killed
            && !process.closing
            && state.calm_of(it.spot.server, it.client) > KNOWS + Duration::from_secs(3)
    });
    if let Some(number) = blind {
        let text = format!("observer {number} does not know that nobody leads");
        state.report("Blind", text);
    }
}

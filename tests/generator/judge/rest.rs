//! P3 and what adds up: what is on the servers when nobody does anything about it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::keys::{self, Seen};
use crate::spot::{Family, Spot, Use};
use crate::state::{OpKind, State};

/// Clean-ups need their connections back, and the end of what is under way.
const CALM: Duration = Duration::from_secs(7);

/// A round trip, generously.
const SETTLED: Duration = Duration::from_millis(1_200);

pub(crate) fn look(state: &mut State, seen: &BTreeMap<Spot, Seen>) {
    for (spot, seen) in seen {
        match spot.family {
            Family::Hash => counts(state, *spot, seen),
            Family::Permits | Family::Leased => sums(state, *spot, seen),
            _ => {}
        }
    }
    after_shutdowns(state);
}

/// The hold count of a lock is the number of guards: the count that Redisson reads, and no more and no fewer holders.
fn counts(state: &mut State, spot: Spot, seen: &Seen) {
    let now = Instant::now();
    let here = |uses: &[Use]| {
        uses.iter().any(|used| {
            used.spot.server == spot.server
                && used.spot.database == spot.database
                && used.spot.base() == spot.base()
        })
    };
    let moving = state.ops.values().any(|op| {
        // One that wants several holds the first ones while it waits for the next.
        let takes = !matches!(op.kind, OpKind::Wait | OpKind::Work);
        here(&op.uses) && (op.parked || takes || op.uses.len() > 1)
    });
    let held: Vec<_> = state
        .held
        .values()
        .filter(|held| held.uses.iter().any(|used| used.spot == spot))
        .collect();
    let odd = held
        .iter()
        .any(|held| held.tainted || held.forgotten || !held.thing.is_held())
        || held
            .iter()
            .any(|held| held.uses.iter().any(|used| is_closing(state, used.client)));
    // A multi-lock may hold one name more than once, through several clients of its owner.
    let counts = held.iter().flat_map(|held| &held.uses);
    let guards = counts.filter(|used| used.spot == spot).count();
    let guards = i64::try_from(guards).unwrap_or(i64::MAX);
    // A dead reader stays beside live ones until somebody looks; it keeps nobody out.
    let dead = |who: &str| {
        state
            .processes
            .iter()
            .any(|process| (process.killed || process.closing) && who.starts_with(&process.id))
    };
    let counted: i64 = seen
        .holders
        .iter()
        .filter(|(who, _)| guards == 0 || !dead(who))
        .map(|(_, count)| count)
        .sum();
    let waiters = state.ops.values().any(|op| here(&op.uses));
    let calm = state.calm_over(spot.server);
    let place = state.place(spot);
    let quiet = !moving
        && !odd
        && !place.forgotten
        && !place.of_quorum
        && now >= place.dead_until
        && !seen.foreign
        && !seen.has(crate::java::OWNER)
        && place.stirred.elapsed() >= SETTLED
        && calm >= CALM;
    if !quiet || counted == guards {
        place.miscounted = None;
        return;
    }
    // What waits may have been granted just now.
    let patience = if waiters {
        Duration::from_millis(500)
    } else {
        Duration::ZERO
    };
    if place.miscounted.get_or_insert(now).elapsed() < patience {
        return;
    }
    let (rule, text) = if guards == 0 {
        (
            "Orphan",
            format!(
                "P3: nobody has {spot:?}, and the server has {:?}",
                seen.holders
            ),
        )
    } else {
        (
            "Count",
            format!(
                "{guards} guards hold {spot:?}, and the server counts {:?}",
                seen.holders
            ),
        )
    };
    state.report(rule, text);
}

/// Permits are neither minted nor lost.
fn sums(state: &mut State, spot: Spot, seen: &Seen) {
    let managed = state
        .ops
        .values()
        .any(|op| op.kind == OpKind::Manage && op.uses.iter().any(|used| used.spot == spot));
    let counted: i64 = state
        .held
        .values()
        .filter(|held| !held.tainted)
        .filter(|held| spot.family == Family::Permits || held.thing.is_held())
        .flat_map(|held| &held.uses)
        .filter(|used| used.spot == spot)
        .map(|used| match used.side {
            crate::spot::Side::Of(n) => i64::from(n),
            _ => 0,
        })
        .sum();
    let booked = match spot.family {
        Family::Permits => seen.counted(),
        _ => seen.leases,
    };
    let place = state.place(spot);
    let Some(total) = place.total.filter(|_| !managed && !seen.foreign) else {
        return;
    };
    let java = place.java_permits;
    let reduced = place.reduced;
    if seen.number + counted + java > total {
        let text = format!(
            "{} permits are free at {spot:?}, {counted} are held, and there are {total}",
            seen.number
        );
        state.report("Minted", text);
    } else if seen.number + booked + java < total && !reduced {
        let text = format!(
            "{} permits are free at {spot:?}, {booked} are booked, and there are {total}",
            seen.number
        );
        state.report("Vanished", text);
    }
}

/// Keys that tell nothing of holds.
fn is_sign(key: &str) -> bool {
    [
        "stanchion_semaphore_slow",
        "stanchion_semaphore_wake",
        "stanchion_wake",
        "stanchion_rwlock_wake",
        "stanchion_fair_live",
        "stanchion_once",
        "stanchion_fence",
        "stanchion_bucket",
        "stanchion_limiter_written",
        "stanchion_limiter_own",
        "stanchion_job_last",
        "stanchion_heir",
        "stanchion_origin",
    ]
    .iter()
    .any(|sign| key.starts_with(sign))
}

/// The traces of a client on the servers.
pub(crate) fn of_client(state: &State, client: u8) -> Vec<String> {
    let process = &state.processes[usize::from(client)];
    let engine = &state.engines[usize::from(process.seat.server)];
    keys::dump(engine, process.seat.database)
        .into_iter()
        .filter(|line| !is_sign(line) && line.contains(&process.id))
        // Said so in the book: a shutdown does not release what was detached.
        .filter(|line| {
            let mut slips = state.books.slips.iter();
            !slips.any(|slip| line.contains(slip.ticket.owner()))
        })
        // A job at rest has an end, and no process.
        .filter(|line| {
            let mut jobs = state.books.jobs.iter();
            !line.contains(", \"0\")]") || !jobs.any(|job| line.starts_with(&format!("{job} = ")))
        })
        .collect()
}

/// A shutdown that said that nothing is left.
fn after_shutdowns(state: &mut State) {
    for (client, at) in state.clean.clone() {
        let left = of_client(state, client);
        if !left.is_empty() {
            let text = format!(
                "the shutdown of client {client} was clean, {:?} ago, and the server has {left:?}",
                at.elapsed()
            );
            state.report("Unclean", text);
        }
        let alive = state.held.iter().find(|(_, held)| {
            held.thing.is_held()
                && held.thing.runs()
                && held.uses.iter().all(|used| used.client == client)
        });
        if let Some((id, held)) = alive {
            let text = format!(
                "client {client} was shut down cleanly, and its guard {id} ({:?}) says that it is held",
                held.what
            );
            state.report("Unclean", text);
        }
    }
}

fn is_closing(state: &State, client: u8) -> bool {
    let process = state.processes.get(usize::from(client));
    process.is_none_or(|process| process.closing)
}

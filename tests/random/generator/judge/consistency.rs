//! P3: judges the data on the servers: hold counts, sums of permits, and traces of clients that were shut down.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::generator::keys::{self, Snapshot};
use crate::generator::resource::{Family, Resource, Use};
use crate::generator::state::{OpKind, State};

/// The time that clean-ups need after a fault: to reconnect, and for requests in flight to end.
const FAULT_FREE: Duration = Duration::from_secs(7);

/// A round trip, with a generous margin.
const SETTLED: Duration = Duration::from_millis(1_200);

pub(crate) fn check(state: &mut State, seen: &BTreeMap<Resource, Snapshot>) {
    for (resource, seen) in seen {
        match resource.family {
            Family::Hash => counts(state, *resource, seen),
            Family::Permits | Family::Leased => sums(state, *resource, seen),
            _ => {}
        }
    }
    after_shutdowns(state);
}

/// The hold count of a lock equals the number of its guards. Redisson reads the same count.
fn counts(state: &mut State, resource: Resource, seen: &Snapshot) {
    let now = Instant::now();
    let here = |uses: &[Use]| {
        uses.iter().any(|used| {
            used.resource.server == resource.server
                && used.resource.database == resource.database
                && used.resource.base() == resource.base()
        })
    };
    let moving = state.ops.values().any(|op| {
        // A call for several locks holds the first ones while it waits for the next.
        let takes = !matches!(op.kind, OpKind::Wait | OpKind::Work);
        here(&op.uses) && (op.parked || takes || op.uses.len() > 1)
    });
    let held: Vec<_> = state
        .held
        .values()
        .filter(|held| held.uses.iter().any(|used| used.resource == resource))
        .collect();
    let odd = held
        .iter()
        .any(|held| held.tainted || held.forgotten || !held.acquired.is_held())
        || held
            .iter()
            .any(|held| held.uses.iter().any(|used| is_closing(state, used.client)));
    // A multi-lock may hold one name several times, through several clients of its owner.
    let counts = held.iter().flat_map(|held| &held.uses);
    let guards = counts.filter(|used| used.resource == resource).count();
    let guards = i64::try_from(guards).unwrap_or(i64::MAX);
    // The entry of a dead reader stays next to live readers until a later request removes it. Such an entry blocks no request.
    let dead = |owner: &str| {
        state
            .processes
            .iter()
            .any(|process| (process.killed || process.closing) && owner.starts_with(&process.id))
    };
    let counted: i64 = seen
        .holders
        .iter()
        .filter(|(owner, _)| guards == 0 || !dead(owner))
        .map(|(_, count)| count)
        .sum();
    let waiters = state.ops.values().any(|op| here(&op.uses));
    let fault_free = state.fault_free_server(resource.server);
    let record = state.record(resource);
    let quiet = !moving
        && !odd
        && !record.forgotten
        && !record.of_quorum
        && now >= record.dead_until
        && !seen.foreign
        && !seen.has(crate::generator::java::OWNER)
        && record.last_change.elapsed() >= SETTLED
        && fault_free >= FAULT_FREE;
    if !quiet || counted == guards {
        record.miscounted = None;
        return;
    }
    // A waiting call may have been granted just now.
    let patience = if waiters {
        Duration::from_millis(500)
    } else {
        Duration::ZERO
    };
    if record.miscounted.get_or_insert(now).elapsed() < patience {
        return;
    }
    let (rule, text) = if guards == 0 {
        (
            "Orphan",
            format!(
                "P3: no guard holds {resource:?}, and the server has {:?}",
                seen.holders
            ),
        )
    } else {
        (
            "Count",
            format!(
                "{guards} guards hold {resource:?}, and the server counts {:?}",
                seen.holders
            ),
        )
    };
    state.report(rule, text);
}

/// Permits are neither created nor lost.
fn sums(state: &mut State, resource: Resource, seen: &Snapshot) {
    let managed = state.ops.values().any(|op| {
        op.kind == OpKind::Manage && op.uses.iter().any(|used| used.resource == resource)
    });
    let counted: i64 = state
        .held
        .values()
        .filter(|held| !held.tainted)
        .filter(|held| resource.family == Family::Permits || held.acquired.is_held())
        .flat_map(|held| &held.uses)
        .filter(|used| used.resource == resource)
        .map(|used| match used.side {
            crate::generator::resource::Side::Count(n) => i64::from(n),
            _ => 0,
        })
        .sum();
    let booked = match resource.family {
        Family::Permits => seen.counted(),
        _ => seen.leases,
    };
    let record = state.record(resource);
    let Some(total) = record.total.filter(|_| !managed && !seen.foreign) else {
        return;
    };
    let java = record.java_permits;
    let reduced = record.reduced;
    if seen.number + counted + java > total {
        let text = format!(
            "{} permits are free at {resource:?}, {counted} are held, and there are {total}",
            seen.number
        );
        state.report("Minted", text);
    } else if seen.number + booked + java < total && !reduced {
        let text = format!(
            "{} permits are free at {resource:?}, {booked} are booked, and there are {total}",
            seen.number
        );
        state.report("Vanished", text);
    }
}

/// Returns whether a key has no information about holds.
fn is_sign(key: &str) -> bool {
    [
        "stanchion_semaphore_slow",
        "stanchion_semaphore_wake",
        "stanchion_wake",
        "stanchion_rwlock_wake",
        "stanchion_fair_wake",
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

/// The entries of a client on its server.
pub(crate) fn of_client(state: &State, client: u8) -> Vec<String> {
    let process = &state.processes[usize::from(client)];
    let engine = &state.engines[usize::from(process.spec.server)];
    keys::dump(engine, process.spec.database)
        .into_iter()
        .filter(|line| !is_sign(line) && line.contains(&process.id))
        // Documented: a shutdown does not release detached holds.
        .filter(|line| {
            let mut detached_holds = state.tracking.detached_holds.iter();
            !detached_holds.any(|detached_hold| line.contains(detached_hold.ticket.owner()))
        })
        // The hold of a resting job has an end, and belongs to no process.
        .filter(|line| {
            let mut jobs = state.tracking.jobs.iter();
            !line.contains(", \"0\")]") || !jobs.any(|job| line.starts_with(&format!("{job} = ")))
        })
        .collect()
}

/// P8: after a clean shutdown the server has no entry of the client, and no guard reports that it is held.
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
            held.acquired.is_held()
                && held.acquired.runs()
                && held.uses.iter().all(|used| used.client == client)
        });
        if let Some((id, held)) = alive {
            let text = format!(
                "client {client} was shut down cleanly, and its guard {id} ({:?}) reports that it is held",
                held.target
            );
            state.report("Unclean", text);
        }
    }
}

fn is_closing(state: &State, client: u8) -> bool {
    let process = state.processes.get(usize::from(client));
    process.is_none_or(|process| process.closing)
}

//! P8: the report of a shutdown names all holds that are left.

use std::collections::BTreeSet;
use std::time::Duration;

use stanchion::ShutdownReport;
use tokio::time::Instant;

use crate::generator::keys;
use crate::generator::program::ClientSpec;
use crate::generator::resource::Family;
use crate::generator::state::{Actor, Held, State};

pub(crate) fn ended(state: &mut State, client: u8, spec: ClientSpec, report: &ShutdownReport) {
    let now = Instant::now();
    let mine: Vec<_> = state
        .held
        .values()
        .filter(|held| held.uses.iter().any(|used| used.client == client))
        .collect();
    let alive: BTreeSet<_> = mine
        .iter()
        .filter(|held| {
            let own = held.uses.iter().all(|used| used.client == client);
            let spent = matches!(
                &*held.acquired,
                crate::generator::guards::Acquired::Grant(_)
            );
            own && !spent
                && !is_of_another(state, held, client)
                && !held.tainted
                && held.over.is_none()
        })
        .map(|held| held.actor)
        .collect();
    let reported = report.abandoned.len();
    if reported < alive.len() {
        let text = format!(
            "the shutdown of client {client} reports {reported} abandoned holds; {} owners had live guards",
            alive.len()
        );
        state.report("Unclean", text);
    }
    // Holds that the shutdown leaves end with their leases, by the server's clock.
    let leases = state.records.values().map(|record| record.lease).max();
    let end = now + leases.unwrap_or_default() + Duration::from_secs(4);
    let clean = report.is_clean();
    for held in state.held.values_mut() {
        if held.uses.iter().any(|used| used.client == client) {
            held.tainted = true;
        }
    }
    for (resource, record) in &mut state.records {
        if (resource.server, resource.database) == (spec.server, spec.database) && !clean {
            record.dead_until = record.dead_until.max(end);
        }
    }
    state.left = state.left || !clean;
    if clean {
        state.clean.push((client, now));
    }
}

/// Returns whether the hold of a shared owner belongs to another client: the one that used the owner first. The server stores it.
fn is_of_another(state: &State, held: &Held, client: u8) -> bool {
    let here = &state.processes[usize::from(client)].id;
    matches!(held.actor, Actor::Shared(_))
        && held.uses.iter().all(|used| {
            let engine = &state.engines[usize::from(used.resource.server)];
            used.resource.family == Family::Hash && !keys::snapshot(engine, used.resource).has(here)
        })
}

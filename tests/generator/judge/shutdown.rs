//! P8 for shutdowns: what the report says is what is left.

use std::collections::BTreeSet;
use std::time::Duration;

use stanchion::ShutdownReport;
use tokio::time::Instant;

use crate::keys;
use crate::program::Seat;
use crate::spot::Family;
use crate::state::{Actor, Held, State};

pub(crate) fn ended(state: &mut State, client: u8, seat: Seat, report: &ShutdownReport) {
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
            let spent = matches!(&*held.thing, crate::things::Thing::Grant(_));
            own && !spent
                && !is_of_another(state, held, client)
                && !held.tainted
                && held.over.is_none()
        })
        .map(|held| held.actor)
        .collect();
    let said = report.abandoned.len();
    if said < alive.len() {
        let text = format!(
            "the shutdown of client {client} reports {said} abandoned holds; guards of {} were alive",
            alive.len()
        );
        state.report("Unclean", text);
    }
    // What it leaves ends with the leases, by the server's clock.
    let leases = state.places.values().map(|place| place.lease).max();
    let end = now + leases.unwrap_or_default() + Duration::from_secs(4);
    let clean = report.is_clean();
    for held in state.held.values_mut() {
        if held.uses.iter().any(|used| used.client == client) {
            held.tainted = true;
        }
    }
    for (spot, place) in &mut state.places {
        if (spot.server, spot.database) == (seat.server, seat.database) && !clean {
            place.dead_until = place.dead_until.max(end);
        }
    }
    state.left = state.left || !clean;
    if clean {
        state.clean.push((client, now));
    }
}

/// Returns whether the hold of an explicit owner belongs to the client through which that owner came first. The server knows that.
fn is_of_another(state: &State, held: &Held, client: u8) -> bool {
    let here = &state.processes[usize::from(client)].id;
    matches!(held.actor, Actor::Shared(_))
        && held.uses.iter().all(|used| {
            let engine = &state.engines[usize::from(used.spot.server)];
            used.spot.family == Family::Hash && !keys::look(engine, used.spot).has(here)
        })
}

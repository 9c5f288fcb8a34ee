//! Jobs: each tick once, and what those are told who do not run.

use stanchion::Tick;

use crate::program::What;
use crate::spot::Spot;
use crate::state::{Op, OpKind, State};

fn asked(what: &What) -> Option<u64> {
    match what {
        What::Job(_, Some(number), _) => Some(crate::roles::tick(*number)?.unix_millis()),
        _ => None,
    }
}

fn spot_of(op: &Op) -> Option<Spot> {
    op.uses.first().map(|used| used.spot)
}

/// A run has begun.
pub(crate) fn begun(state: &mut State, op: &Op, what: &What, is_held: bool) {
    let (Some(tick), Some(spot)) = (asked(what), spot_of(op)) else {
        return;
    };
    let ticks = state.books.ticks.entry(spot).or_default();
    // A future that nobody polled for a while may return a run that is over: nobody relies on it.
    let after = ticks.begun.iter().any(|other| *other > tick) && is_held;
    if !ticks.begun.insert(tick) || after {
        let text = format!("{} runs tick {tick} after {:?}", op.label, ticks.begun);
        state.report("TickTwice", text);
    }
}

/// A job was told that `tick` has run.
pub(crate) fn ran(state: &mut State, op: &Op, what: &What, tick: Tick) {
    let (Some(own), Some(spot), told) = (asked(what), spot_of(op), tick.unix_millis()) else {
        return;
    };
    let known = state.books.ticks.get(&spot);
    let begun = known.is_some_and(|ticks| ticks.begun.contains(&told));
    // One that was granted to who did not live to see it, or did not look, has run, too.
    let stormy = state.skies[usize::from(spot.server)].last > state.began;
    // So has one whose hold was taken by force before it began.
    let forced = state
        .places
        .get(&spot)
        .is_some_and(|place| place.tainted.is_some());
    let unseen = forced || state.deaths || state.left || state.ever_parked || stormy;
    let lie = if told < own {
        Some("that is no reason")
    } else if !begun && !unseen {
        Some("nobody has run it")
    } else {
        None
    };
    if let Some(lie) = lie {
        let text = format!("P8: {} is told that tick {told} has run: {lie}", op.label);
        state.report("Untrue", text);
    }
}

/// A job was told that somebody runs, or that it rests.
pub(crate) fn skipped(state: &mut State, op: &Op) {
    let Some(spot) = spot_of(op) else { return };
    let here = |other: &Op| other.uses.iter().any(|used| used.spot == spot);
    let held = state
        .held
        .values()
        .any(|held| held.uses.iter().any(|used| used.spot == spot));
    let place = state.place(spot).clone();
    // Somebody may have had it until just now, or be about to learn that it does.
    let lately = place.stirred > op.started || place.stirred.elapsed() < crate::span(1_500);
    let calm = state.calm_over(spot.server) > crate::span(8_000);
    let others = state.ops.values().any(here);
    let slips = state.books.slips.iter();
    let detached = slips.into_iter().any(|slip| slip.used.spot == spot);
    if !held
        && !lately
        && !others
        && !detached
        && calm
        && tokio::time::Instant::now() >= place.dead_until
        && !state.ever_parked
        && !place.forgotten
        && op.kind != OpKind::Manage
    {
        let text = format!(
            "P8: {} is told that somebody runs, and nobody does",
            op.label
        );
        state.report("Untrue", text);
    }
}

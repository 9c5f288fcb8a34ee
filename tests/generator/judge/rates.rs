//! Limiters: never more than the quota in any interval, and never less for ever.

use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use tokio::time::Instant;

use crate::keys::{limiter_keys, run};
use crate::roles::{Terms, limits_of, rate_of};
use crate::spot::{Family, Side, Spot};
use crate::state::{Op, OpKind, State};

/// Clients learn of a moment half a round trip after the server has set it, and timers end with the millisecond.
const GRAIN: Duration = Duration::from_millis(14);

/// The longest that is booked ahead, of a request for several: a horizon and an interval.
fn furthest(interval: Duration) -> Duration {
    interval.clamp(Duration::from_secs(1), Duration::from_secs(10)) + interval
}

pub(crate) fn look(state: &mut State) {
    let spots: Vec<Spot> = state.books.rates.keys().copied().collect();
    for spot in spots {
        if spot.family == Family::Rate {
            server(state, spot);
        }
        dry(state, spot);
    }
}

/// Permits were told to a caller: as guard `id`, from `due` on.
pub(crate) fn granted(state: &mut State, op: &Op, id: u64, due: Instant, permits: u32) {
    let Some(spot) = op.uses.first().map(|used| used.spot) else {
        return;
    };
    let now = Instant::now();
    if now + Duration::from_millis(1) < due {
        let text = format!("{} returned {:?} early", op.label, due - now);
        return state.report("Early", text);
    }
    let rate = state.books.rate(spot);
    rate.moved = now;
    if due < rate.from {
        return;
    }
    rate.told.push((due, permits, id));
    rate.told.sort_unstable();
    rate.told
        .retain(|(at, ..)| now.duration_since(*at) < Duration::from_secs(40));
    let all: Vec<(Instant, u32)> = rate.told.iter().map(|(at, n, _)| (*at, *n)).collect();
    let broken = match spot.family {
        Family::Rate => in_windows(&all, rate_of(spot.name)),
        _ => limits_of(spot.name)
            .into_iter()
            .find_map(|terms| in_the_long_run(&all, terms)),
    };
    if let Some(text) = broken {
        state.report("Exceeded", format!("{spot:?}: {text}"));
    }
}

/// Never more than the quota in any interval.
fn in_windows(all: &[(Instant, u32)], terms: Terms) -> Option<String> {
    let (mut from, mut sum) = (0, 0);
    for (at, permits) in all {
        sum += permits;
        while all[from].0 + terms.interval <= *at + GRAIN {
            sum -= all[from].1;
            from += 1;
        }
        if sum > terms.permits {
            let length = at.duration_since(all[from].0);
            return Some(format!("{sum} permits of {terms:?} in {length:?}"));
        }
    }
    None
}

/// In a time `t` up to burst + rate × t.
fn in_the_long_run(all: &[(Instant, u32)], terms: Terms) -> Option<String> {
    for (first, (begin, _)) in all.iter().enumerate() {
        let mut sum = 0;
        for (at, permits) in &all[first..] {
            sum += permits;
            let length = at.duration_since(*begin) + GRAIN;
            let more = f64::from(terms.permits) * length.as_secs_f64();
            let most = f64::from(terms.burst) + more / terms.interval.as_secs_f64();
            if f64::from(sum) > most + 0.01 {
                return Some(format!("{sum} permits of {terms:?} in {length:?}"));
            }
        }
    }
    None
}

fn number(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        Reply::Int(n) => Some(*n),
        #[expect(clippy::cast_possible_truncation, reason = "whole milliseconds")]
        Reply::Double(n) => Some(*n as i64),
        _ => None,
    }
}

/// Entries of the log: their bytes, moments, permits.
fn log(engine: &Engine, spot: Spot, key: &str) -> Vec<(Vec<u8>, i64, i64)> {
    let command = ["ZRANGE", key, "0", "-1", "WITHSCORES"];
    let Reply::Array(items) = run(engine, spot.database, &command) else {
        return Vec::new();
    };
    let entry = |pair: &Reply| {
        let Reply::Array(pair) = pair else {
            return None;
        };
        let [Reply::Bulk(entry), score] = &pair[..] else {
            return None;
        };
        let permits = entry.get(17..)?.try_into().ok()?;
        let permits = i64::from(u32::from_le_bytes(permits));
        Some((entry.clone(), number(score)?, permits))
    };
    items.iter().filter_map(entry).collect()
}

/// Judges that the server's grants and bookings keep the quota, to the millisecond, and that its counter agrees.
fn server(state: &mut State, spot: Spot) {
    let engine = state.engines[usize::from(spot.server)].clone();
    let ask = |command: &[&str]| run(&engine, spot.database, command);
    let Reply::Array(now) = ask(&["TIME"]) else {
        return;
    };
    let part = |at: usize| now.get(at).and_then(number).unwrap_or_default();
    let now = part(0) * 1_000 + part(1) / 1_000;
    let [value_key, log_key] = limiter_keys(spot.name);
    let there = log(&engine, spot, &log_key);
    let field = |field: &str| number(&ask(&["HGET", spot.name, field]));
    let (stored, value) = (field("rate"), number(&ask(&["GET", &value_key])));
    let terms = rate_of(spot.name);
    let interval = i64::try_from(terms.interval.as_millis()).unwrap_or(i64::MAX);
    let settled = Instant::now() >= state.books.rate(spot).from;
    let (place, permits) = (state.place(spot).forgotten, i64::from(terms.permits));
    let rate = state.books.rate(spot);
    let sum: i64 = there.iter().map(|(_, _, permits)| permits).sum();
    if let (Some(stored), Some(value), false) = (stored, value, place)
        && stored != value + sum
    {
        let text = format!("{spot:?}: {value} are free and {sum} taken, of {stored}");
        return state.report("Account", text);
    }
    let known: std::collections::BTreeMap<_, _> = there
        .into_iter()
        .map(|(entry, score, permits)| (entry, (score, permits)))
        .collect();
    // What has ended stays for a while; what was given back does not.
    rate.seen.retain(|entry, (score, _)| {
        *score <= now - interval && *score > now - 20 * interval || known.contains_key(entry)
    });
    rate.seen.extend(known);
    if !settled || stored != Some(permits) {
        rate.seen.clear();
        return;
    }
    let since = i64::try_from(rate.from.elapsed().as_millis()).unwrap_or(i64::MAX);
    let mut all: Vec<(i64, i64)> = rate.seen.values().copied().collect();
    all.retain(|(at, _)| *at > now - since);
    all.sort_unstable();
    let (mut from, mut sum) = (0, 0);
    for (at, taken) in &all {
        sum += taken;
        while all[from].0 + interval <= *at {
            sum -= all[from].1;
            from += 1;
        }
        if sum > permits {
            let text = format!("{spot:?}: the server has given {sum} permits until {at}, {all:?}");
            return state.report("Exceeded", text);
        }
    }
}

/// P4: a live waiter, and nobody is granted anything for longer than everything that can be booked.
fn dry(state: &mut State, spot: Spot) {
    let waits = |op: &&Op| {
        op.kind == OpKind::Wait
            && op.uses.iter().any(|used| used.spot == spot)
            && super::waiting::is_live(state, op)
    };
    let Some(op) = state.ops.values().find(waits) else {
        return;
    };
    let (label, calm) = (op.label.clone(), state.calm(&op.uses));
    let terms = match spot.family {
        Family::Rate => rate_of(spot.name),
        _ => limits_of(spot.name)[0],
    };
    let started = op.started;
    let Side::Of(_) = op.uses[0].side else { return };
    let deaf = state.skies[usize::from(spot.server)].deaf;
    let rate = state.books.rate(spot);
    let limit = furthest(terms.interval) * 2 + Duration::from_secs(9);
    let stood = started.max(rate.moved).max(rate.from).elapsed();
    if stood > limit && deaf.elapsed() > stood && calm > stood + Duration::from_secs(3) {
        let text = format!("P4: {label} waits, and nobody has been granted anything for {stood:?}");
        state.report("Dry", text);
    }
}

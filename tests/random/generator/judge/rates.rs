//! Judges limiters: no interval has more permits than the quota, and waiters get permits in bounded time.

use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use tokio::time::Instant;

use crate::generator::keys::{limiter_keys, run};
use crate::generator::resource::{Family, Resource, Side};
use crate::generator::roles::{Terms, limits_of, rate_of};
use crate::generator::state::{Op, OpKind, State};

/// A client knows a time of the server only to half a round trip, and timers fire at whole milliseconds.
const GRAIN: Duration = Duration::from_millis(14);

/// The longest time by which a request for several permits is booked ahead: a horizon and an interval.
fn furthest(interval: Duration) -> Duration {
    interval.clamp(Duration::from_secs(1), Duration::from_secs(10)) + interval
}

pub(crate) fn check(state: &mut State) {
    let resources: Vec<Resource> = state.tracking.rates.keys().copied().collect();
    for resource in resources {
        if resource.family == Family::Rate {
            server(state, resource);
        }
        dry(state, resource);
    }
}

/// Judges permits that a call has returned as guard `id`, and that count from `due` on.
pub(crate) fn granted(state: &mut State, op: &Op, id: u64, due: Instant, permits: u32) {
    let Some(resource) = op.uses.first().map(|used| used.resource) else {
        return;
    };
    let now = Instant::now();
    if now + Duration::from_millis(1) < due {
        let text = format!("{} returned {:?} early", op.label, due - now);
        return state.report("Early", text);
    }
    let rate = state.tracking.rate(resource);
    rate.moved = now;
    if due < rate.from {
        return;
    }
    rate.grants.push((due, permits, id));
    rate.grants.sort_unstable();
    rate.grants
        .retain(|(at, ..)| now.duration_since(*at) < Duration::from_secs(40));
    let all: Vec<(Instant, u32)> = rate.grants.iter().map(|(at, n, _)| (*at, *n)).collect();
    let broken = match resource.family {
        Family::Rate => in_windows(&all, rate_of(resource.name)),
        _ => limits_of(resource.name)
            .into_iter()
            .find_map(|terms| in_the_long_run(&all, terms)),
    };
    if let Some(text) = broken {
        state.report("Exceeded", format!("{resource:?}: {text}"));
    }
}

/// No interval has more permits than the quota.
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

/// In any time `t` a bucket grants at most burst + rate × t permits.
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

/// The entries of the log: bytes, time in milliseconds, permits.
fn log_entries(engine: &Engine, resource: Resource, key: &str) -> Vec<(Vec<u8>, i64, i64)> {
    let command = ["ZRANGE", key, "0", "-1", "WITHSCORES"];
    let Reply::Array(items) = run(engine, resource.database, &command) else {
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

/// Judges that the server's grants and bookings keep the quota to the millisecond, and that the counter matches the log.
fn server(state: &mut State, resource: Resource) {
    let engine = state.engines[usize::from(resource.server)].clone();
    let query = |command: &[&str]| run(&engine, resource.database, command);
    let Reply::Array(now) = query(&["TIME"]) else {
        return;
    };
    let part = |at: usize| now.get(at).and_then(number).unwrap_or_default();
    let now = part(0) * 1_000 + part(1) / 1_000;
    let [value_key, log_key] = limiter_keys(resource.name);
    let there = log_entries(&engine, resource, &log_key);
    let field = |field: &str| number(&query(&["HGET", resource.name, field]));
    let (stored, value) = (field("rate"), number(&query(&["GET", &value_key])));
    let terms = rate_of(resource.name);
    let interval = i64::try_from(terms.interval.as_millis()).unwrap_or(i64::MAX);
    let settled = Instant::now() >= state.tracking.rate(resource).from;
    let (record, permits) = (state.record(resource).forgotten, i64::from(terms.permits));
    let rate = state.tracking.rate(resource);
    let sum: i64 = there.iter().map(|(_, _, permits)| permits).sum();
    if let (Some(stored), Some(value), false) = (stored, value, record)
        && stored != value + sum
    {
        let text = format!("{resource:?}: {value} are free and {sum} taken, of {stored}");
        return state.report("Account", text);
    }
    let known: std::collections::BTreeMap<_, _> = there
        .into_iter()
        .map(|(entry, score, permits)| (entry, (score, permits)))
        .collect();
    // Entries that have ended stay for a while. Refunded entries do not.
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
            let text =
                format!("{resource:?}: the server granted {sum} permits until {at}, {all:?}");
            return state.report("Exceeded", text);
        }
    }
}

/// P4: while a live waiter exists, some call is granted permits within the longest time that can be booked ahead.
fn dry(state: &mut State, resource: Resource) {
    let waits = |op: &&Op| {
        op.kind == OpKind::Wait
            && op.uses.iter().any(|used| used.resource == resource)
            && super::waiting::is_live(state, op)
    };
    let Some(op) = state.ops.values().find(waits) else {
        return;
    };
    let (label, fault_free) = (op.label.clone(), state.fault_free(&op.uses));
    let terms = match resource.family {
        Family::Rate => rate_of(resource.name),
        _ => limits_of(resource.name)[0],
    };
    let started = op.started;
    let Side::Count(_) = op.uses[0].side else {
        return;
    };
    let messages_lost = state.fault_states[usize::from(resource.server)].messages_lost;
    let rate = state.tracking.rate(resource);
    let limit = furthest(terms.interval) * 2 + Duration::from_secs(9);
    let lasted = started.max(rate.moved).max(rate.from).elapsed();
    if lasted > limit
        && messages_lost.elapsed() > lasted
        && fault_free > lasted + Duration::from_secs(3)
    {
        let text = format!("P4: {label} waits, and no call was granted permits for {lasted:?}");
        state.report("Dry", text);
    }
}

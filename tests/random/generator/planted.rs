//! Errors that are planted in the scripts that the server runs, or in what the judge believes of a client. Each must be found within five
//! programs from the given one.
//!
//! `STANCHION_PLANTED=bucket` runs only the rows whose error contains this text; with `STANCHION_PROFILES=a,b` it searches the programs of
//! these profiles for each of them instead, and prints the first one that finds it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::generator::hunt::program;
use crate::generator::run::run_with;
use crate::generator::{PROGRAMS, named, number, variable};

/// An error that is planted in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// The second text replaces the first one in every script that contains it.
    Script(&'static str, &'static str),
    /// A holder counts its lease from the reply instead of from the request.
    LeaseFromReply,
    /// No waiter sends a request after it has subscribed. The client does, so the wire confirms a subscription at once and delays it: the
    /// server receives the request before the subscription.
    LateSubscription,
}

use Planted::{LateSubscription, LeaseFromReply, Script};

/// The error, the profile and the first seed, the change, and the rules of which one must report it.
type Row = (
    &'static str,
    &'static str,
    u64,
    Planted,
    &'static [&'static str],
);

#[rustfmt::skip]
const ERRORS: &[Row] = &[
    ("a lease counts from the reply", "storms", 21, LeaseFromReply, &["Exclusion", "Ghost"]),
    ("no waiter sends a request after it has subscribed", "turns", 4, LateSubscription, &["Asleep"]),
    ("a release frees the lock of any owner", "locks", 1,
        Script("local found = call('HDEL', KEYS[1], ARGV[3]) == 1", "local found = call('DEL', KEYS[1]) == 1"),
        &["Exclusion", "Ghost", "LostEarly"]),

    ("a new waiter of a fair lock joins the head of the queue", "queues", 1,
        Script("then call('RPUSH', queue, owner) end", "then call('LPUSH', queue, owner) end"),
        &["Overtaken"]),
    ("a waiter of a fair lock that gives up stays in the queue", "queues", 1,
        Script("call('LREM', KEYS[2], behind", "call('LREM', KEYS[3] .. 'x', behind"),
        &["Orphan"]),
    ("a release returns one permit more", "permits", 1,
        Script("free = redis.pcall('INCRBY', KEYS[1], ARGV[2])", "free = redis.pcall('INCRBY', KEYS[1], ARGV[2] + 1)"),
        &["Minted"]),
    ("a permit that was drained stays free", "permits", 21,
        Script("redis.call('DECRBY', KEYS[1], free)", "redis.call('DECRBY', KEYS[1], free - 1)"),
        &["Minted"]),

    ("a candidate of higher priority replaces the leader", "elections", 9,
        Script("if ttl ~= -2 and not held then\n  if ARGV[4]",
            "if ttl ~= -2 and not held and not (its_priority and ARGV[5] + 0 > its_priority + 0) then\n  if ARGV[4]"),
        &["Exclusion"]),
    ("a candidate that gives up deposes the leader", "elections", 5,
        Script("local found = call('HDEL', lead, owner) == 1", "local found = call('DEL', lead) == 1"),
        &["Exclusion", "Ghost"]),
    ("observers are not notified of a new leader", "elections", 270,
        Script("if owner ~= ARGV[1] or seq ~= ARGV[2] then return 0 end", "if seq ~= ARGV[2] then return 0 end"),
        &["Blind"]),

    ("a ticket can be adopted twice", "tickets", 19,
        Script("call('HDEL', KEYS[1], ARGV[1])\n-- This may shorten", "-- This may shorten"),
        &["AdoptedTwice"]),
    ("an old ticket takes over the lock", "tickets", 41,
        Script("and call('HEXISTS', KEYS[1], ARGV[1]) == 0", "and call('EXISTS', KEYS[1]) == 0"),
        &["Exclusion"]),

    ("the last tick runs again", "jobs", 24,
        Script("tick <= ran + 0", "tick < ran + 0"),
        &["TickTwice"]),
    ("two runs overlap", "jobs", 5,
        Script("if ttl ~= -2 and not held then\n  local holder", "if ttl == -1 then\n  local holder"),
        &["Exclusion"]),

    ("permits become free early", "limiters", 3,
        Script("'-inf', now - interval, 'LIMIT'", "'-inf', now - interval + 300, 'LIMIT'"),
        &["Exceeded"]),
    ("a refund gives back one permit more", "limiters", 14,
        Script("call('INCRBY', KEYS[2 + i], ARGV[2])", "call('INCRBY', KEYS[2 + i], ARGV[2] + 1)"),
        &["Account"]),
    ("a bucket counts half a permit less", "limiters", 6,
        Script("+ wanted * limit[1] end", "+ (wanted - 0.5) * limit[1] end"),
        &["Exceeded"]),
    ("a bucket gives back four times the permits", "limiters", 32,
        Script("full[i] - ARGV[2] * limit[1]", "full[i] - 4 * ARGV[2] * limit[1]"),
        &["Exceeded"]),

    ("a resent arrival arrives again", "musters", 105,
        Script("if answer and (breaks or not lost) then", "if answer and false then"),
        &["TooFew"]),
    ("a party that left still counts", "meetings", 3,
        Script("  call('ZREM', places, ARGV[1])\n  code = 1", "  code = 1"),
        &["TooFew", "Orphan"]),
    ("a lost place is forgotten", "partitions", 230,
        Script("call('ZADD', places, string.format('%.0f', -ms), dead)", "call('ZREM', places, dead)"),
        &["Crowded"]),
    ("a double round ends before the last party leaves", "meetings", 12,
        Script("if call('ZCOUNT', places, 0, '+inf') == 0 then over() end",
            "if call('ZCOUNT', places, 0, '+inf') <= 1 then over() end"),
        &["LeftAlone", "TooFew"]),
    ("the next parties enter before the last one leaves", "meetings", 3,
        Script("if inside() and live > 0 then", "if inside() and live > 1 then"),
        &["Mingled", "TooFew", "Crowded"]),

    ("a resent count-down counts again", "latches", 189,
        Script("if answered then return answered + 0 end", ""),
        &["PassedArmed", "Miscounted"]),
    ("a waiter does not keep its latch", "idle", 215,
        Script("used(KEYS[1], KEYS[3], ARGV[2] + 0)", "used(KEYS[1], KEYS[3], 0)"),
        &["Untrue"]),
];

/// Returns the rule by which the program of this seed finds the error.
fn found((_, profile, _, planted, rules): Row, seed: u64) -> Result<&'static str, String> {
    let report = run_with(&program(named(profile), seed), &[], planted);
    match report.finding {
        Some(finding) if rules.contains(&finding.rule) => Ok(finding.rule),
        other => Err(format!("{profile}:{seed}: {other:?}")),
    }
}

/// Looks for one error. Returns a report if it is not found.
fn look_for(row: Row) -> Option<String> {
    let (error, profile, first, planted, rules) = row;
    if let Some(profiles) = variable("STANCHION_PROFILES") {
        let programs = number("STANCHION_PROGRAMS").unwrap_or(PROGRAMS);
        let all = (1..=programs).flat_map(|seed| profiles.split(',').map(move |it| (it, seed)));
        let first = all
            .map(|(it, seed)| (error, named(it).name, seed, planted, rules))
            .find_map(|row| Some((row.1, row.2, found(row, row.2).ok()?)));
        println!("{error}: {first:?}");
        return None;
    }
    let mut others = Vec::new();
    for seed in first..first + 5 {
        match found(row, seed) {
            Ok(rule) => {
                println!("{error}: {profile}:{seed} {rule}");
                return None;
            }
            Err(other) => others.push(other),
        }
    }
    Some(format!("{error} is not found by {rules:?}: {others:#?}"))
}

#[test]
fn each_planted_error_is_found() {
    let only = variable("STANCHION_PLANTED").unwrap_or_default();
    let rows: Vec<&Row> = ERRORS.iter().filter(|row| row.0.contains(&only)).collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    missed.lock().unwrap().extend(look_for(**row));
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

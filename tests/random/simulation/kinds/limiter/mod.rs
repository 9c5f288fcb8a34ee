//! Rate limiters and token buckets: grants, bookings, refunds, timeouts and dropped calls.

mod judge;

use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use stanchion::limiter::{Attempt, Grant, Limit};
use stanchion::{AcquireError, LimitError, Quota, RateLimiter, TokenBucket};
use tokio::time::{sleep, timeout};

use super::Workload;
use crate::simulation::held::OPERATION_TIMEOUT;
use crate::simulation::ledger::Ledger;
use crate::simulation::operations::{Call, CallResult, Pending};
use crate::simulation::scenario::Scenario;
use crate::simulation::work::Worker;

pub(crate) const LIMITER: Workload = Workload {
    work: |worker| match RateLimiter::new(&worker.client, NAME, quota()) {
        Ok(limiter) => Box::pin(use_it(worker, Api::Limiter(limiter))),
        Err(_) => unreachable!("the name is valid"),
    },
    judge: judge::judge,
    inspect: Some(inspect),
    // The keys remain for an hour without use, and the time of the last write for a minute.
    may_remain: |_, key, _| {
        key == NAME
            || key.starts_with(&format!("{{{NAME}}}:"))
            || key == format!("stanchion_limiter_written:{{{NAME}}}")
    },
};

pub(crate) const BUCKET: Workload = Workload {
    work: |worker| match TokenBucket::new(&worker.client, NAME, limit()) {
        Ok(bucket) => Box::pin(use_it(worker, Api::Bucket(bucket))),
        Err(_) => unreachable!("the name is valid"),
    },
    judge: judge::judge,
    inspect: None,
    may_remain: |_, _, _| false,
};

const NAME: &str = "api";

/// Permits per interval.
const RATE: u32 = 6;

const INTERVAL: Duration = Duration::from_secs(1);

/// The capacity of a bucket.
const BURST: u32 = 9;

fn quota() -> Quota {
    // OK: in bounds.
    Quota::new(RATE, INTERVAL).unwrap_or_else(|_| unreachable!("the quota is valid"))
}

fn limit() -> Limit {
    // OK: in bounds.
    Limit::new(quota(), BURST).unwrap_or_else(|_| unreachable!("the limit is valid"))
}

/// A rate limiter or a token bucket.
enum Api {
    Limiter(RateLimiter),
    Bucket(TokenBucket),
}

macro_rules! either {
    ($api:expr, $one:ident => $verb:expr) => {
        match $api {
            Api::Limiter($one) => $verb,
            Api::Bucket($one) => $verb,
        }
    };
}

async fn use_it(mut worker: Worker, api: Api) {
    let ledger = std::sync::Arc::clone(&worker.ledger);
    let caller = (worker.process, worker.task);
    while !ledger.is_ending() {
        sleep(worker.millis(0, worker.scenario.think)).await;
        let permits = if worker.rng.u8(..4) == 0 { 2 } else { 1 };
        let limit = worker.millis(0, Duration::from_millis(2_500));
        let way = worker.rng.u8(..10);
        let call = Pending::begin(&ledger, caller, Call::Permits(permits));
        let began = call.began;
        let answer: Option<Result<Grant, LimitError>> = match way {
            0..4 => Some(
                either!(&api, api => api.acquire_many(permits).await).map_err(LimitError::from),
            ),
            4..6 => {
                let got = either!(&api, api => api.acquire_many_timeout(permits, limit).await);
                ledger.check_bound("acquire_timeout", began, limit);
                Some(got)
            }
            6..8 => {
                let got = either!(&api, api => api.try_acquire_many(permits).await);
                ledger.check_bound("try_acquire", began, OPERATION_TIMEOUT);
                Some(match got {
                    Ok(Attempt::Granted(grant)) => Ok(grant),
                    Ok(Attempt::Limited(limited)) => Err(LimitError::TimedOut {
                        name: either!(&api, api => api.name().clone()),
                        waited: Duration::ZERO,
                        limited: Some(limited),
                        free_by: None,
                    }),
                    Err(error) => Err(error.into()),
                })
            }
            _ => {
                let called = either!(&api, api => timeout(limit, api.acquire_many(permits)).await);
                called.ok().map(|got| got.map_err(LimitError::from))
            }
        };
        let (now, refunds) = (ledger.time.now(), worker.rng.u8(..8) == 0);
        match answer {
            Some(Ok(grant)) => {
                ledger.count("granted");
                call.end_at(
                    now,
                    CallResult::Granted(worker.clock.true_time(grant.due())),
                );
                if refunds {
                    give_back(&ledger, caller, grant).await;
                }
            }
            Some(Err(error)) => call.end_at(now, refused(&ledger, &error)),
            None => {
                ledger.count("cancelled");
                call.end_at(now, CallResult::Unknown);
            }
        }
    }
}

/// Gives unused permits back.
async fn give_back(ledger: &Ledger, caller: (u32, u32), grant: Grant) {
    let call = Pending::begin(ledger, caller, Call::Refund);
    let began = call.began;
    let refunded = grant.refund().await;
    ledger.check_bound("refund", began, OPERATION_TIMEOUT);
    match refunded {
        Ok(true) => ledger.count("refunded"),
        Ok(false) => ledger.count("refund: too late"),
        Err(error) => {
            if let stanchion::ReleaseError::Rejected { .. } = error {
                ledger.complain(format!("P8: {error}"));
            }
        }
    }
    call.end(CallResult::Done);
}

fn refused(ledger: &Ledger, error: &LimitError) -> CallResult {
    match error {
        LimitError::TimedOut {
            limited: Some(_), ..
        } => {
            ledger.count("limited");
            CallResult::Nothing
        }
        LimitError::TimedOut { free_by: None, .. } => {
            ledger.count("timed out");
            CallResult::Nothing
        }
        LimitError::TimedOut { .. }
        | LimitError::Acquire(AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }) => {
            ledger.count("ambiguous");
            CallResult::Unknown
        }
        error => {
            ledger.complain(format!("P8: {error}"));
            CallResult::Unknown
        }
    }
}

/// Checks on the server that counter and log agree, and that no interval of the log exceeds the quota.
fn inspect(engine: &Engine, _: &Scenario, ledger: &Ledger) {
    let log = format!("{{{NAME}}}:permits");
    let Reply::Array(parts) = engine.execute(&["ZRANGE", &log, "0", "-1", "WITHSCORES"]) else {
        return ledger.complain("the log is not a sorted set");
    };
    let mut entries: Vec<(f64, u64)> = Vec::new();
    for pair in parts {
        if let Reply::Array(pair) = pair
            && let [Reply::Bulk(entry), Reply::Double(score)] = &pair[..]
        {
            entries.push((*score, permits_in(entry)));
        }
    }
    let taken: u64 = entries.iter().map(|(_, permits)| permits).sum();
    let value = format!("{{{NAME}}}:value");
    if let Reply::Bulk(text) = engine.execute(&["GET", &value]) {
        let value: i64 = String::from_utf8_lossy(&text).parse().unwrap_or(i64::MIN);
        if value != i64::from(RATE) - i64::try_from(taken).unwrap_or(i64::MAX) {
            ledger.complain_of("Account", format!("{value} free, {taken} taken of {RATE}"));
        }
    }
    for (n, (from, _)) in entries.iter().enumerate() {
        let within = entries[n..]
            .iter()
            .take_while(|(at, _)| at - from < INTERVAL.as_millis() as f64);
        let sum: u64 = within.map(|(_, permits)| permits).sum();
        if sum > u64::from(RATE) {
            ledger.complain_of("Exceeded", format!("{sum} on the server from {from} on"));
        }
    }
}

/// Returns the permits of an entry in Redisson's format: the length of an id, the id, 32 bits of permits.
fn permits_in(entry: &[u8]) -> u64 {
    let at = 1 + usize::from(entry.first().copied().unwrap_or_default());
    let bits = entry.get(at..at + 4).and_then(|bits| bits.try_into().ok());
    bits.map_or(0, |bits| u64::from(u32::from_le_bytes(bits)))
}

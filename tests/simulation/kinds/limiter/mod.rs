//! Rate limiters and token buckets: grants, bookings, refunds, and what is given back by those who gave up.

mod judge;

use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use stanchion::{AcquireError, Attempt, Grant, Limit, LimitError, Quota, RateLimiter, TokenBucket};
use tokio::time::{sleep, timeout};

use super::Play;
use crate::deeds::{Call, Pending, Saw};
use crate::held::OPERATION;
use crate::ledger::Ledger;
use crate::scenario::Scenario;
use crate::work::Worker;

pub(crate) const LIMITER: Play = Play {
    work: |worker| match RateLimiter::new(&worker.client, NAME, quota()) {
        Ok(limiter) => Box::pin(use_it(worker, Api::Limiter(limiter))),
        Err(_) => unreachable!("a name of letters"),
    },
    judge: judge::judge,
    look: Some(look),
    // Until they have been idle for an hour, and the moment of the last write for a minute.
    stays: |_, key, _| {
        key == NAME
            || key.starts_with(&format!("{{{NAME}}}:"))
            || key == format!("stanchion_limiter_written:{{{NAME}}}")
    },
};

pub(crate) const BUCKET: Play = Play {
    work: |worker| match TokenBucket::new(&worker.client, NAME, limit()) {
        Ok(bucket) => Box::pin(use_it(worker, Api::Bucket(bucket))),
        Err(_) => unreachable!("a name of letters"),
    },
    judge: judge::judge,
    look: None,
    stays: |_, _, _| false,
};

const NAME: &str = "api";

/// Permits of an interval.
const RATE: u32 = 6;

const INTERVAL: Duration = Duration::from_secs(1);

/// What a bucket holds.
const BURST: u32 = 9;

fn quota() -> Quota {
    // OK: in bounds.
    Quota::new(RATE, INTERVAL).unwrap_or_else(|_| unreachable!("a quota"))
}

fn limit() -> Limit {
    // OK: in bounds.
    Limit::new(quota(), BURST).unwrap_or_else(|_| unreachable!("a limit"))
}

/// Either.
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
    let who = (worker.process, worker.task);
    while !ledger.is_ending() {
        sleep(worker.millis(0, worker.scenario.think)).await;
        let permits = if worker.rng.u8(..4) == 0 { 2 } else { 1 };
        let limit = worker.millis(0, Duration::from_millis(2_500));
        let way = worker.rng.u8(..10);
        let call = Pending::begin(&ledger, who, Call::Permits(permits));
        let began = call.began;
        let answer: Option<Result<Grant, LimitError>> = match way {
            0..4 => Some(
                either!(&api, api => api.acquire_many(permits).await).map_err(LimitError::Acquire),
            ),
            4..6 => {
                let got = either!(&api, api => api.acquire_many_timeout(permits, limit).await);
                ledger.check_bound("acquire_timeout", began, limit);
                Some(got)
            }
            6..8 => {
                let got = either!(&api, api => api.try_acquire_many(permits).await);
                ledger.check_bound("try_acquire", began, OPERATION);
                Some(match got {
                    Ok(Attempt::Granted(grant)) => Ok(grant),
                    Ok(Attempt::Limited(limited)) => Err(limited.into()),
                    Err(error) => Err(error.into()),
                })
            }
            _ => {
                let asked = either!(&api, api => timeout(limit, api.acquire_many(permits)).await);
                asked.ok().map(|got| got.map_err(LimitError::Acquire))
            }
        };
        let (now, refunds) = (ledger.time.now(), worker.rng.u8(..8) == 0);
        match answer {
            Some(Ok(grant)) => {
                ledger.count("granted");
                call.end_at(now, Saw::Granted(worker.clock.true_time(grant.due())));
                if refunds {
                    give_back(&ledger, who, grant).await;
                }
            }
            Some(Err(error)) => call.end_at(now, refused(&ledger, &error)),
            None => {
                ledger.count("cancelled");
                call.end_at(now, Saw::Unknown);
            }
        }
    }
}

/// What is given back was not used.
async fn give_back(ledger: &Ledger, who: (u32, u32), grant: Grant) {
    let call = Pending::begin(ledger, who, Call::Refund);
    let began = call.began;
    let refunded = grant.refund().await;
    ledger.check_bound("refund", began, OPERATION);
    match refunded {
        Ok(true) => ledger.count("refunded"),
        Ok(false) => ledger.count("refund: too late"),
        Err(error) => {
            if let stanchion::ReleaseError::Rejected { .. } = error {
                ledger.complain(format!("P8: {error}"));
            }
        }
    }
    call.end(Saw::Done);
}

fn refused(ledger: &Ledger, error: &LimitError) -> Saw {
    match error {
        LimitError::Limited(_) => {
            ledger.count("limited");
            Saw::Nothing
        }
        LimitError::Acquire(AcquireError::TimedOut { free_by: None, .. }) => {
            ledger.count("timed out");
            Saw::Nothing
        }
        LimitError::Acquire(
            AcquireError::Unavailable { .. }
            | AcquireError::TimedOut { .. }
            | AcquireError::Ambiguous { .. },
        ) => {
            ledger.count("ambiguous");
            Saw::Unknown
        }
        error => {
            ledger.complain(format!("P8: {error}"));
            Saw::Unknown
        }
    }
}

/// The server's account: counter and log agree, and no interval of the log has more than the quota.
fn look(engine: &Engine, _: &Scenario, ledger: &Ledger) {
    let log = format!("{{{NAME}}}:permits");
    let Reply::Array(parts) = engine.execute(&["ZRANGE", &log, "0", "-1", "WITHSCORES"]) else {
        return ledger.complain("the log is no log");
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

/// Redisson's layout: the length of an id, the id, 32 bits of permits.
fn permits_in(entry: &[u8]) -> u64 {
    let at = 1 + usize::from(entry.first().copied().unwrap_or_default());
    let bits = entry.get(at..at + 4).and_then(|bits| bits.try_into().ok());
    bits.map_or(0, |bits| u64::from(u32::from_le_bytes(bits)))
}

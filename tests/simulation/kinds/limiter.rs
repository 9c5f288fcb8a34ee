//! Rate limiters and token buckets: grants, bookings, refunds, and what is given back by those who gave up.

use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use stanchion::{AcquireError, Attempt, Grant, Limit, LimitError, Quota, RateLimiter, TokenBucket};
use tokio::time::{sleep, timeout};

use super::{Play, explain, progress};
use crate::deeds::{Call, Deed, Pending, Saw};
use crate::held::OPERATION;
use crate::ledger::Ledger;
use crate::scenario::Scenario;
use crate::simulate::Finished;
use crate::work::Worker;

pub(crate) const LIMITER: Play = Play {
    work: |worker| match RateLimiter::new(&worker.client, NAME, quota()) {
        Ok(limiter) => Box::pin(use_it(worker, Api::Limiter(limiter))),
        Err(_) => unreachable!("a name of letters"),
    },
    judge,
    look: Some(look),
    // Until they have been idle for an hour.
    stays: |_, key, _| key == NAME || key.starts_with(&format!("{{{NAME}}}:")),
};

pub(crate) const BUCKET: Play = Play {
    work: |worker| match TokenBucket::new(&worker.client, NAME, limit()) {
        Ok(bucket) => Box::pin(use_it(worker, Api::Bucket(bucket))),
        Err(_) => unreachable!("a name of letters"),
    },
    judge,
    look: None,
    stays: |_, _, _| false,
};

const NAME: &str = "api";

/// Permits of an interval.
const RATE: u32 = 6;

const INTERVAL: Duration = Duration::from_secs(1);

/// What a bucket holds.
const BURST: u32 = 9;

/// In calm weather a request without a deadline is served within this: some intervals of bookings, and those before it in its process.
const SERVED: Duration = Duration::from_secs(8);

/// In calm weather an answer takes less, and a moment is known to so much.
const ANSWER: Duration = Duration::from_millis(60);

/// Clocks are shown to a millisecond.
const TIMER: Duration = Duration::from_millis(2);

/// By so much a client's clock may be fast while it waits for a booked moment: 0.4 % of two seconds, and a timer.
const FAST: Duration = Duration::from_millis(12);

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

/// A grant as its caller knows it: it counts from a moment between these two on.
#[derive(Clone, Copy, Debug)]
struct Counted {
    from: Duration,
    to: Duration,
    permits: u32,
}

fn judge(run: &Finished) -> Vec<String> {
    let deeds = run.ledger.deeds().clone();
    let is_bucket = run.scenario.play.look.is_none();
    let grants = counted(run, &deeds);
    let mut faults = Vec::new();
    for (n, first) in grants.iter().enumerate() {
        // Grants that certainly count between the beginning of the first and the end of the last of them.
        let (mut sum, mut to) = (0, first.to);
        let mut later: Vec<_> = grants[n..]
            .iter()
            .take_while(|it| it.from <= first.from + 5 * INTERVAL)
            .collect();
        later.sort_by_key(|it| it.to);
        for grant in later {
            sum += grant.permits;
            to = to.max(grant.to);
            let span = to.saturating_sub(first.from);
            let most = if is_bucket {
                f64::from(BURST) + f64::from(RATE) * span.as_secs_f64() / INTERVAL.as_secs_f64()
            } else if span < INTERVAL {
                f64::from(RATE)
            } else {
                break;
            };
            if f64::from(sum) > most {
                let detail = format!("{sum} permits from {:?} to {to:?}: {most}", first.from);
                faults.push(explain(run, "Exceeded", to, &detail));
                break;
            }
        }
    }
    faults.extend(dry(run, &deeds));
    faults.extend(progress(run, "grants", |deed| {
        matches!(deed.saw(), Saw::Granted(_))
    }));
    faults
}

/// What was granted and not given back, in the order of the earliest moments.
fn counted(run: &Finished, deeds: &[Deed]) -> Vec<Counted> {
    let calms = run.ledger.notes().calms.clone();
    let mut grants = Vec::new();
    for deed in deeds {
        let (Call::Permits(permits), Saw::Granted(due)) = (deed.call, deed.saw()) else {
            continue;
        };
        let refunded = deeds.iter().any(|other| {
            other.call == Call::Refund
                && (other.process, other.task) == (deed.process, deed.task)
                && other.began == deed.ended()
        });
        if refunded {
            continue;
        }
        let calm = calms
            .iter()
            .any(|(from, to)| *from <= deed.began && deed.ended() <= *to);
        // One that was booked counts from its moment on; another from some moment between its request and the answer.
        let moment = if due > deed.began + TIMER {
            due
        } else {
            deed.ended()
        };
        let from = if calm {
            moment
                .min(deed.ended())
                .saturating_sub(ANSWER)
                .max(deed.began)
        } else {
            deed.began
        };
        grants.push(Counted {
            from,
            to: deed.ended() + FAST,
            permits,
        });
    }
    grants.sort_by_key(|grant| grant.from);
    grants
}

/// In calm weather everybody is served in time.
fn dry(run: &Finished, deeds: &[Deed]) -> Vec<String> {
    let calms = run.ledger.notes().calms.clone();
    let mut faults = Vec::new();
    for deed in deeds {
        for (from, to) in &calms {
            let since = deed.began.max(*from);
            let until = super::end_of(run, deed).min(*to);
            if matches!(deed.call, Call::Permits(_)) && until > since + SERVED {
                let detail = format!("{deed:?} waits from {since:?} to {until:?}");
                faults.push(explain(run, "Dry", since + SERVED, &detail));
            }
        }
    }
    faults
}

//! Elections, jobs and limiters: their handles, and the calls behind their acquires.

use std::time::Duration;

use stanchion::election::CampaignOptions;
use stanchion::jobs::Begun;
use stanchion::limiter::{Attempt, Limit};
use stanchion::{
    AcquireError, AcquireOptions, Client, Election, Job, LimitError, Quota, RateLimiter, Tick,
    TokenBucket,
};

use crate::generator::guards::{Acquired, Call, LEASE, lease, options};
use crate::generator::program::CallOptions;
use crate::generator::span;

/// The first time of the engines' clocks, in Unix milliseconds.
const EPOCH: u64 = 1_800_000_000_000;

/// The tick with this number. Ticks are one second apart.
pub(crate) fn tick(number: u8) -> Option<Tick> {
    Tick::from_unix_millis(EPOCH + u64::from(number) * 1_000).ok()
}

pub(crate) fn election(client: &Client, name: &str) -> Option<Election> {
    Some(Election::new(client, name).ok()?.lease(lease(LEASE)))
}

pub(crate) fn campaigning(priority: i8, options: AcquireOptions) -> CampaignOptions {
    CampaignOptions::from(options).priority(priority.into())
}

pub(crate) fn campaign(
    client: &Client,
    name: &str,
    priority: i8,
    options: AcquireOptions,
    tries: bool,
) -> Option<Call> {
    let election = election(client, name)?;
    let options = campaigning(priority, options);
    Some(Box::pin(async move {
        if tries {
            let term = election.try_campaign_with("v0", options).await?;
            return Ok(term.map(Acquired::Term));
        }
        let term = election.campaign_with("v0", options).await?;
        Ok(Some(Acquired::Term(term)))
    }))
}

pub(crate) fn job(client: &Client, name: &str, least: u16, opts: CallOptions) -> Option<Job> {
    // A run has its own owner and does not wait.
    let opts = CallOptions {
        owner: None,
        fails: false,
        refuses_reentry: false,
        lease: Some(opts.lease.unwrap_or(LEASE)),
        ..opts
    };
    let job = Job::new(client, name).ok()?.options(options(opts, None));
    Some(job.at_least(span(least)))
}

pub(crate) fn begin(
    client: &Client,
    name: &str,
    number: Option<u8>,
    least: u16,
    opts: CallOptions,
) -> Option<Call> {
    let job = job(client, name, least, opts)?;
    Some(Box::pin(async move {
        let begun = match number.and_then(tick) {
            Some(tick) => job.begin_tick(tick).await?,
            None => job.begin().await?,
        };
        Ok(Some(match begun {
            Begun::Running(guard) => Acquired::Job(guard),
            Begun::Already { tick, .. } => Acquired::Ran(tick),
            _ => Acquired::Skipped,
        }))
    }))
}

/// A limit of a limiter: permits in an interval, and permits at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) permits: u32,
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

const fn of(permits: u32, millis: u64, burst: u32) -> Terms {
    Terms {
        permits,
        interval: Duration::from_millis(millis),
        burst,
    }
}

/// All users of a name use the same limits. No call requests more than four permits.
pub(crate) fn rate_of(name: &str) -> Terms {
    match name {
        "a" => of(5, 700, 5),
        _ => of(6, 2_500, 6),
    }
}

pub(crate) fn limits_of(name: &str) -> Vec<Terms> {
    match name {
        "a" => vec![of(8, 1_000, 8), of(14, 3_000, 14)],
        _ => vec![of(4, 500, 7)],
    }
}

pub(crate) fn quota(terms: Terms) -> Option<Quota> {
    Quota::new(terms.permits, terms.interval).ok()
}

pub(crate) fn limiter(client: &Client, name: &str) -> Option<RateLimiter> {
    RateLimiter::new(client, name, quota(rate_of(name))?).ok()
}

fn granted(attempt: Attempt) -> Option<Acquired> {
    attempt.granted().map(Acquired::Grant)
}

/// Converts the result of a limiter. A limited call gets nothing, as a try at a lock that is held.
fn answered(
    outcome: Result<stanchion::limiter::Grant, LimitError>,
) -> Result<Option<Acquired>, AcquireError> {
    match outcome {
        Ok(grant) => Ok(Some(Acquired::Grant(grant))),
        Err(LimitError::TimedOut {
            limited: Some(_), ..
        }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

macro_rules! limited {
    ($handle:expr, $permits:expr, $opts:expr) => {{
        let (handle, permits, opts) = ($handle, $permits, $opts);
        Box::pin(async move {
            if opts.tries {
                return Ok(granted(handle.try_acquire_many(permits).await?));
            }
            match opts.timeout {
                Some(timeout) => {
                    let waited = handle.acquire_many_timeout(permits, span(timeout));
                    answered(waited.await)
                }
                None => Ok(Some(Acquired::Grant(handle.acquire_many(permits).await?))),
            }
        })
    }};
}

pub(crate) fn rated(client: &Client, name: &str, permits: u32, opts: CallOptions) -> Option<Call> {
    Some(limited!(limiter(client, name)?, permits, opts))
}

pub(crate) fn bucketed(
    client: &Client,
    name: &str,
    permits: u32,
    opts: CallOptions,
) -> Option<Call> {
    let limits = limits_of(name).into_iter();
    let mut limits = limits.map(|terms| Limit::new(quota(terms)?, terms.burst).ok());
    let mut bucket = TokenBucket::new(client, name, limits.next()??).ok()?;
    for limit in limits {
        bucket = bucket.and(limit?);
    }
    Some(limited!(bucket, permits, opts))
}

//! Helpers of the limiter tests.

pub use crate::{ms, secs};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::World;
use stanchion::embedded::{Engine, Reply};
use stanchion::limiter::{Attempt, Grant, Limited};
use stanchion::{Client, Quota, RateLimiter};
use tokio::time::Instant;

pub const NAME: &str = "api";
pub const VALUE: &str = "{api}:value";
pub const LOG: &str = "{api}:permits";

pub fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

pub fn limiter(client: &Client, text: &str) -> RateLimiter {
    RateLimiter::new(client, NAME, quota(text)).unwrap()
}

pub async fn granted(api: &RateLimiter, permits: u32) -> Grant {
    match api.try_acquire_many(permits).await.unwrap() {
        Attempt::Granted(grant) => grant,
        other => panic!("{permits} permits should be free: {other:?}"),
    }
}

#[track_caller]
pub fn limited(attempt: Attempt) -> Limited {
    match attempt {
        Attempt::Limited(limited) => limited,
        other => panic!("the attempt should be limited: {other:?}"),
    }
}

/// Returns the counter, and the permits of all entries. Their sum is the rate.
pub fn account(engine: &Engine) -> (i64, i64) {
    let value = match engine.execute(&["GET", VALUE]) {
        Reply::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
        Reply::Nil => panic!("the counter is missing"),
        other => panic!("{other:?}"),
    };
    let sum = log(engine).iter().map(|(_, permits)| permits).sum();
    (value, sum)
}

/// The server's time in ms.
pub fn clock(engine: &Engine) -> i64 {
    let Reply::Array(parts) = engine.execute(&["TIME"]) else {
        panic!("TIME returns an array");
    };
    let part = |reply: &Reply| match reply {
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse::<i64>().unwrap(),
        other => panic!("{other:?}"),
    };
    part(&parts[0]) * 1000 + part(&parts[1]) / 1000
}

/// Returns the score and the permits of each entry.
pub fn log(engine: &Engine) -> Vec<(i64, i64)> {
    let entries = entries(engine).into_iter();
    entries
        .map(|(_, score, permits)| (score, permits))
        .collect()
}

/// An entry of the log: its bytes, its score, its permits.
pub type Entry = (Vec<u8>, i64, i64);

pub fn entries(engine: &Engine) -> Vec<Entry> {
    let Reply::Array(items) = engine.execute(&["ZRANGE", LOG, "0", "-1", "WITHSCORES"]) else {
        panic!("the log is a sorted set");
    };
    let entry = |pair: &Reply| match pair {
        Reply::Array(pair) => match &pair[..] {
            [Reply::Bulk(entry), Reply::Double(score)] => {
                assert_eq!((entry.len(), entry[0]), (21, 16), "{entry:?}");
                let permits = u32::from_le_bytes(entry[17..].try_into().unwrap());
                #[expect(clippy::cast_possible_truncation, reason = "whole milliseconds")]
                let score = *score as i64;
                (entry.clone(), score, i64::from(permits))
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    items.iter().map(entry).collect()
}

/// Asserts that no permits are taken, by the counter and by the log.
pub fn untouched(world: &World, rate: i64) {
    assert_eq!(account(world.as_engine()), (rate, 0));
}

/// When permits were granted, by the clock of the test.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<(Duration, u32)>>>);

impl Record {
    pub fn note(&self, since: Instant, permits: u32) {
        self.0.lock().unwrap().push((since.elapsed(), permits));
    }

    pub fn total(&self) -> u32 {
        self.0.lock().unwrap().iter().map(|(_, n)| n).sum()
    }

    /// Asserts that no window of `interval` has more than `rate` permits.
    #[track_caller]
    pub fn check(&self, rate: u32, interval: Duration) {
        let mut grants = self.0.lock().unwrap().clone();
        grants.sort_unstable();
        let (mut from, mut sum) = (0, 0);
        for (at, permits) in &grants {
            sum += permits;
            while grants[from].0 + interval <= *at {
                sum -= grants[from].1;
                from += 1;
            }
            assert!(sum <= rate, "{sum} in the interval that ends at {at:?}");
        }
    }
}

/// All entries of the log so far, without those that were given back.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<Vec<u8>, (i64, i64)>);

impl Seen {
    /// Adds the entries of the log at `now`. Keeps expired entries, and removes those that were given back.
    pub fn update(&mut self, entries: &[Entry], now: i64, interval: i64) {
        let there: BTreeMap<_, _> = entries
            .iter()
            .map(|(entry, score, permits)| (entry.clone(), (*score, *permits)))
            .collect();
        let oldest = now - interval;
        self.0
            .retain(|entry, (score, _)| *score <= oldest || there.contains_key(entry));
        self.0.extend(there);
    }

    /// Asserts that no window of `interval` has more than `rate` permits.
    #[track_caller]
    pub fn check(&self, rate: i64, interval: i64) {
        let mut all: Vec<_> = self.0.values().copied().collect();
        all.sort_unstable();
        let (mut from, mut sum) = (0, 0);
        for (at, permits) in &all {
            sum += permits;
            while all[from].0 + interval <= *at {
                sum -= all[from].1;
                from += 1;
            }
            assert!(
                sum <= rate,
                "{sum} of {rate} in the interval that ends at {at}"
            );
        }
    }
}

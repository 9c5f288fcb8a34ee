//! The status of a rate limiter.

use std::time::Duration;

use serde::Serialize;
use stanchion_core::primitive::{Reply, as_millis};

use crate::limiter::QuotaScope;
use crate::quota::Quota;

/// The state of a rate limiter when the server answered. It may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LimiterStatus {
    /// The quota that the server has, which all processes share; `None`: there is no limiter yet.
    pub quota: Option<Quota>,
    /// For whom the quota is.
    pub scope: QuotaScope,
    /// The time without a request after which the server forgets the limiter; `None`: never. In ms when serialized.
    #[serde(rename = "keep_alive_ms", serialize_with = "as_millis")]
    pub keep_alive: Option<Duration>,
    /// The number of free permits; negative when some are booked that have not come back yet. The whole quota where there is no limiter.
    pub free: i64,
    /// The entries in the log: grants and bookings, of which some may be several in one.
    pub entries: u64,
    /// The time until a permit is free; zero if one is. In ms when serialized.
    #[serde(rename = "next_free_ms", serialize_with = "millis")]
    pub next_free_in: Duration,
    /// The time until all permits are free, if nobody takes any. In ms when serialized.
    #[serde(rename = "full_again_ms", serialize_with = "millis")]
    pub full_again_in: Duration,
}

fn millis<S: serde::Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    as_millis(&Some(*length), serializer)
}

impl LimiterStatus {
    /// Reads a reply; `own`: the quota of the handle that asked.
    pub(crate) fn read(reply: &Reply, own: Quota) -> Option<Self> {
        let fields: Option<Vec<i64>> = reply.as_array()?.iter().map(Reply::as_int).collect();
        match *fields? {
            [0] => Some(Self {
                quota: None,
                scope: QuotaScope::Overall,
                keep_alive: None,
                free: own.permits().into(),
                entries: 0,
                next_free_in: Duration::ZERO,
                full_again_in: Duration::ZERO,
            }),
            [1, rate, interval, kind, keep, free, entries, next, full] => Some(Self {
                quota: Some(Quota::stored(rate, interval)),
                scope: match kind {
                    0 => QuotaScope::Overall,
                    _ => QuotaScope::PerClient,
                },
                keep_alive: (keep > 0).then(|| length(keep)),
                free,
                entries: u64::try_from(entries).ok()?,
                next_free_in: length(next),
                full_again_in: length(full),
            }),
            _ => None,
        }
    }
}

fn length(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).unsigned_abs())
}

/// What a token bucket holds when the server answered. It may have changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BucketStatus {
    /// The permits that can be taken now.
    pub free: u32,
    /// The time until the bucket is full, if nobody takes any. In ms when serialized.
    #[serde(rename = "full_again_ms", serialize_with = "millis")]
    pub full_again_in: Duration,
}

impl BucketStatus {
    /// Reads the reply to a look.
    pub(crate) fn read(reply: &Reply) -> Option<Self> {
        let [_, _, _, _, free, reset, _] = reply.as_array()? else {
            return None;
        };
        Some(Self {
            free: free.as_int()?.try_into().ok()?,
            full_again_in: length(reset.as_int()?),
        })
    }
}

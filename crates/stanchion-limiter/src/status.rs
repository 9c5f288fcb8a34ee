//! The status of a rate limiter.

use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Reply, as_millis};

use crate::limiter::QuotaScope;
use crate::quota::Quota;

/// A snapshot of a rate limiter, as the server replied. The state may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LimiterStatus {
    /// The quota on the server, which all processes share; `None`: there is no limiter yet.
    pub quota: Option<Quota>,
    /// The scope of the quota.
    pub scope: QuotaScope,
    /// The server forgets the limiter after this time without a request; `None`: never. In ms when serialized.
    #[serde(rename = "keep_alive_ms", serialize_with = "as_millis")]
    pub keep_alive: Option<Duration>,
    /// The number of free permits; negative if booked permits are not free yet. Without a limiter, the whole quota.
    pub free: i64,
    /// The entries in the log: grants and bookings. One entry may be a merger of several.
    pub entries: u64,
    /// The time until a permit is free; zero if one is free now. In ms when serialized.
    #[serde(rename = "next_free_ms", serialize_with = "millis")]
    pub next_free_in: Duration,
    /// The time until all permits are free, if none is taken before. In ms when serialized.
    #[serde(rename = "full_again_ms", serialize_with = "millis")]
    pub full_again_in: Duration,
}

fn millis<S: serde::Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    as_millis(&Some(*length), serializer)
}

impl LimiterStatus {
    /// Reads a reply; `own`: the quota of the calling handle.
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

/// A snapshot of a token bucket, as the server replied. The state may have changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BucketStatus {
    /// The permits that are free now.
    pub free: u32,
    /// The time until the bucket is full, if no permit is taken before. In ms when serialized.
    #[serde(rename = "full_again_ms", serialize_with = "millis")]
    pub full_again_in: Duration,
}

impl BucketStatus {
    /// Reads the reply to a status request.
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

//! The outcomes of a request: a grant, or the time of the next attempt.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Brief, Dated, Hint, Hold, Leftover, Reply, Spent};
use stanchion_client::{AcquireError, Error, FreeBy, LostReason, Moment, Name, ReleaseError};

/// The outcome of a try.
#[must_use = "it may be limited"]
#[derive(Debug)]
pub enum Attempt {
    /// The permits are taken.
    Granted(Grant),
    /// The permits are not available now.
    Limited(Limited),
}

impl Attempt {
    /// Returns the grant; `None` when limited.
    #[must_use]
    pub fn granted(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::Limited(_) => None,
        }
    }
}

/// A refusal, with the data for a response with status 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("limited: {remaining} of {limit} permits left, try again in {}", humantime::format_duration(*.retry_after))]
#[non_exhaustive]
pub struct Limited {
    /// The permits of an interval, as stored on the server; for a bucket the least burst.
    pub limit: u32,
    /// The permits that are free now: fewer than requested.
    pub remaining: u32,
    /// The time until the request could be granted, if no other request comes before. In ms when serialized.
    #[serde(rename = "retry_after_ms", serialize_with = "millis")]
    pub retry_after: Duration,
    /// The time until all permits are free, if none is taken before. In ms when serialized.
    #[serde(rename = "reset_after_ms", serialize_with = "millis")]
    pub reset_after: Duration,
}

fn millis<S: serde::Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    stanchion_client::primitive::as_millis(&Some(*length), serializer)
}

impl Limited {
    /// Returns `retry_after` in whole seconds, rounded up, at least 1: the value of the header `Retry-After`.
    #[must_use]
    pub fn retry_after_secs(&self) -> u64 {
        let more = u64::from(self.retry_after.subsec_nanos() > 0);
        (self.retry_after.as_secs() + more).max(1)
    }
}

/// The error of an acquire with a deadline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// No permits before the deadline. If the server has decided so, the call returns at once.
    #[error("timed out after {} waiting for {name}{}{}", Brief(*.waited), Decision(.limited.as_ref()), Leftover(*.free_by))]
    TimedOut {
        /// The name of the limiter.
        name: Name,
        /// The time that the call waited.
        waited: Duration,
        /// The decision of the server: nothing was taken. `None`: the deadline passed behind other calls of this process, or before the reply.
        limited: Option<Limited>,
        /// As for [`AcquireError::TimedOut`]; `None` after a decision of the server.
        free_by: Option<FreeBy>,
    },
    /// Another error of the acquire: never [`AcquireError::TimedOut`].
    #[error(transparent)]
    Acquire(AcquireError),
}

impl From<AcquireError> for LimitError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::TimedOut {
                name,
                waited,
                free_by,
                ..
            } => Self::TimedOut {
                name,
                waited,
                limited: None,
                free_by,
            },
            error => Self::Acquire(error),
        }
    }
}

impl From<LimitError> for AcquireError {
    /// The decision of the server becomes text, the remark of [`AcquireError::TimedOut`].
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::TimedOut {
                name,
                waited,
                limited,
                free_by,
            } => Self::TimedOut {
                name,
                waited,
                free_by,
                remark: limited.map(|limited| limited.to_string().into()),
            },
            LimitError::Acquire(error) => error,
        }
    }
}

impl From<LimitError> for Error {
    fn from(error: LimitError) -> Self {
        Self::Acquire(error.into())
    }
}

/// The decision of the server in the message of a timeout.
struct Decision<'a>(Option<&'a Limited>);

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |limited| write!(f, ": {limited}"))
    }
}

/// Permits that were taken. A drop does nothing: the permits count as used, and are free again after their interval.
pub struct Grant {
    spent: Spent,
    permits: u32,
    facts: Facts,
}

impl Grant {
    pub(crate) fn new(hold: Hold, permits: u32, facts: Facts) -> Self {
        Self {
            spent: hold.spend(),
            permits,
            facts,
        }
    }

    /// Returns the name of the limiter, with the client's key prefix.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.spent.name()
    }

    /// Returns the number of permits.
    #[must_use]
    pub const fn permits(&self) -> u32 {
        self.permits
    }

    /// Returns the moment from which the permits count, by the client's clock ([`Client::now`](stanchion_client::Client::now)). If the process
    /// was paused since, and uses them much later, it may exceed the limit in the interval of the use: only the process can know that.
    #[must_use]
    pub fn due(&self) -> Moment {
        self.spent.due()
    }

    /// Returns the permits of an interval, as stored on the server at the grant; for a bucket the least burst.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.facts.limit
    }

    /// Returns the permits that were free after this grant.
    #[must_use]
    pub const fn remaining(&self) -> u32 {
        self.facts.remaining
    }

    /// Returns the time, from the grant on, until all permits are free if none is taken before.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        self.facts.reset_after
    }

    /// Gives back permits that were not used. `false`: too late, because they are free again already (for a bucket all of them), the limiter was set
    /// again, or the server cannot distinguish them from others any more. A [`TokenBucket`](crate::TokenBucket) takes back only its last grant.
    ///
    /// # Errors
    /// [`ReleaseError::Ambiguous`]: no reply within the operation timeout; the refund continues in the background until there is one.
    /// [`ReleaseError::Rejected`].
    ///
    /// # Cancel safety
    /// Safe: the refund continues in the background.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once (P6).
    pub async fn refund(self) -> Result<bool, ReleaseError> {
        match self.spent.give_back().await {
            Ok(()) => Ok(true),
            Err(ReleaseError::Lost(lost)) if lost.reason == LostReason::Gone => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("name", self.name())
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

/// The state of the limiter in a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The number of consecutive refusals of this request.
    refusals: u8,
    retry_after: Duration,
    limit: u32,
    remaining: u32,
    reset_after: Duration,
}

/// The last reply to one request. Each request has its own description, which reads each reply for the core.
#[derive(Debug, Default)]
pub(crate) struct Answer(Mutex<Option<Facts>>);

impl Answer {
    fn set(&self, facts: Facts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts);
    }

    /// Returns whether there was a reply, and the last one was a refusal.
    pub(crate) fn was_refused(&self) -> bool {
        self.refusals() > 0
    }

    /// Returns the number of consecutive refusals, at most 255.
    pub(crate) fn refusals(&self) -> u8 {
        self.last().map_or(0, |facts| facts.refusals)
    }

    /// The content of the last reply; `None` before the first.
    pub(crate) fn last(&self) -> Option<Facts> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a refusal: `{ …, 1 if it cannot be granted in time, ms until it could, free, ms until all are free, rate }`.
    pub(crate) fn refused(&self, rest: &[Reply]) -> Hint {
        let [never, retry, rest @ ..] = rest else {
            return Hint::default();
        };
        self.set(Facts {
            refusals: self.refusals().saturating_add(1),
            retry_after: time(retry),
            ..facts(rest)
        });
        if never.as_int() == Some(1) {
            Hint::TooLate
        } else {
            Hint::default()
        }
    }

    /// Reads a grant: `{ …, ms until it counts, ms until the next or -1, free, ms until all are free, rate }`.
    pub(crate) fn granted(&self, rest: &[Reply]) -> Dated {
        let [due, next, rest @ ..] = rest else {
            return Dated::default();
        };
        self.set(facts(rest));
        let next = next.as_int().filter(|next| *next >= 0);
        Dated::new(
            time(due),
            next.map(|next| Duration::from_millis(next.unsigned_abs())),
        )
    }
}

impl Facts {
    pub(crate) fn limited(self) -> Limited {
        Limited {
            limit: self.limit,
            remaining: self.remaining,
            retry_after: self.retry_after,
            reset_after: self.reset_after,
        }
    }
}

fn time(reply: &Reply) -> Duration {
    let millis = reply.as_int().and_then(|millis| u64::try_from(millis).ok());
    Duration::from_millis(millis.unwrap_or(0))
}

fn facts(rest: &[Reply]) -> Facts {
    let [free, reset, limit, ..] = rest else {
        return Facts::default();
    };
    let number = |reply: &Reply| {
        let number = reply.as_int().unwrap_or(0).max(0);
        u32::try_from(number).unwrap_or(u32::MAX)
    };
    Facts {
        refusals: 0,
        retry_after: Duration::ZERO,
        limit: number(limit),
        remaining: number(free),
        reset_after: time(reset),
    }
}

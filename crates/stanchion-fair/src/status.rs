//! What a look at a fair lock shows.

use std::time::Duration;

use serde::Serialize;
use stanchion_core::primitive::Reply;
use stanchion_core::{FencingToken, QueryError, Rejection};

/// A fair lock as the server saw it when asked. By the time you read it, it may have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FairLockStatus {
    /// Who holds it, if anybody does.
    pub holder: Option<FairHolder>,
    /// The last fencing token minted where this lock's tokens come from. By default that is a counter that the names of
    /// one hash slot share.
    pub last_token: Option<FencingToken>,
    /// How many wait in the queue, in all processes, Redisson's included. Those of a process that has died count until
    /// they come to the head and are passed over.
    pub queue_len: u64,
}

/// Who holds a fair lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FairHolder {
    /// The owner as stored: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`.
    pub owner: String,
    /// How many times it holds.
    pub hold_count: u32,
    /// What is left of its lease, at most 1.5 s from a grant to its first renewal; `None` for a lock without TTL, which no
    /// stanchion or Redisson lock is.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

fn as_millis<S: serde::Serializer>(
    remaining: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    remaining
        .map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
        .serialize(serializer)
}

pub(crate) fn unexpected(reply: &Reply) -> QueryError {
    QueryError::Rejected {
        rejection: Rejection::Other {
            detail: format!("an unexpected reply: {reply:?}"),
        },
    }
}

impl FairLockStatus {
    /// Whether anybody holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    pub(crate) fn read(reply: &Reply) -> Result<Self, QueryError> {
        let unexpected = || unexpected(reply);
        let [ttl, token, queued, fields @ ..] = reply.as_array().ok_or_else(unexpected)? else {
            return Err(unexpected());
        };
        let natural = |number: &Reply| number.as_int().and_then(|n| u64::try_from(n).ok());
        let something_else = |what: &str| QueryError::Rejected {
            rejection: Rejection::WrongType {
                detail: format!("the name belongs to something else: its hash {what}"),
            },
        };
        let holder = match fields {
            [] => None,
            [owner, count] => {
                // Whatever another program keeps there may be long, and secret: it is not shown.
                let owner = owner.as_text().filter(|owner| owner.contains(':'));
                let count = count.as_int().and_then(|n| n.try_into().ok());
                let (owner, hold_count) = owner
                    .zip(count)
                    .ok_or_else(|| something_else("has a field that is no holder"))?;
                Some(FairHolder {
                    owner: owner.to_owned(),
                    hold_count,
                    remaining: natural(ttl).map(Duration::from_millis),
                })
            }
            _ => return Err(something_else("has more than one field")),
        };
        Ok(Self {
            holder,
            last_token: natural(token).and_then(FencingToken::new),
            queue_len: natural(queued).ok_or_else(unexpected)?,
        })
    }
}

//! The state of a fair lock as the server reports it.

use std::time::Duration;

use serde::Serialize;
use stanchion_core::primitive::{Reply, as_millis};
use stanchion_core::{FencingToken, QueryError, Rejection};

/// A snapshot of a fair lock, taken by the server when asked. The lock may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FairLockStatus {
    /// The holder, if there is one.
    pub holder: Option<FairHolder>,
    /// The last fencing token of the counter that this lock uses. By default that is a counter that the names of one hash
    /// slot share.
    pub last_token: Option<FencingToken>,
    /// The number of waiters in the queue, in all processes, Redisson's included. Waiters of a dead process count until
    /// they reach the head and are removed.
    pub queue_len: u64,
}

/// The holder of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FairHolder {
    /// The owner as stored: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`.
    pub owner: String,
    /// The number of its holds.
    pub hold_count: u32,
    /// The rest of its lease, at most 1.5 s from a grant to its first renewal; `None` for a lock without TTL, which no
    /// stanchion or Redisson lock is.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

pub(crate) fn unexpected(reply: &Reply) -> QueryError {
    QueryError::Rejected {
        rejection: Rejection::Other {
            detail: format!("an unexpected reply: {reply:?}"),
        },
    }
}

impl FairLockStatus {
    /// Returns whether anybody held the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-is_held").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let guard = tickets.acquire().await?;
    /// assert!(tickets.status().await?.is_held()); // by any client, this one included
    /// guard.release().await?;
    /// assert!(!tickets.status().await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
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
                // Another program's data may be long or secret: it is not shown.
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

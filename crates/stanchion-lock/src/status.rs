//! The state of a lock as the server reports it.

use std::time::Duration;

use serde::Serialize;
use stanchion_core::primitive::{Reply, as_millis};
use stanchion_core::{FencingToken, QueryError, Rejection};

/// A snapshot of a lock, taken by the server when asked. The lock may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockStatus {
    /// The holder, if there is one.
    pub holder: Option<Holder>,
    /// The last fencing token of the counter that this lock uses. By default that is a counter that the names of one hash
    /// slot share.
    pub last_token: Option<FencingToken>,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as stored: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`.
    pub owner: String,
    /// The number of its holds.
    pub hold_count: u32,
    /// The rest of its lease; `None` for a lock without TTL, which no stanchion or Redisson lock is.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

impl LockStatus {
    /// Returns whether anybody held the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-is_held").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let guard = orders.acquire().await?;
    /// assert!(orders.status().await?.is_held()); // by any client, this one included
    /// guard.release().await?;
    /// assert!(!orders.status().await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    pub(crate) fn read(reply: &Reply) -> Result<Self, QueryError> {
        let unexpected = || QueryError::Rejected {
            rejection: Rejection::Other {
                detail: format!("an unexpected reply: {reply:?}"),
            },
        };
        let [ttl, token, fields @ ..] = reply.as_array().ok_or_else(unexpected)? else {
            return Err(unexpected());
        };
        let ttl = ttl.as_int().ok_or_else(unexpected)?;
        let last_token = token
            .as_int()
            .and_then(|n| FencingToken::new(u64::try_from(n).ok()?));
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
                Some(Holder {
                    owner: owner.to_owned(),
                    hold_count,
                    remaining: u64::try_from(ttl).ok().map(Duration::from_millis),
                })
            }
            _ => return Err(something_else("has more than one field")),
        };
        Ok(Self { holder, last_token })
    }
}

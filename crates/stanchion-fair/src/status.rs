//! The state of a fair lock as the server reports it.

use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Reply, as_millis, holder_in, natural, unexpected};
use stanchion_client::{FencingToken, HoldMode, NameHolder, NameState, QueryError};

/// The state of a fair lock at the time of the server's reply. The lock may have changed since.
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
    /// The number of waiting processes, Redisson's included: those of the first 1000 waiters.
    pub waiting_processes: Option<u64>,
}

/// The holder of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FairHolder {
    /// The owner as stored: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`.
    pub owner: String,
    /// The number of its holds.
    pub hold_count: u32,
    /// The rest of its lease, at most 1.5 s from a grant to its first renewal; `None` for a lock without TTL (locks
    /// of stanchion and Redisson always have one).
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

impl FairLockStatus {
    /// Returns whether the lock was held.
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

    /// Converts the status to the state that events report.
    pub(crate) fn seen(self) -> NameState {
        let holder = self.holder.map(|it| {
            NameHolder::new(it.owner, HoldMode::Exclusive, it.hold_count).remaining(it.remaining)
        });
        NameState::held(holder.into_iter().collect(), 0)
    }

    pub(crate) fn read(reply: &Reply) -> Result<Self, QueryError> {
        let unexpected = || unexpected(reply);
        let [ttl, token, queued, processes, fields @ ..] =
            reply.as_array().ok_or_else(unexpected)?
        else {
            return Err(unexpected());
        };
        let holder = holder_in(fields)?.map(|(owner, hold_count)| FairHolder {
            owner,
            hold_count,
            remaining: natural(ttl).map(Duration::from_millis),
        });
        Ok(Self {
            holder,
            last_token: natural(token).and_then(FencingToken::new),
            queue_len: natural(queued).ok_or_else(unexpected)?,
            waiting_processes: natural(processes),
        })
    }
}

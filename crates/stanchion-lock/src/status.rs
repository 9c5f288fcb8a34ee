//! The state of a lock as the server reports it.

use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Reply, as_millis, holder_in, natural, unexpected};
use stanchion_client::{FencingToken, HoldMode, NameHolder, NameState, QueryError};

/// The state of a lock at the time of the server's reply. The lock may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockStatus {
    /// The holder, if there is one.
    pub holder: Option<Holder>,
    /// The last fencing token of the counter that this lock uses. By default that is a counter that the names of one hash
    /// slot share.
    pub last_token: Option<FencingToken>,
    /// The number of waiting processes. Processes with this library are counted exactly, from the queue on the server and their
    /// subscriptions. A process that only polls ([`Wake::Poll`](stanchion_client::Wake::Poll)) counts until a script finds it dead. Redisson
    /// processes are counted by their subscriptions. `None` when the user may not count these (`+pubsub`), or no reply came.
    pub waiting_processes: Option<u64>,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as stored: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`.
    pub owner: String,
    /// The number of its holds.
    pub hold_count: u32,
    /// The rest of its lease; `None` for a lock without TTL (locks of stanchion and Redisson always have one).
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

impl LockStatus {
    /// Returns whether the lock was held.
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

    /// Converts the status to the state that events report.
    pub(crate) fn seen(self) -> NameState {
        let holder = self.holder.map(|it| {
            NameHolder::new(it.owner, HoldMode::Exclusive, it.hold_count).remaining(it.remaining)
        });
        NameState::held(holder.into_iter().collect(), 0)
    }

    pub(crate) fn read(reply: &Reply) -> Result<Self, QueryError> {
        let unexpected = || unexpected(reply);
        let [ttl, token, fields @ ..] = reply.as_array().ok_or_else(unexpected)? else {
            return Err(unexpected());
        };
        let ttl = ttl.as_int().ok_or_else(unexpected)?;
        let holder = holder_in(fields)?.map(|(owner, hold_count)| Holder {
            owner,
            hold_count,
            remaining: u64::try_from(ttl).ok().map(Duration::from_millis),
        });
        let last_token = natural(token).and_then(FencingToken::new);
        Ok(Self {
            holder,
            last_token,
            waiting_processes: None,
        })
    }
}

//! The token bucket.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, unexpected};
use stanchion_client::{AcquireError, Client, InvalidName, Name, QueryError};

use crate::keys::{BucketKeys, about};
use crate::limited::{Answer, Attempt, Grant, LimitError};
use crate::quota::Limit;
use crate::request::{Asking, too_fast, wanted};
use crate::scripts::bucket::{BucketDescription, look};
use crate::scripts::{horizon_of, near};
use crate::status::BucketStatus;

/// A bucket that refills evenly, and that processes share by its name: a long-term rate, with bursts, under one limit or several at
/// once. Cheap to clone; handles have no state.
///
/// For many names, such as one for each user: the server keeps one short string for each name in recent use, whatever the rate. A
/// window of *t* has up to burst + rate × *t* grants. If a window must never have more than the rate, use a
/// [`RateLimiter`](crate::RateLimiter). Redisson has no token bucket.
///
/// # Guarantees
/// * The limits hold by the server's clock, as long as the server keeps its data, also when that clock is stepped back. The server
///   stores only the use of a limit, so a changed limit applies from the next request on. All processes give the same limits in the
///   same order; a handle with fewer limits keeps the use of the other limits by other processes.
/// * P6: a request that was resent takes once, from the moment of the last request. If another request took permits in between, it
///   may take twice, so the bucket is strict, never lax.
/// * P3: an acquire that returns no [`Grant`] gives its booking back if it was the last one; otherwise the booking stays unused.
/// * Order: as for a [`RateLimiter`](crate::RateLimiter).
///
/// # Events
/// There is no `events` method: permits come back by the passage of time, without a write that the server could report, and each grant would
/// cost every listener a read of the state. Use [`status`](Self::status) for a view of now, the `retry_after` of
/// [`Limited`](crate::Limited) for the time of the next permit, and the metric `stanchion_limited_total` for refusals.
///
/// # On the wire
/// The string `stanchion_bucket:{name}`, which expires one second after the bucket is full. A grant is one command.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    handle: Handle,
    keys: Arc<BucketKeys>,
    limits: Vec<Limit>,
    horizon: Option<Duration>,
    /// The limits, in the format of the script.
    text: Arc<str>,
}

impl TokenBucket {
    /// Returns a handle to the bucket called `name` (1 to 512 bytes with the client's key prefix). Sends nothing.
    ///
    /// ```
    /// # use stanchion_limiter::{Client, Limit, Quota, TokenBucket};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let url = "memory://tokenbucket-new";
    /// let client = Client::connect(url).await?; // redis://…
    /// let per_user = TokenBucket::new(&client, "user:17", Limit::new("10/s".parse()?, 20)?)?
    ///     .and("1000/h".parse::<Quota>()?); // both at once
    /// assert_eq!(per_user.try_acquire().await?.granted().map(|grant| grant.remaining()), Some(19));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(
        client: &Client,
        name: impl AsRef<[u8]>,
        limit: impl Into<Limit>,
    ) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let keys = Arc::new(BucketKeys::new(&handle, name)?);
        let bucket = Self {
            handle,
            keys,
            limits: Vec::new(),
            horizon: None,
            text: "".into(),
        };
        Ok(bucket.and(limit))
    }

    /// Returns the same bucket under one more limit: a request is granted when all of them allow it.
    #[must_use]
    pub fn and(mut self, limit: impl Into<Limit>) -> Self {
        self.limits.push(limit.into());
        let texts: Vec<String> = self.limits.iter().map(Limit::text).collect();
        self.text = texts.join(" ").into();
        self
    }

    /// Returns the same bucket with another horizon: the furthest that acquires are booked ahead. Default: the shortest
    /// interval of its limits, but at least 1 s and at most 10 s. Above 60 s the requests are rejected
    /// ([`Rejection::InvalidOption`](stanchion_client::Rejection::InvalidOption)).
    #[must_use]
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// Returns the name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.keys.name
    }

    /// Returns its limits.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    pub(crate) fn asking(&self, permits: u32, patience: Option<Duration>) -> Asking {
        let intervals = self.limits.iter().map(|limit| limit.quota.interval());
        let shortest = intervals.min().unwrap_or_default();
        let answer = Arc::new(Answer::default());
        let description = BucketDescription {
            about: about("token_bucket", &self.keys.name, &self.keys.channel, permits),
            keys: Arc::clone(&self.keys),
            limits: Arc::clone(&self.text),
            permits,
            horizon: self.horizon.unwrap_or_else(|| horizon_of(shortest)),
            patience,
            answer: Arc::clone(&answer),
        };
        let most = self.limits.iter().map(|limit| limit.burst).min();
        Asking {
            handle: self.handle.clone(),
            sync: Arc::new(description),
            answer,
            permits,
            refused: too_fast(&self.limits)
                .or_else(|| near(self.horizon?).err().map(Into::into))
                .or_else(|| wanted(permits, most.unwrap_or(0))),
        }
    }

    /// Returns the state of the bucket, and takes nothing.
    ///
    /// ```
    /// # use stanchion_limiter::{Client, Quota, TokenBucket};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://tokenbucket-status").await?;
    /// let per_user = TokenBucket::new(&client, "user:17", "10/m".parse::<Quota>()?)?;
    /// let _ = per_user.acquire_many(4).await?;
    /// assert_eq!(per_user.status().await?.free, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_client::Rejection::WrongType) if the key has another type.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script.
    pub async fn status(&self) -> Result<BucketStatus, QueryError> {
        let operation = self.handle.operation().await?;
        let call = look(&self.keys, &self.text, &operation);
        let reply = self.handle.operate(&operation, &call).await?;
        BucketStatus::read(&reply).ok_or_else(|| unexpected(&reply))
    }

    /// Waits for one permit.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_limiter::{Client, Quota, TokenBucket};
    /// # let client = Client::connect("memory://tokenbucket").await?;
    /// # let api = TokenBucket::new(&client, "partner-api", "2/m".parse::<Quota>()?)?;
    /// let _grant = api.acquire().await?; // now, or at a booked moment
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::acquire`](crate::RateLimiter::acquire). The cancel safety and the messages on the wire are the same.
    pub fn acquire(&self) -> impl Future<Output = Result<Grant, AcquireError>> + Send + 'static {
        self.acquire_many(1)
    }

    /// Waits for `permits` permits, all at one moment.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_limiter::{Client, Quota, TokenBucket};
    /// # let client = Client::connect("memory://tokenbucket").await?;
    /// # let api = TokenBucket::new(&client, "partner-api", "2/m".parse::<Quota>()?)?;
    /// let pair = api.acquire_many(2).await?;
    /// assert_eq!(pair.permits(), 2);
    /// assert!(api.acquire_many(3).await.is_err()); // there are never so many
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::acquire_many`](crate::RateLimiter::acquire_many). The cancel safety and the messages on the wire are the same.
    pub fn acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Grant, AcquireError>> + Send + 'static {
        self.asking(permits, None).wait()
    }

    /// Waits for one permit for at most `timeout`. Returns *at once* if no permit is available in that time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_limiter::{Client, LimitError, Quota, TokenBucket};
    /// # let client = Client::connect("memory://tokenbucket").await?;
    /// # let api = TokenBucket::new(&client, "partner-api", "2/m".parse::<Quota>()?)?;
    /// # use std::time::Duration;
    /// let _ = api.acquire_many(2).await?;
    /// match api.acquire_timeout(Duration::from_secs(5)).await {
    ///     Err(LimitError::TimedOut { limited: Some(limited), .. }) => assert!(limited.retry_after > Duration::from_secs(5)),
    ///     other => panic!("both are taken: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::acquire_timeout`](crate::RateLimiter::acquire_timeout). The cancel safety and the messages on the wire are the same.
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant, LimitError>> + Send + 'static {
        self.acquire_many_timeout(1, timeout)
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), for `permits` permits.
    ///
    /// # Errors
    /// As [`RateLimiter::acquire_many_timeout`](crate::RateLimiter::acquire_many_timeout). The cancel safety and the messages on the wire are the same.
    pub fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant, LimitError>> + Send + 'static {
        self.asking(permits, Some(timeout)).acquire(Some(timeout))
    }

    /// Takes one permit if it is free now, and does not wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_limiter::{Attempt, Client, Quota, TokenBucket};
    /// # let client = Client::connect("memory://tokenbucket").await?;
    /// # let api = TokenBucket::new(&client, "partner-api", "2/m".parse::<Quota>()?)?;
    /// for _ in 0..2 {
    ///     assert!(matches!(api.try_acquire().await?, Attempt::Granted(_)));
    /// }
    /// match api.try_acquire().await? {
    ///     Attempt::Limited(limited) => assert!(limited.retry_after_secs() > 5), // for `Retry-After`
    ///     other => panic!("both are taken: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::try_acquire`](crate::RateLimiter::try_acquire). The cancel safety and the messages on the wire are the same.
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Attempt, AcquireError>> + Send + 'static {
        self.try_acquire_many(1)
    }

    /// As [`try_acquire`](Self::try_acquire), for `permits` permits: all of them or none.
    ///
    /// # Errors
    /// As [`RateLimiter::try_acquire_many`](crate::RateLimiter::try_acquire_many). The cancel safety and the messages on the wire are the same.
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Attempt, AcquireError>> + Send + 'static {
        self.asking(permits, None).try_acquire()
    }
}

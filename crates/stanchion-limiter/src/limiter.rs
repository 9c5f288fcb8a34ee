//! The rate limiter.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Handle, Reply, Resend, bounded, unexpected};
use stanchion_client::{AcquireError, Client, InvalidName, Name, Outage, QueryError, Rejection};

use crate::danger::LimiterDanger;
use crate::keys::{Keys, about};
use crate::limited::{Answer, Attempt, Grant, LimitError};
use crate::quota::Quota;
use crate::request::{Asking, wanted};
use crate::scripts::limiter::{Description, LONGEST, Terms, set_quota, status};
use crate::scripts::{horizon_of, near};
use crate::status::LimiterStatus;

/// The shortest default time for which an idle limiter is kept.
const KEPT: Duration = Duration::from_secs(3_600);

/// The scope of a quota: all processes, or each client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum QuotaScope {
    /// For all processes together. Redisson's `OVERALL`.
    #[default]
    Overall,
    /// For each [`Client`] alone. Redisson's `PER_CLIENT`. The state of a closed client stays until the
    /// [keep-alive](RateLimiter::keep_alive) time has passed.
    PerClient,
}

impl QuotaScope {
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Overall => 0,
            Self::PerClient => 1,
        }
    }
}

/// The way in which acquires wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// The server books a moment, at most `horizon` ahead (60 s at most), and the acquire sleeps until then. One command for each
    /// grant, in the order of arrival at the server. If a process dies, its bookings stay unused: at most those of one horizon. A
    /// request for several permits may be booked up to one interval further ahead.
    Booked {
        /// The furthest that a request is booked ahead.
        horizon: Duration,
    },
    /// No bookings: the first waiter of each process polls when permits come back. For a limiter on which processes with Redisson
    /// also wait: they cannot book, and would get no permits while other processes book.
    Asked,
}

/// The effect of [`RateLimiter::set_quota`] on the permits in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Usage {
    /// They count against the new quota.
    Keep,
    /// They are forgotten, and so are bookings: for one interval, more than the quota may be used.
    Reset,
}

/// A quota that processes share by a name: never more than its permits in *any* interval. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * At most the permits of the quota start to count in any window of one interval, by the server's clock. This holds as long as the
///   server keeps its data, and no client gives back permits that it has used. Clients' clocks do not matter.
/// * If the server's clock is stepped back, this still holds, and no limiter in steady use stops.
/// * P6: a request that was resent takes once, from the moment of the last request on.
/// * P3: an acquire that returns no [`Grant`] gives back its permits or booking, once the server replies again.
/// * Order: within a process that of arrival. Across processes that of arrival at the server, within the [horizon](Waiting::Booked);
///   beyond it, the first request after the permits come back gets them.
/// * A dead process delays others by one horizon at most, because its bookings reach no further.
///
/// # Events
/// There is no `events` method: permits come back by the passage of time, without a write that the server could report, and each grant would
/// cost every listener a read of the state. Use [`status`](Self::status) for a view of now, the `retry_after` of
/// [`Limited`](crate::Limited) for the time of the next permit, and the metric `stanchion_limited_total` for refusals.
///
/// # On the wire
/// Redisson's `RRateLimiter`: the hash `name`, the counter `{name}:value` and the log `{name}:permits`; both with `:<client uuid>`
/// for [`QuotaScope::PerClient`]. A grant is one command, whatever the number of waiters. Only stanchion uses the channel
/// `stanchion_limiter:{name}`, and the string `stanchion_limiter_written:{name}`, which expires.
///
/// The first request stores the quota. From then on all handles use the stored quota, also those with another one
/// ([`RateLimiter::status`] shows it, [`RateLimiter::set_quota`] changes it).
#[derive(Clone, Debug)]
pub struct RateLimiter {
    pub(crate) handle: Handle,
    pub(crate) keys: Arc<Keys>,
    terms: Terms,
    waiting: Option<Waiting>,
}

impl RateLimiter {
    /// Returns a handle to the rate limiter called `name` (1 to 512 bytes with the client's key prefix; not another name in braces).
    /// Sends nothing.
    ///
    /// ```
    /// # use stanchion_limiter::{Client, Quota, RateLimiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let url = "memory://ratelimiter-new";
    /// let client = Client::connect(url).await?; // redis://…
    /// let api = RateLimiter::new(&client, "partner-api", Quota::per_second(100)?)?;
    /// let grant = api.acquire().await?;
    /// assert_eq!(grant.remaining(), 99);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>, quota: Quota) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let keys = Arc::new(Keys::new(&handle, name)?);
        let terms = Terms {
            quota,
            scope: QuotaScope::default(),
            keep_alive: Some(KEPT.max(10 * quota.interval())),
        };
        Ok(Self {
            handle,
            keys,
            terms,
            waiting: None,
        })
    }

    /// Returns the same limiter for another scope. It applies when the limiter is created; afterwards the stored scope is used.
    #[must_use]
    pub fn scope(mut self, scope: QuotaScope) -> Self {
        self.terms.scope = scope;
        self
    }

    /// Returns the same limiter with another keep-alive time: the server forgets the limiter after this time without a request;
    /// `None`: never. Default: ten intervals, at least an hour. It applies when the limiter is created.
    ///
    /// The next request of a stanchion client creates a forgotten limiter again. Until then, it is "not initialized" to Redisson.
    ///
    /// At least three intervals of the quota, because the log must outlive its entries, and at most 10 years: otherwise the requests are
    /// rejected ([`Rejection::InvalidOption`]).
    #[must_use]
    pub fn keep_alive(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.terms.keep_alive = time.into();
        self
    }

    /// Returns the same limiter with another way to wait. Default: booked, with a horizon of one interval, but at least 1 s and at
    /// most 10 s. With a horizon above 60 s the requests are rejected ([`Rejection::InvalidOption`]).
    ///
    /// ```
    /// # use stanchion_limiter::{Client, RateLimiter, Waiting};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://ratelimiter-waiting").await?;
    /// let api = RateLimiter::new(&client, "partner-api", "100/s".parse()?)?;
    /// let beside_java = api.waiting(Waiting::Asked); // Redisson's processes wait for it, too
    /// # drop(beside_java);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = Some(waiting);
        self
    }

    /// Checks the settings of this handle.
    fn check(&self) -> Result<(), Rejection> {
        if let Some(time) = self.terms.keep_alive {
            let least = 3 * self.terms.quota.interval();
            let rule = "three intervals of the quota to 10 years; None keeps it without a limit";
            bounded("keep_alive", time, least..=LONGEST, rule)?;
        }
        if let Some(Waiting::Booked { horizon }) = self.waiting {
            near(horizon)?;
        }
        Ok(())
    }

    /// Returns the name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.keys.name
    }

    /// Returns the quota of this handle.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.terms.quota
    }

    pub(crate) fn asking(&self, permits: u32, patience: Option<Duration>) -> Asking {
        let horizon = match self.waiting {
            None => horizon_of(self.terms.quota.interval()),
            Some(Waiting::Booked { horizon }) => horizon,
            Some(Waiting::Asked) => Duration::ZERO,
        };
        let answer = Arc::new(Answer::default());
        let description = Description {
            about: about("rate_limiter", &self.keys.name, &self.keys.channel, permits),
            keys: Arc::clone(&self.keys),
            terms: self.terms,
            permits,
            horizon,
            patience,
            answer: Arc::clone(&answer),
        };
        Asking {
            handle: self.handle.clone(),
            sync: Arc::new(description),
            answer,
            permits,
            // More than the rate: the server decides, because it knows the rate.
            refused: (self.check().err()).or_else(|| wanted(permits, u32::MAX)),
        }
    }

    /// Returns the state on the server: the quota, and its use.
    ///
    /// ```
    /// # use stanchion_limiter::{Client, RateLimiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://ratelimiter-status").await?;
    /// let api = RateLimiter::new(&client, "partner-api", "100/m".parse()?)?;
    /// let _ = api.try_acquire_many(30).await?;
    /// let status = api.status().await?;
    /// assert_eq!((status.free, status.entries), (70, 1));
    /// assert_eq!(status.quota, Some(api.quota()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_client::Rejection::WrongType) if the key of this name has another type.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script, which reads the whole log.
    pub async fn status(&self) -> Result<LimiterStatus, QueryError> {
        let call = status(&self.keys);
        let reply = self.handle.query(&call, Resend::UntilAnswered).await?;
        LimiterStatus::read(&reply, self.terms.quota).ok_or_else(|| unexpected(&reply))
    }

    /// Sets the quota for all processes, with the scope and the keep-alive time of this handle. A keep-alive time below three intervals of the
    /// new quota is stored as three.
    ///
    /// Waiters with a booking keep its moment; those beyond the horizon send a request at once. With [`QuotaScope::PerClient`], the
    /// use by *other* clients stays as it is, as with Redisson.
    ///
    /// ```
    /// # use stanchion_limiter::{Client, RateLimiter, Usage};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://ratelimiter-set-quota").await?;
    /// let api = RateLimiter::new(&client, "partner-api", "10/m".parse()?)?;
    /// let _ = api.try_acquire_many(10).await?;
    /// api.set_quota("15/m".parse()?, Usage::Keep).await?;
    /// assert_eq!(api.status().await?.free, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_client::Rejection::WrongType) if the key of this name has another type. After
    /// [`QueryError::Unanswered`] or [`QueryError::Unavailable`] it may have been set.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have set it.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once (P6). Redisson's `setRate`, and a message to stanchion's waiters.
    pub async fn set_quota(&self, quota: Quota, usage: Usage) -> Result<(), QueryError> {
        self.check()
            .map_err(|rejection| QueryError::Rejected { rejection })?;
        let operation = self.handle.operation().await?;
        let least = 3 * quota.interval();
        let terms = Terms {
            quota,
            keep_alive: self.terms.keep_alive.map(|time| time.max(least)),
            ..self.terms
        };
        let call = set_quota(&self.keys, &terms, usage, &operation);
        match self.handle.operate(&operation, &call).await? {
            Reply::Int(1) => Ok(()),
            // An earlier attempt may have set it.
            Reply::Int(-1) => Err(QueryError::Unanswered {
                outage: Outage::Unanswered {
                    detail: "the request reached the server too late".into(),
                },
            }),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Returns the operations that take the quota's protection away from others.
    ///
    /// ```
    /// # use stanchion_limiter::{Client, RateLimiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://ratelimiter-danger").await?;
    /// let api = RateLimiter::new(&client, "partner-api", "10/m".parse()?)?;
    /// let operator = api.danger(); // a word that shows in a review
    /// assert!(!operator.delete().await?); // no request has created it
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn danger(&self) -> LimiterDanger<'_> {
        LimiterDanger { limiter: self }
    }

    /// Waits for one permit.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_limiter::{Client, RateLimiter};
    /// # let client = Client::connect("memory://ratelimiter").await?;
    /// # let api = RateLimiter::new(&client, "partner-api", "2/m".parse()?)?;
    /// let _grant = api.acquire().await?; // now, or at a booked moment
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: the request cannot succeed in this form. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server was out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: permits or a booking are given back in the background (P3).
    ///
    /// # On the wire
    /// One script. One more for a request beyond the horizon, and one more after a wait of more than an interval.
    pub fn acquire(&self) -> impl Future<Output = Result<Grant, AcquireError>> + Send + 'static {
        self.acquire_many(1)
    }

    /// Waits for `permits` permits, all at one moment.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_limiter::{Client, RateLimiter};
    /// # let client = Client::connect("memory://ratelimiter").await?;
    /// # let api = RateLimiter::new(&client, "partner-api", "2/m".parse()?)?;
    /// let pair = api.acquire_many(2).await?;
    /// assert_eq!(pair.permits(), 2);
    /// assert!(api.acquire_many(3).await.is_err()); // there are never so many
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire). [`AcquireError::Rejected`] for zero permits, and for more than the limiter can ever grant.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
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
    /// # use stanchion_limiter::{Client, LimitError, RateLimiter};
    /// # let client = Client::connect("memory://ratelimiter").await?;
    /// # let api = RateLimiter::new(&client, "partner-api", "2/m".parse()?)?;
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
    /// [`LimitError::TimedOut`]: nothing was taken. At once if the moment is within the horizon, or if no
    /// other call of this process waits before it; at the deadline at the latest (P9). Otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Grant, LimitError>> + Send + 'static {
        self.acquire_many_timeout(1, timeout)
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), for `permits` permits.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Self::acquire_timeout) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
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
    /// # use stanchion_limiter::{Attempt, Client, RateLimiter};
    /// # let client = Client::connect("memory://ratelimiter").await?;
    /// # let api = RateLimiter::new(&client, "partner-api", "2/m".parse()?)?;
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
    /// As [`acquire`](Self::acquire), but it does not wait for the end of an outage.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # On the wire
    /// One script.
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Attempt, AcquireError>> + Send + 'static {
        self.try_acquire_many(1)
    }

    /// As [`try_acquire`](Self::try_acquire), for `permits` permits: all of them or none.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_many(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<Attempt, AcquireError>> + Send + 'static {
        self.asking(permits, None).try_acquire()
    }
}

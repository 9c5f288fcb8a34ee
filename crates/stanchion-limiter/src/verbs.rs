//! The macro for the verbs that both limiters share.

/// Adds the verbs to a limiter that has a method `asking`. The lines above `example` are hidden: they make the `api` of the examples,
/// with two permits.
macro_rules! define_limiter_verbs {
    (
        impl $limiter:ident;

        $(#[$setup:meta])*
        example api;
    ) => {
        impl $limiter {
            /// Waits for one permit.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
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
            pub fn acquire(
                &self,
            ) -> impl Future<Output = Result<Grant, AcquireError>> + Send + 'static {
                self.acquire_many(1)
            }

            /// Waits for `permits` permits, all at one moment.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
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
                let (asking, name) = (self.asking(permits, None), self.name().clone());
                async move {
                    let granted = asking.acquire(None).await;
                    granted.map_err(|error| $crate::request::without_deadline(error, &name))
                }
            }

            /// Waits for one permit for at most `timeout`. Returns *at once* if no permit is available in that time.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let _ = api.acquire_many(2).await?;
            /// match api.acquire_timeout(Duration::from_secs(5)).await {
            ///     Err(LimitError::Limited(limited)) => assert!(limited.retry_after > Duration::from_secs(5)),
            ///     other => panic!("both are taken: {other:?}"),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`LimitError::Limited`](crate::LimitError::Limited): nothing was taken. At once if the moment is within the horizon, or if no
            /// other call of this process waits before it; at the deadline at the latest (P9). Otherwise as [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            pub fn acquire_timeout(
                &self,
                timeout: Duration,
            ) -> impl Future<Output = Result<Grant, $crate::LimitError>> + Send + 'static {
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
            ) -> impl Future<Output = Result<Grant, $crate::LimitError>> + Send + 'static {
                self.asking(permits, Some(timeout)).acquire(Some(timeout))
            }

            /// Takes one permit if it is free now, and does not wait.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
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
    };
}
pub(crate) use define_limiter_verbs;

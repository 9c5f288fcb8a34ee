//! The verbs that both kinds of semaphore have.

/// Defines the methods that differ only in the permit: the shorter ways to acquire, and those that change the number
/// of permits. They need the type's own `acquire`, `acquire_many`, `acquire_with` and `try_acquire_with`.
///
/// The lines above `example semaphore` create the semaphore of the examples; they are hidden. The lines of `drain`
/// are added to the docs of the method.
macro_rules! define_pool_verbs {
    (
        impl $semaphore:ident, of $permit:ident, in $danger:ident;

        $(#[$setup:meta])*
        example semaphore;

        fn drain { $(#[$drain:meta])* }
    ) => {
        impl $semaphore {
            /// Sets the number of permits if the semaphore does not exist yet, and returns whether it did so. Redisson's `trySetPermits`.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// assert!(semaphore.init(3).await?);
            /// assert!(!semaphore.init(5).await?); // the first call has set the number
            /// assert_eq!(semaphore.available().await?, 3);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`QueryError`]. [`QueryError::Unavailable`]: it may have taken effect, and does not take effect later.
            ///
            /// # Cancel safety
            /// A dropped call may or may not have set it.
            ///
            /// # On the wire
            /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6).
            pub async fn init(&self, permits: u32) -> Result<bool, QueryError> {
                self.pool.init(permits).await
            }

            /// Waits for one permit, for at most `timeout`. Zero sends one request.
            ///
            /// ```
            /// # use std::time::Duration;
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(1).await?;
            /// let permit = semaphore.acquire().await?;
            /// let late = semaphore.acquire_timeout(Duration::from_millis(20)).await;
            /// assert!(matches!(late, Err(AcquireError::TimedOut { .. })));
            /// permit.release().await?;
            /// semaphore.acquire_timeout(Duration::from_secs(5)).await?.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as
            /// [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            pub fn acquire_timeout(
                &self,
                timeout: Duration,
            ) -> impl Future<Output = Result<$permit, AcquireError>> + Send + 'static {
                self.acquire_with(1, within(timeout))
            }

            /// Waits for `permits` permits, for at most `timeout`. Zero sends one request.
            ///
            /// ```
            /// # use std::time::Duration;
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(3).await?;
            /// let pair = semaphore.acquire_many_timeout(2, Duration::from_secs(5)).await?;
            /// assert_eq!(pair.count(), 2);
            /// let late = semaphore.acquire_many_timeout(2, Duration::from_millis(20)).await;
            /// assert!(matches!(late, Err(AcquireError::TimedOut { .. }))); // one is free: not enough
            /// # Ok(())
            /// # }
            /// ```
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
            ) -> impl Future<Output = Result<$permit, AcquireError>> + Send + 'static {
                self.acquire_with(permits, within(timeout))
            }

            /// Tries once to acquire one permit; returns `Ok(None)` when none is free, or the free ones are kept back for a big request.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(1).await?;
            /// let permit = semaphore.try_acquire().await?;
            /// assert!(permit.is_some());
            /// assert!(semaphore.try_acquire().await?.is_none()); // returns at once
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            ///
            /// # On the wire
            /// One script, resent after a lost reply; it takes effect once (P6).
            pub fn try_acquire(
                &self,
            ) -> impl Future<Output = Result<Option<$permit>, AcquireError>> + Send + 'static {
                self.try_acquire_many(1)
            }

            /// Tries once to acquire `permits` permits, all of them at once.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(3).await?;
            /// let pair = semaphore.acquire_many(2).await?;
            /// assert!(semaphore.try_acquire_many(2).await?.is_none()); // all or none
            /// assert_eq!(semaphore.available().await?, 1);
            /// pair.release().await?;
            /// assert!(semaphore.try_acquire_many(2).await?.is_some());
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            pub fn try_acquire_many(
                &self,
                permits: u32,
            ) -> impl Future<Output = Result<Option<$permit>, AcquireError>> + Send + 'static {
                self.try_acquire_with(permits, AcquireOptions::new())
            }

            /// Adds permits, wakes waiters, and returns the number of permits that are free afterwards. Creates the semaphore if it
            /// does not exist. A TTL on the key stays, unlike with Redisson's `addPermits`.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(1).await?;
            /// let permit = semaphore.acquire().await?; // the only one
            /// let waiter = tokio::spawn(semaphore.acquire());
            /// assert_eq!(semaphore.add(1).await?, 1);
            /// assert_eq!(waiter.await??.count(), 1);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`QueryError`]. [`QueryError::Unavailable`]: they may have been added, and are not added later.
            /// [`QueryError::Rejected`] for more than 2³¹ − 1, the most that Java can read.
            ///
            /// # Cancel safety
            /// A dropped call may or may not have added them.
            ///
            /// # On the wire
            /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6).
            pub async fn add(&self, permits: u32) -> Result<i64, QueryError> {
                self.pool.add(permits).await
            }

            /// Removes permits for good, free or held, and returns the number of permits that are free afterwards. While
            /// that number is negative, a release wakes no waiter. Redisson's `addPermits` with a negative number.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(3).await?;
            /// let pair = semaphore.acquire_many(2).await?;
            /// assert_eq!(semaphore.reduce(2).await?, -1); // one was free
            /// pair.release().await?;
            /// assert_eq!(semaphore.available().await?, 1);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// As [`add`](Self::add).
            ///
            /// # Cancel safety
            /// A dropped call may or may not have removed them.
            ///
            /// # On the wire
            /// As [`add`](Self::add).
            pub async fn reduce(&self, permits: u32) -> Result<i64, QueryError> {
                self.pool.reduce(permits).await
            }

            /// Removes all free permits for good, and returns their number.
            $(#[$drain])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(3).await?;
            /// let permit = semaphore.acquire().await?;
            /// assert_eq!(semaphore.drain().await?, 2);
            /// permit.release().await?;
            /// assert_eq!(semaphore.available().await?, 1); // the one that was held
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// As [`add`](Self::add).
            ///
            /// # Cancel safety
            /// A dropped call may or may not have removed them.
            ///
            /// # On the wire
            /// As [`add`](Self::add).
            pub async fn drain(&self) -> Result<u32, QueryError> {
                self.pool.drain().await
            }

            /// Returns the operations that take permits away from their holders.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # semaphore.init(3).await?;
            /// let operator = semaphore.danger(); // a word that shows in a review
            /// assert!(operator.delete().await?);
            /// assert!(!semaphore.status().await?.exists);
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn danger(&self) -> $danger<'_> {
                $danger { pool: &self.pool }
            }
        }
    };
}
pub(crate) use define_pool_verbs;

//! The macro that defines the methods of a lock, so that the methods of all locks behave the same.

/// Gives a lock with the fields `handle`, `sync` and `lease` the methods that all locks have, and implements [`Lockable`](crate::Lockable) for it.
///
/// For the crates of this workspace. The lines above `example lock` are the hidden setup of the examples. The docs of `acquire` and `try_acquire`
/// describe the differences between locks: how they wait, and what they send.
#[macro_export]
macro_rules! define_verbs {
    (
        impl $lock:ident, guarded by $guard:ident, in $danger:ident;

        $(#[$setup:meta])*
        example lock;

        fn acquire { $(#[$acquire:meta])* }
        fn try_acquire { $(#[$try_acquire:meta])* }
    ) => {
        impl $lock {
            /// Returns the same lock with another lease for acquires that set none. Default 30 s.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let short = Lease::new(Duration::from_secs(5))?;
            /// let lock = lock.with_lease(short);
            /// let guard = lock.acquire().await?; // if this process dies, it ends after 5 s
            /// assert!(guard.remaining() <= Duration::from_secs(5));
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn with_lease(mut self, lease: $crate::Lease) -> Self {
                self.lease = lease;
                self
            }

            $(#[$acquire])*
            pub fn acquire(
                &self,
            ) -> impl ::std::future::Future<Output = Result<$guard, $crate::AcquireError>> + Send + 'static {
                let part = $crate::Lockable::part(self);
                // By reference: otherwise the future of every waiter would contain the options.
                async move { part.acquire($crate::AcquireOptions::none()).await.map($guard::new) }
            }

            /// Waits for at most `timeout`. A timeout of zero sends one request.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let _guard = lock.acquire().await?;
            /// match lock.acquire_timeout(Duration::from_millis(50)).await {
            ///     Err(AcquireError::TimedOut { waited, .. }) => assert!(waited >= Duration::from_millis(50)),
            ///     other => panic!("somebody else holds it: {other:?}"),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`AcquireError::TimedOut`](stanchion_core::AcquireError::TimedOut), at most 50 ms after the deadline on any
            /// network (P9); otherwise as [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            pub fn acquire_timeout(
                &self,
                timeout: ::std::time::Duration,
            ) -> impl ::std::future::Future<Output = Result<$guard, $crate::AcquireError>> + Send + 'static {
                self.acquire_with($crate::AcquireOptions::new().timeout(timeout))
            }

            /// Acquires with `options`.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let me = AcquireOptions::new().owner(&client.owner());
            /// let outer = lock.acquire_with(me.clone()).await?;
            /// let inner = lock.acquire_with(me).await?; // the same owner re-enters
            /// assert_eq!(inner.fencing_token(), outer.fencing_token());
            ///
            /// let other = AcquireOptions::new().timeout(Duration::ZERO);
            /// assert!(lock.acquire_with(other).await.is_err()); // a new owner does not
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// As [`acquire`](Self::acquire) and [`acquire_timeout`](Self::acquire_timeout).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            pub fn acquire_with(
                &self,
                options: $crate::AcquireOptions,
            ) -> impl ::std::future::Future<Output = Result<$guard, $crate::AcquireError>> + Send + 'static {
                let part = $crate::Lockable::part(self);
                async move { part.acquire(&options).await.map($guard::new) }
            }

            $(#[$try_acquire])*
            pub fn try_acquire(
                &self,
            ) -> impl ::std::future::Future<Output = Result<Option<$guard>, $crate::AcquireError>> + Send + 'static {
                self.try_acquire_with($crate::AcquireOptions::new())
            }

            /// Tries once, with `options`. Their timeout limits the wait for the server's reply.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let minute = Lease::new(Duration::from_secs(60))?;
            /// let once_a_minute = AcquireOptions::new().lease(minute).renewal(Renewal::Manual);
            /// let guard = lock.try_acquire_with(once_a_minute.clone()).await?.ok_or("it has run")?;
            /// guard.leave(); // keeps others off until the lease ends
            /// assert!(lock.try_acquire_with(once_a_minute).await?.is_none());
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// As [`try_acquire`](Self::try_acquire).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            pub fn try_acquire_with(
                &self,
                options: $crate::AcquireOptions,
            ) -> impl ::std::future::Future<Output = Result<Option<$guard>, $crate::AcquireError>> + Send + 'static {
                let part = $crate::Lockable::part(self);
                async move { Ok(part.try_acquire(&options).await?.map($guard::new)) }
            }

            /// Takes over the hold of a ticket from [`detach`](crate::$guard::detach), in any process.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// let guard = lock.acquire().await?;
            /// let token = guard.fencing_token();
            /// let ticket = guard.detach().await?.to_string(); // into a file, a job's payload, the next release's environment
            /// assert!(lock.try_acquire().await?.is_none()); // it is still held
            ///
            /// let guard = lock.adopt(&ticket.parse()?).await?;
            /// assert!(guard.fencing_token() > token);
            /// assert!(lock.adopt(&ticket.parse()?).await.is_err()); // once
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`AdoptError`](stanchion_core::AdoptError).
            ///
            /// # Cancel safety
            /// A dropped call may have adopted the hold, which is then released in the background. Otherwise the ticket stays valid.
            ///
            /// # On the wire
            /// One script. After a lost reply the script is sent again; repeated runs have the effect of one (P6).
            pub fn adopt(
                &self,
                ticket: &$crate::HoldTicket,
            ) -> impl ::std::future::Future<Output = Result<$guard, $crate::AdoptError>> + Send + 'static {
                self.adopt_with(ticket, $crate::AcquireOptions::new())
            }

            /// As [`adopt`](Self::adopt), with the lease, the renewal and the `max_hold` of `options`. A `max_hold` of the detached hold still
            /// counts, from its grant.
            ///
            /// # Errors
            /// As [`adopt`](Self::adopt).
            ///
            /// # Cancel safety
            /// As [`adopt`](Self::adopt).
            pub fn adopt_with(
                &self,
                ticket: &$crate::HoldTicket,
                options: $crate::AcquireOptions,
            ) -> impl ::std::future::Future<Output = Result<$guard, $crate::AdoptError>> + Send + 'static {
                let (part, ticket) = ($crate::Lockable::part(self), ticket.clone());
                async move { part.adopt(&ticket, &options).await.map($guard::new) }
            }

            /// Requests that the holder gives the lock back, with a reason of at most 200 bytes. The holder decides, and need not answer: its guard
            /// shows the [request](crate::$guard::requested).
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let guard = lock.acquire().await?;
            /// let requested = guard.requested(); // from here on this client listens
            /// # let ask = async {
            /// while lock.request_release("a migration waits").await?.heard == 0 {
            ///     tokio::time::sleep(Duration::from_millis(10)).await;
            /// }
            /// # Ok::<(), stanchion_core::QueryError>(()) };
            /// # ask.await?;
            /// assert_eq!(requested.await.reason, "a migration waits");
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`QueryError`](stanchion_core::QueryError).
            ///
            /// # Cancel safety
            /// A dropped call may or may not have sent the request.
            ///
            /// # On the wire
            /// One script, which publishes to the holder's process. A process subscribes once it has held something for a second (in a cluster for a
            /// third of its lease), or when `requested` is called on its guard. Before that `heard` is 0, and the caller has to send the request
            /// again. Redisson's processes do not receive the request.
            pub async fn request_release(&self, reason: &str) -> Result<$crate::Asked, $crate::QueryError> {
                self.handle.request_release(self.sync.name(), reason, false).await
            }

            /// Returns the operations that break guarantees.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// let stuck = lock.acquire().await?; // its process hangs
            /// let danger = lock.danger(); // a word to look for in reviews
            /// assert!(danger.force_release().await?);
            /// assert!(!lock.status().await?.is_held());
            /// # drop(stuck);
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn danger(&self) -> $danger<'_> {
                $danger { lock: self }
            }
        }

        impl $crate::Lockable for $lock {
            fn part(&self) -> $crate::primitive::Part {
                $crate::primitive::Part::new(&self.handle, &self.sync, self.lease)
            }
        }
    };
}

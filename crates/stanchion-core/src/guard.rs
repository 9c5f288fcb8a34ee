//! The macro that defines the guards of all primitives, so that their methods are written once.

/// Defines a guard type around a [`Hold`](crate::primitive::Hold) or a [`HoldSet`](crate::primitive::HoldSet), with the methods
/// that all guards have.
///
/// For the crates of this workspace. A primitive adds its own methods (a fencing token, re-entry, downgrade) in a separate `impl`, through the
/// private field `hold` or `holds`. `with` adds the fields that these methods need besides the hold.
///
/// `example` and the lines above it supply the examples of the methods: the hidden setup of the synchronizer, and its two acquire calls, without and
/// with `options`.
///
/// A guard of one hold is documented here. A guard `over holds` documents each method for several holds: `{ in short }`, then the example,
/// then `{ the sections }`. That guard implements `name` and `Debug` itself.
#[macro_export]
macro_rules! define_guard {
    (
        $(#[$doc:meta])*
        pub struct $guard:ident over hold $(with $field:ident: $type:ty)*;

        $(#[$setup:meta])*
        example $acquire:expr, $acquire_with:expr;
    ) => {
        $crate::define_guard! {
            @define
            $(#[$doc])*
            pub struct $guard over hold: $crate::primitive::Hold $(, $field: $type)*;

            $(#[$setup])*
            example $acquire, $acquire_with;

            fn valid_until {
                /// The end of the time in which the holder may rely on the hold: sent + lease − max(2 ms, lease/100), on the client's clock. Every
                /// renewal extends this time.
            } {
                /// # Guarantees
                /// P1: no other owner is granted the name before then, while the server keeps its data and its clock is not stepped.
            }
            fn is_held {
                /// Returns whether the hold is still held.
            } {
                /// # Guarantees
                /// P5: false before another owner can be granted the name. Compares the clock; needs no network and no timer. The check does not
                /// protect the code that runs after it: for that, use the fencing token.
            }
            fn lost {
                /// Resolves when the hold is lost, with the reason; never after a release.
            } {
                /// # Guarantees
                /// P5: resolves before another owner can be granted the name, and not early while renewals succeed. Every poll compares the clock,
                /// so the first poll after a pause of the process already sees the loss.
            }
            fn ended {
                /// Resolves when the hold has ended: released (by its last guard), or lost. For tasks that watch the hold.
            }
            fn run {
                /// Runs `work` while the hold lasts. When the hold is lost, `work` is dropped at its await point.
            }
            fn renew {
                /// Renews the lease now. Needed only with [`Renewal::Manual`](stanchion_core::Renewal::Manual), or to have a whole lease left at a
                /// certain point. Never shortens the lease.
            } {
                /// # Errors
                /// [`RenewError::Lost`](stanchion_core::RenewError::Lost) when the hold has ended; the other errors leave the
                /// hold as it was. Ends within the operation timeout.
                ///
                /// # Cancel safety
                /// Safe: a renewal that was sent may still take effect.
                ///
                /// # On the wire
                /// One script. After a lost reply the script is sent again; repeated runs have the effect of one.
            }
            fn release {
                /// Releases, and waits for the server's answer. Dropping the guard does the same in the background.
            } {
                /// # Errors
                /// [`ReleaseError::Lost`](stanchion_core::ReleaseError::Lost): the hold had ended before, and another owner may have held the name
                /// since; that owner's hold was not touched.
                /// [`ReleaseError::Ambiguous`](stanchion_core::ReleaseError::Ambiguous): no answer within the operation timeout;
                /// the release continues in the background.
                ///
                /// # Cancel safety
                /// Safe: the release continues in the background.
                ///
                /// # On the wire
                /// One script, which publishes, or hands the hold to the next waiter of this process.
            }
        }

        impl $guard {
            /// The name that is held, with the client's key prefix.
            #[must_use]
            pub fn name(&self) -> &$crate::Name {
                self.hold.name()
            }

            /// The owner of the hold. Acquire with this owner to re-enter.
            #[must_use]
            pub fn owner(&self) -> &$crate::Owner {
                self.hold.owner()
            }

            /// Ends the hold without releasing it: it is no longer renewed, and ends with its lease. With
            /// [`first_lease`](stanchion_core::AcquireOptions::first_lease) a quick job keeps other clients out for at least that lease, even
            /// clients whose clocks are late. Without a first lease the rest of the usual lease remains. For a hold with several guards one `leave`
            /// is enough: the other guards keep the hold, which ends with its lease after the last of them.
            ///
            /// # On the wire
            /// Nothing is sent, and nothing is published: waiters retry when the lease has ended.
            pub fn leave(self) {
                self.hold.leave();
            }
        }

        impl ::std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.hold).finish()
            }
        }
    };
    (
        $(#[$doc:meta])*
        pub struct $guard:ident over holds $(with $field:ident: $type:ty)*;
        $($verbs:tt)*
    ) => {
        $crate::define_guard! {
            @define
            $(#[$doc])*
            pub struct $guard over holds: $crate::primitive::HoldSet $(, $field: $type)*;
            $($verbs)*
        }
    };
    (
        @define
        $(#[$doc:meta])*
        pub struct $guard:ident over $held:ident: $held_type:ty $(, $field:ident: $type:ty)*;

        $(#[$setup:meta])*
        example $acquire:expr, $acquire_with:expr;

        fn valid_until { $(#[$valid_until:meta])* } { $(#[$valid_until_more:meta])* }
        fn is_held { $(#[$is_held:meta])* } { $(#[$is_held_more:meta])* }
        fn lost { $(#[$lost:meta])* } { $(#[$lost_more:meta])* }
        fn ended { $(#[$ended:meta])* }
        fn run { $(#[$run:meta])* }
        fn renew { $(#[$renew:meta])* } { $(#[$renew_more:meta])* }
        fn release { $(#[$release:meta])* } { $(#[$release_more:meta])* }
    ) => {
        $(#[$doc])*
        #[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
        pub struct $guard {
            $held: $held_type,
            $($field: $type,)*
        }

        impl $guard {
            $(#[$valid_until])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            #[doc = concat!("let guard = ", stringify!($acquire), ".await?;")]
            /// let left = guard.valid_until().since(client.now());
            /// assert!(left > Duration::from_secs(20)); // of a lease of 30 s
            /// # Ok(())
            /// # }
            /// ```
            ///
            $(#[$valid_until_more])*
            #[must_use]
            pub fn valid_until(&self) -> $crate::Moment {
                self.$held.valid_until()
            }

            /// The time left until [`valid_until`](Self::valid_until); zero once lost.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let options = AcquireOptions::new().max_hold(Duration::from_millis(200));
            #[doc = concat!("let guard = ", stringify!($acquire_with), ".await?;")]
            /// assert!(guard.remaining() > Duration::ZERO);
            /// guard.lost().await;
            /// assert_eq!(guard.remaining(), Duration::ZERO);
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn remaining(&self) -> ::std::time::Duration {
                self.$held.remaining()
            }

            $(#[$is_held])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let options = AcquireOptions::new().max_hold(Duration::from_millis(200));
            #[doc = concat!("let guard = ", stringify!($acquire_with), ".await?;")]
            /// assert!(guard.is_held());
            /// tokio::time::sleep(Duration::from_millis(200)).await;
            /// assert!(!guard.is_held());
            /// # Ok(())
            /// # }
            /// ```
            ///
            $(#[$is_held_more])*
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.$held.is_held()
            }

            $(#[$lost])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let options = AcquireOptions::new().max_hold(Duration::from_millis(50));
            #[doc = concat!("let guard = ", stringify!($acquire_with), ".await?;")]
            /// assert_eq!(guard.lost().await, LostReason::MaxHold);
            /// assert!(!guard.is_held());
            /// # Ok(())
            /// # }
            /// ```
            ///
            $(#[$lost_more])*
            ///
            /// # Cancel safety
            /// Safe; any number of these futures may exist, and they may outlive the guard. After a release the future stays pending and keeps
            /// nothing alive, but a task that waits only for it never ends: spawn [`ended`](Self::ended) instead.
            pub fn lost(&self) -> impl ::std::future::Future<Output = $crate::LostReason> + Send + 'static {
                self.$held.lost()
            }

            $(#[$ended])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            #[doc = concat!("let guard = ", stringify!($acquire), ".await?;")]
            /// let watch = tokio::spawn(guard.ended());
            /// guard.release().await?;
            /// assert_eq!(watch.await?, Ended::Released);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Guarantees
            /// For a lost hold, as [`lost`](Self::lost).
            ///
            /// # Cancel safety
            /// As [`lost`](Self::lost). The future keeps nothing alive.
            pub fn ended(&self) -> impl ::std::future::Future<Output = $crate::Ended> + Send + 'static {
                self.$held.ended()
            }

            /// Resolves with the last request to give the hold back, at once if there has been one; never after the hold's end. The holder decides:
            /// a request alone changes nothing.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            #[doc = concat!("let guard = ", stringify!($acquire), ".await?;")]
            /// tokio::select! {
            ///     biased;
            ///     request = guard.requested() => println!("asked: {}", request.reason), // finish early
            ///     () = async { /* the work */ } => {}
            /// }
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Cancel safety
            /// Safe; any number of these futures may exist, and they keep nothing alive. A request from before the call is not missed if the client
            /// was subscribed by then: see "On the wire".
            ///
            /// # On the wire
            /// The first call of a client subscribes to the client's own channel, unless the client has held something for a second. A request from
            /// before the subscription is not received, and the reply to its sender reports that.
            pub fn requested(&self) -> impl ::std::future::Future<Output = $crate::ReleaseRequest> + Send + 'static {
                self.$held.requested()
            }

            /// The last request to give the hold back, as of [`requested`](Self::requested).
            #[must_use]
            pub fn request(&self) -> Option<$crate::ReleaseRequest> {
                self.$held.request()
            }

            $(#[$run])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            /// let options = AcquireOptions::new().max_hold(Duration::from_millis(200));
            #[doc = concat!("let guard = ", stringify!($acquire_with), ".await?;")]
            /// assert_eq!(guard.run(async { 1 + 1 }).await?, 2);
            /// let endless = guard.run(std::future::pending::<()>()).await;
            /// assert_eq!(endless.unwrap_err().reason, LostReason::MaxHold); // dropped in time
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// [`LeaseLost`](stanchion_core::LeaseLost): the work did not finish.
            ///
            /// # Cancel safety
            /// As that of `work`.
            pub async fn run<F: ::std::future::Future>(&self, work: F) -> ::std::result::Result<F::Output, $crate::LeaseLost> {
                self.$held.run(work).await
            }

            $(#[$renew])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// let options = AcquireOptions::new().renewal(Renewal::Manual);
            #[doc = concat!("let guard = ", stringify!($acquire_with), ".await?;")]
            /// let earlier = guard.valid_until();
            /// guard.renew().await?;
            /// assert!(guard.valid_until() > earlier); // a whole lease ahead
            /// # Ok(())
            /// # }
            /// ```
            ///
            $(#[$renew_more])*
            pub async fn renew(&self) -> ::std::result::Result<(), $crate::RenewError> {
                self.$held.renew().await
            }

            /// Renews now, once for `lease` instead of the usual one. For use before a step that must not be interrupted, even if the server becomes
            /// unreachable. Never shortens the remaining lease. Later renewals use the usual lease again, and do not shorten it either.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            /// # use std::time::Duration;
            #[doc = concat!("let guard = ", stringify!($acquire), ".await?;")]
            /// let hour = stanchion_core::Lease::new(Duration::from_secs(3600))?;
            /// guard.renew_for(hour).await?;
            /// assert!(guard.remaining() > Duration::from_secs(3500));
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// If the process dies, the name stays taken for the rest of `lease`. With `max_hold` the lease ends at that limit.
            ///
            /// # Errors
            /// As [`renew`](Self::renew).
            ///
            /// # Cancel safety
            /// As [`renew`](Self::renew).
            ///
            /// # On the wire
            /// As [`renew`](Self::renew).
            pub async fn renew_for(&self, lease: $crate::Lease) -> ::std::result::Result<(), $crate::RenewError> {
                self.$held.renew_for(lease).await
            }

            $(#[$release])*
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            $(#[$setup])*
            #[doc = concat!("let guard = ", stringify!($acquire), ".await?;")]
            /// guard.release().await?; // confirmed: it is free
            #[doc = concat!("let next = ", stringify!($acquire), ".await?;")]
            /// assert!(next.is_held());
            /// # Ok(())
            /// # }
            /// ```
            ///
            $(#[$release_more])*
            pub async fn release(self) -> ::std::result::Result<(), $crate::ReleaseError> {
                self.$held.release().await
            }
        }

        impl ::std::convert::From<$guard> for $crate::Guard {
            fn from(guard: $guard) -> Self {
                Self::from(guard.$held)
            }
        }
    };
}

/// Adds methods to a guard with the private field `hold` that detach its hold, so that its lock can adopt the hold.
///
/// For the crates of this workspace.
#[macro_export]
macro_rules! define_detach {
    (impl $guard:ident, adopted by $lock:ident;) => {
        impl $guard {
            /// Ends this hold here without releasing it, and returns its ticket. Another process, or this one after a restart, can
            /// [adopt](crate::$lock::adopt) the hold with it. The lease begins again, and then ends the hold; `max_hold` may end it before.
            ///
            /// # Guarantees
            /// * No other owner gets the hold while the lease lasts (P1). A ticket can be adopted only once, and cannot be made from the data that
            ///   the server shows.
            /// * The hold is detached or re-entered, never both: of two concurrent calls of its owner the second one fails or waits.
            /// * The adopting owner gets a larger fencing token, so late requests of this process are refused where tokens are checked (P2).
            /// * A shutdown of the client does not release it.
            ///
            /// # Errors
            /// [`RenewError`](stanchion_core::RenewError): the hold was lost; it was re-entered and other guards count on it; or the server did not
            /// answer. The guard is consumed in any case: a hold that remains is released in the background.
            ///
            /// # Cancel safety
            /// A call that is dropped before it ends releases the hold.
            ///
            /// # On the wire
            /// One script, which gives the hold to the owner of the ticket. After a lost reply the script is sent again; repeated runs have the
            /// effect of one (P6). Local waiters retry once, and then wait for the rest of the lease.
            pub async fn detach(
                self,
            ) -> ::std::result::Result<$crate::HoldTicket, $crate::RenewError> {
                self.hold.detach(None).await
            }

            /// As [`detach`](Self::detach), for `lease`, which may be shorter than the usual one: the time in which the ticket must be adopted.
            ///
            /// # Errors
            /// As [`detach`](Self::detach).
            ///
            /// # Cancel safety
            /// As [`detach`](Self::detach).
            pub async fn detach_for(
                self,
                lease: $crate::Lease,
            ) -> ::std::result::Result<$crate::HoldTicket, $crate::RenewError> {
                self.hold.detach(Some(lease)).await
            }
        }
    };
}

//! The macro that defines the guards of all primitives, so that their methods are written once.

/// Defines a guard type around a [`Hold`](crate::primitive::Hold), with the methods that all guards have.
///
/// For the crates of the family. A primitive adds its own methods (a fencing token, re-entry, downgrade) in an `impl` of its
/// own, through the private field `hold`. `with` adds fields for what they need besides the hold.
#[macro_export]
macro_rules! define_guard {
    ($(#[$doc:meta])* pub struct $guard:ident $(with $field:ident: $type:ty)*;) => {
        $(#[$doc])*
        #[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
        pub struct $guard {
            hold: $crate::primitive::Hold,
            $($field: $type,)*
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

            /// The end of the time for which the holder may count on the hold: sent + lease − max(2 ms, lease/100), on the
            /// client's clock. Every renewal moves it on.
            ///
            /// # Guarantees
            /// P1: no other owner is granted before it, while the server keeps its data and its clock is not stepped.
            #[must_use]
            pub fn valid_until(&self) -> $crate::Moment {
                self.hold.valid_until()
            }

            /// The time left until [`valid_until`](Self::valid_until); zero once lost.
            #[must_use]
            pub fn remaining(&self) -> ::std::time::Duration {
                self.hold.remaining()
            }

            /// Returns whether the hold is still held.
            ///
            /// # Guarantees
            /// P5: false before another owner can be granted. Compares the clock; needs no network and no timer.
            /// The check cannot stop code between it and its effect: for that, use the fencing token.
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.hold.is_held()
            }

            /// Resolves when the hold is lost, with the reason; never after a release.
            ///
            /// # Guarantees
            /// P5: resolves before another owner can be granted, and not early while renewals succeed. Every poll compares the
            /// clock, so the first poll after a pause of the process already sees the loss.
            ///
            /// # Cancel safety
            /// Safe; any number of these futures may exist, and they may outlive the guard. After a release it pends for ever
            /// and keeps nothing alive, but a task that only waits for it never ends: spawn [`ended`](Self::ended) instead.
            pub fn lost(&self) -> impl ::std::future::Future<Output = $crate::LostReason> + Send + 'static {
                self.hold.lost()
            }

            /// Resolves when the hold has ended: released (by its last guard), or lost. For tasks that watch it.
            ///
            /// # Guarantees
            /// As [`lost`](Self::lost), if it is lost.
            ///
            /// # Cancel safety
            /// As [`lost`](Self::lost). It keeps nothing alive.
            pub fn ended(&self) -> impl ::std::future::Future<Output = $crate::Ended> + Send + 'static {
                self.hold.ended()
            }

            /// Runs `work` while the hold lasts. When the hold is lost, `work` is dropped at its await point.
            ///
            /// # Errors
            /// [`LeaseLost`](stanchion_core::LeaseLost): the work did not finish.
            ///
            /// # Cancel safety
            /// As that of `work`.
            pub async fn run<F: ::std::future::Future>(&self, work: F) -> ::std::result::Result<F::Output, $crate::LeaseLost> {
                self.hold.run(work).await
            }

            /// Renews the lease now. Only needed with [`Renewal::Manual`](stanchion_core::Renewal::Manual), or to have a
            /// whole lease ahead at a certain point. Never shortens the lease.
            ///
            /// # Errors
            /// [`RenewError::Lost`](stanchion_core::RenewError::Lost) when the hold has ended; the other errors leave the
            /// hold as it was. Ends within the operation timeout.
            ///
            /// # Cancel safety
            /// Safe: a renewal that was sent may still take effect.
            ///
            /// # On the wire
            /// One script; sent again after a lost reply, with the effect of once.
            pub async fn renew(&self) -> ::std::result::Result<(), $crate::RenewError> {
                self.hold.renew().await
            }

            /// Ends the hold without releasing it: it is no longer renewed, and its lease ends it. With
            /// [`first_lease`](stanchion_core::AcquireOptions::first_lease) a quick job keeps others out for at least that lease,
            /// also those whose clocks are late. For a hold with several guards one `leave` is enough: the others keep the hold,
            /// and after the last of them its lease ends it.
            ///
            /// # On the wire
            /// Nothing is sent, and nothing is published: waiters ask again when the lease has ended.
            pub fn leave(self) {
                self.hold.leave();
            }

            /// Releases, and waits for the server's answer. Dropping the guard does the same in the background.
            ///
            /// # Errors
            /// [`ReleaseError::Lost`](stanchion_core::ReleaseError::Lost): the hold had ended before, and another owner may have
            /// held since; its hold was not touched. [`ReleaseError::Ambiguous`](stanchion_core::ReleaseError::Ambiguous): no
            /// answer within the operation timeout; the release continues in the background.
            ///
            /// # Cancel safety
            /// Safe: the release continues in the background.
            ///
            /// # On the wire
            /// One script. It publishes, or hands the hold to the next waiter of this process.
            pub async fn release(self) -> ::std::result::Result<(), $crate::ReleaseError> {
                self.hold.release().await
            }
        }

        impl ::std::convert::From<$guard> for $crate::Guard {
            fn from(guard: $guard) -> Self {
                Self::from(guard.hold)
            }
        }

        impl ::std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.hold).finish()
            }
        }
    };
}

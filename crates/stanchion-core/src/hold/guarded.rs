//! The interface between a guard and what it holds.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use crate::error::{LeaseLost, LostReason, ReleaseError, RenewError};
use crate::hold::ended::{Ended, lost};
use crate::hold::handle::{Hold, Working};
use crate::hold::request::ReleaseRequest;
use crate::lease::Lease;
use crate::name::Name;
use stanchion_transport::Moment;

/// What a guard holds: one [`Hold`](crate::primitive::Hold), or several that count as one, a [`HoldSet`](crate::primitive::HoldSet). The
/// documentation of the methods is at `Held` of `stanchion-client`.
pub trait Guarded: Debug + Send + Sync + Sized + 'static {
    /// The holds: one, or those of a set.
    fn members(&self) -> &[Hold];

    /// The name that is held; of a set the first.
    fn name(&self) -> &Name;

    /// The end of the time for which this holder may count on the hold (P1, P5). Every renewal extends that time.
    fn valid_until(&self) -> Moment;

    /// The time left until [`valid_until`](Self::valid_until); zero when lost.
    fn remaining(&self) -> Duration;

    /// Returns whether the hold is still held, by the clock (P5); of a set, whether enough members are.
    fn is_held(&self) -> bool;

    /// Resolves when the hold is released or lost (P5). Keeps nothing alive.
    fn ended(&self) -> impl Future<Output = Ended> + Send + 'static;

    /// Resolves when the hold is lost (P5); never after a release. Keeps nothing alive.
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        lost(self.ended())
    }

    /// Resolves when a release of the hold is requested: at once if it was requested before, never after the end. Keeps nothing alive.
    fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static;

    /// The last request to give the hold back; of a set that of the first member that has one.
    fn request(&self) -> Option<ReleaseRequest>;

    /// Runs `work` as long as the hold lasts; drops `work` when the hold is lost. A shutdown gives the work its grace.
    ///
    /// # Errors
    /// [`LeaseLost`]: the work was dropped at an await point, in time.
    fn run<F: Future>(&self, work: F) -> impl Future<Output = Result<F::Output, LeaseLost>> {
        async move {
            let _working = Working::under(self.members());
            tokio::select! {
                // The loss first: after a pause of the process, the work must not take another step.
                biased;
                reason = self.lost() => Err(LeaseLost { name: self.name().clone(), reason }),
                output = work => Ok(output),
            }
        }
    }

    /// Renews now, for `lease` if it is given. Of a set: concurrently, until enough members are renewed.
    ///
    /// # Errors
    /// [`RenewError`]; of a set that of one member, when too few were renewed.
    fn renew(&self, lease: Option<Lease>) -> impl Future<Output = Result<(), RenewError>> + Send;

    /// Releases and waits for the server's answer. Of a set: waits for as many members as are needed; the others continue in the background.
    ///
    /// # Errors
    /// [`ReleaseError`]; of a set that of one member, when too few releases were confirmed.
    fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static;
}

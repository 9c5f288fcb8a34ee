//! The local queue of a hold's name, as the hold uses it. The room `waiting` implements it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::description::{End, Synchronizer};
use crate::hold::debt::Debt;
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::line::{Placed, Yields};
use crate::terms::HoldTerms;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, Failure, Reply};

/// The waiter that a hold is about to be passed to.
#[derive(Clone, Debug)]
pub(crate) struct Successor {
    /// The queue that it waits in: that of the hold, or of another of its names.
    pub(crate) queue: Arc<dyn HoldQueue>,
    /// Its place in that queue.
    pub(crate) place: u64,
    /// The synchronizer that it waits for: of the same name, but perhaps with another counter for tokens.
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) terms: HoldTerms,
    /// The hand-offs in a row before this one.
    pub(crate) handed: u32,
    pub(crate) yields: Yields,
    /// True if all others come first, and this client is subscribed to Redisson's releases of the name.
    pub(crate) hears: bool,
}

/// The local queue of a hold's name. Its methods lock the queue, so they are not to be called under any of the core's blocking mutexes.
pub(crate) trait HoldQueue: fmt::Debug + Send + Sync {
    /// Records that `hold` has ended. The next waiter sends a request, unless the release has notified it.
    fn freed(&self, hold: &HoldState, end: End);

    /// Takes `hold` from the waiter that was given it and has not taken it. The hold is released, or handed to the next waiter.
    fn untaken(&self, hold: &HoldState);

    /// Records a hold that was acquired without a place in the queue.
    fn acquired(&self, hold: &Hold);

    /// Reserves the waiter to hand `hold` to, if a hand-off is allowed now: the first of this queue, or of that of another name of the
    /// hold. That waiter sends no request until [`HoldQueue::hand_over`] or [`HoldQueue::not_handed`].
    fn successor(&self, hold: &HoldState) -> Option<Successor>;

    /// Hands `hold` to the successor, which waits here. If it has left, the hold is dropped, and its release serves the next one.
    fn hand_over(&self, successor: &Successor, hold: Hold);

    /// Ends a hand-off without a new holder.
    fn not_handed(&self, successor: &Successor);

    /// Records that `hold` has ended and was not handed over. [`HoldQueue::not_handed`] would let the next waiter send a request
    /// at once, even if another process is next.
    fn freed_unhanded(&self, successor: &Successor, hold: &HoldState, end: End);

    /// Ends a hand-off of `hold` in which another process was ahead: the successor's `debt` becomes the entry of this process.
    fn passed_on(&self, hold: &HoldState, debt: &Arc<Debt>, ttl: Option<Duration>, placed: Placed);

    /// Takes a request that can go with the release of `hold`.
    fn piggyback(&self, hold: &HoldState) -> Option<Box<dyn Piggyback>>;
}

/// The first request of a waiter, which goes with a release.
pub(crate) trait Piggyback: Send {
    /// Returns the script that releases for `from` and makes this request. Its reply contains both replies.
    fn call(&self, from: &WireOwner) -> Option<Call>;

    /// Passes the answer to the waiter. `None`: the request was not made, and the waiter sends its own.
    fn answered(self: Box<Self>, answer: Option<Result<Reply, Failure>>);
}

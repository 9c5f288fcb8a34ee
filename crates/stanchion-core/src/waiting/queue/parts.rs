//! The interface of a queue to the things that it stores and does not look into.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use crate::about::Sharing;
use stanchion_transport::Moment;

/// The types that a queue stores for its shell.
pub trait Parts: Debug + Sized {
    /// The object of a wait: a synchronizer.
    type Want: Want + Clone + Debug;
    /// The owner in whose name a waiter sends requests.
    type Owner: Borrow<str> + Clone + Debug + Eq + Hash;
    /// The options of an acquire.
    type Terms: Clone + Debug;
    /// What an owner may have on the server: the right to an entry, and the duty to clean up. The drop of the last copy cleans up, unless a hold has it.
    type Debt: Owed<Self> + Clone + Debug;
    /// A hold that a waiter takes. Its drop releases it.
    type Hold: Held<Self> + Debug;
    /// A hold of this process, which the queue does not keep alive.
    type Holder: Holder<Self> + Debug + Default;
    /// A hold that has ended.
    type Ended: EndedHold<Self>;
    /// The waker of a task.
    type Waker: Debug;
    /// The reason why the server cannot be reached.
    type Outage: Clone + Debug;
    /// The end of a wait that a reply has decided.
    type Answer: Debug;
}

/// The object of a wait.
pub trait Want {
    /// The way in which its holders share.
    fn sharing(&self) -> Sharing;

    /// Returns whether the server keeps a queue of processes for it.
    fn is_in_line(&self) -> bool;

    /// Returns whether it is a final event, which messages report.
    fn is_fact(&self) -> bool;

    /// The counter that its tokens come from, `-` for none.
    fn fence(&self) -> &[u8];

    /// Returns whether a hand-off by the holder of `held` can make the hold that this waiter waits for.
    fn is_handed(&self, held: &Self) -> bool;

    /// Returns whether an entry for `other` is the same as one for this waiter.
    fn shares_entry(&self, other: &Self) -> bool;

    /// Returns whether an entry for `other`, which the server notifies and does not grant to, can go on as one for this waiter.
    fn continues_entry(&self, other: &Self) -> bool;
}

/// The leftovers of an owner on the server.
pub trait Owed<P: Parts> {
    /// The object of its requests.
    fn want(&self) -> &P::Want;

    /// The owner.
    fn owner(&self) -> &P::Owner;

    /// Returns whether a request of this owner was not answered.
    fn is_unanswered(&self) -> bool;

    /// Passes the entry on to the acquire of `own`.
    fn pass_to(&self, own: &Self) -> Self;
}

/// A hold that a waiter takes.
pub trait Held<P: Parts> {
    /// The way in which it is shared.
    fn sharing(&self) -> Sharing;

    /// By the clock: see [`Holder::is_held`].
    fn is_held(&self, now: Moment) -> bool;

    /// A reference that does not keep it alive.
    fn holder(&self) -> P::Holder;

    /// Returns whether it is the hold that has ended.
    fn is(&self, ended: &P::Ended) -> bool;
}

/// A hold of this process.
pub trait Holder<P: Parts> {
    /// By the clock: a hold with an ended lease excludes no other, even if the end has not been recorded yet.
    fn is_held(&self, now: Moment) -> bool;

    /// Returns whether the hold exists, ended or not.
    fn exists(&self) -> bool;

    /// Returns whether it is the hold that has ended.
    fn is(&self, ended: &P::Ended) -> bool;
}

/// A hold that has ended.
pub trait EndedHold<P: Parts> {
    /// The object that was held.
    fn want(&self) -> &P::Want;

    /// Its owner.
    fn owner(&self) -> &P::Owner;

    /// Returns whether its waiter has not taken it.
    fn is_untaken(&self) -> bool;
}

/// The surroundings of an event: the clock, the configuration, the random choices and the owners of a client.
pub trait Context<P: Parts> {
    /// The time of the event.
    fn now(&self) -> Moment;

    /// The longest pause between two polls of a queue, a little shorter at random.
    fn poll_interval(&self) -> Duration;

    /// Returns whether the client receives no messages.
    fn polls(&self) -> bool;

    /// A random duration up to `most`.
    fn jitter(&self, most: Duration) -> Duration;

    /// Makes an owner that was never used, for requests for `want`.
    fn owe(&self, want: &P::Want, terms: &P::Terms) -> P::Debt;
}

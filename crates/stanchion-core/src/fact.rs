//! Facts: messages that report final events, so that waiters need not send requests.

/// The meaning of a fact for one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// Nothing, or nothing new.
    Nothing,
    /// The end of the wait: the event has occurred, and the waiter keeps the content of the fact.
    Over,
    /// Unknown to the waiter, which sends a request.
    Ask,
}

/// The facts of an event: see [`Synchronizer::facts`](crate::primitive::Synchronizer::facts).
///
/// Each message on the channel is a fact, and so is the element after the time in the reply to any waiter's request. A fact contains the whole
/// state, which only grows, so one fact replaces all facts before it. A waiter that registered before the event could occur therefore sends a
/// request only if messages may have been lost: after a subscription was confirmed or lost, and at a poll.
pub trait Facts {
    /// Passes a fact to this waiter. Called under a queue's mutex, for every waiter.
    fn told(&self, fact: &[u8]) -> Told;
}

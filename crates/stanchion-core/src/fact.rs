//! Facts: messages that say what has happened, so that nobody asks after them.

/// The meaning of a fact for one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// Nothing, or nothing new.
    Nothing,
    /// The end of its wait: it has what it waits for, and keeps what it was told.
    Over,
    /// Unknown to it: it asks.
    Ask,
}

/// The facts of an event: see [`Synchronizer::facts`](crate::primitive::Synchronizer::facts).
///
/// A message of the channel is a fact, and so is the element after the time in the reply to a question of any waiter. A fact says the whole
/// state, which only grows, so that one fact makes up for all before it. Therefore a waiter that was there before what it waits for
/// could happen asks only when messages may have been lost: after a subscription was confirmed or lost, and at a poll.
pub trait Facts {
    /// Tells this waiter a fact. Called under a queue's mutex, for every waiter.
    fn told(&self, fact: &[u8]) -> Told;
}

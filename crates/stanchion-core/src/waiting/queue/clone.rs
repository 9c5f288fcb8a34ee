//! Copies of a queue, for the explorer, which continues one state in several ways.

use super::{Effects, Entry, Kept, Outcome, Parts, Queue, Waiter};

/// Parts that can be copied. Those of a client cannot: a copied hold would be released twice.
pub trait Copied:
    Parts<Want: Clone, Hold: Clone, Holder: Clone, Waker: Clone, Answer: Clone>
{
}

impl<P> Copied for P where
    P: Parts<Want: Clone, Hold: Clone, Holder: Clone, Waker: Clone, Answer: Clone>
{
}

impl<P: Copied> Clone for Outcome<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Granted(hold) => Self::Granted(hold.clone()),
            Self::Seen => Self::Seen,
            Self::Missed => Self::Missed,
            Self::OutOfReach(outage, debt) => Self::OutOfReach(outage.clone(), debt.clone()),
            Self::Answered(answer) => Self::Answered(answer.clone()),
        }
    }
}

impl<P: Copied> Clone for Waiter<P> {
    fn clone(&self) -> Self {
        Self {
            want: self.want.clone(),
            owner: self.owner.clone(),
            terms: self.terms.clone(),
            debt: self.debt.clone(),
            given: self.given.clone(),
            waker: self.waker.clone(),
            ..*self
        }
    }
}

impl<P: Copied> Clone for Queue<P> {
    /// Copies a queue whose effects have been taken.
    fn clone(&self) -> Self {
        let entry = self.entry.as_ref().map(|entry| Entry {
            debt: entry.debt.clone(),
            off: entry.off,
        });
        let kept = Kept {
            by_owner: self.kept.by_owner.clone(),
            restamp: self.kept.restamp,
            pause: self.kept.pause,
        };
        Self {
            waiters: self.waiters.clone(),
            outcomes: self.outcomes.clone(),
            holder: self.holder.clone(),
            entry,
            kept,
            outage: self.outage.clone(),
            out: Effects::new(),
            ..*self
        }
    }
}

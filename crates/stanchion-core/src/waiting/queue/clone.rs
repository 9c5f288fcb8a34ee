//! Copies of a queue, for the explorer, which continues one state in several ways.

use super::{Effects, Entry, Kept, Parts, Queue, Turn, Waiter};

/// Parts that can be copied. Those of a client cannot: a copied hold would be released twice.
pub trait Copied:
    Parts<Want: Clone, Terms: Clone, Debt: Clone, Hold: Clone, Holder: Clone, Waker: Clone>
{
}

impl<P> Copied for P where
    P: Parts<Want: Clone, Terms: Clone, Debt: Clone, Hold: Clone, Holder: Clone, Waker: Clone>
{
}

impl<P: Copied> Clone for Turn<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Try(reason) => Self::Try(*reason),
            Self::Take(hold) => Self::Take(hold.clone()),
            Self::Seen => Self::Seen,
            Self::Missed => Self::Missed,
            Self::OutOfReach(outage) => Self::OutOfReach(outage.clone()),
        }
    }
}

impl<P: Copied> Clone for Waiter<P> {
    fn clone(&self) -> Self {
        Self {
            want: self.want.clone(),
            owner: self.owner.clone(),
            terms: self.terms.clone(),
            turn: self.turn.clone(),
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
            holder: self.holder.clone(),
            entry,
            kept,
            outage: self.outage.clone(),
            out: Effects::default(),
            ..*self
        }
    }
}

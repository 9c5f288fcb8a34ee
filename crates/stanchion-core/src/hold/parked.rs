//! A re-entry that its caller may stop polling.
//!
//! A re-entry keeps its owner's turn from before its request until the answer (R4). If its caller stopped polling the re-entry but
//! kept it, every other call of that owner would wait. So a call that has waited for the turn for a while has the re-entry
//! [finished](Parked::finish) in the background: no operation needs its caller. The result is untaken until the caller takes it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::RenewError;
use crate::hold::handle::Hold;
use stanchion_transport::Runner;

type Reentered = Result<Hold, RenewError>;
type Work = Pin<Box<dyn Future<Output = Reentered> + Send>>;

enum Stage {
    /// The caller polls the work, if it polls at all; with the waker of the last poll.
    Waits(Work, Option<Waker>),
    /// Being polled, or ended.
    Out,
    /// Running in the background; with the waker of the caller.
    Background(Option<Waker>),
    /// Ended in the background; the caller has not taken the outcome.
    Done(Reentered),
}

/// A re-entry in flight. Locked for one change of its stage: no future is polled, dropped or woken under this lock.
pub(super) struct Parked(Mutex<Stage>);

impl Parked {
    pub(super) fn new(work: impl Future<Output = Reentered> + Send + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Stage::Waits(Box::pin(work), None))))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome of the re-entry, for its caller.
    pub(super) fn outcome(self: Arc<Self>) -> impl Future<Output = Reentered> + Send {
        poll_fn(move |cx| self.poll(cx))
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Reentered> {
        // Cloned before the mutex is locked: a clone may run foreign code.
        let waker = cx.waker().clone();
        let mut stage = self.stage();
        match &mut *stage {
            Stage::Background(of_caller) => {
                let old = of_caller.replace(waker);
                drop(stage);
                drop(old);
                return Poll::Pending;
            }
            Stage::Out => return Poll::Pending,
            Stage::Waits(..) | Stage::Done(_) => {}
        }
        let taken = std::mem::replace(&mut *stage, Stage::Out);
        drop(stage);
        match taken {
            Stage::Waits(mut work, old) => {
                drop(old);
                let outcome = work.as_mut().poll(cx);
                if outcome.is_pending() {
                    *self.stage() = Stage::Waits(work, Some(waker));
                }
                outcome
            }
            Stage::Done(outcome) => {
                if let Ok(hold) = &outcome {
                    hold.taken();
                }
                Poll::Ready(outcome)
            }
            Stage::Out | Stage::Background(_) => Poll::Pending,
        }
    }

    /// Moves the re-entry to the background, unless its caller is polling it right now.
    pub(super) fn finish(self: &Arc<Self>, runner: &Runner) {
        let mut stage = self.stage();
        let work = match std::mem::replace(&mut *stage, Stage::Out) {
            Stage::Waits(work, waker) => {
                // The caller may be waiting for the turn only, and must be woken at the end.
                *stage = Stage::Background(waker);
                work
            }
            other => {
                *stage = other;
                return;
            }
        };
        drop(stage);
        let this = Arc::clone(self);
        runner.finish(async move {
            let outcome = work.await;
            if let Ok(hold) = &outcome {
                // P10: an untaken hold is not renewed for a caller that does not take it.
                hold.leave_untaken();
            }
            let before = std::mem::replace(&mut *this.stage(), Stage::Done(outcome));
            if let Stage::Background(Some(waker)) = before {
                waker.wake();
            }
        });
    }
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked").finish_non_exhaustive()
    }
}

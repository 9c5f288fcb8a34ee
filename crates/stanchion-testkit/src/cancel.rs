//! Dropping a future at a chosen await point.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls `f` `polls` times, each poll after a wake of its own, then drops it.
///
/// `None` means dropped; `Some` means `f` finished within its polls. See [`for_each_await_point`] for every await of `f`.
pub async fn cancel_after<F: Future>(f: F, polls: usize) -> Option<F::Output> {
    let mut f = pin!(f);
    let mut left = polls;
    let mut flag: Option<Arc<WakeFlag>> = None;
    poll_fn(move |cx| {
        // Polls caused by other futures of the same task must not count, so `f` gets its own waker.
        let woken = flag
            .as_ref()
            .is_none_or(|f| f.woken.swap(false, Ordering::AcqRel));
        if left > 0 && woken {
            left -= 1;
            let fresh = Arc::new(WakeFlag {
                woken: AtomicBool::new(false),
                task: cx.waker().clone(),
            });
            flag = Some(Arc::clone(&fresh));
            if let Poll::Ready(output) = f.as_mut().poll(&mut Context::from_waker(&fresh.into())) {
                return Poll::Ready(Some(output));
            }
        }
        if left == 0 {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    })
    .await
}

/// More await points than any operation has: a loop that gets here does not cover what it claims.
const TOO_MANY: usize = 120;

/// Runs `round` with 0, 1, 2 … polls until it returns that its future finished within them: by then one has been dropped at
/// each of its await points. Returns the polls of the last round.
///
/// ```
/// # async fn operation() {}
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use stanchion_testkit::{cancel_after, for_each_await_point};
///
/// for_each_await_point(async |polls| {
///     let done = cancel_after(operation(), polls).await;
///     // here: nothing may have leaked
///     done.is_some()
/// })
/// .await;
/// # });
/// ```
pub async fn for_each_await_point(mut round: impl AsyncFnMut(usize) -> bool) -> usize {
    for polls in 0..TOO_MANY {
        if round(polls).await {
            return polls;
        }
    }
    panic!("more than {TOO_MANY} await points");
}

struct WakeFlag {
    woken: AtomicBool,
    task: Waker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Yields twice; `steps` counts the steps done.
    async fn two_awaits(steps: &Cell<u32>) -> u32 {
        for _ in 0..2 {
            steps.set(steps.get() + 1);
            tokio::task::yield_now().await;
        }
        steps.set(steps.get() + 1);
        steps.get()
    }

    #[tokio::test]
    async fn stops_at_the_given_poll() {
        for polls in 0..=3 {
            let steps = Cell::new(0);
            let done = cancel_after(two_awaits(&steps), polls as usize).await;
            assert_eq!(steps.get(), polls, "one step per poll");
            assert_eq!(done, (polls == 3).then_some(3));
        }
    }

    #[tokio::test]
    async fn every_await_point_has_its_round() {
        let mut dropped = Vec::new();
        let polls = for_each_await_point(async |polls| {
            let steps = Cell::new(0);
            let done = cancel_after(two_awaits(&steps), polls).await;
            dropped.push(steps.get());
            done.is_some()
        })
        .await;
        assert_eq!((polls, dropped), (3, vec![0, 1, 2, 3]));
    }

    #[tokio::test]
    #[should_panic(expected = "await points")]
    async fn a_future_that_never_ends_is_reported() {
        for_each_await_point(async |_| false).await;
    }

    #[tokio::test]
    async fn polls_of_a_neighbour_do_not_count() {
        let (tx, rx) = tokio::sync::oneshot::channel();
        let neighbour = async {
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            tx.send(7).unwrap();
        };
        let (done, ()) = tokio::join!(cancel_after(rx, 2), neighbour);
        assert_eq!(done, Some(Ok(7)), "the receiver was woken once only");
    }
}

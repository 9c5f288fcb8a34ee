//! Timers for calls that may move from one runtime to another.
//!
//! A timer of tokio belongs to the runtime that created it, and panics when it is polled after that runtime has ended. A call may be polled on one
//! runtime first and on another later. These timers are created again on the runtime that polls them (P9).
//!
//! Background work does not move, and uses tokio's timers.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

/// The length of a timer that is never due: 30 years, the same as in tokio.
const NEVER: Duration = Duration::from_secs(86_400 * 365 * 30);

/// Waits for `length`.
#[must_use]
pub fn sleep(length: Duration) -> Sleep {
    let now = Instant::now();
    Sleep {
        due: now.checked_add(length).unwrap_or_else(|| now + NEVER),
        timer: None,
    }
}

/// See [`sleep`].
#[derive(Debug)]
pub struct Sleep {
    due: Instant,
    /// The timer and its runtime. `None` before the first poll.
    timer: Option<(Id, Pin<Box<tokio::time::Sleep>>)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // OK: without a runtime it panics, as every timer of tokio does. A client needs one.
        let here = Handle::current().id();
        let due = self.due;
        let timer = match &mut self.timer {
            Some((home, timer)) if *home == here => timer,
            other => {
                let timer = Box::pin(tokio::time::sleep_until(due));
                &mut other.insert((here, timer)).1
            }
        };
        timer.as_mut().poll(cx)
    }
}

/// Runs `work` for at most `limit`; returns `None` after that. The caller pins `work`: by value, the future would contain it twice.
pub async fn timeout<T>(limit: Duration, mut work: impl Future<Output = T> + Unpin) -> Option<T> {
    let mut timer = sleep(limit);
    poll_fn(|cx| {
        // The work is polled first: an available outcome counts, even after the limit.
        if let Poll::Ready(outcome) = Pin::new(&mut work).poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        Pin::new(&mut timer).poll(cx).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_timer_outlives_the_runtime_that_polled_it_first() {
        let (first, second) = (runtime(), runtime());
        let mut timer = sleep(Duration::from_millis(50));
        first.block_on(async { assert!(poll!(&mut timer).is_pending()) });
        drop(first);
        second.block_on(&mut timer);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_that_is_there_counts_after_the_limit() {
        let work = pin!(async { 7 });
        assert_eq!(timeout(Duration::ZERO, work).await, Some(7));
        let endless = pin!(std::future::pending::<()>());
        let began = Instant::now();
        assert_eq!(timeout(Duration::from_secs(1), endless).await, None);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert!(poll!(&mut sleep(Duration::MAX)).is_pending());
    }
}

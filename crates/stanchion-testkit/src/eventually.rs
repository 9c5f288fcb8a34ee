//! Waiting for a condition instead of sleeping for a guess.

use std::time::Duration;

use crate::clock::{Deadline, pause};

/// The longest that any condition may take before the test fails. A sentinel that has noticed a stall of 2 s starts no failover for 30 s.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(1);

/// Waits until `cond` holds; panics with `what` after 60 s of real time.
pub async fn eventually(what: &str, mut cond: impl FnMut() -> bool) {
    // Not by `eventually_async`: a task that borrows across an async closure is not `Send` for the compiler.
    let deadline = Deadline::after(LIMIT);
    while !cond() {
        assert!(!deadline.passed(), "not within {LIMIT:?}: {what}");
        tokio::time::sleep(STEP).await;
    }
}

/// Waits as [`eventually`], for an async condition.
pub async fn eventually_async(what: &str, mut cond: impl AsyncFnMut() -> bool) {
    let deadline = Deadline::after(LIMIT);
    while !cond().await {
        assert!(!deadline.passed(), "not within {LIMIT:?}: {what}");
        tokio::time::sleep(STEP).await;
    }
}

/// Waits as [`eventually`], blocking the thread.
pub fn eventually_blocking(what: &str, cond: impl FnMut() -> bool) {
    assert!(within(LIMIT, cond), "not within {LIMIT:?}: {what}");
}

/// Waits until `cond` holds, at most for `limit`. Returns whether it does.
pub(crate) fn within(limit: Duration, mut cond: impl FnMut() -> bool) -> bool {
    let deadline = Deadline::after(limit);
    loop {
        if cond() {
            return true;
        }
        if deadline.passed() {
            return false;
        }
        pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_once_the_condition_holds() {
        let mut looks = 0;
        eventually("third look", || {
            looks += 1;
            looks == 3
        })
        .await;
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_condition_that_never_holds_is_reported() {
        let mut looks = 0;
        assert!(!within(Duration::from_millis(3), || {
            looks += 1;
            false
        }));
        assert!(looks > 0);
    }
}

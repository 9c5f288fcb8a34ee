//! A record of the holds of one exclusive lock by tasks of several processes, and its check.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One hold, from the request to the reply to the release. Its times are on a clock that all processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// The numbers of the process and of its task.
    pub task: (u32, u32),
    /// The acquire began.
    pub invoked: Duration,
    /// The acquire returned.
    pub granted: Duration,
    /// The fencing token.
    pub token: u64,
    /// The protected work ended, and the release began.
    pub left: Duration,
    /// The release returned.
    pub released: Duration,
}

/// Returns the violations of P1 (no two tasks work at the same time), P2 (tokens grow) and P4 (a lock with a waiter is free for at most
/// `bound`).
#[must_use]
pub fn violations(mut holds: Vec<Hold>, bound: Duration) -> Vec<String> {
    holds.sort_by_key(|hold| hold.granted);
    let mut found = Vec::new();
    for (n, hold) in holds.iter().enumerate().skip(1) {
        let before = holds[..n].iter();
        let mut report = |rule, other: &Hold| {
            found.push(format!("{rule}: {hold:?} and {other:?}"));
        };
        if let Some(other) = before.clone().rfind(|other| other.left > hold.granted) {
            report("P1", other);
        }
        if let Some(other) = before.clone().rfind(|other| other.token >= hold.token) {
            report("P2", other);
        }
        let freed = before.map(|other| other.released).max();
        let waiter = holds[n..].iter().min_by_key(|waiter| waiter.invoked);
        if let (Some(freed), Some(waiter)) = (freed, waiter)
            && hold.granted.saturating_sub(freed.max(waiter.invoked)) > bound
        {
            report("P4", waiter);
        }
    }
    found
}

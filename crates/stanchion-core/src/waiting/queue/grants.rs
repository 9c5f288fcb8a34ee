//! The grants by message that a queue has handled, to recognise their second copies.
//!
//! A client that is subscribed on two nodes during a failover receives each message twice. A second copy of a grant must not begin a
//! second hold, and must not be given back either: that would free the first (P1).

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::description::Granted;
use stanchion_transport::Moment;

/// The least time for which a grant is remembered: much longer than its lease (1.5 s), and than a message is in flight on a connection
/// that is not closed. A later copy is recognised as old by its date.
pub(super) const KEPT: Duration = Duration::from_secs(10);

/// A grant: the number of its owner, and its server time in µs. An owner that returns to the queue is granted at another time.
type Id = (u64, u64);

/// The grants of the last 10 to 20 s. Their number is bounded: the server grants to a process that waits, and each grant ends that wait.
#[derive(Clone, Default)]
pub(super) struct Grants {
    recent: BTreeSet<Id>,
    former: BTreeSet<Id>,
    /// The start of the time that `recent` covers.
    since: Moment,
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (&self.recent, &self.former, self.since.micros()).fmt(f)
    }
}

impl Grants {
    /// Records a grant. Returns whether it was recorded before.
    pub(super) fn is_copy(&mut self, granted: &Granted<'_>, now: Moment) -> bool {
        if now.since(self.since) >= KEPT {
            self.former = std::mem::take(&mut self.recent);
            self.since = now;
        }
        let number = granted.owner.rsplit(':').next();
        let number = number.and_then(|number| number.parse().ok());
        let id = (number.unwrap_or_default(), granted.now);
        self.former.contains(&id) || !self.recent.insert(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(owner: &str, now: u64) -> Granted<'_> {
        Granted {
            owner,
            token: None,
            now,
            lease: Duration::from_millis(1500),
            fence: "-",
        }
    }

    #[test]
    fn a_second_copy_is_recognised_for_ten_seconds_at_least() {
        let mut grants = Grants::default();
        let start = Moment::ZERO + Duration::from_secs(100);
        for ms in (0..60_000).step_by(500) {
            let now = start + Duration::from_millis(ms);
            assert!(!grants.is_copy(&granted("u:7", ms), now), "{ms}");
            let oldest = ms.saturating_sub(9500);
            for earlier in (oldest..=ms).step_by(500) {
                assert!(grants.is_copy(&granted("u:7", earlier), now), "{earlier}");
            }
        }
        assert!(grants.recent.len() + grants.former.len() <= 20 * 2 + 1);
    }

    #[test]
    fn another_owner_or_another_time_is_another_grant() {
        let mut grants = Grants::default();
        assert!(!grants.is_copy(&granted("u:7", 5), Moment::ZERO));
        assert!(!grants.is_copy(&granted("u:8", 5), Moment::ZERO));
        assert!(!grants.is_copy(&granted("u:7", 6), Moment::ZERO));
        assert!(grants.is_copy(&granted("u:7", 5), Moment::ZERO));
    }
}

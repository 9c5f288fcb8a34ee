//! What a history is checked against, and what is found.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

/// One of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Safe intervals `[Granted, min(ReleaseInvoke, safe_until, Lost))` of incompatible holds do not overlap.
    Exclusion,
    /// Protected work (`Enter` to `Exit`) of incompatible holds does not overlap.
    CriticalSection,
    /// No fencing token of a name is given twice.
    TokenUnique,
    /// A name's tokens grow: over exclusive grants, and from a released hold to a later acquire.
    TokenOrder,
    /// Every `Invoke` ends, unless its process was killed.
    Unfinished,
    /// `Lost` and renewals come before the hold's end.
    LostLate,
    /// Nobody waits longer than the bound for a lock that all waiters could have.
    Liveness,
    /// Grants follow the given order of arrival.
    Order,
    /// The events of a task make sense one after the other.
    Malformed,
}

/// The checks to make; all but [`Rule::Liveness`] and [`Rule::Order`] are on by default.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Rules {
    pub(super) without: HashSet<Rule>,
    pub(super) permits: HashMap<String, u32>,
    pub(super) killed: HashMap<u32, Duration>,
    pub(super) lost_slack: Duration,
    pub(super) liveness: Option<Duration>,
    pub(super) order: HashMap<String, Vec<(u32, u32)>>,
}

impl Rules {
    /// The default checks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves a check out, for a fault that is known to break it.
    pub fn without(mut self, rule: Rule) -> Self {
        self.without.insert(rule);
        self
    }

    /// How many permits `name` has; without this, any number may be held.
    pub fn permits(mut self, name: &str, limit: u32) -> Self {
        self.permits.insert(name.to_owned(), limit);
        self
    }

    /// The process was killed then: what it had begun need not end, and its protected work ended.
    pub fn killed(mut self, process: u32, at: Duration) -> Self {
        self.killed.insert(process, at);
        self
    }

    /// How much later than the hold's end `Lost` may be recorded.
    pub const fn lost_slack(mut self, slack: Duration) -> Self {
        self.lost_slack = slack;
        self
    }

    /// How long a lock that all its waiters could have may stay so without a grant.
    pub const fn liveness(mut self, bound: Duration) -> Self {
        self.liveness = Some(bound);
        self
    }

    /// The order of arrival at `name`, as (process, task). Who was never granted is passed over.
    pub fn order(mut self, name: &str, arrivals: Vec<(u32, u32)>) -> Self {
        self.order.insert(name.to_owned(), arrivals);
        self
    }

    pub(super) fn checks(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }
}

/// A rule that a history breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// Of which lock.
    pub name: String,
    /// When it became certain.
    pub at: Duration,
    /// Who and what.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            name,
            at,
            detail,
        } = self;
        write!(f, "{rule:?} of {name:?} at {at:?}: {detail}")
    }
}

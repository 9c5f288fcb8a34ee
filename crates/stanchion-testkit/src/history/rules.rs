//! The rules for a history, and their violations.

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
    /// No fencing token of a name is issued twice.
    TokenUnique,
    /// A name's tokens grow: over exclusive grants, and from a released hold to a later acquire.
    TokenOrder,
    /// Every `Invoke` ends, unless its process was killed.
    Unfinished,
    /// `Lost` and renewals come before the hold's end.
    LostLate,
    /// No waiter waits longer than the bound for a lock that every waiter could have.
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
    /// Returns the default checks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns a check off, for a fault that is known to break it.
    pub fn without(mut self, rule: Rule) -> Self {
        self.without.insert(rule);
        self
    }

    /// Sets the number of permits of `name`; without it, any number may be held.
    pub fn permits(mut self, name: &str, limit: u32) -> Self {
        self.permits.insert(name.to_owned(), limit);
        self
    }

    /// Declares that the process was killed at `at`: its pending operations need not end, and its protected work ended then.
    pub fn killed(mut self, process: u32, at: Duration) -> Self {
        self.killed.insert(process, at);
        self
    }

    /// Sets the time after the hold's end within which `Lost` may still be recorded.
    pub const fn lost_slack(mut self, slack: Duration) -> Self {
        self.lost_slack = slack;
        self
    }

    /// Turns on [`Rule::Liveness`] and sets the longest time without a grant while every waiter could have the lock.
    pub const fn liveness(mut self, bound: Duration) -> Self {
        self.liveness = Some(bound);
        self
    }

    /// Turns on [`Rule::Order`] with the order of arrival at `name`, as (process, task). Arrivals without a grant are skipped.
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
    /// The rule.
    pub rule: Rule,
    /// The lock's name.
    pub name: String,
    /// The time at which the violation became certain.
    pub at: Duration,
    /// The tasks and values involved.
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

//! Conversion of events to acquires, holds and spans of protected work.

use std::collections::HashMap;
use std::time::Duration;

use super::{Event, Kind, Mode, Rule, Rules, Violation};

/// The numbers of a process and its task.
pub(super) type Who = (u32, u32);

/// One acquire and its result.
#[derive(Debug, Clone)]
pub(super) struct Acquire {
    pub(super) who: Who,
    pub(super) mode: Mode,
    pub(super) invoked: Duration,
    /// The end of the wait, with or without a grant; `None` if it never ended.
    pub(super) answered: Option<Duration>,
    pub(super) hold: Option<Hold>,
    /// The time until which the server may hold the lock for a failed acquire.
    pub(super) ambiguous_until: Option<Duration>,
}

/// A granted acquire.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) granted: Duration,
    pub(super) token: Option<u64>,
    pub(super) safe_until: Option<Duration>,
    pub(super) lost: Option<Duration>,
    pub(super) release_invoked: Option<Duration>,
    pub(super) released: Option<Duration>,
    /// The spans of protected work: the begin, and the end if it ended.
    pub(super) work: Vec<(Duration, Option<Duration>)>,
}

impl Hold {
    /// Returns the end of the interval in which the holder may rely on its hold.
    pub(super) fn safe_end(&self) -> Duration {
        let ends = [self.release_invoked, self.safe_until, self.lost];
        ends.into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// Returns whether there was an instant at which the holder could rely on its hold.
    pub(super) fn is_real(&self) -> bool {
        self.granted < self.safe_end()
    }

    /// Returns the latest time at which the server may still hold the lock for this hold.
    pub(super) fn server_end(&self) -> Duration {
        let lease = self.safe_until.or(self.release_invoked).or(self.lost);
        self.released.or(lease).unwrap_or(Duration::MAX)
    }
}

/// Every acquire of one name, in order of `Invoke`.
pub(super) type Acquires = Vec<Acquire>;

/// Sorts events into acquires per name. `events` are in order of time.
pub(super) fn acquires<'a>(
    events: &'a [Event],
    rules: &Rules,
    found: &mut Vec<Violation>,
) -> HashMap<&'a str, Acquires> {
    let mut names: HashMap<&str, Acquires> = HashMap::new();
    let mut current: HashMap<(&str, Who), usize> = HashMap::new();
    for event in events {
        let who = (event.process, event.task);
        let acquires = names.entry(&event.name).or_default();
        let mut report = |rule, detail: &str| {
            if rules.checks(rule) {
                found.push(Violation {
                    rule,
                    name: event.name.clone(),
                    at: event.at,
                    detail: format!("{who:?} {:?}: {detail}", event.kind),
                });
            }
        };
        let latest = current.get(&(event.name.as_str(), who)).copied();
        if event.kind == Kind::Invoke {
            if latest.is_some_and(|i| is_busy(&acquires[i])) {
                report(Rule::Malformed, "the one before has not ended");
            }
            current.insert((&event.name, who), acquires.len());
            acquires.push(Acquire {
                who,
                mode: event.mode,
                invoked: event.at,
                answered: None,
                hold: None,
                ambiguous_until: None,
            });
        } else if let Some(latest) = latest {
            apply(&mut acquires[latest], event, rules, report);
        } else {
            report(Rule::Malformed, "nothing was invoked");
        }
    }
    names
}

/// Returns whether the task may not invoke again yet.
fn is_busy(acquire: &Acquire) -> bool {
    match &acquire.hold {
        None => acquire.answered.is_none(),
        Some(hold) => hold.release_invoked.is_none() && hold.lost.is_none(),
    }
}

fn apply(acquire: &mut Acquire, event: &Event, rules: &Rules, mut report: impl FnMut(Rule, &str)) {
    let at = event.at;
    if acquire.answered.is_none() {
        match event.kind {
            Kind::Granted => {
                acquire.hold = Some(Hold {
                    granted: at,
                    token: event.token,
                    safe_until: event.safe_until,
                    lost: None,
                    release_invoked: None,
                    released: None,
                    work: Vec::new(),
                });
            }
            Kind::TimedOut | Kind::Failed => {}
            Kind::Ambiguous => acquire.ambiguous_until = event.safe_until,
            _ => return report(Rule::Malformed, "the acquire has not been answered"),
        }
        acquire.answered = Some(at);
        return;
    }
    let Some(hold) = &mut acquire.hold else {
        return report(Rule::Malformed, "nothing is held");
    };
    let late = hold
        .safe_until
        .is_some_and(|end| at > end.saturating_add(rules.lost_slack));
    let is_over = hold.release_invoked.is_some() || hold.lost.is_some();
    match event.kind {
        Kind::Lost if hold.lost.is_none() => {
            if late {
                report(Rule::LostLate, "after the hold's end");
            }
            hold.lost = Some(at);
        }
        Kind::Renewed => {
            if late {
                report(Rule::LostLate, "after the hold's end");
            }
        }
        Kind::ReleaseInvoke if hold.release_invoked.is_none() => hold.release_invoked = Some(at),
        Kind::Released if hold.release_invoked.is_some() && hold.released.is_none() => {
            hold.released = Some(at);
        }
        // A failed release: the hold's end is already known.
        Kind::TimedOut | Kind::Failed | Kind::Ambiguous if hold.release_invoked.is_some() => {}
        Kind::Enter if hold.work.last().is_none_or(|w| w.1.is_some()) => hold.work.push((at, None)),
        Kind::Exit if hold.work.last().is_some_and(|w| w.1.is_none()) => {
            if let Some(work) = hold.work.last_mut() {
                work.1 = Some(at);
            }
        }
        _ => return report(Rule::Malformed, "out of turn"),
    }
    // A hold that has ended cannot be renewed.
    if !is_over && event.safe_until > hold.safe_until {
        hold.safe_until = event.safe_until;
    }
}

//! The checker: every rule in O(n log n).

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::holds::{Acquire, Acquires, Hold, Who, acquires};
use super::{History, Mode, Rule, Rules, Violation, liveness};

/// The contents of a history that breaks no rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub events: usize,
    /// Names of locks.
    pub names: usize,
    /// Acquires that were granted.
    pub grants: usize,
    /// Acquires that ended otherwise.
    pub refusals: usize,
    /// Acquires that never ended, of killed processes.
    pub unfinished: usize,
    /// Holds that were reported lost.
    pub lost: usize,
    /// The longest wait that ended with a grant.
    pub longest_wait: Duration,
}

/// Checks a history against `rules`.
///
/// # Errors
/// Every violation found, in order of time.
pub fn check(history: &History, rules: &Rules) -> Result<Summary, Vec<Violation>> {
    let events = history.events();
    let mut found = Vec::new();
    let names = acquires(&events, rules, &mut found);
    let end = events.last().map_or(Duration::ZERO, |e| e.at);
    let mut summary = Summary {
        events: events.len(),
        names: names.len(),
        ..Summary::default()
    };
    for (name, acquires) in &names {
        let mut checker = Checker {
            name,
            rules,
            found: &mut found,
        };
        checker.exclusion(acquires);
        checker.critical_sections(acquires);
        checker.tokens(acquires);
        checker.unfinished(acquires, end);
        checker.order(acquires);
        if let Some(bound) = rules.liveness {
            let limit = rules.permits.get(*name).copied();
            let stall = liveness::stall(acquires, &rules.killed, limit, end, bound);
            if let Some((since, waiter)) = stall {
                let detail = format!("free for all waiters since {since:?}, {waiter:?} waits");
                checker.report(Rule::Liveness, since + bound, detail);
            }
        }
        for acquire in acquires {
            count(&mut summary, acquire);
        }
    }
    if found.is_empty() {
        Ok(summary)
    } else {
        found.sort_by_key(|v| v.at);
        Err(found)
    }
}

fn count(summary: &mut Summary, acquire: &Acquire) {
    match (&acquire.hold, acquire.answered) {
        (Some(hold), _) => {
            summary.grants += 1;
            summary.lost += usize::from(hold.lost.is_some());
            let wait = hold.granted.saturating_sub(acquire.invoked);
            summary.longest_wait = summary.longest_wait.max(wait);
        }
        (None, Some(_)) => summary.refusals += 1,
        (None, None) => summary.unfinished += 1,
    }
}

/// A time span in which a task holds a lock.
struct Span {
    from: Duration,
    to: Duration,
    who: Who,
    mode: Mode,
}

struct Checker<'a> {
    name: &'a str,
    rules: &'a Rules,
    found: &'a mut Vec<Violation>,
}

impl Checker<'_> {
    fn report(&mut self, rule: Rule, at: Duration, detail: String) {
        if self.rules.checks(rule) {
            self.found.push(Violation {
                rule,
                name: self.name.to_owned(),
                at,
                detail,
            });
        }
    }

    fn exclusion(&mut self, acquires: &Acquires) {
        let span = |(acquire, hold): (&Acquire, &Hold)| Span {
            from: hold.granted,
            to: hold.safe_end(),
            who: acquire.who,
            mode: acquire.mode,
        };
        let spans = holds(acquires).map(span).collect();
        self.overlaps(Rule::Exclusion, spans);
    }

    fn critical_sections(&mut self, acquires: &Acquires) {
        let mut spans = Vec::new();
        for (acquire, hold) in holds(acquires) {
            let killed = self.rules.killed.get(&acquire.who.0).copied();
            for (from, to) in &hold.work {
                spans.push(Span {
                    from: *from,
                    to: to.or(killed).unwrap_or(Duration::MAX),
                    who: acquire.who,
                    mode: acquire.mode,
                });
            }
        }
        self.overlaps(Rule::CriticalSection, spans);
    }

    /// Sweeps over the starts and ends of spans; at equal times, ends come first.
    fn overlaps(&mut self, rule: Rule, spans: Vec<Span>) {
        let mut steps: Vec<(Duration, bool, usize)> = Vec::new();
        for (i, span) in spans.iter().enumerate().filter(|(_, s)| s.from < s.to) {
            steps.push((span.from, true, i));
            steps.push((span.to, false, i));
        }
        steps.sort_unstable();
        let limit = self.rules.permits.get(self.name).copied();
        let mut open = Open::default();
        for (at, starts, i) in steps {
            let span = &spans[i];
            if starts {
                open.add(i, span.mode);
                if let Some(other) = open.conflict(i, limit) {
                    let (a, b) = (&spans[other], span);
                    let detail = format!(
                        "{:?} {:?} from {:?} to {:?} and {:?} {:?} from {:?} to {:?}",
                        a.who, a.mode, a.from, a.to, b.who, b.mode, b.from, b.to
                    );
                    self.report(rule, at, detail);
                }
            } else {
                open.remove(i, span.mode);
            }
        }
    }

    fn tokens(&mut self, acquires: &Acquires) {
        let mut grants: Vec<_> = holds(acquires)
            .filter_map(|(acquire, hold)| Some((hold.token?, acquire, hold)))
            .collect();
        grants.sort_by_key(|(_, _, hold)| hold.granted);

        let mut first: HashMap<u64, Who> = HashMap::new();
        let mut highest: Option<(u64, Who)> = None;
        for (token, acquire, hold) in &grants {
            if let Some(other) = first.insert(*token, acquire.who) {
                let detail = format!("{token} for {other:?} and {:?}", acquire.who);
                self.report(Rule::TokenUnique, hold.granted, detail);
            }
            // Exclusive holds that were real do not overlap, so their grants are in the server's order. A grant that
            // arrived after its own end may have been overtaken by a later one.
            if acquire.mode == Mode::Write && hold.is_real() {
                if let Some((before, other)) = highest.filter(|(before, _)| before > token) {
                    let detail =
                        format!("{token} for {:?} after {before} for {other:?}", acquire.who);
                    self.report(Rule::TokenOrder, hold.granted, detail);
                }
                highest = highest.max(Some((*token, acquire.who)));
            }
        }

        // A request after the answer to a release gets a greater token, whether the hold was real or not.
        let mut released: Vec<_> = grants
            .iter()
            .filter_map(|(token, _, hold)| Some((hold.released?, *token)))
            .collect();
        released.sort_unstable();
        grants.sort_by_key(|(_, acquire, _)| acquire.invoked);
        let mut released = released.into_iter().peekable();
        let mut highest = None;
        for (token, acquire, hold) in &grants {
            while let Some((_, earlier)) = released.next_if(|(at, _)| *at < acquire.invoked) {
                highest = highest.max(Some(earlier));
            }
            if let Some(before) = highest.filter(|before| before > token) {
                let detail = format!(
                    "{token} for {:?}, invoked after the release of {before}",
                    acquire.who
                );
                self.report(Rule::TokenOrder, hold.granted, detail);
            }
        }
    }

    fn unfinished(&mut self, acquires: &Acquires, end: Duration) {
        for acquire in acquires {
            let killed = self.rules.killed.contains_key(&acquire.who.0);
            if acquire.answered.is_none() && !killed {
                let detail = format!("{:?} invoked at {:?}", acquire.who, acquire.invoked);
                self.report(Rule::Unfinished, end, detail);
            }
        }
    }

    /// Checks that the grants are a subsequence of the arrivals.
    fn order(&mut self, acquires: &Acquires) {
        let Some(arrivals) = self.rules.order.get(self.name) else {
            return;
        };
        let mut grants: Vec<_> = holds(acquires)
            .map(|(acquire, hold)| (hold.granted, acquire.who))
            .collect();
        grants.sort_by_key(|(at, _)| *at);
        let mut rest = arrivals.iter();
        for (at, who) in grants {
            if !rest.any(|arrival| *arrival == who) {
                let detail = format!("{who:?} was granted out of the order {arrivals:?}");
                return self.report(Rule::Order, at, detail);
            }
        }
    }
}

fn holds(acquires: &Acquires) -> impl Iterator<Item = (&Acquire, &Hold)> {
    acquires.iter().filter_map(|a| Some((a, a.hold.as_ref()?)))
}

/// The spans that are open at one instant of a sweep.
#[derive(Default)]
struct Open {
    writers: BTreeMap<usize, ()>,
    readers: BTreeMap<usize, ()>,
    permits: BTreeMap<usize, u32>,
    permits_held: u64,
}

impl Open {
    fn add(&mut self, i: usize, mode: Mode) {
        match mode {
            Mode::Write => drop(self.writers.insert(i, ())),
            Mode::Read => drop(self.readers.insert(i, ())),
            Mode::Permits(n) => {
                self.permits.insert(i, n);
                self.permits_held += u64::from(n);
            }
        }
    }

    fn remove(&mut self, i: usize, mode: Mode) {
        match mode {
            Mode::Write => drop(self.writers.remove(&i)),
            Mode::Read => drop(self.readers.remove(&i)),
            Mode::Permits(n) => {
                self.permits.remove(&i);
                self.permits_held -= u64::from(n);
            }
        }
    }

    /// Returns another open span that is incompatible with `new`, which was just added.
    fn conflict(&self, new: usize, limit: Option<u32>) -> Option<usize> {
        let others = |map: &BTreeMap<usize, ()>| map.keys().copied().find(|i| *i != new);
        if let Some(writer) = others(&self.writers) {
            return Some(writer);
        }
        if self.writers.contains_key(&new) {
            let permit = self.permits.keys().copied().next();
            return others(&self.readers).or(permit);
        }
        let exceeded = self.permits.contains_key(&new)
            && limit.is_some_and(|limit| self.permits_held > u64::from(limit));
        // A single request above the limit conflicts with itself only.
        exceeded.then(|| {
            self.permits
                .keys()
                .copied()
                .find(|i| *i != new)
                .unwrap_or(new)
        })
    }
}

//! The judgement whether a simulation kept the promises.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion_testkit::{Event, History, Kind, Rule, Rules, Summary, Violation, check};

use crate::family::Primitive;
use crate::ledger::Notes;
use crate::scenario::Scenario;
use crate::simulate::Finished;
use crate::time::Time;

/// Timers of the runtime count milliseconds, and deadlines are finer. Within the margin of every lease (2 ms).
const TIMER: Duration = Duration::from_millis(2);

/// Even in a storm a lock that is free is taken by a waiter after the longest fault, the longest lease and the longest
/// poll.
const STORM_BOUND: Duration = Duration::from_secs(20);

/// A fault of a simulation.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) summary: Summary,
    /// Each begins with the rule that is broken.
    pub(crate) faults: Vec<String>,
}

/// Looks at everything.
pub(crate) fn judge(run: &Finished) -> Verdict {
    let notes = run.ledger.notes().clone();
    let events = run.ledger.history.events();
    let mut faults = notes.complaints.clone();
    let mut found = Vec::new();

    let base = notes
        .killed
        .iter()
        .fold(rules_of(&run.scenario), |rules, (process, at)| {
            rules.killed(*process, *at)
        });
    let rules = base.clone().lost_slack(TIMER).liveness(STORM_BOUND);
    let summary = match check(&history(forgotten(&events, &notes)), &rules) {
        Ok(summary) => summary,
        Err(violations) => {
            found.extend(violations);
            Summary::default()
        }
    };
    let calm = base.liveness(run.scenario.prompt);
    for &(from, to) in &notes.calms {
        let stalled = check(&history(within(&events, from, to)), &calm)
            .err()
            .unwrap_or_default();
        found.extend(
            stalled
                .into_iter()
                .filter(|violation| violation.rule == Rule::Liveness),
        );
    }
    faults.extend(
        found
            .iter()
            .map(|violation| explain(violation, &events, &notes)),
    );
    faults.extend(rest(run));
    faults.extend((run.scenario.play.judge)(run));
    Verdict { summary, faults }
}

/// Returns the number of permits that there are of each name.
fn rules_of(scenario: &Scenario) -> Rules {
    let Primitive::LeasedSemaphore(permits) = scenario.primitive else {
        return Rules::new();
    };
    scenario
        .names
        .iter()
        .fold(Rules::new(), |rules, name| rules.permits(name, permits))
}

fn history(events: Vec<Event>) -> History {
    let history = History::new();
    events.into_iter().for_each(|event| history.record(event));
    history
}

/// Exclusion is only promised while the server keeps its data: a hold granted before a loss ends with it, whenever its
/// holder learns of the grant and of the loss. When it was granted is told by its token: the server's time, or the one
/// before and one.
fn forgotten(events: &[Event], notes: &Notes) -> Vec<Event> {
    let mut kept = Vec::new();
    // When the current hold of a task was granted, and when the server forgot it.
    let mut ends: BTreeMap<(u32, u32, &str), (Duration, Duration)> = BTreeMap::new();
    for event in events {
        let key = (event.process, event.task, event.name.as_str());
        if event.kind == Kind::Granted {
            ends.remove(&key);
            let loss = notes
                .losses
                .iter()
                .find(|loss| event.token < Some(Time::as_token(**loss)));
            ends.extend(loss.map(|loss| (key, (event.at, event.at.max(*loss)))));
        }
        let mut event = event.clone();
        if let Some((granted, end)) = ends.get(&key) {
            event.safe_until = event.safe_until.map(|until| until.min(*end));
            match event.kind {
                Kind::Renewed if event.at >= *end => continue,
                Kind::Enter | Kind::Exit if granted == end => continue,
                Kind::Exit | Kind::Lost => event.at = event.at.min(*end),
                _ => {}
            }
        }
        kept.push(event);
    }
    kept
}

/// The events up to `to`, with everything before `from` moved there: who waits and who holds at `from` is the same.
fn within(events: &[Event], from: Duration, to: Duration) -> Vec<Event> {
    let moved = |event: &Event| Event {
        at: event.at.max(from),
        ..event.clone()
    };
    events
        .iter()
        .filter(|event| event.at <= to)
        .map(moved)
        .collect()
}

/// P3: everybody has gone, and nothing is left but fence counters, and what the kind says.
fn rest(run: &Finished) -> Option<String> {
    let left: Vec<_> = run
        .keys
        .iter()
        .filter(|(key, _)| !key.starts_with("stanchion_fence:"))
        // What clients told that were killed: it ends by itself.
        .filter(|(key, _)| !stanchion_tests::is_record(key))
        .filter(|(key, value)| !(run.scenario.play.stays)(&run.scenario, key, value.as_deref()))
        .collect();
    (!left.is_empty()).then(|| format!("P3: keys left behind: {left:?}"))
}

/// A violation with what happened around it.
fn explain(violation: &Violation, events: &[Event], notes: &Notes) -> String {
    let mut lines: Vec<(Duration, String)> = events
        .iter()
        .filter(|event| event.name == violation.name)
        .map(|e| {
            let token = e
                .token
                .map(|token| format!(" token {token}"))
                .unwrap_or_default();
            let until = e
                .safe_until
                .map(|until| format!(" until {until:?}"))
                .unwrap_or_default();
            (
                e.at,
                format!("{}/{} {:?}{token}{until}", e.process, e.task, e.kind),
            )
        })
        .chain(
            notes
                .faults
                .iter()
                .map(|(at, what)| (*at, format!("-- {what}"))),
        )
        .collect();
    lines.sort_by_key(|(at, _)| *at);
    let (before, after) = (Duration::from_secs(4), Duration::from_millis(500));
    let near = lines
        .iter()
        .filter(|(at, _)| *at + before >= violation.at && *at <= violation.at + after);
    let near: Vec<_> = near
        .map(|(at, what)| format!("      {at:?} {what}"))
        .collect();
    // The end is what matters most.
    let from = near.len().saturating_sub(60);
    format!("{violation}\n{}", near[from..].join("\n"))
}

//! Checks whether a simulation kept the promises.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion_testkit::{Event, History, Kind, Rule, Rules, Summary, Violation, check};

use crate::simulation::ledger::Notes;
use crate::simulation::primitives::Primitive;
use crate::simulation::scenario::Scenario;
use crate::simulation::simulate::Finished;
use crate::simulation::time::Time;

/// Timers of the runtime have a resolution of 1 ms, and deadlines are finer. Within the margin of every lease (2 ms).
const TIMER: Duration = Duration::from_millis(2);

/// With faults, too, a waiter acquires a free lock within this time: the longest fault, the longest lease and the longest poll
/// interval together.
const STORM_BOUND: Duration = Duration::from_secs(20);

/// The violations of a simulation.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) summary: Summary,
    /// Each text begins with the violated rule.
    pub(crate) faults: Vec<String>,
}

/// Checks the history, the complaints, the leftover keys, and the rules of the kind.
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
    faults.extend(leftovers(run));
    faults.extend((run.scenario.workload.judge)(run));
    Verdict { summary, faults }
}

/// Returns the rules, with the number of permits of each name.
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

/// Ends holds at a loss of the server's data, because exclusion is promised only while the server keeps its data. A hold from before
/// the loss ends with it, even if its holder receives the grant or notices the loss later. The token shows the time of the grant: it
/// is the server's time, or the previous token plus one.
fn forgotten(events: &[Event], notes: &Notes) -> Vec<Event> {
    let mut kept = Vec::new();
    // For each task: the time of the current grant, and the time at which the server lost it.
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

/// Returns the events up to `to`, with events before `from` moved to `from`. The waiters and holders at `from` stay the same.
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

/// P3: all clients have shut down, so only fence counters and the keys that the kind allows may be left.
fn leftovers(run: &Finished) -> Option<String> {
    let left: Vec<_> = run
        .keys
        .iter()
        .filter(|(key, _)| !key.starts_with("stanchion_fence:"))
        // Records of killed clients expire.
        .filter(|(key, _)| !stanchion_tests::is_record(key))
        .filter(|(key, value)| {
            !(run.scenario.workload.may_remain)(&run.scenario, key, value.as_deref())
        })
        .collect();
    (!left.is_empty()).then(|| format!("P3: keys left behind: {left:?}"))
}

/// Returns a violation with the events around it.
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
    // The last lines matter most.
    let from = near.len().saturating_sub(60);
    format!("{violation}\n{}", near[from..].join("\n"))
}

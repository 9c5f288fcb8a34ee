//! Primitives with guards: locks, fair locks, read-write locks, leased permits. `judge.rs` checks their holds.

use stanchion_testkit::Kind;

use super::{Work, Workload};
use crate::simulation::primitives::{Contested, Primitive};
use crate::simulation::scenario::Scenario;
use crate::simulation::simulate::Finished;
use crate::simulation::work::Worker;

pub(crate) const HOLDS: Workload = Workload {
    work,
    judge,
    inspect: None,
    may_remain: |scenario, key, value| {
        // What is known of a queue expires after a minute, where no release has removed it.
        let (kind, _) = key.split_once(':').unwrap_or_default();
        kind.starts_with("stanchion_") && kind.ends_with("_wake") || is_full(scenario, key, value)
    },
};

fn work(worker: Worker) -> Work {
    Box::pin(async move {
        let mut contested = Vec::new();
        for name in worker.scenario.names {
            let made = Contested::new(worker.scenario.primitive, &worker.client, name).await;
            match made {
                Ok(made) => contested.push(made),
                Err(error) => return worker.ledger.complain(error.to_string()),
            }
        }
        worker.hold_until_the_end(contested).await;
    })
}

/// Returns whether the key is a semaphore with all its permits free.
fn is_full(scenario: &Scenario, key: &str, value: Option<&str>) -> bool {
    let Primitive::LeasedSemaphore(permits) = scenario.primitive else {
        return false;
    };
    scenario.names.contains(&key) && value == Some(permits.to_string().as_str())
}

/// Returns a violation if there are too few grants. A simulation without progress proves nothing.
pub(crate) fn judge(run: &Finished) -> Vec<String> {
    let events = run.ledger.history.events();
    let mut poor = Vec::new();
    let granted = events
        .iter()
        .filter(|event| event.kind == Kind::Granted)
        .count();
    if granted < run.scenario.least {
        poor.push(format!("Poor: only {granted} grants"));
    }
    // Each task gets at least 20 grants in 560 s.
    let each = run.scenario.busy_for.as_secs() / 28;
    for host in 0..run.scenario.clients {
        for task in 0..run.scenario.tasks {
            let granted = events
                .iter()
                .filter(|event| {
                    event.kind == Kind::Granted
                        && event.process / 1_000 == host
                        && event.task == task
                })
                .count();
            if (granted as u64) < each {
                poor.push(format!(
                    "Poor: task {task} of host {host} got only {granted} grants"
                ));
            }
        }
    }
    poor
}

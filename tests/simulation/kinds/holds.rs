//! What has a guard: locks, read-write locks, leased permits. What is judged are the holds: see `judge.rs`.

use stanchion_testkit::Kind;

use super::{Play, Work};
use crate::family::{Contested, Primitive};
use crate::scenario::Scenario;
use crate::simulate::Finished;
use crate::work::Worker;

pub(crate) const HOLDS: Play = Play {
    work,
    judge,
    look: None,
    stays: |scenario, key, value| {
        // For some minutes it is known which holders were slow.
        key.starts_with("stanchion_semaphore_slow:") || is_full(scenario, key, value)
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

/// A semaphore stays, and all its permits are back.
fn is_full(scenario: &Scenario, key: &str, value: Option<&str>) -> bool {
    let Primitive::LeasedSemaphore(permits) = scenario.primitive else {
        return false;
    };
    scenario.names.contains(&key) && value == Some(permits.to_string().as_str())
}

/// A simulation in which nothing happens proves nothing.
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
    // In ten minutes each gets 20.
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

//! Elections: a kind of [`HOLDS`] whose holds are terms. One task of each process also observes the leader.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::election::Observed;
use stanchion::{Election, FencingToken};
use stanchion_testkit::{Event, Kind};

use super::holds::HOLDS;
use super::{Work, Workload, explain, killed, progress};
use crate::simulation::operations::{Call, CallResult, Operation, Pending};
use crate::simulation::simulate::Finished;
use crate::simulation::work::Worker;

pub(crate) const ELECTION: Workload = Workload {
    work,
    judge,
    ..HOLDS
};

/// In a calm phase observers see every term that lasts for this time: two messages and two replies, and a check for a dead candidate.
const REPORTED: Duration = Duration::from_millis(1_500);

fn work(worker: Worker) -> Work {
    let observer = (worker.task == 0).then(|| {
        let name = worker.scenario.names[0];
        let ledger = std::sync::Arc::clone(&worker.ledger);
        // OK: a name of letters.
        let election = Election::new(&worker.client, name).ok();
        (ledger, election, worker.process)
    });
    Box::pin(async move {
        let leading = (HOLDS.work)(worker);
        let Some((ledger, Some(election), process)) = observer else {
            return leading.await;
        };
        let looking = async {
            let mut leaders = election.observe();
            loop {
                let call = Pending::begin(&ledger, (process, 0), Call::Observe);
                let result = match leaders.next().await {
                    Some(Observed::Leader(leader)) => CallResult::Leader(
                        leader.token.map_or(0, FencingToken::get),
                        number_in(leader.value.as_deref()),
                    ),
                    Some(Observed::Vacant) => CallResult::Vacant,
                    Some(_) => CallResult::Unknown,
                    None => return ledger.complain("P8: the observation was rejected"),
                };
                call.end(result);
            }
        };
        tokio::select! {
            () = leading => {}
            () = looking => {}
        }
    })
}

fn number_in(value: Option<&[u8]>) -> u64 {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

fn judge(run: &Finished) -> Vec<String> {
    let mut faults = (HOLDS.judge)(run);
    let operations = run.ledger.operations().clone();
    faults.extend(backwards(run, &operations));
    faults.extend(blind(run, &operations));
    faults.extend(progress(run, "leaders observed", |operation| {
        matches!(operation.result(), CallResult::Leader(..))
    }));
    faults
}

/// An observer never sees an older term after a newer one, or an older value of a term after a newer one.
fn backwards(run: &Finished, operations: &[Operation]) -> Vec<String> {
    let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut faults = Vec::new();
    for operation in operations {
        let CallResult::Leader(token, value) = operation.result() else {
            continue;
        };
        let before = last.insert(operation.process, (token, value));
        if before > Some((token, value)) {
            let detail = format!(
                "{} sees {token} {value} after {before:?}",
                operation.process
            );
            faults.push(explain(run, "Backwards", operation.ended(), &detail));
        }
    }
    faults
}

/// In a calm phase every observer sees a term that lasts.
fn blind(run: &Finished, operations: &[Operation]) -> Vec<String> {
    let calms = run.ledger.notes().calms.clone();
    let mut faults = Vec::new();
    for (granted, token, end) in terms(&run.ledger.history.events()) {
        let by = granted + REPORTED;
        let calm = calms.iter().any(|(from, to)| *from < granted && by < *to);
        if !calm || end <= by {
            continue;
        }
        let mut observers: Vec<_> = operations
            .iter()
            .filter(|operation| operation.call == Call::Observe && operation.began < granted)
            .map(|operation| operation.process)
            .filter(|process| killed(run, *process) == Duration::MAX)
            .collect();
        observers.dedup();
        observers.sort_unstable();
        observers.dedup();
        for observer in observers {
            let seen_in_time = operations.iter().any(|operation| {
                operation.process == observer
                    && matches!(operation.result(), CallResult::Leader(seen, _) if seen >= token)
                    && operation.ended() <= by
            });
            if !seen_in_time {
                let detail = format!("{observer} has not seen {token} by {by:?}");
                faults.push(explain(run, "Blind", by, &detail));
            }
        }
    }
    faults
}

/// Returns for each term the time of the grant, the token, and the time of the end or loss.
fn terms(events: &[Event]) -> Vec<(Duration, u64, Duration)> {
    let mut open: BTreeMap<(u32, u32), (Duration, u64)> = BTreeMap::new();
    let mut terms = Vec::new();
    for event in events {
        let caller = (event.process, event.task);
        match event.kind {
            Kind::Granted => {
                open.insert(caller, (event.at, event.token.unwrap_or_default()));
            }
            Kind::Exit => {
                if let Some((at, token)) = open.remove(&caller) {
                    terms.push((at, token, event.at));
                }
            }
            _ => {}
        }
    }
    terms
}

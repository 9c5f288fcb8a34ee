//! Elections: a kind of [`HOLDS`], whose holds are terms. Besides, a task of each process looks on.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::{Election, FencingToken, Observed};
use stanchion_testkit::{Event, Kind};

use super::holds::HOLDS;
use super::{Play, Work, explain, killed, progress};
use crate::deeds::{Call, Deed, Pending, Saw};
use crate::simulate::Finished;
use crate::work::Worker;

pub(crate) const ELECTION: Play = Play {
    work,
    judge,
    ..HOLDS
};

/// A term that lasts for so long in calm weather is reported: two messages and two answers on slow links, and a look for a dead candidate.
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
                let saw = match leaders.next().await {
                    Some(Observed::Leader(leader)) => Saw::Leader(
                        leader.token.map_or(0, FencingToken::get),
                        number_in(leader.value.as_deref()),
                    ),
                    Some(Observed::Vacant) => Saw::Vacant,
                    Some(_) => Saw::Unknown,
                    None => return ledger.complain("P8: an observer was refused"),
                };
                call.end(saw);
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
    let deeds = run.ledger.deeds().clone();
    faults.extend(backwards(run, &deeds));
    faults.extend(blind(run, &deeds));
    faults.extend(progress(run, "leaders observed", |deed| {
        matches!(deed.saw(), Saw::Leader(..))
    }));
    faults
}

/// Of one term no older value follows a newer one, and no older term either.
fn backwards(run: &Finished, deeds: &[Deed]) -> Vec<String> {
    let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut faults = Vec::new();
    for deed in deeds {
        let Saw::Leader(token, value) = deed.saw() else {
            continue;
        };
        let before = last.insert(deed.process, (token, value));
        if before > Some((token, value)) {
            let detail = format!("{} sees {token} {value} after {before:?}", deed.process);
            faults.push(explain(run, "Backwards", deed.ended(), &detail));
        }
    }
    faults
}

/// In calm weather every observer is told of a term that lasts.
fn blind(run: &Finished, deeds: &[Deed]) -> Vec<String> {
    let calms = run.ledger.notes().calms.clone();
    let mut faults = Vec::new();
    for (granted, token, end) in terms(&run.ledger.history.events()) {
        let by = granted + REPORTED;
        let calm = calms.iter().any(|(from, to)| *from < granted && by < *to);
        if !calm || end <= by {
            continue;
        }
        let mut observers: Vec<_> = deeds
            .iter()
            .filter(|deed| deed.call == Call::Observe && deed.began < granted)
            .map(|deed| deed.process)
            .filter(|process| killed(run, *process) == Duration::MAX)
            .collect();
        observers.dedup();
        observers.sort_unstable();
        observers.dedup();
        for observer in observers {
            let told = deeds.iter().any(|deed| {
                deed.process == observer
                    && matches!(deed.saw(), Saw::Leader(seen, _) if seen >= token)
                    && deed.ended() <= by
            });
            if !told {
                let detail = format!("{observer} is not told of {token} by {by:?}");
                faults.push(explain(run, "Blind", by, &detail));
            }
        }
    }
    faults
}

/// When each term was granted, its token, and when its holder let go or lost it.
fn terms(events: &[Event]) -> Vec<(Duration, u64, Duration)> {
    let mut open: BTreeMap<(u32, u32), (Duration, u64)> = BTreeMap::new();
    let mut terms = Vec::new();
    for event in events {
        let who = (event.process, event.task);
        match event.kind {
            Kind::Granted => {
                open.insert(who, (event.at, event.token.unwrap_or_default()));
            }
            Kind::Exit => {
                if let Some((at, token)) = open.remove(&who) {
                    terms.push((at, token, event.at));
                }
            }
            _ => {}
        }
    }
    terms
}

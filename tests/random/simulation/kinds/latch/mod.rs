//! Latches that expire when they are idle. Every few seconds one process arms a new latch. Others count it down, wait for it, or do not
//! use it.

mod judge;

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use stanchion::{AcquireError, CountDownLatch, IdleExpiry, QueryError, Rejection};
use tokio::time::{sleep, timeout};

use super::{Work, Workload};
use crate::simulation::held::OPERATION_TIMEOUT;
use crate::simulation::ledger::Ledger;
use crate::simulation::operations::{Call, CallResult, Pending};
use crate::simulation::scenario::Scenario;
use crate::simulation::time::Time;
use crate::simulation::work::Worker;

pub(crate) const LATCH: Workload = Workload {
    work,
    judge: judge::judge,
    inspect: Some(inspect),
    // A latch expires a minute after its last waiter. `inspect` checks that.
    may_remain: |_, key, _| key.starts_with(PREFIX) || key.contains(":{cargo-"),
};

const PREFIX: &str = "cargo-";

/// The time between two latches.
const EVERY: Duration = Duration::from_secs(6);

/// A latch expires after this time without use.
const IDLE: Duration = Duration::from_secs(4);

/// The bounds of the time for which a waiter's request keeps a latch: twice the poll interval (5 s at most here) and the outage
/// tolerance (30 s).
const KEPT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(70));

/// In a calm phase a reply arrives and a waiter is notified within this time.
const PROMPT: Duration = Duration::from_secs(1);

/// The count of a latch.
fn count_of(number: u64) -> u64 {
    2 + number % 3
}

fn work(mut worker: Worker) -> Work {
    Box::pin(async move {
        let ledger = std::sync::Arc::clone(&worker.ledger);
        let clients = u64::from(worker.scenario.clients);
        // OK: at least a second.
        let Ok(idle) = IdleExpiry::after(IDLE) else {
            return ledger.complain("the idle time is rejected");
        };
        let since = |at: Duration| at.saturating_sub(Time::at(Duration::ZERO));
        while !ledger.is_ending() {
            let number = since(ledger.time.now()).as_secs() / EVERY.as_secs() + 1;
            let begin = Time::at(EVERY * u32::try_from(number).unwrap_or(u32::MAX));
            sleep(begin.saturating_sub(ledger.time.now())).await;
            let name = format!("{PREFIX}{number}");
            let Ok(latch) = CountDownLatch::new(&worker.client, &name) else {
                return ledger.complain("the name of the latch is rejected");
            };
            // One process arms the latch, once. The handles of the others do not know the idle time.
            if worker.task == 0 && number % clients == u64::from(worker.process / 1_000) {
                let latch = latch.clone().ephemeral(idle);
                arm(&worker, &ledger, &latch, number).await;
            }
            sleep(worker.millis(100, EVERY / 2)).await;
            match worker.rng.u8(..10) {
                0..4 => count_down(&worker, &ledger, &latch, number).await,
                4..9 => wait(&mut worker, &ledger, &latch, number).await,
                _ => {}
            }
        }
    })
}

async fn arm(worker: &Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let caller = (worker.process, worker.task);
    let call = Pending::begin(ledger, caller, Call::Arm(number));
    let began = call.began;
    let armed = latch.arm(count_of(number)).await;
    ledger.check_bound("arm", began, OPERATION_TIMEOUT);
    call.end(match armed {
        Ok(true) => CallResult::Done,
        Ok(false) => {
            ledger.complain("P6: the latch was armed before, although only one call arms it");
            CallResult::Unknown
        }
        Err(error) => unanswered(ledger, &error),
    });
}

async fn count_down(worker: &Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let caller = (worker.process, worker.task);
    let call = Pending::begin(ledger, caller, Call::CountDown(number));
    let began = call.began;
    let counted = latch.count_down().await;
    ledger.check_bound("count_down", began, OPERATION_TIMEOUT);
    call.end(match counted {
        Ok(left) => {
            ledger.count("counted down");
            CallResult::Left(left)
        }
        Err(error) => unanswered(ledger, &error),
    });
}

async fn wait(worker: &mut Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let limit = worker.millis(0, EVERY * 2);
    let cancelled = worker.rng.u8(..4) == 0;
    let caller = (worker.process, worker.task);
    let call = Pending::begin(ledger, caller, Call::Await(number));
    let began = call.began;
    let waited = if cancelled {
        timeout(limit, latch.wait()).await.ok()
    } else {
        let waited = latch.wait_timeout(limit).await;
        ledger.check_bound("wait_timeout", began, limit);
        Some(waited)
    };
    call.end(match waited {
        Some(Ok(())) => {
            ledger.count("opened");
            CallResult::Done
        }
        None | Some(Err(AcquireError::TimedOut { .. })) => CallResult::Nothing,
        Some(Err(AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        })) => {
            ledger.count("ended");
            CallResult::Gone
        }
        Some(Err(AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. })) => {
            ledger.count("unavailable");
            CallResult::Unknown
        }
        Some(Err(error)) => {
            ledger.complain(format!("P8: {error}"));
            CallResult::Unknown
        }
    });
}

fn unanswered(ledger: &Ledger, error: &QueryError) -> CallResult {
    if let QueryError::Rejected { .. } = error {
        ledger.complain(format!("P8: {error}"));
    }
    ledger.count("unanswered");
    CallResult::Unknown
}

/// Records which latches exist. Complains of a latch without a TTL.
fn inspect(engine: &Engine, _: &Scenario, ledger: &Ledger) {
    let there: Vec<String> = engine
        .keys()
        .iter()
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .filter(|key| key.starts_with(PREFIX))
        .collect();
    for key in &there {
        if engine.execute(&["PTTL", key]) == Reply::Int(-1) {
            ledger.complain_of("Endless", key);
        }
    }
    let now = ledger.time.now();
    let mut notes = ledger.notes();
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    for (_, key, is_there) in &notes.key_changes {
        known.insert(key.clone(), *is_there);
    }
    for key in &there {
        if known.get(key) != Some(&true) {
            notes.key_changes.push((now, key.clone(), true));
        }
    }
    for (key, is_there) in known {
        if is_there && !there.contains(&key) {
            notes.key_changes.push((now, key, false));
        }
    }
}

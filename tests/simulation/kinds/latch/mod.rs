//! Latches that end when nobody uses them: every few seconds another one, which one process arms, and others count down, wait for, or
//! forget.

mod judge;

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use stanchion::{AcquireError, CountDownLatch, IdleExpiry, QueryError, Rejection};
use tokio::time::{sleep, timeout};

use super::{Play, Work};
use crate::deeds::{Call, Pending, Saw};
use crate::held::OPERATION;
use crate::ledger::Ledger;
use crate::scenario::Scenario;
use crate::time::Time;
use crate::work::Worker;

pub(crate) const LATCH: Play = Play {
    work,
    judge: judge::judge,
    look: Some(look),
    // They end a minute after their last waiter: that they do is judged by looking.
    stays: |_, key, _| key.starts_with(PREFIX) || key.contains(":{cargo-"),
};

const PREFIX: &str = "cargo-";

/// The time between two latches.
const EVERY: Duration = Duration::from_secs(6);

/// Without use for so long one ends.
const IDLE: Duration = Duration::from_secs(4);

/// After a question of a waiter it stays for twice the poll interval (5 s at most here) and the outage tolerance (30 s).
const KEPT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(70));

/// In calm weather a request is answered, and a waiter told, within this.
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
            return ledger.complain("its idle time is none");
        };
        let since = |at: Duration| at.saturating_sub(Time::at(Duration::ZERO));
        while !ledger.is_ending() {
            let number = since(ledger.time.now()).as_secs() / EVERY.as_secs() + 1;
            let begin = Time::at(EVERY * u32::try_from(number).unwrap_or(u32::MAX));
            sleep(begin.saturating_sub(ledger.time.now())).await;
            let name = format!("{PREFIX}{number}");
            let Ok(latch) = CountDownLatch::new(&worker.client, &name) else {
                return ledger.complain("the latch has no name");
            };
            // One process arms it, once; the others do not know that it is one that ends.
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
    let who = (worker.process, worker.task);
    let call = Pending::begin(ledger, who, Call::Arm(number));
    let began = call.began;
    let armed = latch.arm(count_of(number)).await;
    ledger.check_bound("arm", began, OPERATION);
    call.end(match armed {
        Ok(true) => Saw::Done,
        Ok(false) => {
            ledger.complain("P6: it was armed before, by nobody");
            Saw::Unknown
        }
        Err(error) => unanswered(ledger, &error),
    });
}

async fn count_down(worker: &Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let who = (worker.process, worker.task);
    let call = Pending::begin(ledger, who, Call::CountDown(number));
    let began = call.began;
    let counted = latch.count_down().await;
    ledger.check_bound("count_down", began, OPERATION);
    call.end(match counted {
        Ok(left) => {
            ledger.count("counted down");
            Saw::Left(left)
        }
        Err(error) => unanswered(ledger, &error),
    });
}

async fn wait(worker: &mut Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let limit = worker.millis(0, EVERY * 2);
    let cancelled = worker.rng.u8(..4) == 0;
    let who = (worker.process, worker.task);
    let call = Pending::begin(ledger, who, Call::Await(number));
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
            Saw::Done
        }
        None | Some(Err(AcquireError::TimedOut { .. })) => Saw::Nothing,
        Some(Err(AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        })) => {
            ledger.count("ended");
            Saw::Gone
        }
        Some(Err(AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. })) => {
            ledger.count("unavailable");
            Saw::Unknown
        }
        Some(Err(error)) => {
            ledger.complain(format!("P8: {error}"));
            Saw::Unknown
        }
    });
}

fn unanswered(ledger: &Ledger, error: &QueryError) -> Saw {
    if let QueryError::Rejected { .. } = error {
        ledger.complain(format!("P8: {error}"));
    }
    ledger.count("unanswered");
    Saw::Unknown
}

/// Which latches there are; none without an end.
fn look(engine: &Engine, _: &Scenario, ledger: &Ledger) {
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
    for (_, key, is_there) in &notes.sights {
        known.insert(key.clone(), *is_there);
    }
    for key in &there {
        if known.get(key) != Some(&true) {
            notes.sights.push((now, key.clone(), true));
        }
    }
    for (key, is_there) in known {
        if is_there && !there.contains(&key) {
            notes.sights.push((now, key, false));
        }
    }
}

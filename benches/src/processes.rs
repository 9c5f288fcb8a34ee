//! Several processes on one name: the cost of a hand-off, and the fairness of the waits.

use std::io::{self, Write as _};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use stanchion::Client;
use stanchion_testkit::{Process, RedisServer};

use crate::handoffs::{micros, sent};
use crate::kind::{AnyLock, Kind, token};
use crate::measure::{Flavor, Plan, Spread, hold};
use crate::report::{Report, Target, per_second};

const PROCESSES: usize = 4;
const TASKS: usize = 8;
const NAME: &str = "bench:processes";
/// The time for which the tasks of the figure `processes` hold, and then pause.
const PACE: Duration = Duration::from_millis(1);

/// The hidden subcommand: one of the processes. Starts when a line comes on its standard input.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    url: String,
    millis: u64,
    /// Microseconds.
    pace: u64,
    #[arg(value_enum)]
    kind: Kind,
}

/// The output of a worker at its end.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Told {
    grants: Vec<Grant>,
    /// The waits in microseconds that were not granted before the end of the run.
    waiting: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Grant {
    /// Orders the grants of all processes.
    token: u64,
    task: usize,
    waited: u64,
}

impl Worker {
    pub(crate) fn run(&self) -> Result<()> {
        Flavor::MultiThread.runtime()?.block_on(async {
            let client = Client::connect(self.url.clone()).await?;
            let lock = self.kind.named(&client, NAME)?;
            println!("ready");
            io::stdout().flush()?;
            tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new())).await??;
            let told = contend(
                &lock,
                Duration::from_millis(self.millis),
                Duration::from_micros(self.pace),
            )
            .await?;
            // A waiter that gave up may be granted the lock after that: the shutdown releases such a grant.
            client.shutdown(Duration::from_secs(5)).await;
            println!("{}", serde_json::to_string(&told)?);
            anyhow::Ok(())
        })
    }
}

/// Tasks that hold for as long as `pace` says and then pause for as long.
async fn contend(lock: &AnyLock, run: Duration, pace: Duration) -> Result<Told> {
    let started = Instant::now();
    let told = Arc::new(Mutex::new(Told::default()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (lock, told) = (lock.clone(), Arc::clone(&told));
            let tell = move |entry: Result<Grant, u64>| {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                match entry {
                    Ok(grant) => told.grants.push(grant),
                    Err(waiting) => told.waiting.push(waiting),
                }
            };
            tokio::spawn(async move {
                loop {
                    let asked = Instant::now();
                    let left = run.saturating_sub(started.elapsed());
                    let acquired = tokio::time::timeout(left, lock.acquire()).await;
                    let waited = micros(asked);
                    let Ok(guard) = acquired else {
                        tell(Err(waited));
                        return anyhow::Ok(());
                    };
                    let guard = guard?;
                    let seen = token(&guard)?;
                    tell(Ok(Grant {
                        token: seen,
                        task,
                        waited,
                    }));
                    hold(pace).await;
                    guard.release().await?;
                    hold(pace).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.context("a task panicked")??;
    }
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *told))
}

/// One run, judged. Times in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) commands: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) rate: f64,
}

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let outcomes = (0..plan.runs)
        .map(|_| run(server, plan.run, Kind::Lock, PACE))
        .collect::<Result<Vec<_>>>()?;
    let spread = |of: fn(&Outcome) -> f64| Spread::of(outcomes.iter().map(of).collect());
    let note = format!("{} hand-offs", per_second(spread(|o| o.rate)));
    let what = format!("commands for a hand-off, {PROCESSES} processes x {TASKS} tasks");
    report.row(
        "processes",
        what,
        spread(|o| o.commands),
        Target::AtMost(4.2),
        note,
    );
    let note = format!(
        "p50 {:.1} ms, p99 {:.1} ms, max {:.0} ms",
        spread(|o| o.p50).median,
        spread(|o| o.p99).median,
        spread(|o| o.max).median
    );
    report.row(
        "processes",
        "wait p99 / p50",
        spread(|o| o.p99 / o.p50),
        Target::AtMost(5.0),
        note,
    );
    Ok(())
}

/// Four processes of eight tasks contend for so long.
pub(crate) fn run(
    server: &RedisServer,
    length: Duration,
    kind: Kind,
    pace: Duration,
) -> Result<Outcome> {
    let program = std::env::current_exe()?;
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Process::spawn(Command::new(&program).args([
                "worker",
                &server.url(),
                &length.as_millis().to_string(),
                &pace.as_micros().to_string(),
                kind.arg(),
            ]))
        })
        .collect();
    for worker in &mut workers {
        worker.wait_for_line(|line| line == "ready", Duration::from_secs(10));
    }
    server.reset_stats();
    server.flush();
    for worker in &mut workers {
        worker.send_line("go");
    }
    let mut grants = Vec::new();
    let mut waits = Histogram::<u64>::new(3)?;
    for (process, worker) in workers.iter_mut().enumerate() {
        let line = worker.wait_for_line(
            |line| line.starts_with('{'),
            length + Duration::from_secs(20),
        );
        let told: Told = serde_json::from_str(&line)?;
        for wait in told
            .waiting
            .into_iter()
            .chain(told.grants.iter().map(|grant| grant.waited))
        {
            waits.record(wait)?;
        }
        grants.extend(
            told.grants
                .into_iter()
                .map(|grant| (grant.token, process, grant.task)),
        );
    }
    let sent = sent(server) as f64;
    grants.sort_unstable();
    let handoffs = grants
        .windows(2)
        .filter(|pair| (pair[0].1, pair[0].2) != (pair[1].1, pair[1].2))
        .count() as f64;
    let millis = |quantile| waits.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Outcome {
        commands: sent / handoffs,
        p50: millis(0.5),
        p99: millis(0.99),
        max: millis(1.0),
        rate: handoffs / length.as_secs_f64(),
    })
}

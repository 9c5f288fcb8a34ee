//! Very many contended names in one process: measures how much of a lease remains while it is renewed among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use stanchion::{AcquireOptions, Client, Lease, Lock};
use stanchion_testkit::RedisServer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

const LEASE: Duration = Duration::from_secs(3);
/// Tasks of the client that holds.
const WORKERS: usize = 64;

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let names = plan.many * 2;
    let (mut left, mut cycles) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs.min(3) {
        let (least, rate) = Flavor::MultiThread
            .runtime()?
            .block_on(run(server, names, plan))?;
        left.push(least);
        cycles.push(rate);
        server.flush();
    }
    report.row(
        "names",
        format!("{names} contended names: s left of a lease of 3 s"),
        Spread::of(left),
        Target::AtLeast(1.8),
        format!("{:.0} grants/s", Spread::of(cycles).median),
    );
    Ok(())
}

/// The least remainder of the lease, in seconds, and the grants per second.
///
/// One client holds all names, and visits them again and again: it releases one and waits for it again. The other waits for every
/// name, so each grant ends a wait and begins one.
async fn run(server: &RedisServer, names: usize, plan: Plan) -> Result<(f64, f64)> {
    let (ours, theirs) = (
        Client::connect(server.url()).await?,
        Client::connect(server.url()).await?,
    );
    let lease = AcquireOptions::new().lease(Lease::new(LEASE)?);
    let renewed = Lock::new(&ours, "bench:renewed")?;
    let guard = renewed.acquire_with(lease).await?;
    let (gathered, mut workers) = (Arc::new(Barrier::new(WORKERS + 1)), JoinSet::new());
    let mut waiters = JoinSet::new();
    let until = plan.run * 5;
    for worker in 0..WORKERS {
        let mut held = Vec::new();
        for name in (worker..names).step_by(WORKERS) {
            let name = format!("bench:names:{name}");
            let (mine, lock) = (Lock::new(&theirs, &*name)?, Lock::new(&ours, &*name)?);
            let guard = mine.acquire().await?;
            held.push((mine, guard));
            waiters.spawn(async move {
                loop {
                    lock.acquire().await?.release().await?;
                }
                #[expect(unreachable_code, reason = "names the type of the errors above")]
                anyhow::Ok(())
            });
        }
        let gathered = Arc::clone(&gathered);
        workers.spawn(async move {
            gathered.wait().await;
            let (started, mut grants) = (Instant::now(), 0_u32);
            for turn in 0.. {
                let nth = turn % held.len();
                let (lock, guard) = held.swap_remove(nth);
                guard.release().await?;
                held.push((lock.clone(), lock.acquire().await?));
                let last = held.len() - 1;
                held.swap(nth, last);
                grants += 2;
                if started.elapsed() > until {
                    break;
                }
            }
            anyhow::Ok(grants)
        });
    }
    while ours.waiters() < names {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let started = Instant::now();
    gathered.wait().await;
    let mut least = LEASE;
    while started.elapsed() < until {
        tokio::time::sleep(Duration::from_millis(2)).await;
        least = least.min(guard.remaining());
    }
    let mut grants = 0.0;
    while let Some(ended) = workers.join_next().await {
        grants += f64::from(ended.context("a task panicked")??);
    }
    let elapsed = started.elapsed().as_secs_f64();
    if let Some(ended) = waiters.try_join_next() {
        ended??;
    }
    waiters.shutdown().await;
    ensure!(guard.is_held(), "the lock was lost");
    guard.release().await?;
    Ok((least.as_secs_f64(), grants / elapsed))
}

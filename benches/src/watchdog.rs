//! Very many held locks: the number of renewals in a command, and their cost for this process.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use stanchion::{AcquireOptions, Client, Lease, Lock};
use stanchion_testkit::RedisServer;

use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

/// A tenth of the default lease, so that a run takes seconds; the cost is reported for the default lease.
const LEASE: Duration = Duration::from_secs(3);
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let guards = acquire_spread(&client, plan.many).await?;
        let (mut batches, mut loads) = (Vec::new(), Vec::new());
        for _ in 0..plan.runs {
            server.reset_stats();
            let (started, spent) = (Instant::now(), cpu_time());
            tokio::time::sleep(LEASE / 3 * 2).await;
            loads.push((cpu_time() - spent).as_secs_f64() / started.elapsed().as_secs_f64());
            let stats = server.commands_processed();
            let calls = |name: &str| stats.get(name).copied().unwrap_or(0) as f64;
            batches.push(calls("pexpire") / calls("evalsha"));
        }
        ensure!(
            guards.iter().all(stanchion::LockGuard::is_held),
            "a lock was lost"
        );
        let held = format!("{} held locks", guards.len());
        report.row(
            "watchdog",
            format!("{held}: renewals in a command"),
            Spread::of(batches),
            Target::AtLeast(100.0),
            "",
        );
        let scale = LEASE.as_secs_f64() / DEFAULT_LEASE.as_secs_f64();
        let measured = Spread::of(loads.iter().map(|load| load * 100.0).collect());
        let scaled = Spread::of(loads.iter().map(|load| load * 100.0 * scale).collect());
        let note = format!(
            "measured {:.1} % with leases of {} s",
            measured.median,
            LEASE.as_secs()
        );
        report.row(
            "watchdog",
            format!("{held}: % of a core, 30 s leases"),
            scaled,
            Target::AtMost(5.0),
            note,
        );
        drop(guards);
        client.shutdown(Duration::from_secs(10)).await;
        anyhow::Ok(())
    })
}

/// Acquires at an even pace over a renewal interval, as locks of a busy process are: not all at once.
async fn acquire_spread(client: &Client, many: usize) -> Result<Vec<stanchion::LockGuard>> {
    let started = Instant::now();
    let lease = Lease::new(LEASE)?;
    let mut guards = Vec::with_capacity(many);
    for i in 0..many {
        let due = (LEASE / 3).mul_f64(i as f64 / many as f64);
        let lock = Lock::new(client, format!("bench:held:{i}"))?;
        guards.push(
            lock.acquire_with(AcquireOptions::new().lease(lease))
                .await?,
        );
        if started.elapsed() < due {
            tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
        }
    }
    Ok(guards)
}

/// The CPU time that all threads of this process have used.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or_default(),
        time.tv_nsec.try_into().unwrap_or_default(),
    )
}

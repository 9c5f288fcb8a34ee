//! Very many waiters on one name: the cost of each, and whether the queue still moves.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use stanchion::{Client, Lock};
use stanchion_testkit::RedisServer;
use tokio::sync::watch;

use crate::kind::{AnyLock, Kind};
use crate::measure::{Flavor, Plan, Spread, compare};
use crate::report::{Report, Target, per_second};

const FEW: usize = 16;

/// Tasks that wait for one name again and again. While the gate is closed, the holder keeps the lock.
pub(crate) struct Crowd {
    pub(crate) lock: AnyLock,
    pub(crate) client: Client,
    gate: watch::Sender<bool>,
    grants: Arc<AtomicU64>,
    size: usize,
}

impl Crowd {
    /// Lines up `size` tasks behind a closed gate.
    async fn gather(server: &RedisServer, kind: Kind, name: &str, size: usize) -> Result<Self> {
        let client = Client::connect(server.url()).await?;
        let crowd = Self {
            lock: kind.named(&client, name)?,
            client,
            gate: watch::Sender::new(false),
            grants: Arc::default(),
            size,
        };
        crowd.join(1);
        crowd.settle(0, 1).await;
        Ok(crowd)
    }

    /// With all of its waiters in line.
    pub(crate) async fn full(
        server: &RedisServer,
        kind: Kind,
        name: &str,
        size: usize,
    ) -> Result<Self> {
        let crowd = Self::gather(server, kind, name, size).await?;
        crowd.join(size);
        crowd.settle(size, 1).await;
        Ok(crowd)
    }

    fn join(&self, tasks: usize) {
        for _ in 0..tasks {
            let lock = self.lock.clone();
            let (mut gate, grants) = (self.gate.subscribe(), Arc::clone(&self.grants));
            tokio::spawn(async move {
                loop {
                    let guard = lock.acquire().await?;
                    grants.fetch_add(1, Ordering::Relaxed);
                    gate.wait_for(|open| *open).await?;
                    guard.release().await?;
                }
                #[expect(unreachable_code, reason = "names the type of the errors above")]
                anyhow::Ok(())
            });
        }
    }

    /// Waits until at least `waiting` tasks wait and `grants` grants were made.
    async fn settle(&self, waiting: usize, grants: u64) {
        while self.client.waiters() < waiting || self.grants.load(Ordering::Relaxed) < grants {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Opens the gate for `block`; returns grants per second.
    pub(crate) async fn rate(&self, block: Duration) -> f64 {
        let before = self.grants.load(Ordering::Relaxed);
        let started = Instant::now();
        self.gate.send_replace(true);
        tokio::time::sleep(block).await;
        self.gate.send_replace(false);
        let elapsed = started.elapsed();
        let granted = self.grants.load(Ordering::Relaxed) - before;
        // The release under way ends before another block begins.
        tokio::time::sleep(Duration::from_millis(5)).await;
        granted as f64 / elapsed.as_secs_f64()
    }
}

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    Flavor::MultiThread.runtime()?.block_on(async {
        let few = Crowd::full(server, Kind::Lock, "bench:few", FEW).await?;
        let many = Crowd::gather(server, Kind::Lock, "bench:many", plan.many).await?;
        let before = resident()?;
        many.join(many.size);
        many.settle(many.size, 1).await;
        // A subscription is confirmed within a round trip.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let bytes = resident()?.saturating_sub(before) as f64 / many.size as f64;
        // Figures before this one may leave free memory behind, which then hides the waiters.
        ensure!(
            bytes > 100.0,
            "nothing seems to be stored: measure this figure alone"
        );
        let crowd = format!("{} waiters", many.size);

        let heard = server.subscribers("redisson_lock__channel:{bench:many:lock}");
        report.row(
            "crowd",
            format!("{crowd}: subscriptions"),
            Spread::one(heard as f64),
            Target::Exactly(1.0),
            "PUBSUB NUMSUB",
        );

        let lock = Lock::new(&many.client, "bench:many:lock")?;
        let future = lock.acquire();
        let note = format!(
            "VmRSS, task included; the future of acquire alone has {} bytes",
            size_of_val(&future)
        );
        drop(future);
        report.row(
            "crowd",
            format!("{crowd}: bytes for each"),
            Spread::one(bytes),
            Target::AtMost(2048.0),
            note,
        );

        let compared = compare(
            plan,
            async |block| Ok(many.rate(block).await),
            async |block| Ok(few.rate(block).await),
        )
        .await?;
        let note = format!(
            "{} / {} grants",
            per_second(compared.subject),
            per_second(compared.reference)
        );
        report.row(
            "crowd",
            format!("{crowd}: grant rate / {FEW} waiters"),
            compared.ratio,
            Target::AtLeast(0.8),
            note,
        );
        anyhow::Ok(())
    })
}

/// Bytes of this process in memory.
pub(crate) fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib * 1024)
}

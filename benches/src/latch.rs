//! The latch: very many waiters that are released at once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stanchion::{Client, CountDownLatch};
use stanchion_testkit::RedisServer;

use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

const WAITERS: usize = 1000;

pub(crate) fn release(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let (mut millis, mut messages) = (Vec::new(), Vec::new());
    Flavor::MultiThread.runtime()?.block_on(async {
        let waiting = Client::connect(server.url()).await?;
        let counting = Client::connect(server.url()).await?;
        for run in 0..plan.runs * 2 {
            let name = format!("bench:latch:{run}");
            let last = CountDownLatch::new(&counting, &name)?;
            last.arm(1).await?;
            let latch = CountDownLatch::new(&waiting, &name)?;
            let tasks: Vec<_> = (0..WAITERS)
                .map(|_| {
                    let latch = latch.clone();
                    tokio::spawn(async move { latch.wait().await })
                })
                .collect();
            while waiting.waiters() < WAITERS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // The subscription is confirmed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.reset_stats();
            let started = Instant::now();
            last.count_down().await?;
            for task in tasks {
                task.await.context("a waiter panicked")??;
            }
            millis.push(started.elapsed().as_secs_f64() * 1e3);
            let published = server.commands_processed().get("publish").copied();
            messages.push(published.unwrap_or_default() as f64);
        }
        anyhow::Ok(())
    })?;
    report.row(
        "latch",
        format!("{WAITERS} waiters in a process: messages"),
        Spread::of(messages),
        Target::Exactly(1.0),
        "PUBLISH, by the server's count",
    );
    report.row(
        "latch",
        format!("{WAITERS} waiters in a process: ms until all go on"),
        Spread::of(millis),
        Target::AtMost(50.0),
        "from the call of count_down",
    );
    Ok(())
}

//! A latch that opens for very many waiters of one process.

use std::time::{Duration, Instant};

use anyhow::Result;
use stanchion::{Client, CountDownLatch};
use stanchion_testkit::RedisServer;

use crate::handoffs::sent;
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

const WAITERS: usize = 1000;

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    Flavor::MultiThread.runtime()?.block_on(async {
        let (ours, theirs) = (
            Client::connect(server.url()).await?,
            Client::connect(server.url()).await?,
        );
        let latch = CountDownLatch::new(&theirs, "bench:latch")?;
        // The first round sends the scripts' texts.
        latch.arm(1).await?;
        latch.count_down().await?;
        let (mut times, mut requests) = (Vec::new(), Vec::new());
        for _ in 0..plan.pairs {
            latch.arm(1).await?;
            let waiting = CountDownLatch::new(&ours, "bench:latch")?;
            let waiters: Vec<_> = (0..WAITERS)
                .map(|_| {
                    let waiting = waiting.clone();
                    tokio::spawn(async move { waiting.wait().await })
                })
                .collect();
            while ours.waiters() < WAITERS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // The subscription, and the question when it is confirmed, have come to rest.
            tokio::time::sleep(Duration::from_millis(20)).await;
            server.reset_stats();
            let started = Instant::now();
            latch.count_down().await?;
            for waiter in waiters {
                waiter.await??;
            }
            times.push(started.elapsed().as_secs_f64() * 1e3);
            requests.push(sent(server) as f64);
        }
        report.row(
            "latch",
            format!("{WAITERS} waiters: ms from count-down to the last"),
            Spread::of(times),
            Target::AtMost(50.0),
            "one process, one message",
        );
        report.row(
            "latch",
            format!("{WAITERS} waiters: commands"),
            Spread::of(requests),
            Target::AtMost(2.0),
            "the count-down and one question",
        );
        anyhow::Ok(())
    })
}

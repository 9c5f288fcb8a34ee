//! Free locks: the cost of an acquire and a release while the server is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use stanchion::{Client, Lock};
use stanchion_testkit::RedisServer;
use tokio::task::JoinSet;

use super::{Meter, shown, span};
use crate::measure::{Flavor, Plan};
use crate::report::Report;

/// Tasks, each with a name of its own.
const TASKS: usize = 64;

pub(super) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let cycles = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let lock = Lock::new(&client, format!("bench:scale:free:{task}"))?;
            let cycles = Arc::clone(&cycles);
            tasks.spawn(async move {
                loop {
                    lock.acquire().await?.release().await?;
                    cycles.fetch_add(1, Ordering::Relaxed);
                }
                #[expect(unreachable_code, reason = "names the type of the errors above")]
                anyhow::Ok(())
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (meter, already) = (Meter::start(server)?, cycles.load(Ordering::Relaxed));
        tokio::time::sleep(span(plan) / 2).await;
        let (busy, cycles) = (meter.read()?, cycles.load(Ordering::Relaxed) - already);
        if let Some(ended) = tasks.try_join_next() {
            ended??;
        }
        tasks.shutdown().await;
        client.shutdown(Duration::from_secs(1)).await;
        let cycles = cycles as f64;
        shown(
            report,
            format!(
                "{TASKS} tasks, {TASKS} free locks: server, us of CPU for an acquire and a release"
            ),
            busy.server * 1e6 / cycles,
            format!(
                "{:.1} us of scripts; client {:.1} us; {:.0}/s",
                busy.script_micros / cycles,
                busy.client * 1e6 / cycles,
                cycles / busy.seconds
            ),
        );
        anyhow::Ok(())
    })
}

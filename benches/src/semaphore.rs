//! Semaphores: the cost of a grant when there are more tasks than permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stanchion::{Client, LeasedSemaphore, Semaphore};
use stanchion_testkit::RedisServer;

use crate::handoffs::sent;
use crate::measure::{Flavor, Plan, Spread, hold};
use crate::report::{Report, Target, per_second};

const PERMITS: u32 = 8;
const TASKS: usize = 64;
const HOLD: Duration = Duration::from_millis(1);

/// A task that takes a permit, holds it for a moment and releases it.
trait Taker: Clone + Send + 'static {
    fn turn(&self) -> impl Future<Output = Result<()>> + Send;
}

impl Taker for Semaphore {
    async fn turn(&self) -> Result<()> {
        let permit = self.acquire().await?;
        hold(HOLD).await;
        permit.release().await?;
        Ok(())
    }
}

impl Taker for LeasedSemaphore {
    async fn turn(&self) -> Result<()> {
        let permit = self.acquire().await?;
        hold(HOLD).await;
        permit.release().await?;
        Ok(())
    }
}

/// Grants and seconds.
async fn crowd<T: Taker>(taker: &T, block: Duration) -> Result<(u64, f64)> {
    let started = Instant::now();
    let grants = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (taker, grants) = (taker.clone(), Arc::clone(&grants));
            tokio::spawn(async move {
                while started.elapsed() < block {
                    taker.turn().await?;
                    grants.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await.context("a task panicked")??;
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok((grants.load(Ordering::Relaxed), seconds))
}

/// Commands of a grant, and grants a second, of both kinds.
type Figures = [(Vec<f64>, Vec<f64>); 2];

pub(crate) fn grants(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    // On several threads replies are handled out of order, and a reply with an old number of free permits cannot be recognised as old.
    for flavor in Flavor::ALL {
        server.flush();
        let figures = flavor.runtime()?.block_on(measured(server, plan))?;
        let names = ["Semaphore", "LeasedSemaphore"];
        for (name, (commands, rates)) in names.into_iter().zip(figures) {
            report.row(
                "semaphore",
                format!(
                    "{name} of {PERMITS}, {TASKS} tasks: commands a grant, {}",
                    flavor.name()
                ),
                Spread::of(commands),
                Target::AtMost(2.1),
                format!("{} grants", per_second(Spread::of(rates))),
            );
        }
    }
    Ok(())
}

async fn measured(server: &RedisServer, plan: Plan) -> Result<Figures> {
    let client = Client::connect(server.url()).await?;
    let plain = Semaphore::new(&client, "bench:plain")?;
    let leased = LeasedSemaphore::new(&client, "bench:leased")?;
    plain.init(PERMITS).await?;
    leased.init(PERMITS).await?;
    let mut figures = Figures::default();
    for _ in 0..plan.runs {
        for (which, figures) in figures.iter_mut().enumerate() {
            server.reset_stats();
            let (grants, seconds) = match which {
                0 => crowd(&plain, plan.run / 2).await?,
                _ => crowd(&leased, plan.run / 2).await?,
            };
            figures.0.push(sent(server) as f64 / grants as f64);
            figures.1.push(grants as f64 / seconds);
        }
    }
    Ok(figures)
}

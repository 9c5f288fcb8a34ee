//! The multi-lock: eight names at once.

use std::time::Instant;

use anyhow::Result;
use stanchion::{Client, Lock, Lockable, MultiLock};
use stanchion_testkit::RedisServer;

use crate::contender::{Contender, rate};
use crate::handoffs::sent;
use crate::measure::{Flavor, Plan, Spread, compare};
use crate::report::{Report, Target};

const NAMES: usize = 8;
const CYCLES: u32 = 1000;

impl Contender for MultiLock {
    async fn cycle(&mut self) -> Result<()> {
        self.acquire().await?.release().await?;
        Ok(())
    }
}

/// Tasks that each want two of four names, in two clients.
fn workers(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    const WORKERS: usize = 40;
    let mut costs = Vec::new();
    for _ in 0..plan.runs {
        let cost = Flavor::MultiThread.runtime()?.block_on(async {
            let clients = [
                Client::connect(server.url()).await?,
                Client::connect(server.url()).await?,
            ];
            let mut multis = Vec::new();
            for worker in 0..WORKERS {
                let client = &clients[worker % 2];
                // Every pair of the four, in both orders.
                let (first, step) = (worker / 2 % 4, worker / 8 % 3 + 1);
                let name = |n: usize| format!("bench:multi:worker:{}", n % 4);
                let pair = [
                    Lock::new(client, name(first))?,
                    Lock::new(client, name(first + step))?,
                ];
                multis.push(MultiLock::new(
                    pair.iter().map(|lock| lock as &dyn Lockable),
                )?);
            }
            rate(&multis, plan.block).await?;
            server.reset_stats();
            let started = Instant::now();
            let grants = rate(&multis, plan.run).await? * started.elapsed().as_secs_f64();
            anyhow::Ok(sent(server) as f64 / grants)
        })?;
        costs.push(cost);
    }
    report.row(
        "multilock",
        format!("{WORKERS} workers, 2 of 4 names each, 2 clients: commands for a grant"),
        Spread::of(costs),
        Target::AtMost(4.0),
        "",
    );
    Ok(())
}

pub(crate) fn cycle(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    workers(server, plan, report)?;
    server.flush();
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let locks = (0..NAMES)
            .map(|i| Lock::new(&client, format!("bench:multi:{i}")))
            .collect::<Result<Vec<_>, _>>()?;
        let members = locks.iter().map(|lock| lock as &dyn Lockable);
        let mut multi = MultiLock::new(members)?;
        multi.cycle().await?;
        server.reset_stats();
        for _ in 0..CYCLES {
            multi.cycle().await?;
        }
        report.row(
            "multilock",
            format!("{NAMES} names: commands of a cycle"),
            Spread::one(sent(server) as f64 / f64::from(CYCLES)),
            Target::Exactly(2.0),
            format!("{CYCLES} cycles"),
        );
        let (multi, single) = ([multi], [Lock::new(&client, "bench:single")?]);
        let compared = compare(
            plan,
            async |block| rate(&multi, block).await,
            async |block| rate(&single, block).await,
        )
        .await?;
        let micros = |rate: Spread| 1e6 / rate.median;
        report.row(
            "multilock",
            format!("{NAMES} names: cycle / cycle of one lock"),
            compared.cost(),
            Target::None,
            format!(
                "{:.1} us / {:.1} us",
                micros(compared.subject),
                micros(compared.reference)
            ),
        );
        anyhow::Ok(())
    })
}

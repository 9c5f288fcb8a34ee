//! The RedLock: a quorum of servers against one.

use anyhow::Result;
use stanchion::{Client, Lock, RedLock};
use stanchion_testkit::RedisServer;

use crate::contender::{Contender, rate};
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

const SIZES: [usize; 2] = [3, 5];

impl Contender for RedLock {
    async fn cycle(&mut self) -> Result<()> {
        self.acquire().await?.release().await?;
        Ok(())
    }
}

/// A cycle on a quorum, against a cycle on each node alone: the slowest counts.
pub(crate) fn cycle(plan: Plan, report: &mut Report) -> Result<()> {
    for nodes in SIZES {
        let servers: Vec<RedisServer> = (0..nodes).map(|_| RedisServer::start()).collect();
        let (mut costs, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        Flavor::MultiThread.runtime()?.block_on(async {
            let mut clients = Vec::new();
            for server in &servers {
                clients.push(Client::connect(server.url()).await?);
            }
            let red = [RedLock::new(&clients, "bench:red")?];
            let singles = clients
                .iter()
                .map(|client| Ok([Lock::new(client, "bench:single")?]))
                .collect::<Result<Vec<_>>>()?;
            // The first blocks load scripts and warm caches.
            rate(&red, plan.block).await?;
            for round in 0..plan.pairs / 2 {
                let before = if round % 2 == 0 {
                    Some(rate(&red, plan.block).await?)
                } else {
                    None
                };
                let mut slowest = f64::INFINITY;
                for single in &singles {
                    slowest = slowest.min(rate(single, plan.block).await?);
                }
                let quorum = match before {
                    Some(quorum) => quorum,
                    None => rate(&red, plan.block).await?,
                };
                costs.push(slowest / quorum);
                ours.push(1e6 / quorum);
                theirs.push(1e6 / slowest);
            }
            anyhow::Ok(())
        })?;
        report.row(
            "redlock",
            format!("{nodes} nodes: cycle / cycle on the slowest alone"),
            Spread::of(costs),
            Target::AtMost(1.3),
            format!(
                "{:.1} us / {:.1} us",
                Spread::of(ours).median,
                Spread::of(theirs).median
            ),
        );
    }
    Ok(())
}

//! A quorum of servers against the slowest of them.
//!
//! The nodes stand behind proxies that delay by 1, 2, 3… ms each way: on loopback all servers share this machine's cores, and
//! the figure would be that of the cores.

use std::time::Duration;

use anyhow::Result;
use stanchion::{Client, Lock, RedLock};
use stanchion_testkit::{Proxy, RedisServer};

use crate::contender::{Contender, rate};
use crate::measure::{Flavor, Plan, compare};
use crate::report::{Report, Target};

impl Contender for RedLock {
    async fn cycle(&mut self) -> Result<()> {
        let guard = self.acquire().await?;
        guard.release().await?;
        Ok(())
    }
}

pub(crate) fn measure(plan: Plan, report: &mut Report) -> Result<()> {
    for nodes in [3, 5] {
        for delayed in [true, false] {
            against_slowest(nodes, delayed, plan, report)?;
        }
    }
    Ok(())
}

fn against_slowest(nodes: usize, delayed: bool, plan: Plan, report: &mut Report) -> Result<()> {
    let servers: Vec<RedisServer> = (0..nodes).map(|_| RedisServer::start()).collect();
    let proxies: Vec<Proxy> = servers
        .iter()
        .map(|server| Proxy::start(server.addr()))
        .collect();
    Flavor::MultiThread.runtime()?.block_on(async {
        let mut clients = Vec::new();
        for (server, proxy) in servers.iter().zip(&proxies) {
            let url = if delayed { proxy.url() } else { server.url() };
            clients.push(Client::connect(url).await?);
        }
        if delayed {
            for (delay, proxy) in (1..).zip(&proxies) {
                proxy.delay(Duration::from_millis(delay));
            }
        }
        let red = [RedLock::new(&clients, "bench:red")?];
        let slowest = clients.last().map(|client| Lock::new(client, "bench:one"));
        let one: Vec<Lock> = slowest.into_iter().collect::<Result<_, _>>()?;
        let plan = if delayed {
            Plan {
                block: Duration::from_millis(200),
                pairs: plan.pairs.min(11),
                ..plan
            }
        } else {
            plan
        };
        let compared = compare(
            plan,
            async |block| rate(&red, block).await,
            async |block| rate(&one, block).await,
        )
        .await?;
        let millis = |rate: f64| 1e3 / rate;
        let (what, target) = if delayed {
            ("delays of 1, 2, … ms", Target::AtMost(1.3))
        } else {
            ("no delays, shared cores", Target::None)
        };
        report.row(
            "redlock",
            format!("{nodes} nodes / slowest alone, {what}"),
            compared.cost(),
            target,
            format!(
                "{:.2} ms / {:.2} ms for a cycle",
                millis(compared.subject.median),
                millis(compared.reference.median)
            ),
        );
        anyhow::Ok(())
    })
}

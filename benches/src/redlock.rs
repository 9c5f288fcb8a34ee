//! The RedLock: a quorum of servers against one.

use anyhow::Result;
use futures_util::future::try_join_all;
use stanchion::{Client, Lock, RedLock};
use stanchion_testkit::RedisServer;

use crate::bare::{Bare, Pair, connect};
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

/// Bare requests to all servers at once: what the machine does without us.
#[derive(Clone, Debug)]
struct Together(Vec<Bare>);

impl Contender for Together {
    async fn cycle(&mut self) -> Result<()> {
        try_join_all(self.0.iter_mut().map(Bare::acquire)).await?;
        try_join_all(self.0.iter_mut().map(Bare::release)).await?;
        Ok(())
    }
}

/// What a cycle on all costs, against one on the slowest.
struct Cost {
    cost: Spread,
    all: Spread,
    slowest: Spread,
}

impl Cost {
    fn note(&self) -> String {
        format!("{:.1} us / {:.1} us", self.all.median, self.slowest.median)
    }
}

async fn against_slowest<A: Contender + Clone, S: Contender + Clone>(
    plan: Plan,
    all: &[A],
    singles: &[[S; 1]],
) -> Result<Cost> {
    let (mut costs, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    // The first blocks load scripts and warm caches.
    rate(all, plan.block).await?;
    for round in 0..plan.pairs / 2 {
        let before = if round % 2 == 0 {
            Some(rate(all, plan.block).await?)
        } else {
            None
        };
        let mut slowest = f64::INFINITY;
        for single in singles {
            slowest = slowest.min(rate(single, plan.block).await?);
        }
        let quorum = match before {
            Some(quorum) => quorum,
            None => rate(all, plan.block).await?,
        };
        costs.push(slowest / quorum);
        ours.push(1e6 / quorum);
        theirs.push(1e6 / slowest);
    }
    Ok(Cost {
        cost: Spread::of(costs),
        all: Spread::of(ours),
        slowest: Spread::of(theirs),
    })
}

/// A cycle on a quorum, against a cycle on each node alone: the slowest counts.
pub(crate) fn cycle(plan: Plan, report: &mut Report) -> Result<()> {
    for nodes in SIZES {
        let servers: Vec<RedisServer> = (0..nodes).map(|_| RedisServer::start()).collect();
        let [quorum, bare] = Flavor::MultiThread.runtime()?.block_on(async {
            let (mut clients, mut bare) = (Vec::new(), Vec::new());
            for server in &servers {
                clients.push(Client::connect(server.url()).await?);
                let connection = connect(&server.url()).await?;
                bare.push(Bare::new(&connection, Pair::ours("bench:bare")).await?);
            }
            let red = [RedLock::new(&clients, "bench:red")?];
            let singles = clients
                .iter()
                .map(|client| Ok([Lock::new(client, "bench:single")?]))
                .collect::<Result<Vec<_>>>()?;
            let quorum = against_slowest(plan, &red, &singles).await?;
            let singles: Vec<[Bare; 1]> = bare.iter().map(|bare| [bare.clone()]).collect();
            let bare = against_slowest(plan, &[Together(bare)], &singles).await?;
            anyhow::Ok([quorum, bare])
        })?;
        report.row(
            "redlock",
            format!("{nodes} nodes: cycle / cycle on the slowest alone"),
            quorum.cost,
            Target::AtMost(1.3),
            quorum.note(),
        );
        report.row(
            "redlock",
            format!("{nodes} nodes: bare requests to all / to the slowest alone"),
            bare.cost,
            Target::None,
            bare.note(),
        );
    }
    Ok(())
}

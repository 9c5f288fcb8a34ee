//! The RedLock: a quorum of servers against one.

use anyhow::Result;
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _, TryStreamExt as _};
use stanchion::{Client, Lock, RedLock};
use stanchion_testkit::RedisServer;

use crate::bare::{Bare, Pair, connect};
use crate::contender::{Contender, rate};
use crate::measure::{Flavor, Plan, Spread};
use crate::pin::Pinned;
use crate::report::{Report, Target};

const SIZES: [usize; 2] = [3, 5];

impl Contender for RedLock {
    async fn cycle(&mut self) -> Result<()> {
        self.acquire().await?.release().await?;
        Ok(())
    }
}

/// Bare requests to all servers at once: the speed of the machine without the library. They wait for replies as a RedLock does.
#[derive(Clone, Debug)]
struct Together(Vec<Bare>);

impl Contender for Together {
    async fn cycle(&mut self) -> Result<()> {
        try_join_all(self.0.iter_mut().map(Bare::acquire)).await?;
        // A RedLock is released when a majority has confirmed.
        let quorum = self.0.len() / 2 + 1;
        let releases: FuturesUnordered<_> = self.0.iter_mut().map(Bare::release).collect();
        releases.take(quorum).try_for_each(async |_| Ok(())).await
    }
}

struct Contenders {
    quorum: [RedLock; 1],
    locks: Vec<[Lock; 1]>,
    together: [Together; 1],
    bare: Vec<[Bare; 1]>,
}

/// Microseconds of a cycle of each, in one round.
struct Times {
    quorum: f64,
    /// On each node alone.
    locks: Vec<f64>,
    together: f64,
    bare: Vec<f64>,
}

impl Contenders {
    async fn new(servers: &[RedisServer]) -> Result<Self> {
        let (mut clients, mut bare) = (Vec::new(), Vec::new());
        for server in servers {
            clients.push(Client::connect(server.url()).await?);
            let connection = connect(&server.url()).await?;
            bare.push(Bare::new(&connection, Pair::ours("bench:bare")).await?);
        }
        let single = |client| Ok([Lock::new(client, "bench:single")?]);
        Ok(Self {
            quorum: [RedLock::new(&clients, "bench:red")?],
            locks: clients.iter().map(single).collect::<Result<_>>()?,
            together: [Together(bare.clone())],
            bare: bare.into_iter().map(|bare| [bare]).collect(),
        })
    }

    /// One round. Each kind goes first in turn.
    async fn round(&self, plan: Plan, round: usize) -> Result<Times> {
        let mut times = Times {
            quorum: 0.0,
            locks: Vec::new(),
            together: 0.0,
            bare: Vec::new(),
        };
        for n in 0..4 {
            match (n + round) % 4 {
                0 => times.quorum = time(&self.quorum, plan).await?,
                1 => times.together = time(&self.together, plan).await?,
                2 => {
                    for lock in &self.locks {
                        times.locks.push(time(lock, plan).await?);
                    }
                }
                _ => {
                    for bare in &self.bare {
                        times.bare.push(time(bare, plan).await?);
                    }
                }
            }
        }
        Ok(times)
    }
}

async fn time<C: Contender + Clone>(contender: &[C; 1], plan: Plan) -> Result<f64> {
    Ok(1e6 / rate(contender, plan.block).await?)
}

/// The times of the node with the longest median. The maximum of each round would show disturbances instead of a node.
fn slowest(rounds: &[Times], nodes: impl Fn(&Times) -> &[f64]) -> Vec<f64> {
    let count = rounds.first().map_or(0, |round| nodes(round).len());
    let of = |node: usize| rounds.iter().map(|round| nodes(round)[node]).collect();
    let median = |times: &Vec<f64>| Spread::of(times.clone()).median;
    let all = (0..count).map(of);
    all.max_by(|a, b| median(a).total_cmp(&median(b)))
        .unwrap_or_default()
}

/// All rounds, after one that loads scripts and warms caches.
async fn rounds(plan: Plan, contenders: &Contenders) -> Result<Vec<Times>> {
    contenders.round(plan, 0).await?;
    let mut rounds = Vec::new();
    for n in 0..plan.pairs / 2 {
        rounds.push(contenders.round(plan, n).await?);
    }
    Ok(rounds)
}

/// The parts that all rounds share.
struct Rows<'a> {
    report: &'a mut Report,
    nodes: usize,
    /// The cores on which the figures were measured.
    cores: String,
}

impl Rows<'_> {
    fn add(&mut self, rounds: &[Times], target: Target, state: &str) {
        let quorum: Vec<f64> = rounds.iter().map(|it| it.quorum).collect();
        let together: Vec<f64> = rounds.iter().map(|it| it.together).collect();
        let locks = slowest(rounds, |it| &it.locks);
        let bare = slowest(rounds, |it| &it.bare);
        let what = format!("cycle / cycle on the slowest alone{state}");
        self.row(&what, &quorum, &locks, target);
        let what = format!("bare requests to all / to the slowest alone{state}");
        self.row(&what, &together, &bare, Target::None);
        let what = format!("cycle / bare requests to all{state}");
        self.row(&what, &quorum, &together, Target::None);
    }

    fn row(&mut self, what: &str, ours: &[f64], theirs: &[f64], target: Target) {
        // Both are of the same round, so they are pairs.
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
        let median = |times: &[f64]| Spread::of(times.to_vec()).median;
        self.report.row(
            "redlock",
            format!("{} nodes: {what}", self.nodes),
            Spread::of(ratios.collect()),
            target,
            format!(
                "{:.1} us / {:.1} us; {}",
                median(ours),
                median(theirs),
                self.cores
            ),
        );
    }
}

/// A cycle on a quorum, against a cycle on each node alone and against bare requests to all.
pub(crate) fn cycle(plan: Plan, report: &mut Report) -> Result<()> {
    for nodes in SIZES {
        let servers: Vec<RedisServer> = (0..nodes).map(|_| RedisServer::start()).collect();
        // Undone when the figure of these servers ends. Before the runtime and the clients, so that their threads are pinned, too.
        let pinned = Pinned::apart(&servers);
        let runtime = Flavor::MultiThread.runtime()?;
        let contenders = runtime.block_on(Contenders::new(&servers))?;
        let measure = || runtime.block_on(rounds(plan, &contenders));
        let mut rows = Rows {
            report: &mut *report,
            nodes,
            cores: match &pinned {
                Ok(pinned) => pinned.to_string(),
                Err(why) => format!("NOT PINNED: {why}"),
            },
        };
        match pinned.as_ref().map(Pinned::keep_awake) {
            Ok(Ok(awake)) => {
                rows.add(&measure()?, Target::AtMost(1.3), "");
                drop(awake);
                rows.add(&measure()?, Target::None, ", cores may sleep");
            }
            // No verdict: it would judge sleeping cores, or other processes on the same core.
            Ok(Err(why)) => {
                rows.cores += &format!(", NOT KEPT AWAKE: {why}");
                rows.add(&measure()?, Target::None, "");
            }
            Err(_) => rows.add(&measure()?, Target::None, ""),
        }
    }
    Ok(())
}

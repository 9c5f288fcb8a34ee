//! The barrier: commands of a round, and the time from the arrival of the last party to the end of the round.

use std::time::Instant;

use anyhow::{Context as _, Result};
use stanchion::{Client, CyclicBarrier};
use stanchion_testkit::RedisServer;

use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

/// Rounds in a block.
const ROUNDS: u32 = 50;

pub(crate) fn rounds(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for parties in [4, 64] {
        let (mut commands, mut messages, mut millis) = (Vec::new(), Vec::new(), Vec::new());
        Flavor::MultiThread.runtime()?.block_on(async {
            let mut barriers = Vec::new();
            for _ in 0..parties {
                // Each party is a client, as if it were a process.
                let client = Client::connect(server.url()).await?;
                let name = format!("bench:barrier:{parties}");
                barriers.push(CyclicBarrier::new(&client, name, parties)?);
            }
            // Subscribes.
            meet(&barriers, 2).await?;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            for _ in 0..plan.runs {
                server.reset_stats();
                let started = Instant::now();
                meet(&barriers, ROUNDS).await?;
                let rounds = f64::from(ROUNDS);
                millis.push(started.elapsed().as_secs_f64() * 1e3 / rounds);
                let processed = server.commands_processed();
                let count = |name: &str| processed.get(name).copied().unwrap_or_default() as f64;
                let scripts = count("evalsha") + count("eval");
                commands.push(scripts / rounds / f64::from(parties));
                messages.push((count("publish") + count("spublish")) / rounds);
            }
            anyhow::Ok(())
        })?;
        report.row(
            "barrier",
            format!("{parties} parties: commands a participant"),
            Spread::of(commands),
            Target::AtMost(1.05),
            "EVALSHA, by the server's count; a client also polls once in 5 s",
        );
        report.row(
            "barrier",
            format!("{parties} parties: messages a round"),
            Spread::of(messages),
            Target::Exactly(1.0),
            "PUBLISH, by the server's count",
        );
        report.row(
            "barrier",
            format!("{parties} parties: ms a round"),
            Spread::of(millis),
            Target::None,
            "round after round, all parties on this machine",
        );
    }
    Ok(())
}

async fn meet(barriers: &[CyclicBarrier], rounds: u32) -> Result<()> {
    let parties: Vec<_> = barriers
        .iter()
        .map(|barrier| {
            let barrier = barrier.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    barrier.wait().await?;
                }
                Ok::<_, stanchion::BarrierError>(())
            })
        })
        .collect();
    for party in parties {
        party.await.context("a party panicked")??;
    }
    Ok(())
}

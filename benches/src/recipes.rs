//! Elections, jobs and rate limiters: their cost in commands.

use std::time::Duration;

use anyhow::{Result, ensure};
use stanchion::jobs::Outcome;
use stanchion::{Client, Election, Job, RateLimiter, Tick};
use stanchion_testkit::RedisServer;

use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

/// The cycles of one run.
const CYCLES: u32 = 200;

/// The scripts that clients have sent since the last reset.
fn sent(server: &RedisServer) -> f64 {
    let all = server.commands_processed();
    let of = |name: &str| all.get(name).copied().unwrap_or_default();
    (of("evalsha") + of("eval")) as f64
}

pub(crate) fn commands(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let [mut terms, mut won, mut already, mut granted] = [const { Vec::new() }; 4];
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        for run in 0..plan.runs {
            let election = Election::new(&client, format!("bench:election:{run}"))?;
            let job = Job::new(&client, format!("bench:job:{run}"))?;
            let api = RateLimiter::new(&client, format!("bench:api:{run}"), "1000/s".parse()?)?;
            server.reset_stats();
            for _ in 0..CYCLES {
                election.campaign("v").await?.step_down().await?;
            }
            terms.push(sent(server) / f64::from(CYCLES));
            let first = Tick::every(Duration::from_secs(86_400))?.unix_millis();
            let ticks = (0..CYCLES).map(|n| Tick::from_unix_millis(first + u64::from(n)));
            let ticks: Vec<Tick> = ticks.collect::<Result<_, _>>()?;
            server.reset_stats();
            for tick in &ticks {
                ensure!(job.run_tick(*tick, |_| async {}).await? == Outcome::Done(()));
            }
            won.push(sent(server) / f64::from(CYCLES));
            server.reset_stats();
            for tick in &ticks {
                let outcome = job.run_tick(*tick, |_| async {}).await?;
                ensure!(matches!(outcome, Outcome::Already { .. }));
            }
            already.push(sent(server) / f64::from(CYCLES));
            server.reset_stats();
            for _ in 0..CYCLES {
                ensure!(api.try_acquire().await?.granted().is_some());
            }
            granted.push(sent(server) / f64::from(CYCLES));
        }
        anyhow::Ok(())
    })?;
    for (kind, what, counted, target) in [
        (
            "election",
            "commands for a campaign and a resignation",
            terms,
            2.0,
        ),
        ("job", "commands for a tick that is won", won, 2.0),
        ("job", "commands for a tick that has run", already, 1.0),
        ("limiter", "commands for a granted try", granted, 1.0),
    ] {
        report.row(
            kind,
            what,
            Spread::of(counted),
            Target::Exactly(target),
            "scripts, by the server's count",
        );
    }
    Ok(())
}

//! One task, one name, no contention.

use anyhow::Result;
use stanchion::{Client, Lock};
use stanchion_testkit::RedisServer;

use crate::bare::{Bare, Pair, connect};
use crate::contender::{Contender as _, rate};
use crate::measure::{Compared, Flavor, Plan, Spread, compare};
use crate::report::{Report, Target};

pub(crate) fn same_scripts(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for flavor in Flavor::ALL {
        let compared = against(server, plan, flavor, Pair::ours("bench:bare"))?;
        row(
            report,
            "uncontended",
            format!("cycle / same scripts, {}", flavor.name()),
            &compared,
            1.05,
        );
    }
    Ok(())
}

pub(crate) fn minimal(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for flavor in Flavor::ALL {
        let compared = against(server, plan, flavor, Pair::minimal("bench:mini"))?;
        row(
            report,
            "minimal",
            format!("cycle / minimal scripts, {}", flavor.name()),
            &compared,
            1.10,
        );
    }
    Ok(())
}

fn row(report: &mut Report, figure: &'static str, what: String, compared: &Compared, limit: f64) {
    let micros = |rate: Spread| 1e6 / rate.median;
    let note = format!(
        "{:.1} us / {:.1} us",
        micros(compared.subject),
        micros(compared.reference)
    );
    report.row(figure, what, compared.cost(), Target::AtMost(limit), note);
}

fn against(server: &RedisServer, plan: Plan, flavor: Flavor, pair: Pair) -> Result<Compared> {
    let runtime = flavor.runtime()?;
    runtime.block_on(async {
        let client = Client::connect(server.url()).await?;
        let ours = [Lock::new(&client, "bench:ours")?];
        let bare = [Bare::new(&connect(&server.url()).await?, pair).await?];
        compare(
            plan,
            async |block| rate(&ours, block).await,
            async |block| rate(&bare, block).await,
        )
        .await
    })
}

pub(crate) fn commands(server: &RedisServer, report: &mut Report) -> Result<()> {
    const CYCLES: u32 = 1000;
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let mut lock = Lock::new(&client, "bench:commands")?;
        // The first cycle sends the scripts' texts.
        lock.cycle().await?;
        server.reset_stats();
        for _ in 0..CYCLES {
            lock.cycle().await?;
        }
        let sent = crate::handoffs::sent(server) as f64 / f64::from(CYCLES);
        report.row(
            "commands",
            "commands sent for a cycle",
            Spread::one(sent),
            Target::Exactly(2.0),
            format!("{CYCLES} cycles"),
        );
        anyhow::Ok(())
    })
}

//! Many tasks of one process on one name.

use anyhow::Result;
use stanchion::Client;
use stanchion_testkit::RedisServer;

use crate::bare::{Bare, Pair, connect};
use crate::contender::rate;
use crate::handoffs::{relay, sent};
use crate::kind::Kind;
use crate::measure::{Flavor, Plan, Spread, compare};
use crate::report::{Report, Target, per_second};

const TASKS: usize = 16;

pub(crate) fn handoffs(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for flavor in Flavor::ALL {
        let compared = flavor.runtime()?.block_on(async {
            let client = Client::connect(server.url()).await?;
            let lock = Kind::Lock.named(&client, "bench:relay")?;
            let bare = [Bare::new(&connect(&server.url()).await?, Pair::ours("bench:bare")).await?];
            let relayed = async |block| Ok(relay(&lock, TASKS, block).await?.handoffs_per_second());
            compare(plan, relayed, async |block| rate(&bare, block).await).await
        })?;
        let note = format!(
            "{} / {}",
            per_second(compared.subject),
            per_second(compared.reference)
        );
        let what = format!("{TASKS} tasks: hand-offs / bare cycles, {}", flavor.name());
        report.row("handoffs", what, compared.ratio, Target::AtLeast(1.5), note);
        floor(server, plan, flavor, report)?;
    }
    Ok(())
}

/// The same without the library: repeated runs of the hand-off script, against cycles.
fn floor(server: &RedisServer, plan: Plan, flavor: Flavor, report: &mut Report) -> Result<()> {
    let name = "bench:bare:relay";
    let compared = flavor.runtime()?.block_on(async {
        let connection = connect(&server.url()).await?;
        Bare::new(&connection, Pair::ours(name))
            .await?
            .acquire()
            .await?;
        let relay = [Bare::new(&connection, Pair::hand_offs(name)).await?];
        let cycles = [Bare::new(&connection, Pair::ours("bench:bare")).await?];
        // Each of its cycles is two hand-offs.
        let relayed = async |block| Ok(2.0 * rate(&relay, block).await?);
        compare(plan, relayed, async |block| rate(&cycles, block).await).await
    })?;
    let note = format!(
        "{} / {}",
        per_second(compared.subject),
        per_second(compared.reference)
    );
    let what = format!("bare hand-offs / bare cycles, {}", flavor.name());
    report.row("handoffs", what, compared.ratio, Target::None, note);
    Ok(())
}

pub(crate) fn commands(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for tasks in [2, 16, 128] {
        let (mut costs, mut rates) = (Vec::new(), Vec::new());
        Flavor::MultiThread.runtime()?.block_on(async {
            let client = Client::connect(server.url()).await?;
            let lock = Kind::Lock.named(&client, "bench:relay")?;
            for _ in 0..plan.runs {
                server.reset_stats();
                let relay = relay(&lock, tasks, plan.run / 2).await?;
                costs.push(sent(server) as f64 / relay.handoffs as f64);
                rates.push(relay.handoffs_per_second());
            }
            anyhow::Ok(())
        })?;
        let note = format!("{} hand-offs", per_second(Spread::of(rates)));
        report.row(
            "handoff-commands",
            format!("commands for a hand-off, {tasks} tasks"),
            Spread::of(costs),
            Target::AtMost(1.2),
            note,
        );
    }
    Ok(())
}

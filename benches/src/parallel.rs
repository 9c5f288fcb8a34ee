//! 64 tasks, each with its own name, on one connection.

use anyhow::Result;
use stanchion::{Client, Lock};
use stanchion_testkit::RedisServer;

use crate::bare::{Bare, Pair, connect};
use crate::contender::{Rslock, rate};
use crate::measure::{Compared, Flavor, Plan, compare};
use crate::report::{Report, Target, per_second};

const TASKS: usize = 64;

async fn locks(server: &RedisServer) -> Result<Vec<Lock>> {
    let client = Client::connect(server.url()).await?;
    (0..TASKS)
        .map(|i| Ok(Lock::new(&client, format!("bench:ours:{i}"))?))
        .collect()
}

async fn bares(server: &RedisServer) -> Result<Vec<Bare>> {
    let connection = connect(&server.url()).await?;
    let mut bare = Vec::new();
    for i in 0..TASKS {
        bare.push(Bare::new(&connection, Pair::ours(&format!("bench:bare:{i}"))).await?);
    }
    Ok(bare)
}

fn rslocks(server: &RedisServer) -> Vec<Rslock> {
    let manager = rslock::LockManager::new(vec![server.url()]);
    (0..TASKS)
        .map(|i| Rslock {
            manager: manager.clone(),
            name: format!("bench:peer:{i}"),
        })
        .collect()
}

pub(crate) fn bare(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for flavor in Flavor::ALL {
        let compared = flavor.runtime()?.block_on(async {
            let (ours, bare) = (locks(server).await?, bares(server).await?);
            compare(
                plan,
                async |block| rate(&ours, block).await,
                async |block| rate(&bare, block).await,
            )
            .await
        })?;
        row(
            report,
            "parallel",
            format!("{TASKS} names: cycles / bare, {}", flavor.name()),
            &compared,
            Target::AtLeast(0.95),
        );
    }
    Ok(())
}

pub(crate) fn peer(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for flavor in Flavor::ALL {
        let compared = flavor.runtime()?.block_on(async {
            let (ours, peer) = (locks(server).await?, rslocks(server));
            compare(
                plan,
                async |block| rate(&ours, block).await,
                async |block| rate(&peer, block).await,
            )
            .await
        })?;
        let what = format!("{TASKS} names: cycles / rslock, {}", flavor.name());
        row(report, "peer", what, &compared, Target::AtLeast(1.0));
        // For comparison: the same scripts without the library. Not a bound: its connection reads all replies at once.
        let ceiling = flavor.runtime()?.block_on(async {
            let (bare, peer) = (bares(server).await?, rslocks(server));
            compare(
                plan,
                async |block| rate(&bare, block).await,
                async |block| rate(&peer, block).await,
            )
            .await
        })?;
        let what = format!("{TASKS} names: bare scripts / rslock, {}", flavor.name());
        row(report, "peer", what, &ceiling, Target::None);
    }
    Ok(())
}

fn row(
    report: &mut Report,
    figure: &'static str,
    what: String,
    compared: &Compared,
    target: Target,
) {
    let note = format!(
        "{} / {}",
        per_second(compared.subject),
        per_second(compared.reference)
    );
    report.row(figure, what, compared.ratio, target, note);
}

//! The cost of a cycle for the server: its own measure of the time in EVALSHA, with the scripts pipelined.

use anyhow::{Context as _, Result, ensure};
use redis::aio::MultiplexedConnection;
use stanchion_testkit::RedisServer;

use crate::bare::{ACQUIRE, Pair, connect};
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

const NAME: &str = "bench:server";
/// Cycles in a pipeline.
const BATCH: usize = 100;
/// Pipelines in a block.
const BATCHES: usize = 40;

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let variants = [
        Pair::redisson(NAME),
        Pair::ours(NAME),
        Pair::ours_as(NAME, ACQUIRE, NAME),
        Pair::ours_as(NAME, &without_time()?, NAME),
        Pair::minimal(NAME),
    ];
    let mut micros: [Vec<f64>; 5] = Default::default();
    Flavor::CurrentThread.runtime()?.block_on(async {
        let mut connection = connect(&server.url()).await?;
        for pair in &variants {
            pair.load(&mut connection).await?;
            block(server, &mut connection, pair).await?;
        }
        for round in 0..plan.pairs {
            // Every variant comes first, second, … equally often.
            for turn in 0..variants.len() {
                let which = (round + turn) % variants.len();
                let spent = block(server, &mut connection, &variants[which]).await?;
                micros[which].push(spent);
            }
        }
        anyhow::Ok(())
    })?;
    let [redisson, full, unfenced, plain, _] = &micros;
    let against = |ours: &[f64]| {
        Spread::of(
            ours.iter()
                .zip(redisson)
                .map(|(ours, theirs)| ours / theirs)
                .collect(),
        )
    };
    let note = |ours: &[f64]| {
        format!(
            "{:.2} us / {:.2} us",
            Spread::of(ours.to_vec()).median,
            Spread::of(redisson.clone()).median
        )
    };
    report.row(
        "server-time",
        "with fence and not_after / Redisson's shape",
        against(full),
        Target::AtMost(1.4),
        note(full),
    );
    report.row(
        "server-time",
        "without fence / Redisson's shape",
        against(unfenced),
        Target::None,
        note(unfenced),
    );
    report.row(
        "server-time",
        "without fence and time / Redisson's shape",
        against(plain),
        Target::AtMost(1.05),
        note(plain),
    );
    Ok(())
}

/// Microseconds of one cycle.
pub(crate) async fn block(
    server: &RedisServer,
    connection: &mut MultiplexedConnection,
    pair: &Pair,
) -> Result<f64> {
    let mut pipe = redis::pipe();
    for _ in 0..BATCH {
        pipe.add_command(pair.acquire.command()).ignore();
        pipe.add_command(pair.release.command()).ignore();
    }
    server.reset_stats();
    for _ in 0..BATCHES {
        pipe.exec_async(connection).await?;
    }
    let info = server.cli(&["INFO", "commandstats"]);
    let line = info
        .as_text()
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:"))
        .context("no evalsha in commandstats")?;
    let field = |name: &str| {
        line.split(',')
            .find_map(|part| part.strip_prefix(name)?.parse::<f64>().ok())
    };
    let calls = field("calls=").context("calls")?;
    ensure!(calls == (2 * BATCH * BATCHES) as f64, "{calls} calls");
    Ok(field("usec=").context("usec")? / (BATCH * BATCHES) as f64)
}

/// The acquire script without the check that needs the server's clock.
fn without_time() -> Result<String> {
    let is_time = |line: &&str| {
        ["call('TIME')", "local now =", "if now >"]
            .iter()
            .any(|part| line.contains(part))
    };
    // Only in the common case, which the cycle runs.
    let (common, rest) = ACQUIRE
        .split_once("\nend\n\nlocal lock,")
        .context("the acquire script looks different now")?;
    ensure!(
        common.lines().filter(is_time).count() == 3,
        "the acquire script looks different now"
    );
    let common: Vec<_> = common.lines().filter(|line| !is_time(line)).collect();
    Ok(format!("{}\nend\n\nlocal lock,{rest}", common.join("\n")))
}

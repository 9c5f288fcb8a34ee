//! The cost of order: the fair lock next to the lock.

use std::time::Duration;

use anyhow::{Context as _, Result};
use stanchion::{AcquireError, Client, FairLock};
use stanchion_testkit::RedisServer;

use crate::bare::{Bare, BareFair, Pair, connect};
use crate::chart::{Chart, Scale, Series, Shape};
use crate::contender::rate;
use crate::crowd::Crowd;
use crate::handoffs::{relay, sent};
use crate::kind::Kind;
use crate::measure::{Flavor, Plan, Spread, compare};
use crate::processes::{self, Outcome};
use crate::report::{Report, Target, per_second};
use crate::slowlog;

const TASKS: [usize; 3] = [2, 16, 128];

/// The outcomes of the two, run by run.
#[derive(Debug, Default)]
struct Both {
    lock: Vec<Outcome>,
    fair: Vec<Outcome>,
}

impl Both {
    fn of(&self, kind: Kind) -> &[Outcome] {
        match kind {
            Kind::Lock => &self.lock,
            Kind::Fair => &self.fair,
        }
    }

    fn spread(&self, kind: Kind, of: fn(&Outcome) -> f64) -> Spread {
        Spread::of(self.of(kind).iter().map(of).collect())
    }

    /// Fair over lock, run by run.
    fn ratio(&self, of: fn(&Outcome) -> f64) -> Spread {
        let pairs = self.fair.iter().zip(&self.lock);
        Spread::of(pairs.map(|(fair, lock)| of(fair) / of(lock)).collect())
    }
}

/// Runs both in turns, the first of a pair changing each time.
fn in_turns(plan: Plan, mut run: impl FnMut(Kind) -> Result<Outcome>) -> Result<Both> {
    let mut both = Both::default();
    for n in 0..plan.runs {
        let order = if n % 2 == 0 {
            Kind::ALL
        } else {
            [Kind::Fair, Kind::Lock]
        };
        for kind in order {
            let outcome = run(kind)?;
            match kind {
                Kind::Lock => both.lock.push(outcome),
                Kind::Fair => both.fair.push(outcome),
            }
        }
    }
    Ok(both)
}

/// Tasks of one process that hold for no time.
async fn in_one_process(
    server: &RedisServer,
    client: &Client,
    kind: Kind,
    tasks: usize,
    block: Duration,
) -> Result<Outcome> {
    let lock = kind.named(client, &format!("bench:turns:{tasks}"))?;
    server.reset_stats();
    let relay = relay(&lock, tasks, block).await?;
    let millis = |quantile| relay.waits.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Outcome {
        commands: sent(server) as f64 / relay.handoffs as f64,
        p50: millis(0.5),
        p99: millis(0.99),
        max: millis(1.0),
        rate: relay.handoffs_per_second(),
    })
}

pub(crate) fn turns(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let mut columns = Vec::new();
    for tasks in TASKS {
        let runtime = Flavor::MultiThread.runtime()?;
        let client = runtime.block_on(Client::connect(server.url()))?;
        let both = in_turns(plan, |kind| {
            runtime.block_on(in_one_process(server, &client, kind, tasks, plan.run / 2))
        })?;
        columns.push((format!("{tasks} tasks"), both));
    }
    // As in the other figures, they hold for no time.
    let both = in_turns(plan, |kind| {
        processes::run(server, plan.run, kind, Duration::ZERO)
    })?;
    columns.push(("4 processes of 8 tasks".to_owned(), both));
    for (what, both) in &columns {
        rows(report, what, both);
    }
    charts(report, &columns);
    floor(server, plan, report)
}

fn rows(report: &mut Report, what: &str, both: &Both) {
    let [lock, fair] = Kind::ALL;
    let pair = |of: fn(&Outcome) -> f64| (both.spread(fair, of), both.spread(lock, of));
    let (ours, theirs) = pair(|o| o.rate);
    report.row(
        "fair",
        format!("{what}: hand-offs/s, fair / lock"),
        both.ratio(|o| o.rate),
        match what {
            // Between processes the message is the way, for both.
            "4 processes of 8 tasks" => Target::None,
            _ => Target::AtLeast(0.8),
        },
        format!("{} / {}", per_second(ours), per_second(theirs)),
    );
    let (ours, theirs) = (pair(|o| o.p50), pair(|o| o.p99));
    report.row(
        "fair",
        format!("{what}: fair wait p99 / p50"),
        both.spread(fair, |o| o.p99 / o.p50),
        Target::AtMost(1.5),
        format!(
            "p50 {:.2} ms, p99 {:.2} ms; lock p50 {:.2} ms, p99 {:.2} ms",
            ours.0.median, theirs.0.median, ours.1.median, theirs.1.median
        ),
    );
    let (ours, theirs) = pair(|o| o.commands);
    report.row(
        "fair",
        format!("{what}: commands for a hand-off, fair"),
        ours,
        Target::AtMost(1.5),
        format!("lock {:.2}", theirs.median),
    );
}

fn charts(report: &mut Report, columns: &[(String, Both)]) {
    let series = |kind: Kind, name: String, of: fn(&Outcome) -> f64| Series {
        name,
        values: columns
            .iter()
            .map(|(_, both)| both.spread(kind, of).median)
            .collect(),
    };
    let each = |of: fn(&Outcome) -> f64| {
        Kind::ALL
            .map(|kind| series(kind, kind.title().into(), of))
            .to_vec()
    };
    let waits = Kind::ALL
        .into_iter()
        .map(|kind| series(kind, format!("{}, median", kind.title()), |o| o.p50))
        .chain(Kind::ALL.map(|kind| {
            series(kind, format!("{}, 99th percentile", kind.title()), |o| {
                o.p99
            })
        }))
        .collect();
    let categories: Vec<String> = columns.iter().map(|(what, _)| what.clone()).collect();
    let chart = |file: &str, title: &str, unit: &str, series, scale| Chart {
        file: file.into(),
        title: title.into(),
        unit: unit.into(),
        along: "contenders".into(),
        categories: categories.clone(),
        series,
        scale,
        shape: Shape::Bars,
        source: String::new(),
    };
    report.chart(chart(
        "fair-rate",
        "Hand-offs of one lock: more is better",
        "hand-offs per second",
        each(|o| o.rate),
        Scale::Linear,
    ));
    report.chart(chart(
        "fair-wait",
        "Wait from the call to the grant of one lock: less is better",
        "milliseconds",
        waits,
        Scale::Log,
    ));
    report.chart(chart(
        "fair-commands",
        "Commands for a hand-off of one lock: fewer is better",
        "commands per hand-off",
        each(|o| o.commands),
        Scale::Linear,
    ));
}

/// The same without the library: owners that take turns at a fair lock, and two that pass a lock to and fro.
fn floor(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let name = "bench:bare:turns";
    for owners in [2, 16] {
        let compared = Flavor::MultiThread.runtime()?.block_on(async {
            let connection = connect(&server.url()).await?;
            let fair = format!("bench:bare:fair:{owners}");
            let fair = [BareFair::new(&connection, &fair, owners).await?];
            Bare::new(&connection, Pair::ours(name))
                .await?
                .acquire()
                .await?;
            let lock = [Bare::new(&connection, Pair::hand_offs(name)).await?];
            let turns = fair[0].owners() as f64;
            compare(
                plan,
                async |block| Ok(turns * rate(&fair, block).await?),
                async |block| Ok(2.0 * rate(&lock, block).await?),
            )
            .await
        })?;
        report.row(
            "fair",
            format!("bare, {owners} owners: hand-offs/s, the fair lock's script / the lock's"),
            compared.ratio,
            Target::None,
            format!(
                "{} / {}",
                per_second(compared.subject),
                per_second(compared.reference)
            ),
        );
        server.flush();
    }
    Ok(())
}

/// Without contention: a cycle of the fair lock against one of the lock.
pub(crate) fn uncontended(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for flavor in Flavor::ALL {
        let compared = flavor.runtime()?.block_on(async {
            let client = Client::connect(server.url()).await?;
            let fair = [Kind::Fair.named(&client, "bench:cycle")?];
            let lock = [Kind::Lock.named(&client, "bench:cycle")?];
            compare(
                plan,
                async |block| rate(&fair, block).await,
                async |block| rate(&lock, block).await,
            )
            .await
        })?;
        let micros = |rate: Spread| 1e6 / rate.median;
        report.row(
            "fair-cycle",
            format!("fair cycle / lock cycle, {}", flavor.name()),
            compared.cost(),
            Target::AtMost(1.3),
            format!(
                "{:.1} us / {:.1} us",
                micros(compared.subject),
                micros(compared.reference)
            ),
        );
    }
    Ok(())
}

/// The scripts of a contended name, as the crate puts them together. A task of the crowd returns at once, so its release carries its next
/// request.
macro_rules! with_queue {
    ($first:literal, $($last:literal),+) => {
        stanchion_client::mint_function!(concat!(
            include_str!(concat!("../../crates/stanchion-fair/lua/", $first, ".lua")),
            include_str!("../../crates/stanchion-fair/lua/queue.lua"),
            $(include_str!(concat!("../../crates/stanchion-fair/lua/", $last, ".lua")),)+
        ))
    };
}

const SCRIPTS: [(&str, &str); 2] = [
    (
        "acquire",
        stanchion_client::minting!(with_queue!("acquire", "stand", "after_acquire")),
    ),
    (
        "release and acquire",
        with_queue!("release_and_acquire", "stand", "after_release_and_acquire"),
    ),
];
const GIVE_UP: &str = with_queue!("abandon", "after_abandon");
const FEW: usize = 10;

/// Server time of the scripts with very many waiters, against few.
pub(crate) fn server_time(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let mut times: Vec<[slowlog::Times; 2]> = Vec::new();
    Flavor::MultiThread.runtime()?.block_on(async {
        let few = Crowd::full(server, Kind::Fair, "bench:few", FEW).await?;
        let many = Crowd::full(server, Kind::Fair, "bench:many", plan.many).await?;
        let probe = Client::connect(server.url()).await?;
        for _ in 0..plan.runs {
            times.push([
                observe(server, &few, &probe, "bench:few:fair", plan).await?,
                observe(server, &many, &probe, "bench:many:fair", plan).await?,
            ]);
        }
        anyhow::Ok(())
    })?;
    // On a busy machine a script may not have run in one of the rounds.
    let of = |script: &str| -> Option<(Vec<f64>, Vec<f64>)> {
        let pairs: (Vec<f64>, Vec<f64>) = times
            .iter()
            .filter_map(|[few, many]| Some((few.mean(script)?, many.mean(script)?)))
            .unzip();
        (!pairs.0.is_empty()).then_some(pairs)
    };
    for (name, script) in SCRIPTS {
        let (few, many) = of(script).with_context(|| format!("{name} did not run"))?;
        let ratios = many.iter().zip(&few).map(|(many, few)| many / few);
        report.row(
            "fair-server-time",
            format!("{name}: {} waiters / {FEW}", plan.many),
            Spread::of(ratios.collect()),
            Target::AtMost(2.0),
            format!(
                "{:.1} us / {:.1} us",
                Spread::of(many.clone()).median,
                Spread::of(few.clone()).median
            ),
        );
    }
    let (_, many) = of(GIVE_UP).context("nobody gave up")?;
    report.row(
        "fair-server-time",
        format!("giving up at the tail of {}: ms", plan.many),
        Spread::of(many.iter().map(|micros| micros / 1000.0).collect()),
        Target::AtMost(0.2),
        "one LREM from the nearer end",
    );
    Ok(())
}

/// Lets the crowd move, while a new waiter repeatedly waits and gives up.
async fn observe(
    server: &RedisServer,
    crowd: &Crowd,
    probe: &Client,
    name: &str,
    plan: Plan,
) -> Result<slowlog::Times> {
    slowlog::start(server);
    crowd.rate(plan.block * 8).await;
    let newcomer = FairLock::new(probe, name)?;
    for _ in 0..50 {
        match newcomer.acquire_timeout(Duration::from_millis(4)).await {
            Err(AcquireError::TimedOut { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(guard) => guard.release().await?,
        }
    }
    Ok(slowlog::stop(server, name))
}

//! The held locks of one process: the cost of their renewals, and how late the latest of them is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use stanchion::{Client, Lock, LockGuard};
use stanchion_testkit::RedisServer;
use tokio::task::JoinSet;

use super::{Meter, Readings, bytes_each, chart, grouped, rounded, server_memory, shown, span};
use crate::chart::Series;
use crate::crowd::resident;
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

const SIZES: [usize; 4] = [10, 1000, 10_000, 100_000];

/// Tasks that acquire the locks.
const TASKS: usize = 16;

/// The default lease is renewed after 10 s: 20 s are left if no renewal is late.
const LEFT: f64 = 18.0;

struct Outcome {
    readings: Readings,
    /// Bytes of a hold on the server and in the client.
    on_server: f64,
    in_client: f64,
    /// Seconds of the lease that the holds had left at least.
    least: f64,
    lost: usize,
}

pub(super) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let sizes: Vec<usize> = SIZES
        .into_iter()
        .filter(|size| *size <= plan.many * 10)
        .collect();
    let (mut on_server, mut in_client) = (Vec::new(), Vec::new());
    let mut each = f64::NAN;
    for size in sizes.iter().copied() {
        let title = grouped(size);
        let run = run(server, size, plan);
        let run = Flavor::MultiThread.runtime()?.block_on(run)?;
        server.flush();
        let Readings {
            seconds,
            server: spent,
            client,
            requests,
            renewals,
            script_micros,
            ..
        } = run.readings;
        let percent = |spent: f64| 100.0 * spent / seconds;
        on_server.push(percent(spent));
        in_client.push(percent(client));
        each = spent / seconds / size as f64;
        shown(
            report,
            format!("{title} held locks, renewed: server, % of a core"),
            percent(spent),
            format!(
                "{:.1} us of the script for a renewal; {:.0} renewals in a command{}",
                script_micros / renewals,
                renewals / requests,
                bytes_each(run.on_server, size, "a hold")
            ),
        );
        shown(
            report,
            format!("{title} held locks, renewed: client, % of a core"),
            percent(client),
            format!(
                "{:.1} us for a renewal{}",
                client * 1e6 / renewals,
                bytes_each(run.in_client, size, "a hold")
            ),
        );
        report.row(
            "scale",
            format!("{title} held locks: s left of a lease of 30 s, at least"),
            Spread::one(run.least),
            Target::AtLeast(LEFT),
            format!("{} lost", run.lost),
        );
    }
    let line = |name: &str, values| Series {
        name: name.into(),
        values,
    };
    report.chart(chart(
        "scale-held",
        "CPU for the renewals of held locks, with leases of 30 s",
        "held locks of one process",
        &sizes,
        vec![line("server", on_server), line("client", in_client)],
        format!(
            "Below 1,000 locks most of it is the server's and the client's own idle work. By the cost at the largest number, one server core is full at {} held locks.",
            rounded(1.0 / each)
        ),
    ));
    Ok(())
}

async fn run(server: &RedisServer, size: usize, plan: Plan) -> Result<Outcome> {
    let client = Client::connect(server.url()).await?;
    // The first hold subscribes and loads the scripts.
    drop(Lock::new(&client, "bench:scale:first")?.acquire().await?);
    let (bytes, rss) = (server_memory(server)?, resident()?);
    let guards = acquire(&client, size, span(plan)).await?;
    let on_server = (server_memory(server)? - bytes) / size as f64;
    let in_client = resident()?.saturating_sub(rss) as f64 / size as f64;
    let meter = Meter::start(server)?;
    tokio::time::sleep(span(plan)).await;
    let readings = meter.read()?;
    // Reading all leases costs CPU time, so it has a time of its own.
    let (until, mut least) = (Instant::now() + span(plan) / 2, Duration::MAX);
    while Instant::now() < until {
        let left = guards.iter().map(LockGuard::remaining).min();
        least = least.min(left.context("no guards")?);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    ensure!(lost < size, "all locks were lost");
    drop(guards);
    client.shutdown(Duration::from_secs(30)).await;
    Ok(Outcome {
        readings,
        on_server,
        in_client,
        least: least.as_secs_f64(),
        lost,
    })
}

/// Acquires at an even pace: the locks of a busy process are not all acquired at once.
async fn acquire(client: &Client, size: usize, time: Duration) -> Result<Vec<LockGuard>> {
    let (started, client) = (Instant::now(), Arc::new(client.clone()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = Arc::clone(&client);
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for nth in (task..size).step_by(TASKS) {
                let due = time.mul_f64(nth as f64 / size as f64);
                let early = due.saturating_sub(started.elapsed());
                // The runtime's timer has steps of a millisecond.
                if early > Duration::from_millis(1) {
                    tokio::time::sleep(early).await;
                }
                let lock = Lock::new(&client, format!("bench:scale:{nth}"))?;
                guards.push(lock.acquire().await?);
            }
            anyhow::Ok(guards)
        });
    }
    let mut guards = Vec::with_capacity(size);
    while let Some(ended) = tasks.join_next().await {
        guards.extend(ended??);
    }
    tokio::time::sleep(time.saturating_sub(started.elapsed())).await;
    Ok(guards)
}

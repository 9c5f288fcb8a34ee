//! The time from a release to the next grant, to a holder in another client.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use stanchion::{Client, Guard};
use stanchion_testkit::RedisServer;
use tokio::sync::mpsc;

use crate::bare::{Bare, Pair, channel, connect};
use crate::kind::Kind;
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

/// The idle time before each release, and before each round trip.
const IDLE: Duration = Duration::from_millis(2);
const ROUNDS: usize = 60;
const WAITERS: usize = 16;

/// From the release to the next holder, in another client, against a round trip after the same pause.
pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for kind in Kind::ALL {
        let (mut gaps, mut trips, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.runs {
            let (gap, trip) = Flavor::MultiThread
                .runtime()?
                .block_on(one_gap(server, kind))?;
            ratios.push(gap / trip);
            gaps.push(gap);
            trips.push(trip);
        }
        let target = match kind {
            Kind::Fair => Target::AtMost(1.3),
            Kind::Lock => Target::None,
        };
        report.row(
            "fair-gap",
            format!("{}: release to next holder / round trip", kind.title()),
            Spread::of(ratios),
            target,
            format!(
                "{:.0} us / {:.0} us after {} ms of quiet",
                Spread::of(gaps).median,
                Spread::of(trips).median,
                IDLE.as_millis()
            ),
        );
    }
    floor(server, plan, report)
}

/// The same without the library: from sending the release's script to the message of its grant on another connection.
fn floor(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let (mut gaps, mut trips, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        let (gap, trip) = Flavor::MultiThread
            .runtime()?
            .block_on(one_bare_gap(server))?;
        ratios.push(gap / trip);
        gaps.push(gap);
        trips.push(trip);
    }
    report.row(
        "fair-gap",
        "bare: the lock's release to its message / round trip",
        Spread::of(ratios),
        Target::None,
        format!(
            "{:.0} us / {:.0} us",
            Spread::of(gaps).median,
            Spread::of(trips).median
        ),
    );
    Ok(())
}

async fn one_bare_gap(server: &RedisServer) -> Result<(f64, f64)> {
    let name = "bench:bare:gap";
    let other = "0c9d5f3c-5a42-8c38-9d52-6f1d3e0a7c11";
    let mut connection = connect(&server.url()).await?;
    let mut bare = Bare::new(&connection, Pair::ours(name)).await?;
    let mut ear = redis::Client::open(server.url())?
        .get_async_pubsub()
        .await?;
    ear.subscribe(format!("{}:{other}", channel(name))).await?;
    let mut messages = ear.into_on_message();
    let (mut gaps, mut trips) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let trip = trip(&mut connection).await?;
        trips.push(trip);
        let keys = [name, &format!("stanchion_line:{{{name}}}")];
        redis::cmd("DEL")
            .arg(&keys)
            .exec_async(&mut connection)
            .await?;
        let _held = bare.acquire().await?;
        let place = format!("{other}:{round}");
        let mut stand = redis::cmd("ZADD");
        stand.arg(keys[1]).arg(round).arg(place);
        stand.exec_async(&mut connection).await?;
        tokio::time::sleep(IDLE).await;
        let released = Instant::now();
        let mut releasing = bare.clone();
        let releasing = tokio::spawn(async move { releasing.release().await });
        let message = messages.next().await.context("the connection is gone")?;
        gaps.push(released.elapsed().as_secs_f64() * 1e6);
        ensure!(
            message.get_payload_bytes().starts_with(b"G "),
            "not a grant: {message:?}"
        );
        releasing.await??;
    }
    Ok((Spread::of(gaps).median, Spread::of(trips).median))
}

/// A round trip after a pause, in microseconds.
async fn trip(connection: &mut MultiplexedConnection) -> Result<f64> {
    tokio::time::sleep(IDLE).await;
    let asked = Instant::now();
    redis::cmd("PING").exec_async(connection).await?;
    Ok(asked.elapsed().as_secs_f64() * 1e6)
}

/// The median gap and the median round trip, in microseconds.
async fn one_gap(server: &RedisServer, kind: Kind) -> Result<(f64, f64)> {
    let (tell, mut holders) = mpsc::channel::<(Instant, Guard)>(1);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(server.url()).await?;
        let lock = kind.named(&client, "bench:gap")?;
        for _ in 0..WAITERS / 2 {
            let (lock, tell) = (lock.clone(), tell.clone());
            tasks.push(tokio::spawn(async move {
                while let Ok(held) = lock.acquire().await {
                    let now = Instant::now();
                    if tell.send((now, held)).await.is_err() {
                        break;
                    }
                }
            }));
        }
    }
    drop(tell);
    let mut bare = connect(&server.url()).await?;
    let (mut gaps, mut trips) = (Vec::new(), Vec::new());
    let (_, mut held) = holders.recv().await.context("nobody holds")?;
    for _ in 0..ROUNDS {
        trips.push(trip(&mut bare).await?);
        tokio::time::sleep(IDLE).await;
        let released = Instant::now();
        let releasing = tokio::spawn(held.release());
        let (granted, next) = holders.recv().await.context("nobody holds")?;
        gaps.push(granted.saturating_duration_since(released).as_secs_f64() * 1e6);
        releasing.await??;
        held = next;
    }
    drop(holders);
    held.release().await?;
    for task in tasks {
        task.await?;
    }
    Ok((Spread::of(gaps).median, Spread::of(trips).median))
}

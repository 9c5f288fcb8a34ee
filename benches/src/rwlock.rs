//! The read-write lock: many readers.

use std::time::Duration;

use anyhow::{Context as _, Result};
use stanchion::{Client, ReadGuard, RwLock};
use stanchion_testkit::RedisServer;

use crate::bare::{Bare, Invocation, LEASE, NOT_AFTER, Pair, connect};
use crate::chart::{Chart, Scale, Series, Shape};
use crate::contender::{Contender, rate};
use crate::measure::{Flavor, Plan, Spread, compare};
use crate::report::{Report, Target, per_second};
use crate::slowlog;

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("../../crates/stanchion-rwlock/lua/", $name, ".lua"))
    };
}

macro_rules! woven {
    ($name:literal) => {
        stanchion_client::in_line!(
            stanchion_client::woven!(
                lua!($name),
                stanchion_client::primitive::LuaPart::new("-- @dead.lua\n", lua!("dead"))
            ),
            of lua!("line_of_rwlock")
        )
    };
}

const ACQUIRE: &str = woven!("read_acquire");
const RELEASE: &str = woven!("read_release");
const READERS: usize = 64;

/// One that reads in a loop.
#[derive(Clone, Debug)]
struct Reader(RwLock);

impl Contender for Reader {
    async fn cycle(&mut self) -> Result<()> {
        self.0.read().await?.release().await?;
        Ok(())
    }
}

/// The scripts that a reader sends, as the crate does.
fn pair(name: &str, reader: usize) -> Pair {
    let owner = format!("6f1d3e0a-5a42-4c38-9d52-0c9d5f3c7c11:{reader}");
    let prefix = format!("{{{name}}}:");
    let hold = format!("{prefix}{owner}:rwlock_timeout:1");
    let channel = format!("redisson_rwlock:{{{name}}}");
    let readers = format!("stanchion_rwlock_readers:{{{name}}}");
    let [line, wake, fence] = [
        format!("stanchion_rwlock_line:{{{name}}}"),
        format!("stanchion_rwlock_wake:{{{name}}}"),
        format!("stanchion_fence:{{{name}}}"),
    ];
    Pair {
        acquire: Invocation::new(
            ACQUIRE,
            &[name, &line, &wake, &readers, &hold],
            &[
                &owner, LEASE, NOT_AFTER, "new", "PUBLISH", &channel, "r", &prefix, "", "0",
            ],
        ),
        release: Invocation::new(
            RELEASE,
            &[name, &line, &wake, &readers, &hold, &fence],
            &[&channel, "PUBLISH", &owner, "1", LEASE, &prefix, "0"],
        ),
    }
}

/// 64 readers of one name, against the same scripts sent bare.
pub(crate) fn readers(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for flavor in Flavor::ALL {
        let compared = flavor.runtime()?.block_on(async {
            let client = Client::connect(server.url()).await?;
            let ours = vec![Reader(RwLock::new(&client, "bench:readers")?); READERS];
            let connection = connect(&server.url()).await?;
            let mut bare = Vec::new();
            for reader in 0..READERS {
                bare.push(Bare::new(&connection, pair("bench:bare-readers", reader)).await?);
            }
            compare(
                plan,
                async |block| rate(&ours, block).await,
                async |block| rate(&bare, block).await,
            )
            .await
        })?;
        report.row(
            "readers",
            format!("{READERS} readers of a name / bare, {}", flavor.name()),
            compared.ratio,
            Target::AtLeast(0.9),
            format!(
                "{} / {}",
                per_second(compared.subject),
                per_second(compared.reference)
            ),
        );
    }
    Ok(())
}

/// Makes `readers` other read holds that last until they are dropped.
async fn held(client: &Client, name: &str, readers: usize) -> Result<Vec<ReadGuard>> {
    let lock = RwLock::new(client, name)?;
    let mut guards = Vec::new();
    for _ in 0..readers {
        guards.push(lock.read().await?);
    }
    Ok(guards)
}

/// The rate of 64 readers while more and more other readers hold.
pub(crate) fn crowds(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    const HELD: [usize; 5] = [8, 32, 128, 512, 1024];
    let mut rates: [Vec<f64>; HELD.len()] = Default::default();
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let (mut guards, mut readers) = (Vec::new(), Vec::new());
        for others in HELD {
            let name = format!("bench:held:{others}");
            guards.push(held(&client, &name, others).await?);
            readers.push(vec![Reader(RwLock::new(&client, &name)?); READERS]);
        }
        for round in 0..plan.pairs {
            for turn in 0..HELD.len() {
                let which = (round + turn) % HELD.len();
                let rate = rate(&readers[which], plan.block).await?;
                // The first round loads scripts and warms caches.
                if round > 0 {
                    rates[which].push(rate);
                }
            }
        }
        anyhow::Ok(())
    })?;
    let ratios = rates[HELD.len() - 1].iter().zip(&rates[0]);
    let medians: Vec<f64> = rates
        .iter()
        .map(|rates| Spread::of(rates.clone()).median)
        .collect();
    report.row(
        "readers-held",
        format!("{READERS} readers: rate with 1024 other holders / with 8"),
        Spread::of(ratios.map(|(many, few)| many / few).collect()),
        Target::AtLeast(0.9),
        format!("{:.0}/s / {:.0}/s", medians[HELD.len() - 1], medians[0]),
    );
    report.chart(Chart {
        file: "rwlock-readers".into(),
        title: "64 tasks read and release while others hold the read side: a flat line is good"
            .into(),
        unit: "cycles per second".into(),
        along: "other readers that hold".into(),
        categories: HELD.map(|others| others.to_string()).to_vec(),
        series: vec![Series {
            name: "RwLock, read".into(),
            values: medians,
        }],
        scale: Scale::Linear,
        shape: Shape::Lines,
        source: String::new(),
    });
    Ok(())
}

/// Server time of a reader's release among many other readers, against few.
pub(crate) fn server_time(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    const HELD: [usize; 2] = [8, 300];
    let mut micros: [Vec<f64>; 2] = Default::default();
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let mut guards = Vec::new();
        for others in HELD {
            guards.push(held(&client, &format!("bench:release:{others}"), others).await?);
        }
        for _ in 0..plan.runs {
            for (others, micros) in HELD.iter().zip(&mut micros) {
                let name = format!("bench:release:{others}");
                let mut reader = Reader(RwLock::new(&client, &name)?);
                reader.cycle().await?;
                slowlog::start(server);
                for _ in 0..500 {
                    reader.cycle().await?;
                }
                let times = slowlog::stop(server, &name);
                micros.push(times.mean(RELEASE).context("no release")?);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        anyhow::Ok(())
    })?;
    let [few, many] = &micros;
    let ratios = many.iter().zip(few).map(|(many, few)| many / few);
    report.row(
        "readers-server-time",
        "release with 300 other readers / with 8",
        Spread::of(ratios.collect()),
        Target::AtMost(1.5),
        format!(
            "{:.1} us / {:.1} us",
            Spread::of(many.clone()).median,
            Spread::of(few.clone()).median
        ),
    );
    Ok(())
}

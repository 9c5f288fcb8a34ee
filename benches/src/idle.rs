//! Processes that wait for a name which stays held: the requests that their waiting costs the server.

use std::any::Any;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::Result;
use stanchion::{
    Background, Client, ClientConfig, FairLock, Lease, LeasedSemaphore, Lock, RwLock, Semaphore,
};
use stanchion_testkit::RedisServer;
use tokio::task::JoinSet;

use crate::handoffs::sent;
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};

/// The numbers of processes that wait, each with one task, and the limits of their requests a second.
const SIZES: [(usize, f64); 2] = [(4, 0.5), (64, 1.2)];

const NAME: &str = "bench:idle";

/// Longer than a run, so that the holder sends nothing.
const LEASE: Duration = Duration::from_secs(600);

/// Until the last process that waits is subscribed.
const SETTLED: Duration = Duration::from_secs(2);

/// What a call got. It holds until it is dropped.
type Got = Box<dyn Any + Send>;
type Call = Pin<Box<dyn Future<Output = Result<Got>> + Send>>;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Lock,
    Write,
    Read,
    Fair,
    Permits,
    Leased,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Lock,
        Self::Write,
        Self::Read,
        Self::Fair,
        Self::Permits,
        Self::Leased,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::Lock => "Lock",
            Self::Write => "RwLock, write",
            Self::Read => "RwLock, read",
            Self::Fair => "FairLock",
            Self::Permits => "Semaphore",
            Self::Leased => "LeasedSemaphore",
        }
    }

    /// The acquire of the holder, or of one that waits.
    fn acquire(self, client: &Client, holds: bool) -> Result<Call> {
        let lease = Lease::new(LEASE)?;
        Ok(match self {
            Self::Lock => boxed(Lock::new(client, NAME)?.lease(lease).acquire()),
            Self::Fair => boxed(FairLock::new(client, NAME)?.lease(lease).acquire()),
            Self::Read if !holds => boxed(RwLock::new(client, NAME)?.lease(lease).read()),
            Self::Write | Self::Read => boxed(RwLock::new(client, NAME)?.lease(lease).write()),
            Self::Permits => boxed(Semaphore::new(client, NAME)?.acquire()),
            Self::Leased => {
                let semaphore = LeasedSemaphore::new(client, NAME)?;
                boxed(semaphore.lease(lease).acquire())
            }
        })
    }

    async fn prepare(self, client: &Client) -> Result<()> {
        match self {
            Self::Permits => drop(Semaphore::new(client, NAME)?.init(1).await?),
            Self::Leased => drop(LeasedSemaphore::new(client, NAME)?.init(1).await?),
            _ => {}
        }
        Ok(())
    }
}

fn boxed<T: Send + 'static, E: std::error::Error + Send + Sync + 'static>(
    call: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Call {
    Box::pin(async move { Ok(Box::new(call.await?) as Got) })
}

/// Returns the requests a second of `size` processes.
async fn run(server: &RedisServer, kind: Kind, size: usize, time: Duration) -> Result<f64> {
    // A thread for each of the clients would measure the scheduler.
    let config = || ClientConfig::new(server.url()).background(Background::CurrentRuntime);
    let holder = Client::connect_with(config()).await?;
    kind.prepare(&holder).await?;
    let _held = kind.acquire(&holder, true)?.await?;
    let (mut clients, mut waiting) = (Vec::new(), JoinSet::new());
    for _ in 0..size {
        let client = Client::connect_with(config()).await?;
        waiting.spawn(kind.acquire(&client, false)?);
        clients.push(client);
    }
    while !clients.iter().all(|client| client.waiters() == 1) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(SETTLED).await;
    server.reset_stats();
    let started = Instant::now();
    tokio::time::sleep(time).await;
    let rate = sent(server) as f64 / started.elapsed().as_secs_f64();
    waiting.shutdown().await;
    Ok(rate)
}

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    // Long enough for several polls of each process.
    let time = plan.run * 15;
    for kind in Kind::ALL {
        for (size, limit) in SIZES {
            let rate = Flavor::MultiThread
                .runtime()?
                .block_on(run(server, kind, size, time))?;
            report.row(
                "idle",
                format!("{}, {size} processes wait: requests a second", kind.title()),
                Spread::one(rate),
                Target::AtMost(limit),
                format!("for {} s; the holder sends none", time.as_secs()),
            );
            server.flush();
        }
    }
    Ok(())
}

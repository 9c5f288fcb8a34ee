//! A service that serves its metrics to Prometheus while its tasks contend for locks.
//!
//! `cargo run -p stanchion --features metrics --example metrics -- [URL] [ADDRESS]`; without arguments on an engine inside the
//! process, and on a port that it prints.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

#[path = "common/serving.rs"]
mod serving;

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use stanchion::{
    AcquireOptions, Client, Election, FairLock, Job, LeasedSemaphore, Lock, RateLimiter, RwLock,
};
use tokio::net::TcpListener;

/// From 1 ms, a round trip and a bit, to a minute, twice the default lease.
const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0,
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .unwrap_or_else(|| "memory://metrics".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    // Before the first client, so that the recorder is told what the metrics mean.
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Prefix("stanchion_".into()), &BUCKETS)?
        .install_recorder()?;
    let client = Client::connect(url).await?;
    load(&client).await?;
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    serving::serve(listener, metrics).await?;
    Ok(())
}

/// Starts tasks that contend for everything that has a metric.
async fn load(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let (lock, fair) = (
        Lock::new(client, "orders")?,
        FairLock::new(client, "tickets")?,
    );
    let prices = RwLock::new(client, "prices")?;
    let permits = LeasedSemaphore::new(client, "downloads")?;
    permits.init(3).await?;
    for n in 0..8 {
        let work = Duration::from_millis(5 + n);
        let (lock, fair) = (lock.clone(), fair.clone());
        let (prices, permits) = (prices.clone(), permits.clone());
        tokio::spawn(async move {
            loop {
                // An error is counted as an outcome; this service has no other use for it.
                if let Ok(guard) = lock.acquire().await {
                    tokio::time::sleep(work).await;
                    drop(guard);
                }
                if let Ok(guard) = fair.acquire_timeout(Duration::from_millis(30)).await {
                    tokio::time::sleep(work).await;
                    drop(guard);
                }
                if let Ok(guard) = prices.read().await {
                    tokio::time::sleep(work).await;
                    drop(guard);
                }
                if n == 0
                    && let Ok(guard) = prices.write().await
                {
                    drop(guard);
                }
                if let Ok(permit) = permits.acquire().await {
                    tokio::time::sleep(work).await;
                    drop(permit);
                }
                if let Ok(Some(guard)) = lock.try_acquire().await {
                    drop(guard);
                }
                tokio::time::sleep(work).await;
            }
        });
    }
    // A hold that is renewed, and one that is lost now and then.
    let (report, nightly) = (Lock::new(client, "report")?, Lock::new(client, "nightly")?);
    tokio::spawn(async move {
        let held = report.acquire().await;
        let brief = AcquireOptions::new().max_hold(Duration::from_secs(1));
        loop {
            if let Ok(guard) = nightly.acquire_with(brief.clone()).await {
                guard.lost().await;
            }
            if held.is_err() {
                return;
            }
        }
    });
    paced(client)
}

async fn work() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Starts tasks that go on at a rate, run a job, and lead.
fn paced(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let partner = RateLimiter::new(client, "partner", "20/s".parse()?)?;
    let (job, election) = (Job::new(client, "cleanup")?, Election::new(client, "head")?);
    let (waiting, asking) = (partner.clone(), partner);
    tokio::spawn(async move { while waiting.acquire().await.is_ok() {} });
    tokio::spawn(async move {
        while asking.try_acquire().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    tokio::spawn(async move { while job.run(|_| work()).await.is_ok() {} });
    tokio::spawn(async move {
        let term = |_, _| async move {
            work().await;
            Ok(())
        };
        while election.lead("example", term).once().await.is_ok() {}
    });
    Ok(())
}

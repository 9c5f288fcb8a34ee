//! One service of the incident in `docs/running/monitoring.md`: eight tasks that take one lock in turns, and metrics of it.
//!
//! `cargo run -p stanchion --features metrics --example incident -- URL NAME ADDRESS [SECONDS]`: after so many seconds one of its tasks does not
//! come back from its work, and holds the lock for as long as its lease is renewed. `scripts/incident` runs it, and draws what Prometheus saw.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

#[path = "common/serving.rs"]
mod serving;

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use stanchion::{Client, ClientConfig, Lock};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

const TASKS: usize = 8;
/// The work under the lock.
const WORK: Duration = Duration::from_millis(30);
/// The rest of a task between two turns.
const REST: Duration = Duration::from_millis(400);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or_else(|| format!("{what} is missing"));
    let (url, name) = (next("the URL")?, next("the name of the service")?);
    let address = next("the address of the metrics")?;
    let hangs_after = next("").ok().map(|text| text.parse()).transpose()?;
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let client = Client::connect_with(ClientConfig::new(url).name(name)).await?;
    let hangs_at = hangs_after.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    for task in 0..TASKS {
        let lock = Lock::new(&client, "orders")?;
        let hangs_at = hangs_at.filter(|_| task == 0);
        tokio::spawn(async move { turns(lock, hangs_at).await });
    }
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    serving::serve(listener, metrics).await?;
    Ok(())
}

/// Takes the lock, works, gives it back. At `hangs_at` the work does not end: an answer that never comes.
async fn turns(lock: Lock, mut hangs_at: Option<Instant>) {
    loop {
        // An error is counted as an outcome, and the task tries again.
        if let Ok(guard) = lock.acquire().await {
            let hangs = hangs_at.is_some_and(|at| Instant::now() >= at);
            let worked = guard.run(async {
                if hangs {
                    std::future::pending::<()>().await;
                }
                sleep(WORK).await;
            });
            // Lost: `run` has dropped the work, and the next one holds by now.
            if worked.await.is_err() {
                hangs_at = None;
            }
        }
        sleep(REST).await;
    }
}

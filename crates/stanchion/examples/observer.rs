//! Counts a client's events without the `metrics` facade: the pattern for any other telemetry. Runs without a server.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stanchion::client::{Gauges, Observer};
use stanchion::{Client, ClientConfig, Lock};

/// The totals, by what happened. Another telemetry has its own instruments here.
#[derive(Debug, Default)]
struct Totals(Mutex<BTreeMap<String, u64>>);

impl Totals {
    fn add(&self, event: String) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *totals.entry(event).or_default() += 1;
    }
}

impl Observer for Totals {
    fn waited(&self, kind: &'static str, outcome: &'static str, _: Duration) {
        self.add(format!("{kind}: {outcome}"));
    }

    fn lost(&self, kind: &'static str, reason: &'static str) {
        self.add(format!("{kind}: lost, {reason}"));
    }

    fn gauges(&self, now: &Gauges) {
        println!("held now: {:?}, waiting: {:?}", now.held, now.waiting);
    }
}

#[tokio::main]
async fn main() -> Result<(), stanchion::Error> {
    let totals = Arc::new(Totals::default());
    let config = ClientConfig::new("memory://observer").observer(totals.clone());
    let client = Client::connect_with(config).await?;
    let orders = Lock::new(&client, "orders")?;
    let guard = orders.acquire().await?;
    let next = tokio::spawn(orders.acquire());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(orders.try_acquire().await?.is_none());
    guard.release().await?;
    if let Ok(guard) = next.await {
        guard?.release().await?;
    }
    client.shutdown(Duration::from_secs(1)).await;
    for (event, times) in totals
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
    {
        println!("{event}: {times}");
    }
    Ok(())
}

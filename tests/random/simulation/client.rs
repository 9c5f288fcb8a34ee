//! The software of a client host: one stanchion client, and tasks that use it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stanchion::{Background, Client, ClientConfig};
use tokio::task::JoinSet;

use crate::simulation::ledger::Ledger;
use crate::simulation::network::{SERVER, Wire};
use crate::simulation::scenario::Scenario;
use crate::simulation::time::SkewedClock;
use crate::simulation::work::Worker;

/// The life of a client host between two restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) host: u32,
    /// The number of the host's restarts.
    pub(crate) number: u32,
}

impl Life {
    /// The number of the process in the history.
    pub(crate) fn process(self) -> u32 {
        self.host * 1_000 + self.number
    }

    fn seed(self, scenario: &Scenario) -> u64 {
        scenario
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(u64::from(self.process()))
    }
}

/// The host's name on the network.
pub(crate) fn host_name(host: u32) -> String {
    format!("client-{host}")
}

/// Connects, lets the tasks work until the end, and shuts down.
pub(crate) async fn run(
    ledger: Arc<Ledger>,
    scenario: Arc<Scenario>,
    life: Life,
) -> turmoil::Result {
    let clock = SkewedClock::new(&ledger.time, scenario.seed, life.host);
    let config = ClientConfig::new(format!("redis://{SERVER}:6379/"))
        .connector(Wire)
        .clock(clock.clone())
        .background(Background::CurrentRuntime)
        .seed(life.seed(&scenario))
        // Queue entries with the same arrival time are ordered by their ids, so ids depend on the seed.
        .identity(u128::from(life.seed(&scenario)))
        .poll_interval(scenario.poll_interval)
        .subscription_linger(scenario.linger)
        .response_timeout(scenario.response_timeout);
    let client = connect(&ledger, &config).await;
    let mut tasks = JoinSet::new();
    for task in 0..scenario.tasks {
        let worker = Worker {
            ledger: Arc::clone(&ledger),
            scenario: Arc::clone(&scenario),
            client: client.clone(),
            clock: clock.clone(),
            process: life.process(),
            task,
            rng: fastrand::Rng::with_seed(
                life.seed(&scenario)
                    .wrapping_mul(7)
                    .wrapping_add(u64::from(task)),
            ),
        };
        tasks.spawn((scenario.workload.work)(worker));
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    if client.waiters() != 0 {
        ledger.complain(format!(
            "P3: {} waiters left on host {}",
            client.waiters(),
            life.host
        ));
    }
    let report = client.shutdown(Duration::from_secs(10)).await;
    if !report.is_clean() {
        ledger.complain(format!("host {} left behind {report:?}", life.host));
    }
    ledger.done.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Retries until a connection succeeds, as a supervised service does.
async fn connect(ledger: &Ledger, config: &ClientConfig) -> Client {
    loop {
        let started = ledger.time.now();
        let connected = Client::connect_with(config.clone()).await;
        let took = ledger.time.now().saturating_sub(started);
        {
            let mut notes = ledger.notes();
            notes.slowest_connect = notes.slowest_connect.max(took);
        }
        ledger.check_bound("connect", started, config.connect_timeout);
        match connected {
            Ok(client) => return client,
            Err(_) => ledger.count("connect failed"),
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

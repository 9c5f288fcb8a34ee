//! The clients of one server: the cost of an idle one that holds a lock, and of a grant when all of them want one name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use stanchion::{Client, Lock};
use stanchion_testkit::RedisServer;
use tokio::task::JoinSet;

use super::{Meter, Readings, connect, grouped, server_memory, shown, span};
use crate::measure::{Flavor, Plan};
use crate::report::Report;

/// A client has two connections, and a third one once it waits or holds for a while.
const SIZES: [usize; 3] = [10, 100, 1000];

/// Clients that connect or acquire at once.
const AT_ONCE: usize = 32;

struct Outcome {
    idle: Readings,
    busy: Readings,
    grants: f64,
    connections: f64,
    /// Bytes of an idle client on the server, its hold included.
    bytes: f64,
}

pub(super) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    for size in SIZES {
        let run = run(server, size, plan);
        let run = Flavor::MultiThread.runtime()?.block_on(run)?;
        server.flush();
        let (title, count) = (grouped(size), size as f64);
        let idle = run.idle;
        shown(
            report,
            format!("{title} idle clients, each with a held lock: server, % of a core"),
            100.0 * idle.server / idle.seconds,
            format!(
                "{:.2} commands a second for a client, of them {:.2} checks of connections; {:.1} connections and {:.0} bytes for a client",
                (idle.requests + idle.checks) / idle.seconds / count,
                idle.checks / idle.seconds / count,
                run.connections / count,
                run.bytes,
            ),
        );
        let busy = run.busy;
        shown(
            report,
            format!("{title} clients want one name: server, us of CPU for a grant"),
            busy.server * 1e6 / run.grants,
            format!(
                "{:.2} commands and {:.0} us of scripts for a grant; {:.0} grants/s",
                busy.requests / run.grants,
                busy.script_micros / run.grants,
                run.grants / busy.seconds,
            ),
        );
    }
    Ok(())
}

async fn run(server: &RedisServer, size: usize, plan: Plan) -> Result<Outcome> {
    let connected = || -> Result<f64> {
        let clients = server.info("clients", "connected_clients");
        Ok(clients.unwrap_or_default().trim().parse()?)
    };
    let (bytes, before) = (server_memory(server)?, connected()?);
    let mut clients: Vec<Client> = Vec::with_capacity(size);
    let mut joining = JoinSet::new();
    let (mut held, mut next) = (Vec::with_capacity(size), 0);
    while clients.len() < size {
        while next < size && joining.len() < AT_ONCE {
            let (url, nth) = (server.url(), next);
            joining.spawn(async move {
                let client = connect(&url).await?;
                let guard = Lock::new(&client, format!("bench:scale:own:{nth}"))?;
                anyhow::Ok((guard.acquire().await?, client))
            });
            next += 1;
        }
        if let Some(ended) = joining.join_next().await {
            let (guard, client) = ended??;
            held.push(guard);
            clients.push(client);
        }
    }
    // Until the clients have subscribed, and the server has given back the buffers of the connects.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let meter = Meter::start(server)?;
    tokio::time::sleep(span(plan)).await;
    let idle = meter.read()?;
    let (bytes, connections) = (server_memory(server)? - bytes, connected()? - before);
    for guard in held {
        guard.release().await?;
    }
    let grants = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for client in &clients {
        let lock = Lock::new(client, "bench:scale:one")?;
        let grants = Arc::clone(&grants);
        tasks.spawn(async move {
            loop {
                let guard = lock.acquire().await?;
                grants.fetch_add(1, Ordering::Relaxed);
                guard.release().await?;
            }
            #[expect(unreachable_code, reason = "names the type of the errors above")]
            anyhow::Ok(())
        });
    }
    // Until all are in the queue.
    tokio::time::sleep(span(plan) / 5).await;
    let (meter, already) = (Meter::start(server)?, grants.load(Ordering::Relaxed));
    tokio::time::sleep(span(plan) / 2).await;
    let (busy, granted) = (meter.read()?, grants.load(Ordering::Relaxed) - already);
    if let Some(ended) = tasks.try_join_next() {
        ended??;
    }
    tasks.shutdown().await;
    for client in clients {
        client.shutdown(Duration::from_secs(1)).await;
    }
    Ok(Outcome {
        idle,
        busy,
        grants: granted as f64,
        connections,
        bytes: bytes / size as f64,
    })
}

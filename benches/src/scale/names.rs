//! Names that are held, each with one waiting client: the cost of the wait, and the time until all are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use stanchion::{AcquireOptions, Lease, Lock};
use stanchion_testkit::RedisServer;
use tokio::task::JoinSet;

use super::{
    Meter, Readings, bytes_each, chart, connect, grouped, rounded, server_memory, shown, span,
};
use crate::chart::Series;
use crate::measure::{Flavor, Plan};
use crate::report::Report;

const SIZES: [usize; 3] = [10, 1000, 10_000];

/// Clients that share the waits.
const WAITING: usize = 4;

/// Tasks that acquire the names, and release them.
const TASKS: usize = 64;

/// Longer than a run, so that the holder sends nothing.
const LEASE: Duration = Duration::from_secs(600);

struct Outcome {
    idle: Readings,
    served: Readings,
    /// Bytes of a name on the server, with its holder and its queue.
    bytes: f64,
    /// From the first release to the last grant, in seconds.
    until: f64,
}

pub(super) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let (mut on_server, mut in_client) = (Vec::new(), Vec::new());
    let mut name = f64::NAN;
    for size in SIZES {
        let run = run(server, size, plan);
        let run = Flavor::MultiThread.runtime()?.block_on(run)?;
        server.flush();
        let (title, count) = (grouped(size), size as f64);
        let Readings {
            seconds,
            server: spent,
            client,
            requests,
            script_micros,
            ..
        } = run.idle;
        on_server.push(100.0 * spent / seconds);
        in_client.push(100.0 * client / seconds);
        name = spent / seconds / count;
        shown(
            report,
            format!("{title} names with a waiting client: server, % of a core"),
            100.0 * spent / seconds,
            format!(
                "{:.2} commands a second for a name, {:.0} us of the script for each; clients {:.1} % of a core{}",
                requests / seconds / count,
                script_micros / requests,
                100.0 * client / seconds,
                bytes_each(run.bytes, size, "a name")
            ),
        );
        let served = run.served;
        shown(
            report,
            format!("{title} names released at once: ms until all are served"),
            run.until * 1e3,
            format!(
                "{:.0} us of the server and {:.2} commands for a grant and its release",
                served.server * 1e6 / count,
                served.requests / count
            ),
        );
    }
    let line = |name: &str, values| Series {
        name: name.into(),
        values,
    };
    report.chart(chart(
        "scale-waiting",
        "CPU for names that are held and awaited by one client each",
        "names with a waiting client",
        &SIZES,
        vec![line("server", on_server), line("clients", in_client)],
        format!(
            "The holder sends nothing. By the cost at the largest number, one server core is full at {} such names.",
            rounded(1.0 / name)
        ),
    ));
    Ok(())
}

async fn run(server: &RedisServer, size: usize, plan: Plan) -> Result<Outcome> {
    let holder = connect(&server.url()).await?;
    let mut clients = Vec::new();
    for _ in 0..WAITING {
        clients.push(connect(&server.url()).await?);
    }
    let bytes = server_memory(server)?;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let holder = holder.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for nth in (task..size).step_by(TASKS) {
                let lock = Lock::new(&holder, name(nth))?;
                let lease = AcquireOptions::new().lease(Lease::new(LEASE)?);
                guards.push(lock.acquire_with(lease).await?);
            }
            anyhow::Ok(guards)
        });
    }
    let mut held = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        held.push(ended??);
    }
    let granted = Arc::new(AtomicUsize::new(0));
    let mut waiting = JoinSet::new();
    for nth in 0..size {
        let lock = Lock::new(&clients[nth % WAITING], name(nth))?;
        let granted = Arc::clone(&granted);
        waiting.spawn(async move {
            let guard = lock.acquire().await?;
            granted.fetch_add(1, Ordering::Relaxed);
            anyhow::Ok(guard)
        });
    }
    while clients
        .iter()
        .map(stanchion::Client::waiters)
        .sum::<usize>()
        < size
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Until all are in the queues.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let bytes = (server_memory(server)? - bytes) / size as f64;
    let meter = Meter::start(server)?;
    tokio::time::sleep(span(plan)).await;
    let idle = meter.read()?;
    let (meter, began) = (Meter::start(server)?, Instant::now());
    let mut releasing = JoinSet::new();
    for guards in held {
        releasing.spawn(async move {
            for guard in guards {
                guard.release().await?;
            }
            anyhow::Ok(())
        });
    }
    while granted.load(Ordering::Relaxed) < size {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let until = began.elapsed().as_secs_f64();
    let served = meter.read()?;
    while let Some(ended) = releasing.join_next().await {
        ended??;
    }
    while let Some(ended) = waiting.join_next().await {
        drop(ended??);
    }
    for client in clients {
        client.shutdown(Duration::from_secs(30)).await;
    }
    Ok(Outcome {
        idle,
        served,
        bytes,
        until,
    })
}

fn name(nth: usize) -> String {
    format!("bench:scale:name:{nth}")
}

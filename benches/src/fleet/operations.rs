//! The server time of operations, one row each: to compare servers.

use std::time::Duration;

use anyhow::Result;
use stanchion_testkit::RedisServer;

use super::{What, run};
use crate::bare::{Pair, connect};
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};
use crate::server_time::block;

const WHATS: [What; 5] = [
    What::Lock,
    What::Fair,
    What::Write,
    What::Semaphore,
    What::Leased,
];

/// Clients that contend.
const CLIENTS: usize = 16;

const NAME: &str = "bench:operations";

pub(crate) fn operations(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let pairs = [
        ("Lock, free, in pipelines", Pair::ours(NAME)),
        ("Redisson's lock, free, in pipelines", Pair::redisson(NAME)),
    ];
    Flavor::CurrentThread.runtime()?.block_on(async {
        let mut connection = connect(&server.url()).await?;
        for (what, pair) in pairs {
            pair.load(&mut connection).await?;
            block(server, &mut connection, &pair).await?;
            let mut micros = Vec::new();
            for _ in 0..plan.pairs {
                micros.push(block(server, &mut connection, &pair).await?);
            }
            row(report, what.to_owned(), Spread::of(micros));
        }
        anyhow::Ok(())
    })?;
    server.flush();
    let plan = Plan {
        runs: plan.runs.min(3),
        run: plan.run / 2,
        ..plan
    };
    for what in WHATS {
        for size in [1, CLIENTS] {
            let mut micros = Vec::new();
            for _ in 0..plan.runs {
                let run = run(server, what, size, Duration::ZERO, plan);
                let run = Flavor::MultiThread.runtime()?.block_on(run)?;
                micros.push(run.server_micros);
                server.flush();
            }
            let how = match size {
                1 => "free".to_owned(),
                _ => format!("{size} clients"),
            };
            row(
                report,
                format!("{}, {how}", what.title()),
                Spread::of(micros),
            );
        }
    }
    Ok(())
}

fn row(report: &mut Report, what: String, micros: Spread) {
    report.row(
        "operations",
        what,
        micros,
        Target::None,
        "us of the scripts",
    );
}

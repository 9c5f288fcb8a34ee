//! One workload of `scripts/compare`: `stanchion-compare WORKLOAD URL GRANTS`. It uses only what every version of the facade has, because
//! the script builds it once with each of the two versions.
//!
//! The tasks of a workload share one client and one thread. Each acquires and releases until all of them have had `GRANTS` grants.

use std::cell::Cell;
use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;

use stanchion::{Client, FairLock, LeasedSemaphore, Lock, RwLock, Semaphore};
use tokio::task::{LocalSet, spawn_local, yield_now};

type Outcome = Result<(), Box<dyn Error>>;

const NAME: &str = "compared";
/// Fewer than the tasks of the workloads with permits, so that most of them wait.
const PERMITS: u32 = 8;

/// Runs so many tasks that repeat a cycle on `$handle` until all of them have had `$grants` grants.
macro_rules! repeat {
    ($tasks:expr, $grants:expr, $handle:expr, $acquire:ident) => {{
        let (left, handle) = (Rc::new(Cell::new($grants)), Rc::new($handle));
        let tasks: Vec<_> = (0..$tasks)
            .map(|_| {
                let (left, handle) = (Rc::clone(&left), Rc::clone(&handle));
                spawn_local(async move {
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        let guard = handle.$acquire().await?;
                        // The hold spans one turn of the tasks, so that others wait for it.
                        yield_now().await;
                        guard.release().await?;
                    }
                    Ok::<(), Box<dyn Error>>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
    }};
}

async fn run(workload: &str, url: &str, grants: u64) -> Outcome {
    let client = Client::connect(url).await?;
    let (kind, tasks) = workload.rsplit_once('-').ok_or("no number of tasks")?;
    let tasks: usize = tasks.parse()?;
    match kind {
        "lock" => repeat!(tasks, grants, Lock::new(&client, NAME)?, acquire),
        "fair" => repeat!(tasks, grants, FairLock::new(&client, NAME)?, acquire),
        "read" => repeat!(tasks, grants, RwLock::new(&client, NAME)?, read),
        "permit" => {
            let semaphore = Semaphore::new(&client, NAME)?;
            semaphore.init(PERMITS).await?;
            repeat!(tasks, grants, semaphore, acquire);
        }
        "leased" => {
            let semaphore = LeasedSemaphore::new(&client, NAME)?;
            semaphore.init(PERMITS).await?;
            repeat!(tasks, grants, semaphore, acquire);
        }
        other => return Err(format!("no kind {other}").into()),
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workload, url, grants] = arguments.as_slice() else {
        eprintln!("usage: stanchion-compare WORKLOAD URL GRANTS");
        return ExitCode::from(2);
    };
    let Ok(grants) = grants.parse() else {
        eprintln!("not a number of grants: {grants}");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .map_err(Into::into)
        .and_then(|it| LocalSet::new().block_on(&it, run(workload, url, grants)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{workload}: {error}");
            ExitCode::FAILURE
        }
    }
}

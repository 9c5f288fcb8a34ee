//! One job on many machines, under three schedulers. Each machine has the same schedule; each tick is run by one of them.
//!
//! Copy the function that you need. `cargo test` runs all of them, with two machines each.

use std::str::FromStr;
use std::time::Duration;

use stanchion::jobs::{JobRun, Outcome};
use stanchion::{Job, Tick};

/// The work: here it says for which tick it ran.
pub type Ran = tokio::sync::mpsc::UnboundedSender<Tick>;

async fn report(run: JobRun, ran: Ran) {
    if let Some(tick) = run.tick() {
        ran.send(tick).ok();
    }
}

/// tokio's interval. It drifts and starts at any time: the tick is what the machine's clock says, rounded down.
pub async fn interval(
    job: Job,
    period: Duration,
    ran: Ran,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut interval = tokio::time::interval(period);
    loop {
        interval.tick().await;
        let tick = Tick::every(period)?;
        match job.run_tick(tick, |run| report(run, ran.clone())).await {
            Ok(Outcome::Lost { reason, .. }) => eprintln!("{tick}: stopped, {reason}"),
            Ok(_) => {}
            // An outage: this tick may be run by another machine, and the next one is tried again.
            Err(error) => eprintln!("{tick}: {error}"),
        }
    }
}

/// tokio-cron-scheduler. It looks at its jobs twice a second, and does not tell them when they were due.
///
/// For a schedule at a time of the day take `Tick::cron`, with the expression without its seconds and with the time zone of the scheduler. It
/// needs stanchion's feature `cron`.
pub async fn cron_scheduler(
    job: Job,
    ran: Ran,
) -> Result<tokio_cron_scheduler::JobScheduler, Box<dyn std::error::Error>> {
    // As often as the schedule fires.
    let period = Duration::from_secs(1);
    let scheduler = tokio_cron_scheduler::JobScheduler::new().await?;
    let each_second = tokio_cron_scheduler::Job::new_async("* * * * * *", move |_, _| {
        let (job, ran) = (job.clone(), ran.clone());
        Box::pin(async move {
            let Ok(tick) = Tick::every(period) else {
                return;
            };
            if let Err(error) = job.run_tick(tick, |run| report(run, ran)).await {
                eprintln!("{tick}: {error}");
            }
        })
    })?;
    scheduler.add(each_second).await?;
    scheduler.start().await?;
    Ok(scheduler)
}

/// apalis. Its ticks have the time at which they are due. An error is one of the server, or a lost run; a tick that
/// has run is a success, whoever ran it.
pub async fn apalis(job: Job, ran: Ran) -> Result<(), Box<dyn std::error::Error>> {
    use apalis::prelude::*;

    let handle = async move |due: apalis_cron::Tick| -> Result<(), BoxDynError> {
        let tick = Tick::from_unix_millis(due.get_timestamp() * 1_000)?;
        match job.run_tick(tick, |run| report(run, ran.clone())).await? {
            Outcome::Lost { reason, .. } => Err(format!("{tick}: stopped, {reason}").into()),
            _ => Ok(()),
        }
    };
    let schedule = cron::Schedule::from_str("* * * * * *")?;
    let worker = WorkerBuilder::new("reports")
        .backend(apalis_cron::CronScheduler::new(schedule))
        .build(move |due| {
            let handle = handle.clone();
            async move { handle(due).await }
        });
    worker.run().await?;
    Ok(())
}

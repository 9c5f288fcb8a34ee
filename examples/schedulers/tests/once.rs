//! Two machines with the same schedule, on one server: each tick is run by one of them.

use std::collections::BTreeSet;
use std::time::Duration;

use stanchion::{Client, Job, Tick};
use stanchion_schedulers::{Ran, apalis, cron_scheduler, interval};
use tokio::sync::mpsc;

const ENOUGH: usize = 4;

async fn job(server: &str) -> Job {
    let client = Client::connect(format!("memory://{server}")).await.unwrap();
    Job::new(&client, "report").unwrap()
}

/// Listens until enough ticks have run.
async fn each_once(mut ran: mpsc::UnboundedReceiver<Tick>) {
    let mut seen = BTreeSet::new();
    while seen.len() < ENOUGH {
        let tick = tokio::time::timeout(Duration::from_secs(60), ran.recv()).await;
        let tick = tick.expect("somebody runs").expect("the machines live");
        assert!(seen.insert(tick), "{tick} ran twice");
    }
}

/// `machine` never ends by itself.
async fn on_two_machines(server: &str, machine: impl AsyncFn(Job, Ran)) {
    let (tell, ran) = mpsc::unbounded_channel();
    let (one, other) = (job(server).await, job(server).await);
    tokio::select! {
        ((), ()) = async { tokio::join!(machine(one, tell.clone()), machine(other, tell.clone())) } => panic!("they end"),
        () = each_once(ran) => {}
    }
}

#[tokio::test]
async fn under_an_interval() {
    let period = Duration::from_millis(300);
    on_two_machines("interval", async |job, ran| {
        interval(job, period, ran).await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn under_tokio_cron_scheduler() {
    on_two_machines("cron", async |job, ran| {
        let _scheduler = cron_scheduler(job, ran).await.unwrap();
        std::future::pending().await
    })
    .await;
}

#[tokio::test]
async fn under_apalis() {
    on_two_machines("apalis", async |job, ran| apalis(job, ran).await.unwrap()).await;
}

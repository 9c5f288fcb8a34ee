//! The contract of a job, on the engine: one machine runs it, and each tick once.

use std::time::Duration;

use stanchion_jobs::{Begun, Client, Job, Outcome, Tick};

#[tokio::test]
async fn one_machine_runs_a_job_at_a_time() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let (ours, theirs) = (
        Job::new(&a, "nightly").unwrap(),
        Job::new(&b, "nightly").unwrap(),
    );
    let Begun::Running(run) = ours.begin().await.unwrap() else {
        panic!("nobody else runs it");
    };
    assert!(!matches!(theirs.begin().await.unwrap(), Begun::Running(_)));
    run.release().await.unwrap();
    let Begun::Running(run) = theirs.begin().await.unwrap() else {
        panic!("the run has ended");
    };
    run.release().await.unwrap();
}

#[tokio::test]
async fn a_tick_runs_once() {
    let url = "memory://smoke";
    let (a, b) = (
        Client::connect(url).await.unwrap(),
        Client::connect(url).await.unwrap(),
    );
    let tick = || Tick::every(Duration::from_secs(86_400)).unwrap();
    let (ours, theirs) = (
        Job::new(&a, "daily").unwrap(),
        Job::new(&b, "daily").unwrap(),
    );
    let first = ours.run_tick(tick(), |_| async { 17 }).await.unwrap();
    assert!(matches!(first, Outcome::Done(17)), "{first:?}");
    let second = theirs.run_tick(tick(), |_| async { 17 }).await.unwrap();
    assert!(matches!(second, Outcome::Already { .. }), "{second:?}");
}
